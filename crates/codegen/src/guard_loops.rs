//! Keeps ptxas from taking a loop's counter for the same in all lanes where it is not.
//!
//! Where two ways lead back to the head of a loop (a `may_goto`, or an inner loop that was merged with its outer one), lanes of a
//! warp may take different ones. ptxas 13.0 may still keep a value that starts as a constant in a uniform register and change
//! it on one of the ways for all of them (seen on an H200; docs/measurements.md, "Generated programs"). So what enters such
//! a head as a constant is combined with a zero that ptxas cannot see through. Loops with one way back stay as they are:
//! the zero would cost them their unrolling.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{BinOp, Block, Func, Inst, Op, Special, Ty, UnOp, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let defs = func.definitions();
    let is_constant = |v: Value| matches!(defs[v.index()], Some(Op::Const(_)));
    let ways_back = |head: Block| {
        let back = |pred: &Block| flow.dominators.dominates(head, *pred);
        flow.preds(head).filter(back).count()
    };
    let heads: Vec<bool> = (0..func.blocks.len())
        .map(|head| ways_back(Block::new(head)) > 1)
        .collect();
    let mut zero = None;
    for &block in &flow.order {
        let mut term = func.blocks[block.index()].term.clone();
        for edge in term.edges_mut().filter(|edge| heads[edge.to.index()]) {
            for arg in edge.args.iter_mut().filter(|arg| is_constant(**arg)) {
                let zeros = *zero.get_or_insert_with(|| Zeros::make(func));
                let Some(zero) = zeros.of(func.ty(*arg)) else {
                    continue;
                };
                *arg = push(func, block, func.ty(*arg), Op::Bin(BinOp::Or, *arg, zero));
            }
        }
        func.blocks[block.index()].term = term;
    }
}

/// A zero of each width, in the entry block.
#[derive(Clone, Copy)]
struct Zeros {
    narrow: Value,
    wide: Value,
}

impl Zeros {
    /// A lane is not among those below it: `%lanemask_eq & %lanemask_lt` (PTX ISA, "Special Registers").
    fn make(func: &mut Func) -> Zeros {
        let at = Block::ENTRY;
        let own = push(func, at, Ty::B32, Op::Special(Special::LanemaskEq));
        let below = push(func, at, Ty::B32, Op::Special(Special::LanemaskLt));
        let narrow = push(func, at, Ty::B32, Op::Bin(BinOp::And, own, below));
        let wide = push(func, at, Ty::B64, Op::Un(UnOp::Zext, narrow));
        Zeros { narrow, wide }
    }

    fn of(self, ty: Ty) -> Option<Value> {
        match ty {
            Ty::B32 => Some(self.narrow),
            Ty::B64 => Some(self.wide),
            Ty::Pred => None,
        }
    }
}

fn push(func: &mut Func, block: Block, ty: Ty, op: Op) -> Value {
    let result = func.add_value(ty);
    func.blocks[block.index()].insts.push(Inst {
        result: Some(result),
        op,
    });
    result
}
