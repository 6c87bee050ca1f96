//! The whole machine at a point of one path: call frames, their registers and stacks, and
//! unreleased records.

use std::collections::BTreeMap;

use warpbpf_abi::costs::DYNPTR_BYTES;
use warpbpf_ebpf::{Pc, Reg};

use super::pointer::{Id, Memory, Pointer, Target, Value, Why};
use super::scalar::Scalar;
use super::stack::Stack;
use crate::event::Token;

/// One call frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Which instance runs in it: an index of [`crate::Facts::instances`].
    pub instance: usize,
    /// Where the caller goes on.
    pub return_to: Pc,
    /// The registers; in a caller's frame as they were at the call.
    pub regs: [Value; Reg::COUNT],
    /// Its stack.
    pub stack: Stack,
    /// The helper that it is calling, if that calls back.
    pub looping: Option<Looping>,
}

impl Frame {
    /// An empty frame at call depth `depth`.
    pub fn new(instance: usize, depth: u32, return_to: Pc) -> Frame {
        let mut regs = [Value::Nothing(Why::NeverWritten); Reg::COUNT];
        regs[Reg::FP.index()] = Value::pointer(Target::Stack(depth));
        Frame {
            instance,
            return_to,
            regs,
            stack: Stack::default(),
            looping: None,
        }
    }
}

/// A record that must still be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The id of its pointers.
    pub id: Id,
    /// Where it was reserved.
    pub reserved_at: Pc,
    /// Its ring buffer.
    pub map: u32,
}

/// An iterator over numbers in 8 bytes of the stack, between `bpf_iter_num_new` and
/// `bpf_iter_num_destroy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iter {
    /// Call depth of its stack.
    pub frame: u32,
    /// Where it is, from the frame pointer; a multiple of 8.
    pub slot: i16,
    /// The instance and instruction that made it.
    pub made_at: (usize, Pc),
    /// It gives numbers from here
    pub low: i64,
    /// to below this.
    pub high: i64,
    /// The end lies at this or above.
    pub least_end: i64,
    /// The number that it gives next, where it is counted exactly.
    pub next: Option<i64>,
    /// It gives no more.
    pub drained: bool,
}

impl Iter {
    /// What the number that it gave last can be.
    pub fn given(&self) -> Scalar {
        let (low, high) = match self.next {
            // At the end the number is 0.
            _ if self.drained => (self.low.min(0), (self.high - 1).max(0)),
            Some(next) => (next - 1, next - 1),
            None => (self.low, self.high - 1),
        };
        Scalar::signed_range(low, high).zero_extend(32)
    }

    fn covers(&self, other: &Iter) -> bool {
        (self.frame, self.slot, self.made_at, self.drained)
            == (other.frame, other.slot, other.made_at, other.drained)
            && self.next == other.next
            && self.low <= other.low
            && self.high >= other.high
            && self.least_end <= other.least_end
    }
}

/// Bytes of the stack that a dynptr takes.
pub const DYNPTR: i64 = DYNPTR_BYTES as i64;

/// A dynptr on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dynptr {
    /// Call depth of its stack.
    pub frame: u32,
    /// Where it is, from the frame pointer; a multiple of 8.
    pub slot: i16,
    /// The instruction that made it.
    pub made_at: Pc,
    /// What it stands for.
    pub memory: Memory,
    /// Its first byte is at a multiple of this.
    pub align: u8,
    /// Of a record: its name among those that are held. Else 0.
    pub id: Id,
}

impl Dynptr {
    fn is_at(&self, frame: u32, slot: i16) -> bool {
        (self.frame, self.slot) == (frame, slot)
    }
}

/// What a callback is called with, besides what the program gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// The number of the call.
    Number,
    /// An element of this map.
    Element(u32),
    /// A sample of this ring buffer.
    Sample(u32),
}

/// A helper that calls back, between two calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looping {
    /// The function.
    pub function: Pc,
    /// What it is called with.
    pub given: Given,
    /// Calls made, where they are counted exactly.
    pub done: Option<u32>,
    /// If no call ends it, there are so many calls at least
    pub least: u32,
    /// and at most.
    pub most: u32,
    /// It may refuse to call at all, and say so.
    pub may_fail: bool,
    /// What the callback gets last.
    pub context: Value,
    /// How many records are held.
    pub held: usize,
}

/// The machine at a point of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The call frames, the running one last. Never empty.
    pub frames: Vec<Frame>,
    /// Records that must still be given back.
    pub held: Vec<Held>,
    /// Iterators that must still be destroyed.
    pub iters: Vec<Iter>,
    /// Dynptrs on the stacks.
    pub dynptrs: Vec<Dynptr>,
    next_id: Id,
}

impl State {
    /// At the start of the entry function: the context in `r1`, or memory in `r1` and its size in
    /// `r2`.
    pub fn entry(memory: Option<u32>) -> State {
        let mut frame = Frame::new(0, 0, Pc(0));
        match memory {
            None => frame.regs[Reg::R1.index()] = Value::pointer(Target::Context),
            Some(bytes) => {
                frame.regs[1] = Value::pointer(Target::Memory(bytes));
                frame.regs[2] = Value::constant(u64::from(bytes));
            }
        }
        State {
            frames: vec![frame],
            held: Vec::new(),
            iters: Vec::new(),
            dynptrs: Vec::new(),
            next_id: 1,
        }
    }

    /// The running frame.
    pub fn top(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    /// The running frame, to change.
    pub fn top_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Call depth of the running frame.
    pub fn depth(&self) -> u32 {
        self.frames.len() as u32 - 1
    }

    /// A register of the running frame.
    pub fn reg(&self, reg: Reg) -> &Value {
        &self.top().regs[reg.index()]
    }

    /// Writes a register of the running frame.
    pub fn set(&mut self, reg: Reg, value: Value) {
        self.top_mut().regs[reg.index()] = value;
    }

    /// An id that nothing has.
    pub fn fresh_id(&mut self) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The value of a register, given an id if it is a number that copies can be tied to.
    pub fn tie(&mut self, reg: Reg) -> Value {
        if let Value::Number { scalar, id: 0, .. } = *self.reg(reg)
            && scalar.known().is_none()
        {
            let id = self.fresh_id();
            let plus = 0;
            self.set(reg, Value::Number { scalar, id, plus });
        }
        *self.reg(reg)
    }

    /// Every value there is: registers and spilled ones of all frames, and what callbacks are to
    /// get.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.frames.iter_mut().flat_map(|f| {
            let context = f.looping.as_mut().map(|l| &mut l.context);
            f.regs.iter_mut().chain(f.stack.values_mut()).chain(context)
        })
    }

    /// The iterator that has one of the bytes `start..end` of the stack at call depth `frame`.
    pub fn iter_in(&self, frame: u32, start: i64, end: i64) -> Option<&Iter> {
        self.iters.iter().find(|iter| {
            iter.frame == frame && i64::from(iter.slot) < end && start < i64::from(iter.slot) + 8
        })
    }

    /// The dynptrs that have one of the bytes `start..end` of the stack at call depth `frame`.
    pub fn dynptrs_in(&self, frame: u32, start: i64, end: i64) -> impl Iterator<Item = &Dynptr> {
        self.dynptrs.iter().filter(move |dynptr| {
            let slot = i64::from(dynptr.slot);
            dynptr.frame == frame && start < end && slot < end && start < slot + DYNPTR
        })
    }

    /// The dynptr at a place of the stack.
    pub fn dynptr_at(&self, frame: u32, slot: i16) -> Option<&Dynptr> {
        self.dynptrs.iter().find(|d| d.is_at(frame, slot))
    }

    /// The bytes `start..end` of a stack are written: dynptrs that had one of them are no more. A
    /// record behind one stays held, and nobody can give it back then: the check refuses to write
    /// over such a dynptr.
    pub fn overwrite_dynptrs(&mut self, frame: u32, start: i64, end: i64) {
        let gone: Vec<Dynptr> = self.dynptrs_in(frame, start, end).copied().collect();
        for dynptr in gone {
            self.forget_dynptr(dynptr, Why::DynptrGone);
        }
    }

    /// The dynptr's record was given back at `pc`: both are no more.
    pub fn release_dynptr(&mut self, dynptr: Dynptr, pc: Pc) {
        self.held.retain(|h| h.id != dynptr.id);
        self.forget_dynptr(dynptr, Why::Released(pc));
    }

    /// The dynptr is no more: pointers to its bytes are gone.
    fn forget_dynptr(&mut self, dynptr: Dynptr, why: Why) {
        let Dynptr { frame, slot, .. } = dynptr;
        self.dynptrs.retain(|d| !d.is_at(frame, slot));
        for value in self.values_mut() {
            if let Value::Pointer(Pointer {
                target:
                    Target::Slice {
                        frame: of,
                        slot: at,
                        ..
                    },
                ..
            }) = *value
                && dynptr.is_at(of, at)
            {
                *value = Value::Nothing(why);
            }
        }
    }

    /// The state itself says how often this token was taken.
    pub fn counts_exactly(&self, token: Token) -> bool {
        match token {
            Token::MayGoto(_) => false,
            Token::Callback(instance, _) => self.frames.iter().any(|frame| {
                frame.instance == instance
                    && frame.looping.is_some_and(|looping| looping.done.is_some())
            }),
            Token::Iterator(instance, pc, frame, slot) => self.iters.iter().any(|iter| {
                (iter.made_at, iter.frame, iter.slot) == ((instance, pc), frame, slot)
                    && iter.next.is_some()
            }),
        }
    }

    /// The iterator in this slot is destroyed at `pc`: pointers to its number are gone.
    pub fn destroy(&mut self, frame: u32, slot: i16, pc: Pc) {
        self.iters.retain(|i| (i.frame, i.slot) != (frame, slot));
        let gone = Target::Number { frame, slot };
        for value in self.values_mut() {
            if matches!(value, Value::Pointer(p) if p.target == gone) {
                *value = Value::Nothing(Why::Destroyed(pc));
            }
        }
    }

    /// A branch taught that `reg` is `scalar`: so are its copies.
    pub fn learn(&mut self, reg: Reg, scalar: Scalar) {
        let Value::Number { id, plus, .. } = *self.reg(reg) else {
            return;
        };
        self.set(reg, Value::Number { scalar, id, plus });
        if id == 0 {
            return;
        }
        for value in self.values_mut() {
            if let Value::Number {
                scalar: old,
                id: other,
                plus: more,
            } = value
                && *other == id
            {
                let apart = Scalar::constant(more.wrapping_sub(plus) as u64);
                // They cannot contradict each other, and if they did then either is right.
                let new = scalar.plus(&apart);
                *old = if *more == plus {
                    scalar
                } else {
                    old.meet(&new).unwrap_or(new)
                };
            }
        }
    }

    /// A branch taught whether the nullable pointer `id` is null: so are its copies. A null record
    /// is not held.
    pub fn learn_null(&mut self, id: Id, null: bool) {
        if null {
            self.held.retain(|h| h.id != id);
        }
        for value in self.values_mut() {
            let Value::Pointer(p) = value else { continue };
            if !p.nullable || p.id != id {
                continue;
            }
            if null {
                *value = Value::constant(0);
            } else {
                let keeps_id = matches!(p.target, Target::Record { .. });
                *p = Pointer {
                    nullable: false,
                    id: if keeps_id { id } else { 0 },
                    ..*p
                };
            }
        }
    }

    /// The record `id` was given back at `pc`: its pointers are gone.
    pub fn release(&mut self, id: Id, pc: Pc) {
        self.held.retain(|h| h.id != id);
        for value in self.values_mut() {
            if matches!(value, Value::Pointer(p) if p.id == id && matches!(p.target, Target::Record { .. }))
            {
                *value = Value::Nothing(Why::Released(pc));
            }
        }
    }

    /// The running frame returns: pointers into its stack are gone, and those to the sample that it
    /// was called for or to bytes of its dynptrs.
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        let depth = self.frames.len() as u32;
        self.dynptrs.retain(|dynptr| dynptr.frame != depth);
        for value in self.values_mut() {
            let Value::Pointer(p) = value else { continue };
            if let Target::Stack(frame)
            | Target::Dynptr { frame, .. }
            | Target::Sample { frame, .. }
            | Target::Slice { frame, .. } = p.target
                && frame == depth
            {
                *value = Value::Nothing(Why::FrameGone);
            }
        }
        Some(frame)
    }

    /// Drops ids of numbers that have no copy: they tie nothing, and would make equal states look
    /// different.
    pub fn drop_lone_ids(&mut self) {
        // How many hold each, and what was added to each of them at least.
        let mut holders: BTreeMap<Id, (u32, i64)> = BTreeMap::new();
        for value in self.values_mut() {
            if let Value::Number { id, plus, .. } = value
                && *id != 0
            {
                let (count, least) = holders.entry(*id).or_insert((0, *plus));
                *count += 1;
                *least = (*least).min(*plus);
            }
        }
        for value in self.values_mut() {
            if let Value::Number { id, plus, .. } = value
                && let Some((count, least)) = holders.get(id)
            {
                *plus -= least;
                if *count == 1 {
                    *id = 0;
                }
            }
        }
    }

    /// What it takes to keep: the registers and stored values of all frames.
    pub fn size(&self) -> usize {
        let frame = |frame: &Frame| frame.regs.len() + frame.stack.count();
        self.frames.iter().map(frame).sum()
    }

    /// Everything that can happen from `other` can happen from here, so `other` need not be
    /// followed.
    pub fn covers(&self, other: &State) -> bool {
        if self.frames.len() != other.frames.len()
            || self.held.len() != other.held.len()
            || self.iters.len() != other.iters.len()
            || self.dynptrs.len() != other.dynptrs.len()
        {
            return false;
        }
        let mut ids = Ids::default();
        for (a, b) in self.frames.iter().zip(&other.frames) {
            if a.instance != b.instance {
                return false;
            }
            let helper = match (&a.looping, &b.looping) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    (a.function, a.given, a.done, a.held) == (b.function, b.given, b.done, b.held)
                        && (a.may_fail || !b.may_fail)
                        && a.least <= b.least
                        && a.most >= b.most
                        && ids.value_covers(&a.context, &b.context)
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            if !helper {
                return false;
            }
            if !a
                .regs
                .iter()
                .zip(&b.regs)
                .all(|(a, b)| ids.value_covers(a, b))
            {
                return false;
            }
            if !a.stack.covers(&b.stack, |a, b| ids.value_covers(a, b)) {
                return false;
            }
        }
        let iters = self
            .iters
            .iter()
            .all(|a| other.iters.iter().any(|b| a.covers(b)));
        let dynptrs = self.dynptrs.iter().all(|a| {
            other.dynptr_at(a.frame, a.slot).is_some_and(|b| {
                (a.memory, a.align) == (b.memory, b.align)
                    && (a.id == 0 && b.id == 0 || ids.agree(a.id, b.id))
            })
        });
        iters
            && dynptrs
            && self.held.iter().all(|a| {
                other
                    .held
                    .iter()
                    .any(|b| a.map == b.map && ids.agree(a.id, b.id))
            })
    }
}

/// Which id there stands for which id here.
#[derive(Default)]
struct Ids {
    there: BTreeMap<Id, Id>,
    here: BTreeMap<Id, Id>,
}

impl Ids {
    /// Ids correspond one to one.
    fn agree(&mut self, here: Id, there: Id) -> bool {
        *self.there.entry(here).or_insert(there) == there
            && *self.here.entry(there).or_insert(here) == here
    }

    fn value_covers(&mut self, here: &Value, there: &Value) -> bool {
        match (here, there) {
            (Value::Nothing(_), _) => true,
            (
                Value::Number {
                    scalar: a,
                    id: ia,
                    plus: pa,
                },
                Value::Number {
                    scalar: b,
                    id: ib,
                    plus: pb,
                },
            ) => {
                // Tied numbers here must be tied there: what follows may rely on them being equal.
                b.is_subset(a) && (*ia == 0 || *ib != 0 && pa == pb && self.agree(*ia, *ib))
            }
            (Value::Pointer(a), Value::Pointer(b)) => {
                a.target == b.target
                    && a.nullable == b.nullable
                    && b.offset.is_subset(&a.offset)
                    && (a.id == 0 && b.id == 0 || self.agree(a.id, b.id))
            }
            (Value::Number { .. } | Value::Pointer(_), _) => false,
        }
    }
}
