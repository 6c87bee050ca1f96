//! Constant strings and formats among the arguments of a call, and the values of a format.

use std::sync::Arc;

use warpbpf_abi::costs::TEXT_MOST;
use warpbpf_abi::format::{self, Conversion, MAX_VALUES, Piece, Spec};
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::Reg;

use super::argument::{Call, PRINTK_VALUES, PROTOTYPE, next};
use crate::check::number_readable;
use crate::domain::pointer::{Pointer, Target, Value, Why};
use crate::domain::scalar::Scalar;
use crate::domain::stack::FRAME_BYTES;
use crate::facts::ArgFact;
use crate::rule::Rule;

/// What a string must be that becomes part of the code.
const CONSTANT_STRING: &str =
    "a constant string (in `.rodata`, or of constants that were stored on the stack)";

impl Call<'_, '_> {
    /// The string that a pointer points to, without its NUL, which is within `size` bytes: in
    /// constant data, or on the stack where every byte of it is a constant.
    pub(super) fn constant_string(
        &self,
        i: usize,
        reg: Reg,
        size: Option<u64>,
    ) -> Result<Arc<[u8]>, Rule> {
        let Value::Pointer(
            p @ Pointer {
                nullable: false, ..
            },
        ) = self.state.reg(reg)
        else {
            return self.refuse(i, reg, CONSTANT_STRING.to_owned());
        };
        let unknown = |byte: i64, why: &str| Rule::Argument {
            helper: self.helper.name,
            index: i + 1,
            reg: reg.to_string(),
            expected: CONSTANT_STRING.to_owned(),
            found: format!("{}, and byte {byte} there {why}", self.env.pointer(p)),
            advice: PROTOTYPE,
        };
        let text: Option<Vec<u8>> = match (p.target, p.fixed()) {
            (Target::MapValue(map), Some(at)) => {
                let bytes = self.env.constant_bytes(map);
                let bytes = bytes.and_then(|bytes| bytes.get(usize::try_from(at).ok()?..));
                let Some(bytes) = bytes else {
                    return self.refuse(i, reg, CONSTANT_STRING.to_owned());
                };
                let within = match size {
                    Some(size) => bytes.get(..size as usize),
                    None => Some(bytes),
                };
                within.and_then(|bytes| {
                    Some(bytes[..bytes.iter().position(|&byte| byte == 0)?].to_vec())
                })
            }
            (Target::Stack(frame), Some(at)) if (-FRAME_BYTES..0).contains(&at) => {
                let Some(frame) = self.state.frames.get(frame as usize) else {
                    return self.refuse(i, reg, CONSTANT_STRING.to_owned());
                };
                let stack = &frame.stack;
                // Behind the frame's end there is nothing: no NUL either.
                let end = size.map_or(0, |size| at.saturating_add_unsigned(size).min(0));
                match stack.constant_string(at, end) {
                    Ok((text, has_nul)) => has_nul.then_some(text),
                    Err(byte) if stack.is_written(byte) => {
                        return Err(unknown(byte - at, "is not a known constant"));
                    }
                    Err(byte) => return Err(unknown(byte - at, "was never written")),
                }
            }
            _ => return self.refuse(i, reg, CONSTANT_STRING.to_owned()),
        };
        match text {
            Some(text) if text.len() as u64 > TEXT_MOST => Err(Rule::TextTooLong {
                helper: self.helper.name,
                bytes: text.len(),
                limit: TEXT_MOST,
            }),
            Some(text) => Ok(text.into()),
            None => self.refuse(
                i,
                reg,
                "a constant string that ends with a NUL inside its size".to_owned(),
            ),
        }
    }

    /// One of the strings of constant data, and not always the same.
    pub(super) fn some_constant_string(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        match *self.state.reg(reg) {
            Value::Pointer(p) if self.string_map(&p).is_some() => self.pointer_fact(i, reg, p),
            _ => self.refuse(i, reg, "a constant string (in `.rodata`)".to_owned()),
        }
    }

    /// The map with the constant strings of which a pointer points to one.
    fn string_map(&self, p: &Pointer) -> Option<u32> {
        let Pointer {
            target: Target::MapValue(map),
            nullable: false,
            offset,
            ..
        } = *p
        else {
            return None;
        };
        // Wherever it begins, it ends.
        let bytes = self.env.constant_bytes(map)?;
        let last = bytes.iter().rposition(|&b| b == 0)? as u64;
        let inside =
            offset.s64.min >= 0 && u64::try_from(offset.s64.max).is_ok_and(|max| max <= last);
        inside.then_some(map)
    }

    /// Takes a format in.
    pub(super) fn format(&mut self, text: Arc<[u8]>) -> Result<(), Rule> {
        let helper = self.helper.name;
        for piece in format::pieces(&text) {
            match piece {
                Piece::Text(_) => {}
                Piece::Refused { text, .. } => {
                    return Err(Rule::FormatConversion {
                        conversion: String::from_utf8_lossy(text).into_owned(),
                    });
                }
                Piece::Value { spec, .. } => self.format.push(spec),
            }
        }
        let most = match self.helper.kind {
            HelperId::TracePrintk => PRINTK_VALUES,
            _ => MAX_VALUES,
        };
        if self.format.len() > most {
            return Err(Rule::FormatArguments {
                helper,
                conversions: self.format.len(),
                takes: format!("takes {most}"),
            });
        }
        self.text = Some(text);
        Ok(())
    }

    /// The values of the format, in memory.
    pub(super) fn values(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let size = self.size(i + 1)?;
        let Some(bytes) = size.known().filter(|bytes| bytes % 8 == 0) else {
            return self.refuse(
                i + 1,
                next(reg),
                "a constant size, a multiple of 8".to_owned(),
            );
        };
        if bytes / 8 < self.format.len() as u64 {
            return Err(Rule::FormatArguments {
                helper: self.helper.name,
                conversions: self.format.len(),
                takes: format!("gets {bytes} bytes of values, 8 for each"),
            });
        }
        if bytes == 0 && self.state.reg(reg).scalar().and_then(Scalar::known) == Some(0) {
            return Ok(ArgFact::Unused);
        }
        let expected = format!("{} values of 8 bytes", bytes / 8);
        // `bpf_snprintf` takes addresses, which are numbers.
        if self.helper.kind == HelperId::TraceVprintk && self.format.iter().any(is_string) {
            return self.values_with_strings(i, reg, bytes, expected);
        }
        self.memory(i, reg, bytes, expected)
    }

    /// The same with pointers to constant strings among them, which only a stack can hold.
    fn values_with_strings(
        &mut self,
        i: usize,
        reg: Reg,
        bytes: u64,
        expected: String,
    ) -> Result<ArgFact, Rule> {
        let on_stack = match *self.state.reg(reg) {
            Value::Pointer(p) if !p.nullable => match (p.target, p.fixed()) {
                (Target::Stack(frame), Some(at)) if at % 8 == 0 => Some((p, frame, at)),
                _ => None,
            },
            _ => None,
        };
        let Some((pointer, frame, start)) = on_stack else {
            return self.refuse(
                i,
                reg,
                format!("{expected}, on the stack at a constant offset"),
            );
        };
        let conversions: Vec<(bool, String)> = self
            .text
            .as_deref()
            .map_or(Vec::new(), |text| format::pieces(text).collect())
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Value { spec, text } => {
                    Some((is_string(&spec), String::from_utf8_lossy(text).into_owned()))
                }
                Piece::Text(_) | Piece::Refused { .. } => None,
            })
            .collect();
        for n in 0..bytes / 8 {
            let at = start + n as i64 * 8;
            let Some((true, conversion)) = conversions.get(n as usize) else {
                let number = Pointer {
                    offset: Scalar::constant(at as u64),
                    ..pointer
                };
                number_readable(self.env, self.state, &number)
                    .map_err(|rule| self.memory_problem(i, expected.clone(), rule))?;
                continue;
            };
            let stack = self.state.frames.get(frame as usize).map(|f| &f.stack);
            let value = stack
                .filter(|_| (-FRAME_BYTES..=-8).contains(&at))
                .and_then(|stack| stack.read(at, 8).ok());
            let map = match &value {
                Some(Value::Pointer(p)) => self.string_map(p),
                _ => None,
            };
            let Some(map) = map else {
                let nothing = Value::Nothing(Why::NeverWritten);
                return Err(Rule::FormatMemory {
                    helper: self.helper.name,
                    conversion: conversion.clone(),
                    found: self.env.value(&value.unwrap_or(nothing)),
                });
            };
            self.strings.push(map);
        }
        self.pointer_fact(i, reg, pointer)
    }

    pub(super) fn constant_fact(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        match *self.state.reg(reg) {
            Value::Pointer(p) => self.pointer_fact(i, reg, p),
            Value::Number { .. } | Value::Nothing(_) => {
                self.refuse(i, reg, "a constant string".to_owned())
            }
        }
    }
}

fn is_string(spec: &Spec) -> bool {
    spec.conversion == Conversion::String
}
