//! The interpreter beyond the conformance suite: traps, calls, callbacks, limits.

use proptest::prelude::*;
use warpbpf_ebpf::interp::{MAX_FRAMES, RunError, STACK_TOP, stack_regions};
use warpbpf_ebpf::*;

use crate::any_program;

const DATA: u64 = 0x1000;
const READ_ONLY: u64 = 0x2000;

fn memory() -> FlatMemory {
    let mut memory = FlatMemory::new();
    stack_regions().for_each(|region| assert!(memory.add(region)));
    assert!(memory.add(Region {
        base: DATA,
        bytes: (1..=16).collect(),
        writable: true
    }));
    assert!(memory.add(Region {
        base: READ_ONLY,
        bytes: vec![0xff; 8],
        writable: false
    }));
    memory
}

/// Runs `text` with `r1` = [`DATA`] and `r2` = [`READ_ONLY`].
fn outcome(text: &str) -> Outcome {
    let code = assemble(text).expect("it assembles");
    run(
        &code,
        Pc(0),
        &[DATA, READ_ONLY],
        &mut memory(),
        Limits {
            fuel: 10_000,
            may_goto: 100,
        },
    )
    .expect("it starts")
}

fn value(text: &str) -> u64 {
    match outcome(text) {
        Outcome::Return(value) => value,
        Outcome::Trap(trap) => panic!("{trap}"),
    }
}

fn trap(text: &str) -> String {
    match outcome(text) {
        Outcome::Return(value) => panic!("it returned {value:#x}"),
        Outcome::Trap(trap) => trap.to_string(),
    }
}

#[test]
fn traps_are_values() {
    assert_eq!(
        trap("r0 = *(u64 *)(r1 + 9)\nexit"),
        "pc0: load of 8 bytes at 0x1009, where no memory is"
    );
    assert_eq!(
        trap("r0 = 0\n*(u8 *)(r1 - 1) = 3\nexit"),
        "pc1: store of 1 bytes at 0xfff, where no memory is"
    );
    assert_eq!(
        trap("*(u32 *)(r2 + 4) = 3\nexit"),
        "pc0: store of 4 bytes at 0x2004, which is read-only"
    );
    assert_eq!(
        trap("lock *(u32 *)(r1 + 2) += w1\nexit"),
        "pc0: atomic of 4 bytes at 0x1002, which is not aligned to its size"
    );
    assert_eq!(
        trap("a: goto a\nexit"),
        "pc0: the limit of executed instructions is used up"
    );
    assert_eq!(
        trap("r0 = 0"),
        "pc1: execution runs past the end of the program"
    );
    assert_eq!(
        trap("r10 += 8\nexit"),
        "pc0: the frame pointer r10 is read-only"
    );
    assert_eq!(trap("call 1\nexit"), "pc0: there is no helper 1");
    assert_eq!(
        trap("call kfunc[12]\nexit"),
        "pc0: there is no kernel function 12"
    );
    assert_eq!(trap("r1 = map[3]\nexit"), "pc0: there is no map 3");
    assert_eq!(trap("r1 = map[3][0] + 4\nexit"), "pc0: there is no map 3");
    assert_eq!(
        trap("r1 = btf_id[9]\nexit"),
        "pc0: there is no kernel variable with BTF id 9"
    );
    assert_eq!(
        trap("callx r1\nexit"),
        "pc0: call through a register to 0x1000"
    );
    assert_eq!(
        trap("r0 = *(u8 *)skb[4]\nexit"),
        "pc0: legacy packet access"
    );
    assert_eq!(trap("f: call f\nexit"), "pc0: more than 8 nested calls");
}

#[test]
fn a_run_that_cannot_start() {
    let code = assemble("exit").expect("it assembles");
    let start = |entry, args: &[u64]| run(&code, entry, args, &mut memory(), Limits::default());
    assert_eq!(
        start(Pc(1), &[]),
        Err(RunError::NoEntry {
            entry: Pc(1),
            len: 1
        })
    );
    assert_eq!(
        start(Pc(1), &[]).unwrap_err().to_string(),
        "entry pc1 is not in the program of 1 instructions"
    );
    assert_eq!(
        start(Pc(0), &[0; 6]).unwrap_err().to_string(),
        "6 arguments were given, a program takes at most 5"
    );
    assert_eq!(start(Pc(0), &[1; 5]), Ok(Outcome::Return(0)));
}

#[test]
fn each_frame_has_its_own_stack() {
    let nested = "r1 = 7
        *(u64 *)(r10 - 8) = r1
        r6 = r10
        call inner
        r1 = *(u64 *)(r10 - 8)
        r0 += r1
        r6 -= r10
        r0 += r6
        exit
      inner:
        *(u64 *)(r10 - 512) = 1
        r6 = 5
        r0 = *(u64 *)(r10 - 512)
        exit";
    assert_eq!(value(nested), 8);
    let below = format!(
        "pc0: store of 1 bytes at {:#x}, where no memory is",
        STACK_TOP - 513
    );
    assert_eq!(trap("*(u8 *)(r10 - 513) = 1\nexit"), below);
    assert_eq!(
        trap("*(u8 *)(r10 + 0) = 1\nexit"),
        format!("pc0: store of 1 bytes at {STACK_TOP:#x}, where no memory is")
    );
    // Seven calls deep is allowed, and each level returns to its caller.
    let mut text = String::new();
    for depth in 1..MAX_FRAMES {
        text.push_str(&format!("call f{depth}\nr0 += 1\nexit\nf{depth}:\n"));
    }
    text.push_str("r0 = 0\nexit");
    assert_eq!(value(&text), 7);
}

#[test]
fn may_goto_counts_per_frame() {
    let count = "r0 = 0
      again: r0 += 1
        may_goto end
        goto again
      end: exit";
    assert_eq!(value(count), 101);
    let nested = "call count
        r6 = r0
        call count
        r0 += r6
        exit
      count: r0 = 0
      again: r0 += 1
        may_goto end
        goto again
      end: exit";
    assert_eq!(value(nested), 202);
}

#[test]
fn atomics() {
    let prepared = |text: &str| {
        value(&format!(
            "r3 = 0x1122334455667788 ll\n*(u64 *)(r1 + 0) = r3\n{text}\nexit"
        ))
    };
    assert_eq!(
        prepared("r2 = 0x100\nlock *(u64 *)(r1 + 0) += r2\nr0 = *(u64 *)(r1 + 0)"),
        0x1122_3344_5566_7888
    );
    assert_eq!(
        prepared("r2 = -1\nw2 = atomic_fetch_and((u32 *)(r1 + 0), w2)\nr0 = r2"),
        0x5566_7788
    );
    assert_eq!(
        prepared("w2 = -1\nlock *(u32 *)(r1 + 0) += w2\nr0 = *(u64 *)(r1 + 0)"),
        0x1122_3344_5566_7787
    );
    assert_eq!(
        prepared("r2 = 5\nr2 = xchg_64(r1 + 0, r2)\nr0 = *(u64 *)(r1 + 0)\nr0 ^= r2"),
        0x1122_3344_5566_778d
    );
    assert_eq!(
        prepared(
            "r0 = -1\nr0 <<= 32\nw3 = 0x55667788\nr0 |= r3\nr2 = 9\nw0 = cmpxchg32_32(r1 + 0, w0, w2)\nr3 = *(u32 *)(r1 + 0)\nr0 += r3"
        ),
        0x5566_7788 + 9
    );
    assert_eq!(prepared("r0 = load_acquire((u16 *)(r1 + 2))"), 0x5566);
    assert_eq!(
        prepared("r2 = 0xabcd\nstore_release((u8 *)(r1 + 7), r2)\nr0 = *(u64 *)(r1 + 0)"),
        0xcd22_3344_5566_7788
    );
}

#[test]
fn edges_of_arithmetic() {
    use warpbpf_ebpf::alu::{alu, compare, end, neg, sign_extend};
    let min = i64::MIN as u64;
    assert_eq!(alu(true, AluOp::SDiv, min, u64::MAX), min);
    assert_eq!(alu(true, AluOp::SMod, min, u64::MAX), 0);
    assert_eq!(
        alu(false, AluOp::SDiv, 0x8000_0000, 0xffff_ffff),
        0x8000_0000
    );
    assert_eq!(alu(false, AluOp::SMod, u64::MAX, 0), 0xffff_ffff);
    assert_eq!(alu(true, AluOp::Mod, 9, 0), 9);
    assert_eq!(alu(true, AluOp::Div, 9, 0), 0);
    assert_eq!(alu(true, AluOp::Lsh, 1, 65), 2);
    assert_eq!(alu(false, AluOp::Lsh, 1, 33), 2);
    assert_eq!(alu(false, AluOp::Arsh, 0x8000_0000, 31), 0xffff_ffff);
    assert_eq!(alu(true, AluOp::Arsh, min, 63), u64::MAX);
    assert_eq!(neg(false, 1), 0xffff_ffff);
    assert_eq!(sign_extend(false, 8, 0xff80), 0xffff_ff80);
    assert_eq!(sign_extend(true, 32, 0x8000_0000), 0xffff_ffff_8000_0000);
    assert_eq!(end(EndKind::ToBe, 16, 0x1234_5678), 0x7856);
    assert_eq!(end(EndKind::ToLe, 32, u64::MAX), 0xffff_ffff);
    assert!(
        compare(false, JumpOp::SLt, 0xffff_ffff, 0) && !compare(true, JumpOp::SLt, 0xffff_ffff, 0)
    );
    assert!(
        compare(false, JumpOp::Eq, 1 << 32, 0) && !compare(false, JumpOp::Set, 1 << 32, u64::MAX)
    );
}

#[test]
fn regions_do_not_overlap() {
    let mut memory = memory();
    let region = |base, len| Region {
        base,
        bytes: vec![0; len],
        writable: true,
    };
    assert!(!memory.add(region(DATA + 15, 4)));
    assert!(!memory.add(region(DATA - 3, 4)));
    assert!(!memory.add(region(u64::MAX, 2)));
    assert!(memory.add(region(DATA + 16, 4)));
    assert_eq!(memory.bytes(DATA + 12, 4), Some(&[13, 14, 15, 16][..]));
    assert_eq!(memory.bytes(DATA + 12, 5), None);
    assert_eq!(memory.bytes(DATA + 20, 1), None);
    memory.bytes_mut(READ_ONLY, 1).expect("the host may write")[0] = 3;
    assert_eq!(memory.load(READ_ONLY, Width::W16), Ok(0xff03));
}

/// A machine with `bpf_loop` (181) and one map.
struct Looper(FlatMemory);

impl Memory for Looper {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.0.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.0.store(address, width, value)
    }
}

impl Machine for Looper {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        if id != 181 {
            return Err(TrapKind::Helper {
                id,
                reason: "is not in this test",
            });
        }
        bpf_loop(self, args, callback)
    }
    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        Ok(DATA + u64::from(map) * 8 + u64::from(offset))
    }
}

fn looped(text: &str) -> Outcome {
    let code = assemble(text).expect("it assembles");
    run(
        &code,
        Pc(0),
        &[],
        &mut Looper(memory()),
        Limits {
            fuel: 1_000,
            may_goto: 0,
        },
    )
    .expect("it starts")
}

#[test]
fn callbacks_run_in_frames_of_their_own() {
    let sum = |body: &str| {
        format!(
            "*(u64 *)(r10 - 8) = 0\nr3 = r10\nr3 += -8\nr1 = 10\nr2 = subprog[body]\nr4 = 0\nr6 = 1\ncall 181
             r1 = *(u64 *)(r10 - 8)\nr0 *= 1000\nr0 += r1\nr0 *= r6\nexit\nbody:\n{body}"
        )
    };
    let add =
        "r6 = 77\n*(u64 *)(r10 - 8) = r1\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\n";
    assert_eq!(
        looped(&sum(&format!("{add}r0 = 0\nexit"))),
        Outcome::Return(10_045)
    );
    assert_eq!(
        looped(&sum(&format!("{add}r0 = r1\nr0 >>= 2\nexit"))),
        Outcome::Return(5_010)
    );
    // The trap names the instruction inside the callback.
    let kind = TrapKind::OutOfBounds {
        address: 0,
        width: Width::W8,
        write: false,
    };
    assert_eq!(
        looped(&sum("r0 = 0\nr0 = *(u8 *)(r1 + 0)\nexit")),
        Outcome::Trap(Trap { pc: Pc(14), kind })
    );
    assert_eq!(
        looped("r1 = 1\nr2 = 5\ncall 181\nexit"),
        Outcome::Trap(Trap {
            pc: Pc(2),
            kind: TrapKind::NotAFunction { value: 5 }
        })
    );
    let Outcome::Trap(deep) = looped("f: r1 = 1\nr2 = subprog[f]\ncall 181\nexit") else {
        panic!("it recurses")
    };
    assert_eq!(
        deep,
        Trap {
            pc: Pc(2),
            kind: TrapKind::CallDepth
        }
    );
    let Outcome::Trap(other) = looped("call 7\nexit") else {
        panic!("there is no helper 7")
    };
    assert_eq!(other.to_string(), "pc0: helper 7: is not in this test");
    assert_eq!(
        looped("r1 = map[1][0] + 3\nr0 = *(u8 *)(r1 + 0)\nexit"),
        Outcome::Return(12)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_program_ends(program in any_program()) {
        let code = decode(&program).expect("it is well formed");
        let limits = Limits { fuel: 2_000, may_goto: 20 };
        let first = run(&code, Pc(0), &[DATA, READ_ONLY], &mut Looper(memory()), limits);
        let second = run(&code, Pc(0), &[DATA, READ_ONLY], &mut Looper(memory()), limits);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn wide_and_narrow_arithmetic_agree_on_small_numbers(x in 0u64..0x1000, y in 1u64..12) {
        for op in [AluOp::Add, AluOp::Mul, AluOp::Div, AluOp::SDiv, AluOp::Or, AluOp::And, AluOp::Lsh, AluOp::Rsh, AluOp::Mod, AluOp::SMod, AluOp::Xor, AluOp::Mov, AluOp::Arsh] {
            prop_assert_eq!(alu::alu(true, op, x, y), alu::alu(false, op, x, y), "{:?}", op);
        }
    }
}

#[test]
fn bpf_loop_calls_back_until_told_to_stop() {
    let sum = |count: &str, stop: u32, flags: u32| {
        let text = format!(
            "*(u64 *)(r10 - 8) = 0\nr1 = {count} ll\nr2 = subprog[f]\nr3 = r10\nr3 += -8\nr4 = {flags}\ncall 181\nr1 = *(u64 *)(r10 - 8)\nr1 <<= 32\nr0 |= r1\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nif r1 != {stop} goto out\nr0 = 1\nout:\nexit"
        );
        let code = assemble(&text).expect("it assembles");
        let mut machine = Looper(memory());
        run(&code, Pc(0), &[], &mut machine, Limits::default()).expect("it starts")
    };
    assert_eq!(sum("5", 99, 0), Outcome::Return(10 << 32 | 5));
    assert_eq!(sum("5", 2, 0), Outcome::Return(3 << 32 | 3));
    assert_eq!(sum("0", 2, 0), Outcome::Return(0));
    // 32 bits count.
    assert_eq!(sum("0x700000003", 99, 0), Outcome::Return(3 << 32 | 3));
    assert_eq!(sum("5", 99, 1), Outcome::Return(-22i64 as u64));
    assert_eq!(sum("8388609", 99, 0), Outcome::Return(-7i64 as u64));
}

#[test]
fn iterators_count_and_end() {
    let sum = |start: i32, end: i32| {
        value(&format!(
            "r6 = 0\nr7 = 0\nr2 = {start}\nr3 = {end}\nr1 = r10\nr1 += -8\ncall kfunc[1]\nr8 = r0\nagain:\nr1 = r10\nr1 += -8\ncall kfunc[2]\nif r0 == 0 goto done\nr1 = *(s32 *)(r0 + 0)\nr6 += r1\nr7 += 1\ngoto again\ndone:\nr1 = r10\nr1 += -8\ncall kfunc[2]\nr7 += r0\nr1 = r10\nr1 += -8\ncall kfunc[3]\nr7 <<= 16\nr7 += r6\nr7 <<= 16\nr8 &= 0xffff\nr7 |= r8\nr0 = r7\nexit"
        ))
    };
    assert_eq!(sum(0, 5), (5 << 16 | 10) << 16);
    assert_eq!(sum(-2, 4), (6 << 16 | 3) << 16);
    assert_eq!(sum(3, 3), 0);
    assert_eq!(sum(4, 3), 0xffea);
    assert_eq!(sum(0, 8_388_609), 0xfff9);
    assert_eq!(sum(i32::MIN, i32::MIN), 0);
    // Pointers that are none trap as any access does.
    assert_eq!(
        trap("r1 = 8\nr2 = 0\nr3 = 1\ncall kfunc[1]\nexit"),
        "pc3: store of 4 bytes at 0x8, where no memory is"
    );
}
