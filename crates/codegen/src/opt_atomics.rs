//! Turns load, combine, store on one map value into an atomic. `(*v)++` on memory that every thread
//! shares would lose counts; programs are written that way because on a CPU each core has its own
//! copy.
//!
//! The three stand in one block with nothing in between that may write the same bytes. Of several
//! combinations in a row (`*v += a + 1` is compiled as two additions) all but one are first done
//! among what is not loaded. The atomic takes the store's place, and what is only computed from the
//! values comes behind it; if the values are needed earlier, it takes the load's place, provided
//! that nothing reads shared memory in between.

use std::collections::BTreeSet;

use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::ir::{BinOp, Effect, Func, Inst, Mem, Op, Order, Origin, Rmw, Ty, Value};

/// Runs the pass.
pub fn run(func: &mut Func) {
    let mut search = Search {
        uses: func.use_counts(),
        made: vec![None; func.value_count()],
        block: 0,
        func,
    };
    for block in 0..search.func.blocks.len() {
        search.block = block;
        search.look();
    }
}

/// The pattern, as indices into the block.
struct Found {
    load: usize,
    combine: usize,
    store: usize,
    /// What the load and the combination define.
    old: Value,
    new: Value,
    op: Rmw,
    /// The other operand, and whether it is subtracted.
    operand: Value,
    subtract: bool,
}

/// The search in one block. What is known of values is kept up to date, so that a look costs
/// nothing that grows with the program.
struct Search<'f> {
    func: &'f mut Func,
    block: usize,
    /// How often each value is used, in all blocks.
    uses: Vec<u32>,
    /// In which block a value is made, and where there, of those that stand before the place that
    /// is looked at. A value is only asked for behind where it is made.
    made: Vec<Option<(usize, usize)>>,
}

impl Search<'_> {
    fn look(&mut self) {
        let mut at = 0;
        while at < self.insts().len() {
            if self.stores_what_was_loaded(at) {
                let gone = self.func.blocks[self.block].insts.remove(at);
                self.count(&gone, false);
                continue;
            }
            while self.regroup(at) {}
            match self.find(at) {
                // The instructions from the load on have moved: look again from there.
                Some(found) if self.rewrite(&found) => at = found.load,
                _ => {
                    self.note(at);
                    at += 1;
                }
            }
        }
    }

    fn insts(&self) -> &[Inst] {
        &self.func.blocks[self.block].insts
    }

    /// The instruction at `at` is passed.
    fn note(&mut self, at: usize) {
        if let Some(result) = self.insts()[at].result {
            self.made[result.index()] = Some((self.block, at));
        }
    }

    /// Where in the block a value is made that something at or before the place that is looked at
    /// uses.
    fn made(&self, v: Value) -> Option<usize> {
        match self.made[v.index()] {
            Some((block, at)) if block == self.block => Some(at),
            _ => None,
        }
    }

    /// An instruction comes or goes.
    fn count(&mut self, inst: &Inst, comes: bool) {
        let uses = &mut self.uses;
        inst.op.for_each_operand(|used| {
            let uses = &mut uses[used.index()];
            *uses = if comes {
                *uses + 1
            } else {
                uses.saturating_sub(1)
            };
        });
    }

    fn add_value(&mut self, ty: Ty) -> Value {
        self.uses.push(0);
        self.made.push(None);
        self.func.add_value(ty)
    }

    /// Something was combined with nothing: a store would bring back what other threads have
    /// changed since the load.
    fn stores_what_was_loaded(&self, store: usize) -> bool {
        let insts = self.insts();
        let Op::Store {
            mem: Mem::Map(origin),
            width,
            addr,
            off,
            value,
        } = insts[store].op
        else {
            return false;
        };
        let load = self.made(value).filter(|load| {
            matches!(insts[*load].op, Op::Load { mem: Mem::Map(_), width: w, addr: at, off: o, .. }
                if w == width && at == addr && o == off)
        });
        load.is_some_and(|load| {
            !insts[load..store]
                .iter()
                .any(|i| may_write(&i.op, origin, width))
        })
    }

    /// `(x + p) + q` becomes `x + (p + q)`, likewise with subtraction, and, or, xor, where `x`
    /// leads to what is loaded from the store's place. True if it changed something.
    fn regroup(&mut self, store: usize) -> bool {
        let Op::Store {
            mem: Mem::Map(_),
            width: Width::W32 | Width::W64,
            addr,
            off,
            value,
        } = self.insts()[store].op
        else {
            return false;
        };
        let insts = self.insts();
        let loaded = |v: Value| {
            self.made(v).is_some_and(|at| {
                matches!(insts[at].op, Op::Load { mem: Mem::Map(_), addr: a, off: o, .. }
                if a == addr && o == off)
            })
        };
        let Some(outer) = self.made(value) else {
            return false;
        };
        let Op::Bin(outer_op, a, b) = insts[outer].op else {
            return false;
        };
        if loaded(a) || loaded(b) {
            return false;
        }
        // The operand that was combined before; of a difference only the first can be.
        let sides = [(a, b), (b, a)];
        let sides = if outer_op == BinOp::Sub {
            &sides[..1]
        } else {
            &sides[..]
        };
        for &(combined, q) in sides {
            let Some(inner) = self.made(combined) else {
                continue;
            };
            let Op::Bin(inner_op, x, p) = insts[inner].op else {
                continue;
            };
            // What else uses the first combination would see another number. And where both
            // operands come from the load there is no atomic, and no end either: they would change
            // places for ever.
            if self.uses[combined.index()] != 1 || self.leads_to(q, (addr, off)) {
                continue;
            }
            let (x, p) = match inner_op {
                BinOp::Sub => (x, p),
                _ if self.leads_to(p, (addr, off)) => (p, x),
                _ => (x, p),
            };
            if !self.leads_to(x, (addr, off)) {
                continue;
            }
            let (rest, whole) = match (inner_op, outer_op) {
                (BinOp::Add, BinOp::Add) => (Op::Bin(BinOp::Add, p, q), BinOp::Add),
                (BinOp::Sub, BinOp::Add) => (Op::Bin(BinOp::Sub, q, p), BinOp::Add),
                (BinOp::Add, BinOp::Sub) => (Op::Bin(BinOp::Sub, p, q), BinOp::Add),
                (BinOp::Sub, BinOp::Sub) => (Op::Bin(BinOp::Add, p, q), BinOp::Sub),
                (BinOp::And, BinOp::And) | (BinOp::Or, BinOp::Or) | (BinOp::Xor, BinOp::Xor) => {
                    (Op::Bin(inner_op, p, q), inner_op)
                }
                _ => continue,
            };
            // The first combination goes to just before the second, where both of its operands are
            // there.
            for at in [inner, outer] {
                let old = insts_at(self.func, self.block, at);
                self.count(&old, false);
            }
            let insts = &mut self.func.blocks[self.block].insts;
            insts[outer].op = Op::Bin(whole, x, combined);
            let mut moved = insts.remove(inner);
            moved.op = rest;
            insts.insert(outer - 1, moved);
            for at in [outer - 1, outer] {
                let new = insts_at(self.func, self.block, at);
                self.count(&new, true);
            }
            for at in inner..=outer {
                self.note(at);
            }
            return true;
        }
        false
    }

    /// `v` is loaded from `place`, or combined from what is.
    fn leads_to(&self, v: Value, place: (Value, i32)) -> bool {
        let mut pending = vec![v];
        // Values may be combined from one value in many ways.
        let mut seen = BTreeSet::new();
        while let Some(v) = pending.pop() {
            let Some(at) = self.made(v).filter(|at| seen.insert(*at)) else {
                continue;
            };
            match self.insts()[at].op {
                Op::Load {
                    mem: Mem::Map(_),
                    addr,
                    off,
                    ..
                } if (addr, off) == place => return true,
                Op::Bin(BinOp::Sub, a, _) => pending.push(a),
                Op::Bin(BinOp::Add | BinOp::And | BinOp::Or | BinOp::Xor, a, b) => {
                    pending.extend([a, b]);
                }
                _ => {}
            }
        }
        false
    }

    fn find(&self, store: usize) -> Option<Found> {
        let insts = self.insts();
        let Op::Store {
            mem: Mem::Map(origin),
            width,
            addr,
            off,
            value: new,
        } = insts[store].op
        else {
            return None;
        };
        if !matches!(width, Width::W32 | Width::W64) {
            return None;
        }
        let combine = self.made(new)?;
        let Op::Bin(bin, a, b) = insts[combine].op else {
            return None;
        };
        let (op, subtract) = match bin {
            BinOp::Add => (Rmw::Add, false),
            BinOp::Sub => (Rmw::Add, true),
            BinOp::And => (Rmw::And, false),
            BinOp::Or => (Rmw::Or, false),
            BinOp::Xor => (Rmw::Xor, false),
            _ => return None,
        };
        let is_load = |v: Value| {
            self.made(v).filter(|load| {
            matches!(insts[*load].op, Op::Load { mem: Mem::Map(_), width: w, addr: at, off: o, .. }
                    if w == width && at == addr && o == off)
        })
        };
        let (load, old, operand) = match (is_load(a), is_load(b)) {
            (Some(load), _) => (load, a, b),
            (None, Some(load)) if !subtract => (load, b, a),
            (None, _) => return None,
        };
        // `x + x` of one load is no addition of something to it.
        if operand == old {
            return None;
        }
        if insts[load..store]
            .iter()
            .any(|i| may_write(&i.op, origin, width))
        {
            return None;
        }
        Some(Found {
            load,
            combine,
            store,
            old,
            new,
            op,
            operand,
            subtract,
        })
    }

    /// Replaces the pattern, unless its values are needed too early.
    fn rewrite(&mut self, found: &Found) -> bool {
        let insts = self.insts();
        let Op::Store {
            mem: Mem::Map(origin),
            width,
            addr,
            off,
            ..
        } = insts[found.store].op
        else {
            return false;
        };
        let between = &insts[found.load + 1..found.store];
        // What is only computed from the values can be computed behind the atomic.
        let mut derived = BTreeSet::from([found.old.index(), found.new.index()]);
        let mut later = BTreeSet::new();
        let mut needed_before = false;
        for (at, inst) in (found.load + 1..).zip(between) {
            let mut uses_them = false;
            inst.op
                .for_each_operand(|used| uses_them |= derived.contains(&used.index()));
            if at == found.combine || !uses_them {
                continue;
            }
            match inst.result {
                Some(result) if inst.op.effect() == Effect::Pure => {
                    derived.insert(result.index());
                    later.insert(at);
                }
                _ => needed_before = true,
            }
        }
        if needed_before {
            later.clear();
        } else if derived.contains(&found.operand.index()) {
            return false;
        }
        // The combination uses the old value once, the store the new one once; each further use
        // wants the value.
        let wanted = self.uses[found.old.index()] > 1 || self.uses[found.new.index()] > 1;
        let reads = |i: &Inst| {
            matches!(
                i.op,
                Op::Load {
                    mem: Mem::Map(_) | Mem::MapSync(_) | Mem::MapSlot(_),
                    ..
                } | Op::Hash { .. }
                    | Op::CopyBytes { .. }
            )
        };
        let at_load = needed_before;
        if at_load {
            let operand_comes_later = between.iter().any(|i| i.result == Some(found.operand));
            if operand_comes_later || between.iter().any(reads) {
                return false;
            }
        }
        let ty = if width == Width::W64 {
            Ty::B64
        } else {
            Ty::B32
        };
        let mut fresh = Vec::new();
        let operand = if found.subtract {
            let (zero, negative) = (self.add_value(ty), self.add_value(ty));
            fresh.push(Inst {
                result: Some(zero),
                op: Op::Const(0),
            });
            fresh.push(Inst {
                result: Some(negative),
                op: Op::Bin(BinOp::Sub, zero, found.operand),
            });
            negative
        } else {
            found.operand
        };
        fresh.push(Inst {
            result: wanted.then_some(found.old),
            op: Op::Atomic {
                origin: Some(origin),
                op: found.op,
                order: Order::Relaxed,
                width,
                addr,
                off,
                value: operand,
                compare: None,
                guard: None,
            },
        });
        for at in [found.load, found.combine, found.store] {
            let old = insts_at(self.func, self.block, at);
            self.count(&old, false);
        }
        for inst in &fresh {
            self.count(inst, true);
        }
        let rebuilt = Inst {
            result: Some(found.new),
            op: combined(found),
        };
        if at_load || wanted {
            self.count(&rebuilt, true);
        }
        let insts = &mut self.func.blocks[self.block].insts;
        let mut out = Vec::with_capacity(found.store - found.load + fresh.len() + 1);
        let mut sunk = Vec::new();
        for (i, inst) in (found.load..).zip(insts.drain(found.load..=found.store)) {
            if i == found.load {
                if at_load {
                    out.append(&mut fresh);
                }
            } else if i == found.store {
                out.append(&mut fresh);
                if wanted && !at_load {
                    out.push(rebuilt.clone());
                }
                out.append(&mut sunk);
            } else if later.contains(&i) {
                sunk.push(inst);
            } else if i == found.combine {
                if at_load {
                    out.push(inst);
                }
            } else {
                out.push(inst);
            }
        }
        insts.splice(found.load..found.load, out);
        true
    }
}

/// `op` may write the `width` bytes at `at`, or orders memory.
fn may_write(op: &Op, at: Origin, width: Width) -> bool {
    // Values begin at multiples of their stride, so different fields never overlap, whatever the
    // keys.
    let apart = |other: Origin, other_width: Width| match (at.offset, other.offset) {
        _ if at.map != other.map => true,
        (Some(a), Some(b)) => {
            a + i64::from(width.bytes()) <= b || b + i64::from(other_width.bytes()) <= a
        }
        (None, _) | (_, None) => false,
    };
    match op {
        Op::Store {
            mem: Mem::Local | Mem::Record | Mem::Memory,
            ..
        } => false,
        Op::Store {
            mem: Mem::Map(other),
            width,
            ..
        } => !apart(*other, *width),
        Op::Atomic {
            origin: Some(other),
            order: Order::Relaxed,
            width,
            ..
        } => !apart(*other, *width),
        Op::Atomic {
            origin: None,
            order: Order::Relaxed,
            ..
        } => false,
        _ => op.effect() == Effect::Writes,
    }
}

/// A copy of an instruction.
fn insts_at(func: &Func, block: usize, at: usize) -> Inst {
    func.blocks[block].insts[at].clone()
}

/// The new value, rebuilt from the old one that the atomic returned.
fn combined(found: &Found) -> Op {
    let bin = match (found.op, found.subtract) {
        (Rmw::Add, true) => BinOp::Sub,
        (Rmw::And, _) => BinOp::And,
        (Rmw::Or, _) => BinOp::Or,
        (Rmw::Xor, _) => BinOp::Xor,
        (Rmw::Add | Rmw::Exch | Rmw::Cas, _) => BinOp::Add,
    };
    Op::Bin(bin, found.old, found.operand)
}
