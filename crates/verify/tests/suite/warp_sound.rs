//! The warp half against what lanes really do: random programs, run lane by lane, in which uniform
//! values must be equal and instructions said to be reached together must be reached by all.

use std::collections::BTreeMap;

use crate::common;
use proptest::prelude::*;
use warpbpf_ebpf::{AluOp, Code, Insn, JumpOp, Pc, Reg, Source, Width};
use warpbpf_verify::verify;

/// One instruction of a program's body, before its numbers are known.
#[derive(Clone, Debug)]
enum Draft {
    Const(usize, i32),
    Copy(usize, usize),
    Add(usize, usize),
    And(usize, i32),
    Spill(usize, usize),
    Fill(usize, usize),
    /// Skips so many of the following instructions.
    Skip(usize, i32, usize),
}

/// Registers that the body may use, and stack slots.
const REGS: usize = 5;
const SLOTS: usize = 2;

fn draft() -> impl Strategy<Value = Draft> {
    let reg = 0..REGS;
    prop_oneof![
        (reg.clone(), 0..4i32).prop_map(|(d, x)| Draft::Const(d, x)),
        (reg.clone(), reg.clone()).prop_map(|(d, s)| Draft::Copy(d, s)),
        (reg.clone(), reg.clone()).prop_map(|(d, s)| Draft::Add(d, s)),
        (reg.clone(), 1..8i32).prop_map(|(d, x)| Draft::And(d, x)),
        (0..SLOTS, reg.clone()).prop_map(|(at, s)| Draft::Spill(at, s)),
        (reg.clone(), 0..SLOTS).prop_map(|(d, at)| Draft::Fill(d, at)),
        (reg, 0..4i32, 1..6usize).prop_map(|(d, x, n)| Draft::Skip(d, x, n)),
    ]
}

/// `r0` to `r4` are played with, of which `r0` is the block's number at first and `r1` the lane;
/// `r6` counts the rounds of a loop around the body, up to a constant or to what `r7` is: the
/// lane's last two bits, or the block's.
fn program(body: &[Draft], rounds: i32) -> String {
    let mut text = String::from(
        "r0 = *(u32 *)(r1 + 0)\nr7 = r0\nr8 = *(u32 *)(r1 + 48)\nr2 = 0\nr3 = 1\nr4 = 2\n*(u64 *)(r10 - 8) = 0\n*(u64 *)(r10 - 16) = 0\nr1 = r8\n",
    );
    if rounds == 0 {
        text += "r7 = r8\n";
    }
    text += "r7 &= 3\nr6 = 0\nagain:\n";
    for (i, insn) in body.iter().enumerate() {
        let slot = |at: usize| 8 * (at + 1);
        text += &match insn {
            Draft::Const(d, x) => format!("r{d} = {x}\n"),
            Draft::Copy(d, s) => format!("r{d} = r{s}\n"),
            Draft::Add(d, s) => format!("r{d} += r{s}\n"),
            Draft::And(d, x) => format!("r{d} &= {x}\n"),
            Draft::Spill(at, s) => format!("*(u64 *)(r10 - {}) = r{s}\n", slot(*at)),
            Draft::Fill(d, at) => format!("r{d} = *(u64 *)(r10 - {})\n", slot(*at)),
            Draft::Skip(d, x, n) => {
                format!("if r{d} == {x} goto +{}\n", (*n).min(body.len() - i - 1))
            }
        };
    }
    text += "r6 += 1\n";
    text += &if rounds > 1 {
        format!("if r6 < {rounds} goto again\n")
    } else {
        "if r6 < r7 goto again\n".to_owned()
    };
    text + "r0 = 0\nexit"
}

/// What a lane does: by instruction and round, the value it defines there, or whether it jumps.
fn run(code: &Code, block: u64, lane: u64) -> BTreeMap<(Pc, u32), u64> {
    let mut regs = [0u64; 11];
    let mut stack = [0u64; SLOTS];
    let (mut pc, mut round) = (Pc(0), 0);
    let mut trace = BTreeMap::new();
    loop {
        let mut next = pc.next();
        let value = |regs: &[u64; 11], src: Source| match src {
            Source::Reg(reg) => regs[reg.index()],
            Source::Imm(x) => i64::from(x) as u64,
        };
        let slot = |off: i16| (-off / 8 - 1) as usize;
        let told = match *code.at(pc) {
            Insn::Alu { op, dst, src, .. } => {
                let right = value(&regs, src);
                let dst = &mut regs[dst.index()];
                *dst = match op {
                    AluOp::Mov => right,
                    AluOp::Add => dst.wrapping_add(right),
                    AluOp::And => *dst & right,
                    other => panic!("{other:?} is not generated"),
                };
                *dst
            }
            Insn::Load {
                base: Reg::FP,
                off,
                dst,
                ..
            } => {
                regs[dst.index()] = stack[slot(off)];
                regs[dst.index()]
            }
            Insn::Load { off, dst, .. } => {
                regs[dst.index()] = if off == 0 { block } else { lane };
                regs[dst.index()]
            }
            Insn::Store {
                width: Width::W64,
                off,
                src,
                ..
            } => {
                stack[slot(off)] = value(&regs, src);
                0
            }
            Insn::Jump {
                op,
                dst,
                src,
                target,
                ..
            } => {
                let (a, b) = (regs[dst.index()], value(&regs, src));
                let taken = match op {
                    JumpOp::Eq => a == b,
                    JumpOp::Lt => a < b,
                    other => panic!("{other:?} is not generated"),
                };
                if taken {
                    next = target;
                }
                u64::from(taken)
            }
            Insn::Exit => {
                trace.insert((pc, round), 0);
                return trace;
            }
            other => panic!("{other:?} is not generated"),
        };
        trace.insert((pc, round), told);
        if next < pc {
            round += 1;
        }
        pc = next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lanes_do_what_is_said_of_them(
        body in prop::collection::vec(draft(), 1..14),
        rounds in 0..4i32,
        block in 0..5u64,
    ) {
        let code = common::code(&program(&body, rounds));
        let verified = match verify(&code, &[], &common::platform()) {
            Ok(verified) => verified,
            Err(rejection) => panic!("{}", rejection.render()),
        };
        let lanes: Vec<_> = (0..6).map(|lane| run(&code, block, lane)).collect();
        for pc in (0..code.insns().len() as u32).map(Pc) {
            // Both sides of a jump to the next instruction are the same side.
            if matches!(code.at(pc), Insn::Jump { target, .. } if *target == pc.next()) {
                continue;
            }
            let fact = verified.warp().at(0, pc);
            // Behind the loop and before it there is one round, whatever number it has.
            let in_loop = |trace: &BTreeMap<(Pc, u32), u64>| {
                let found: Vec<_> = trace.iter().filter(|((at, _), _)| *at == pc).map(|((_, r), v)| (*r, *v)).collect();
                match found.as_slice() {
                    [(_, value)] if pc.index() + 2 >= code.insns().len() => vec![(0, *value)],
                    _ => found,
                }
            };
            let told: Vec<_> = lanes.iter().map(in_loop).collect();
            if told.iter().any(|t| !t.is_empty()) {
                prop_assert!(fact.reached, "{pc:?} of\n{}", program(&body, rounds));
            }
            if fact.together {
                let rounds_of: Vec<Vec<u32>> = told.iter().map(|t| t.iter().map(|(r, _)| *r).collect()).collect();
                prop_assert!(rounds_of.windows(2).all(|w| w[0] == w[1]), "{pc:?} is not reached together in\n{}", program(&body, rounds));
            }
            if fact.uniform {
                let mut by_round = BTreeMap::new();
                for (round, value) in told.iter().flatten() {
                    let first = *by_round.entry(*round).or_insert(*value);
                    prop_assert_eq!(first, *value, "{:?} is not uniform in\n{}", pc, program(&body, rounds));
                }
            }
        }
    }
}
