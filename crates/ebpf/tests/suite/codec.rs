//! Decoder and encoder are inverses, and everything that is no instruction is refused with its
//! slot.

use proptest::prelude::*;
use warpbpf_ebpf::table::FORMS;
use warpbpf_ebpf::*;

use crate::{any_program, bytes, canonical};

fn slot(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> Slot {
    Slot {
        opcode,
        dst,
        src,
        off,
        imm,
    }
}

const EXIT: Slot = Slot {
    opcode: 0x95,
    dst: 0,
    src: 0,
    off: 0,
    imm: 0,
};

fn errors(slots: &[Slot]) -> Vec<String> {
    let errors = decode(&bytes(slots)).expect_err("it is refused");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn known_bytes() {
    // From `llvm-objdump` of a program with a map.
    let code = decode(&[
        0x18, 0x11, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // r1 = map[3]
        0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0, // *(u32 *)(r10 - 4) = r1
        0x15, 0x00, 0x01, 0, 0xff, 0xff, 0xff, 0xff, // if r0 == -1 goto +1
        0x85, 0, 0, 0, 1, 0, 0, 0, // call 1
        0x95, 0, 0, 0, 0, 0, 0, 0,
    ])
    .expect("it decodes");
    let reg = |n| Reg::new(n).expect("a register");
    assert_eq!(
        code.insns(),
        [
            Insn::LoadImm64 {
                dst: Reg::R1,
                value: Imm64::Map(3)
            },
            Insn::Store {
                width: Width::W32,
                base: Reg::FP,
                off: -4,
                src: Source::Reg(Reg::R1)
            },
            Insn::Jump {
                wide: true,
                op: JumpOp::Eq,
                dst: reg(0),
                src: Source::Imm(-1),
                target: Pc(4)
            },
            Insn::Call {
                callee: Callee::Helper(1)
            },
            Insn::Exit,
        ]
    );
    assert_eq!((code.slot(Pc(1)), code.slot(Pc(4))), (2, 5));
    assert_eq!(
        (code.pc_of_slot(2), code.pc_of_slot(1), code.pc_of_slot(9)),
        (Some(Pc(1)), None, None)
    );
}

#[test]
fn references_by_index_are_the_same_as_by_descriptor() {
    let decoded = |src, high| {
        let slots = [slot(0x18, 1, src, 0, 2), slot(0, 0, 0, 0, high), EXIT];
        *decode(&bytes(&slots)).expect("it decodes").at(Pc(0))
    };
    assert_eq!(
        decoded(1, 0),
        Insn::LoadImm64 {
            dst: Reg::R1,
            value: Imm64::Map(2)
        }
    );
    assert_eq!(decoded(5, 0), decoded(1, 0));
    assert_eq!(
        decoded(2, 8),
        Insn::LoadImm64 {
            dst: Reg::R1,
            value: Imm64::MapValue { map: 2, offset: 8 }
        }
    );
    assert_eq!(decoded(6, 8), decoded(2, 8));
    assert_eq!(
        decoded(3, 0),
        Insn::LoadImm64 {
            dst: Reg::R1,
            value: Imm64::BtfId(2)
        }
    );
    assert_eq!(
        decoded(0, -1),
        Insn::LoadImm64 {
            dst: Reg::R1,
            value: Imm64::Value(0xffff_ffff_0000_0002)
        }
    );
}

#[test]
fn both_encodings_of_callx() {
    let code = |slot| decode(&bytes(&[slot, EXIT])).expect("it decodes");
    let new = code(slot(0x8d, 4, 0, 0, 0));
    assert_eq!(
        new.at(Pc(0)),
        &Insn::CallReg {
            target: Reg::new(4).expect("r4")
        }
    );
    assert_eq!(code(slot(0x8d, 0, 0, 0, 4)), new);
    assert_eq!(
        errors(&[slot(0x8d, 0, 0, 0, 11)]),
        ["slot 0: field `imm` of `callx` is reserved and must be 0, not 11"]
    );
}

#[test]
fn faults_name_the_slot() {
    assert_eq!(
        errors(&[EXIT, slot(0xff, 0, 0, 0, 0)]),
        ["slot 1: opcode `0xff` is not an eBPF instruction"]
    );
    assert_eq!(
        errors(&[slot(0x37, 0, 0, 2, 1)]),
        ["slot 0: opcode `0x37` has no variant with src=0, offset=2, imm=1"]
    );
    assert_eq!(
        errors(&[slot(0xdb, 1, 2, 0, 0x33)]),
        ["slot 0: opcode `0xdb` has no variant with src=2, offset=0, imm=51"]
    );
    assert_eq!(
        errors(&[slot(0x18, 1, 7, 0, 0), slot(0, 0, 0, 0, 0)]),
        ["slot 0: opcode `0x18` has no variant with src=7, offset=0, imm=0"]
    );
    assert_eq!(
        errors(&[
            slot(0x95, 1, 0, 0, 0),
            slot(0x07, 0, 3, 0, 1),
            slot(0x0f, 0, 3, 0, 9)
        ]),
        [
            "slot 0: field `dst` of `exit` is reserved and must be 0, not 1",
            "slot 1: field `src` of `add` is reserved and must be 0, not 3",
            "slot 2: field `imm` of `add` is reserved and must be 0, not 9",
        ]
    );
    assert_eq!(
        errors(&[slot(0x85, 0, 0, 4, 1)]),
        ["slot 0: field `offset` of `call` is reserved and must be 0, not 4"]
    );
    assert_eq!(
        errors(&[slot(0x18, 1, 1, 0, 0), slot(0, 0, 0, 0, 5)]),
        ["slot 0: field `second imm` of `lddw map` is reserved and must be 0, not 5"]
    );
    assert_eq!(
        errors(&[slot(0x18, 1, 0, 0, 0), slot(0x95, 0, 0, 0, 5)]),
        ["slot 0: field `second opcode` of `lddw` is reserved and must be 0, not 149"]
    );
    assert_eq!(
        errors(&[slot(0xbf, 11, 0, 0, 0), slot(0xbf, 0, 15, 0, 0)]),
        [
            "slot 0: register r11 does not exist (r0 to r10 do)",
            "slot 1: register r15 does not exist (r0 to r10 do)"
        ]
    );
    assert_eq!(
        errors(&[slot(0x18, 0, 0, 0, 0)]),
        ["slot 0: `lddw` takes two slots, the second is missing"]
    );
    assert_eq!(errors(&[]), ["slot 0: the program is empty"]);
    let partial = decode(&[0x95, 0, 0]).expect_err("it is refused");
    assert_eq!(
        partial,
        [DecodeError {
            slot: 0,
            kind: DecodeErrorKind::PartialSlot { bytes: 3 }
        }]
    );
    assert_eq!(
        partial[0].to_string(),
        "slot 0: only 3 of 8 bytes are there"
    );
}

#[test]
fn targets_stay_in_the_program() {
    let outside = "slot 0: the target, slot 2, is outside the program (2 slots)";
    assert_eq!(errors(&[slot(0x05, 0, 0, 1, 0), EXIT]), [outside]);
    assert_eq!(errors(&[slot(0x06, 0, 0, 0, 1), EXIT]), [outside]);
    assert_eq!(errors(&[slot(0x85, 0, 1, 0, 1), EXIT]), [outside]);
    assert_eq!(errors(&[slot(0xe5, 0, 0, 1, 0), EXIT]), [outside]);
    assert_eq!(
        errors(&[slot(0x1d, 0, 1, -2, 0), EXIT]),
        ["slot 0: the target, slot -1, is outside the program (2 slots)"]
    );
    assert_eq!(
        errors(&[slot(0x06, 0, 0, 0, i32::MAX), EXIT]),
        ["slot 0: the target, slot 2147483648, is outside the program (2 slots)"]
    );
    let lddw = [
        slot(0x05, 0, 0, 1, 0),
        slot(0x18, 0, 0, 0, 0),
        slot(0, 0, 0, 0, 0),
        EXIT,
    ];
    assert_eq!(
        errors(&lddw),
        ["slot 0: the target, slot 2, is the second half of an `lddw`"]
    );
    let func = [slot(0x18, 1, 4, 0, 0), slot(0, 0, 0, 0, 0), EXIT];
    assert_eq!(
        errors(&func),
        ["slot 0: the target, slot 1, is the second half of an `lddw`"]
    );
}

#[test]
fn code_without_an_encoding() {
    let error = |insns| {
        encode(&Code::new(insns))
            .expect_err("it is refused")
            .to_string()
    };
    assert_eq!(
        error(vec![Insn::Goto {
            target: Pc(1),
            long: false
        }]),
        "pc0: the target pc1 is not in the program"
    );
    let mut far = vec![Insn::Goto {
        target: Pc(40_000),
        long: false,
    }];
    far.resize(40_001, Insn::Exit);
    assert_eq!(
        error(far.clone()),
        "pc0: the target pc40000 is 39999 slots away, more than a 16-bit offset can say"
    );
    far[0] = Insn::Goto {
        target: Pc(40_000),
        long: true,
    };
    assert!(encode(&Code::new(far)).is_ok());
    let byte_add = Insn::Atomic {
        width: Width::W8,
        op: AtomicOp::Add { fetch: false },
        base: Reg::R1,
        off: 0,
        src: Reg::R0,
    };
    let text = error(vec![byte_add]);
    assert!(
        text.starts_with("pc0: `Atomic { width: W8,")
            && text.ends_with("is not an instruction of the table"),
        "{text}"
    );
    assert_eq!(
        disassemble(&Code::new(vec![byte_add]), Pc(0)),
        format!("{byte_add:?}")
    );
}

#[test]
fn every_form_round_trips() {
    for form in FORMS {
        let mut slots = crate::slots(form, slot(0, 3, 7, -24, 5), 6);
        slots.push(EXIT);
        let before = bytes(&slots);
        let code = decode(&before).unwrap_or_else(|errors| panic!("`{}`: {errors:?}", form.text));
        let after = encode(&code).expect("decoded code encodes");
        assert_eq!(after == before, canonical(form), "`{}`", form.text);
        assert_eq!(decode(&after).as_ref(), Ok(&code), "`{}`", form.text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_round_trip(program in any_program()) {
        let code = decode(&program).expect("it is well formed");
        let again = encode(&code).expect("decoded code encodes");
        prop_assert_eq!(again.len(), program.len());
        prop_assert_eq!(decode(&again), Ok(code));
    }

    #[test]
    fn slots_round_trip(raw in any::<[u8; 8]>()) {
        prop_assert_eq!(Slot::from_bytes(raw).to_bytes(), raw);
    }

    #[test]
    fn noise_never_panics(mut program in any_program(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        for (at, byte) in edits {
            let at = at.index(program.len());
            program[at] = byte;
        }
        match decode(&program) {
            Ok(code) => prop_assert_eq!(decode(&encode(&code).expect("decoded code encodes")), Ok(code)),
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }
}
