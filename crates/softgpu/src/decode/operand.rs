//! Operands: to rows, and addresses to a base and an offset.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::constant::{self, Constant};
use warpbpf_ptx::eval::{self, Ty};

use super::decoder::{DYNAMIC_SHARED, Decoded, FunctionDecoder, invalid, unsupported};
use super::names::special;
use super::scope::Sym;
use crate::op::operand::{Address, Base, NOWHERE, Row, Space};
use crate::op::{Alu, Op};
use crate::windows;

impl<'a> FunctionDecoder<'_, '_, 'a> {
    /// A destination register; `_` is nowhere.
    pub(super) fn destination(&mut self, operand: &Operand<'a>) -> Decoded<Row> {
        match operand {
            Operand::Name("_") => Ok(NOWHERE),
            Operand::Name(name) => match self.lookup(name) {
                Some(Sym::Register { row, .. }) => Ok(row),
                Some(Sym::Vector { .. }) => {
                    unsupported(format!("vector or 128-bit register `{name}`"))
                }
                _ => invalid(format!("`{name}` is not a register")),
            },
            other => invalid(format!("{other:?} is not a destination")),
        }
    }

    /// `d|p`, or `d` alone.
    pub(super) fn two_destinations(&mut self, operand: &Operand<'a>) -> Decoded<[Row; 2]> {
        match operand {
            Operand::Pair(d, p) => Ok([self.destination(d)?, self.destination(p)?]),
            single => Ok([self.destination(single)?, NOWHERE]),
        }
    }

    /// Bits of the register that an operand names, if it does.
    pub(super) fn register_bits(&mut self, operand: &Operand<'a>) -> Option<u32> {
        match operand {
            Operand::Name(name) => match self.lookup(name)? {
                Sym::Register { bits, .. } => Some(bits),
                _ => None,
            },
            _ => None,
        }
    }

    /// A source: register, constant, special register or the address of a variable. `ty` says what
    /// literals become.
    pub(super) fn source(&mut self, operand: &Operand<'a>, ty: Option<Ty>) -> Decoded<Row> {
        match operand {
            Operand::Name(name) => self.named_source(name, 0),
            Operand::Offset(name, offset) => self.named_source(name, *offset),
            Operand::Not(name) => {
                let s = self.named_source(name, 0)?;
                let d = self.new_row(1);
                self.emit(Op::Not { d, s });
                Ok(d)
            }
            Operand::Int(value) => Ok(self.b.constant(match ty {
                Some(Ty::F32) => u64::from((*value as f32).to_bits()),
                Some(Ty::F64) => (*value as f64).to_bits(),
                _ => *value as u64,
            })),
            Operand::F32(bits) => Ok(self.b.constant(match ty {
                Some(Ty::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
                _ => u64::from(*bits),
            })),
            Operand::F64(bits) => Ok(self.b.constant(match ty {
                Some(Ty::F32) => u64::from((f64::from_bits(*bits) as f32).to_bits()),
                _ => *bits,
            })),
            Operand::Other(text) => {
                let value = {
                    let strides = |name: &str| self.strides_of(name);
                    constant::evaluate(text, &strides)
                };
                let value = value.or_else(|error| invalid(error.to_string()))?;
                match value {
                    Constant::Signed(value) => self.source(&Operand::Int(value), ty),
                    Constant::Unsigned(value) => self.source(&Operand::Int(value as i64), ty),
                    Constant::F32(bits) => self.source(&Operand::F32(bits), ty),
                    Constant::F64(value) => self.source(&Operand::F64(value.to_bits()), ty),
                    Constant::Address(address) if address.mask.is_none() => match address.index {
                        Some(_) => self.indexed(address),
                        None => self.named_source(address.name, address.offset),
                    },
                    Constant::Address(_) => invalid(format!("`{text}` is not an operand")),
                }
            }
            // `(1)`, `(1 << 4)`: the operand of an instruction, where there is no list.
            Operand::List(list) if list.len() == 1 => self.source(&list[0], ty),
            // `1|2`
            Operand::Pair(a, b) => match (&**a, &**b) {
                (Operand::Int(a), Operand::Int(b)) => self.source(&Operand::Int(a | b), ty),
                _ => unsupported(format!("operand {operand:?}")),
            },
            Operand::Address { .. } | Operand::Vector(_) | Operand::List(_) => {
                unsupported(format!("operand {operand:?}"))
            }
        }
    }

    /// The address of an element that a register counts, with so many bytes each. ptxas computes
    /// its place with 32 bits, whatever the register has.
    fn indexed(&mut self, address: constant::Address<'a>) -> Decoded<Row> {
        let start = self.named_source(address.name, 0)?;
        let (register, bytes) = address.index.unwrap_or_default();
        let Some(Sym::Register { row, bits }) = self.lookup(register) else {
            return invalid(format!("index `{register}` is not a register"));
        };
        let from = match bits {
            16 => "u16",
            32 => "u32",
            64 => "u64",
            _ => return invalid(format!("index `{register}` has {bits} bits")),
        };
        let index = self.computed("cvt", &["u32", from], &[row])?;
        let [bytes, offset] = [bytes, address.offset as u64].map(|value| self.b.constant(value));
        let place = self.computed("mad", &["lo", "u32"], &[index, bytes, offset])?;
        let place = self.computed("cvt", &["u64", "u32"], &[place])?;
        self.computed("add", &["u64"], &[start, place])
    }

    /// The result of an instruction between registers, in a row of its own.
    fn computed(&mut self, opcode: &str, modifiers: &[&str], sources: &[Row]) -> Decoded<Row> {
        let Some(op) = eval::Op::decode(opcode, modifiers) else {
            return unsupported(opcode);
        };
        let d = self.new_row(64);
        let mut s = [NOWHERE; eval::SOURCES];
        s[..sources.len()].copy_from_slice(sources);
        let d_and_flag = [d, NOWHERE];
        self.emit(Op::Alu(Box::new(Alu {
            op,
            d: d_and_flag,
            s,
        })));
        Ok(d)
    }

    /// Bytes between the elements of a variable, for each dimension.
    fn strides_of(&self, name: &str) -> Option<Vec<u64>> {
        let own = self.strides.get(name).cloned();
        own.or_else(|| self.b.inner.variables.strides(self.b.module, name))
    }

    fn named_source(&mut self, name: &'a str, offset: i64) -> Decoded<Row> {
        let moved = |address: u64| address.wrapping_add_signed(offset);
        if let Some(which) = special(name) {
            let d = self.new_row(32);
            self.emit(Op::Special { d, which });
            return Ok(d);
        }
        match self.lookup(name) {
            Some(Sym::Register { row, .. }) if offset == 0 => Ok(row),
            Some(Sym::Frame { offset: start, .. }) => {
                let d = self.new_row(64);
                self.emit(Op::FrameAddress {
                    d,
                    offset: start.wrapping_add(offset as u32),
                });
                Ok(d)
            }
            Some(Sym::KernelParam(start)) => Ok(self.b.constant(moved(u64::from(start)))),
            Some(Sym::Shared(start)) => Ok(self.b.constant(moved(u64::from(start)))),
            Some(Sym::DynamicShared) if offset == 0 => Ok(DYNAMIC_SHARED),
            Some(Sym::Memory(address)) => Ok(self.b.constant(moved(address))),
            Some(Sym::Function(index)) => {
                if self.b.reach(index).is_none() {
                    return unsupported(format!(
                        "address of `{name}`, which has no body in this module"
                    ));
                }
                let address = windows::function(self.b.inner.id, index);
                Ok(self.b.constant(address))
            }
            Some(Sym::Opaque) => unsupported(format!("`{name}`: textures and surfaces")),
            Some(Sym::Register { row, bits: 32 }) => {
                let by = self.b.constant(offset as u64);
                self.computed("add", &["s32"], &[row, by])
            }
            Some(Sym::Register { row, bits: 64 }) => {
                let by = self.b.constant(offset as u64);
                self.computed("add", &["s64"], &[row, by])
            }
            Some(Sym::DynamicShared) => {
                let by = self.b.constant(offset as u64);
                self.computed("add", &["s64"], &[DYNAMIC_SHARED, by])
            }
            Some(Sym::Register { .. } | Sym::Vector { .. }) => {
                unsupported(format!("operand `{name}` + {offset}"))
            }
            None if name == "WARP_SZ" => Ok(self.b.constant(32)),
            None if name.starts_with('%') => {
                unsupported(format!("register `{name}` is not declared or known"))
            }
            None => invalid(format!("`{name}` is not declared")),
        }
    }

    /// The rows of a data operand: one register, a vector of them, or the halves of a 128-bit
    /// register. `sink` allows `_`; literals and addresses are allowed where there is none.
    pub(super) fn rows(
        &mut self,
        operand: &Operand<'a>,
        ty: Option<Ty>,
        sink: bool,
    ) -> Decoded<Box<[Row]>> {
        let mut rows = Vec::new();
        let parts = match operand {
            Operand::Vector(parts) => &parts[..],
            single => std::slice::from_ref(single),
        };
        for part in parts {
            if let Some((row, count, bits)) = self.vector(part) {
                // In braces, only the halves of a 128-bit register are together.
                if matches!(operand, Operand::Vector(_)) && bits != 64 {
                    return invalid("a vector in a vector");
                }
                rows.extend(row..row + count);
                continue;
            }
            rows.push(if sink {
                self.destination(part)?
            } else {
                self.source(part, ty)?
            });
        }
        Ok(rows.into())
    }

    /// First row, number of rows and their bits of a vector register; a 128-bit register is one of
    /// two halves.
    pub(super) fn vector(&mut self, operand: &Operand<'a>) -> Option<(Row, u32, u32)> {
        match operand {
            Operand::Name(name) => match self.lookup(name)? {
                Sym::Vector { row, count, bits } => Some((row, count, bits)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A memory operand and the space it is in: a named variable decides, else the instruction's
    /// modifiers.
    pub(super) fn address(
        &mut self,
        operand: &Operand<'a>,
        space: Space,
    ) -> Decoded<(Space, Address)> {
        let mut element = None;
        let (base, offset) = match operand {
            Operand::Address { base, offset, rest } if rest.is_empty() => (*base, *offset),
            Operand::Name(name) => (Some(*name), 0),
            Operand::Offset(name, offset) => (Some(*name), *offset),
            Operand::Other(text) => {
                let value = {
                    let strides = |name: &str| self.strides_of(name);
                    constant::evaluate_address(text, &strides)
                };
                match value.or_else(|error| invalid(error.to_string()))? {
                    Constant::Address(address) => {
                        element = address.index.map(|_| address);
                        (Some(address.name), address.offset)
                    }
                    Constant::Signed(value) => (None, value),
                    Constant::Unsigned(value) => (None, value as i64),
                    Constant::F32(_) | Constant::F64(_) => {
                        return invalid(format!("`{text}` is not an address"));
                    }
                }
            }
            other => return unsupported(format!("address {other:?}")),
        };
        let Some(name) = base else {
            return Ok((
                space,
                Address {
                    base: Base::Absolute,
                    offset,
                },
            ));
        };
        if let Some(element) = element {
            let space = match self.lookup(name) {
                Some(Sym::Frame { .. }) => Space::Local,
                Some(Sym::KernelParam(_)) => Space::Param,
                Some(Sym::Shared(_) | Sym::DynamicShared) => Space::Shared,
                Some(Sym::Memory(_)) => Space::Global,
                _ => return invalid(format!("`{name}` is not an array")),
            };
            let row = self.indexed(element)?;
            let base = Base::Row { row, narrow: false };
            return Ok((space, Address { base, offset: 0 }));
        }
        let absolute = |start: u64| Address {
            base: Base::Absolute,
            offset: (start as i64).wrapping_add(offset),
        };
        Ok(match self.lookup(name) {
            Some(Sym::Register { row, bits }) => {
                // Inside a function, the address of a parameter is one in the frame.
                let space = if space == Space::Param && !self.is_entry {
                    Space::Local
                } else {
                    space
                };
                (
                    space,
                    Address {
                        base: Base::Row {
                            row,
                            narrow: bits == 32,
                        },
                        offset,
                    },
                )
            }
            Some(Sym::Frame { offset: start, .. }) => (
                Space::Local,
                Address {
                    base: Base::Frame,
                    offset: i64::from(start).wrapping_add(offset),
                },
            ),
            Some(Sym::KernelParam(start)) => (Space::Param, absolute(u64::from(start))),
            Some(Sym::Shared(start)) => (Space::Shared, absolute(u64::from(start))),
            Some(Sym::DynamicShared) => (
                Space::Shared,
                Address {
                    base: Base::Row {
                        row: DYNAMIC_SHARED,
                        narrow: true,
                    },
                    offset,
                },
            ),
            Some(Sym::Memory(start)) => (Space::Global, absolute(start)),
            Some(Sym::Opaque) => return unsupported(format!("`{name}`: textures and surfaces")),
            Some(Sym::Vector { .. } | Sym::Function(_)) | None => {
                return invalid(format!("`{name}` is not an address"));
            }
        })
    }
}

/// Operand `i`, or what is wrong.
pub(super) fn operand<'i, 'a>(i: &'i Instruction<'a>, index: usize) -> Decoded<&'i Operand<'a>> {
    match i.operands.get(index) {
        Some(operand) => Ok(operand),
        None => invalid(format!("operand {} is missing", index + 1)),
    }
}
