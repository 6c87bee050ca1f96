//! Drops what nobody uses: instructions without effect, results of atomics, block parameters.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{Block, Effect, Func, Op, Rmw, Term, Value};
use crate::opt_copy::remove_params;

/// Runs the pass.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let mut live = Live {
        marks: vec![false; func.types.len()],
        work: Vec::new(),
    };
    for &block in &flow.order {
        let data = &func.blocks[block.index()];
        for inst in data
            .insts
            .iter()
            .filter(|i| i.op.effect() == Effect::Writes)
        {
            inst.op.for_each_operand(|v| live.mark(v));
        }
        if let Term::Branch { cond, .. } = &data.term {
            live.mark(*cond);
        }
    }
    let defs = func.definitions();
    let mut param_of = vec![None; func.types.len()];
    for &block in &flow.order {
        for (i, param) in func.blocks[block.index()].params.iter().enumerate() {
            param_of[param.index()] = Some((block, i));
        }
    }
    while let Some(value) = live.work.pop() {
        if let Some(op) = &defs[value.index()] {
            op.for_each_operand(|v| live.mark(v));
        } else if let Some((block, i)) = param_of[value.index()] {
            for pred in flow.preds(block) {
                for edge in func.blocks[pred.index()]
                    .term
                    .edges()
                    .filter(|e| e.to == block)
                {
                    live.mark(edge.args[i]);
                }
            }
        }
    }
    for block in 0..func.blocks.len() {
        remove_params(func, &flow, Block::new(block), |v| live.marks[v.index()]);
    }
    for data in &mut func.blocks {
        data.insts.retain_mut(|inst| {
            let used = inst.result.is_some_and(|v| live.marks[v.index()]);
            if inst.op.effect() != Effect::Writes {
                return used;
            }
            // `red` has no compare-and-swap and no exchange: those keep a result that is not read.
            if !used
                && matches!(
                    inst.op,
                    Op::Atomic {
                        op: Rmw::Add | Rmw::And | Rmw::Or | Rmw::Xor,
                        ..
                    }
                )
            {
                inst.result = None;
            }
            true
        });
    }
}

struct Live {
    marks: Vec<bool>,
    work: Vec<Value>,
}

impl Live {
    fn mark(&mut self, v: Value) {
        if !std::mem::replace(&mut self.marks[v.index()], true) {
            self.work.push(v);
        }
    }
}
