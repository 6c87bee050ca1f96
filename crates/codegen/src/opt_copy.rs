//! Removes block parameters that only ever have one value: those that SSA construction made in
//! advance.

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{Block, Func, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let mut to: Vec<Value> = (0..func.types.len()).map(Value::new).collect();
    let resolve = |to: &[Value], mut v: Value| {
        while to[v.index()] != v {
            v = to[v.index()];
        }
        v
    };
    let mut changed = true;
    while changed {
        changed = false;
        for &block in &flow.order {
            for i in 0..func.blocks[block.index()].params.len() {
                let param = func.blocks[block.index()].params[i];
                if to[param.index()] != param {
                    continue;
                }
                if let Some(only) = only_value(func, &flow, block, i, |v| resolve(&to, v)) {
                    to[param.index()] = only;
                    changed = true;
                }
            }
        }
    }
    for block in 0..func.blocks.len() {
        remove_params(func, &flow, Block::new(block), |v| to[v.index()] == v);
    }
    func.substitute(&to);
}

/// The one value that parameter `i` gets besides itself.
fn only_value(
    func: &Func,
    flow: &Flow,
    block: Block,
    i: usize,
    resolve: impl Fn(Value) -> Value,
) -> Option<Value> {
    let param = func.blocks[block.index()].params[i];
    let mut only = None;
    for pred in flow.preds(block) {
        for edge in func.blocks[pred.index()]
            .term
            .edges()
            .filter(|e| e.to == block)
        {
            let value = resolve(edge.args[i]);
            if value == param || only == Some(value) {
                continue;
            }
            if only.replace(value).is_some() {
                return None;
            }
        }
    }
    only
}

/// Keeps the parameters of `block` that `keep` accepts, and the arguments that belong to them.
pub(crate) fn remove_params(
    func: &mut Func,
    flow: &Flow,
    block: Block,
    keep: impl Fn(Value) -> bool,
) {
    let kept: Vec<bool> = func.blocks[block.index()]
        .params
        .iter()
        .map(|p| keep(*p))
        .collect();
    if kept.iter().all(|k| *k) {
        return;
    }
    let filter = |list: &mut Vec<Value>| {
        let mut i = 0;
        list.retain(|_| {
            i += 1;
            kept[i - 1]
        });
    };
    filter(&mut func.blocks[block.index()].params);
    let mut preds: Vec<Block> = flow.graph.preds(block).to_vec();
    preds.sort();
    preds.dedup();
    for pred in preds {
        for edge in func.blocks[pred.index()]
            .term
            .edges_mut()
            .filter(|e| e.to == block)
        {
            filter(&mut edge.args);
        }
    }
}
