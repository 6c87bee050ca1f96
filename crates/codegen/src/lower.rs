//! Leaves only operations that PTX has with our meaning: division gets its guards, shift amounts
//! their masks, and edges that carry values get blocks of their own, where the moves can stand.

use warpbpf_flow::Entity;

use crate::ir::{BinOp, Cond, Edge, Func, Inst, Op, Term, Ty, UnOp, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let defs = func.definitions();
    let shifted = shifted_right(func);
    for block in 0..func.blocks.len() {
        let insts = std::mem::take(&mut func.blocks[block].insts);
        let mut lower = Lower {
            func,
            defs: &defs,
            shifted: &shifted,
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
    shifted: &'a [bool],
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
        if let (Op::Cmp(cond, a, b), Some(_)) = (&inst.op, inst.result)
            && self.func.ty(*a) == Ty::B32
        {
            let op = self.compare(*cond, *a, *b);
            self.out.push(Inst { op, ..inst });
            return;
        }
        let (Op::Bin(op, a, b), Some(result)) = (&inst.op, inst.result) else {
            self.out.push(inst);
            return;
        };
        let (a, b) = (*a, *b);
        let ty = self.func.ty(a);
        if self.shifted[result.index()]
            && let Some(x) = self.negated(*op, a, b, ty)
        {
            let op = self.negate(ty, x);
            self.out.push(Inst {
                result: Some(result),
                op,
            });
            return;
        }
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
            BinOp::And | BinOp::Or if ty == Ty::B64 => match self.by_halves(*op, a, b) {
                Some(op) => op,
                None => inst.op,
            },
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

    /// `a & b` or `a | b` where the constant `b` keeps one half of `a` and replaces the other.
    /// Where that is all that a loop in another one does, ptxas 13.0 deletes the inner loop and
    /// gives the register of the half that is kept to a counter (docs/measurements.md, "Generated
    /// programs"). Moved by halves the value stays.
    fn by_halves(&mut self, op: BinOp, a: Value, b: Value) -> Option<Op> {
        const LOW: u64 = 0xffff_ffff;
        let (a, c) = match (self.constant(a), self.constant(b)) {
            (None, Some(c)) => (a, c),
            (Some(c), None) => (b, c),
            _ => return None,
        };
        let low = |lower: &mut Lower<'_>| lower.push(Ty::B32, Op::Un(UnOp::Trunc, a));
        let high = |lower: &mut Lower<'_>| {
            let by = lower.push(Ty::B32, Op::Const(32));
            let high = lower.push(Ty::B64, Op::Bin(BinOp::Shr, a, by));
            lower.push(Ty::B32, Op::Un(UnOp::Trunc, high))
        };
        let keeps_low = match (op, c) {
            (BinOp::And, LOW) => return Some(Op::Un(UnOp::Zext, low(self))),
            (BinOp::Or, c) if c == !LOW => true,
            (BinOp::And, c) if c == !LOW => false,
            (BinOp::Or, LOW) => false,
            _ => return None,
        };
        let given = if op == BinOp::And { 0 } else { LOW };
        let given = self.push(Ty::B32, Op::Const(given));
        Some(if keeps_low {
            Op::Pack(low(self), given)
        } else {
            Op::Pack(given, high(self))
        })
    }

    /// A 32-bit comparison, so written that no signed one and no unsigned one differ in their type
    /// alone: of two such, where one was found true, ptxas 13.0 takes the other for true as well.
    /// Registers are compared by `<` and `<=` signed and by `>` and `>=` unsigned; with a constant
    /// by `<` and `>=` signed and by `<=` and `>` unsigned.
    fn compare(&mut self, cond: Cond, a: Value, b: Value) -> Op {
        let (cond, a, b) = match (self.constant(a), self.constant(b)) {
            (Some(_), None) => (cond.swapped(), b, a),
            _ => (cond, a, b),
        };
        let Some(c) = self.constant(b).map(|c| c as u32) else {
            return match cond {
                Cond::Sgt | Cond::Sge | Cond::Ult | Cond::Ule => Op::Cmp(cond.swapped(), b, a),
                Cond::Eq | Cond::Ne | Cond::Slt | Cond::Sle | Cond::Ugt | Cond::Uge => {
                    Op::Cmp(cond, a, b)
                }
            };
        };
        // Where there is no neighbour the comparison has one outcome only, and nothing to be mixed
        // up with.
        let neighbour = match cond {
            Cond::Sgt if c != i32::MAX as u32 => Some((Cond::Sge, c.wrapping_add(1))),
            Cond::Sle if c != i32::MAX as u32 => Some((Cond::Slt, c.wrapping_add(1))),
            Cond::Uge if c != 0 => Some((Cond::Ugt, c - 1)),
            Cond::Ult if c != 0 => Some((Cond::Ule, c - 1)),
            Cond::Eq
            | Cond::Ne
            | Cond::Sgt
            | Cond::Sge
            | Cond::Slt
            | Cond::Sle
            | Cond::Ugt
            | Cond::Uge
            | Cond::Ult
            | Cond::Ule => None,
        };
        match neighbour {
            Some((cond, c)) => {
                let c = self.push(Ty::B32, Op::Const(u64::from(c)));
                Op::Cmp(cond, a, c)
            }
            None => Op::Cmp(cond, a, b),
        }
    }

    /// `x` where the operation is `-x`.
    fn negated(&self, op: BinOp, a: Value, b: Value, ty: Ty) -> Option<Value> {
        match op {
            BinOp::Sub if self.constant(a) == Some(0) => Some(b),
            BinOp::Mul if self.constant(b) == Some(ty.mask()) => Some(a),
            _ => None,
        }
    }

    /// `-x` in other words. ptxas 13.0 may write `-x >> n` plus something as `LEA.HI.SX32` of the
    /// operand `-x`, which an H200 takes for `-(x >> n)`: one too much unless `x` ends in `n`
    /// zeros.
    fn negate(&mut self, ty: Ty, x: Value) -> Op {
        let all = self.push(ty, Op::Const(ty.mask()));
        let flipped = self.push(ty, Op::Bin(BinOp::Xor, x, all));
        let one = self.push(ty, Op::Const(1));
        Op::Bin(BinOp::Add, flipped, one)
    }

    /// Division with the results of RFC 9669 §4.1 where PTX leaves them open: by zero, and MIN by
    /// -1.
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

/// Values that are shifted right, whole or their lower half.
fn shifted_right(func: &Func) -> Vec<bool> {
    let mut shifted = vec![false; func.types.len()];
    let all = || func.blocks.iter().flat_map(|block| &block.insts);
    for inst in all() {
        if let Op::Bin(BinOp::Shr | BinOp::Sar, a, _) = inst.op {
            shifted[a.index()] = true;
        }
    }
    for inst in all() {
        if let (Op::Un(UnOp::Trunc, a), Some(low)) = (&inst.op, inst.result) {
            shifted[a.index()] |= shifted[low.index()];
        }
    }
    shifted
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
