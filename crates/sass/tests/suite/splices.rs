//! Probes in all our kernels, seen with NVIDIA's disassembler: whatever was not replaced reads as
//! it did before.

use crate::common::{
    BRANCHES, CALLS, COUNT, KEEPS, Line, corpus, disassemble, is_deep, names_what_it_has, nvcc,
    probe_cubin, workspace,
};
use warpbpf_fatbin::Cubin;
use warpbpf_sass::elf::Image;
use warpbpf_sass::word::Word;
use warpbpf_sass::{Addresses, CheckError, File, Hook, Probe, Refusal, Spliced, splice};

const USERDATA: u64 = 0x7f12_3456_789a_bcd0;

fn probe(name: &str, body: &str, arch: u32) -> Probe {
    Probe::parse(&probe_cubin(name, body, &format!("sm_{arch}")), name)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Kernels that are refused, and why; everything else must be taken.
fn is_expected(kernel: &str, refusal: &Refusal) -> bool {
    match refusal {
        // Nothing tells when a surface store has read its registers. Nor, where a kernel waits for
        // another one, when its atomic of 64 bits without a result has; nor when a prefetch has.
        Refusal::Unprotected { .. } => {
            let others = [
                "_Z4pingj",
                "_Z4pongj",
                "_Z11probedCountPj",
                "_Z7fetchesPKyPyi",
            ];
            kernel.contains("surfaceWrite") || others.contains(&kernel)
        }
        // The driver may put other code in place of atomics on halves.
        Refusal::RefusedAttribute { .. } => kernel.contains("halfAtomics"),
        _ => false,
    }
}

#[test]
fn every_cubin_is_written_back_byte_for_byte() {
    for arch in [80, 90] {
        for (name, cubin) in corpus(arch) {
            let image = Image::parse(&cubin).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(image.write() == cubin, "{name} for sm_{arch} differs");
        }
    }
}

#[test]
fn kernels_of_sm_80_stay_what_they_were() {
    stay_what_they_were(80);
}

#[test]
fn kernels_of_sm_90_stay_what_they_were() {
    stay_what_they_were(90);
}

fn stay_what_they_were(arch: u32) {
    let probes = [
        probe("count", COUNT, arch),
        probe("branches", BRANCHES, arch),
        probe("calls", CALLS, arch),
        probe("keeps", KEEPS, arch),
    ];
    // Instructions that keep a barrier are there, so that what becomes of them is seen below.
    let keeps = probe_cubin("keeps", KEEPS, &format!("sm_{arch}"));
    let kept = keeps.chunks(16).any(|word| word[..2] == [0x55, 0x73]);
    assert!(kept, "the assembler keeps no barrier");
    let (mut kernels, mut exits, mut guarded) = (0, 0, 0);
    for (name, original) in corpus(arch) {
        let image = Image::parse(&original).expect("a cubin");
        // Each kernel gets its probes behind those of the kernels before it.
        let mut cubin = original.clone();
        let mut done: Vec<(String, Spliced)> = Vec::new();
        let file = File::parse(&original).expect("a cubin");
        let mut edits = Vec::new();
        for symbol in image.symbols.iter().filter(|s| s.is_kernel) {
            let entry = &probes[kernels % 4];
            let exit = &probes[kernels / 4 % 4];
            let hook = |probe| Hook {
                probe,
                userdata: USERDATA,
            };
            let edit = file.edit(&symbol.name, Some(hook(entry)), Some(hook(exit)));
            match splice(&cubin, &symbol.name, Some(hook(entry)), Some(hook(exit))) {
                Ok(spliced) => {
                    let edit = edit.expect("an edit");
                    assert_eq!(edit.change, spliced.change, "{}", symbol.name);
                    edits.push(edit);
                    kernels += 1;
                    exits += spliced.change.exits.len();
                    guarded += spliced.change.guarded;
                    cubin.clone_from(&spliced.cubin);
                    done.push((symbol.name.clone(), spliced));
                }
                Err(refusal) => {
                    assert!(
                        is_expected(&symbol.name, &refusal),
                        "{name}, {}: {refusal}",
                        symbol.name
                    );
                    assert_eq!(edit.err(), Some(refusal));
                }
            }
        }
        // All at once is the same, byte for byte, by one pass.
        let written = file.write(&edits, &Addresses::new()).expect("a file");
        assert!(written.cubin == cubin, "{name} for sm_{arch} differs");
        assert_eq!(written.passes, usize::from(!edits.is_empty()), "{name}");
        assert_eq!(written.left_out, [], "{name}");
        let before = disassemble(&format!("{name}.{arch}.original"), &original);
        let after = disassemble(&format!("{name}.{arch}.after"), &cubin);
        for (section, old) in &before {
            let (_, new) = after
                .iter()
                .find(|(s, _)| s == section)
                .expect("the section");
            let of = |(kernel, _): &&(String, Spliced)| *section == format!(".text.{kernel}");
            match done.iter().find(of) {
                Some((kernel, spliced)) => compare(kernel, old, new, spliced),
                None => assert_eq!(old, new, "{section}"),
            }
        }
        let facts = Cubin::parse(&cubin).expect("a cubin");
        for (kernel, spliced) in &done {
            let facts = facts.kernel(kernel).expect("the kernel");
            assert_eq!(facts.registers, Some(spliced.change.registers.1));
            assert_eq!(facts.code_bytes, spliced.change.code_bytes.1);
            let section = format!(".text.{kernel}");
            let (_, lines) = after.iter().find(|(name, _)| *name == section).expect("it");
            assert!(names_what_it_has(lines, facts.registers), "{kernel}");
        }
    }
    let least = match arch {
        80 if !is_deep() => 15,
        80 => 60,
        _ if !is_deep() => 40,
        _ => 90,
    };
    assert!(kernels > least, "only {kernels} kernels");
    assert!(
        exits > kernels && guarded > kernels,
        "{exits} exits, {guarded} guarded"
    );
}

fn compare(kernel: &str, old: &[Line], new: &[Line], spliced: &Spliced) {
    let size = spliced.change.code_bytes.0;
    assert_eq!(old.len() as u64 * 16, size, "{kernel}");
    let mut changed = 0;
    for (was, is) in old.iter().zip(new) {
        assert_eq!(was.at, is.at);
        let exit = spliced.change.exits.iter().find(|(at, _)| *at == was.at);
        if was.at == 0 {
            let target = is
                .text
                .strip_prefix("BRA 0x")
                .unwrap_or_else(|| panic!("{is:?}"));
            let stub = u64::from_str_radix(target, 16).unwrap_or_else(|_| panic!("{is:?}"));
            let behind: Vec<&Line> = new.iter().filter(|l| l.at >= stub).collect();
            let goes_on = |pair: &[&Line]| {
                pair[0].text == was.text && pair[0].word == was.word && pair[1].text == "BRA 0x10"
            };
            assert!(behind.windows(2).any(goes_on), "{kernel}: {behind:#?}");
        } else if let Some((_, end)) = exit {
            // `@P0 EXIT P1` becomes `@P0 BRA P1, stub`.
            let guard = |text: &str, op: &str| {
                let (guard, rest) = text.split_once(op).unwrap_or_else(|| panic!("{text}"));
                (guard.to_owned(), rest.trim().to_owned())
            };
            let (old_guard, second) = guard(&was.text, "EXIT");
            let (new_guard, rest) = guard(&is.text, "BRA");
            assert_eq!(old_guard, new_guard, "{kernel} at {:#x}", was.at);
            let target = match second.as_str() {
                "" => rest.as_str(),
                second => rest
                    .strip_prefix(second)
                    .and_then(|r| r.strip_prefix(", "))
                    .expect("the same predicate"),
            };
            let stub = u64::from_str_radix(target.trim_start_matches("0x"), 16).expect("an offset");
            assert!(stub >= size && stub < *end, "{kernel}: {target}");
            let last = new.iter().find(|l| l.at == *end).expect("the stub's end");
            assert_eq!(last.text, "EXIT", "{kernel}");
        } else {
            assert_eq!(was.text, is.text, "{kernel} at {:#x}", was.at);
            changed += usize::from(was.word != is.word);
        }
    }
    assert_eq!(changed, spliced.change.guarded, "{kernel}");
    // No way out but those of the stubs.
    let ends = |l: &&Line| l.text.split_whitespace().any(|word| word == "EXIT");
    let left: Vec<u64> = new.iter().filter(ends).map(|l| l.at).collect();
    let mut expected: Vec<u64> = spliced.change.exits.iter().map(|(_, end)| *end).collect();
    expected.sort_unstable();
    assert_eq!(left, expected, "{kernel}");
}

/// A file of hundreds of kernels, one of which is not what it should be: it is refused by its own
/// reason, and all others get probes by one pass over the file.
#[test]
fn hundreds_of_kernels_get_probes_by_one_pass() {
    let mut cubin = nvcc(&workspace().join("benches/many.cu"), "sm_90");
    let names: Vec<String> = Cubin::parse(&cubin)
        .expect("a cubin")
        .kernels
        .into_iter()
        .map(|kernel| kernel.name)
        .collect();
    assert_eq!(names.len(), 300);
    let odd = 123;
    let image = Image::parse(&cubin).expect("a cubin");
    let text = format!(".text.{}", names[odd]);
    let text = &image.sections[image.section(&text).expect("the code")];
    cubin[text.offset as usize] ^= 1;

    let probe = probe("many", BRANCHES, 90);
    let hook = |userdata| {
        Some(Hook {
            probe: &probe,
            userdata,
        })
    };
    let file = File::parse(&cubin).expect("a cubin");
    let mut edits = Vec::new();
    for (number, name) in names.iter().enumerate() {
        assert_eq!(file.shared_data(name), None, "{name}");
        let userdata = number as u64 * 0x3_0000_0008;
        match file.edit(name, hook(userdata), hook(userdata)) {
            Ok(edit) => {
                // What was made for another one becomes the same.
                let other = file.edit(name, hook(!0), hook(7)).expect("an edit");
                assert_ne!(other.added, edit.added, "{name}");
                assert_eq!(other.with_userdata(userdata).added, edit.added, "{name}");
                edits.push(edit);
            }
            Err(refusal) => {
                assert_eq!(number, odd, "{name}: {refusal}");
                assert!(
                    matches!(refusal, Refusal::FirstInstruction { .. }),
                    "{refusal}"
                );
            }
        }
    }
    let written = file.write(&edits, &Addresses::new()).expect("a file");
    assert_eq!((written.passes, written.left_out.len()), (1, 0));
    let facts = Cubin::parse(&written.cubin).expect("a cubin");
    for (number, kernel) in facts.kernels.iter().enumerate() {
        assert_eq!(kernel.name, names[number]);
        assert_eq!(kernel.frame_size > 0, number != odd, "{}", kernel.name);
    }
    // One that does not pass its check costs the others nothing but a second pass.
    let bad = 7;
    edits[bad].added.fill(Word(0));
    let again = file.write(&edits, &Addresses::new()).expect("a file");
    assert_eq!(again.passes, 2);
    let [(left_out, Refusal::Check(CheckError::Added { .. }))] = again.left_out.as_slice() else {
        panic!("{:?}", again.left_out);
    };
    assert_eq!(*left_out, bad);
    edits.remove(bad);
    let without = file.write(&edits, &Addresses::new()).expect("a file");
    assert!(again.cubin == without.cubin);
    // Nor does one that is there twice.
    edits.push(file.edit(&names[0], hook(1), None).expect("an edit"));
    let twice = file.write(&edits, &Addresses::new()).expect("a file");
    assert!(twice.cubin == without.cubin);
    let kernel = names[0].clone();
    assert_eq!(twice.left_out, [(298, Refusal::Twice { kernel })]);
    // Without any it is what it was.
    let nothing = file.write(&[], &Addresses::new()).expect("a file");
    assert!(nothing.cubin == cubin && nothing.passes == 0);
}
