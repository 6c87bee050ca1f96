//! Evaluates what is known and rewrites to simpler operations: constants, identities, 32-bit code
//! that eBPF writes with 64-bit registers, addresses with constant offsets, null checks of lookups
//! that cannot fail.

use warpbpf_abi::layout::RingLayout;
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::eval;
use crate::ir::{BinOp, Block, Cond, Func, Inst, Op, Size, Special, Term, Ty, UnOp, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let order = Flow::new(func).order;
    let mut fold = Fold {
        defs: func.definitions(),
        uses: func.use_counts(),
        to: Vec::new(),
        out: Vec::new(),
        func,
    };
    fold.to = (0..fold.func.types.len()).map(Value::new).collect();
    for block in order {
        fold.block(block);
    }
    let to = fold.to;
    func.substitute(&to);
}

struct Fold<'a> {
    func: &'a mut Func,
    defs: Vec<Option<Op>>,
    uses: Vec<u32>,
    /// What each value is replaced with: itself, mostly.
    to: Vec<Value>,
    /// Instructions of the current block so far.
    out: Vec<Inst>,
}

/// What becomes of an operation.
enum Outcome {
    Keep(Op),
    Same(Value),
    Gone,
}

impl Fold<'_> {
    fn block(&mut self, block: Block) {
        let insts = std::mem::take(&mut self.func.blocks[block.index()].insts);
        for inst in insts {
            let mut op = inst.op;
            op.for_each_operand_mut(|v| *v = self.resolve(*v));
            let ty = inst.result.map(|v| self.func.ty(v));
            match (self.simplify(op, ty), inst.result) {
                (Outcome::Gone, None) => {}
                (Outcome::Gone, Some(_)) => {}
                (Outcome::Same(value), Some(result)) => self.to[result.index()] = value,
                (Outcome::Same(_), None) => {}
                (Outcome::Keep(op), result) => {
                    if let Some(result) = result {
                        self.defs[result.index()] = Some(op.clone());
                    }
                    self.out.push(Inst { result, op });
                }
            }
        }
        let mut term = self.func.blocks[block.index()].term.clone();
        term.for_each_operand_mut(|v| *v = self.resolve(*v));
        let term = self.term(term);
        let data = &mut self.func.blocks[block.index()];
        data.insts = std::mem::take(&mut self.out);
        data.term = term;
    }

    fn resolve(&self, mut v: Value) -> Value {
        while self.to[v.index()] != v {
            v = self.to[v.index()];
        }
        v
    }

    fn add(&mut self, ty: Ty, op: Op) -> Value {
        match self.simplify(op, Some(ty)) {
            Outcome::Same(v) => v,
            Outcome::Gone => self.emit(ty, Op::Const(0)),
            Outcome::Keep(op) => self.emit(ty, op),
        }
    }

    fn emit(&mut self, ty: Ty, op: Op) -> Value {
        let v = self.func.add_value(ty);
        self.defs.push(Some(op.clone()));
        self.uses.push(1);
        self.to.push(v);
        self.out.push(Inst {
            result: Some(v),
            op,
        });
        v
    }

    fn def(&self, v: Value) -> Option<&Op> {
        self.defs[v.index()].as_ref()
    }

    fn constant(&self, v: Value) -> Option<u64> {
        match self.def(v) {
            Some(Op::Const(c)) => Some(*c),
            _ => None,
        }
    }

    fn simplify(&mut self, op: Op, ty: Option<Ty>) -> Outcome {
        match op {
            Op::Bin(bin, a, b) => self.bin(bin, a, b),
            Op::Un(un, a) => self.un(un, a),
            Op::Cmp(cond, a, b) => self.cmp(cond, a, b),
            Op::Select(p, a, b) => match self.constant(p) {
                _ if a == b => Outcome::Same(a),
                Some(0) => Outcome::Same(b),
                Some(_) => Outcome::Same(a),
                None => match self.def(p) {
                    Some(Op::Un(UnOp::Not, q)) => Outcome::Keep(Op::Select(*q, b, a)),
                    _ => Outcome::Keep(op),
                },
            },
            Op::Load {
                mem,
                width,
                signed,
                addr,
                off,
            } => {
                let (addr, off) = self.address(addr, off);
                Outcome::Keep(Op::Load {
                    mem,
                    width,
                    signed,
                    addr,
                    off,
                })
            }
            Op::Store {
                mem,
                width,
                addr,
                off,
                value,
            } => {
                let (addr, off) = self.address(addr, off);
                let value = self.stored(value, width);
                Outcome::Keep(Op::Store {
                    mem,
                    width,
                    addr,
                    off,
                    value,
                })
            }
            Op::Atomic {
                origin,
                op,
                order,
                width,
                addr,
                off,
                value,
                compare,
                guard,
            } => {
                let guard = match guard.map(|g| self.constant(g)) {
                    Some(Some(0)) if ty.is_none() => return Outcome::Gone,
                    Some(Some(1)) => None,
                    _ => guard,
                };
                let (addr, off) = self.address(addr, off);
                Outcome::Keep(Op::Atomic {
                    origin,
                    op,
                    order,
                    width,
                    addr,
                    off,
                    value,
                    compare,
                    guard,
                })
            }
            Op::RingCommit {
                ring,
                base,
                record,
                size: None,
                discard,
                shared,
                chunks,
            } => {
                // The header tells the size too, but a load that need not be made is better.
                let size = match self.def(record) {
                    Some(Op::RingReserve {
                        size: Size::Const(n),
                        ..
                    }) => Some(*n),
                    _ => None,
                };
                let size =
                    size.filter(|n| RingLayout::record_bytes(u64::from(*n)) <= ring.sub_bytes());
                Outcome::Keep(Op::RingCommit {
                    ring,
                    base,
                    record,
                    size,
                    discard,
                    shared,
                    chunks,
                })
            }
            Op::Pack(low, high) => match (self.constant(low), self.constant(high)) {
                (Some(low), Some(high)) => Outcome::Keep(Op::Const(high << 32 | low)),
                (None, Some(0)) => Outcome::Keep(Op::Un(UnOp::Zext, low)),
                _ => Outcome::Keep(op),
            },
            Op::Const(_)
            | Op::Special(_)
            | Op::GroupMask
            | Op::Slot(_)
            | Op::StackAddr(_)
            | Op::Timer
            | Op::Membar
            | Op::StorePair { .. }
            | Op::Tally { .. }
            | Op::RingReserve { .. }
            | Op::RingCommit { .. }
            | Op::CopyBytes { .. }
            | Op::Hash { .. }
            | Op::Queue { .. }
            | Op::Fence { .. }
            | Op::Text { .. }
            | Op::Lanes { .. }
            | Op::Arrive { .. }
            | Op::Take { .. }
            | Op::Popc(_)
            | Op::Clock => Outcome::Keep(op),
        }
    }

    /// Moves constant addends of an address into its offset.
    fn address(&self, mut addr: Value, mut off: i32) -> (Value, i32) {
        while let Some(Op::Bin(BinOp::Add, base, more)) = self.def(addr) {
            let Some(sum) = self
                .constant(*more)
                .and_then(|c| (c as i64).checked_add(i64::from(off)))
            else {
                break;
            };
            let Ok(sum) = i32::try_from(sum) else { break };
            (addr, off) = (*base, sum);
        }
        (addr, off)
    }

    /// A stored value without masks of bits that are not stored.
    fn stored(&self, mut value: Value, width: Width) -> Value {
        let kept = match width {
            Width::W8 => 0xff,
            Width::W16 => 0xffff,
            Width::W32 | Width::W64 => return value,
        };
        while let Some(Op::Bin(BinOp::And, inner, mask)) = self.def(value) {
            if self.constant(*mask).is_none_or(|m| m & kept != kept) {
                break;
            }
            value = *inner;
        }
        value
    }

    fn bin(&mut self, op: BinOp, mut a: Value, mut b: Value) -> Outcome {
        let ty = self.func.ty(a);
        if op.commutes() && self.constant(a).is_some() {
            (a, b) = (b, a);
        }
        let (x, y) = (self.constant(a), self.constant(b));
        if let (Some(x), Some(y)) = (x, y) {
            return Outcome::Keep(Op::Const(eval::bin(op, ty, x, y)));
        }
        if let Some(narrow) = self.divide_narrow(op, a, b, y) {
            return narrow;
        }
        let Some(c) = y else {
            return match op {
                BinOp::Sub | BinOp::Xor if a == b => Outcome::Keep(Op::Const(0)),
                BinOp::And | BinOp::Or | BinOp::UMin if a == b => Outcome::Same(a),
                _ => Outcome::Keep(Op::Bin(op, a, b)),
            };
        };
        let all = ty.mask();
        let shift = (c as u32) & (ty.bits() - 1);
        match op {
            BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor if c == 0 => Outcome::Same(a),
            BinOp::Mul | BinOp::And | BinOp::UMin if c == 0 => Outcome::Keep(Op::Const(0)),
            BinOp::And | BinOp::UMin if c == all => Outcome::Same(a),
            BinOp::Or if c == all => Outcome::Keep(Op::Const(all)),
            BinOp::Xor if ty == Ty::Pred => Outcome::Keep(Op::Un(UnOp::Not, a)),
            BinOp::Mul | BinOp::UDiv | BinOp::SDiv if c == 1 => Outcome::Same(a),
            BinOp::UDiv if c == 0 => Outcome::Keep(Op::Const(0)),
            BinOp::URem | BinOp::SRem if c == 0 => Outcome::Same(a),
            BinOp::URem if c.is_power_of_two() => {
                let mask = self.emit(ty, Op::Const(c - 1));
                self.bin(BinOp::And, a, mask)
            }
            BinOp::UDiv if c.is_power_of_two() => {
                let by = self.emit(Ty::B32, Op::Const(u64::from(c.trailing_zeros())));
                self.bin(BinOp::Shr, a, by)
            }
            BinOp::Shl | BinOp::Shr | BinOp::Sar if shift == 0 => Outcome::Same(a),
            BinOp::Sub => {
                let negative = self.emit(ty, Op::Const(c.wrapping_neg() & all));
                self.bin(BinOp::Add, a, negative)
            }
            BinOp::Add => match self.def(a).cloned() {
                Some(Op::Bin(BinOp::Add, inner, more)) if self.constant(more).is_some() => {
                    let sum = self.constant(more).unwrap_or(0).wrapping_add(c) & all;
                    let sum = self.emit(ty, Op::Const(sum));
                    self.bin(BinOp::Add, inner, sum)
                }
                _ => Outcome::Keep(Op::Bin(op, a, b)),
            },
            BinOp::And => self.and(a, b, c),
            // What compilers write for a move of the low half.
            BinOp::Shr | BinOp::Sar if ty == Ty::B64 && shift == 32 => match self.def(a).cloned() {
                Some(Op::Bin(BinOp::Shl, inner, by))
                    if self.constant(by).is_some_and(|by| by & 63 == 32) =>
                {
                    let low = self.add(Ty::B32, Op::Un(UnOp::Trunc, inner));
                    self.un(
                        if op == BinOp::Shr {
                            UnOp::Zext
                        } else {
                            UnOp::Sext
                        },
                        low,
                    )
                }
                _ => Outcome::Keep(Op::Bin(op, a, b)),
            },
            BinOp::Shr if self.possible(a) >> shift == 0 => Outcome::Keep(Op::Const(0)),
            // An array's key, taken out of the pointer to it.
            BinOp::Shr if self.shifted_back(a, shift).is_some() => {
                Outcome::Same(self.shifted_back(a, shift).unwrap_or(a))
            }
            BinOp::Shr if self.half_behind(a, shift).is_some() => {
                let (half, rest) = self.half_behind(a, shift).unwrap_or((a, 0));
                let by = self.emit(Ty::B32, Op::Const(rest.into()));
                let half = self.add(Ty::B32, Op::Bin(BinOp::Shr, half, by));
                Outcome::Keep(Op::Un(UnOp::Zext, half))
            }
            // Amounts count modulo the width; PTX clamps them instead, so constants are brought
            // into range here.
            BinOp::Shl | BinOp::Shr | BinOp::Sar if u64::from(shift) != c => {
                let by = self.emit(Ty::B32, Op::Const(shift.into()));
                Outcome::Keep(Op::Bin(op, a, by))
            }
            _ => Outcome::Keep(Op::Bin(op, a, b)),
        }
    }

    /// `inner` where `v` is `inner << by` and loses no bits by it.
    fn shifted_back(&self, v: Value, by: u32) -> Option<Value> {
        let &Op::Bin(BinOp::Shl, inner, amount) = self.def(v)? else {
            return None;
        };
        let kept = self.func.ty(v).mask() >> by;
        (self.constant(amount) == Some(by.into()) && self.possible(inner) & !kept == 0)
            .then_some(inner)
    }

    /// The half that `v >> by` is a part of, and how far that is shifted itself.
    fn half_behind(&self, v: Value, by: u32) -> Option<(Value, u32)> {
        match *self.def(v)? {
            Op::Un(UnOp::Zext, low) if by < 32 => Some((low, by)),
            Op::Pack(_, high) if by >= 32 => Some((high, by - 32)),
            _ => None,
        }
    }

    /// Unsigned division of two values below 2^32: a 64-bit division costs ten times a 32-bit one.
    fn divide_narrow(&mut self, op: BinOp, a: Value, b: Value, y: Option<u64>) -> Option<Outcome> {
        if !matches!(op, BinOp::UDiv | BinOp::URem) {
            return None;
        }
        let Some(&Op::Un(UnOp::Zext, a)) = self.def(a) else {
            return None;
        };
        let b = match (self.def(b), y) {
            (Some(&Op::Un(UnOp::Zext, b)), _) => b,
            (_, Some(c)) if c <= 0xffff_ffff => self.emit(Ty::B32, Op::Const(c)),
            _ => return None,
        };
        let low = self.add(Ty::B32, Op::Bin(op, a, b));
        Some(Outcome::Keep(Op::Un(UnOp::Zext, low)))
    }

    fn and(&mut self, a: Value, b: Value, mask: u64) -> Outcome {
        if self.possible(a) & !mask == 0 {
            return Outcome::Same(a);
        }
        match self.def(a).cloned() {
            Some(Op::Un(UnOp::Zext, low)) => {
                let mask = self.emit(Ty::B32, Op::Const(mask & 0xffff_ffff));
                let low = self.add(Ty::B32, Op::Bin(BinOp::And, low, mask));
                Outcome::Keep(Op::Un(UnOp::Zext, low))
            }
            Some(Op::Bin(BinOp::And, inner, more)) if self.constant(more).is_some() => {
                let both = self.constant(more).unwrap_or(0) & mask;
                let both = self.emit(self.func.ty(a), Op::Const(both));
                self.bin(BinOp::And, inner, both)
            }
            _ => Outcome::Keep(Op::Bin(BinOp::And, a, b)),
        }
    }

    /// Bits that may be set.
    fn possible(&self, v: Value) -> u64 {
        self.possible_within(v, 6)
    }

    /// Looks at operands of operands so deep: values that share operands would take time without
    /// end.
    fn possible_within(&self, v: Value, depth: u32) -> u64 {
        let all = self.func.ty(v).mask();
        let Some(depth) = depth.checked_sub(1) else {
            return all;
        };
        let inner = |v| self.possible_within(v, depth);
        match self.def(v) {
            Some(Op::Const(c)) => *c,
            // CUDA C++ Programming Guide, "Compute Capabilities": a block has at most 1024 threads.
            Some(Op::Special(Special::Tid(_))) => 0x3ff,
            Some(Op::Special(Special::Ntid(_))) => 0x7ff,
            Some(Op::Special(Special::Lane)) => 0x1f,
            Some(Op::Load {
                width: Width::W8,
                signed: false,
                ..
            }) => 0xff,
            Some(Op::Load {
                width: Width::W16,
                signed: false,
                ..
            }) => 0xffff,
            Some(&Op::Un(UnOp::Zext, low)) => inner(low),
            Some(Op::Un(UnOp::Swap16, _)) => 0xffff,
            Some(Op::Bin(BinOp::And, _, m)) => self.constant(*m).unwrap_or(all),
            Some(&Op::Bin(BinOp::Or, a, b)) => inner(a) | inner(b),
            Some(&Op::Bin(BinOp::Shl, a, by)) => match self.constant(by) {
                Some(by) => (inner(a) << (by as u32 & (self.func.ty(v).bits() - 1))) & all,
                None => all,
            },
            Some(Op::Bin(BinOp::Shr, _, by)) => match self.constant(*by) {
                Some(by) => all >> (by as u32 & (self.func.ty(v).bits() - 1)),
                None => all,
            },
            _ => all,
        }
    }

    fn un(&mut self, op: UnOp, a: Value) -> Outcome {
        if let Some(c) = self.constant(a) {
            return Outcome::Keep(Op::Const(eval::un(op, c)));
        }
        let def = self.def(a).cloned();
        match (op, def) {
            (UnOp::Trunc, Some(Op::Un(UnOp::Zext | UnOp::Sext, low) | Op::Pack(low, _))) => {
                Outcome::Same(low)
            }
            (UnOp::Trunc, Some(Op::Bin(bin, x, y))) if self.narrows(a, bin, x, y) => {
                let x = self.add(Ty::B32, Op::Un(UnOp::Trunc, x));
                let y = if bin == BinOp::Shl {
                    y
                } else {
                    self.add(Ty::B32, Op::Un(UnOp::Trunc, y))
                };
                self.bin(bin, x, y)
            }
            (UnOp::Trunc, Some(Op::Select(p, x, y))) if self.is_narrow(x) && self.is_narrow(y) => {
                let x = self.add(Ty::B32, Op::Un(UnOp::Trunc, x));
                let y = self.add(Ty::B32, Op::Un(UnOp::Trunc, y));
                Outcome::Keep(Op::Select(p, x, y))
            }
            (UnOp::Sext8, Some(Op::Bin(BinOp::And, x, m)))
                if self.constant(m).is_some_and(|m| m & 0xff == 0xff) =>
            {
                self.un(op, x)
            }
            (UnOp::Sext16, Some(Op::Bin(BinOp::And, x, m)))
                if self.constant(m).is_some_and(|m| m & 0xffff == 0xffff) =>
            {
                self.un(op, x)
            }
            (UnOp::Not, Some(Op::Un(UnOp::Not, p))) => Outcome::Same(p),
            // Only if the comparison itself goes away: one predicate serves both ways.
            (UnOp::Not, Some(Op::Cmp(cond, x, y))) if self.uses[a.index()] <= 1 => {
                Outcome::Keep(Op::Cmp(cond.negated(), x, y))
            }
            _ => Outcome::Keep(Op::Un(op, a)),
        }
    }

    /// The low half of `op x, y` is better computed from low halves.
    fn narrows(&self, v: Value, op: BinOp, x: Value, y: Value) -> bool {
        match op {
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor => {
                self.uses[v.index()] <= 1 || self.is_narrow(x) || self.is_narrow(y)
            }
            BinOp::Shl => self.constant(y).is_some_and(|by| by < 32) && self.is_narrow(x),
            _ => false,
        }
    }

    fn is_narrow(&self, v: Value) -> bool {
        matches!(
            self.def(v),
            Some(Op::Const(_) | Op::Un(UnOp::Zext | UnOp::Sext, _))
        )
    }

    fn cmp(&mut self, cond: Cond, a: Value, b: Value) -> Outcome {
        let ty = self.func.ty(a);
        let (x, y) = (self.constant(a), self.constant(b));
        if let (Some(x), Some(y)) = (x, y) {
            return Outcome::Keep(Op::Const(eval::cmp(cond, ty, x, y).into()));
        }
        if x.is_some() {
            return self.cmp(cond.swapped(), b, a);
        }
        if y == Some(0) && matches!(cond, Cond::Eq | Cond::Ne) {
            if self.is_address(a) {
                return Outcome::Keep(Op::Const((cond == Cond::Ne).into()));
            }
            if let Some(&Op::Select(p, found, null)) = self.def(a)
                && self.is_address(found)
                && self.constant(null) == Some(0)
            {
                // `not` stays: below the branch on it, `opt_gvn` knows the select's own predicate.
                return match cond {
                    Cond::Ne => Outcome::Same(p),
                    _ => Outcome::Keep(Op::Un(UnOp::Not, p)),
                };
            }
        }
        let unsigned = matches!(
            cond,
            Cond::Eq | Cond::Ne | Cond::Ult | Cond::Ule | Cond::Ugt | Cond::Uge
        );
        if ty == Ty::B64 && unsigned {
            let low = |v: Value| match self.def(v) {
                Some(Op::Un(UnOp::Zext, low)) => Some(*low),
                _ => None,
            };
            match (low(a), low(b), y) {
                (Some(a), Some(b), _) => return Outcome::Keep(Op::Cmp(cond, a, b)),
                (Some(a), None, Some(c)) if c <= 0xffff_ffff => {
                    let c = self.emit(Ty::B32, Op::Const(c));
                    return self.cmp(cond, a, c);
                }
                _ => {}
            }
        }
        // No value is above its possible bits.
        let most = self.possible(a);
        match (cond, y) {
            (Cond::Ult, Some(0)) => Outcome::Keep(Op::Const(0)),
            (Cond::Uge, Some(0)) => Outcome::Keep(Op::Const(1)),
            (Cond::Ugt, Some(c)) if most <= c => Outcome::Keep(Op::Const(0)),
            (Cond::Ule, Some(c)) if most <= c => Outcome::Keep(Op::Const(1)),
            (Cond::Uge, Some(c)) if most < c => Outcome::Keep(Op::Const(0)),
            (Cond::Ult, Some(c)) if most < c => Outcome::Keep(Op::Const(1)),
            (Cond::Ugt, Some(0)) => self.cmp(Cond::Ne, a, b),
            (Cond::Ule, Some(0)) => self.cmp(Cond::Eq, a, b),
            _ => Outcome::Keep(Op::Cmp(cond, a, b)),
        }
    }

    /// It points into a map or a stack, whose pointers are above null whatever is added to them:
    /// not null.
    fn is_address(&self, v: Value) -> bool {
        match self.def(v) {
            Some(Op::Slot(_) | Op::StackAddr(_)) => true,
            Some(Op::Bin(BinOp::Add, base, _)) => self.is_address(*base),
            _ => false,
        }
    }

    fn term(&self, term: Term) -> Term {
        let Term::Branch { cond, yes, no } = term else {
            return term;
        };
        match self.constant(cond) {
            Some(0) => return Term::Jump(no),
            Some(_) => return Term::Jump(yes),
            None => {}
        }
        if yes == no {
            return Term::Jump(yes);
        }
        match self.def(cond) {
            Some(Op::Un(UnOp::Not, p)) => Term::Branch {
                cond: *p,
                yes: no,
                no: yes,
            },
            _ => Term::Branch { cond, yes, no },
        }
    }
}
