//! The whole machine at a point of one path: call frames, their registers and stacks, and unreleased records.

use std::collections::BTreeMap;

use warpbpf_ebpf::{Pc, Reg};

use super::pointer::{Id, Pointer, Target, Value, Why};
use super::scalar::Scalar;
use super::stack::Stack;

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

/// The machine at a point of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The call frames, the running one last. Never empty.
    pub frames: Vec<Frame>,
    /// Records that must still be given back.
    pub held: Vec<Held>,
    next_id: Id,
}

impl State {
    /// At the start of the entry function: the context in `r1`.
    pub fn entry() -> State {
        let mut frame = Frame::new(0, 0, Pc(0));
        frame.regs[Reg::R1.index()] = Value::pointer(Target::Context);
        State {
            frames: vec![frame],
            held: Vec::new(),
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
        if let Value::Number { scalar, id: 0 } = *self.reg(reg)
            && scalar.known().is_none()
        {
            let id = self.fresh_id();
            self.set(reg, Value::Number { scalar, id });
        }
        *self.reg(reg)
    }

    /// Every value there is: registers and spilled ones, of all frames.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.frames
            .iter_mut()
            .flat_map(|f| f.regs.iter_mut().chain(f.stack.values_mut()))
    }

    /// A branch taught that `reg` is `scalar`: so are its copies.
    pub fn learn(&mut self, reg: Reg, scalar: Scalar) {
        let Value::Number { id, .. } = *self.reg(reg) else {
            return;
        };
        self.set(reg, Value::Number { scalar, id });
        if id == 0 {
            return;
        }
        for value in self.values_mut() {
            if let Value::Number {
                scalar: old,
                id: other,
            } = value
                && *other == id
            {
                *old = scalar;
            }
        }
    }

    /// A branch taught whether the nullable pointer `id` is null: so are its copies. A null record is not held.
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

    /// The running frame returns: pointers into its stack are gone.
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        let depth = self.frames.len() as u32;
        for value in self.values_mut() {
            if matches!(value, Value::Pointer(p) if p.target == Target::Stack(depth)) {
                *value = Value::Nothing(Why::FrameGone);
            }
        }
        Some(frame)
    }

    /// Drops ids of numbers that have no copy: they tie nothing, and would make equal states look different.
    pub fn drop_lone_ids(&mut self) {
        let mut holders: BTreeMap<Id, u32> = BTreeMap::new();
        for value in self.values_mut() {
            if let Value::Number { id, .. } = value
                && *id != 0
            {
                *holders.entry(*id).or_default() += 1;
            }
        }
        for value in self.values_mut() {
            if let Value::Number { id, .. } = value
                && holders.get(id) == Some(&1)
            {
                *id = 0;
            }
        }
    }

    /// Everything that can happen from `other` can happen from here, so `other` need not be followed.
    pub fn covers(&self, other: &State) -> bool {
        if self.frames.len() != other.frames.len() || self.held.len() != other.held.len() {
            return false;
        }
        let mut ids = Ids::default();
        for (a, b) in self.frames.iter().zip(&other.frames) {
            if a.instance != b.instance {
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
        self.held.iter().all(|a| {
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
            (Value::Number { scalar: a, id: ia }, Value::Number { scalar: b, id: ib }) => {
                // Tied numbers here must be tied there: what follows may rely on them being equal.
                b.is_subset(a) && (*ia == 0 || *ib != 0 && self.agree(*ia, *ib))
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
