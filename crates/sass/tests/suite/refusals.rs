//! What is not understood is refused by name, and what is wrong is found by the check.

use crate::common::{BRANCHES, COUNT, disassemble, probe_cubin, ptxas};
use warpbpf_sass::check::check;
use warpbpf_sass::elf::Image;
use warpbpf_sass::table::Op;
use warpbpf_sass::word::{BYTES, Control, Insn, Word};
use warpbpf_sass::{Arch, File, Hook, Probe, Refusal, splice};

const KERNEL: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n) .maxntid 1024
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
";

fn kernel() -> Vec<u8> {
    ptxas("refused", KERNEL, "sm_90", &[])
}

fn probe() -> Probe {
    Probe::parse(&probe_cubin("count", COUNT, "sm_90"), "count").expect("a probe")
}

/// The same by a function that it calls.
fn calling() -> Probe {
    let text = "
.func add(.param .b64 at)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    red.global.add.u64 [%rd1], 1;
    ret;
}
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [ud];
    {
        .param .b64 x;
        st.param.b64 [x], %rd1;
        call add, (x);
    }
    st.param.b32 [r], 0;
    ret;
}";
    Probe::parse(&probe_cubin("calling", text, "sm_90"), "calling").expect("a probe")
}

/// Both ends of the kernel.
fn both(cubin: &[u8], probe: &Probe) -> Result<Vec<u8>, Refusal> {
    let hook = Some(Hook { probe, userdata: 1 });
    splice(cubin, "k", hook, hook).map(|spliced| spliced.cubin)
}

/// The kernel with one instruction changed.
fn with_word(at: u64, change: impl Fn(Word) -> Word) -> Vec<u8> {
    let mut image = Image::parse(&kernel()).expect("a cubin");
    let text = image.section(".text.k").expect("the code");
    let code = image.data_mut(text);
    let at = at as usize;
    let word = change(Word::at(code, at).expect("an instruction"));
    code[at..at + BYTES].copy_from_slice(&word.bytes());
    image.write()
}

fn exits() -> Vec<u64> {
    let facts = warpbpf_fatbin::Cubin::parse(&kernel()).expect("a cubin");
    let exits = &facts.kernel("k").expect("the kernel").exits;
    exits.iter().map(|at| u64::from(*at)).collect()
}

#[test]
fn kernels() {
    let probe = probe();
    both(&kernel(), &probe).expect("as it is, it is taken");
    assert_eq!(
        splice(
            &kernel(),
            "other",
            Some(Hook {
                probe: &probe,
                userdata: 0
            }),
            None
        ),
        Err(Refusal::NoKernel {
            kernel: "other".to_owned()
        })
    );
    assert_eq!(splice(&kernel(), "k", None, None), Err(Refusal::NoProbe));

    let other = with_word(0, |word| Word(word.0 ^ 1 << 42));
    assert!(matches!(
        both(&other, &probe),
        Err(Refusal::FirstInstruction { .. })
    ));

    let exits = exits();
    assert_eq!(exits.len(), 2);
    let modified = with_word(exits[0], |word| word.with(84, 1, 1));
    assert!(matches!(both(&modified, &probe), Err(Refusal::ExitForm { at, .. }) if at == exits[0]));

    let kill = with_word(exits[1], |word| word.with(0, 9, 0x15b));
    let listed = both(&kill, &probe);
    assert!(
        matches!(listed, Err(Refusal::ControlFlow { at, .. }) if at == exits[1]),
        "{listed:?}"
    );

    let branch = |to: u64| {
        let insn = Insn::new(Op::Bra, Control::jump());
        let at = exits[1] + 16;
        with_word(at, |_| {
            insn.leading(at, to).encode(Arch::Sm90).expect("a branch")
        })
    };
    let at = exits[1] + 16;
    assert_eq!(both(&branch(0), &probe), Err(Refusal::LeadsToEntry { at }));
    assert_eq!(
        both(&branch(1 << 20), &probe),
        Err(Refusal::LeadsOut { at })
    );
    both(&branch(exits[0]), &probe).expect("a branch to an exit is one to its stub");

    let surface = with_word(exits[1] + 16, |_| {
        Word(0x7000_0400_0200_7f9d | 0x000f_e200_0810_a900 << 64)
    });
    assert_eq!(
        both(&surface, &probe),
        Err(Refusal::Unprotected { at, opcode: 0xf9d })
    );
}

/// An attribute of the kernel becomes another one.
fn with_attribute(from: u8, to: u8, value: Option<u32>) -> Vec<u8> {
    let mut image = Image::parse(&kernel()).expect("a cubin");
    let list = image.section(".nv.info.k").expect("the attributes");
    let all = warpbpf_sass::info::attributes(".nv.info.k", image.data(list)).expect("attributes");
    let found = all
        .iter()
        .find(|a| a.number == from)
        .expect("the attribute");
    let data = image.data_mut(list);
    data[found.offset - 3] = to;
    if let Some(value) = value {
        found.set(data, 0, value);
    }
    image.write()
}

#[test]
fn attributes() {
    const EXITS: u8 = 0x1c;
    let probe = probe();
    let unknown = both(&with_attribute(0x50, 0x7e, None), &probe).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "section `.nv.info.k` has the attribute `0x7e`, whose meaning for an edit is not known"
    );
    let refused = both(&with_attribute(0x50, 0x53, None), &probe).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the kernel has the attribute `GEN_ERRBAR_AT_EXIT`, under which the driver edits it too"
    );
    // The same numbers as offsets of something else.
    let at = exits()[0];
    let listed = both(&with_attribute(EXITS, 0x28, None), &probe).unwrap_err();
    assert_eq!(
        listed,
        Refusal::ListedPlace {
            attribute: "COOP_GROUP_INSTR_OFFSETS".to_owned(),
            at
        }
    );
    let wrong = both(&with_attribute(EXITS, EXITS, Some(0x10)), &probe).unwrap_err();
    assert_eq!(wrong, Refusal::ListedExit { at: 0x10 });
}

#[test]
fn probes() {
    let parse = |name: &str, body: &str| {
        Probe::parse(&probe_cubin(name, body, "sm_90"), name)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let head = ".visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc) {\n.reg .b64 %rd<9>; .reg .b32 %r<9>;\nld.param.u64 %rd1, [ud];";
    let tail = "st.param.b32 [r], 0; ret; }";
    let ends = parse(
        "ends",
        &format!("{head} st.global.u64 [%rd1], %rd1; exit; {tail}"),
    );
    assert!(
        ends.contains("that a probe may not have: it ends the thread"),
        "{ends}"
    );
    let waits = parse("waits", &format!("{head} barrier.cta.arrive 1, 64; {tail}"));
    assert!(
        waits.contains("that a probe may not have: it waits for other"),
        "{waits}"
    );
    let global = parse(
        "global",
        &format!(".global .align 8 .u64 v;\n{head} st.global.u64 [v], %rd1; {tail}"),
    );
    assert!(global.contains("has a relocation of type"), "{global}");

    // An ordinary function is none.
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n{}",
        COUNT.replace("PROBE", "count")
    );
    let plain = ptxas("plain", &text, "sm_90", &["-c"]);
    assert!(matches!(
        Probe::parse(&plain, "count"),
        Err(Refusal::NotAProbe { .. })
    ));
    assert!(matches!(
        Probe::parse(&kernel(), "k"),
        Err(Refusal::NotAProbe { .. })
    ));

    let other = Probe::parse(&probe_cubin("count", COUNT, "sm_80"), "count").expect("a probe");
    assert_eq!(both(&kernel(), &other), Err(Refusal::ProbeArch));
}

/// The probe's regions are gone where a thread ends, and around the call at the entry there is one.
#[test]
fn regions() {
    let probe =
        Probe::parse(&probe_cubin("branches", BRANCHES, "sm_90"), "branches").expect("a probe");
    let count = |cubin: &[u8], op: Op| {
        let image = Image::parse(cubin).expect("a cubin");
        let code = image.data(image.section(".text.k").expect("the code"));
        let words = (0..code.len())
            .step_by(BYTES)
            .filter_map(|at| Word::at(code, at));
        words
            .filter(|w| Insn::decode(*w, Arch::Sm90).is_some_and(|i| i.op == op))
            .count()
    };
    let hook = Some(Hook {
        probe: &probe,
        userdata: 1,
    });
    let own = probe
        .words
        .iter()
        .filter(|w| Insn::decode(**w, Arch::Sm90).is_some_and(|i| i.op == Op::Bssy))
        .count();
    assert!(own > 0);
    let before = count(&kernel(), Op::Bssy);
    let entry = splice(&kernel(), "k", hook, None).expect("taken");
    assert_eq!(count(&entry.cubin, Op::Bssy), before + own + 1);
    let exit = splice(&kernel(), "k", None, hook).expect("taken");
    assert_eq!(count(&exit.cubin, Op::Bssy), before);
    assert!(entry.change.stack >= 40 && entry.change.stack.is_multiple_of(16));
}

/// Every single bit of the code that is changed behind our back is noticed, or means nothing:
/// fillers, and the probe's own work.
#[test]
fn the_check_finds_what_was_changed() {
    every_change_is_noticed(&probe(), false);
    every_change_is_noticed(&calling(), true);
}

/// `called`: the probe stands by itself, and not in the stubs.
fn every_change_is_noticed(probe: &Probe, called: bool) {
    let original = kernel();
    let good = both(&original, probe).expect("taken");
    check(&original, &good, "k", true, true).expect("what was made");
    let image = Image::parse(&good).expect("a cubin");
    let text = image.section(".text.k").expect("the code");
    let section = &image.sections[text];
    let old = Image::parse(&original).expect("a cubin").data(text).len();
    let start = section.offset as usize;
    let mut missed = 0;
    for byte in start..start + old {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[byte] ^= 1 << bit;
            missed += usize::from(check(&original, &bad, "k", true, true).is_ok());
        }
    }
    // In the branch over the first instruction only how it is issued is free, and which barrier a
    // store got.
    assert!(
        missed <= 24,
        "{missed} changes of the kernel's own code were not noticed"
    );
    // Outside of the code every byte counts.
    for byte in (0..start).chain(start + section.size as usize..good.len()) {
        let mut bad = good.clone();
        bad[byte] ^= 0x40;
        let found = check(&original, &bad, "k", true, true);
        assert!(found.is_err(), "byte {byte:#x}");
    }
    // Way back, site, argument registers and the exit of a stub.
    let all: Vec<Word> = (0..section.size as usize)
        .step_by(BYTES)
        .filter_map(|at| Word::at(image.data(text), at))
        .collect();
    for (index, word) in all.iter().enumerate().skip(old / BYTES) {
        let insn = Insn::decode(*word, Arch::Sm90);
        let Some(insn) = insn.filter(|i| i.op != Op::Nop) else {
            continue;
        };
        let userdata = insn.op == Op::MovImm && matches!(insn.target, 4 | 5);
        let bits: &[u32] = match insn.op {
            Op::MovImm if userdata => &[12, 16, 75],
            Op::MovImm => &[12, 16, 35, 75],
            Op::Ldc => &[12, 16, 42],
            Op::Bra | Op::CallRel | Op::RetRel => &[86, 36, 45],
            _ => &[12, 86],
        };
        for bit in bits {
            let mut bad = good.clone();
            let at = start + index * BYTES + *bit as usize / 8;
            bad[at] ^= 1 << (bit % 8);
            // A probe's own constants are its own; in a stub they look like the place, if that is
            // what they are.
            let in_probe = match called {
                true => index < old / BYTES + probe.words.len(),
                false => insn.op == Op::MovImm && matches!(insn.target, 6 | 7),
            };
            let own = match insn.op {
                // Branches within it may be of any form.
                Op::Bra => *bit == 86,
                Op::CallRel | Op::RetRel => false,
                _ => true,
            };
            if in_probe && own {
                continue;
            }
            let found = check(&original, &bad, "k", true, true);
            assert!(
                found.is_err(),
                "bit {bit} of {insn:?} at {:#x}",
                index * BYTES
            );
        }
    }
}

/// Behind a probe at the entry whose lanes may part, all wait for each other; nothing else would
/// bring them together for sure.
#[test]
fn lanes_that_do_not_wait_are_noticed() {
    let original = kernel();
    let text = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [ud];
    mov.u32 %r1, %laneid;
    and.b32 %r1, %r1, 3;
AGAIN:
    red.global.add.u64 [%rd1], 1;
    sub.u32 %r1, %r1, 1;
    setp.gt.s32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    st.param.b32 [r], 0;
    ret;
}";
    let parts = Probe::parse(&probe_cubin("parts", text, "sm_90"), "parts").expect("a probe");
    let branches = Probe::parse(&probe_cubin("branches", BRANCHES, "sm_90"), "branches");
    let branches = branches.expect("a probe");
    for probe in [parts, branches] {
        let hook = Some(Hook {
            probe: &probe,
            userdata: 1,
        });
        let good = splice(&original, "k", hook, None).expect("taken").cubin;
        check(&original, &good, "k", true, false).expect("what was made");
        let mut image = Image::parse(&good).expect("a cubin");
        let text = image.section(".text.k").expect("the code");
        let words = image.data(text).len() / BYTES;
        let waits = |image: &Image, index: usize| {
            let word = Word::at(image.data(text), index * BYTES).expect("an instruction");
            Insn::decode(word, Arch::Sm90).filter(|i| i.op == Op::WarpSyncAll)
        };
        let all: Vec<usize> = (0..words)
            .filter(|index| waits(&image, *index).is_some())
            .collect();
        assert_eq!(all.len(), 1);
        let nop = Insn::new(Op::Nop, Control::stall(5)).encode(Arch::Sm90);
        let at = all[0] * BYTES;
        image.data_mut(text)[at..at + BYTES].copy_from_slice(&nop.expect("in the table").bytes());
        let found = check(&original, &image.write(), "k", true, false);
        assert!(found.is_err(), "nothing waits at {at:#x}");
    }
}

/// Kernels that share something with their module, each in a way of its own.
const SHARING: &str = "
.const .align 4 .b32 numbers[4] = {1, 2, 3, 4};
.global .align 4 .u32 NAME[4] = {1, 2, 3, 4};
.visible .entry alone(.param .u64 p, .param .u32 i) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [i];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry constants(.param .u64 p, .param .u32 i) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    ld.const.u32 %r1, [numbers+4];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry variables(.param .u64 p, .param .u32 i) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [NAME+4];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn what_a_kernel_shares_with_its_module_is_known() {
    use warpbpf_sass::SharedData;
    for arch in ["sm_80", "sm_90"] {
        let of = |kernel: &str, variable: &str| {
            let text = SHARING.replace("NAME", variable);
            let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{text}");
            let cubin = ptxas(&format!("sharing-{variable}"), &text, arch, &[]);
            let file = File::parse(&cubin).unwrap();
            if variable == "tables" {
                return file.shared_tables(kernel);
            }
            file.shared_data(kernel)
        };
        assert_eq!(of("alone", "shared"), None);
        assert_eq!(of("constants", "shared"), Some(SharedData::Constants));
        assert_eq!(of("nobody", "shared"), Some(SharedData::Unknown));
        assert_eq!(of("variables", "shared"), Some(SharedData::Addresses));
        // A table of the compiler's is the same in each copy.
        assert_eq!(of("variables", "__cudart_table"), None);
        assert_eq!(
            of("constants", "__cudart_table"),
            Some(SharedData::Constants)
        );
        // The file's tables do not say who of its kernels reads them.
        assert_eq!(of("alone", "tables"), Some(SharedData::Constants));
    }
}

/// Kernels that print, read a string by its own address, and count in a variable; `STRING` is a
/// name for the string.
const PRINTING: &str = "
.extern .func (.param .b32 r) FUNCTION (.param .b64 a, .param .b64 b);
.global .align 1 .b8 STRING[6] = {104, 101, 108, 108, 111, 0};
VARIABLE
.visible .entry prints() {
    .reg .b64 %rd<3>;
    mov.u64 %rd1, STRING;
    cvta.global.u64 %rd2, %rd1;
    { .param .b64 a; .param .b64 b; .param .b32 r;
      st.param.b64 [a], %rd2; st.param.b64 [b], 0;
      call.uni (r), FUNCTION, (a, b); }
    ret;
}
.visible .entry reads(.param .u64 p, .param .u32 i) {
    .reg .b64 %rd<6>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [i];
    cvt.u64.u32 %rd2, %r1;
    mov.u64 %rd3, STRING;
    add.u64 %rd4, %rd3, %rd2;
    ld.global.u8 %r2, [%rd4];
    st.global.u32 [%rd1], %r2;
    ret;
}
";

const COUNTER: &str = "
.global .align 4 .u32 counter;
.visible .entry counts() {
    red.global.add.u32 [counter], 1;
    ret;
}
";

#[test]
fn strings_and_functions_of_the_driver_are_the_same_in_each_copy() {
    use warpbpf_sass::SharedData::Addresses;
    for arch in ["sm_80", "sm_90"] {
        let cubin = |name: &str, string: &str, function: &str, variable: &str| {
            let text = PRINTING
                .replace("STRING", string)
                .replace("FUNCTION", function)
                .replace("VARIABLE", variable);
            let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{text}");
            ptxas(&format!("printing-{name}"), &text, arch, &[])
        };
        let of = |cubin: &[u8], kernel: &str| File::parse(cubin).unwrap().shared_data(kernel);
        for string in ["$str", "$str$1", "_$_str_$_2", "__unnamed_3"] {
            let alone = cubin("alone", string, "vprintf", "");
            assert_eq!(of(&alone, "prints"), None, "{string}");
            assert_eq!(of(&alone, "reads"), None, "{string}");
            let file = File::parse(&alone).unwrap();
            assert_eq!(file.shared_tables("reads"), None, "{string}");
        }
        // A variable that only another kernel uses.
        let beside = cubin("beside", "$str", "vprintf", COUNTER);
        assert_eq!(of(&beside, "reads"), None);
        assert_eq!(of(&beside, "counts"), Some(Addresses));
        assert_eq!(of(&beside, "prints"), None);
        let file = File::parse(&beside).unwrap();
        assert_eq!(file.shared_tables("reads"), Some(Addresses));
        // Nobody knows who writes another one.
        for string in ["message", "$string", "__unnamed_x"] {
            let named = cubin("named", string, "vprintf", "");
            assert_eq!(of(&named, "reads"), Some(Addresses), "{string}");
            assert_eq!(of(&named, "prints"), Some(Addresses), "{string}");
        }
        // The driver has the function by that name only; this one is left for a linker.
        let text = PRINTING
            .replace("STRING", "$str")
            .replace("FUNCTION", "other")
            .replace("VARIABLE", "");
        let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{text}");
        let linked = ptxas("printing-linked", &text, arch, &["-c"]);
        assert!(of(&linked, "prints").is_some());
    }
}

/// A constant in it and a function's address stand against a copy whatever it is given.
const OTHERS: &str = "
.const .align 4 .b32 numbers[2] = {1, 2};
.global .align 4 .u32 counter;
.global .align 8 .u64 started = 7;
.func (.param .b32 r) called(.param .b32 a) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [a];
    add.u32 %r2, %r1, 1;
    st.param.b32 [r], %r2;
    ret;
}
.visible .entry counts() {
    red.global.add.u32 [counter], 1;
    ret;
}
.visible .entry starts(.param .u64 p) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    ld.global.u64 %rd2, [started];
    st.global.u64 [%rd1], %rd2;
    ret;
}
.visible .entry constants(.param .u64 p) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    red.global.add.u32 [counter], 1;
    ld.param.u64 %rd1, [p];
    ld.const.u32 %r1, [numbers+4];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// Bank 4 of a file, and the symbols and offsets of its relocations.
fn bank(cubin: &[u8]) -> (Vec<u8>, Vec<(String, u64)>) {
    let image = Image::parse(cubin).unwrap();
    let bank = image.section(".nv.constant4").unwrap();
    let mut named = Vec::new();
    for (index, list) in image.sections.iter().enumerate() {
        let bytes = match list.kind {
            4 => 24,
            9 => 16,
            _ => continue,
        };
        if list.info as usize == bank {
            let entries = image.data(index).chunks_exact(bytes);
            named.extend(entries.map(|entry| {
                let at = u64::from_le_bytes(entry[..8].try_into().unwrap());
                let symbol = u32::from_le_bytes(entry[12..16].try_into().unwrap());
                (image.symbols[symbol as usize].name.clone(), at)
            }));
        }
    }
    (image.data(bank).to_vec(), named)
}

#[test]
fn variables_can_be_those_of_another_copy() {
    use warpbpf_sass::check::{Put, check_all};
    use warpbpf_sass::{Addresses, SharedData, Variable};
    for arch in ["sm_80", "sm_90"] {
        let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{OTHERS}");
        let mut cubin = ptxas("given", &text, arch, &[]);
        let (_, named) = bank(&cubin);
        let slot = |name: &str| named.iter().find(|(of, _)| of == name).unwrap().1 as usize;
        let (counter, started) = (slot("counter"), slot("started"));
        // The compiler writes no distance from a variable; a linker might.
        let image = Image::parse(&cubin).unwrap();
        let place = |name: &str| image.sections[image.section(name).unwrap()].offset as usize;
        match arch {
            "sm_80" => cubin[place(".nv.constant4") + started] = 4,
            _ => {
                let list = place(".rela.nv.constant4");
                let at = named.iter().position(|(of, _)| of == "started").unwrap();
                cubin[list + 24 * at + 16] = 4;
            }
        }
        let file = File::parse(&cubin).unwrap();
        let variable = |name: &str, size| Variable {
            name: name.to_owned(),
            size,
        };
        assert_eq!(file.variables("counts"), Ok(vec![variable("counter", 4)]));
        assert_eq!(file.variables("starts"), Ok(vec![variable("started", 8)]));
        assert_eq!(file.variables("constants"), Err(SharedData::Constants));
        assert_eq!(file.shared_data("counts"), Some(SharedData::Addresses));

        let probe = Probe::parse(&probe_cubin("given", COUNT, arch), "given").unwrap();
        let hook = Some(Hook {
            probe: &probe,
            userdata: 8,
        });
        let edit = file.edit("starts", hook, hook).unwrap();
        let address = 0x7f11_2233_4450_u64;
        let addresses = Addresses::from([("started".to_owned(), address)]);
        let given = file.write(&[edit], &addresses).unwrap();
        assert_eq!((given.passes, given.left_out.len()), (1, 0));
        let (slots, left) = bank(&given.cubin);
        assert_eq!(slots[started..started + 8], (address + 4).to_le_bytes());
        assert_eq!(slots[counter..counter + 8], [0; 8]);
        let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            names.contains(&"counter") && !names.contains(&"started"),
            "{names:?}"
        );
        assert_eq!(left.len() + 1, named.len());

        // Whatever else is changed there, is noticed.
        let put = Put {
            kernel: "starts",
            entry: true,
            exit: true,
            accesses: false,
            launch: warpbpf_sass::Launch::default(),
        };
        let check = |after: &[u8], addresses: &Addresses| {
            check_all(&cubin, after, &[put], addresses).map_err(|error| error.to_string())
        };
        assert_eq!(check(&given.cubin, &addresses), Ok(Vec::new()));
        let other = Addresses::from([("started".to_owned(), address + 8)]);
        for wrong in [Addresses::new(), other] {
            assert!(check(&given.cubin, &wrong).is_err());
        }
        let image = Image::parse(&given.cubin).unwrap();
        for (section, was) in image
            .sections
            .iter()
            .zip(&Image::parse(&cubin).unwrap().sections)
        {
            if section.name.ends_with(".nv.constant4") {
                let start = section.offset as usize;
                for byte in start..start + was.size as usize {
                    let mut bad = given.cubin.clone();
                    bad[byte] ^= 4;
                    assert!(
                        check(&bad, &addresses).is_err(),
                        "{} {byte:#x}",
                        section.name
                    );
                }
            }
        }
        // What reads the addresses is as it was.
        let code = |name: &str, cubin: &[u8]| {
            let mut sections = disassemble(&format!("{name}.{arch}"), cubin).into_iter();
            sections.find(|(section, _)| section == ".text.counts")
        };
        let was = code("given.before", &cubin);
        assert!(was.is_some() && was == code("given.after", &given.cubin));

        // Two variables of one name: nobody knows which one the driver means.
        let image = Image::parse(&cubin).unwrap();
        let table = image.sections.iter().find(|s| s.kind == 2).unwrap().offset as usize;
        let entry = |name: &str| {
            let index = image.symbols.iter().position(|s| s.name == name).unwrap();
            table + 24 * index
        };
        let name = entry("counter")..entry("counter") + 4;
        cubin.copy_within(name, entry("started"));
        let file = File::parse(&cubin).unwrap();
        assert_eq!(file.variables("counts"), Err(SharedData::Addresses));
    }
}

#[test]
fn files_whose_tables_tell_of_nothing_shared_are_known_without_their_code() {
    use warpbpf_sass::SharedData;
    for arch in ["sm_80", "sm_90"] {
        let of = |name: &str, text: &str, options: &[&str]| {
            let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{text}");
            let cubin = ptxas(name, &text, arch, options);
            let file = File::parse(&cubin).unwrap();
            (
                file.shared_tables("alone"),
                file.launches().map(str::to_owned),
            )
        };
        let alone = ".visible .entry alone(.param .u64 p) {\n\t.reg .b64 %rd1;\n\tld.param.u64 %rd1, [p];\n\tst.global.u32 [%rd1], 7;\n\tret;\n}\n";
        assert_eq!(of("alone", alone, &[]), (None, None));
        let variable = format!(
            ".global .align 4 .u32 count;\n{alone}.visible .entry other() {{\n\tred.global.add.u32 [count], 1;\n\tret;\n}}\n"
        );
        assert_eq!(
            of("addresses", &variable, &[]),
            (Some(SharedData::Addresses), None)
        );
        // A function beside the kernels has relocations: nothing tells who of them calls it.
        let called = format!(
            ".extern .func other ();\n.visible .func between ()\n{{\n\tcall other, ();\n\tret;\n}}\n{alone}"
        );
        assert_eq!(
            of("called", &called, &["-c"]),
            (Some(SharedData::Relocations), None)
        );
        let launching = format!(
            ".extern .func (.param .b32 r) cudaLaunchDeviceV2 (.param .b64 a, .param .b64 b);\n{alone}.visible .entry parent() {{\n\t{{\n\t.param .b64 a;\n\t.param .b64 b;\n\t.param .b32 r;\n\tst.param.b64 [a], 0;\n\tst.param.b64 [b], 0;\n\tcall (r), cudaLaunchDeviceV2, (a, b);\n\t}}\n\tret;\n}}\n"
        );
        assert_eq!(
            of("launching", &launching, &["-c"]),
            (None, Some("cudaLaunchDeviceV2".to_owned()))
        );
    }
}
