//! Merges equal pure operations along the dominator tree, and uses what a branch has decided: below
//! the side where a lookup succeeded, its result is the plain address.

use std::collections::HashMap;

use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{BinOp, Block, Cond, Effect, Func, Op, Term, Ty, UnOp, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let flow = Flow::new(func);
    let mut gvn = Gvn {
        to: (0..func.types.len()).map(Value::new).collect(),
        table: HashMap::new(),
        known: vec![None; func.types.len()],
        decided: vec![None; func.types.len()],
        undo: Vec::new(),
        selects: Vec::new(),
        defs: func.definitions(),
    };
    for (i, def) in gvn.defs.iter().enumerate() {
        if let Some(Op::Select(p, a, b)) = def {
            gvn.selects.push((Value::new(i), *p, *a, *b));
        }
    }
    // Explicit stack: enter a block, visit its children, leave it.
    let mut stack = vec![(Block::ENTRY, 0, 0)];
    gvn.enter(func, &flow, Block::ENTRY);
    while let Some((block, next, mark)) = stack.pop() {
        match flow.dominators.children(block).get(next) {
            Some(&child) => {
                stack.push((block, next + 1, mark));
                let child_mark = gvn.undo.len();
                gvn.enter(func, &flow, child);
                stack.push((child, 0, child_mark));
            }
            None => gvn.leave(mark),
        }
    }
    let to = gvn.to;
    func.substitute(&to);
}

enum Undo {
    Table((Ty, Op)),
    Known(Value),
    Decided(Value),
}

struct Gvn {
    to: Vec<Value>,
    table: HashMap<(Ty, Op), Value>,
    /// Predicates decided by a branch above.
    known: Vec<Option<bool>>,
    /// What selects above are below such a branch.
    decided: Vec<Option<Value>>,
    /// All selects: result, predicate, and what it selects from.
    selects: Vec<(Value, Value, Value, Value)>,
    undo: Vec<Undo>,
    defs: Vec<Option<Op>>,
}

impl Gvn {
    fn resolve(&self, mut v: Value) -> Value {
        while self.to[v.index()] != v {
            v = self.to[v.index()];
        }
        v
    }

    /// As `resolve`, for a use in the current block.
    fn resolve_here(&self, v: Value) -> Value {
        let mut v = self.resolve(v);
        while let Some(decided) = self.decided[v.index()] {
            v = self.resolve(decided);
        }
        v
    }

    fn enter(&mut self, func: &mut Func, flow: &Flow, block: Block) {
        self.learn_from_branch(func, flow, block);
        for i in 0..func.blocks[block.index()].insts.len() {
            let inst = &mut func.blocks[block.index()].insts[i];
            inst.op.for_each_operand_mut(|v| *v = self.resolve_here(*v));
            let Some(result) = inst.result else { continue };
            if inst.op.effect() != Effect::Pure {
                continue;
            }
            if let Op::Select(p, a, b) = inst.op
                && let Some(known) = self.known[p.index()]
            {
                self.to[result.index()] = if known { a } else { b };
                continue;
            }
            let key = (func.types[result.index()], inst.op.clone());
            match self.table.get(&key) {
                Some(&same) => self.to[result.index()] = same,
                None => {
                    self.table.insert(key.clone(), result);
                    self.undo.push(Undo::Table(key));
                }
            }
        }
        let mut term = func.blocks[block.index()].term.clone();
        term.for_each_operand_mut(|v| *v = self.resolve_here(*v));
        if let Term::Branch { cond, yes, no } = &term
            && let Some(known) = self.known[cond.index()]
        {
            term = Term::Jump(if known { yes.clone() } else { no.clone() });
        }
        func.blocks[block.index()].term = term;
    }

    fn learn_from_branch(&mut self, func: &Func, flow: &Flow, block: Block) {
        let mut preds = flow.preds(block);
        let (Some(pred), None) = (preds.next(), preds.next()) else {
            return;
        };
        if let Term::Branch { cond, yes, no } = &func.blocks[pred.index()].term
            && yes.to != no.to
        {
            self.learn(self.resolve(*cond), yes.to == block);
        }
    }

    fn learn(&mut self, p: Value, holds: bool) {
        if self.known[p.index()].is_some() {
            return;
        }
        self.known[p.index()] = Some(holds);
        self.undo.push(Undo::Known(p));
        for i in 0..self.selects.len() {
            let (select, on, a, b) = self.selects[i];
            if self.resolve(on) == p && self.decided[select.index()].is_none() {
                self.decided[select.index()] = Some(if holds { a } else { b });
                self.undo.push(Undo::Decided(select));
            }
        }
        match self.defs[p.index()] {
            Some(Op::Cmp(Cond::Eq, a, c)) if holds => self.is_constant(a, c),
            Some(Op::Cmp(Cond::Ne, a, c)) if !holds => self.is_constant(a, c),
            Some(Op::Un(UnOp::Not, q)) => self.learn(self.resolve(q), !holds),
            Some(Op::Bin(BinOp::And, a, b)) if holds => {
                self.learn(self.resolve(a), true);
                self.learn(self.resolve(b), true);
            }
            Some(Op::Bin(BinOp::Or, a, b)) if !holds => {
                self.learn(self.resolve(a), false);
                self.learn(self.resolve(b), false);
            }
            _ => {}
        }
    }

    /// `a` equals `c` from here on: if that is a constant, it is used in its place. Not only for
    /// its own sake: ptxas 13.0, which does the same, then takes both halves of a 64-bit value for
    /// the constant.
    fn is_constant(&mut self, a: Value, c: Value) {
        let a = self.resolve(a);
        let is_const = |v: Value| matches!(self.defs[v.index()], Some(Op::Const(_)));
        if is_const(c) && !is_const(a) && self.decided[a.index()].is_none() {
            self.decided[a.index()] = Some(c);
            self.undo.push(Undo::Decided(a));
        }
    }

    fn leave(&mut self, mark: usize) {
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some(Undo::Table(key)) => {
                    self.table.remove(&key);
                }
                Some(Undo::Known(v)) => self.known[v.index()] = None,
                Some(Undo::Decided(v)) => self.decided[v.index()] = None,
                None => return,
            }
        }
    }
}
