//! Operands: to rows, and addresses to a base and an offset.

use warpbpf_ptx::ast::Operand;
use warpbpf_ptx::eval::Ty;

use super::names::{Sym, special};
use super::{DYNAMIC_SHARED, Decoded, FunctionDecoder, invalid, unsupported};
use crate::op::{Address, Base, NOWHERE, Op, Row, Space};
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

    /// A source: register, constant, special register or the address of a variable. `ty` says what literals become.
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
            Operand::Address { .. }
            | Operand::Vector(_)
            | Operand::Pair(..)
            | Operand::List(_)
            | Operand::Other(_) => unsupported(format!("operand {operand:?}")),
        }
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
            Some(Sym::Register { .. } | Sym::Vector { .. } | Sym::DynamicShared) => {
                unsupported(format!("operand `{name}` + {offset}"))
            }
            None if name == "WARP_SZ" => Ok(self.b.constant(32)),
            None if name.starts_with('%') => {
                unsupported(format!("register `{name}` is not declared or known"))
            }
            None => invalid(format!("`{name}` is not declared")),
        }
    }

    /// The rows of a data operand: one register, a vector of them, or the halves of a 128-bit register. `sink` allows
    /// `_`; literals and addresses are allowed where there is none.
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
            if let Operand::Name(name) = part
                && let Some(Sym::Vector { row, count, .. }) = self.lookup(name)
            {
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

    /// A memory operand and the space it is in: a named variable decides, else the instruction's modifiers.
    pub(super) fn address(
        &mut self,
        operand: &Operand<'a>,
        space: Space,
    ) -> Decoded<(Space, Address)> {
        let (base, offset) = match operand {
            Operand::Address { base, offset, rest } if rest.is_empty() => (*base, *offset),
            Operand::Name(name) => (Some(*name), 0),
            Operand::Offset(name, offset) => (Some(*name), *offset),
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
