//! Probes in front of the loads and stores of all our kernels, seen with NVIDIA's disassembler:
//! what was not replaced reads as it did before, the accesses are what we took them for, and the
//! stubs read as they were meant.

use crate::common::{
    Line, PARTS, TELLS, corpus, disassemble, is_deep, names_what_it_has, probe_cubin,
};
use warpbpf_fatbin::Cubin;
use warpbpf_sass::elf::Image;
use warpbpf_sass::kinds::is_other_access;
use warpbpf_sass::word::{Predicate, Word};
use warpbpf_sass::{Access, Addresses, Edit, File, Hook, Probe, Refusal, splice_accesses};

const USERDATA: u64 = 0x7f12_3456_789a_bcd0;
/// Accesses of global memory that get no call, as the disassembler names them.
const OTHERS: &[&str] = &[
    "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG",
    "UBLKCP", "UBLKRED",
];
/// Bytes of stack in which a stub saves.
const FRAME: u32 = 96;

fn probe(name: &str, body: &str) -> Probe {
    Probe::parse(&probe_cubin(name, body, "sm_90"), name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Kernels that are refused, and why; everything else must be taken.
fn is_expected(kernel: &str, refusal: &Refusal, probe: &Probe) -> bool {
    let among = |names: &[&str]| names.iter().any(|name| kernel.contains(name));
    match refusal {
        Refusal::NoAccess | Refusal::CallsOut => true,
        Refusal::Recursion { .. } => kernel.contains("recurse"),
        // Products of matrices, whose registers are in use for long; and atomics of 64 bits without
        // a result and prefetches, of which nothing tells when they have read theirs.
        Refusal::Unprotected { .. } => among(&["wgmma", "ping", "pong", "probedCount", "fetches"]),
        Refusal::RegistersChange { .. } => among(&["specialised", "pingPong", "produceConsume"]),
        // Kernels with a frame of 8 bytes.
        Refusal::StackUneven { .. } => probe.stack > 0,
        _ => false,
    }
}

#[test]
fn kernels_stay_what_they_were() {
    let probes = [probe("tells", TELLS), probe("parts", PARTS)];
    let (mut kernels, mut accesses, mut guarded, mut refused) = (0, 0, 0, 0);
    let (mut hints, mut others) = (0, 0);
    for (name, original) in corpus(90) {
        let image = Image::parse(&original).expect("a cubin");
        let file = File::parse(&original).expect("a cubin");
        let mut edits: Vec<(String, Edit, &Probe)> = Vec::new();
        for symbol in image.symbols.iter().filter(|s| s.is_kernel) {
            let probe = &probes[(kernels + refused) % 2];
            let userdata = USERDATA;
            match file.edit_accesses(&symbol.name, Hook { probe, userdata }) {
                Ok(edit) => {
                    kernels += 1;
                    accesses += edit.change.accesses.len();
                    guarded += edit.change.guarded;
                    edits.push((symbol.name.clone(), edit, probe));
                }
                Err(refusal) => {
                    refused += 1;
                    let expected = is_expected(&symbol.name, &refusal, probe);
                    assert!(expected, "{name}, {}: {refusal}", symbol.name);
                }
            }
        }
        if edits.is_empty() {
            continue;
        }
        let (names, edits): (Vec<_>, Vec<_>) = (edits.into_iter())
            .map(|(name, edit, probe)| ((name, probe), edit))
            .unzip();
        let written = file.write(&edits, &Addresses::new()).expect("a file");
        assert_eq!((written.passes, written.left_out.len()), (1, 0), "{name}");
        let before = disassemble(&format!("{name}.90.original"), &original);
        let after = disassemble(&format!("{name}.accesses.after"), &written.cubin);
        for line in before.iter().flat_map(|(_, lines)| lines) {
            let named = line
                .text
                .split([' ', '.'])
                .find(|word| !word.starts_with('@'));
            let named = named.is_some_and(|name| OTHERS.contains(&name));
            assert_eq!(is_other_access(Word(line.word)), named, "{}", line.text);
            others += usize::from(named);
        }
        for ((section, old), (_, new)) in before.iter().zip(&after) {
            let of = |((kernel, _), _): &(&(String, _), _)| *section == format!(".text.{kernel}");
            match names.iter().zip(&edits).find(of) {
                Some(((kernel, probe), edit)) => hints += compare(kernel, old, new, edit, probe),
                None => assert_eq!(old, new, "{section}"),
            }
        }
        let facts = Cubin::parse(&written.cubin).expect("a cubin");
        let was = Cubin::parse(&original).expect("a cubin");
        for ((kernel, probe), edit) in names.iter().zip(&edits) {
            let (facts, was) = (facts.kernel(kernel), was.kernel(kernel));
            let (facts, was) = facts.zip(was).expect("the kernel");
            assert_eq!(facts.registers, was.registers.map(|old| old.max(24)));
            assert_eq!(facts.frame_size, was.frame_size + FRAME + probe.stack);
            assert_eq!(facts.min_stack, was.min_stack + FRAME + probe.stack);
            assert_eq!(facts.code_bytes, edit.change.code_bytes.1);
            assert_eq!(facts.exits, was.exits);
            let section = format!(".text.{kernel}");
            let (_, lines) = after.iter().find(|(name, _)| *name == section).expect("it");
            assert!(names_what_it_has(lines, facts.registers), "{kernel}");
        }
    }
    let least = if is_deep() {
        [130, 1000, 30, 100]
    } else {
        [20, 150, 10, 4]
    };
    let found = [kernels, accesses, refused, others];
    assert!(
        found.iter().zip(least).all(|(n, least)| *n > least),
        "{found:?}"
    );
    assert!(guarded > kernels && hints > 2, "{guarded}, {hints}");
}

/// Gives how many instructions were asked to keep operands for an access.
fn compare(kernel: &str, old: &[Line], new: &[Line], edit: &Edit, probe: &Probe) -> usize {
    let change = &edit.change;
    assert_eq!(old.len() as u64 * 16, change.code_bytes.0, "{kernel}");
    let (mut changed, mut hints) = (0, 0);
    let mut end = change.code_bytes.0 + probe.words.len() as u64 * 16;
    for (index, (was, is)) in old.iter().zip(new).enumerate() {
        let is_one = was.text.contains("LDG.") || was.text.contains("STG.");
        let access = change.accesses.iter().find(|access| access.at == was.at);
        assert_eq!(access.is_some(), is_one && !was.text.contains("UTMA"));
        let Some(access) = access else {
            // What is kept for the next instruction is not kept for another one.
            let next = old.get(index + 1).is_some_and(|line| {
                let mut all = change.accesses.iter();
                all.any(|access| access.at == line.at)
            });
            let (text, word) = match next {
                true => (
                    was.text.replace(".reuse", ""),
                    Word(was.word).with(122, 4, 0).0,
                ),
                false => (was.text.clone(), was.word),
            };
            hints += usize::from(word != was.word);
            assert_eq!(text, is.text, "{kernel} at {:#x}", was.at);
            changed += usize::from(word != is.word);
            continue;
        };
        assert_eq!(told(access), told_by(&was.text), "{}", was.text);
        assert_eq!(
            is.text,
            format!("BRA {end:#x}"),
            "{kernel} at {:#x}",
            was.at
        );
        let stub = stub(access, end, change.code_bytes.0, new);
        let there = new.iter().filter(|line| line.at >= end);
        let there: Vec<&Line> = there.take(stub.len()).collect();
        let texts: Vec<&str> = there.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[..stub.len() - 2], stub[..stub.len() - 2], "{kernel}");
        assert_eq!(texts[stub.len() - 2], was.text, "{kernel}");
        assert_eq!(texts[stub.len() - 1], stub[stub.len() - 1], "{kernel}");
        changed += usize::from(there[stub.len() - 2].word != was.word);
        end += stub.len() as u64 * 16;
    }
    assert_eq!(changed, change.guarded, "{kernel}");
    let rest = new.iter().filter(|line| line.at >= end);
    assert!(rest.clone().count() < 8, "{kernel}");
    assert!(rest.clone().all(|line| line.text == "NOP"), "{kernel}");
    hints
}

/// What a probe is told of an access: guard, bytes, whether it stores, the address.
fn told(access: &Access) -> (String, u32, bool, String) {
    let guard = match access.guard {
        Predicate::ALWAYS => String::new(),
        guard => {
            let not = if guard.negated { "!" } else { "" };
            format!("@{not}P{}", guard.register)
        }
    };
    let offset = match access.offset {
        0 => String::new(),
        offset if offset < 0 => format!("+-{:#x}", offset.unsigned_abs()),
        offset => format!("+{offset:#x}"),
    };
    let address = format!("[R{}.64{offset}]", access.base);
    (guard, access.bytes, access.is_store, address)
}

/// The same by the disassembler.
fn told_by(text: &str) -> (String, u32, bool, String) {
    let (guard, text) = match text.strip_prefix('@') {
        Some(_) => text.split_once(' ').expect("an operation"),
        None => ("", text),
    };
    let (operation, operands) = text.split_once(' ').expect("operands");
    let mut parts = operation.split('.');
    let is_store = parts.next() == Some("STG");
    let size = |part: &str| match part {
        "U8" | "S8" => Some(1),
        "U16" | "S16" => Some(2),
        "64" => Some(8),
        "128" => Some(16),
        _ => None,
    };
    let bytes = parts.find_map(size).unwrap_or(4);
    let from = operands.find("][").expect("an address behind a descriptor");
    let address = &operands[from + 1..];
    let to = address.find(']').expect("its end");
    (guard.to_owned(), bytes, is_store, address[..=to].to_owned())
}

/// The stub at an offset, as the disassembler shows it. What was replaced stands before the last.
fn stub(access: &Access, start: u64, probe: u64, new: &[Line]) -> Vec<String> {
    let saved = || [0].into_iter().chain(2..22).zip((0..).step_by(4));
    let slot = |offset: u32| match offset {
        0 => "[R1]".to_owned(),
        offset => format!("[R1+{offset:#x}]"),
    };
    let nop = || "NOP".to_owned();
    let mut all = vec![nop(), "IADD3 R1, R1, -0x60, RZ".to_owned()];
    all.extend(saved().map(|(register, at)| format!("STL {}, R{register}", slot(at))));
    all.extend([nop(), "P2R R0, PR, RZ, 0x7f".to_owned()]);
    all.extend([format!("STL {}, R0", slot(84)), nop()]);
    all.push("VOTE.ANY R0, PT, PT".to_owned());
    all.extend([format!("STL {}, R0", slot(88)), nop()]);
    let opens = all.len();
    // Which barrier it is, is not known here; both ends name the same.
    let at = start + opens as u64 * 16;
    let opened = new.iter().find(|line| line.at == at).expect("a region");
    let barrier = opened.text.trim_start_matches("BSSY ");
    let barrier = barrier.split(',').next().expect("a barrier").to_owned();
    all.push(String::new());
    let skips = access.guard != Predicate::ALWAYS;
    if skips {
        all.push(String::new());
    }
    for half in [0, 1] {
        let register = access.base + half;
        let target = 8 + half;
        let kept = saved().find(|(saved, _)| *saved == register);
        all.push(match kept {
            Some((_, at)) => format!("LDL R{target}, {}", slot(at)),
            None => format!("MOV R{target}, R{register}"),
        });
    }
    all.push(nop());
    let (sign, number) = match access.offset {
        offset if offset < 0 => ("-", offset.unsigned_abs()),
        offset => ("", offset.unsigned_abs()),
    };
    if number != 0 {
        let high = if sign.is_empty() { "0x0" } else { "-0x1" };
        all.push(format!("IADD3 R8, P0, R8, {sign}{number:#x}, RZ"));
        all.push(format!("IADD3.X R9, R9, {high}, RZ, P0, !PT"));
    }
    let back = start + (all.len() as u64 + 11) * 16;
    for (register, number) in [
        (4, USERDATA & 0xffff_ffff),
        (5, USERDATA >> 32),
        (6, access.at),
        (7, 0),
        (10, access.bytes.into()),
        (11, if access.is_store { 2 } else { 1 }),
        (12, 0),
        (13, 0),
        (20, back),
        (21, 0),
    ] {
        all.push(format!("MOV R{register}, {number:#x}"));
    }
    all.push(format!("CALL.REL.NOINC {probe:#x}"));
    all[opens] = format!("BSSY {barrier}, {:#x}", back + 16);
    if skips {
        let not = if access.guard.negated { "" } else { "!" };
        all[opens + 1] = format!("@{not}P{} BRA {back:#x}", access.guard.register);
    }
    all.push(format!("BSYNC {barrier}"));
    all.extend([nop(), format!("LDL R0, {}", slot(88)), nop()]);
    all.extend(["WARPSYNC R0".to_owned(), nop()]);
    all.extend([format!("LDL R0, {}", slot(84)), nop()]);
    all.push("R2P PR, R0, 0x7f".to_owned());
    all.extend(saved().map(|(register, at)| format!("LDL R{register}, {}", slot(at))));
    all.extend([nop(), "IADD3 R1, R1, 0x60, RZ".to_owned()]);
    all.extend([String::new(), format!("BRA {:#x}", access.at + 16)]);
    all
}

/// All sizes, in both directions.
#[test]
fn one_kernel_of_a_file_by_itself() {
    let (_, cubin) = corpus(90)
        .into_iter()
        .find(|(name, _)| name == "accesses")
        .expect("the kernels of the GPU test");
    let probe = probe("alone", TELLS);
    let hook = Hook {
        probe: &probe,
        userdata: 8,
    };
    let spliced = splice_accesses(&cubin, "sizes", hook).expect("a kernel with a probe");
    let sizes: Vec<(bool, u32, i32)> = (spliced.change.accesses.iter())
        .map(|access| (access.is_store, access.bytes, access.offset))
        .collect();
    assert_eq!(sizes.len(), 12);
    for size in [1, 2, 4, 8, 16] {
        for is_store in [false, true] {
            let of = |(store, bytes, _): &(bool, u32, i32)| (*store, *bytes) == (is_store, size);
            assert!(sizes.iter().any(of), "{size} {is_store}");
        }
    }
    assert!(sizes.iter().any(|(_, _, offset)| *offset < 0));
    let file = File::parse(&cubin).expect("a cubin");
    let edit = file.edit_accesses("sizes", hook).expect("an edit");
    let userdata = 0x1234_5678_9abc;
    let given = Hook { userdata, ..hook };
    let given = file.edit_accesses("sizes", given).expect("an edit");
    assert_ne!(given.added, edit.added);
    assert_eq!(edit.with_userdata(userdata).added, given.added);
    let written = file.write(&[edit], &Addresses::new()).expect("a file");
    assert!(written.cubin == spliced.cubin);
}
