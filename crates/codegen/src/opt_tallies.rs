//! Keeps sums in registers: an addition to a field of a summed array, whose result nobody uses and
//! which no program reads, need not reach memory before the thread leaves. In the middle of a
//! kernel, where a place may be passed a million times, that is an addition instead of an atomic.
//!
//! The place must be the same at each pass, as far as the code alone tells: this multiprocessor's
//! copy, and a constant offset in it. What is left of the address goes with the next `opt_dce`.

use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::fragment::{Env, Tally};
use crate::ir::{BinOp, BlockData, Func, Op, Order, Rmw, Special, Term, UnOp, Value};

/// Most sums of a program that get registers of their own; any further ones are atomics.
const MOST: usize = 8;

/// Runs the pass.
pub fn run(func: &mut Func, env: &Env) {
    // A thread that the program itself ends (helper 507) does not come to the code that adds up.
    let ends = |block: &BlockData| matches!(block.term, Term::Exit);
    if !env.keep_sums || func.blocks.iter().any(ends) {
        return;
    }
    let definitions = Definitions {
        ops: func.definitions(),
    };
    let mut known: Vec<Tally> = Vec::new();
    for inst in func.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        let Op::Atomic {
            op: Rmw::Add,
            order: Order::Relaxed,
            width: width @ (Width::W32 | Width::W64),
            addr,
            off,
            value,
            guard,
            ..
        } = inst.op
        else {
            continue;
        };
        if inst.result.is_some() {
            continue;
        }
        let Some(tally) = definitions.tally(addr, off, width, env) else {
            continue;
        };
        if !known.contains(&tally) {
            if known.len() == MOST {
                continue;
            }
            known.push(tally);
        }
        inst.op = Op::Tally {
            tally,
            value,
            guard,
        };
    }
}

struct Definitions {
    ops: Vec<Option<Op>>,
}

/// What an address is the sum of.
#[derive(Default)]
struct Parts {
    slots: Vec<u32>,
    constant: u64,
    /// This multiprocessor's number, at most the first, times the second.
    shards: Vec<(u64, u64)>,
    unknown: bool,
}

impl Definitions {
    fn op(&self, value: Value) -> Option<&Op> {
        self.ops[value.index()].as_ref()
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value)? {
            Op::Const(c) => Some(*c),
            _ => None,
        }
    }

    /// The sum that an addition at this address is for, if it can be kept.
    fn tally(&self, addr: Value, off: i32, width: Width, env: &Env) -> Option<Tally> {
        let mut parts = Parts::default();
        self.collect(addr, &mut parts);
        let ([slot], [shard], false) = (&parts.slots[..], &parts.shards[..], parts.unknown) else {
            return None;
        };
        let layout = env.maps.iter().find(|m| m.slot == *slot)?.layout;
        let MapLayout::Array(layout @ ArrayLayout { summed: true, .. }) = layout else {
            return None;
        };
        let at = parts.constant.wrapping_add(i64::from(off) as u64);
        let ours = (u64::from(layout.shards) - 1, layout.shard_stride());
        (*shard == ours && at < layout.shard_stride()).then_some(Tally {
            slot: *slot,
            shards: layout.shards,
            stride: layout.shard_stride(),
            at,
            bits: width.bits(),
        })
    }

    fn collect(&self, value: Value, parts: &mut Parts) {
        match self.op(value) {
            Some(Op::Bin(BinOp::Add, a, b)) => {
                self.collect(*a, parts);
                self.collect(*b, parts);
            }
            Some(Op::Const(c)) => parts.constant = parts.constant.wrapping_add(*c),
            Some(Op::Slot(slot)) => parts.slots.push(*slot),
            _ => match self.shard(value) {
                Some(shard) => parts.shards.push(shard),
                None => parts.unknown = true,
            },
        }
    }

    /// `zext(umin(%smid, last)) * stride`.
    fn shard(&self, value: Value) -> Option<(u64, u64)> {
        let Some(Op::Bin(BinOp::Mul, wide, stride)) = self.op(value) else {
            return None;
        };
        let Some(Op::Un(UnOp::Zext, least)) = self.op(*wide) else {
            return None;
        };
        let Some(Op::Bin(BinOp::UMin, sm, last)) = self.op(*least) else {
            return None;
        };
        let is_sm = matches!(self.op(*sm), Some(Op::Special(Special::Sm)));
        is_sm.then_some((self.constant(*last)?, self.constant(*stride)?))
    }
}
