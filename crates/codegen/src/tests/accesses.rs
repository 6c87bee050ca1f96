//! Loads, stores and atomics at any alignment, with any knowledge of it.

use proptest::prelude::*;
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::{AluOp, AtomicOp, Code, Insn, Pc, Reg, Source, Width};
use warpbpf_verify::{ArgFact, CallFact, InsnFact, Region};

use super::{SIZE, STACK, assemble, at, check, env, facts, functions, reg};
use crate::Input;
use crate::error::CodegenError;
use crate::pipeline::compile_code;

/// How much of the truth the facts tell.
#[derive(Clone, Copy, Debug)]
enum Known {
    Offset,
    Align,
    Nothing,
}

/// An access of the program: to memory (`r6`) or stack (`r10`), somewhere.
#[derive(Clone, Debug)]
struct Access {
    insn: Insn,
    region: Region,
    offset: i64,
    known: Known,
}

fn access() -> impl Strategy<Value = Access> {
    let known = prop_oneof![
        3 => Just(Known::Offset),
        2 => Just(Known::Align),
        1 => Just(Known::Nothing)
    ];
    (
        0..12u32,
        any::<bool>(),
        0..4usize,
        any::<u32>(),
        0..6u32,
        known,
    )
        .prop_map(|(kind, stack, width, at, value, known)| {
            let width = [Width::W8, Width::W16, Width::W32, Width::W64][width];
            let atomic = kind >= 8;
            let width = match width {
                Width::W8 | Width::W16 if atomic => Width::W32,
                other => other,
            };
            let bytes = width.bytes();
            let room = if stack { STACK } else { SIZE };
            let mut offset = at % (room - bytes + 1);
            if atomic {
                offset -= offset % bytes;
            }
            let (base, region, offset) = if stack {
                let offset = i64::from(offset) - i64::from(STACK);
                (Reg::FP, Region::Stack { frame: 0 }, offset)
            } else {
                (reg(6), Region::Memory, i64::from(offset))
            };
            let off = offset as i16;
            let register = reg([0, 1, 2, 3, 4, 5][value as usize]);
            let fetch = at & (1 << 20) != 0;
            let insn = match kind {
                0 | 1 => Insn::Load {
                    width,
                    signed: kind == 1 && width != Width::W64,
                    dst: register,
                    base,
                    off,
                },
                2 => Insn::LoadAcquire {
                    width,
                    dst: register,
                    base,
                    off,
                },
                3 => Insn::StoreRelease {
                    width,
                    base,
                    off,
                    src: register,
                },
                4 => Insn::Store {
                    width,
                    base,
                    off,
                    src: Source::Imm(at as i32),
                },
                5..8 => Insn::Store {
                    width,
                    base,
                    off,
                    src: Source::Reg(register),
                },
                _ => Insn::Atomic {
                    width,
                    op: [
                        AtomicOp::Add { fetch },
                        AtomicOp::Or { fetch },
                        AtomicOp::And { fetch },
                        AtomicOp::Xor { fetch },
                        AtomicOp::Xchg,
                        AtomicOp::CmpXchg,
                    ][(at >> 8) as usize % 6],
                    base,
                    off,
                    src: register,
                },
            };
            Access {
                insn,
                region,
                offset,
                known,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Loads, stores and atomics of all widths at all alignments.
    #[test]
    fn accesses(
        list in proptest::collection::vec(access(), 1..40),
        memory in proptest::collection::vec(any::<u8>(), SIZE as usize),
        all_known in any::<bool>(),
    ) {
        let load = |dst, off| Insn::Load { width: Width::W64, signed: false, dst: reg(dst), base: Reg::R1, off };
        let mov = |dst, src| Insn::Alu { wide: true, op: AluOp::Mov, dst, src: Source::Reg(src) };
        let mut insns = vec![mov(reg(6), Reg::R1)];
        let mut places = vec![None];
        // The stack is written before it is read.
        for word in 0..STACK as i16 / 8 {
            insns.push(Insn::Store { width: Width::W64, base: Reg::FP, off: -8 * (word + 1), src: Source::Imm(-7 << word) });
            places.push(Some(at(Region::Stack { frame: 0 }, Some(-8 * (i64::from(word) + 1)), 8)));
        }
        for (dst, off) in [(0, 0), (2, 8), (3, 16), (4, 24), (5, 32), (1, 40)] {
            insns.push(load(dst, off));
            places.push(Some(at(Region::Memory, Some(off.into()), 8)));
        }
        for access in &list {
            let align = 1u32 << access.offset.trailing_zeros().min(3);
            let atomic = matches!(access.insn, Insn::Atomic { .. });
            places.push(Some(match access.known {
                _ if all_known => at(access.region, Some(access.offset), align),
                Known::Offset => at(access.region, Some(access.offset), align),
                Known::Align => at(access.region, None, align),
                // The verifier proves atomics aligned.
                Known::Nothing => at(access.region, None, if atomic { align } else { 1 }),
            }));
            insns.push(access.insn);
        }
        for n in [1, 2, 3, 4, 5] {
            insns.push(Insn::Alu { wide: true, op: AluOp::Xor, dst: Reg::R0, src: Source::Reg(reg(n)) });
            places.push(None);
        }
        for word in 0..STACK as i16 / 8 {
            insns.push(Insn::Load { width: Width::W64, signed: false, dst: Reg::R1, base: Reg::FP, off: -8 * (word + 1) });
            places.push(Some(at(Region::Stack { frame: 0 }, Some(-8 * (i64::from(word) + 1)), 8)));
            insns.push(Insn::Alu { wide: true, op: AluOp::Mul, dst: Reg::R0, src: Source::Imm(31) });
            insns.push(Insn::Alu { wide: true, op: AluOp::Add, dst: Reg::R0, src: Source::Reg(Reg::R1) });
            places.extend([None, None]);
        }
        insns.push(Insn::Exit);
        let code = Code::new(insns);
        let facts = facts(&code, |i, _| places[i].expect("an access"));
        check(&code, &facts, &memory);
    }
}

#[test]
fn strides_that_do_not_fit() {
    let code = assemble("r0 = 0\nexit");
    let facts = facts(&code, |_, _| unreachable!("no access"));
    let with = |size, stride| {
        let mut env = env();
        env.input = Input::Memory {
            slot: 1,
            size,
            stride,
        };
        compile_code(&code, &facts, &env).map(|fragment| fragment.slots)
    };
    assert_eq!(with(0, 16), Ok([1].into()));
    assert_eq!(with(8, 16), Ok([1].into()));
    assert_eq!(
        with(9, 16),
        Err(CodegenError::BadStride {
            size: 9,
            stride: 16,
            least: 32
        })
    );
    assert_eq!(
        with(60, 88).expect_err("an error").to_string(),
        "a stride of `88` bytes cannot hold the program's `60` bytes of memory and its result: make it a multiple of 16, at least `80`"
    );
    assert!(with(u32::MAX, 1 << 31).is_err());
}

#[test]
fn ordered_accesses_must_be_aligned() {
    let value = |align| at(Region::MapValue { map: 0 }, None, align);
    for text in [
        "r0 = load_acquire((u64 *)(r1 + 0))\nexit",
        "r0 = 0\nstore_release((u32 *)(r1 + 0), r0)\nexit",
        "r0 = 0\nlock *(u64 *)(r1 + 0) += r0\nexit",
    ] {
        let code = assemble(text);
        let facts = facts(&code, |_, _| value(2));
        let error = compile_code(&code, &facts, &env()).expect_err("an error");
        assert!(
            error.to_string().contains("expected an aligned address"),
            "{error}"
        );
    }
}

#[test]
fn instructions_without_code() {
    for (text, what) in [
        ("callx r1\nexit", "call through a register"),
        ("call kfunc[77]\nexit", "call of a kernel function"),
    ] {
        let code = assemble(text);
        let facts = facts(&code, |_, _| unreachable!("no access"));
        assert_eq!(
            compile_code(&code, &facts, &env()),
            Err(CodegenError::Unsupported { pc: Pc(0), what })
        );
    }
    let code = assemble("call 1\nexit");
    let foreign = functions(&code, &[(0, 0)], &[], |_, insn| match insn {
        Insn::Call { .. } => InsnFact::Call(CallFact {
            helper: HelperId::Foreign,
            map: None,
            args: [ArgFact::Unused; 5],
            memory: None,
            strings: None,
            text: None,
        }),
        _ => InsnFact::Plain,
    });
    assert_eq!(
        compile_code(&code, &foreign, &env()),
        Err(CodegenError::Unsupported {
            pc: Pc(0),
            what: "call of a helper of another environment"
        })
    );
    // Facts that a verifier does not make: no region for the iterator, a store to a key or to the
    // context.
    let code = assemble("call kfunc[2]\nexit");
    let no_place = facts(&code, |_, _| unreachable!("no access"));
    let missing = |expected| {
        Err(CodegenError::MissingFact {
            pc: Pc(0),
            expected,
        })
    };
    assert_eq!(
        compile_code(&code, &no_place, &env()),
        missing("the place of the iterator")
    );
    let code = assemble("*(u8 *)(r1 + 0) = 0\nexit");
    for region in [Region::Context, Region::MapKey { map: 0 }] {
        let facts = facts(&code, |_, _| at(region, Some(0), 8));
        assert_eq!(
            compile_code(&code, &facts, &env()),
            missing("a writable region")
        );
    }
}

/// Values that share their operands again and again do not make the compiler slow.
#[test]
fn long_chains_of_shared_operands() {
    let mut text = String::from("r0 = *(u32 *)(r1 + 0)\n");
    for _ in 0..200 {
        text.push_str("r2 = r0\nr2 <<= 3\nr0 |= r2\nr0 &= 0xfffffff\n");
    }
    let code = assemble(&format!("{text}exit"));
    let facts = facts(&code, |_, _| at(Region::Memory, Some(0), 8));
    check(&code, &facts, &[7; SIZE as usize]);
}
