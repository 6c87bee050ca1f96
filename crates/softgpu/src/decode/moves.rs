//! `mov`: of registers, constants and addresses, and of values that are put together from parts or
//! taken apart.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::eval::Ty;

use super::decoder::{Decoded, FunctionDecoder, invalid, unsupported};
use super::memory::lanes_of;
use super::names::special;
use super::operand::operand;
use crate::op::Op;
use crate::op::operand::{NOWHERE, Row};

/// Bits of a row; a 128-bit register has two.
const ROW_BITS: u32 = 64;

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn mov(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let ty = i.modifiers.iter().rev().find_map(|m| Ty::parse(m));
        let width = i
            .modifiers
            .last()
            .map_or(32, |m| super::decoder::bits_of(m));
        let (to, from) = (operand(i, 0)?, operand(i, 1)?);
        if let Some(lanes) = i.modifiers.iter().find_map(|m| lanes_of(m)) {
            if width == 1 {
                return invalid("predicates are no vectors");
            }
            let s = match self.coordinates(from, lanes) {
                Some(rows) => rows,
                None => self.rows(from, ty, false)?,
            };
            let d = self.rows(to, None, true)?;
            let rows = lanes * width.div_ceil(ROW_BITS) as usize;
            if d.len() != rows || s.len() != rows {
                return invalid(format!(
                    "{} registers are moved to {}, where the type has {rows}",
                    s.len(),
                    d.len()
                ));
            }
            return Ok(self.move_all(&d, &s));
        }
        if let Operand::Name(name) = from
            && let Some(which) = special(name)
            && self.register_bits(to).is_some()
        {
            return Ok(Op::Special {
                d: self.destination(to)?,
                which,
            });
        }
        let (from_parts, to_parts) = (self.is_composed(from, width), self.is_composed(to, width));
        if from_parts && to_parts {
            return invalid("both operands are vectors");
        }
        for operand in [to, from] {
            if let Some((_, count, bits)) = self.vector(operand)
                && (count * bits != width
                    || !i.modifiers.last().is_some_and(|m| m.starts_with('b')))
            {
                return invalid(format!("a vector of {count} registers of {bits} bits"));
            }
        }
        let s = self.rows(from, ty, false)?;
        let d = self.rows(to, None, true)?;
        let rows = width.div_ceil(ROW_BITS) as usize;
        let value = match from_parts {
            true if !to_parts && rows == 1 => {
                let [d] = d[..] else {
                    return invalid("the value is moved to several registers");
                };
                let bits = part_bits(width, s.len())?;
                let parts = s;
                return Ok(Op::Pack { d, parts, bits });
            }
            true => self.pack(&s, width, rows)?,
            false => s,
        };
        if value.len() != rows {
            return unsupported("128-bit operand");
        }
        if !to_parts {
            if d.len() != rows {
                return unsupported("128-bit operand");
            }
            return Ok(self.move_all(&d, &value));
        }
        let bits = part_bits(width, d.len())?;
        let mut last = Op::Nothing;
        for (&s, parts) in value.iter().zip(d.chunks(d.len().div_ceil(rows))) {
            self.emit_guarded(std::mem::replace(
                &mut last,
                Op::Unpack {
                    parts: parts.into(),
                    s,
                    bits,
                },
            ));
        }
        Ok(last)
    }

    /// All components of `%tid` and its like, which are vectors.
    fn coordinates(&mut self, from: &Operand<'a>, lanes: usize) -> Option<Box<[Row]>> {
        let Operand::Name(name) = from else {
            return None;
        };
        let component = |axis: &&str| special(&format!("{name}.{axis}"));
        let found: Vec<_> = ["x", "y", "z", "w"].iter().map_while(component).collect();
        (found.len() == lanes).then(|| {
            let rows = found.into_iter().take(lanes).map(|which| {
                let d = self.new_row(32);
                self.emit(Op::Special { d, which });
                d
            });
            rows.collect()
        })
    }

    /// The operand names the parts of a value of so many bits, rather than a register of that size.
    fn is_composed(&mut self, operand: &Operand<'a>, width: u32) -> bool {
        match self.vector(operand) {
            Some((_, _, bits)) => bits != ROW_BITS || width <= ROW_BITS,
            None => matches!(operand, Operand::Vector(_)),
        }
    }

    /// The bits of some rows as rows of another number, which have the same bits in all.
    pub(super) fn reshape(&mut self, rows: &[Row], width: u32, to: usize) -> Decoded<Vec<Row>> {
        if rows.len() == to {
            return Ok(rows.to_vec());
        }
        let words = width.div_ceil(ROW_BITS) as usize;
        let values = match rows.len() == words {
            true => rows.into(),
            false => self.pack(rows, width, words)?,
        };
        if to == words {
            return Ok(values.to_vec());
        }
        let bits = part_bits(width, to)?;
        let mut all = Vec::new();
        for &s in &values {
            let parts: Box<[Row]> = (0..to / words).map(|_| self.new_row(bits)).collect();
            all.extend_from_slice(&parts);
            self.emit(Op::Unpack { parts, s, bits });
        }
        Ok(all)
    }

    /// Puts parts together, in rows of their own.
    fn pack(&mut self, parts: &[Row], width: u32, rows: usize) -> Decoded<Box<[Row]>> {
        let bits = part_bits(width, parts.len())?;
        let packed = parts.chunks(parts.len().div_ceil(rows)).map(|parts| {
            let d = self.new_row(ROW_BITS);
            self.emit(Op::Pack {
                d,
                parts: parts.into(),
                bits,
            });
            d
        });
        Ok(packed.collect())
    }

    /// Moves at once: a register may be among both.
    pub(super) fn move_all(&mut self, d: &[Row], s: &[Row]) -> Op {
        let overlaps = s.iter().enumerate().any(|(at, s)| d[..at].contains(s));
        let mut s = s.to_vec();
        if overlaps {
            for s in &mut s {
                let kept = self.new_row(ROW_BITS);
                self.emit(Op::Mov { d: kept, s: *s });
                *s = kept;
            }
        }
        let mut last = Op::Nothing;
        for (&d, &s) in d.iter().zip(&s).filter(|(d, _)| **d != NOWHERE) {
            self.emit_guarded(std::mem::replace(&mut last, Op::Mov { d, s }));
        }
        last
    }
}

/// Bits of each of so many parts.
fn part_bits(width: u32, parts: usize) -> Decoded<u32> {
    match u32::try_from(parts) {
        Ok(parts @ (2 | 4 | 8 | 16)) if width / parts >= 8 => Ok(width / parts),
        Ok(1) => Ok(width),
        _ => invalid(format!("a value of {width} bits has not {parts} parts")),
    }
}
