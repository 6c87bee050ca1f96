//! What is proved is true: random programs that are accepted run on the reference interpreter, over
//! memory that has nothing around its regions. They may not trap, nor execute more than the proved
//! cost; and neither garbage in the stack nor the addresses of maps may change what they do,
//! because a program that reads only what it wrote and leaks no pointer cannot see either.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    AluOp, AtomicOp, Callback, Callee, Code, EndKind, FlatMemory, Imm64, Insn, JumpOp, Limits,
    Machine, Memory, Outcome, Pc, Reg, Region, Source, TrapKind, Width, bpf_loop, run,
};
use warpbpf_object::Program;
use warpbpf_verify::{Facts, InsnFact, prove_bounded, verify};

use crate::common::{RODATA_BYTES, maps, platform};

fn reg(n: u8) -> Reg {
    Reg::new(n).unwrap_or(Reg::R0)
}

/// A piece of a program. Targets are distances in pieces.
#[derive(Clone, Debug)]
enum Piece {
    Plain(Insn),
    If {
        wide: bool,
        op: JumpOp,
        dst: Reg,
        src: Source,
        skip: usize,
    },
    Repeat {
        counter: Reg,
        times: i32,
        back: usize,
    },
    /// Key `key` of map `map` into `r0`, through the stack; the next pieces run if it is there.
    Lookup {
        map: u32,
        key: i32,
        skip: usize,
    },
    /// A record is reserved, written and submitted.
    Record {
        size: i32,
        value: Reg,
    },
    Helper(u32),
    /// The other function is called.
    Call,
    /// The same without a check; `copy` holds the pointer too.
    Unchecked {
        map: u32,
        key: i32,
        copy: Reg,
    },
    /// `r1` = `base` plus `index`, then an access there.
    Touch {
        index: Reg,
        base: Reg,
        off: i16,
        width: Width,
        store: bool,
    },
    /// `bpf_loop` calls the third function so many times, which gets 16 bytes of the stack.
    Loop(Source),
    /// Back, as often as the registers have it.
    Again {
        op: JumpOp,
        dst: Reg,
        src: Source,
        back: usize,
    },
    /// Back, as often as `may_goto` allows.
    MayGoto {
        back: usize,
    },
    /// An iterator, whose numbers index `base`, and are summed in r8.
    Iterate {
        start: Source,
        end: Source,
        base: Reg,
        width: Width,
    },
    /// `dst` = mask of `dst`, then a pointer plus that.
    Index {
        dst: Reg,
        mask: i32,
        base: Reg,
    },
}

const OUT: u8 = 9;

/// After a call most registers hold nothing.
fn refill(insns: &mut Vec<Insn>) {
    for n in 3..6 {
        insns.push(Insn::Alu {
            wide: true,
            op: AluOp::Mov,
            dst: reg(n),
            src: Source::Reg(reg(n + 3)),
        });
    }
}

/// The program and, if they are called, the function that it passes 16 bytes of its stack to, and
/// one that `bpf_loop` calls back with them.
fn code_of(main: &[Piece], callee: &[Piece]) -> Code {
    let mut insns = main_prologue();
    emit(&mut insns, main);
    if main.iter().any(|piece| matches!(piece, Piece::Call)) {
        let start = Pc(insns.len() as u32);
        for insn in &mut insns {
            if let Insn::Call {
                callee: Callee::Local(target),
            } = insn
            {
                *target = start;
            }
        }
        insns.extend(callee_prologue());
        let plain: Vec<Piece> = callee
            .iter()
            .filter(|piece| !matches!(piece, Piece::Call | Piece::Loop(_)))
            .cloned()
            .collect();
        emit(&mut insns, &plain);
    }
    if main.iter().any(|piece| matches!(piece, Piece::Loop(_))) {
        let start = Pc(insns.len() as u32);
        for insn in &mut insns {
            if let Insn::LoadImm64 {
                value: Imm64::Func(target),
                ..
            } = insn
            {
                *target = start;
            }
        }
        insns.push(mov(reg(3), Source::Reg(reg(1))));
        insns.push(mov(reg(1), Source::Reg(reg(2))));
        insns.push(mov(reg(2), Source::Reg(reg(3))));
        insns.extend(callee_prologue());
        let plain: Vec<Piece> = callee
            .iter()
            .rev()
            .filter(|piece| !matches!(piece, Piece::Call | Piece::Loop(_)))
            .cloned()
            .collect();
        emit(&mut insns, &plain);
        // 0 or 1.
        insns.pop();
        insns.push(Insn::Alu {
            wide: true,
            op: AluOp::And,
            dst: Reg::R0,
            src: Source::Imm(1),
        });
        insns.push(Insn::Exit);
    }
    Code::new(insns)
}

fn mov(dst: Reg, src: Source) -> Insn {
    Insn::Alu {
        wide: true,
        op: AluOp::Mov,
        dst,
        src,
    }
}

fn stack_pointer(dst: u8, off: i32) -> [Insn; 2] {
    let add = Insn::Alu {
        wide: true,
        op: AluOp::Add,
        dst: reg(dst),
        src: Source::Imm(off),
    };
    [mov(reg(dst), Source::Reg(Reg::FP)), add]
}

fn store(off: i16, src: Source) -> Insn {
    Insn::Store {
        width: Width::W64,
        base: Reg::FP,
        off,
        src,
    }
}

/// The pointer that `r1` brought goes where the program itself has its data.
fn callee_prologue() -> Vec<Insn> {
    let mut insns = vec![
        mov(reg(OUT), Source::Reg(reg(1))),
        mov(reg(6), Source::Reg(reg(2))),
        mov(reg(7), Source::Reg(reg(3))),
        mov(reg(8), Source::Imm(9)),
        store(-8, Source::Reg(reg(7))),
        store(-16, Source::Imm(5)),
        mov(reg(0), Source::Imm(0)),
    ];
    refill(&mut insns);
    insns
}

fn main_prologue() -> Vec<Insn> {
    let ctx = |dst: u8, off: i16, width: Width| Insn::Load {
        width,
        signed: false,
        dst: reg(dst),
        base: reg(1),
        off,
    };
    // Something in every register, of every kind.
    vec![
        ctx(6, 48, Width::W32),
        ctx(7, 64, Width::W64),
        ctx(8, 24, Width::W32),
        Insn::Store {
            width: Width::W64,
            base: Reg::FP,
            off: -8,
            src: Source::Reg(reg(7)),
        },
        Insn::Store {
            width: Width::W64,
            base: Reg::FP,
            off: -16,
            src: Source::Imm(77),
        },
        Insn::LoadImm64 {
            dst: reg(OUT),
            value: Imm64::MapValue { map: 4, offset: 0 },
        },
        mov(reg(2), Source::Reg(Reg::FP)),
        Insn::Alu {
            wide: true,
            op: AluOp::Add,
            dst: reg(2),
            src: Source::Imm(-16),
        },
        mov(reg(3), Source::Imm(5)),
        mov(reg(4), Source::Reg(reg(6))),
        mov(reg(5), Source::Reg(reg(7))),
        mov(reg(0), Source::Imm(0)),
    ]
}

fn emit(insns: &mut Vec<Insn>, pieces: &[Piece]) {
    let mut starts = Vec::new();
    let mut fixes: Vec<(usize, usize)> = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        starts.push(insns.len());
        match *piece {
            Piece::Plain(insn) => insns.push(insn),
            Piece::If {
                wide,
                op,
                dst,
                src,
                skip,
            } => {
                fixes.push((insns.len(), i + 1 + skip));
                insns.push(Insn::Jump {
                    wide,
                    op,
                    dst,
                    src,
                    target: Pc(0),
                });
            }
            Piece::Repeat {
                counter,
                times,
                back,
            } => {
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst: counter,
                    src: Source::Imm(1),
                });
                fixes.push((insns.len(), i.saturating_sub(back)));
                insns.push(Insn::Jump {
                    wide: true,
                    op: JumpOp::Lt,
                    dst: counter,
                    src: Source::Imm(times),
                    target: Pc(0),
                });
            }
            Piece::Lookup { map, key, skip } => {
                insns.push(Insn::Store {
                    width: Width::W64,
                    base: Reg::FP,
                    off: -24,
                    src: Source::Imm(key),
                });
                insns.push(mov(reg(2), Source::Reg(Reg::FP)));
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst: reg(2),
                    src: Source::Imm(-24),
                });
                insns.push(Insn::LoadImm64 {
                    dst: reg(1),
                    value: Imm64::Map(map),
                });
                insns.push(Insn::Call {
                    callee: Callee::Helper(1),
                });
                refill(insns);
                fixes.push((insns.len(), i + 1 + skip));
                insns.push(Insn::Jump {
                    wide: true,
                    op: JumpOp::Eq,
                    dst: reg(0),
                    src: Source::Imm(0),
                    target: Pc(0),
                });
            }
            Piece::Record { size, value } => {
                insns.push(Insn::LoadImm64 {
                    dst: reg(1),
                    value: Imm64::Map(1),
                });
                insns.push(mov(reg(2), Source::Imm(size)));
                insns.push(mov(reg(3), Source::Imm(0)));
                insns.push(Insn::Call {
                    callee: Callee::Helper(131),
                });
                refill(insns);
                let skip = insns.len() as u32 + 6;
                insns.push(Insn::Jump {
                    wide: true,
                    op: JumpOp::Eq,
                    dst: reg(0),
                    src: Source::Imm(0),
                    target: Pc(skip),
                });
                insns.push(Insn::Store {
                    width: Width::W64,
                    base: reg(0),
                    off: 0,
                    src: Source::Reg(value),
                });
                insns.push(mov(reg(1), Source::Reg(reg(0))));
                insns.push(mov(reg(2), Source::Imm(0)));
                insns.push(Insn::Call {
                    callee: Callee::Helper(132),
                });
                refill(insns);
            }
            Piece::Call => {
                insns.push(mov(reg(1), Source::Reg(Reg::FP)));
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst: reg(1),
                    src: Source::Imm(-16),
                });
                insns.push(mov(reg(2), Source::Reg(reg(6))));
                insns.push(mov(reg(3), Source::Reg(reg(7))));
                insns.push(Insn::Call {
                    callee: Callee::Local(Pc(0)),
                });
                insns.push(mov(reg(6), Source::Reg(reg(0))));
                refill(insns);
            }
            Piece::Loop(times) => {
                insns.push(mov(reg(1), times));
                insns.push(Insn::LoadImm64 {
                    dst: reg(2),
                    value: Imm64::Func(Pc(0)),
                });
                insns.extend(stack_pointer(3, -16));
                insns.push(mov(reg(4), Source::Imm(0)));
                insns.push(Insn::Call {
                    callee: Callee::Helper(181),
                });
                insns.push(mov(reg(6), Source::Reg(reg(0))));
                refill(insns);
            }
            Piece::Again { op, dst, src, back } => {
                fixes.push((insns.len(), i.saturating_sub(back)));
                insns.push(Insn::Jump {
                    wide: true,
                    op,
                    dst,
                    src,
                    target: Pc(0),
                });
            }
            Piece::MayGoto { back } => {
                let next = insns.len() as u32 + 2;
                insns.push(Insn::MayGoto { target: Pc(next) });
                fixes.push((insns.len(), i.saturating_sub(back)));
                insns.push(Insn::Goto {
                    target: Pc(0),
                    long: false,
                });
            }
            Piece::Iterate {
                start,
                end,
                base,
                width,
            } => {
                let kfunc = |id| Insn::Call {
                    callee: Callee::Kfunc(id),
                };
                insns.push(mov(reg(2), start));
                insns.push(mov(reg(3), end));
                insns.extend(stack_pointer(1, -48));
                insns.push(kfunc(1));
                let head = Pc(insns.len() as u32);
                insns.extend(stack_pointer(1, -48));
                insns.push(kfunc(2));
                let done = Pc(insns.len() as u32 + 7);
                insns.push(Insn::Jump {
                    wide: true,
                    op: JumpOp::Eq,
                    dst: reg(0),
                    src: Source::Imm(0),
                    target: done,
                });
                insns.push(Insn::Load {
                    width: Width::W32,
                    signed: true,
                    dst: reg(4),
                    base: reg(0),
                    off: 0,
                });
                insns.push(mov(reg(1), Source::Reg(base)));
                let add = |dst, src| Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst,
                    src: Source::Reg(src),
                };
                insns.push(add(reg(1), reg(4)));
                insns.push(Insn::Store {
                    width,
                    base: reg(1),
                    off: 0,
                    src: Source::Reg(reg(4)),
                });
                insns.push(add(reg(8), reg(4)));
                insns.push(Insn::Goto {
                    target: head,
                    long: false,
                });
                insns.extend(stack_pointer(1, -48));
                insns.push(kfunc(3));
                insns.push(mov(reg(0), Source::Imm(0)));
                refill(insns);
            }
            Piece::Helper(id) => {
                insns.push(Insn::Call {
                    callee: Callee::Helper(id),
                });
                refill(insns);
            }
            Piece::Unchecked { map, key, copy } => {
                insns.push(Insn::Store {
                    width: Width::W64,
                    base: Reg::FP,
                    off: -24,
                    src: Source::Imm(key),
                });
                insns.push(mov(reg(2), Source::Reg(Reg::FP)));
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst: reg(2),
                    src: Source::Imm(-24),
                });
                insns.push(Insn::LoadImm64 {
                    dst: reg(1),
                    value: Imm64::Map(map),
                });
                insns.push(Insn::Call {
                    callee: Callee::Helper(1),
                });
                insns.push(mov(copy, Source::Reg(reg(0))));
                refill(insns);
            }
            Piece::Touch {
                index,
                base,
                off,
                width,
                store,
            } => {
                insns.push(mov(reg(1), Source::Reg(base)));
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst: reg(1),
                    src: Source::Reg(index),
                });
                insns.push(if store {
                    Insn::Store {
                        width,
                        base: reg(1),
                        off,
                        src: Source::Reg(reg(7)),
                    }
                } else {
                    Insn::Load {
                        width,
                        signed: false,
                        dst: reg(3),
                        base: reg(1),
                        off,
                    }
                });
            }
            Piece::Index { dst, mask, base } => {
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::And,
                    dst,
                    src: Source::Imm(mask),
                });
                insns.push(Insn::Alu {
                    wide: true,
                    op: AluOp::Add,
                    dst,
                    src: Source::Reg(base),
                });
            }
        }
    }
    starts.push(insns.len());
    for (at, piece) in fixes {
        let to = Pc(starts[piece.min(pieces.len())] as u32);
        if let Insn::Jump { target, .. } | Insn::Goto { target, .. } = &mut insns[at] {
            *target = to;
        }
    }
    insns.push(mov(reg(0), Source::Reg(reg(3))));
    insns.push(Insn::Exit);
}

/// Registers that hold numbers unless something unusual happens.
fn number_reg() -> impl Strategy<Value = Reg> {
    (3u8..=8).prop_map(reg)
}

fn any_reg() -> impl Strategy<Value = Reg> {
    (0u8..=9).prop_map(reg)
}

fn constant() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => 0i32..20,
        2 => prop::sample::select(vec![-1, -8, 31, 32, 63, 255, i32::MAX, i32::MIN]),
        1 => any::<i32>(),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        number_reg().prop_map(Source::Reg),
        constant().prop_map(Source::Imm)
    ]
}

fn width() -> impl Strategy<Value = Width> {
    prop::sample::select(vec![
        Width::W8,
        Width::W8,
        Width::W16,
        Width::W32,
        Width::W64,
    ])
}

fn alu_op() -> impl Strategy<Value = AluOp> {
    use AluOp::{Add, And, Arsh, Div, Lsh, Mod, Mov, Mul, Or, Rsh, SDiv, SMod, Sub, Xor};
    prop::sample::select(vec![
        Add, Add, Sub, Mul, Div, SDiv, Or, And, And, Lsh, Rsh, Mod, Mod, SMod, Xor, Mov, Mov, Mov,
        Arsh,
    ])
}

fn jump_op() -> impl Strategy<Value = JumpOp> {
    use JumpOp::{Eq, Ge, Gt, Le, Lt, Ne, SGe, SGt, SLe, SLt, Set};
    prop::sample::select(vec![Eq, Ne, Set, Gt, Ge, Lt, Le, SGt, SGe, SLt, SLe])
}

/// What programs mostly do: compute, compare, spill, and access memory at an offset that was
/// compared.
fn usual() -> impl Strategy<Value = Piece> {
    let slot = prop::sample::select(vec![-8i16, -16, -32, -40]);
    let base = prop::sample::select(vec![9u8, 9, 9, 0]).prop_map(reg);
    let mask = prop::sample::select(vec![1i32, 3, 4, 7, 8, 12, 15, 24, 31]);
    prop_oneof![
        6 => (any::<bool>(), alu_op(), number_reg(), source())
            .prop_map(|(wide, op, dst, src)| Piece::Plain(Insn::Alu { wide, op, dst, src })),
        2 => (any::<bool>(), number_reg(), mask)
            .prop_map(|(wide, dst, m)| Piece::Plain(Insn::Alu { wide, op: AluOp::And, dst, src: Source::Imm(m) })),
        8 => (any::<bool>(), jump_op(), number_reg(), source(), 1usize..4)
            .prop_map(|(wide, op, dst, src, skip)| Piece::If { wide, op, dst, src, skip }),
        6 => (number_reg(), base, 0i16..9, width(), any::<bool>())
            .prop_map(|(index, base, off, width, store)| Piece::Touch { index, base, off, width, store }),
        4 => (width(), slot.clone(), number_reg(), 0i16..8).prop_map(|(width, slot, src, byte)| {
            let off = slot + byte / width.bytes() as i16 * width.bytes() as i16;
            Piece::Plain(Insn::Store { width, base: Reg::FP, off, src: Source::Reg(src) })
        }),
        4 => (width(), slot.clone(), number_reg(), 0i16..8).prop_map(|(width, slot, dst, byte)| {
            let off = slot + byte / width.bytes() as i16 * width.bytes() as i16;
            Piece::Plain(Insn::Load { width, signed: false, dst, base: Reg::FP, off })
        }),
        1 => (prop::sample::select(vec![0u32, 2, 8]), 0i32..20, 0usize..4)
            .prop_map(|(map, key, skip)| Piece::Lookup { map, key, skip }),
        2 => (prop::sample::select(vec![0u32, 8]), 0i32..20, prop::sample::select(vec![6u8, 8]))
            .prop_map(|(map, key, copy)| Piece::Unchecked { map, key, copy: reg(copy) }),
        3 => (any::<bool>(), prop::sample::select(vec![0u8, 6, 8]), 1usize..5).prop_map(|(eq, dst, skip)| {
            let op = if eq { JumpOp::Eq } else { JumpOp::Ne };
            Piece::If { wide: true, op, dst: reg(dst), src: Source::Imm(0), skip }
        }),
        1 => (number_reg(), 1i32..20, 1usize..5)
            .prop_map(|(counter, times, back)| Piece::Repeat { counter, times, back }),
    ]
}

/// A bound of an iterator.
fn iterated() -> impl Strategy<Value = Source> {
    prop_oneof![
        3 => (0i32..20).prop_map(Source::Imm),
        1 => (-30i32..60).prop_map(Source::Imm),
        1 => number_reg().prop_map(Source::Reg)
    ]
}

/// What they may do.
fn unusual() -> impl Strategy<Value = Piece> {
    let bases = prop::sample::select(vec![10u8, 10, 9, 9, 0, 2, 4, 5]).prop_map(reg);
    let offset =
        prop_oneof![4 => prop::sample::select(vec![0i16, 8, -8, -16, -24, 4, 48]), 1 => -40i16..80];
    let ends = prop::sample::select(vec![EndKind::ToLe, EndKind::ToBe, EndKind::Swap]);
    let atomics = prop::sample::select(vec![
        AtomicOp::Add { fetch: true },
        AtomicOp::Xchg,
        AtomicOp::CmpXchg,
    ]);
    prop_oneof![
        2 => (any::<bool>(), alu_op(), any_reg(), any_reg().prop_map(Source::Reg))
            .prop_map(|(wide, op, dst, src)| Piece::Plain(Insn::Alu { wide, op, dst, src })),
        2 => (any::<bool>(), prop::sample::select(vec![8u8, 16]), number_reg(), number_reg())
            .prop_map(|(wide, bits, dst, src)| Piece::Plain(Insn::MovSx { wide, bits, dst, src })),
        2 => (any::<bool>(), number_reg()).prop_map(|(wide, dst)| Piece::Plain(Insn::Neg { wide, dst })),
        2 => (ends, prop::sample::select(vec![16u8, 32, 64]), number_reg())
            .prop_map(|(kind, bits, dst)| Piece::Plain(Insn::End { kind, bits, dst })),
        2 => (width(), any::<bool>(), any_reg(), bases.clone(), offset.clone()).prop_map(|(width, signed, dst, base, off)| {
            Piece::Plain(Insn::Load { width, signed: signed && width != Width::W64, dst, base, off })
        }),
        2 => (width(), bases.clone(), offset.clone(), any_reg())
            .prop_map(|(width, base, off, src)| Piece::Plain(Insn::Store { width, base, off, src: Source::Reg(src) })),
        2 => (atomics, bases.clone(), offset, number_reg())
            .prop_map(|(op, base, off, src)| Piece::Plain(Insn::Atomic { width: Width::W64, op, base, off, src })),
        1 => (prop::sample::select(vec![8i32, 16, 24]), any_reg()).prop_map(|(size, value)| Piece::Record { size, value }),
        1 => prop::sample::select(vec![5u32, 8, 511]).prop_map(Piece::Helper),
        3 => Just(Piece::Call),
        3 => prop_oneof![(0i32..60).prop_map(Source::Imm), number_reg().prop_map(Source::Reg)].prop_map(Piece::Loop),
        2 => (0usize..4).prop_map(|back| Piece::MayGoto { back }),
        3 => (iterated(), iterated(), bases.clone(), width())
            .prop_map(|(start, end, base, width)| Piece::Iterate { start, end, base, width }),
        1 => (number_reg(), prop::sample::select(vec![0i32, 1, 4, 7, 8, 12, 15, 24, 56]), bases)
            .prop_map(|(dst, mask, base)| Piece::Index { dst, mask, base }),
    ]
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![8 => usual(), 1 => unusual()]
}

/// What a program is given.
#[derive(Clone, Debug)]
struct Input {
    lane: u32,
    thread: u32,
    kernel: u64,
    bss: [u64; 2],
    time: u64,
    record: bool,
}

fn input() -> impl Strategy<Value = Input> {
    let number = || prop_oneof![any::<u64>(), 0u64..20, any::<i8>().prop_map(|x| x as u64)];
    let bss = (number(), number()).prop_map(|(a, b)| [a, b]);
    (
        0u32..32,
        0u32..1024,
        number(),
        bss,
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(|(lane, thread, kernel, bss, time, record)| Input {
            lane,
            thread,
            kernel,
            bss,
            time,
            record,
        })
}

/// A world whose addresses depend on `base` and whose stack is full of `garbage`.
struct World {
    memory: FlatMemory,
    base: u64,
    input: Input,
    records: u64,
}

const CTX: u64 = 0;
const STRIDE: u64 = 0x10_0000;

impl World {
    fn new(input: &Input, base: u64, garbage: u8) -> World {
        let mut memory = FlatMemory::new();
        for mut region in stack_regions() {
            region.bytes.fill(garbage);
            assert!(memory.add(region));
        }
        let mut ctx = vec![0; 80];
        ctx[48..52].copy_from_slice(&input.lane.to_le_bytes());
        ctx[24..28].copy_from_slice(&input.thread.to_le_bytes());
        ctx[64..72].copy_from_slice(&input.kernel.to_le_bytes());
        let bss = input.bss.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut world = World {
            memory,
            base,
            input: input.clone(),
            records: 0,
        };
        world.region(CTX, 0, ctx, false);
        world.region(4, 0, RODATA_BYTES.to_vec(), false);
        world.region(5, 0, bss, true);
        for key in 0..16 {
            world.region(1, key, vec![key as u8; 8], true);
            world.region(3, key, vec![key as u8; 16], true);
            world.region(9, key, vec![key as u8; 64], true);
        }
        world.region(10, 0, vec![0; 8], true);
        world
    }

    /// Regions are apart, so that a step outside is a trap. `kind` is the map's index plus 1, or
    /// the context.
    fn address(&self, kind: u64, item: u64) -> u64 {
        self.base + kind * STRIDE + item * 0x1000
    }

    fn region(&mut self, kind: u64, item: u64, bytes: Vec<u8>, writable: bool) {
        let base = self.address(kind, item);
        assert!(self.memory.add(Region {
            base,
            bytes,
            writable
        }));
    }

    /// Everything that outlives the program.
    fn result(&self) -> BTreeMap<(u64, u64), Vec<u8>> {
        let all = [
            (1, 16u64, 8usize),
            (3, 16, 16),
            (5, 1, 16),
            (9, 16, 64),
            (10, 1, 8),
        ];
        let mut result = BTreeMap::new();
        for (kind, items, len) in all {
            for item in 0..items {
                let bytes = self
                    .memory
                    .bytes(self.address(kind, item), len)
                    .map(<[u8]>::to_vec);
                result.insert((kind, item), bytes.unwrap_or_default());
            }
        }
        result
    }
}

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.memory.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.memory.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        match id {
            181 => bpf_loop(self, args, callback),
            1 => {
                let map = (args[0] - self.base) / STRIDE - 1;
                let key = self
                    .memory
                    .load(args[1], if map == 2 { Width::W64 } else { Width::W32 })?;
                Ok(if key < 16 {
                    self.address(map + 1, key)
                } else {
                    0
                })
            }
            5 => Ok(self.input.time),
            8 => Ok(u64::from(self.input.thread)),
            511 => Ok(u64::from(self.input.lane)),
            131 if self.input.record => {
                self.records += 1;
                let base = self.address(2, self.records);
                assert!(self.memory.add(Region {
                    base,
                    bytes: vec![0; args[1] as usize],
                    writable: true
                }));
                Ok(base)
            }
            131 | 132 => Ok(0),
            _ => Err(TrapKind::NoHelper { id }),
        }
    }
    fn map_address(&mut self, map: u32) -> Result<u64, TrapKind> {
        // Inside the map's range, where no region is.
        Ok(self.address(u64::from(map) + 1, 0) + 0x80)
    }
    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        Ok(self.address(u64::from(map) + 1, 0) + u64::from(offset))
    }
}

/// A proved program returns, within its cost, and what it leaves depends on its input alone: that.
fn agrees(
    code: &Code,
    facts: &Facts,
    input: &Input,
) -> Result<BTreeMap<(u64, u64), Vec<u8>>, TestCaseError> {
    let mut results = Vec::new();
    for (base, garbage) in [(0x1_0000_0000, 0xaa), (0x77_0000_0000, 0x55)] {
        let mut world = World::new(input, base, garbage);
        let ctx = world.address(CTX, 0);
        let limits = Limits {
            fuel: facts.cost,
            may_goto: u64::from(facts.may_goto_rounds),
        };
        match run(code, Pc(0), &[ctx], &mut world, limits) {
            Ok(Outcome::Return(r0)) => results.push((r0, world.result())),
            other => prop_assert!(false, "{other:?}\n{}", warpbpf_ebpf::listing(code)),
        }
    }
    prop_assert_eq!(
        &results[0],
        &results[1],
        "\n{}",
        warpbpf_ebpf::listing(code)
    );
    Ok(results.swap_remove(0).1)
}

/// Loops that end or do not, as the input has it: bounded where that is needed.
#[test]
fn bounded_programs_return_and_see_no_garbage_or_address() {
    let again = (jump_op(), number_reg(), source(), 0usize..4)
        .prop_map(|(op, dst, src, back)| Piece::Again { op, dst, src, back });
    let strategy = (
        prop::collection::vec(prop_oneof![6 => piece(), 1 => again], 1..10),
        prop::collection::vec(piece(), 1..8),
        prop::collection::vec(input(), 2),
    );
    let maps = [maps(), vec![maps()[0].clone()]].concat();
    let counter = maps.len() as u32 - 1;
    let (bounded, ended) = (Cell::new(0u32), Cell::new(0u32));
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases() / 2)
    });
    let outcome = runner.run(&strategy, |(pieces, callee, inputs)| {
        let mut platform = platform();
        platform.effort = 20_000;
        let program = Program {
            name: String::new(),
            section: String::new(),
            code: code_of(&pieces, &callee),
            functions: Vec::new(),
            lines: Vec::new(),
            unresolved: BTreeMap::new(),
        };
        let proof = prove_bounded(&program, counter, |program| {
            verify(program, &maps, &platform)
        });
        let Ok(proof) = proof else {
            return Ok(());
        };
        if proof.heads.is_empty() {
            return Ok(());
        }
        bounded.set(bounded.get() + 1);
        for input in &inputs {
            let code = &proof.verified.program().code;
            let left = agrees(code, proof.verified.facts(), input)?;
            let count = &left[&(u64::from(counter) + 1, 0)];
            prop_assert!(count[0] <= 1 && count[1..].iter().all(|byte| *byte == 0));
            ended.set(ended.get() + u32::from(count[0]));
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let (bounded, ended) = (bounded.get(), ended.get());
    assert!(
        bounded > 50 && ended > 10 && ended < 2 * bounded,
        "{bounded} were bounded, {ended} runs ended"
    );
}

#[test]
fn accepted_programs_never_trap_and_see_no_garbage_or_address() {
    let strategy = (
        prop::collection::vec(piece(), 1..12),
        prop::collection::vec(piece(), 1..8),
        prop::collection::vec(input(), 4),
        // With little effort, states are joined.
        prop::sample::select(vec![20_000, 500]),
    );
    let (accepted, all) = (Cell::new(0u32), Cell::new(0u32));
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases())
    });
    let outcome = runner.run(&strategy, |(pieces, callee, inputs, effort)| {
        all.set(all.get() + 1);
        let mut platform = platform();
        platform.effort = effort;
        let Ok(verified) = verify(code_of(&pieces, &callee), &maps(), &platform) else {
            return Ok(());
        };
        accepted.set(accepted.get() + 1);
        let facts = verified.facts().instances.iter().flat_map(|i| &i.insns);
        let stuck = |fact: &InsnFact| {
            matches!(
                fact,
                InsnFact::Branch {
                    taken: false,
                    falls: false,
                    ..
                }
            )
        };
        prop_assert!(!facts.clone().any(stuck), "a reached branch goes somewhere");
        inputs
            .iter()
            .try_for_each(|input| agrees(verified.program(), verified.facts(), input).map(drop))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    // A test in which nothing is accepted shows nothing.
    assert!(
        accepted.get() * 20 > all.get(),
        "only {} of {} were accepted",
        accepted.get(),
        all.get()
    );
}

/// Enough to find an unsound rule in a few seconds, and many more in `cargo xtask test --deep`.
fn cases() -> u32 {
    match std::env::var_os("WARPBPF_DEEP") {
        Some(_) => 100_000,
        None => 5_000,
    }
}
