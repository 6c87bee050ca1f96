//! Which values are the same in all lanes that run together. "Together" is whatever the hardware makes of it: nothing
//! here assumes that lanes meet again after a branch, so a value that lanes brought from different paths, or from
//! different turns of a loop, counts as varying.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{Func, Mem, Op, Term, Value};

/// The answer for each value.
pub struct Uniform {
    varying: Vec<bool>,
}

impl Uniform {
    /// Analyses `func`.
    pub fn new(func: &Func) -> Uniform {
        let flow = Flow::new(func);
        let mut uniform = Uniform {
            varying: vec![false; func.types.len()],
        };
        // Optimistic: values only ever become varying, so this ends.
        loop {
            let diverged = flow
                .order
                .iter()
                .any(|b| match &func.blocks[b.index()].term {
                    Term::Branch { cond, .. } => uniform.varying[cond.index()],
                    Term::Jump(_) | Term::Ret | Term::Exit => false,
                });
            let mut changed = false;
            for &block in &flow.order {
                let data = &func.blocks[block.index()];
                let loops = flow.preds(block).any(|pred| flow.is_back_edge(pred, block));
                for (i, &param) in data.params.iter().enumerate() {
                    let mut incoming = flow
                        .preds(block)
                        .flat_map(|pred| func.blocks[pred.index()].term.edges())
                        .filter(|edge| edge.to == block)
                        .map(|edge| edge.args[i]);
                    let varies = loops || diverged || incoming.any(|v| uniform.varying[v.index()]);
                    changed |= varies && uniform.set_varying(param);
                }
                for inst in &data.insts {
                    let Some(result) = inst.result else { continue };
                    changed |= uniform.op_varies(&inst.op) && uniform.set_varying(result);
                }
            }
            if !changed {
                return uniform;
            }
        }
    }

    /// The value is the same in all lanes that run together.
    pub fn is_uniform(&self, v: Value) -> bool {
        !self.varying[v.index()]
    }

    fn set_varying(&mut self, v: Value) -> bool {
        !std::mem::replace(&mut self.varying[v.index()], true)
    }

    fn op_varies(&self, op: &Op) -> bool {
        match op {
            Op::Const(_) | Op::GroupMask | Op::Slot(_) => false,
            Op::Special(special) => !special.is_uniform(),
            // The address is the same number in every lane, the memory behind it is not.
            Op::StackAddr(_) => false,
            Op::Bin(..)
            | Op::Un(..)
            | Op::Cmp(..)
            | Op::Select(..)
            | Op::Pack(..)
            | Op::Load { mem: Mem::Env, .. } => {
                let mut varies = false;
                op.for_each_operand(|v| varies |= self.varying[v.index()]);
                varies
            }
            // Lanes of one group may read at different instants.
            Op::Timer
            | Op::Load { .. }
            | Op::Store { .. }
            | Op::StorePair { .. }
            | Op::Atomic { .. }
            | Op::Membar
            | Op::RingReserve { .. }
            | Op::RingCommit { .. }
            | Op::CopyBytes { .. }
            | Op::Hash { .. } => true,
        }
    }
}
