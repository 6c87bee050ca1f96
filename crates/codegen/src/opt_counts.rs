//! Turns look-up, add, write back of one value of a hash into an atomic addition. bpftrace's
//! `count()`, `sum()`, `hist()` and `@x++` are compiled as
//!
//! ```text
//! p = lookup(map, key);  n = p ? *p + x : x;  update(map, key, n, BPF_ANY)
//! ```
//!
//! which is right where nobody comes in between, as on a CPU with values per CPU. On a GPU lanes
//! that look together see the same number. What they mean is one addition, and an insertion that
//! does not overwrite:
//!
//! ```text
//! p = lookup(map, key)
//! if (!p) {
//!     r = update(map, key, x, BPF_NOEXIST)        // counts x, or does nothing
//!     if (r != -EEXIST) goto done
//!     p = lookup(map, key)                        // another lane was first
//! }
//! if (p) atomic_add(p, x)
//! ```
//!
//! Later versions of bpftrace, and programs in C, add through the pointer where something was
//! found, and insert with `BPF_ANY` where nothing was: there it is the insertion alone that
//! overwrites, and it becomes the same.
//!
//! It is done only if what was looked up is used for nothing else, the key and the addend are the
//! same values on both ways, and the thread writes nothing that others can see in between: then
//! nobody can tell the two apart but by what is lost. A key that another thread deletes in between
//! takes the addition with it, as if it had come just before.

use warpbpf_abi::maps::{BPF_ANY, BPF_NOEXIST, EEXIST};
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::ir::{
    BinOp, Block, Cond, Edge, Effect, Func, HashOp, Inst, Mem, Op, Order, Origin, Rmw, Table, Term,
    Ty, Value,
};

/// Runs the pass.
pub fn run(func: &mut Func) {
    // Blocks that are added have no updates but those that insert.
    for block in 0..func.blocks.len() {
        let mut at = 0;
        while at < func.blocks[block].insts.len() {
            let is_update = matches!(
                func.blocks[block].insts[at].op,
                Op::Hash {
                    op: HashOp::Update,
                    ..
                }
            );
            let found = is_update.then(|| Search::new(func).find(Block::new(block), at));
            let found = found.flatten();
            match found {
                Some(found) => {
                    rewrite(func, &found);
                    break;
                }
                None => at += 1,
            }
        }
    }
}

/// The pattern.
struct Found {
    /// Where the update is.
    block: Block,
    at: usize,
    /// Address of the value, or null; `None` where it is null.
    pointer: Option<Value>,
    /// The look-up's and the update's arguments.
    table: Table,
    slot: Option<u32>,
    key: Vec<Value>,
    origin: Origin,
    addend: Addend,
}

/// What is added. It is there where the look-up is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addend {
    Value(Value),
    /// The constants of both ways are two values.
    Const(u64),
}

/// What is known of the function.
struct Search<'f> {
    func: &'f Func,
    flow: Flow,
    definitions: Vec<Option<Op>>,
    uses: Vec<u32>,
}

impl<'f> Search<'f> {
    fn new(func: &'f Func) -> Search<'f> {
        Search {
            func,
            flow: Flow::new(func),
            definitions: func.definitions(),
            uses: func.use_counts(),
        }
    }
}

/// An edge into the block of the update, and where it comes from.
struct Way<'f> {
    from: Block,
    edge: &'f Edge,
}

impl<'f> Search<'f> {
    fn insts(&self, block: Block) -> &'f [Inst] {
        &self.func.blocks[block.index()].insts
    }

    fn definition(&self, value: Value) -> Option<&Op> {
        self.definitions[value.index()].as_ref()
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.definition(value) {
            Some(Op::Const(number)) => Some(*number & self.func.ty(value).mask()),
            _ => None,
        }
    }

    fn are_same(&self, a: &[Value], b: &[Value]) -> bool {
        let same = |(a, b): (&Value, &Value)| {
            a == b || self.constant(*a).is_some() && self.constant(*a) == self.constant(*b)
        };
        a.len() == b.len() && a.iter().zip(b).all(same)
    }

    /// The pattern that ends in the instruction at `at`.
    fn find(&self, block: Block, at: usize) -> Option<Found> {
        let Op::Hash {
            op: HashOp::Update,
            table: table @ Table::Hash(layout),
            slot,
            args,
        } = &self.insts(block)[at].op
        else {
            return None;
        };
        let (&[base, flags], [key @ .., new]) = (args.first_chunk()?, args.get(2..)?) else {
            return None;
        };
        if layout.value_size != 8 || self.constant(flags) != Some(BPF_ANY) {
            return None;
        }
        let whole = [&[base], key].concat();
        let looked_up = |inst: &Inst, pointer: Value| {
            inst.result == Some(pointer)
                && matches!(&inst.op, Op::Hash { op: HashOp::Lookup, table: t, slot: s, args }
                    if t == table && s == slot && self.are_same(args, &whole))
        };
        let before = &self.insts(block)[..at];
        if let Some((from, pointer, origin, addend)) = self.insertion(block, *new) {
            let lookup = self
                .insts(from)
                .iter()
                .position(|i| looked_up(i, pointer))?;
            let mut between = self.insts(from)[lookup + 1..].iter().chain(before);
            return between.all(is_quiet).then_some(Found {
                block,
                at,
                pointer: None,
                table: *table,
                slot: *slot,
                key: whole,
                origin,
                addend,
            });
        }
        let (null, found, from) = self.ways(block)?;
        let (old, addend) = self.sum(block, *new, &null, &found)?;
        // Nothing else is made of what was looked up.
        let Some(Op::Load {
            mem: Mem::Map(origin),
            width: Width::W64,
            addr: pointer,
            off: 0,
            ..
        }) = self.definition(old)
        else {
            return None;
        };
        let lookup = self
            .insts(from)
            .iter()
            .position(|i| looked_up(i, *pointer))?;
        if self.uses[old.index()] != 1 || !self.decides(from, *pointer, null.edge) {
            return None;
        }
        let mut between = self.insts(from)[lookup + 1..].iter();
        let ways = [&null, &found].into_iter().filter(|way| way.from != from);
        let mut on_ways = ways.flat_map(|way| self.insts(way.from));
        if !between.all(is_quiet) || !on_ways.all(is_quiet) || !before.iter().all(is_quiet) {
            return None;
        }
        Some(Found {
            block,
            at,
            pointer: Some(*pointer),
            table: *table,
            slot: *slot,
            key: whole,
            origin: *origin,
            addend,
        })
    }

    /// `block` is where a look-up found nothing, and where it found something the same is added to
    /// it: where they part, what was looked up, and what is added to which bytes.
    fn insertion(&self, block: Block, new: Value) -> Option<(Block, Value, Origin, Addend)> {
        let mut preds = self.flow.preds(block);
        let from = preds.next().filter(|_| preds.next().is_none())?;
        let Term::Branch { cond, yes, no } = &self.func.blocks[from.index()].term else {
            return None;
        };
        let (null_if, a, b) = match self.definition(*cond)? {
            Op::Cmp(Cond::Eq, a, b) => (true, *a, *b),
            Op::Cmp(Cond::Ne, a, b) => (false, *a, *b),
            _ => return None,
        };
        let pointer = if self.constant(b) == Some(0) { a } else { b };
        let (null, found) = if null_if { (yes, no) } else { (no, yes) };
        if null.to != block || found.to == block || !self.decides(from, pointer, null) {
            return None;
        }
        let addend = self.addend(new);
        // One store, of what is loaded from there and the same.
        let mut stores = self
            .insts(found.to)
            .iter()
            .filter_map(|inst| match inst.op {
                Op::Store {
                    mem: Mem::Map(origin),
                    width: Width::W64,
                    addr,
                    off: 0,
                    value,
                } if addr == pointer => Some((origin, value)),
                _ => None,
            });
        let (origin, sum) = stores.next().filter(|_| stores.next().is_none())?;
        let Some(Op::Bin(BinOp::Add, a, b)) = self.definition(sum) else {
            return None;
        };
        let from_there = |value: Value| {
            matches!(self.definition(value), Some(Op::Load { mem: Mem::Map(_), width: Width::W64, addr, off: 0, .. })
                if *addr == pointer)
        };
        let adds = from_there(*a) && self.addend(*b) == addend
            || from_there(*b) && self.addend(*a) == addend;
        adds.then_some((from, pointer, origin, addend))
    }

    fn addend(&self, value: Value) -> Addend {
        let number = self.constant(value).map(Addend::Const);
        number.unwrap_or(Addend::Value(value))
    }

    /// The two ways into a block that part in one block, from which both come at once or through
    /// one block more: that where the branch found null, that where it did not, and where they
    /// part.
    fn ways(&self, block: Block) -> Option<(Way<'f>, Way<'f>, Block)> {
        let preds: Vec<Block> = self.flow.preds(block).collect();
        let &[a, b] = preds.as_slice() else {
            return None;
        };
        let only = |of: Block| {
            let mut preds = self.flow.preds(of);
            preds.next().filter(|_| preds.next().is_none())
        };
        let from = match (only(a), only(b)) {
            _ if a == b => return None,
            (_, Some(over)) if over == a => a,
            (Some(over), _) if over == b => b,
            (Some(one), Some(two)) if one == two => one,
            _ => return None,
        };
        let Term::Branch { cond, yes, no } = &self.func.blocks[from.index()].term else {
            return None;
        };
        let null_if = match self.definition(*cond)? {
            Op::Cmp(Cond::Eq, ..) => true,
            Op::Cmp(Cond::Ne, ..) => false,
            _ => return None,
        };
        let way = |edge: &'f Edge| {
            if edge.to == block {
                return Some(Way { from, edge });
            }
            match &self.func.blocks[edge.to.index()].term {
                Term::Jump(next) if next.to == block && preds.contains(&edge.to) => Some(Way {
                    from: edge.to,
                    edge: next,
                }),
                _ => None,
            }
        };
        let (yes, no) = (way(yes)?, way(no)?);
        Some(match null_if {
            true => (yes, no, from),
            false => (no, yes, from),
        })
    }

    /// The branch at the end of `from` asks whether `pointer` is null.
    fn decides(&self, from: Block, pointer: Value, null: &Edge) -> bool {
        let Term::Branch { cond, .. } = &self.func.blocks[from.index()].term else {
            return false;
        };
        let is_null = |value: Value| self.constant(value) == Some(0);
        let asks = match self.definition(*cond) {
            Some(Op::Cmp(Cond::Eq | Cond::Ne, a, b)) => {
                *a == pointer && is_null(*b) || *b == pointer && is_null(*a)
            }
            _ => false,
        };
        // Where it is null, it is nothing else's either.
        asks && !null.args.contains(&pointer)
    }

    /// What was loaded on the way on which something was found, and what is added to it on both.
    fn sum(
        &self,
        block: Block,
        new: Value,
        null: &Way<'_>,
        found: &Way<'_>,
    ) -> Option<(Value, Addend)> {
        let params = &self.func.blocks[block.index()].params;
        let place = |value: Value| params.iter().position(|param| *param == value);
        let used_once = |value: Value| self.uses[value.index()] == 1;
        if !used_once(new) {
            return None;
        }
        let is_loaded = |value: &Value| {
            matches!(
                self.definition(*value),
                Some(Op::Load {
                    mem: Mem::Map(_),
                    ..
                })
            )
        };
        let addend = |value: Value| self.addend(value);
        if let Some(place) = place(new) {
            // Added where something was found.
            let (first, sum) = (*null.edge.args.get(place)?, *found.edge.args.get(place)?);
            let Some(Op::Bin(BinOp::Add, a, b)) = self.definition(sum) else {
                return None;
            };
            let (old, added) = match (is_loaded(a), is_loaded(b)) {
                (true, false) => (*a, *b),
                (false, true) => (*b, *a),
                _ => return None,
            };
            let same = addend(first) == addend(added);
            return (same && used_once(sum)).then(|| (old, addend(first)));
        }
        // Added behind, to zero if nothing was found.
        let Some(Op::Bin(BinOp::Add, a, b)) = self.definition(new) else {
            return None;
        };
        let (param, added) = match (place(*a), place(*b)) {
            (Some(param), None) => (param, *b),
            (None, Some(param)) => (param, *a),
            _ => return None,
        };
        let (first, old) = (*null.edge.args.get(param)?, *found.edge.args.get(param)?);
        let fits = self.constant(first) == Some(0) && is_loaded(&old) && used_once(params[param]);
        fits.then(|| (old, addend(added)))
    }
}

/// Nobody else sees that it was executed.
fn is_quiet(inst: &Inst) -> bool {
    let own = matches!(
        inst.op,
        Op::Store {
            mem: Mem::Local,
            ..
        }
    );
    own || inst.op.effect() != Effect::Writes
}

fn rewrite(func: &mut Func, found: &Found) {
    let [insert, again, add, rest] = [(); 4].map(|()| func.add_block());
    let pointer = func.add_param(add, Ty::B64);
    let data = &mut func.blocks[found.block.index()];
    let behind = data.insts.split_off(found.at + 1);
    let update = data.insts.pop().and_then(|inst| inst.result);
    let term = std::mem::replace(&mut data.term, Term::Ret);
    let end = &mut func.blocks[rest.index()];
    (end.insts, end.term) = (behind, term);
    end.params.extend(update);
    let constant = |func: &mut Func, block: Block, number: u64| {
        let op = Op::Const(number);
        push(func, block, Ty::B64, op)
    };
    let zero = constant(func, found.block, 0);
    let addend = match found.addend {
        Addend::Value(value) => value,
        Addend::Const(number) => constant(func, found.block, number),
    };
    let flags = constant(func, insert, BPF_NOEXIST);
    let exists = constant(func, insert, EEXIST as u64);
    let edge = |to, args| Edge { to, args };
    let done = |result| edge(rest, update.map(|_| result).into_iter().collect());

    func.blocks[found.block.index()].term = match found.pointer {
        Some(pointer) => Term::Branch {
            cond: push(
                func,
                found.block,
                Ty::Pred,
                Op::Cmp(Cond::Ne, pointer, zero),
            ),
            yes: edge(add, vec![pointer]),
            no: edge(insert, Vec::new()),
        },
        None => Term::Jump(edge(insert, Vec::new())),
    };

    let (base, key) = (&found.key[..1], &found.key[1..]);
    let hash = |op, args| Op::Hash {
        op,
        table: found.table,
        slot: found.slot,
        args,
    };
    let args = [base, &[flags], key, &[addend]].concat();
    let inserted = push(func, insert, Ty::B64, hash(HashOp::Update, args));
    let other = push(func, insert, Ty::Pred, Op::Cmp(Cond::Eq, inserted, exists));
    func.blocks[insert.index()].term = Term::Branch {
        cond: other,
        yes: edge(again, Vec::new()),
        no: done(inserted),
    };

    let second = push(
        func,
        again,
        Ty::B64,
        hash(HashOp::Lookup, found.key.clone()),
    );
    let there = push(func, again, Ty::Pred, Op::Cmp(Cond::Ne, second, zero));
    func.blocks[again.index()].term = Term::Branch {
        cond: there,
        yes: edge(add, vec![second]),
        // Deleted meanwhile, and the addition with it.
        no: done(zero),
    };

    func.blocks[add.index()].insts.push(Inst {
        result: None,
        op: Op::Atomic {
            origin: Some(found.origin),
            op: Rmw::Add,
            order: Order::Relaxed,
            width: Width::W64,
            addr: pointer,
            off: 0,
            value: addend,
            compare: None,
            guard: None,
        },
    });
    func.blocks[add.index()].term = Term::Jump(done(zero));
}

fn push(func: &mut Func, block: Block, ty: Ty, op: Op) -> Value {
    let result = func.add_value(ty);
    let insts = &mut func.blocks[block.index()].insts;
    insts.push(Inst {
        result: Some(result),
        op,
    });
    result
}
