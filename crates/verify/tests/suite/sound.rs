//! What is proved is true: random programs that are accepted run on the reference interpreter, over memory that has
//! nothing around its regions and demands alignment. They may not trap, nor execute more than the proved cost; and
//! neither garbage in the stack nor the addresses of maps may change what they do, because a program that reads only
//! what it wrote and leaks no pointer cannot see either.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    AluOp, AtomicOp, Callback, Callee, Code, EndKind, FlatMemory, Imm64, Insn, JumpOp, Limits, Machine, Memory, Outcome,
    Pc, Reg, Region, Source, TrapKind, Width, run,
};
use warpbpf_verify::verify;

use crate::common::{RODATA_BYTES, maps, platform};

fn reg(n: u8) -> Reg {
    Reg::new(n).unwrap_or(Reg::R0)
}

/// A piece of a program. Targets are distances in pieces.
#[derive(Clone, Debug)]
enum Piece {
    Plain(Insn),
    If { wide: bool, op: JumpOp, dst: Reg, src: Source, skip: usize },
    Repeat { counter: Reg, times: i32, back: usize },
    /// Key `key` of map `map` into `r0`, through the stack; the next pieces run if it is there.
    Lookup { map: u32, key: i32, skip: usize },
    /// A record is reserved, written and submitted.
    Record { size: i32, value: Reg },
    Helper(u32),
    /// `dst` = mask of `dst`, then a pointer plus that.
    Index { dst: Reg, mask: i32, base: Reg },
}

const OUT: u8 = 9;

fn code_of(pieces: &[Piece]) -> Code {
    let mov = |dst: Reg, src: Source| Insn::Alu { wide: true, op: AluOp::Mov, dst, src };
    let ctx = |dst: u8, off: i16, width: Width| Insn::Load { width, signed: false, dst: reg(dst), base: reg(1), off };
    // Something in every register, of every kind.
    let mut insns = vec![
        ctx(6, 48, Width::W32),
        ctx(7, 64, Width::W64),
        ctx(8, 24, Width::W32),
        Insn::Store { width: Width::W64, base: Reg::FP, off: -8, src: Source::Reg(reg(7)) },
        Insn::Store { width: Width::W64, base: Reg::FP, off: -16, src: Source::Imm(77) },
        Insn::LoadImm64 { dst: reg(OUT), value: Imm64::MapValue { map: 4, offset: 0 } },
        mov(reg(2), Source::Reg(Reg::FP)),
        Insn::Alu { wide: true, op: AluOp::Add, dst: reg(2), src: Source::Imm(-16) },
        mov(reg(3), Source::Imm(5)),
        mov(reg(4), Source::Reg(reg(6))),
        mov(reg(5), Source::Reg(reg(7))),
        mov(reg(0), Source::Imm(0)),
    ];
    let mut starts = Vec::new();
    let mut fixes: Vec<(usize, usize)> = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        starts.push(insns.len());
        match *piece {
            Piece::Plain(insn) => insns.push(insn),
            Piece::If { wide, op, dst, src, skip } => {
                fixes.push((insns.len(), i + 1 + skip));
                insns.push(Insn::Jump { wide, op, dst, src, target: Pc(0) });
            }
            Piece::Repeat { counter, times, back } => {
                insns.push(Insn::Alu { wide: true, op: AluOp::Add, dst: counter, src: Source::Imm(1) });
                fixes.push((insns.len(), i.saturating_sub(back)));
                insns.push(Insn::Jump { wide: true, op: JumpOp::Lt, dst: counter, src: Source::Imm(times), target: Pc(0) });
            }
            Piece::Lookup { map, key, skip } => {
                insns.push(Insn::Store { width: Width::W64, base: Reg::FP, off: -24, src: Source::Imm(key) });
                insns.push(mov(reg(2), Source::Reg(Reg::FP)));
                insns.push(Insn::Alu { wide: true, op: AluOp::Add, dst: reg(2), src: Source::Imm(-24) });
                insns.push(Insn::LoadImm64 { dst: reg(1), value: Imm64::Map(map) });
                insns.push(Insn::Call { callee: Callee::Helper(1) });
                insns.push(mov(reg(3), Source::Imm(3)));
                fixes.push((insns.len(), i + 1 + skip));
                insns.push(Insn::Jump { wide: true, op: JumpOp::Eq, dst: reg(0), src: Source::Imm(0), target: Pc(0) });
            }
            Piece::Record { size, value } => {
                insns.push(Insn::LoadImm64 { dst: reg(1), value: Imm64::Map(1) });
                insns.push(mov(reg(2), Source::Imm(size)));
                insns.push(mov(reg(3), Source::Imm(0)));
                insns.push(Insn::Call { callee: Callee::Helper(131) });
                let skip = insns.len() as u32 + 5;
                insns.push(Insn::Jump { wide: true, op: JumpOp::Eq, dst: reg(0), src: Source::Imm(0), target: Pc(skip) });
                insns.push(Insn::Store { width: Width::W64, base: reg(0), off: 0, src: Source::Reg(value) });
                insns.push(mov(reg(1), Source::Reg(reg(0))));
                insns.push(mov(reg(2), Source::Imm(0)));
                insns.push(Insn::Call { callee: Callee::Helper(132) });
                insns.push(mov(reg(0), Source::Imm(1)));
            }
            Piece::Helper(id) => {
                insns.push(Insn::Call { callee: Callee::Helper(id) });
                insns.push(mov(reg(1), Source::Reg(reg(0))));
            }
            Piece::Index { dst, mask, base } => {
                insns.push(Insn::Alu { wide: true, op: AluOp::And, dst, src: Source::Imm(mask) });
                insns.push(Insn::Alu { wide: true, op: AluOp::Add, dst, src: Source::Reg(base) });
            }
        }
    }
    starts.push(insns.len());
    for (at, piece) in fixes {
        let to = Pc(starts[piece.min(pieces.len())] as u32);
        if let Insn::Jump { target, .. } = &mut insns[at] {
            *target = to;
        }
    }
    insns.push(mov(reg(0), Source::Reg(reg(3))));
    insns.push(Insn::Exit);
    Code::new(insns)
}

fn any_reg() -> impl Strategy<Value = Reg> {
    (0u8..=9).prop_map(reg)
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        any_reg().prop_map(Source::Reg),
        prop::sample::select(vec![-1, 0, 1, 2, 3, 7, 8, 15, 31, 32, 63, 255, i32::MAX, i32::MIN]).prop_map(Source::Imm),
        any::<i32>().prop_map(Source::Imm),
    ]
}

fn width() -> impl Strategy<Value = Width> {
    prop::sample::select(vec![Width::W8, Width::W16, Width::W32, Width::W64])
}

fn offset() -> impl Strategy<Value = i16> {
    prop_oneof![4 => prop::sample::select(vec![0i16, 8, -8, -16, -24, 4, 48]), 1 => -40i16..80]
}

fn piece() -> impl Strategy<Value = Piece> {
    use AluOp::{Add, And, Arsh, Div, Lsh, Mod, Mov, Mul, Or, Rsh, SDiv, SMod, Sub, Xor};
    let ops = vec![Add, Sub, Mul, Div, SDiv, Or, And, Lsh, Rsh, Mod, SMod, Xor, Mov, Mov, Arsh];
    use JumpOp::{Eq, Ge, Gt, Le, Lt, Ne, SGe, SGt, SLe, SLt, Set};
    let jumps = vec![Eq, Ne, Set, Gt, Ge, Lt, Le, SGt, SGe, SLt, SLe];
    let bases = prop::sample::select(vec![10u8, 10, 10, 9, 9, 0, 2, 4, 5]).prop_map(reg);
    prop_oneof![
        8 => (any::<bool>(), prop::sample::select(ops), any_reg(), source())
            .prop_map(|(wide, op, dst, src)| Piece::Plain(Insn::Alu { wide, op, dst, src })),
        1 => (any::<bool>(), prop::sample::select(vec![8u8, 16]), any_reg(), any_reg())
            .prop_map(|(wide, bits, dst, src)| Piece::Plain(Insn::MovSx { wide, bits, dst, src })),
        1 => (any::<bool>(), any_reg()).prop_map(|(wide, dst)| Piece::Plain(Insn::Neg { wide, dst })),
        1 => (prop::sample::select(vec![EndKind::ToLe, EndKind::ToBe, EndKind::Swap]), prop::sample::select(vec![16u8, 32, 64]), any_reg())
            .prop_map(|(kind, bits, dst)| Piece::Plain(Insn::End { kind, bits, dst })),
        4 => (width(), any::<bool>(), any_reg(), bases.clone(), offset()).prop_map(|(width, signed, dst, base, off)| {
            Piece::Plain(Insn::Load { width, signed: signed && width != Width::W64, dst, base, off })
        }),
        4 => (width(), bases.clone(), offset(), source())
            .prop_map(|(width, base, off, src)| Piece::Plain(Insn::Store { width, base, off, src })),
        1 => (prop::sample::select(vec![AtomicOp::Add { fetch: true }, AtomicOp::Xchg, AtomicOp::CmpXchg]), bases.clone(), offset(), any_reg())
            .prop_map(|(op, base, off, src)| Piece::Plain(Insn::Atomic { width: Width::W64, op, base, off, src })),
        6 => (any::<bool>(), prop::sample::select(jumps), any_reg(), source(), 1usize..5)
            .prop_map(|(wide, op, dst, src, skip)| Piece::If { wide, op, dst, src, skip }),
        1 => (any_reg(), 1i32..20, 1usize..5).prop_map(|(counter, times, back)| Piece::Repeat { counter, times, back }),
        2 => (prop::sample::select(vec![0u32, 2, 8]), 0i32..20, 0usize..4)
            .prop_map(|(map, key, skip)| Piece::Lookup { map, key, skip }),
        1 => (prop::sample::select(vec![8i32, 16, 24]), any_reg()).prop_map(|(size, value)| Piece::Record { size, value }),
        1 => prop::sample::select(vec![5u32, 8, 511]).prop_map(Piece::Helper),
        2 => (any_reg(), prop::sample::select(vec![0i32, 1, 4, 7, 8, 12, 15, 24, 56]), bases)
            .prop_map(|(dst, mask, base)| Piece::Index { dst, mask, base }),
    ]
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
    (0u32..32, 0u32..1024, any::<u64>(), any::<[u64; 2]>(), any::<u64>(), any::<bool>())
        .prop_map(|(lane, thread, kernel, bss, time, record)| Input { lane, thread, kernel, bss, time, record })
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
        let mut world = World { memory, base, input: input.clone(), records: 0 };
        world.region(CTX, 0, ctx, false);
        world.region(4, 0, RODATA_BYTES.to_vec(), false);
        world.region(5, 0, bss, true);
        for key in 0..16 {
            world.region(1, key, vec![key as u8; 8], true);
            world.region(3, key, vec![key as u8; 16], true);
            world.region(9, key, vec![key as u8; 64], true);
        }
        world
    }

    /// Regions are apart, so that a step outside is a trap. `kind` is the map's index plus 1, or the context.
    fn address(&self, kind: u64, item: u64) -> u64 {
        self.base + kind * STRIDE + item * 0x1000
    }

    fn region(&mut self, kind: u64, item: u64, bytes: Vec<u8>, writable: bool) {
        let base = self.address(kind, item);
        assert!(self.memory.add(Region { base, bytes, writable }));
    }

    /// Everything that outlives the program.
    fn result(&self) -> BTreeMap<(u64, u64), Vec<u8>> {
        let all = [(1, 16u64, 8usize), (3, 16, 16), (5, 1, 16), (9, 16, 64)];
        let mut result = BTreeMap::new();
        for (kind, items, len) in all {
            for item in 0..items {
                let bytes = self.memory.bytes(self.address(kind, item), len).map(<[u8]>::to_vec);
                result.insert((kind, item), bytes.unwrap_or_default());
            }
        }
        result
    }
}

fn aligned(address: u64, width: Width) -> Result<(), TrapKind> {
    if address.is_multiple_of(u64::from(width.bytes())) { Ok(()) } else { Err(TrapKind::Misaligned { address, width }) }
}

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        aligned(address, width)?;
        self.memory.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        aligned(address, width)?;
        self.memory.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(&mut self, id: u32, args: [u64; 5], _: &mut Callback<'_>) -> Result<u64, TrapKind> {
        match id {
            1 => {
                let map = (args[0] - self.base) / STRIDE - 1;
                let key = self.memory.load(args[1], if map == 2 { Width::W64 } else { Width::W32 })?;
                Ok(if key < 16 { self.address(map + 1, key) } else { 0 })
            }
            5 => Ok(self.input.time),
            8 => Ok(u64::from(self.input.thread)),
            511 => Ok(u64::from(self.input.lane)),
            131 if self.input.record => {
                self.records += 1;
                let base = self.address(2, self.records);
                assert!(self.memory.add(Region { base, bytes: vec![0; args[1] as usize], writable: true }));
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

#[test]
fn accepted_programs_never_trap_and_see_no_garbage_or_address() {
    let strategy = (prop::collection::vec(piece(), 1..14), prop::collection::vec(input(), 4));
    let (accepted, all) = (Cell::new(0u32), Cell::new(0u32));
    let mut runner = TestRunner::new(Config::with_cases(CASES));
    let outcome = runner.run(&strategy, |(pieces, inputs)| {
        all.set(all.get() + 1);
        let mut platform = platform();
        platform.effort = 20_000;
        let Ok(verified) = verify(code_of(&pieces), &maps(), &platform) else { return Ok(()) };
        accepted.set(accepted.get() + 1);
        for input in &inputs {
            let mut results = Vec::new();
            for (base, garbage) in [(0x1_0000_0000, 0xaa), (0x77_0000_0000, 0x55)] {
                let mut world = World::new(input, base, garbage);
                let ctx = world.address(CTX, 0);
                let limits = Limits { fuel: verified.facts().cost, ..Limits::default() };
                match run(verified.program(), Pc(0), &[ctx], &mut world, limits) {
                    Ok(Outcome::Return(r0)) => results.push((r0, world.result())),
                    other => prop_assert!(false, "{other:?}\n{}", warpbpf_ebpf::listing(verified.program())),
                }
            }
            prop_assert_eq!(&results[0], &results[1], "\n{}", warpbpf_ebpf::listing(verified.program()));
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    eprintln!("{} of {}", accepted.get(), all.get());
    // A test in which nothing is accepted shows nothing.
    assert!(accepted.get() * 12 > all.get(), "only {} of {} were accepted", accepted.get(), all.get());
}

/// Enough to find an unsound rule in a few seconds; more by hand after a change of the domains.
const CASES: u32 = 300000;
