//! Drops unreachable blocks and joins a block with its only successor when that has no other
//! predecessor, so that the passes that work inside a block see whole stretches of straight code.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{Block, Func, Term, Value};

/// Runs the pass. Block numbers change.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let mut to: Vec<Value> = (0..func.types.len()).map(Value::new).collect();
    let mut joined = vec![false; func.blocks.len()];
    for &block in &flow.order {
        if joined[block.index()] {
            continue;
        }
        while let Term::Jump(edge) = func.blocks[block.index()].term.clone() {
            if edge.to == block || flow.preds(edge.to).count() != 1 {
                break;
            }
            let next = std::mem::replace(
                &mut func.blocks[edge.to.index()],
                crate::ir::BlockData {
                    params: Vec::new(),
                    insts: Vec::new(),
                    term: Term::Ret,
                },
            );
            joined[edge.to.index()] = true;
            for (param, arg) in next.params.iter().zip(&edge.args) {
                to[param.index()] = *arg;
            }
            let data = &mut func.blocks[block.index()];
            data.insts.extend(next.insts);
            data.term = next.term;
        }
    }
    func.substitute(&to);

    let kept: Vec<Block> = flow
        .order
        .iter()
        .copied()
        .filter(|b| !joined[b.index()])
        .collect();
    let mut number = vec![Block::ENTRY; func.blocks.len()];
    for (i, block) in kept.iter().enumerate() {
        number[block.index()] = Block::new(i);
    }
    let old = std::mem::take(&mut func.blocks);
    let mut old: Vec<_> = old.into_iter().map(Some).collect();
    func.blocks = kept.iter().filter_map(|b| old[b.index()].take()).collect();
    for data in &mut func.blocks {
        for edge in data.term.edges_mut() {
            edge.to = number[edge.to.index()];
        }
    }
}
