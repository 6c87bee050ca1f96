//! Adds for several lanes at once: an addition of the same number at the same address in all of
//! them becomes one of the lowest lane, for each lane that is there.
//!
//! ptxas does so by itself where it sees that the address is the same in a warp. It does not in
//! functions for machine code, which read addresses from memory: there 32 additions to one address
//! took an H200 eight times as long as the kernel with them.
//!
//! What an instruction does is mostly the same in all of its lanes, such as the bytes that they
//! access: there the lanes find out who has the same number, unless they may not wait for each
//! other.

use warpbpf_abi::context::Capture;
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::fragment::{Env, SlotSpace};
use crate::ir::{BinOp, Cond, Func, Inst, LaneOp, Op, Order, Rmw, Special, Ty, UnOp, Value};

/// Runs the pass.
pub fn run(func: &mut Func, env: &Env) {
    if !matches!(env.slots, SlotSpace::Table { .. }) {
        return;
    }
    let alike = alike(func, |_| false);
    let mostly = self::alike(func, is_of_the_instruction);
    for block in 0..func.blocks.len() {
        let insts = std::mem::take(&mut func.blocks[block].insts);
        let mut new = Vec::with_capacity(insts.len());
        for inst in insts {
            match added(&inst).filter(|(addr, _)| alike[addr.index()]) {
                Some((_, value)) if alike[value.index()] => add_once(func, inst, false, &mut new),
                Some((_, value)) if env.meets && mostly[value.index()] => {
                    add_once(func, inst, true, &mut new)
                }
                _ => new.push(inst),
            }
        }
        func.blocks[block].insts = new;
    }
}

/// Lanes that execute one instruction have it in common, but for copies that read less, and rows of
/// matrices.
fn is_of_the_instruction(capture: Capture) -> bool {
    matches!(
        capture,
        Capture::Bytes
            | Capture::ValueBytes
            | Capture::Kind
            | Capture::Space
            | Capture::BarrierKind
    )
}

/// Values that all lanes of a warp have in common; `captured` says which of those that the place
/// gives.
fn alike(func: &Func, captured: fn(Capture) -> bool) -> Vec<bool> {
    let definitions = func.definitions();
    let mut alike = vec![false; definitions.len()];
    // A definition comes before its uses in its block, and blocks come after those that lead to
    // them; what this order misses is taken for different.
    for block in &func.blocks {
        for inst in &block.insts {
            if let Some(result) = inst.result {
                alike[result.index()] = is_alike(&inst.op, &alike, captured);
            }
        }
    }
    alike
}

fn is_alike(op: &Op, alike: &[bool], captured: fn(Capture) -> bool) -> bool {
    let all = |values: &[Value]| values.iter().all(|v| alike[v.index()]);
    match op {
        Op::Const(_) | Op::Slot(_) => true,
        Op::Special(Special::Captured(capture)) => captured(*capture),
        // A warp's lanes are on one multiprocessor.
        Op::Special(special) => matches!(
            special,
            Special::Sm
                | Special::WarpSlot
                | Special::Ctaid(_)
                | Special::Ntid(_)
                | Special::Nctaid(_)
                | Special::GridId
                | Special::DynamicShared
        ),
        Op::Bin(_, a, b) | Op::Cmp(_, a, b) | Op::Pack(a, b) => all(&[*a, *b]),
        Op::Un(_, a) | Op::Popc(a) => all(&[*a]),
        Op::Select(a, b, c) => all(&[*a, *b, *c]),
        _ => false,
    }
}

/// Where an addition that can be made for others is made, and what is added.
fn added(inst: &Inst) -> Option<(Value, Value)> {
    let Op::Atomic {
        op: Rmw::Add,
        order: Order::Relaxed,
        width: Width::W32 | Width::W64,
        addr,
        value,
        guard: None,
        ..
    } = inst.op
    else {
        return None;
    };
    inst.result.is_none().then_some((addr, value))
}

/// The lanes that are here are those that the addition is made for, however the warp came apart;
/// where `they_ask`, those among them with the same number.
fn add_once(func: &mut Func, mut inst: Inst, they_ask: bool, new: &mut Vec<Inst>) {
    let mut push = |ty: Ty, op: Op| {
        let result = func.add_value(ty);
        new.push(Inst {
            result: Some(result),
            op,
        });
        result
    };
    let here = Op::Lanes {
        op: LaneOp::Active,
        args: Vec::new(),
    };
    let mut here = push(Ty::B32, here);
    if let (true, Op::Atomic { width, value, .. }) = (they_ask, &inst.op) {
        let value = match width {
            Width::W64 => *value,
            _ => push(Ty::B64, Op::Un(UnOp::Zext, *value)),
        };
        let same = Op::Lanes {
            op: LaneOp::Match,
            args: vec![here, value],
        };
        here = push(Ty::B32, same);
    }
    let lower = push(Ty::B32, Op::Special(Special::LanemaskLt));
    let lower = push(Ty::B32, Op::Bin(BinOp::And, lower, here));
    let none = push(Ty::B32, Op::Const(0));
    let first = push(Ty::Pred, Op::Cmp(Cond::Eq, lower, none));
    let lanes = push(Ty::B32, Op::Popc(here));
    if let Op::Atomic {
        width,
        value,
        guard,
        ..
    } = &mut inst.op
    {
        let (ty, lanes) = match width {
            Width::W64 => (Ty::B64, push(Ty::B64, Op::Un(UnOp::Zext, lanes))),
            _ => (Ty::B32, lanes),
        };
        *value = push(ty, Op::Bin(BinOp::Mul, *value, lanes));
        *guard = Some(first);
    }
    new.push(inst);
}
