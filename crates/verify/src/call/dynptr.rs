//! Arguments that are dynptrs. As in Linux the proof knows where each is and what it stands for, so
//! that nobody but the helpers touches its bytes, and a record behind one is given back exactly
//! once.

use warpbpf_ebpf::Reg;

use super::argument::{Call, scalar_fact};
use crate::check::{memory_readable, memory_writable};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::stack::FRAME_BYTES;
use crate::domain::state::{DYNPTR, Dynptr, State};
use crate::env::{memory_region, place_of};
use crate::facts::ArgFact;
use crate::rule::Rule;

/// From where on the bytes of a sample can be pointed to.
const SAMPLE_OFFSET: &str =
    "a constant offset that is a multiple of 8 (`bpf_dynptr_read` takes any)";

/// The place on a stack that a pointer with a known offset points to.
fn slot_of(pointer: &Pointer) -> Option<(u32, i16)> {
    match (pointer.target, pointer.fixed()) {
        (Target::Stack(frame), Some(at))
            if !pointer.nullable && at % 8 == 0 && (-FRAME_BYTES..=-DYNPTR).contains(&at) =>
        {
            Some((frame, at as i16))
        }
        _ => None,
    }
}

/// The dynptr on a stack that a pointer points to.
pub fn pointed_to<'s>(state: &'s State, pointer: &Pointer) -> Option<&'s Dynptr> {
    let (frame, slot) = slot_of(pointer)?;
    state.dynptr_at(frame, slot)
}

impl Call<'_, '_> {
    /// A dynptr of any kind.
    pub(super) fn dynptr(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        match *self.state.reg(reg) {
            Value::Pointer(Pointer {
                target: Target::Dynptr { map, .. },
                ..
            }) => {
                let (def, _) = self.env.map(map)?;
                self.map = Some((map, def));
                self.is_sample = true;
                Ok(ArgFact::Sample)
            }
            Value::Pointer(pointer) => self.on_stack(i, reg, &pointer, "a dynptr"),
            Value::Number { .. } | Value::Nothing(_) => self.refuse(i, reg, "a dynptr".to_owned()),
        }
    }

    /// One whose record is given back.
    pub(super) fn dynptr_record(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let expected = "a dynptr that `bpf_ringbuf_reserve_dynptr` made";
        match *self.state.reg(reg) {
            Value::Pointer(pointer)
                if pointed_to(self.state, &pointer).is_some_and(|dynptr| dynptr.id != 0) =>
            {
                self.on_stack(i, reg, &pointer, expected)
            }
            _ => self.refuse(i, reg, expected.to_owned()),
        }
    }

    fn on_stack(
        &mut self,
        i: usize,
        reg: Reg,
        pointer: &Pointer,
        expected: &str,
    ) -> Result<ArgFact, Rule> {
        let Some((dynptr, place)) = pointed_to(self.state, pointer).zip(place_of(pointer)) else {
            return self.refuse(i, reg, expected.to_owned());
        };
        let map = dynptr.memory.map();
        let (def, _) = self.env.map(map)?;
        self.map = Some((map, def));
        self.touched.push(*pointer);
        self.memory = Some((memory_region(dynptr.memory), dynptr.align.into()));
        Ok(ArgFact::Pointer(place))
    }

    /// Where one is made.
    pub(super) fn dynptr_out(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let expected = format!("{DYNPTR} bytes of the stack, at a constant multiple of 8");
        match *self.state.reg(reg) {
            Value::Pointer(pointer) if slot_of(&pointer).is_some() => {
                memory_writable(self.env, self.state, reg, DYNPTR as u64, 8)
                    .map_err(|rule| self.memory_problem(i, expected, rule))?;
                self.pointer_fact(i, reg, pointer)
            }
            _ => self.refuse(i, reg, expected),
        }
    }

    /// What one is made of.
    pub(super) fn dynptr_memory(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let size = self.size(i + 1)?.u64.max;
        let Value::Pointer(
            pointer @ Pointer {
                target: Target::MapValue(map),
                ..
            },
        ) = *self.state.reg(reg)
        else {
            return self.refuse(i, reg, "a value of a map".to_owned());
        };
        // Through it programs read and write.
        memory_writable(self.env, self.state, reg, size, 1)
            .and_then(|_| memory_readable(self.env, self.state, reg, size))
            .map_err(|rule| {
                let expected = format!("{size} writable bytes of a map's value");
                self.memory_problem(i, expected, rule)
            })?;
        let (def, _) = self.env.map(map)?;
        self.map = Some((map, def));
        self.pointer_fact(i, reg, pointer)
    }

    /// From where on `bpf_dynptr_data` points.
    pub(super) fn data_offset(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        if !self.is_sample {
            return self.number(i, reg, "a number").map(|s| scalar_fact(&s));
        }
        let offset = self.number(i, reg, SAMPLE_OFFSET)?;
        match offset.known() {
            Some(at) if at % 8 == 0 && at <= u64::from(u32::MAX) => Ok(scalar_fact(&offset)),
            _ => self.refuse(i, reg, SAMPLE_OFFSET.to_owned()),
        }
    }
}
