//! Numbers: known bits, unsigned and signed intervals of the 64 bits and of their low 32, each sharpening the others.
//!
//! One 64-bit implementation of each operation serves both widths. The low 32 bits of a sum, product or bit operation
//! depend only on the low 32 bits of its operands, so a 32-bit operation is done twice in 64 bits, once on zero- and
//! once on sign-extended operands: the first gives the unsigned interval of the result, the second the signed one.

use std::fmt;

use warpbpf_ebpf::AluOp;

use super::interval::{Interval, overlap, overlap_low};
use super::tnum::Tnum;

/// A set of 64-bit numbers: those that are in all five parts. `u32` and `s32` are about the low 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scalar {
    /// Known bits.
    pub bits: Tnum,
    /// As unsigned numbers.
    pub u64: Interval<u64>,
    /// As signed numbers.
    pub s64: Interval<i64>,
    /// The low half as unsigned numbers.
    pub u32: Interval<u32>,
    /// The low half as signed numbers.
    pub s32: Interval<i32>,
}

impl Scalar {
    /// Every number.
    pub const UNKNOWN: Scalar = Scalar {
        bits: Tnum::UNKNOWN,
        u64: Interval::FULL,
        s64: Interval::FULL,
        u32: Interval::FULL,
        s32: Interval::FULL,
    };

    /// One number.
    pub const fn constant(x: u64) -> Scalar {
        Scalar {
            bits: Tnum::constant(x),
            u64: Interval::constant(x),
            s64: Interval::constant(x as i64),
            u32: Interval::constant(x as u32),
            s32: Interval::constant(x as i32),
        }
    }

    /// The numbers `min..=max`, unsigned.
    pub fn range(min: u64, max: u64) -> Scalar {
        match Interval::new(min, max) {
            Some(u64) => Scalar {
                u64,
                ..Scalar::UNKNOWN
            }
            .settled(),
            None => Scalar::UNKNOWN,
        }
    }

    /// The numbers `min..=max`, signed.
    pub fn signed_range(min: i64, max: i64) -> Scalar {
        match Interval::new(min, max) {
            Some(s64) => Scalar {
                s64,
                ..Scalar::UNKNOWN
            }
            .settled(),
            None => Scalar::UNKNOWN,
        }
    }

    /// What a zero- or sign-extending load of `bits` bits can give.
    pub fn loaded(bits: u32, signed: bool) -> Scalar {
        let any = Scalar::UNKNOWN;
        if signed {
            any.sign_extend(bits)
        } else {
            any.zero_extend(bits)
        }
    }

    /// Its member, if it has one only.
    pub const fn known(&self) -> Option<u64> {
        self.bits.known()
    }

    /// `x` is a member.
    #[cfg(test)]
    pub fn contains(&self, x: u64) -> bool {
        self.bits.contains(x)
            && self.u64.contains(x)
            && self.s64.contains(x as i64)
            && self.u32.contains(x as u32)
            && self.s32.contains(x as i32)
    }

    /// All members are in `other` (it may say no where that is hard to see).
    pub fn is_subset(&self, other: &Scalar) -> bool {
        self.bits.is_subset(other.bits)
            && self.u64.is_subset(other.u64)
            && self.s64.is_subset(other.s64)
            && self.u32.is_subset(other.u32)
            && self.s32.is_subset(other.s32)
    }

    /// What is in both; `None` if nothing is.
    pub fn meet(&self, other: &Scalar) -> Option<Scalar> {
        Scalar {
            bits: self.bits.meet(other.bits)?,
            u64: self.u64.meet(other.u64)?,
            s64: self.s64.meet(other.s64)?,
            u32: self.u32.meet(other.u32)?,
            s32: self.s32.meet(other.s32)?,
        }
        .reduced()
    }

    /// Lets each part sharpen the others; `None` if they contradict each other, so that no number is left.
    pub fn reduced(mut self) -> Option<Scalar> {
        // Each round carries what one half learned into the other. Two or three do; the bound is for form's sake, and a
        // set that is not quite reduced is still sound.
        for _ in 0..8 {
            let next = self.reduce_low()?.reduce_wide()?;
            if next == self {
                break;
            }
            self = next;
        }
        Some(self)
    }

    fn reduce_wide(self) -> Option<Scalar> {
        let Scalar {
            mut bits,
            mut u64,
            mut s64,
            u32,
            s32,
        } = self;
        u64 = u64.meet(Interval {
            min: bits.min(),
            max: bits.max(),
        })?;
        const SIGN: u64 = 1 << 63;
        s64 = s64.meet(Interval {
            min: (bits.value | bits.mask & SIGN) as i64,
            max: (bits.value | bits.mask & !SIGN) as i64,
        })?;
        // The upper half is the same everywhere: then the low half's interval is the whole number's.
        if u64.min >> 32 == u64.max >> 32 {
            let high = u64.min >> 32 << 32;
            u64 = u64.meet(Interval {
                min: high | u64::from(u32.min),
                max: high | u64::from(u32.max),
            })?;
        }
        if s64.min >= i64::from(i32::MIN) && s64.max <= i64::from(i32::MAX) {
            s64 = s64.meet(Interval {
                min: i64::from(s32.min),
                max: i64::from(s32.max),
            })?;
        }
        // Of one sign, signed and unsigned order agree.
        if (s64.min ^ s64.max) >= 0 {
            u64 = u64.meet(Interval {
                min: s64.min as u64,
                max: s64.max as u64,
            })?;
        }
        if ((u64.min ^ u64.max) as i64) >= 0 {
            s64 = s64.meet(Interval {
                min: u64.min as i64,
                max: u64.max as i64,
            })?;
        }
        let (u64, s64) = overlap(u64, s64)?;
        bits = bits.meet(Tnum::range(u64.min, u64.max))?;
        Some(Scalar {
            bits,
            u64,
            s64,
            u32,
            s32,
        })
    }

    fn reduce_low(self) -> Option<Scalar> {
        let Scalar {
            mut bits,
            u64,
            s64,
            mut u32,
            mut s32,
        } = self;
        let low = bits.zero_extend(32);
        u32 = u32.meet(Interval {
            min: low.min() as u32,
            max: low.max() as u32,
        })?;
        const SIGN: u64 = 1 << 31;
        s32 = s32.meet(Interval {
            min: (low.value | low.mask & SIGN) as i32,
            max: (low.value | low.mask & !SIGN) as i32,
        })?;
        if u64.min >> 32 == u64.max >> 32 {
            u32 = u32.meet(Interval {
                min: u64.min as u32,
                max: u64.max as u32,
            })?;
        }
        if s64.min >> 32 == s64.max >> 32 {
            u32 = u32.meet(Interval {
                min: s64.min as u32,
                max: s64.max as u32,
            })?;
        }
        if s64.min >= i64::from(i32::MIN) && s64.max <= i64::from(i32::MAX) {
            s32 = s32.meet(Interval {
                min: s64.min as i32,
                max: s64.max as i32,
            })?;
        }
        if (s32.min ^ s32.max) >= 0 {
            u32 = u32.meet(Interval {
                min: s32.min as u32,
                max: s32.max as u32,
            })?;
        }
        if ((u32.min ^ u32.max) as i32) >= 0 {
            s32 = s32.meet(Interval {
                min: u32.min as i32,
                max: u32.max as i32,
            })?;
        }
        let (u32, s32) = overlap_low(u32, s32)?;
        let low = Tnum::range(u64::from(u32.min), u64::from(u32.max));
        bits = bits.meet(Tnum {
            value: low.value,
            mask: low.mask | !0 << 32,
        })?;
        Some(Scalar {
            bits,
            u64,
            s64,
            u32,
            s32,
        })
    }

    /// [`reduced`](Self::reduced) for a set that holds a number by construction: if the parts seem to contradict each
    /// other then one of them is wrong, and every number is the safe answer.
    fn settled(self) -> Scalar {
        self.reduced().unwrap_or(Scalar::UNKNOWN)
    }

    /// From the parts that 64-bit arithmetic computes.
    fn wide(bits: Tnum, u64: Interval<u64>, s64: Interval<i64>) -> Scalar {
        Scalar {
            bits,
            u64,
            s64,
            ..Scalar::UNKNOWN
        }
        .settled()
    }

    /// The low `bits` bits, the others zero. `bits` is 8, 16, 32 or 64.
    pub fn zero_extend(&self, bits: u32) -> Scalar {
        let max = u64::MAX >> (64 - bits);
        if self.u64.max <= max {
            return *self;
        }
        let u64 = if bits == 32 || bits < 32 && u64::from(self.u32.max) <= max {
            Interval {
                min: u64::from(self.u32.min),
                max: u64::from(self.u32.max),
            }
        } else {
            Interval { min: 0, max }
        };
        // Extending from 32 bits leaves the low half as it is.
        let low = if bits == 32 { *self } else { Scalar::UNKNOWN };
        Scalar {
            bits: self.bits.zero_extend(bits),
            u64,
            u32: low.u32,
            s32: low.s32,
            ..Scalar::UNKNOWN
        }
        .settled()
    }

    /// The low `bits` bits, their sign in the others. `bits` is 8, 16, 32 or 64.
    pub fn sign_extend(&self, bits: u32) -> Scalar {
        let (min, max) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        if min <= self.s64.min && self.s64.max <= max {
            return *self;
        }
        let s64 = if bits == 32
            || bits < 32 && min <= i64::from(self.s32.min) && i64::from(self.s32.max) <= max
        {
            Interval {
                min: i64::from(self.s32.min),
                max: i64::from(self.s32.max),
            }
        } else {
            Interval { min, max }
        };
        let low = if bits == 32 { *self } else { Scalar::UNKNOWN };
        Scalar {
            bits: self.bits.sign_extend(bits),
            s64,
            u32: low.u32,
            s32: low.s32,
            ..Scalar::UNKNOWN
        }
        .settled()
    }

    /// The bytes of the low `bits` bits in opposite order, the others zero. `bits` is 16, 32 or 64.
    pub fn swap_bytes(&self, bits: u32) -> Scalar {
        Scalar {
            bits: self.bits.swap_bytes().rsh(64 - bits),
            ..Scalar::UNKNOWN
        }
        .settled()
    }

    /// `a + b` in 64 bits, for offsets.
    pub fn plus(&self, other: &Scalar) -> Scalar {
        Scalar::alu(AluOp::Add, true, self, other)
    }

    /// `dst op src` as RFC 9669 §4.1 defines it; a 32-bit operation zeroes the upper half.
    pub fn alu(op: AluOp, wide: bool, dst: &Scalar, src: &Scalar) -> Scalar {
        if let (Some(a), Some(b)) = (dst.known(), src.known()) {
            return Scalar::constant(warpbpf_ebpf::alu::alu(wide, op, a, b));
        }
        if !wide {
            return Scalar::alu_low(op, dst, src);
        }
        let result = Scalar::alu_wide(op, 64, dst, src);
        match op {
            // The low half of the result comes from the low halves alone, and their bounds may be the sharper ones.
            AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor => {
                let low = Scalar::alu_low(op, dst, src);
                let both = result.u32.meet(low.u32).zip(result.s32.meet(low.s32));
                match both {
                    Some((u32, s32)) => Scalar { u32, s32, ..result }.settled(),
                    None => result,
                }
            }
            AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => result,
            AluOp::Mov | AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => result,
        }
    }

    /// `-x`
    pub fn neg(&self, wide: bool) -> Scalar {
        Scalar::alu(AluOp::Sub, wide, &Scalar::constant(0), self)
    }

    fn alu_low(op: AluOp, dst: &Scalar, src: &Scalar) -> Scalar {
        let unsigned = || Scalar::alu_wide(op, 32, &dst.zero_extend(32), &src.zero_extend(32));
        let signed = || Scalar::alu_wide(op, 32, &dst.sign_extend(32), &src.sign_extend(32));
        let low = match op {
            AluOp::Add
            | AluOp::Sub
            | AluOp::Mul
            | AluOp::And
            | AluOp::Or
            | AluOp::Xor
            | AluOp::Mov
            | AluOp::Lsh => {
                let (a, b) = (unsigned(), signed());
                let bits = a.bits.zero_extend(32).meet(b.bits.zero_extend(32));
                match (bits, a.u32.meet(b.u32), a.s32.meet(b.s32)) {
                    (Some(bits), Some(u32), Some(s32)) => Scalar {
                        bits: Tnum {
                            value: bits.value,
                            mask: bits.mask | !0 << 32,
                        },
                        u32,
                        s32,
                        ..Scalar::UNKNOWN
                    },
                    // Cannot be, both contain the result: keep one of them.
                    _ => a,
                }
            }
            AluOp::Div | AluOp::Mod | AluOp::Rsh => unsigned(),
            AluOp::SDiv | AluOp::SMod | AluOp::Arsh => signed(),
        };
        low.settled().zero_extend(32)
    }

    /// The operation on 64-bit operands; `bits` says how many bits of a shift amount count (RFC 9669: modulo width).
    fn alu_wide(op: AluOp, bits: u32, a: &Scalar, b: &Scalar) -> Scalar {
        match op {
            AluOp::Mov => *b,
            AluOp::Add => Scalar::wide(a.bits.add(b.bits), a.u64.add(b.u64), a.s64.add(b.s64)),
            AluOp::Sub => Scalar::wide(a.bits.sub(b.bits), a.u64.sub(b.u64), a.s64.sub(b.s64)),
            AluOp::Mul => Scalar::wide(a.bits.mul(b.bits), a.u64.mul(b.u64), a.s64.mul(b.s64)),
            AluOp::And => {
                let u64 = Interval {
                    min: 0,
                    max: a.u64.max.min(b.u64.max),
                };
                Scalar::wide(a.bits.and(b.bits), u64, Interval::FULL)
            }
            AluOp::Or => {
                let u64 = Interval {
                    min: a.u64.min.max(b.u64.min),
                    max: u64::MAX,
                };
                Scalar::wide(a.bits.or(b.bits), u64, Interval::FULL)
            }
            AluOp::Xor => Scalar::wide(a.bits.xor(b.bits), Interval::FULL, Interval::FULL),
            AluOp::Div => Scalar::wide(Tnum::UNKNOWN, divided(a.u64, b.u64), Interval::FULL),
            AluOp::Mod => remainder(a, b),
            AluOp::SDiv => Scalar::wide(
                Tnum::UNKNOWN,
                Interval::FULL,
                divided_signed(a.s64, b.known()),
            ),
            AluOp::SMod => Scalar::wide(
                Tnum::UNKNOWN,
                Interval::FULL,
                remainder_signed(a.s64, b.known()),
            ),
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => {
                let amount = Scalar::wide(
                    b.bits.and(Tnum::constant(u64::from(bits) - 1)),
                    if b.u64.max < u64::from(bits) {
                        b.u64
                    } else {
                        Interval::FULL
                    },
                    Interval::FULL,
                );
                shifted(op, a, amount.u64.min as u32, amount.u64.max as u32)
            }
        }
    }
}

/// `a / b`, 0 where `b` is 0.
fn divided(a: Interval<u64>, b: Interval<u64>) -> Interval<u64> {
    match b.max {
        0 => Interval::constant(0),
        _ if b.min == 0 => Interval { min: 0, max: a.max },
        _ => Interval {
            min: a.min / b.max,
            max: a.max / b.min,
        },
    }
}

/// `a % b`, `a` where `b` is 0.
fn remainder(a: &Scalar, b: &Scalar) -> Scalar {
    if a.u64.max < b.u64.min {
        return *a;
    }
    match b.known() {
        Some(0) => return *a,
        Some(n) if n.is_power_of_two() => {
            return Scalar::alu_wide(AluOp::And, 64, a, &Scalar::constant(n - 1));
        }
        _ => {}
    }
    let max = if b.u64.min == 0 {
        a.u64.max
    } else {
        a.u64.max.min(b.u64.max - 1)
    };
    Scalar::wide(Tnum::UNKNOWN, Interval { min: 0, max }, Interval::FULL)
}

/// `a / b` signed: 0 where `b` is 0, `MIN / -1 = MIN`. `b` if it is known.
fn divided_signed(a: Interval<i64>, b: Option<u64>) -> Interval<i64> {
    match b.map(|b| b as i64) {
        Some(0) => Interval::constant(0),
        Some(b) => Interval::hull(&[a.min.checked_div(b), a.max.checked_div(b)]),
        None if a.min == i64::MIN => Interval::FULL,
        None => {
            let largest = a.min.abs().max(a.max.abs());
            Interval {
                min: -largest,
                max: largest,
            }
        }
    }
}

/// `a % b` signed, with the sign of `a`: `a` where `b` is 0, `MIN % -1 = 0`. `b` if it is known.
fn remainder_signed(a: Interval<i64>, b: Option<u64>) -> Interval<i64> {
    let toward_zero = Interval {
        min: a.min.min(0),
        max: a.max.max(0),
    };
    match b.map(|b| b as i64) {
        Some(0) => a,
        Some(b) => {
            // |result| < |b|; b = MIN still leaves a bound of MAX.
            let below = (b.unsigned_abs() - 1) as i64;
            Interval {
                min: toward_zero.min.max(-below),
                max: toward_zero.max.min(below),
            }
        }
        None => toward_zero,
    }
}

/// `a` shifted by `low..=high`, below 64.
fn shifted(op: AluOp, a: &Scalar, low: u32, high: u32) -> Scalar {
    let exact = low == high;
    match op {
        // Half the number goes: what was known of the low half decides (compilers extend 32-bit numbers this way).
        AluOp::Lsh if exact && low == 32 => {
            let u64 = Interval {
                min: u64::from(a.u32.min) << 32,
                max: u64::from(a.u32.max) << 32,
            };
            let s64 = Interval {
                min: i64::from(a.s32.min) << 32,
                max: i64::from(a.s32.max) << 32,
            };
            Scalar::wide(a.bits.lsh(32), u64, s64)
        }
        AluOp::Lsh => {
            let fits = a.u64.max <= u64::MAX >> high;
            let u64 = if fits {
                Interval {
                    min: a.u64.min << low,
                    max: a.u64.max << high,
                }
            } else {
                Interval::FULL
            };
            let fits_signed = exact
                && a.s64.min << high >> high == a.s64.min
                && a.s64.max << high >> high == a.s64.max;
            let s64 = if fits_signed {
                Interval {
                    min: a.s64.min << high,
                    max: a.s64.max << high,
                }
            } else {
                Interval::FULL
            };
            // At least `low` zeros come in from the right.
            let bits = if exact {
                a.bits.lsh(low)
            } else {
                Tnum::UNKNOWN.lsh(low)
            };
            Scalar::wide(bits, u64, s64)
        }
        AluOp::Rsh => {
            let bits = if exact {
                a.bits.rsh(low)
            } else {
                Tnum::UNKNOWN
            };
            Scalar::wide(
                bits,
                Interval {
                    min: a.u64.min >> high,
                    max: a.u64.max >> low,
                },
                Interval::FULL,
            )
        }
        _ => {
            let bits = if exact {
                a.bits.arsh(low)
            } else {
                Tnum::UNKNOWN
            };
            let s64 = Interval {
                min: (a.s64.min >> low).min(a.s64.min >> high),
                max: (a.s64.max >> low).max(a.s64.max >> high),
            };
            Scalar::wide(bits, Interval::FULL, s64)
        }
    }
}

/// `7`, `0..=31`, `-4..=4`, `any number`, with `& MASK` appended where known zero bits say more.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(x) = self.known() {
            return if (x as i64) < 0 && x as i64 > -4096 {
                write!(f, "{}", x as i64)
            } else {
                write!(f, "{x}")
            };
        }
        let span_u = self.u64.max.wrapping_sub(self.u64.min);
        let span_s = self.s64.max.wrapping_sub(self.s64.min) as u64;
        if span_u == u64::MAX && span_s == u64::MAX {
            f.write_str("any number")?;
        } else if span_s < span_u || self.s64.max < 0 && self.s64.min > -65536 {
            // Small negative numbers are offsets: nobody wants to see them as huge ones.
            write!(f, "{}..={}", self.s64.min, self.s64.max)?;
        } else {
            write!(f, "{}..={}", self.u64.min, self.u64.max)?;
        }
        let zeros = self.bits.max().trailing_zeros();
        if zeros > 0 {
            write!(f, " in steps of {}", 1u64 << zeros.min(63))?;
        }
        Ok(())
    }
}
