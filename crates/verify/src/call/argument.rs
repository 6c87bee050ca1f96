//! One argument of a call: what it may be, and what is said of one that is something else.

use std::sync::Arc;

use warpbpf_abi::format::Spec;
use warpbpf_abi::helpers::{Arg, Helper};
use warpbpf_ebpf::Reg;
use warpbpf_object::MapDef;

use crate::check::{memory_readable, readable};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::env::{Env, place_of};
use crate::facts::{ArgFact, Region};
use crate::rule::Rule;

/// How many values `bpf_trace_printk` takes.
pub(super) const PRINTK_VALUES: usize = 3;

/// Where to look what an argument must be.
pub(super) const PROTOTYPE: &str = "see the helper's prototype in `warpbpf.h`";

/// The memory that a call reads or writes, for the stack's depth.
pub type Touched = Vec<Pointer>;

/// A call that is being checked.
pub(super) struct Call<'a, 's> {
    pub(super) env: &'s Env<'a>,
    pub(super) state: &'s State,
    pub(super) helper: &'static Helper,
    /// The map argument seen so far.
    pub(super) map: Option<(u32, &'a MapDef)>,
    /// The dynptr argument seen so far is that of a sample.
    pub(super) is_sample: bool,
    /// Or what it stands for.
    pub(super) memory: Option<(Region, u32)>,
    /// What the format asks for.
    pub(super) format: Vec<Spec>,
    /// The maps of its strings in memory.
    pub(super) strings: Vec<u32>,
    /// The constant string.
    pub(super) text: Option<Arc<[u8]>>,
    pub(super) touched: Touched,
}

impl Call<'_, '_> {
    pub(super) fn refuse<T>(&self, i: usize, reg: Reg, expected: String) -> Result<T, Rule> {
        let is_number = self.state.reg(reg).scalar().is_some();
        Err(Rule::Argument {
            helper: self.helper.name,
            index: i + 1,
            reg: reg.to_string(),
            expected,
            found: self.env.value(self.state.reg(reg)),
            advice: match self.helper.args[i] {
                Arg::MapKey if is_number => "pass its address: `&key`, of a variable that holds it",
                Arg::MapValue | Arg::MapValueOut if is_number => {
                    "pass its address: `&value`, of a variable that holds it"
                }
                Arg::MemRead
                | Arg::MemReadOrNull
                | Arg::MemWrite
                | Arg::U64Out
                | Arg::Values
                | Arg::Dynptr
                | Arg::DynptrOut
                | Arg::DynptrRecord
                    if is_number =>
                {
                    "pass the address of a variable: `&x`"
                }
                Arg::Map if is_number => "pass the map's address: `&map`",
                _ => PROTOTYPE,
            },
        })
    }

    pub(super) fn memory_problem(&self, i: usize, expected: String, problem: Rule) -> Rule {
        match problem {
            // Being null or empty is the argument's own fault; the rest is about the memory behind
            // it.
            Rule::MaybeNull { .. } | Rule::Uninitialised { .. } => problem,
            problem => Rule::Memory {
                helper: self.helper.name,
                index: i + 1,
                expected,
                problem: Box::new(problem),
            },
        }
    }

    pub(super) fn number(&self, i: usize, reg: Reg, expected: &str) -> Result<Scalar, Rule> {
        match self.state.reg(reg).scalar() {
            Some(scalar) => Ok(*scalar),
            None => self.refuse(i, reg, expected.to_owned()),
        }
    }

    /// The size in argument `i`: at least 1 (or 0 where that is allowed), and no larger than any
    /// region is, so that it can be an offset.
    pub(super) fn size(&self, i: usize) -> Result<Scalar, Rule> {
        let Some(reg) = Reg::new(i as u8 + 1) else {
            return Ok(Scalar::UNKNOWN);
        };
        readable(self.env, self.state, reg)?;
        let size = self.number(i, reg, "a size")?;
        let least = match self.helper.args[i] {
            Arg::SizeOrZero => 0,
            _ => 1,
        };
        if size.u64.min < least || size.u64.max > u64::from(u32::MAX) {
            return self.refuse(
                i,
                reg,
                format!("a size of at least {least} with a known upper bound"),
            );
        }
        Ok(size)
    }

    pub(super) fn memory(
        &mut self,
        i: usize,
        reg: Reg,
        size: u64,
        expected: String,
    ) -> Result<ArgFact, Rule> {
        if !matches!(self.state.reg(reg), Value::Pointer(_)) {
            return self.refuse(i, reg, expected);
        }
        let pointer = memory_readable(self.env, self.state, reg, size)
            .map_err(|rule| self.padding(i, reg, size, rule))
            .map_err(|rule| self.wrong_size(i, reg, size, rule))
            .map_err(|rule| match rule {
                rule @ (Rule::WrongSize { .. } | Rule::Padding { .. }) => rule,
                rule => self.memory_problem(i, expected, rule),
            })?;
        self.pointer_fact(i, reg, pointer)
    }

    /// Bytes behind a field that fill up to where the next one, or the end, is aligned, in a
    /// variable of the running function or of one that called it.
    pub(super) fn padding(&self, i: usize, reg: Reg, size: u64, problem: Rule) -> Rule {
        let (Rule::StackUninitialised { byte, .. }, Value::Pointer(p)) =
            (&problem, self.state.reg(reg))
        else {
            return problem;
        };
        let byte = *byte;
        let (Target::Stack(depth), Some(start)) = (p.target, p.fixed()) else {
            return problem;
        };
        let Some(frame) = self.state.frames.get(depth as usize) else {
            return problem;
        };
        let called = self.state.frames.get(depth as usize + 1);
        let end = start.saturating_add_unsigned(size).min(0);
        let next = (byte..end).find(|&at| frame.stack.is_written(at));
        let next = next.unwrap_or(end);
        let bytes = next.abs_diff(byte);
        // It is less than what it is aligned to, and less than half of the variable: else it may be
        // all of a field.
        let aligned = 1 << (next | 8).trailing_zeros();
        if byte > start && bytes < aligned && 2 * bytes < size {
            return Rule::Padding {
                helper: self.helper.name,
                index: i + 1,
                offset: byte,
                bytes,
                caller: called.map(|frame| frame.return_to),
            };
        }
        problem
    }

    /// A key or value of which only the first bytes are there is one of another size.
    pub(super) fn wrong_size(&self, i: usize, reg: Reg, wants: u64, problem: Rule) -> Rule {
        let what = match self.helper.args[i] {
            Arg::MapKey => "key",
            Arg::MapValue | Arg::MapValueOut => "value",
            _ => return problem,
        };
        let (
            Rule::OutOfBounds { .. } | Rule::StackUninitialised { .. },
            Some((_, def)),
            Value::Pointer(p),
        ) = (&problem, self.map, self.state.reg(reg))
        else {
            return problem;
        };
        let (start, bytes) = self.env.bounds(p.target);
        let Some(at) = p.fixed().filter(|at| *at >= start) else {
            return problem;
        };
        let end = start.saturating_add_unsigned(bytes);
        let has = match p.target {
            Target::Stack(frame) => {
                let Some(frame) = self.state.frames.get(frame as usize) else {
                    return problem;
                };
                let wanted = at..at.saturating_add_unsigned(wants).min(end);
                let is_there = |at: &i64| frame.stack.is_written(*at);
                let has = wanted.clone().take_while(is_there).count();
                // With something behind it, it is a gap.
                if wanted.skip(has).any(|at| is_there(&at)) {
                    return problem;
                }
                has as u64
            }
            _ => u64::try_from(end - at).unwrap_or(0),
        };
        match has {
            1.. if has < wants => Rule::WrongSize {
                helper: self.helper.name,
                index: i + 1,
                what,
                map: def.name.clone(),
                has,
                wants,
            },
            _ => problem,
        }
    }

    pub(super) fn pointer_fact(
        &mut self,
        i: usize,
        reg: Reg,
        pointer: Pointer,
    ) -> Result<ArgFact, Rule> {
        self.touched.push(pointer);
        match place_of(&pointer) {
            Some(place) => Ok(ArgFact::Pointer(place)),
            None => self.refuse(i, reg, "a pointer to memory".to_owned()),
        }
    }
}

pub(super) fn next(reg: Reg) -> Reg {
    Reg::new(reg.index() as u8 + 1).unwrap_or(reg)
}

pub(super) fn scalar_fact(scalar: &Scalar) -> ArgFact {
    ArgFact::Scalar {
        value: scalar.known(),
        max: scalar.u64.max,
    }
}
