//! Keeps ptxas from reasoning about constants that enter a loop.
//!
//! Where two ways lead back to the head of a loop (a `may_goto`, or an inner loop that was merged
//! with its outer one), lanes of a warp may take different ones. ptxas 13.0 may still keep a value
//! that starts as a constant in a uniform register and change it on one of the ways for all of them
//! (seen on an H200; docs/measurements.md, "Generated programs"). And where a constant decides what
//! happens behind a loop, it tries to lead each way around the decision, and has crashed over it.
//! So what enters a head as a constant is combined with a zero that ptxas cannot see through.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{BinOp, Block, Func, Inst, Op, Ty, Value};
use crate::opaque::Zeros;

/// Runs the pass.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let defs = func.definitions();
    let is_constant = |v: Value| matches!(defs[v.index()], Some(Op::Const(_)));
    let heads = flow.loop_heads();
    let mut zeros = Zeros::default();
    for &block in &flow.order {
        let mut term = func.blocks[block.index()].term.clone();
        for edge in term.edges_mut().filter(|edge| heads[edge.to.index()]) {
            for arg in edge.args.iter_mut().filter(|arg| is_constant(**arg)) {
                let ty = func.ty(*arg);
                if let Some(zero) = zeros.of(func, ty) {
                    *arg = push(func, block, ty, Op::Bin(BinOp::Or, *arg, zero));
                }
            }
        }
        func.blocks[block.index()].term = term;
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
