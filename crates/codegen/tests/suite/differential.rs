//! The same program in the reference interpreter and, compiled, on the soft GPU: every register and
//! byte agrees.

use crate::common::{self, Case, array};
use proptest::prelude::*;
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    AluOp, AtomicOp, Callback, Code, EndKind, FlatMemory, Imm64, Insn, JumpOp, Limits, Machine,
    Memory, Outcome, Pc, Reg, Region, Source, TrapKind, Width, run,
};
use warpbpf_softgpu::Config;

/// Where the interpreter keeps the map's value.
const VALUE: u64 = 0x1000;
/// Bytes of the value: ten inputs, ten outputs, eight words to work on.
const VALUE_BYTES: usize = 224;
const OUTPUTS: i16 = 80;
const SCRATCH: i16 = 160;
/// Bytes of stack that programs work on, and where the result's r0 waits for its turn.
const STACK_WORDS: i16 = 4;
const SAVED: i16 = -48;

struct World(FlatMemory);

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.0.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.0.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(&mut self, id: u32, _: [u64; 5], _: &mut Callback<'_>) -> Result<u64, TrapKind> {
        Err(TrapKind::NoHelper { id })
    }
    fn map_value_address(&mut self, _: u32, offset: u32) -> Result<u64, TrapKind> {
        Ok(VALUE + u64::from(offset))
    }
}

fn interpret(code: &Code, value: &[u8]) -> Vec<u8> {
    let mut memory = FlatMemory::new();
    assert!(memory.add(Region {
        base: VALUE,
        bytes: value.to_vec(),
        writable: true
    }));
    for region in stack_regions() {
        assert!(memory.add(region));
    }
    let mut world = World(memory);
    match run(code, Pc(0), &[0], &mut world, Limits::default()) {
        Ok(Outcome::Return(_)) => {}
        other => panic!("{other:?}"),
    }
    world
        .0
        .bytes(VALUE, VALUE_BYTES)
        .expect("the value")
        .to_vec()
}

fn emulate(case: &Case, value: &[u8]) -> Vec<u8> {
    let config = Config {
        sms: 1,
        threads: 1,
        memory: 1 << 24,
        step_limit: Some(1 << 20),
        ..Config::default()
    };
    let device = common::Device::new(case, config);
    device.write(1, 0, value);
    device.launch([1, 1, 1], [1, 1, 1]);
    device.maps().areas[0][..VALUE_BYTES].to_vec()
}

fn reg(n: u32) -> Reg {
    Reg::new((n % 10) as u8).expect("below 10")
}

fn width(n: u32) -> Width {
    [Width::W8, Width::W16, Width::W32, Width::W64][n as usize % 4]
}

/// An instruction from a few random numbers; `left` instructions follow.
fn insn(choice: [u32; 5], left: u32, here: u32) -> Insn {
    let [kind, a, b, c, imm] = choice;
    let (dst, src) = (reg(a), reg(b));
    let wide = c & 1 == 0;
    let ops = [
        AluOp::Add,
        AluOp::Sub,
        AluOp::Mul,
        AluOp::Div,
        AluOp::SDiv,
        AluOp::Or,
        AluOp::And,
        AluOp::Lsh,
        AluOp::Rsh,
        AluOp::Mod,
        AluOp::SMod,
        AluOp::Xor,
        AluOp::Mov,
        AluOp::Arsh,
    ];
    let jumps = [
        JumpOp::Eq,
        JumpOp::Ne,
        JumpOp::Set,
        JumpOp::Gt,
        JumpOp::Ge,
        JumpOp::Lt,
        JumpOp::Le,
        JumpOp::SGt,
        JumpOp::SGe,
        JumpOp::SLt,
        JumpOp::SLe,
    ];
    let size = width(c);
    // A naturally aligned place in the first `STACK_WORDS` words.
    let step = size.bytes() as i16;
    let stack = -8 * STACK_WORDS + (imm as i16).rem_euclid(8 * STACK_WORDS / step) * step;
    match kind % 20 {
        0..=5 => Insn::Alu {
            wide,
            op: ops[imm as usize % ops.len()],
            dst,
            src: Source::Reg(src),
        },
        6..=8 => {
            let op = ops[b as usize % ops.len()];
            let imm = match op {
                AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => imm as i32 & if wide { 63 } else { 31 },
                AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => (imm as i32 >> (b % 32)) | 1,
                _ => imm as i32 >> (b % 32),
            };
            Insn::Alu {
                wide,
                op,
                dst,
                src: Source::Imm(imm),
            }
        }
        9 => Insn::MovSx {
            wide,
            bits: [8, 16, 32][if wide { imm % 3 } else { imm % 2 } as usize],
            dst,
            src,
        },
        10 => Insn::Neg { wide, dst },
        11 => Insn::End {
            kind: [EndKind::ToLe, EndKind::ToBe, EndKind::Swap][c as usize % 3],
            bits: [16, 32, 64][imm as usize % 3],
            dst,
        },
        12 | 13 => Insn::Store {
            width: size,
            base: Reg::FP,
            off: stack,
            src: Source::Reg(src),
        },
        14 => Insn::Store {
            width: size,
            base: Reg::FP,
            off: stack,
            src: Source::Imm(imm as i32),
        },
        15 | 16 => Insn::Load {
            width: size,
            signed: b & 1 == 1 && size != Width::W64,
            dst,
            base: Reg::FP,
            off: stack,
        },
        17 => {
            let (width, step) = if wide {
                (Width::W64, 8)
            } else {
                (Width::W32, 4)
            };
            let fetch = b & 1 == 1;
            let op = [
                AtomicOp::Add { fetch },
                AtomicOp::Or { fetch },
                AtomicOp::And { fetch },
                AtomicOp::Xor { fetch },
                AtomicOp::Xchg,
                AtomicOp::CmpXchg,
            ][imm as usize % 6];
            let off = -8 * STACK_WORDS + (imm as i16 & 3) * step;
            Insn::Atomic {
                width,
                op,
                base: Reg::FP,
                off,
                src,
            }
        }
        _ if left > 1 => Insn::Jump {
            wide,
            op: jumps[imm as usize % jumps.len()],
            dst,
            src: if b & 1 == 0 {
                Source::Reg(src)
            } else {
                Source::Imm(imm as i32 >> (b % 32))
            },
            target: Pc(here + 2 + c % (left - 1).min(4)),
        },
        _ => Insn::Neg { wide, dst },
    }
}

/// A program: registers and stack from the map's value, random instructions, everything back into
/// the value.
///
/// With `in_memory`, one store goes through a pointer that varies, so that the whole frame stays in
/// memory.
fn program(choices: &[[u32; 5]], in_memory: bool) -> Code {
    let load = |dst, base, off| Insn::Load {
        width: Width::W64,
        signed: false,
        dst,
        base,
        off,
    };
    let store = |base, off, src| Insn::Store {
        width: Width::W64,
        base,
        off,
        src: Source::Reg(src),
    };
    let value = |dst, offset: i16| Insn::LoadImm64 {
        dst,
        value: Imm64::MapValue {
            map: 0,
            offset: offset as u32,
        },
    };
    let mut code = vec![value(Reg::R0, 0)];
    for n in 1..10 {
        code.push(load(reg(n), Reg::R0, n as i16 * 8));
    }
    code.push(load(Reg::R0, Reg::R0, 0));
    for word in 0..STACK_WORDS {
        code.push(store(Reg::FP, -8 * (word + 1), reg(word as u32)));
    }
    if in_memory {
        let alu = |op, dst, src| Insn::Alu {
            wide: true,
            op,
            dst,
            src,
        };
        code.push(alu(AluOp::Mov, Reg::R0, Source::Reg(reg(9))));
        code.push(alu(AluOp::And, Reg::R0, Source::Imm(24)));
        code.push(alu(AluOp::Mov, Reg::R1, Source::Reg(Reg::FP)));
        code.push(alu(AluOp::Add, Reg::R1, Source::Reg(Reg::R0)));
        code.push(store(Reg::R1, -8 * STACK_WORDS, reg(8)));
        code.push(alu(AluOp::Mov, Reg::R1, Source::Reg(reg(8))));
    }
    let mut jumps = 0;
    for (i, choice) in choices.iter().enumerate() {
        let mut choice = *choice;
        // Each jump may double the paths that the verifier follows.
        if choice[0] % 20 > 17 {
            jumps += 1;
            if jumps > 8 {
                choice[0] = 0;
            }
        }
        code.push(insn(choice, (choices.len() - i) as u32, code.len() as u32));
    }
    code.push(store(Reg::FP, SAVED, Reg::R0));
    code.push(value(Reg::R0, OUTPUTS));
    for n in 1..10 {
        code.push(store(Reg::R0, n as i16 * 8, reg(n)));
    }
    code.push(load(Reg::R1, Reg::FP, SAVED));
    code.push(store(Reg::R0, 0, Reg::R1));
    code.push(value(Reg::R0, SCRATCH));
    for word in 0..STACK_WORDS {
        code.push(load(Reg::R1, Reg::FP, -8 * (word + 1)));
        code.push(store(Reg::R0, word * 8, Reg::R1));
    }
    code.push(Insn::Alu {
        wide: true,
        op: AluOp::Mov,
        dst: Reg::R0,
        src: Source::Imm(0),
    });
    code.push(Insn::Exit);
    Code::new(code)
}

/// Operands where arithmetic has its corners, and any others.
fn operand() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0u64),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just(0x8000_0000),
        Just(0xffff_ffff),
        Just(0xffff_ffff_8000_0000),
        0u64..70,
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arithmetic_and_stack(
        choices in proptest::collection::vec(any::<[u32; 5]>(), 1..60),
        inputs in proptest::collection::vec(operand(), 10),
        in_memory in any::<bool>(),
    ) {
        let code = program(&choices, in_memory);
        let mut value: Vec<u8> = inputs.iter().flat_map(|v| v.to_le_bytes()).collect();
        value.resize(VALUE_BYTES, 0);
        let expected = interpret(&code, &value);
        let case = Case::of(code.clone(), vec![array(VALUE_BYTES as u32, 1)]);
        prop_assert_eq!(case.compile().local_bytes > 0, in_memory);
        let got = emulate(&case, &value);
        prop_assert_eq!(got, expected, "{}\n{}", warpbpf_ebpf::listing(&code), case.compile().body);
    }

    /// The same with inputs that the code generator sees, so that it folds.
    #[test]
    fn constants(
        choices in proptest::collection::vec(any::<[u32; 5]>(), 1..60),
        inputs in proptest::collection::vec(operand(), 10),
    ) {
        let mut insns = program(&choices, false).insns().to_vec();
        for n in 1..10 {
            insns[n as usize] = Insn::LoadImm64 { dst: reg(n), value: Imm64::Value(inputs[n as usize]) };
        }
        insns[10] = Insn::LoadImm64 { dst: Reg::R0, value: Imm64::Value(inputs[0]) };
        let code = Code::new(insns);
        let value = vec![0; VALUE_BYTES];
        let expected = interpret(&code, &value);
        let case = Case::of(code.clone(), vec![array(VALUE_BYTES as u32, 1)]);
        let got = emulate(&case, &value);
        prop_assert_eq!(got, expected, "{}\n{}", warpbpf_ebpf::listing(&code), case.compile().body);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// ptxas takes whatever comes out, constants in any operand included.
    #[test]
    fn ptxas_accepts(
        choices in proptest::collection::vec(any::<[u32; 5]>(), 20..80),
        constants in any::<[bool; 10]>(),
        in_memory in any::<bool>(),
    ) {
        let mut insns = program(&choices, in_memory).insns().to_vec();
        for n in 1..10 {
            if constants[n] {
                insns[n] = Insn::LoadImm64 { dst: reg(n as u32), value: Imm64::Value(u64::from(choices[n][0]) << 9) };
            }
        }
        let case = Case::of(Code::new(insns), vec![array(VALUE_BYTES as u32, 1)]);
        common::ptxas(&case.module("sm_75", (6, 3)), "sm_75", &["-O1"]);
    }
}
