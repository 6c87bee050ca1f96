//! Words as an assembler writes them (LLVM 14), functions as compilers begin them, and everything
//! that must be refused.

use super::*;
use crate::target::{Kind, Target};

/// Where functions of these tests lie.
const AT: u64 = 0x10_0000;

fn code(words: &[u32]) -> Vec<u8> {
    bytes_of(words)
}

const PACIASP: u32 = 0xd503_233f;
const AUTIASP: u32 = 0xd503_23bf;
/// `stp x29, x30, [sp, #-32]!`
const PUSH: u32 = 0xa9be_7bfd;
/// `add sp, sp, #32`
const POP: u32 = 0x9100_83ff;
/// `mov x29, sp`
const FRAME: u32 = 0x9100_03fd;
/// `stp x19, x20, [sp, #16]`
const SAVE: u32 = 0xa901_53f3;
const RET: u32 = 0xd65f_03c0;

#[test]
fn instructions_that_depend_on_their_place_are_known() {
    let at = |word| decode(word, 0x1000);
    assert_eq!(at(0x1400_0004), Insn::Branch { to: 0x1010 });
    assert_eq!(at(0x17ff_fffe), Insn::Branch { to: 0xff8 });
    assert_eq!(at(0x9400_0004), Insn::Call { to: 0x1010 });
    let skip = |word, skip| assert_eq!(at(word), Insn::Conditional { to: 0x1010, skip });
    // b.eq, cbz w3, cbnz x9, tbz w5 bit 3, tbnz x5 bit 35
    skip(0x5400_0080, 0x5400_0040);
    skip(0x3400_0083, 0x3400_0043);
    skip(0xb500_0089, 0xb500_0049);
    skip(0x3618_0085, 0x3618_0045);
    skip(0xb718_0085, 0xb718_0045);
    let address = |word, register, value| {
        assert_eq!(at(word), Insn::Address { register, value });
    };
    // adr x9, .+17; adr x9, .-4; adrp x16, .+0x3000; adrp x16, .-0x1000
    address(0x3000_0089, 9, 0x1011);
    address(0x10ff_ffe9, 9, 0xffc);
    address(0xf000_0010, 16, 0x4000);
    address(0xf0ff_fff0, 16, 0);
    let load = |word, register, load| {
        let from = 0x1010;
        let there = Insn::Load {
            register,
            from,
            load,
        };
        assert_eq!(at(word), there);
    };
    // ldr w9, ldr x9, ldrsw x9
    load(0x1800_0089, 9, 0xb940_0129);
    load(0x5800_0089, 9, 0xf940_0129);
    load(0x9800_0089, 9, 0xb980_0129);
    // ldr d0, prfm
    assert_eq!(at(0x5c00_0080), Insn::OtherLoad);
    assert_eq!(at(0xd800_0080), Insn::OtherLoad);
    // blr x8, blraaz x8, br x16, ret, retaa
    assert_eq!(at(0xd63f_0100), Insn::CallRegister);
    assert_eq!(at(0xd63f_091f), Insn::CallRegister);
    let by = |word, register| assert_eq!(at(word), Insn::BranchRegister { register });
    by(0xd61f_0200, 16);
    by(RET, 30);
    by(0xd65f_0bff, 31);
    assert_eq!(at(0xd420_00a0), Insn::Breakpoint, "brk #5: a uprobe");
    assert_eq!(at(BTI_C), Insn::Hint { number: 34 });
    assert_eq!(at(0), Insn::Unallocated);
    assert_eq!(at(0x0420_0000), Insn::Other, "SVE's `add z0.b, z0.b, z0.b`");
    for word in [PUSH, FRAME, SAVE, 0x8b02_0020, 0xd400_0001] {
        assert_eq!(at(word), Insn::Other, "{word:#x}");
    }
}

#[test]
fn words_are_those_of_an_assembler() {
    assert_eq!(insn::branch(0x1000, 0x1010), Some(0x1400_0004));
    assert_eq!(insn::branch(0x1000, 0xff8), Some(0x17ff_fffe));
    let reach = 128 << 20;
    assert_eq!(insn::branch(0, reach - 4), Some(0x15ff_ffff));
    assert_eq!(insn::branch(0, reach), None);
    assert_eq!(insn::branch(reach, 0), Some(0x1600_0000));
    assert_eq!(insn::branch(reach + 4, 0), None);
    // From the first of many functions to the end of their stubs.
    let near = REACHES[0] as u64;
    assert!(insn::branch(4, near).is_some() && insn::branch(near, 0).is_some());
    assert_eq!(FILL.to_le_bytes(), [UDF as u8]);
    assert_eq!(
        insn::address_near(16, 0x1000, 0x4abc),
        Some([0xf000_0010, 0x912a_f210])
    );
    assert_eq!(
        insn::address_near(16, 0x1abc, 0),
        Some([0xf0ff_fff0, 0x9100_0210])
    );
    assert_eq!(insn::address_near(16, 0, 1 << 32), None);
    assert_eq!(
        insn::number(17, 0x1234_5678_9abc_def0),
        [0xd29b_de11, 0xf2b3_5791, 0xf2ca_cf11, 0xf2e2_4691]
    );
    assert_eq!(insn::load_behind(16, 8), 0x5800_0050);
    assert_eq!(insn::load_half_behind(16, 12), 0x1800_0070);
    assert_eq!(insn::jump(16), 0xd61f_0200);
    assert_eq!(insn::go_back(17), 0xd65f_0220);
    assert_eq!(insn::call(17), 0xd63f_0220);
}

#[test]
fn first_instructions_are_taken_back() {
    let undo = |word| insn::undo(word, AT);
    assert_eq!(undo(BTI_C), Ok(None));
    assert_eq!(undo(NOP), Ok(None));
    assert_eq!(undo(PACIASP), Ok(Some(AUTIASP)));
    // pacibsp
    assert_eq!(undo(0xd503_237f), Ok(Some(0xd503_23ff)));
    assert_eq!(undo(PUSH), Ok(Some(POP)));
    // stp d8, d9, [sp, #-64]!; str x30, [sp, #-16]!
    assert_eq!(undo(0x6dbc_27e8), Ok(Some(0x9101_03ff)));
    assert_eq!(undo(0xf81f_0ffe), Ok(Some(0x9100_43ff)));
    // sub sp, sp, #0x130; sub sp, sp, #1, lsl #12
    assert_eq!(undo(0xd104_c3ff), Ok(Some(0x9104_c3ff)));
    assert_eq!(undo(0xd140_07ff), Ok(Some(0x9140_07ff)));
    // adrp x16; mov x9, x30; ldr x11, [x0, #8]; cmp-like writes of register 31 are refused, as they
    // may be of sp
    assert_eq!(undo(0xf000_0010), Ok(None));
    assert_eq!(undo(0xaa1e_03e9), Ok(None));
    assert_eq!(undo(0xf940_040b), Ok(None));
    // mov x0, x1; ldr x8, [x0]; str x1, [x0]; ldp x29, x30, [sp], #32; stp post; wfe; svc
    for word in [
        0xaa01_03e0,
        0xf940_0008,
        0xf900_0001,
        0xa8c2_7bfd,
        0xa882_7bfd,
        0xd503_205f,
        0xd400_0001,
    ] {
        assert_eq!(undo(word), Err(()), "{word:#x}");
    }
}

fn target(words: &[u32]) -> Target {
    Target {
        address: AT as usize,
        code: code(words),
        replacement: 0x1122_3344_5566_7788,
        kind: Kind::Driver,
    }
}

/// The words of a stub, of its trampoline, and of the jump to the stub.
type Built = (Vec<u32>, Vec<u32>, Vec<u32>);

fn built(words: &[u32], base: u64) -> Result<Built, HookError> {
    let target = target(words);
    let (code, trampoline, patch) = build(
        &plan(AT, &target.code)?,
        base,
        &target.code,
        target.replacement,
    )?;
    assert_eq!(patch.at as u64, AT + 4);
    assert_eq!(patch.expected, target.code[4..4 + patch.jump.len()]);
    let words = |bytes: &[u8]| -> Vec<u32> {
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let (stub, rest) = code.split_at(trampoline - base as usize);
    Ok((words(stub), words(rest), words(&patch.jump)))
}

/// The jump to the replacement.
const ON: [u32; 4] = [0x5800_0050, 0xd61f_0200, 0x5566_7788, 0x1122_3344];

#[test]
fn a_near_hook_is_one_word() {
    let (stub, trampoline, jump) = built(&[PUSH, FRAME, SAVE, RET], AT + 0x1000).unwrap();
    assert_eq!(stub[..2], [POP, NOP]);
    assert_eq!(stub[2..], ON);
    // bti c; the two; b back to the third
    assert_eq!(trampoline, [BTI_C, PUSH, FRAME, 0x17ff_fbf9]);
    assert_eq!(jump, [0x1400_03ff]);
    let (stub, trampoline, _) = built(&[PACIASP, PUSH, FRAME, RET], AT - 0x1000).unwrap();
    assert_eq!(stub[..2], [AUTIASP, NOP]);
    assert_eq!(trampoline[..3], [BTI_C, PACIASP, PUSH]);
    let (stub, ..) = built(&[BTI_C, PUSH, FRAME, RET], AT + 0x1000).unwrap();
    assert_eq!(stub, ON);
}

#[test]
fn a_breakpoint_takes_a_word_and_what_it_stands_on_is_moved() {
    // brk #5, as Linux writes it, and #0 of a debugger
    assert_eq!(breakpoint(&code(&[0xd420_00a0, FRAME])), Some(4));
    assert_eq!(breakpoint(&code(&[0xd420_0000])), Some(4));
    assert_eq!(breakpoint(&code(&[PUSH, 0xd420_00a0])), None);
    assert_eq!(breakpoint(&[0, 0, 0x20]), None);
    // The jump stands behind it: its word is no part of what is changed.
    let function = code(&[PUSH, FRAME, SAVE, RET]);
    let (base, at) = (AT + 0x1000, plan(AT, &function).unwrap());
    let (bytes, trampoline, patch) = build(&at, base, &function, 0).unwrap();
    assert_eq!(
        (patch.at as u64, &patch.expected[..]),
        (AT + 4, &function[4..8])
    );
    let moved = &bytes[trampoline - base as usize..];
    assert_eq!(moved[..8], code(&[BTI_C, PUSH]));
    assert_eq!(breakpoint(&moved[4..]), None);
}

#[test]
fn a_far_hook_is_three_words() {
    // stp; mov; stp; str x21, [sp, #8]; ret
    let function = [PUSH, FRAME, SAVE, 0xf900_07f5, RET];
    let (stub, trampoline, jump) = built(&function, AT + 0x1000_0040).unwrap();
    assert_eq!(stub[2..], ON);
    // adrp x16; add x16, x16, #0x40; br x16
    assert_eq!(jump, [0x9008_0010, 0x9101_0210, 0xd61f_0200]);
    assert_eq!(trampoline[..5], [BTI_C, PUSH, FRAME, SAVE, 0xf900_07f5]);
    // mov x17, AT + 16; ret x17
    assert_eq!(
        trampoline[5..],
        [
            0xd280_0211,
            0xf2a0_0211,
            0xf2c0_0011,
            0xf2e0_0011,
            0xd65f_0220
        ]
    );
    // str x17, [sp, #8] where the jump back needs it
    let uses = [PUSH, FRAME, SAVE, 0xf900_07f1, RET];
    assert!(built(&uses, AT + 0x1000).is_ok());
    assert_eq!(
        built(&uses, AT + 0x1000_0000).unwrap_err().to_string(),
        "its first instructions cannot be moved: `.inst 0xf90007f1` may need the registers x16 and x17"
    );
    assert_eq!(
        built(&function, AT + (8 << 30)).unwrap_err(),
        HookError::NoRoom
    );
    // A short function has room for the near one only.
    assert!(built(&[PUSH, FRAME, RET], AT + 0x1000).is_ok());
    assert_eq!(
        built(&[PUSH, FRAME, RET], AT + 0x1000_0000)
            .unwrap_err()
            .to_string(),
        "it ends 8 bytes behind its first instruction, a jump needs 12"
    );
}

#[test]
fn an_entry_of_a_linkage_table_is_hooked_like_a_function() {
    // adrp x16, .+0x10000; ldr x17, [x16, #24]; add x16, x16, #24; br x17
    let entry = [0x9000_0090, 0xf940_0e11, 0x9100_6210, 0xd61f_0220];
    for entry in [entry.to_vec(), [&[BTI_C], &entry[..]].concat()] {
        let of_entry = plan_entry(AT, &code(&entry)).unwrap();
        assert!(!of_entry.replaces_start());
        assert_eq!(of_entry.undo, None);
        let (stub, ..) = built(&entry, AT + 0x1000).unwrap();
        assert_eq!(stub, ON);
    }
    let (_, trampoline, jump) = built(&entry, AT + 0x1000).unwrap();
    // bti c; mov x16, AT + 0x10000; the load; b back to the third
    let address = [0xd280_0010, 0xf2a0_0230, 0xf2c0_0010, 0xf2e0_0010];
    assert_eq!(trampoline[1..5], address);
    assert_eq!(trampoline[5..], [entry[1], 0x17ff_fbf8]);
    assert_eq!(jump, [0x1400_03ff]);
    // The table's own beginning: stp x16, x30, [sp, #-16]!
    assert_eq!(
        plan_entry(AT, &code(&[0xa9bf_7bf0, entry[0], entry[1], entry[3]])).unwrap_err(),
        HookError::Entry {
            text: ".inst 0xa9bf7bf0".to_owned()
        }
    );
    assert_eq!(
        plan_entry(AT, &code(&entry[..3])).unwrap_err(),
        HookError::Entry {
            text: ".inst 0x90000090".to_owned()
        }
    );
    assert_eq!(
        plan_entry(AT, &code(&[BTI_C])).unwrap_err(),
        HookError::Undecodable { address: AT + 4 }
    );
    // Out of reach of one branch the way back would need the register that the entry jumps by.
    assert_eq!(
        built(&entry, AT + 0x1000_0000).unwrap_err().to_string(),
        "its first instructions cannot be moved: `.inst 0x90000090` may need the registers x16 and x17"
    );
}

#[test]
fn what_depends_on_its_place_is_moved() {
    let second = |word| {
        built(&[PUSH, word, SAVE, RET], AT + 0x1000).map(|(_, moved, _)| moved[2..].to_vec())
    };
    // At 0x100004: adrp x9, .+0x3000; adr x9, .+16
    let nine = |value| insn::number(9, value);
    assert_eq!(second(0xf000_0009).unwrap()[..4], nine(0x10_3000));
    assert_eq!(second(0x1000_0089).unwrap()[..4], nine(0x10_0014));
    // ldr w9, .+16
    let load = second(0x1800_0089).unwrap();
    assert_eq!(load[..4], nine(0x10_0014));
    assert_eq!(load[4], 0xb940_0129);
    // bl .+16: mov x17, …; blr x17
    let call = second(0x9400_0004).unwrap();
    assert_eq!(call[..4], insn::number(17, 0x10_0014));
    assert_eq!(call[4], 0xd63f_0220);
    // cbz x0, .+16: over a branch that is taken
    let conditional = second(0xb400_0080).unwrap();
    assert_eq!(conditional[..2], [0xb400_0040, 0x1400_0002]);
    let here = AT + 0x1000 + 4 * (6 + 4);
    assert_eq!(Some(conditional[2]), insn::branch(here, 0x10_0014));
    assert_eq!(
        second(0x5c00_0080).unwrap_err().to_string(),
        "its first instructions cannot be moved: `.inst 0x5c000080` at 0x100004 reads relative to itself"
    );
}

#[test]
fn calls_that_are_moved_are_named() {
    let call = |word| plan(AT, &code(&[PUSH, word, RET])).unwrap().call();
    assert_eq!(call(0x9400_0004).as_deref(), Some("bl 0x100014"));
    assert_eq!(call(0xd63f_0100).as_deref(), Some("blr x8"));
    assert_eq!(call(FRAME), None);
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let refused = |words: &[u32]| plan(AT, &code(words)).unwrap_err().to_string();
    assert_eq!(
        refused(&[0xd420_00a0, FRAME]),
        "a breakpoint of a debugger or a uprobe is its first instruction, and what it stands on is not known: it is the function's own"
    );
    assert_eq!(refused(&[]), "its code at 0x100000 cannot be decoded");
    assert_eq!(refused(&[0, 0]), "its code at 0x100000 cannot be decoded");
    assert_eq!(
        refused(&[PUSH, 0, RET]),
        "its code at 0x100004 cannot be decoded"
    );
    assert_eq!(
        refused(&[0xaa01_03e0, RET]),
        "its first instruction `.inst 0xaa0103e0` cannot be undone"
    );
    assert_eq!(
        refused(&[RET, NOP]),
        "its first instruction `ret` cannot be undone"
    );
    assert_eq!(
        refused(&[0x1400_0004, NOP]),
        "it is hooked already by somebody else (`b 0x100010`)"
    );
    assert_eq!(
        refused(&[PUSH, 0x1400_0004, NOP]),
        "it is hooked already by somebody else (`b 0x100014`)"
    );
    // ldr x16, .+8; br x16
    assert_eq!(
        refused(&[0x5800_0050, 0xd61f_0200, 1, 2]),
        "it is hooked already by somebody else (`br x16`)"
    );
    assert_eq!(
        refused(&[PUSH]),
        "it ends 0 bytes behind its first instruction, a jump needs 4"
    );
    // b.ne back to the second instruction
    assert_eq!(
        refused(&[PUSH, FRAME, SAVE, 0x54ff_ffc1, RET]),
        "the branch at 0x10000c leads into its first instructions"
    );
    // b.ne to the first one is fine: it does the same again.
    assert!(plan(AT, &code(&[PUSH, FRAME, SAVE, 0x54ff_ffa1, RET])).is_ok());
}

#[test]
fn stubs_and_jumps_of_ours_are_found_again() {
    let stub = numbered(0x0102_0304, 0x1122_3344_5566_7788);
    // bti c; ldr w16, .+12; ldr x17, .+16; br x17
    let words = [0xd503_245f, 0x1800_0070, 0x5800_0091, 0xd61f_0220];
    assert_eq!(stub[..16], code(&words));
    assert_eq!(stub[16..24], [4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(stub[24..], 0x1122_3344_5566_7788u64.to_le_bytes());

    for base in [AT + 0x1000, AT + 0x2000_0040] {
        let function = [PUSH, FRAME, SAVE, NOP, RET];
        let mut now = code(&function);
        let (entry, _, jump) = built(&function, base).unwrap();
        now[4..4 + 4 * jump.len()].copy_from_slice(&code(&jump));
        assert_eq!(jump_of(AT as usize, &now), Some(base as usize));
        assert_eq!(word_in(&code(&entry)), Some(16));
    }
    assert_eq!(word_in(&code(&ON)), Some(8));
    assert_eq!(word_in(&code(&[NOP, NOP, NOP, NOP])), None);
    assert_eq!(jump_of(AT as usize, &code(&[PUSH, FRAME, RET])), None);
    // adrp x9; add; br x9: somebody else's
    let other = [PUSH, 0x9008_0009, 0x9101_0129, 0xd61f_0120];
    assert_eq!(jump_of(AT as usize, &code(&other)), None);
}

/// On a processor that runs it: what the words do.
#[cfg(target_arch = "aarch64")]
mod run {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::memory::Region;
    use crate::stage::stage;
    use crate::stub::{link, stubs};

    static TRAMPOLINE: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn replacement(a: i32, b: i32) -> i32 {
        // SAFETY: the trampoline of a function with this signature.
        let original: extern "C" fn(i32, i32) -> i32 =
            unsafe { std::mem::transmute(TRAMPOLINE.load(Ordering::SeqCst)) };
        1000 + original(a * 10, b)
    }

    fn place(words: &[u32]) -> usize {
        let here = place as *const () as usize;
        let region = Region::near(here, here, words.len() * 4, &REACHES[1..2]).unwrap();
        let base = region.base();
        region.finish(&code(words)).unwrap();
        base
    }

    fn function(address: usize) -> extern "C" fn(i32, i32) -> i32 {
        // SAFETY: the tests put functions of this signature there.
        unsafe { std::mem::transmute(address) }
    }

    /// `add w0, w0, w1`
    const ADD: u32 = 0x0b01_0000;
    /// `ldp x29, x30, [sp], #32`
    const LEAVE: u32 = 0xa8c2_7bfd;

    #[test]
    fn hooked_functions_run_the_replacement_and_the_original_still_works() {
        let shapes: &[(&str, &[u32])] = &[
            ("frame", &[PUSH, FRAME, ADD, LEAVE, RET]),
            ("bti", &[BTI_C, PUSH, FRAME, ADD, LEAVE, RET]),
            ("pac", &[PACIASP, PUSH, FRAME, ADD, LEAVE, AUTIASP, RET]),
            ("sub", &[0xd100_83ff, ADD, POP, RET]),
            // cbz w0, to the ret: a branch that is not taken, moved
            ("cbz", &[NOP, 0x3400_0060, ADD, NOP, RET]),
            // ldr w9, the word behind the function; add w0, w0, w9
            ("load", &[NOP, 0x1800_0089, ADD, 0x0b09_0000, RET, 0]),
            // adr x9, .+12; blr through a call: bl to the add at the end
            ("call", &[PUSH, 0x9400_0003, LEAVE, RET, ADD, RET]),
        ];
        for (name, words) in shapes {
            let address = place(words);
            assert_eq!(function(address)(2, 3), 5, "{name}");
            let staged = stage(&[Target {
                address,
                code: code(words),
                replacement: replacement as *const () as usize,
                kind: Kind::Driver,
            }]);
            let original = staged.originals[0].clone().unwrap();
            TRAMPOLINE.store(original, Ordering::SeqCst);
            // SAFETY: nobody is in the function.
            unsafe { staged.commit() }.remove(0).unwrap();
            assert_eq!(function(address)(2, 3), 1023, "{name}");
            let ours = [replacement as *const () as usize];
            // SAFETY: the function's own bytes.
            let now = unsafe { std::slice::from_raw_parts(address as *const u8, 4 * words.len()) };
            let found = link(address, now, &ours).unwrap();
            assert_eq!(found.replacement, ours[0], "{name}");
        }
    }

    #[test]
    fn stubs_bring_their_number() {
        // mov w0, w16; ret
        let common = place(&[0x2a10_03e0, RET]);
        let stubs = stubs(5..8, common, common).unwrap();
        for (stub, number) in stubs.into_iter().zip(5..) {
            assert_eq!(function(stub)(0, 0), number);
        }
    }

    #[test]
    fn a_far_hook_works() {
        let words = [PUSH, FRAME, ADD, LEAVE, RET, NOP];
        let address = place(&words);
        let target = Target {
            address,
            code: code(&words),
            replacement: replacement as *const () as usize,
            kind: Kind::Driver,
        };
        // Out of reach of one branch.
        let region =
            Region::near(address + (1 << 28), address + (1 << 28), 4096, &[1 << 26]).unwrap();
        let plan = plan(address as u64, &target.code).unwrap();
        let (code, trampoline, patch) = build(
            &plan,
            region.base() as u64,
            &target.code,
            target.replacement,
        )
        .unwrap();
        assert_eq!(patch.jump.len(), 12);
        region.finish(&code).unwrap();
        assert_eq!(function(trampoline)(2, 3), 5);
    }
}
