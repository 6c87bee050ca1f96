//! Leaves only operations that PTX has with our meaning: division gets its guards, shift amounts their masks, and edges
//! that carry values get blocks of their own, where the moves can stand.

use warpbpf_flow::Entity;

use crate::ir::{BinOp, Cond, Edge, Func, Inst, Op, Term, Ty, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let defs = func.definitions();
    for block in 0..func.blocks.len() {
        let insts = std::mem::take(&mut func.blocks[block].insts);
        let mut lower = Lower {
            func,
            defs: &defs,
            out: Vec::with_capacity(insts.len()),
        };
        for inst in insts {
            lower.inst(inst);
        }
        let out = lower.out;
        func.blocks[block].insts = out;
    }
    split_edges(func);
}

struct Lower<'a> {
    func: &'a mut Func,
    defs: &'a [Option<Op>],
    out: Vec<Inst>,
}

impl Lower<'_> {
    fn push(&mut self, ty: Ty, op: Op) -> Value {
        let v = self.func.add_value(ty);
        self.out.push(Inst {
            result: Some(v),
            op,
        });
        v
    }

    fn constant(&self, v: Value) -> Option<u64> {
        match self.defs.get(v.index()) {
            Some(Some(Op::Const(c))) => Some(*c),
            _ => None,
        }
    }

    fn inst(&mut self, inst: Inst) {
        let (Op::Bin(op, a, b), Some(result)) = (&inst.op, inst.result) else {
            self.out.push(inst);
            return;
        };
        let (a, b) = (*a, *b);
        let ty = self.func.ty(a);
        let op = match op {
            BinOp::Shl | BinOp::Shr | BinOp::Sar => {
                // eBPF takes the amount modulo the width, PTX clamps it (PTX ISA, "shl").
                let mut by = b;
                if self.constant(b).is_none_or(|c| c >= u64::from(ty.bits())) {
                    let mask = self.push(Ty::B32, Op::Const(u64::from(ty.bits() - 1)));
                    by = self.push(Ty::B32, Op::Bin(BinOp::And, b, mask));
                }
                Op::Bin(*op, a, by)
            }
            BinOp::UDiv => self.divide(ty, BinOp::MachineUDiv, a, b),
            BinOp::SDiv => self.divide(ty, BinOp::MachineSDiv, a, b),
            BinOp::URem => self.divide(ty, BinOp::MachineURem, a, b),
            BinOp::SRem => self.divide(ty, BinOp::MachineSRem, a, b),
            BinOp::Add
            | BinOp::Sub
            | BinOp::Mul
            | BinOp::And
            | BinOp::Or
            | BinOp::Xor
            | BinOp::UMin
            | BinOp::MachineUDiv
            | BinOp::MachineSDiv
            | BinOp::MachineURem
            | BinOp::MachineSRem => inst.op,
        };
        self.out.push(Inst {
            result: Some(result),
            op,
        });
    }

    /// Division with the results of RFC 9669 §4.1 where PTX leaves them open: by zero, and MIN by -1.
    fn divide(&mut self, ty: Ty, op: BinOp, a: Value, b: Value) -> Op {
        let signed = matches!(op, BinOp::MachineSDiv | BinOp::MachineSRem);
        let quotient = matches!(op, BinOp::MachineSDiv | BinOp::MachineUDiv);
        match self.constant(b) {
            Some(c) if c != 0 && !(signed && c == ty.mask()) => return Op::Bin(op, a, b),
            Some(_) | None => {}
        }
        let zero = self.push(ty, Op::Const(0));
        let one = self.push(ty, Op::Const(1));
        let by_zero = self.push(Ty::Pred, Op::Cmp(Cond::Eq, b, zero));
        let mut divisor = self.push(ty, Op::Select(by_zero, one, b));
        let mut by_minus_one = None;
        if signed {
            let minus_one = self.push(ty, Op::Const(ty.mask()));
            let p = self.push(Ty::Pred, Op::Cmp(Cond::Eq, b, minus_one));
            divisor = self.push(ty, Op::Select(p, one, divisor));
            by_minus_one = Some(p);
        }
        let mut result = self.push(ty, Op::Bin(op, a, divisor));
        if quotient && let Some(p) = by_minus_one {
            let negative = self.push(ty, Op::Bin(BinOp::Sub, zero, a));
            result = self.push(ty, Op::Select(p, negative, result));
        }
        Op::Select(by_zero, if quotient { zero } else { a }, result)
    }
}

/// Gives each edge of a branch that carries values a block of its own.
fn split_edges(func: &mut Func) {
    for block in 0..func.blocks.len() {
        let mut term = std::mem::replace(&mut func.blocks[block].term, Term::Ret);
        if let Term::Branch { yes, no, .. } = &mut term {
            for edge in [yes, no] {
                if !edge.args.is_empty() {
                    let between = func.add_block();
                    let moved = std::mem::replace(
                        edge,
                        Edge {
                            to: between,
                            args: Vec::new(),
                        },
                    );
                    func.blocks[between.index()].term = Term::Jump(moved);
                }
            }
        }
        func.blocks[block].term = term;
    }
}
