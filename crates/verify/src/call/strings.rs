//! Constant strings and formats among the arguments of a call, and the values of a format.

use warpbpf_abi::format::{self, Conversion, MAX_VALUES, Piece};
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::Reg;

use super::{Call, PRINTK_VALUES, next};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::facts::ArgFact;
use crate::rule::Rule;

impl<'a> Call<'a, '_> {
    /// The string that a pointer to constant data points to, without its NUL, which is within `size` bytes.
    pub(super) fn constant_string(
        &self,
        i: usize,
        reg: Reg,
        size: Option<u64>,
    ) -> Result<&'a [u8], Rule> {
        let found = match self.state.reg(reg) {
            Value::Pointer(
                p @ Pointer {
                    target: Target::MapValue(map),
                    nullable: false,
                    ..
                },
            ) => self
                .env
                .constant_bytes(*map)
                .zip(p.fixed().and_then(|at| usize::try_from(at).ok())),
            Value::Pointer(_) | Value::Number { .. } | Value::Nothing(_) => None,
        };
        let Some(bytes) = found.and_then(|(bytes, at)| bytes.get(at..)) else {
            return self.refuse(i, reg, "a constant string (in `.rodata`)".to_owned());
        };
        let within = match size {
            Some(size) => bytes.get(..size as usize),
            None => Some(bytes),
        };
        match within.and_then(|bytes| Some(&bytes[..bytes.iter().position(|&b| b == 0)?])) {
            Some(text) => Ok(text),
            None => self.refuse(
                i,
                reg,
                "a constant string that ends with a NUL inside its size".to_owned(),
            ),
        }
    }

    /// One of the strings of constant data, and not always the same.
    pub(super) fn some_constant_string(&mut self, i: usize, reg: Reg) -> Result<ArgFact, Rule> {
        let expected = || "a constant string (in `.rodata`)".to_owned();
        let Value::Pointer(
            p @ Pointer {
                target: Target::MapValue(map),
                nullable: false,
                ..
            },
        ) = *self.state.reg(reg)
        else {
            return self.refuse(i, reg, expected());
        };
        // Wherever it begins, it ends.
        let last = self
            .env
            .constant_bytes(map)
            .and_then(|bytes| bytes.iter().rposition(|&b| b == 0));
        match last {
            Some(last)
                if p.offset.s64.min >= 0
                    && u64::try_from(p.offset.s64.max).is_ok_and(|max| max <= last as u64) =>
            {
                self.pointer_fact(i, reg, p)
            }
            _ => self.refuse(i, reg, expected()),
        }
    }

    /// Takes a format in.
    pub(super) fn format(&mut self, text: &[u8]) -> Result<(), Rule> {
        let helper = self.helper.name;
        for piece in format::pieces(text) {
            match piece {
                Piece::Text(_) => {}
                Piece::Refused { text, .. } => {
                    return Err(Rule::FormatConversion {
                        conversion: String::from_utf8_lossy(text).into_owned(),
                    });
                }
                Piece::Value { spec, text }
                    if spec.conversion == Conversion::String
                        && self.helper.kind == HelperId::TraceVprintk =>
                {
                    return Err(Rule::FormatMemory {
                        helper,
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
        self.text = Some(text.into());
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
        self.memory(i, reg, bytes, format!("{} values of 8 bytes", bytes / 8))
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
