//! The same program in the reference interpreter and, compiled, on the soft GPU: every register and byte agrees.

mod common;

use common::{Case, array};
use proptest::prelude::*;
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    AluOp, AtomicOp, Callback, Callee, Code, EndKind, FlatMemory, Imm64, Insn, JumpOp, Limits,
    Machine, Memory, Outcome, Pc, Reg, Region, Source, TrapKind, Width, run,
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
    /// `bpf_loop` without flags and with few rounds.
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        if id != HelperId::Loop as u32 {
            return Err(TrapKind::NoHelper { id });
        }
        let [rounds, function, context, ..] = args;
        for index in 0..rounds {
            if callback.call(self, function, [index, context, 0, 0, 0])? != 0 {
                return Ok(index + 1);
            }
        }
        Ok(rounds)
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

/// A program: registers and stack from the map's value, random instructions, everything back into the value.
///
/// With `in_memory`, one store goes through a pointer that varies, so that the whole frame stays in memory.
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

/// Where the interpreter has the memory of a program that runs by itself. Ten registers to start with, then so many bytes
/// to work on: an access takes up to 8 from any of the first 24 on.
const WORK: i16 = 31;
const MEMORY_BASE: u64 = 0x2000;

/// As `program`, on memory of its own: `r9` points to it, accesses are at any address, known or not.
fn memory_program(choices: &[[u32; 5]]) -> Code {
    let load = |dst, base, off| Insn::Load {
        width: Width::W64,
        signed: false,
        dst,
        base,
        off,
    };
    let alu = |op, dst, src| Insn::Alu {
        wide: true,
        op,
        dst,
        src,
    };
    let memory = reg(9);
    let mut code = vec![alu(AluOp::Mov, memory, Source::Reg(Reg::R1))];
    for n in 0..9 {
        code.push(load(reg(n), memory, n as i16 * 8));
    }
    for word in 0..STACK_WORDS {
        code.push(Insn::Store {
            width: Width::W64,
            base: Reg::FP,
            off: -8 * (word + 1),
            src: Source::Reg(reg(word as u32)),
        });
    }
    for choice in choices {
        let [kind, a, b, c, imm] = *choice;
        let (size, value) = (width(c), reg(a % 8));
        let known = 80 + (imm % 24) as i16;
        let stack = -8 * STACK_WORDS + (imm % (8 * STACK_WORDS as u32 - size.bytes() + 1)) as i16;
        let (base, off) = match kind % 4 {
            0 => (Reg::FP, stack),
            1 => (memory, known),
            // The lowest bits of the offset may be known.
            2 => {
                code.push(alu(AluOp::Mov, reg(8), Source::Reg(reg(b % 8))));
                let mask = [7, 6, 4, 16, 12][imm as usize % 5];
                code.push(alu(AluOp::And, reg(8), Source::Imm(mask)));
                code.push(alu(AluOp::Add, reg(8), Source::Reg(memory)));
                (reg(8), 80 + (imm >> 8 & 7) as i16)
            }
            _ => {
                let arithmetic = [a % 9, b % 8, b % 8, c, imm];
                // No accesses and no jumps.
                code.push(insn(
                    [kind / 4 % 12, arithmetic[0] % 8, arithmetic[1], c, imm],
                    0,
                    0,
                ));
                continue;
            }
        };
        let atomic = b & 64 != 0 && kind % 4 < 2;
        code.push(match b >> 7 & 7 {
            _ if atomic => {
                let (width, bytes) = if c & 1 == 0 {
                    (Width::W64, 8)
                } else {
                    (Width::W32, 4)
                };
                let fetch = b & 32 != 0;
                Insn::Atomic {
                    width,
                    op: [
                        AtomicOp::Add { fetch },
                        AtomicOp::Or { fetch },
                        AtomicOp::And { fetch },
                        AtomicOp::Xor { fetch },
                        AtomicOp::Xchg,
                        AtomicOp::CmpXchg,
                    ][(imm >> 16) as usize % 6],
                    base,
                    off: off.min(if base == Reg::FP { -8 } else { i16::MAX }) / bytes * bytes,
                    src: value,
                }
            }
            0..3 => Insn::Load {
                width: size,
                signed: b & 32 != 0 && size != Width::W64,
                dst: value,
                base,
                off,
            },
            3..6 => Insn::Store {
                width: size,
                base,
                off,
                src: Source::Reg(value),
            },
            6 => Insn::Store {
                width: size,
                base,
                off,
                src: Source::Imm(imm as i32),
            },
            _ => Insn::Load {
                width: size,
                signed: false,
                dst: value,
                base,
                off,
            },
        });
        if kind % 4 == 2 {
            // A number again, so that arithmetic may have it.
            code.push(alu(AluOp::Mov, reg(8), Source::Imm(imm as i32)));
        }
    }
    for n in 1..8 {
        code.push(alu(AluOp::Mul, Reg::R0, Source::Imm(31)));
        code.push(alu(AluOp::Add, Reg::R0, Source::Reg(reg(n))));
    }
    for word in 0..STACK_WORDS {
        code.push(load(Reg::R1, Reg::FP, -8 * (word + 1)));
        code.push(alu(AluOp::Mul, Reg::R0, Source::Imm(31)));
        code.push(alu(AluOp::Add, Reg::R0, Source::Reg(Reg::R1)));
    }
    code.push(Insn::Exit);
    Code::new(code)
}

/// A loop whose callback works on its own stack and on four words of its caller's.
fn loop_program(choices: &[[u32; 5]]) -> Code {
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
    let alu = |op, dst, src| Insn::Alu {
        wide: true,
        op,
        dst,
        src,
    };
    let copy = |dst, src| alu(AluOp::Mov, dst, Source::Reg(src));
    const CONTEXT: i16 = -32;
    let mut code = vec![copy(reg(6), Reg::R1)];
    for word in 0..4 {
        code.push(load(reg(1), reg(6), 8 * word));
        code.push(store(Reg::FP, CONTEXT + 8 * word, reg(1)));
    }
    code.push(load(reg(1), reg(6), 32));
    code.push(alu(AluOp::And, reg(1), Source::Imm(15)));
    let function = code.len();
    code.push(copy(reg(2), reg(1)));
    code.push(copy(reg(3), Reg::FP));
    code.push(alu(AluOp::Add, reg(3), Source::Imm(CONTEXT.into())));
    code.push(alu(AluOp::Mov, reg(4), Source::Imm(0)));
    code.push(Insn::Call {
        callee: Callee::Helper(HelperId::Loop as u32),
    });
    for word in 0..4 {
        code.push(load(reg(1), Reg::FP, CONTEXT + 8 * word));
        code.push(store(reg(6), 8 * word, reg(1)));
    }
    code.push(Insn::Exit);
    code[function] = Insn::LoadImm64 {
        dst: reg(2),
        value: Imm64::Func(Pc(code.len() as u32)),
    };
    code.push(store(Reg::FP, SAVED, reg(2)));
    for (dst, word) in [(3, 0), (4, 1), (5, 2), (7, 3)] {
        code.push(load(reg(dst), reg(2), 8 * word));
    }
    for (dst, src) in [(0, 1), (2, 5), (6, 7), (8, 3), (9, 4)] {
        code.push(copy(reg(dst), reg(src)));
    }
    for word in 0..STACK_WORDS {
        code.push(store(Reg::FP, -8 * (word + 1), reg(3 + word as u32)));
    }
    for (i, choice) in choices.iter().enumerate() {
        let mut choice = *choice;
        if choice[0] % 20 > 17 && i % 4 != 0 {
            choice[0] = 0;
        }
        code.push(insn(choice, (choices.len() - i) as u32, code.len() as u32));
    }
    code.push(load(reg(2), Reg::FP, SAVED));
    for (src, word) in [(3, 0), (4, 1), (5, 2), (8, 3)] {
        code.push(store(reg(2), 8 * word, reg(src)));
    }
    code.push(alu(AluOp::Mov, Reg::R0, Source::Imm(0)));
    let out = Pc(code.len() as u32 + 2);
    code.push(Insn::Jump {
        wide: true,
        op: JumpOp::Set,
        dst: reg(7),
        src: Source::Imm(7),
        target: out,
    });
    code.push(alu(AluOp::Mov, Reg::R0, Source::Imm(1)));
    code.push(Insn::Exit);
    Code::new(code)
}

/// Runs a program on memory of its own in the interpreter and, in several threads with other contents, on the soft GPU.
fn same_with_memory(code: &Code, contents: impl Fn(u64) -> Vec<u8>) -> Result<(), TestCaseError> {
    let size = contents(0).len();
    let case = Case::alone(code.clone(), Vec::new(), size as u32);
    let config = Config {
        sms: 1,
        threads: 1,
        memory: 1 << 24,
        step_limit: Some(1 << 20),
        ..Config::default()
    };
    let device = common::Device::new(&case, config);
    let warpbpf_codegen::Input::Memory { stride, .. } = case.env.input else {
        panic!("memory")
    };
    // Area 0 is the environment, 1 the printk ring.
    for thread in 0..4u64 {
        device.write(2, thread * u64::from(stride), &contents(thread));
    }
    device.launch([2, 1, 1], [2, 1, 1]);
    let ran = device.maps();
    for thread in 0..4u64 {
        let (memory, result) = interpret_memory(code, &contents(thread));
        let at = thread * u64::from(stride);
        let text = || format!("{}\n{}", warpbpf_ebpf::listing(code), case.compile().body);
        let got = &ran.areas[1][at as usize..at as usize + size];
        prop_assert_eq!(got, &memory[..], "{}", text());
        let result_at = at + (size as u64).next_multiple_of(8);
        prop_assert_eq!(ran.u64(1, result_at), result, "{}", text());
    }
    Ok(())
}

/// Memory and result.
fn interpret_memory(code: &Code, bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut memory = FlatMemory::new();
    assert!(memory.add(Region {
        base: MEMORY_BASE,
        bytes: bytes.to_vec(),
        writable: true
    }));
    for region in stack_regions() {
        assert!(memory.add(region));
    }
    let mut world = World(memory);
    let args = [MEMORY_BASE, bytes.len() as u64];
    let result = match run(code, Pc(0), &args, &mut world, Limits::default()) {
        Ok(Outcome::Return(value)) => value,
        other => panic!("{other:?}"),
    };
    let after = world.0.bytes(MEMORY_BASE, bytes.len()).expect("the memory");
    (after.to_vec(), result)
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
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Programs that run by themselves: several threads, each with other contents.
    #[test]
    fn memory_at_any_address(
        choices in proptest::collection::vec(any::<[u32; 5]>(), 1..50),
        inputs in proptest::collection::vec(operand(), 10),
        rest in proptest::collection::vec(any::<u8>(), WORK as usize),
    ) {
        let code = memory_program(&choices);
        let contents = |thread: u64| {
            let mut bytes: Vec<u8> = inputs
                .iter()
                .flat_map(|v| v.wrapping_mul(thread + 1).to_le_bytes())
                .collect();
            bytes.extend(rest.iter().map(|b| b ^ thread as u8));
            bytes
        };
        same_with_memory(&code, contents)?;
    }

    /// `bpf_loop` with any callback.
    #[test]
    fn callbacks(
        choices in proptest::collection::vec(any::<[u32; 5]>(), 1..30),
        inputs in proptest::collection::vec(operand(), 5),
    ) {
        let code = loop_program(&choices);
        same_with_memory(&code, |thread| {
            let words = inputs.iter().map(|v| v.wrapping_add(thread * 3));
            words.flat_map(u64::to_le_bytes).collect()
        })?;
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
