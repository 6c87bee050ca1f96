//! Video instructions (PTX ISA, "Scalar Video Instructions" and "SIMD Video Instructions"):
//! arithmetic on bytes and halves of registers with a second operation behind. They are of no use
//! but in code written for them, and operands choose parts of registers, so they are kept out of
//! `ptx::eval`.
//!
//! This is what the ISA says. An H200 gives the same for all SIMD forms; for scalar ones that
//! saturate 32 bits, write the upper half, or add to products of large unsigned numbers, ptxas
//! makes code for it that gives something else.

use crate::op::operand::{NOWHERE, Row};
use crate::op::video::{Field, First, MultiplyAdd, Second, Video};
use crate::position::Position;
use crate::warp::{Warp, for_lanes};

impl First {
    fn apply(self, a: i64, b: i64) -> i64 {
        let distance = |wrap| if wrap { b & 31 } else { b.clamp(0, 32) };
        match self {
            First::Add => a + b,
            First::Subtract => a - b,
            First::AbsoluteDifference => (a - b).abs(),
            First::Min => a.min(b),
            First::Max => a.max(b),
            First::Average => (a + b + i64::from(a + b >= 0)) >> 1,
            First::ShiftLeft { wrap } => a << distance(wrap),
            First::ShiftRight { wrap } => a >> distance(wrap),
            First::Equal => i64::from(a == b),
            First::NotEqual => i64::from(a != b),
            First::Less => i64::from(a < b),
            First::LessEqual => i64::from(a <= b),
            First::Greater => i64::from(a > b),
            First::GreaterEqual => i64::from(a >= b),
        }
    }
}

fn clamp(value: i64, bits: u32, signed: bool) -> i64 {
    if signed {
        value.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

impl Video {
    fn evaluate(&self, a: u64, b: u64, c: u64) -> u64 {
        let (a, b) = (a & 0xffff_ffff, b & 0xffff_ffff);
        let (from_a, from_b) = if self.simd {
            (a | b << 32, a | b << 32)
        } else {
            (a, b)
        };
        let mut word = c & 0xffff_ffff;
        for element in &self.elements {
            let (a, b) = (
                element.a.get(from_a, self.a_signed),
                element.b.get(from_b, self.b_signed),
            );
            let mut value = self.first.apply(a, b);
            if self.saturate {
                value = clamp(value, element.d.bits, self.d_signed);
            }
            word = match self.second {
                None => element.d.put(word, value),
                Some(Second::Add) => word.wrapping_add(value as u64) & 0xffff_ffff,
                Some(second) => {
                    let x = Field::WHOLE.get(value as u64, self.d_signed);
                    let y = Field::WHOLE.get(word, self.d_signed);
                    let chosen = if second == Second::Min {
                        x.min(y)
                    } else {
                        x.max(y)
                    };
                    chosen as u64 & 0xffff_ffff
                }
            };
        }
        word
    }

    pub(crate) fn execute(&self, warp: &Warp, at: Position, active: u32) {
        each_lane(warp, at, active, self.d, self.s, |a, b, c| {
            self.evaluate(a, b, c)
        });
    }
}

impl MultiplyAdd {
    fn evaluate(&self, a: u64, b: u64, c: u64) -> u64 {
        let [x, y] = [0, 1].map(|i| {
            let word = if i == 0 { a } else { b };
            i128::from(self.fields[i].get(word, self.signed[i]))
        });
        let signed = self.signed[0] || self.signed[1] || self.negate_product || self.negate_c;
        let mut sum = x * y;
        let mut c = i128::from(Field::WHOLE.get(c, signed));
        if self.plus_one {
            c += 1;
        } else if self.negate_product {
            sum = -sum;
        } else if self.negate_c {
            c = -c;
        }
        let scaled = (sum + c) >> self.shift;
        let value = if self.saturate {
            let (low, high) = if signed {
                (i128::from(i32::MIN), i128::from(i32::MAX))
            } else {
                (0, i128::from(u32::MAX))
            };
            scaled.clamp(low, high)
        } else {
            scaled
        };
        u64::from(value as u32)
    }

    pub(crate) fn execute(&self, warp: &Warp, at: Position, active: u32) {
        each_lane(warp, at, active, self.d, self.s, |a, b, c| {
            self.evaluate(a, b, c)
        });
    }
}

fn each_lane(
    warp: &Warp,
    at: Position,
    active: u32,
    d: Row,
    s: [Row; 3],
    f: impl Fn(u64, u64, u64) -> u64,
) {
    let source = |row: Row, lane: usize| {
        if row == NOWHERE {
            0
        } else {
            warp.row(at.base, row)[lane].get()
        }
    };
    if d != NOWHERE {
        let d = warp.row(at.base, d);
        for_lanes(active, |lane| {
            d[lane].set(f(
                source(s[0], lane),
                source(s[1], lane),
                source(s[2], lane),
            ));
        });
    }
}
