//! Marks additions whose address and addend are the same in all lanes that run together: one lane then adds for all,
//! which divides the traffic on a contended line by the number of lanes.

use crate::ir::{Func, Op, Order, Rmw};
use crate::opt_uniform::Uniform;

/// Runs the pass. Only for code that several lanes run together.
pub fn run(func: &mut Func) {
    let uniform = Uniform::new(func);
    for block in &mut func.blocks {
        for inst in &mut block.insts {
            if let Op::Atomic {
                op: Rmw::Add,
                order: Order::Relaxed,
                addr,
                value,
                compare: None,
                guard: None,
                shared,
                ..
            } = &mut inst.op
                && inst.result.is_none()
            {
                *shared = uniform.is_uniform(*addr) && uniform.is_uniform(*value);
            }
        }
    }
}
