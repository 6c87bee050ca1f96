//! Keeps ptxas from multiplying constants of a chain of products out.
//!
//! ptxas 13.0 makes `x * (c * d)` of `x * c * d`, with additions in between too. Where `c * d` is 0
//! in the width of the product (an even number often enough), it drops the factor instead of the
//! value, so that `x` is left (seen on an H200 and in the machine code; docs/measurements.md,
//! "Generated programs"). Shifts it leaves alone, so a multiplication by a power of two becomes
//! one; what is multiplied again after that gets a factor that ptxas does not know. Loops are not
//! unrolled (`emit`), so a chain ends where a value goes round.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{BinOp, Func, Inst, Op, Ty, UnOp, Value};
use crate::opaque::Zeros;

/// Runs the pass.
pub fn run(func: &mut Func) {
    let defs = func.definitions();
    let constant = |v: Value| match defs.get(v.index()) {
        Some(Some(Op::Const(c))) => Some(*c),
        _ => None,
    };
    // Values that are a product with a constant, or a sum of such.
    let mut product = vec![false; func.types.len()];
    let mut zeros = Zeros::default();
    for block in Flow::new(func).order {
        let insts = std::mem::take(&mut func.blocks[block.index()].insts);
        let mut out = Vec::with_capacity(insts.len());
        for mut inst in insts {
            let Some(result) = inst.result else {
                out.push(inst);
                continue;
            };
            let is_product = |v: Value| product.get(v.index()).copied().unwrap_or(false);
            let mut push = |func: &mut Func, ty: Ty, op: Op| {
                let v = func.add_value(ty);
                out.push(Inst {
                    result: Some(v),
                    op,
                });
                v
            };
            let known = match &inst.op {
                Op::Bin(BinOp::Mul, a, b) => constant(*b).map(|c| (*a, *b, c)),
                _ => None,
            };
            let again = known.is_some_and(|(a, ..)| is_product(a));
            let is_one = match inst.op {
                Op::Bin(BinOp::Mul, ..) => known.is_some(),
                Op::Bin(BinOp::Shl, _, by) => constant(by).is_some(),
                Op::Bin(BinOp::Add | BinOp::Sub, a, b) => a == b || is_product(a) || is_product(b),
                Op::Un(UnOp::Trunc | UnOp::Zext, a) => is_product(a),
                _ => false,
            };
            product[result.index()] = is_one;
            if let Some((a, b, c)) = known {
                let ty = func.ty(a);
                if c.is_power_of_two() {
                    let by = push(func, Ty::B32, Op::Const(c.trailing_zeros().into()));
                    inst.op = Op::Bin(BinOp::Shl, a, by);
                } else if again && let Some(zero) = zeros.of(func, ty) {
                    let hidden = push(func, ty, Op::Bin(BinOp::Or, b, zero));
                    inst.op = Op::Bin(BinOp::Mul, a, hidden);
                }
            }
            out.push(inst);
        }
        // The zeros may have been put at the start of this very block.
        func.blocks[block.index()].insts.append(&mut out);
    }
}
