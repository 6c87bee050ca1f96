//! Kernels and probes that no call at an access can be put into, each by its reason; and stubs that
//! are not what they must be.

use crate::common::{PARTS, TELLS, is_deep, probe_cubin, ptxas};
use warpbpf_sass::check::{Put, check_all};
use warpbpf_sass::elf::Image;
use warpbpf_sass::table::Op;
use warpbpf_sass::word::{BYTES, Control, Insn, Word};
use warpbpf_sass::{Addresses, Arch, CheckError, File, Hook, Probe, Refusal, splice_accesses};

/// A guarded load at an offset, a call, a store, and one that comes late.
const KERNEL: &str = "
.version 8.0
.target ARCH
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r3, 5;
    @%p1 ld.global.u32 %r3, [%rd3+-64];
    st.global.u32 [%rd3+128], %r3;
    st.global.u32 [%rd3+256], %r2;
    bar.sync 0;
    ret;
}
";

fn kernel() -> Vec<u8> {
    ptxas("accessed", &KERNEL.replace("ARCH", "sm_90"), "sm_90", &[])
}

fn probe(name: &str, body: &str) -> Probe {
    Probe::parse(&probe_cubin(name, body, "sm_90"), name).expect("a probe")
}

fn tells() -> Probe {
    probe("tells", TELLS)
}

fn spliced(cubin: &[u8], probe: &Probe) -> Result<warpbpf_sass::Spliced, Refusal> {
    splice_accesses(cubin, "k", Hook { probe, userdata: 9 })
}

fn refusal(cubin: &[u8]) -> Refusal {
    spliced(cubin, &tells()).expect_err("it is refused")
}

fn words(cubin: &[u8]) -> Vec<Word> {
    let image = Image::parse(cubin).expect("a cubin");
    let code = image.data(image.section(".text.k").expect("the code"));
    let all = (0..code.len()).step_by(BYTES);
    all.map(|at| Word::at(code, at).expect("an instruction"))
        .collect()
}

/// The file with other instructions.
fn with(cubin: &[u8], changes: &[(u64, Word)]) -> Vec<u8> {
    let mut image = Image::parse(cubin).expect("a cubin");
    let text = image.section(".text.k").expect("the code");
    let code = image.data_mut(text);
    for (at, word) in changes {
        let at = *at as usize;
        code[at..at + BYTES].copy_from_slice(&word.bytes());
    }
    image.write()
}

/// Places of the loads and stores, and one behind the end of the code.
fn places(cubin: &[u8]) -> (Vec<u64>, u64) {
    let words = words(cubin);
    let at = |index: usize| (index * BYTES) as u64;
    let accesses = (0..words.len()).filter(|i| matches!(words[*i].opcode(), 0x981 | 0x986));
    let exit = words.iter().rposition(|w| w.opcode() == 0x94d);
    (accesses.map(at).collect(), at(exit.expect("an exit") + 2))
}

fn low(bits: u64) -> Word {
    Word(bits.into())
}

#[test]
fn kernels() {
    let cubin = kernel();
    let change = spliced(&cubin, &tells())
        .expect("as it is, it is taken")
        .change;
    let (accesses, free) = places(&cubin);
    assert_eq!(accesses.len(), 3);
    assert!(change.accesses.iter().map(|a| a.at).eq(accesses.clone()));
    let mut told: Vec<_> = (change.accesses.iter())
        .map(|a| (a.is_store, a.bytes, a.offset))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [(false, 4, -64), (true, 4, 128), (true, 4, 256)]);
    assert_eq!(change.registers, (change.registers.0, 24));
    assert_eq!(change.stack, 96);

    let other = ptxas("accessed", &KERNEL.replace("ARCH", "sm_80"), "sm_80", &[]);
    assert_eq!(refusal(&other), Refusal::AccessArch { sm: 80 });
    assert_eq!(
        refusal(&other).to_string(),
        "probes at accesses are for `sm_90` only, and the kernel is for `sm_80`"
    );
    let older = Probe::parse(&probe_cubin("older", TELLS, "sm_80"), "older").expect("a probe");
    assert_eq!(spliced(&cubin, &older).err(), Some(Refusal::ProbeArch));

    let nop = Insn::new(Op::Nop, Control::stall(0));
    let nop = nop.encode(Arch::Sm90).expect("in the table");
    let none: Vec<(u64, Word)> = accesses.iter().map(|at| (*at, nop)).collect();
    assert_eq!(refusal(&with(&cubin, &none)), Refusal::NoAccess);

    // Each instruction behind the end is looked at as those before it: what it could do is not
    // known.
    let put = |word: Word| refusal(&with(&cubin, &[(free, word)]));
    let at = free;
    // `CALL.ABS` by a register.
    assert_eq!(put(low(0x0000_0000_0400_7343)), Refusal::CallsOut);
    // `HGMMA`.
    let opcode = 0x9f0;
    assert_eq!(put(low(0x79f0)), Refusal::Unprotected { at, opcode });
    // `USETMAXREG`.
    assert_eq!(put(low(0x79c8)), Refusal::RegistersChange { at });
    // `MOV R1, R2`.
    let mov = Insn {
        target: 1,
        source: 2,
        ..Insn::new(Op::MovReg, Control::stall(4))
    };
    let mov = mov.encode(Arch::Sm90).expect("in the table");
    let opcode = 0x202;
    assert_eq!(put(mov), Refusal::StackPointer { at, opcode });
    // An operation on convergence barriers that is not known, and a barrier that is none.
    for word in [low(0x795a), low(0x0000_0000_1000_7355)] {
        let opcode = word.opcode();
        assert_eq!(put(word), Refusal::ControlFlow { at, opcode });
    }
    // A call that comes to itself.
    let call = Insn::new(Op::CallRel, Control::jump()).leading(at, at);
    let call = call.encode(Arch::Sm90).expect("in the table");
    assert_eq!(put(call), Refusal::Recursion { at });
    // An access in code that is run for all lanes.
    let before = accesses[0] - BYTES as u64;
    let collective = Word(0x0000_0000_0000_7948 | 0x0000_0000_03c0_0000 << 64);
    let together = with(&cubin, &[(before, collective)]);
    let at = accesses[0];
    assert_eq!(refusal(&together), Refusal::Collective { at });
}

/// Forms that are not surely understood. What is changed of each: bits from one on.
#[test]
fn forms() {
    let cubin = kernel();
    let (accesses, _) = places(&cubin);
    let all = words(&cubin);
    let changed = |at: u64, first: u32, count: u32, bits: u128| {
        let word = all[at as usize / BYTES].with(first, count, bits);
        (with(&cubin, &[(at, word)]), word.0)
    };
    let is_load = |at: &&u64| all[**at as usize / BYTES].opcode() == 0x981;
    let load = *accesses.iter().find(is_load).expect("a load");
    let store = accesses[0];
    for at in [load, store] {
        for (what, first, count, bits) in [
            (
                "no descriptor, but an offset in a uniform register",
                76,
                1,
                0,
            ),
            ("32-bit addresses", 72, 1, 0),
            ("a size that there is not", 73, 3, 7),
            ("an odd register", 24, 8, 3),
            ("the stack pointer in a pair", 24, 8, 0),
            ("no register", 24, 8, 255),
            ("another form", 90, 1, 0),
            ("bits without a meaning", 95, 1, 1),
            ("the same", 70, 1, 1),
        ] {
            let (cubin, word) = changed(at, first, count, bits);
            assert_eq!(refusal(&cubin), Refusal::AccessForm { at, word }, "{what}");
        }
    }
    // A predicate that a load writes.
    let (cubin_of, word) = changed(load, 81, 3, 2);
    let at = load;
    assert_eq!(refusal(&cubin_of), Refusal::AccessForm { at, word });
    // Caches and scopes make no difference.
    for (first, count, bits) in [(77, 4, 0xa), (84, 3, 0), (68, 2, 2)] {
        spliced(&changed(load, first, count, bits).0, &tells()).expect("a modifier");
    }
    // One that is never done is none.
    let never = changed(load, 12, 4, 15).0;
    let change = spliced(&never, &tells()).expect("two accesses").change;
    assert_eq!(change.accesses.len(), 2);
}

/// A list of places that has one of the accesses.
#[test]
fn listed_places() {
    const EXITS: u8 = 0x1c;
    const LOADS: u8 = 0x25;
    let cubin = kernel();
    let (accesses, _) = places(&cubin);
    let mut image = Image::parse(&cubin).expect("a cubin");
    let list = image.section(".nv.info.k").expect("the attributes");
    let all = warpbpf_sass::info::attributes(".nv.info.k", image.data(list)).expect("attributes");
    let found = all.iter().find(|a| a.number == EXITS).expect("the exits");
    let data = image.data_mut(list);
    data[found.offset - 3] = LOADS;
    found.set(data, 0, accesses[0] as u32);
    let listed = Refusal::ListedPlace {
        attribute: "LD_CACHEMOD_INSTR_OFFSETS".to_owned(),
        at: accesses[0],
    };
    assert_eq!(refusal(&image.write()), listed);
}

#[test]
fn stacks_and_regions() {
    let cubin = kernel();
    let (_, free) = places(&cubin);
    let parts = probe("parts", PARTS);
    assert!(parts.stack > 0 && parts.barriers != 0);
    spliced(&cubin, &parts).expect("as it is, it is taken");
    let code = |insns: &[Insn]| {
        let words = insns.iter().zip((free..).step_by(BYTES));
        let words = words.map(|(insn, at)| {
            let insn = match insn.op {
                Op::Bssy => insn.leading(at, free),
                _ => *insn,
            };
            (at, insn.encode(Arch::Sm90).expect("in the table"))
        });
        with(&cubin, &words.collect::<Vec<_>>())
    };
    let moves = |number: u32| Insn {
        target: 1,
        source: 1,
        number,
        ..Insn::new(Op::Add, Control::stall(4))
    };
    // A frame whose size is no multiple of what a stack's alignment is: only a probe without a
    // stack can stand behind it.
    let uneven = code(&[moves(8u32.wrapping_neg())]);
    let at = free;
    assert_eq!(
        spliced(&uneven, &parts).err(),
        Some(Refusal::StackUneven { at })
    );
    spliced(&uneven, &tells()).expect("it has no stack");
    spliced(&code(&[moves(16u32.wrapping_neg())]), &parts).expect("an even one");

    // As many regions as a kernel can have. A file of this size has room for a few only.
    let region = |barrier: u8| Insn {
        barrier,
        ..Insn::new(Op::Bsync, Control::jump())
    };
    let used: Vec<Insn> = (0..16).map(region).collect();
    let longer = KERNEL.replace("bar.sync 0;", &"bar.sync 0;\n".repeat(40));
    let longer = ptxas("longer", &longer.replace("ARCH", "sm_90"), "sm_90", &[]);
    let bars: Vec<u64> = (words(&longer).iter().zip((0u64..).step_by(BYTES)))
        .filter(|(word, _)| word.base() == 0x11d)
        .map(|(_, at)| at)
        .collect();
    let filled = |count: usize| {
        let words = bars.iter().zip(&used[..count]);
        let words = words.map(|(at, insn)| (*at, insn.encode(Arch::Sm90).expect("in the table")));
        with(&longer, &words.collect::<Vec<_>>())
    };
    spliced(&filled(15), &tells()).expect("one is left for the stub");
    let (needed, free) = (1, 0);
    assert_eq!(
        spliced(&filled(16), &tells()).err(),
        Some(Refusal::NoRegion { needed, free })
    );
    let needed = 1 + parts.barriers.count_ones();
    assert_eq!(
        spliced(&filled(15), &parts).err(),
        Some(Refusal::NoRegion { needed, free: 1 })
    );
}

#[test]
fn probes() {
    let cubin = kernel();
    let why = |probe: &Probe| {
        let refusal = spliced(&cubin, probe).expect_err("it is refused");
        refusal.to_string()
    };
    let mut uniform = tells();
    // `UMOV UR4, 0x1`.
    uniform.words[0] = low(0x0000_0001_0004_7882);
    assert_eq!(
        why(&uniform),
        "the probe's instruction `0` (opcode `0x882`) cannot stand at an access: it uses registers that a warp has once"
    );
    // A load by a descriptor.
    uniform.words[0] = Word(0x0000_0004_0202_7981 | 0x000e_a200_0c1e_1900 << 64);
    assert!(why(&uniform).ends_with("it uses registers that a warp has once"));
    let mut meets = tells();
    meets.words[0] = Word(0x7348 | 0x0380_0000 << 64);
    assert!(why(&meets).ends_with("it waits for other lanes"));
    let mut late = tells();
    // `SUST`, of which nothing tells.
    late.words[0] = Word(0x7000_0400_0200_7f9d | 0x000f_e200_0810_a900 << 64);
    assert!(why(&late).ends_with("nothing tells when it is done"));
    // All barriers are counted.
    let mut counted = tells();
    counted.words.extend((0..6).map(|barrier: u128| {
        let word = Word(0x791a | 0x000f_e200_0000_0000 << 64);
        word.with(38, 6, 1).with(44, 3, barrier)
    }));
    assert!(why(&counted).ends_with("nothing tells when it is done"));
}

/// No bit of a stub says something else without the check's noticing, but for how long an
/// instruction waits.
#[test]
fn stubs_that_are_not_what_they_must_be() {
    let step = if is_deep() { 1 } else { 8 };
    let cubin = kernel();
    for (probe, places) in [(tells(), 3), (probe("parts", PARTS), 3)] {
        let good = spliced(&cubin, &probe).expect("as it is, it is taken");
        assert_eq!(good.change.accesses.len(), places);
        let put = Put {
            kernel: "k",
            entry: false,
            exit: false,
            accesses: true,
            launch: warpbpf_sass::Launch::default(),
        };
        let check = |after: &[u8]| {
            let wrong = check_all(&cubin, after, &[put], &Addresses::new());
            wrong.map(|wrong| wrong.into_iter().next().map(|(_, error)| error))
        };
        assert_eq!(check(&good.cubin), Ok(None));
        let new = words(&good.cubin);
        let old = good.change.code_bytes.0 as usize / BYTES;
        let stubs = old + probe.words.len();
        let end = new
            .iter()
            .rposition(|word| word.opcode() != 0x918)
            .expect("a branch");
        let nop = new[stubs];
        assert_eq!(nop.opcode(), 0x918);
        for (index, word) in new.iter().enumerate() {
            let at = (index * BYTES) as u64;
            let is_stub = (stubs..=end).contains(&index);
            let is_patched = index < old && *word != words(&cubin)[index];
            if !is_stub && !is_patched {
                continue;
            }
            // A fourth of the bits of each word is tried in every run, and other ones of the next
            // word.
            let bits = (index % step..105).step_by(step);
            let mut wrong: Vec<Word> = bits.map(|bit| Word(word.0 ^ 1 << bit)).collect();
            if word.opcode() == 0x918 {
                // What a wait does not wait for, some instruction behind it does not find.
                wrong = vec![Word(word.0 ^ 0x40)];
            } else {
                wrong.extend([nop, word.with(122, 4, 1)]);
            }
            for bad in wrong {
                // The argument may be any, and so may be what a load keeps for others.
                let bits = bad.0 ^ word.0;
                let argument =
                    is_stub && word.opcode() == 0x802 && matches!(word.bits(16, 8), 4 | 5);
                if argument && bits >> 32 & 0xffff_ffff != 0 && bits >> 64 == 0 {
                    continue;
                }
                // It may lead a little before the stub, to where nothing stands.
                let to = bad.leads_to(at, Arch::Sm90).filter(|_| is_patched);
                let right = word.leads_to(at, Arch::Sm90);
                let early = to
                    .zip(right)
                    .filter(|(to, right)| to < right && *to >= old as u64);
                if early.is_some_and(|(to, right)| {
                    let range = to as usize / BYTES..right as usize / BYTES;
                    new[range].iter().all(|word| *word == new[new.len() - 1])
                }) {
                    continue;
                }
                let found = check(&with(&good.cubin, &[(at, bad)]));
                assert!(
                    matches!(found, Ok(Some(_))),
                    "{:#034x} for {:#034x} at {at:#x}: {found:?}",
                    bad.0,
                    word.0
                );
            }
        }
        // A barrier that nobody waits for any more.
        let loads = (stubs..=end).filter(|at| new[*at].opcode() == 0x983);
        for index in loads {
            let control = Control {
                write: 7,
                ..new[index].control()
            };
            let at = (index * BYTES) as u64;
            let bad = with(&good.cubin, &[(at, new[index].with_control(control))]);
            assert!(matches!(check(&bad), Ok(Some(CheckError::Added { .. }))));
        }
    }
    // Another edit of it, too, is one too many.
    let tells = tells();
    let hook = Hook {
        probe: &tells,
        userdata: 0,
    };
    let file = File::parse(&cubin).expect("a cubin");
    let edit = || file.edit_accesses("k", hook).expect("an edit");
    let edits = [edit(), edit()];
    let written = file.write(&edits, &Addresses::new()).expect("a file");
    let kernel = "k".to_owned();
    assert_eq!(written.left_out, [(1, Refusal::Twice { kernel })]);
}
