//! Helper calls: each argument against the helper's row of the table. What the call does is in
//! [`crate::effect`].

mod argument;
mod dynptr;
mod strings;

pub use self::dynptr::pointed_to;

use warpbpf_abi::costs::CALL_WORDS;
use warpbpf_abi::format::Conversion;
use warpbpf_abi::helpers::{Arg, Effect, Helper, HelperId, Warp, takes};
use warpbpf_abi::linux;
use warpbpf_abi::maps::{MAP_TYPES, MapType};
use warpbpf_ebpf::Reg;
use warpbpf_object::MapDef;

use self::argument::{Call, Touched, next, scalar_fact};
use crate::check::{memory_readable, memory_writable, readable};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::env::Env;
use crate::facts::{ArgFact, CallFact, INNER};
use crate::rule::Rule;

/// Arguments of `bpf_trace_printk` before its values.
const PRINTK_BEFORE: usize = 2;
/// Which argument of `bpf_probe_read` is the address, counted from 0; its size is the one before.
const SOURCE: usize = 2;

/// Checks a call of helper `id` in `state`.
pub fn check_call<'a>(
    env: &Env<'a>,
    state: &State,
    id: u32,
) -> Result<(&'static Helper, CallFact, Touched), Rule> {
    let helper = env.platform.helper(id).ok_or_else(|| unknown(env, id))?;
    if helper.effect == Effect::Modify && !env.platform.allow_modify {
        return Err(Rule::Modifies {
            helper: helper.name,
        });
    }
    let mut call = Call {
        env,
        state,
        helper,
        map: None,
        is_sample: false,
        memory: None,
        format: Vec::new(),
        strings: Vec::new(),
        text: None,
        touched: Vec::new(),
    };
    let mut args = [ArgFact::Unused; 5];
    for (i, slot) in args.iter_mut().enumerate() {
        *slot = call.argument(i)?;
    }
    let fact = CallFact {
        helper: helper.kind,
        map: call.map.map(|(index, _)| index),
        args,
        memory: call.memory,
        strings: (!call.strings.is_empty()).then(|| call.strings.as_slice().into()),
        text: call.text.take(),
    };
    Ok((helper, fact, call.touched))
}

fn unknown(env: &Env<'_>, id: u32) -> Rule {
    match linux::name(id) {
        Some(name) => Rule::LinuxHelper {
            id,
            name,
            advice: linux::advice(id),
        },
        None => Rule::UnknownHelper {
            id,
            known: env
                .platform
                .helpers
                .iter()
                .map(|h| format!("{} ({})", h.name, h.id))
                .collect::<Vec<_>>()
                .join(", "),
        },
    }
}

impl<'a> Call<'a, '_> {
    /// Argument `i`, counted from 0.
    fn argument(&mut self, i: usize) -> Result<ArgFact, Rule> {
        let kind = self.helper.args[i];
        let Some(reg) = Reg::new(i as u8 + 1) else {
            return Ok(ArgFact::Unused);
        };
        let is_value = self.helper.kind == HelperId::TracePrintk && kind == Arg::Scalar;
        let value = match i.checked_sub(PRINTK_BEFORE) {
            Some(n) if is_value => self.format.get(n).copied(),
            _ => None,
        };
        if kind == Arg::None || is_value && value.is_none() {
            return Ok(ArgFact::Unused);
        }
        readable(self.env, self.state, reg)?;
        if value.is_some_and(|spec| spec.conversion == Conversion::String) {
            return self.some_constant_string(i, reg);
        }
        match kind {
            Arg::None => Ok(ArgFact::Unused),
            Arg::Scalar if self.helper.kind == HelperId::DynptrData => self.data_offset(i, reg),
            Arg::Scalar if self.helper.kind.copies_memory() && i == SOURCE => self.source(i, reg),
            Arg::Scalar => self.number(i, reg, "a number").map(|s| scalar_fact(&s)),
            Arg::Dynptr => self.dynptr(i, reg),
            Arg::DynptrOut => self.dynptr_out(i, reg),
            Arg::DynptrRecord => self.dynptr_record(i, reg),
            Arg::DynptrMemory => self.dynptr_memory(i, reg),
            Arg::Map => self.map_argument(i, reg),
            Arg::MapKey => {
                let (size, what) = self.map.map_or((0, String::new()), |(_, def)| {
                    (
                        def.key_size,
                        format!("a key of map `{}` ({} bytes)", def.name, def.key_size),
                    )
                });
                self.memory(i, reg, u64::from(size), what)
            }
            Arg::MapValue => {
                let (size, what) = self.map.map_or((0, String::new()), |(_, def)| {
                    (
                        def.value_size,
                        format!("a value of map `{}` ({} bytes)", def.name, def.value_size),
                    )
                });
                self.memory(i, reg, u64::from(size), what)
            }
            Arg::MapValueOut => self.value_out(i, reg),
            Arg::MemReadOrNull
                if self.state.reg(reg).scalar().and_then(Scalar::known) == Some(0)
                    && self.size(i + 1)?.known() == Some(0) =>
            {
                Ok(ArgFact::Unused)
            }
            Arg::MemRead | Arg::MemReadOrNull => {
                let size = self.size(i + 1)?;
                self.record_fits(size.u64.max)?;
                self.memory(
                    i,
                    reg,
                    size.u64.max,
                    format!("memory of {} bytes", size.u64.max),
                )
            }
            Arg::MemWrite => self.output(i, reg),
            Arg::Size | Arg::SizeOrZero => self.size(i).map(|s| scalar_fact(&s)),
            Arg::Context => match *self.state.reg(reg) {
                Value::Pointer(
                    p @ Pointer {
                        target: Target::Context,
                        ..
                    },
                ) if p.fixed() == Some(0) => self.pointer_fact(i, reg, p),
                // bpftime's programs have no context and pass NULL. Nothing is read through it.
                Value::Number { scalar, .. }
                    if scalar.known() == Some(0) && self.env.platform.foreign_context.is_none() =>
                {
                    Ok(ArgFact::Unused)
                }
                _ => self.refuse(i, reg, "the context".to_owned()),
            },
            Arg::ConstSize => {
                let size = self.number(i, reg, "a constant size")?;
                let Some(bytes) = size.known().filter(|&n| n > 0) else {
                    return self.refuse(i, reg, "a constant size of at least 1".to_owned());
                };
                self.record_fits(bytes)?;
                Ok(scalar_fact(&size))
            }
            Arg::U64Out => {
                let pointer = memory_writable(self.env, self.state, reg, 8, 8)
                    .map_err(|rule| self.memory_problem(i, "8 writable bytes".to_owned(), rule))?;
                // All threads of the block write it: in memory that they share, the others' 0 would
                // replace the one result.
                if self.helper.warp == Warp::WholeBlock
                    && !matches!(pointer.target, Target::Stack(_))
                {
                    return Err(Rule::TotalShared {
                        helper: self.helper.name,
                        reg: reg.to_string(),
                        pointer: self.env.pointer(&pointer),
                    });
                }
                self.pointer_fact(i, reg, pointer)
            }
            Arg::Record => self.record(i, reg),
            Arg::Format => {
                let size = self.size(i + 1)?;
                let Some(bytes) = size.known() else {
                    return self.refuse(i + 1, next(reg), "a constant size".to_owned());
                };
                let text = self.constant_string(i, reg, Some(bytes))?;
                self.format(text)?;
                self.constant_fact(i, reg)
            }
            Arg::FormatString => {
                let text = self.constant_string(i, reg, None)?;
                self.format(text)?;
                self.constant_fact(i, reg)
            }
            Arg::ConstString => {
                self.text = Some(self.constant_string(i, reg, None)?);
                self.constant_fact(i, reg)
            }
            Arg::Values => self.values(i, reg),
            Arg::Callback => match self.state.reg(reg) {
                Value::Pointer(Pointer {
                    target: Target::Function(_),
                    nullable: false,
                    ..
                }) => Ok(ArgFact::Callback),
                _ => self.refuse(i, reg, "a function of this program".to_owned()),
            },
            Arg::CallbackContext => match *self.state.reg(reg) {
                Value::Number { scalar, .. } if scalar.known() == Some(0) => {
                    Ok(scalar_fact(&scalar))
                }
                Value::Pointer(
                    p @ Pointer {
                        target: Target::Stack(_),
                        ..
                    },
                ) => self.pointer_fact(i, reg, p),
                _ => self.refuse(i, reg, "a pointer into the stack, or 0".to_owned()),
            },
        }
    }

    /// What `bpf_probe_read` and its like copy: an address of the application, or memory that the
    /// program points to itself, as
    /// `BPF_CORE_READ` of a map's value does.
    fn source(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        if let Some(address) = self.state.reg(reg).scalar() {
            return Ok(scalar_fact(address));
        }
        let size = self.size(SOURCE - 1)?.u64.max;
        let expected = format!("an address, or {size} bytes that can be read");
        self.memory(i, reg, size, expected)
    }

    /// Memory that the helper fills.
    fn output(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let size = self.size(i + 1)?;
        let bytes = size.u64.max;
        let expected = format!("{bytes} writable bytes");
        if !matches!(self.state.reg(reg), Value::Pointer(_)) {
            return self.refuse(i, reg, expected);
        }
        // How much of it is filled is only known if the size is: what may stay as it was must hold
        // something.
        if size.known().is_none() {
            memory_readable(self.env, self.state, reg, bytes)
                .map_err(|rule| self.memory_problem(i, expected.clone(), rule))?;
        }
        let pointer = memory_writable(self.env, self.state, reg, bytes, 1)
            .map_err(|rule| self.memory_problem(i, expected, rule))?;
        self.pointer_fact(i, reg, pointer)
    }

    /// A value that the helper fills; of a bloom filter one that it looks at.
    fn value_out(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let (size, name, is_out) = self.map.map_or((0, "", true), |(_, def)| {
            (def.value_size, def.name.as_str(), fills_value(def))
        });
        let expected = format!("a value of map `{name}` ({size} bytes)");
        if !is_out {
            return self.memory(i, reg, u64::from(size), expected);
        }
        if !matches!(self.state.reg(reg), Value::Pointer(_)) {
            return self.refuse(i, reg, expected);
        }
        let pointer = memory_writable(self.env, self.state, reg, u64::from(size), 1)
            .map_err(|rule| self.memory_problem(i, expected, rule))?;
        self.pointer_fact(i, reg, pointer)
    }

    fn map_argument(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let Value::Pointer(
            pointer @ Pointer {
                target: Target::Map(index),
                ..
            },
        ) = *self.state.reg(reg)
        else {
            return self.refuse(i, reg, "a map".to_owned());
        };
        if pointer.nullable {
            return Err(Rule::MaybeNull {
                reg: reg.to_string(),
                pointer: self.env.pointer(&pointer),
            });
        }
        let (def, map_type) = self.env.map(index)?;
        let problem = match self.helper.kind {
            _ if index & INNER == 0 => None,
            HelperId::RingbufReserve | HelperId::RingbufReserveDynptr => Some(
                "is in a map of maps: a record that is given back later would not tell its ring; use `bpf_ringbuf_output`",
            ),
            HelperId::ForEachMapElem => Some(
                "is in a map of maps, and only maps with a name can be walked; call `bpf_for_each_map_elem` with the map itself",
            ),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Rule::MapShape {
                map: def.name.clone(),
                map_type: map_type.name(),
                problem: problem.to_owned(),
            });
        }
        if !takes(self.helper.kind, map_type) {
            let types: Vec<&str> = MAP_TYPES
                .iter()
                .filter(|(map_type, _)| takes(self.helper.kind, *map_type))
                .map(|(_, name)| *name)
                .collect();
            return Err(Rule::WrongMapType {
                helper: self.helper.name,
                map: def.name.clone(),
                map_type: map_type.name(),
                expected: types.join(", "),
            });
        }
        if self.helper.kind == HelperId::ForEachMapElem && def.is_asked_for() {
            return Err(Rule::MapOnHost {
                helper: self.helper.name,
                map: def.name.clone(),
            });
        }
        self.value_fits(def, map_type)?;
        let writes = matches!(
            self.helper.kind,
            HelperId::MapUpdateElem
                | HelperId::MapDeleteElem
                | HelperId::MapPushElem
                | HelperId::MapPopElem
        );
        if writes && self.env.read_only(index) {
            return Err(Rule::ReadOnly {
                access: format!("`bpf_{}`", self.helper.name),
                place: "a value".to_owned(),
                map: def.name.clone(),
            });
        }
        self.map = Some((index, def));
        Ok(ArgFact::Map(index))
    }

    /// What a function of the device gets of key and value fits into its parameters. Those of
    /// arrays are copied in place.
    fn value_fits(&self, def: &MapDef, map_type: MapType) -> Result<(), Rule> {
        let (key, value) = (u64::from(def.key_size), u64::from(def.value_size));
        let passed = match self.helper.kind {
            HelperId::MapUpdateElem if map_type.is_hash() => [key, value],
            HelperId::MapPushElem | HelperId::MapPopElem | HelperId::MapPeekElem => [0, value],
            _ => return Ok(()),
        };
        let words: u64 = passed.iter().map(|bytes| bytes.div_ceil(8)).sum();
        // The map and the flags are passed too.
        if words + 2 > CALL_WORDS {
            return Err(Rule::ValueTooLarge {
                helper: self.helper.name,
                map: def.name.clone(),
                bytes: passed.iter().sum(),
                limit: (CALL_WORDS - 2) * 8,
            });
        }
        Ok(())
    }

    /// What becomes a record of the map seen so far, or is all of a sample, is not too large for
    /// that. Of what a dynptr stands for, only the call itself can tell.
    fn record_fits(&self, size: u64) -> Result<(), Rule> {
        let Some((_, def)) = self.map else {
            return Ok(());
        };
        let of_dynptr = self.helper.args.contains(&Arg::Dynptr);
        if of_dynptr && !(self.is_sample && self.helper.kind == HelperId::DynptrData) {
            return Ok(());
        }
        let max = self.env.max_record(def);
        if size > max {
            return Err(Rule::RecordTooLarge {
                size,
                map: def.name.clone(),
                max,
            });
        }
        Ok(())
    }

    fn record(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let expected = "the record that `bpf_ringbuf_reserve` returned".to_owned();
        match *self.state.reg(reg) {
            Value::Pointer(
                p @ Pointer {
                    target: Target::Record { map, .. },
                    ..
                },
            ) => {
                if p.nullable {
                    return Err(Rule::MaybeNull {
                        reg: reg.to_string(),
                        pointer: self.env.pointer(&p),
                    });
                }
                if p.fixed() != Some(0) {
                    return self.refuse(i, reg, expected);
                }
                let (def, _) = self.env.map(map)?;
                self.map = Some((map, def));
                self.pointer_fact(i, reg, p)
            }
            Value::Pointer(_) | Value::Number { .. } | Value::Nothing(_) => {
                self.refuse(i, reg, expected)
            }
        }
    }
}

/// A peek of this map writes a value: in a bloom filter it only looks for one.
pub fn fills_value(def: &MapDef) -> bool {
    def.map_type != MapType::BloomFilter as u32
}
