//! Numbers: known bits, unsigned and signed intervals of all bits and of their low half, each
//! sharpening the others.
//!
//! Programs have numbers of 64 bits with a low half of 32, for which the parts are named; tests
//! have others, too. One implementation of each operation serves whole numbers and low halves. The
//! low half of a sum, product or bit operation depends only on the low halves of its operands, so
//! such an operation is done twice on whole numbers, once on zero- and once on sign-extended
//! operands: the first gives the unsigned interval of the result, the second the signed one.

use std::fmt;

use warpbpf_ebpf::AluOp;
use warpbpf_ebpf::alu::{alu_of, shift_mask};

use super::interval::{Both, Interval, overlap};
use super::tnum::Tnum;
use super::width::{ones, signed, unsigned};

/// A set of numbers of `BITS` bits: those that are in all five parts. `u32` and `s32` are about the
/// low `HALF` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Hash))]
pub struct Number<const BITS: u32, const HALF: u32> {
    /// Known bits.
    pub bits: Tnum<BITS>,
    /// As unsigned numbers.
    pub u64: Interval<u64, BITS>,
    /// As signed numbers.
    pub s64: Interval<i64, BITS>,
    /// The low half as unsigned numbers.
    pub u32: Interval<u32, HALF>,
    /// The low half as signed numbers.
    pub s32: Interval<i32, HALF>,
}

/// What programs compute with.
pub type Scalar = Number<64, 32>;

impl<const BITS: u32, const HALF: u32> Number<BITS, HALF> {
    /// Every number.
    pub const UNKNOWN: Self = Number {
        bits: Tnum::UNKNOWN,
        u64: Interval::FULL,
        s64: Interval::FULL,
        u32: Interval::FULL,
        s32: Interval::FULL,
    };

    /// One number.
    pub const fn constant(x: u64) -> Self {
        Number {
            bits: Tnum::constant(x),
            u64: Interval::constant(x & ones(BITS)),
            s64: Interval::constant(signed(BITS, x)),
            u32: Interval::constant((x & ones(HALF)) as u32),
            s32: Interval::constant(signed(HALF, x) as i32),
        }
    }

    /// The numbers `min..=max`, unsigned.
    pub fn range(min: u64, max: u64) -> Self {
        match Interval::new(min, max) {
            Some(u64) => Number {
                u64,
                ..Self::UNKNOWN
            }
            .settled(),
            None => Self::UNKNOWN,
        }
    }

    /// The numbers `min..=max`, signed.
    pub fn signed_range(min: i64, max: i64) -> Self {
        match Interval::new(min, max) {
            Some(s64) => Number {
                s64,
                ..Self::UNKNOWN
            }
            .settled(),
            None => Self::UNKNOWN,
        }
    }

    /// What a zero- or sign-extending load of `bits` bits can give.
    pub fn loaded(bits: u32, signed: bool) -> Self {
        let any = Self::UNKNOWN;
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
            && self.s64.contains(signed(BITS, x))
            && self.u32.contains((x & ones(HALF)) as u32)
            && self.s32.contains(signed(HALF, x) as i32)
    }

    /// All members are in `other` (it may say no where that is hard to see).
    pub fn is_subset(&self, other: &Self) -> bool {
        self.bits.is_subset(other.bits)
            && self.u64.is_subset(other.u64)
            && self.s64.is_subset(other.s64)
            && self.u32.is_subset(other.u32)
            && self.s32.is_subset(other.s32)
    }

    /// What is in both; `None` if nothing is.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        Number {
            bits: self.bits.meet(other.bits)?,
            u64: self.u64.meet(other.u64)?,
            s64: self.s64.meet(other.s64)?,
            u32: self.u32.meet(other.u32)?,
            s32: self.s32.meet(other.s32)?,
        }
        .reduced()
    }

    /// Lets each part sharpen the others; `None` if they contradict each other, so that no number
    /// is left.
    pub fn reduced(mut self) -> Option<Self> {
        // Each round carries what one half learned into the other. Two or three do; the bound is
        // for form's sake, and a set that is not quite reduced is still sound.
        for _ in 0..8 {
            let next = self.reduce_low()?.reduce_wide()?;
            if next == self {
                break;
            }
            self = next;
        }
        Some(self)
    }

    fn reduce_wide(self) -> Option<Self> {
        let Number {
            bits,
            u64,
            s64,
            u32,
            s32,
        } = self;
        let (mut u64, mut s64) = by_bits(bits, u64, s64)?;
        // The upper half is the same everywhere: then the low half's interval is the whole
        // number's.
        if u64.min >> HALF == u64.max >> HALF {
            let high = u64.min >> HALF << HALF;
            u64 = u64.meet(Interval {
                min: high | u64::from(u32.min),
                max: high | u64::from(u32.max),
            })?;
        }
        if fits::<HALF>(s64.min, s64.max) {
            s64 = s64.meet(Interval {
                min: i64::from(s32.min),
                max: i64::from(s32.max),
            })?;
        }
        let (u64, s64) = by_sign(u64, s64)?;
        Some(Number {
            bits: bits.meet(Tnum::range(u64.min, u64.max))?,
            u64,
            s64,
            u32,
            s32,
        })
    }

    fn reduce_low(self) -> Option<Self> {
        let Number {
            bits,
            u64,
            s64,
            u32,
            s32,
        } = self;
        let (mut low, mut low_signed) = by_bits(bits.low(), u32.wide(), s32.wide())?;
        if u64.min >> HALF == u64.max >> HALF {
            low = low.meet(Interval {
                min: u64.min & ones(HALF),
                max: u64.max & ones(HALF),
            })?;
        }
        if s64.min >> HALF == s64.max >> HALF {
            low = low.meet(Interval {
                min: s64.min as u64 & ones(HALF),
                max: s64.max as u64 & ones(HALF),
            })?;
        }
        if fits::<HALF>(s64.min, s64.max) {
            low_signed = low_signed.meet(Interval {
                min: s64.min,
                max: s64.max,
            })?;
        }
        let (low, low_signed) = by_sign(low, low_signed)?;
        Some(Number {
            bits: bits.meet(Tnum::range(low.min, low.max).unknown_above(HALF))?,
            u64,
            s64,
            u32: low.narrow(),
            s32: low_signed.narrow(),
        })
    }

    /// [`reduced`](Self::reduced) for a set that holds a number by construction: if the parts seem
    /// to contradict each other then one of them is wrong, and every number is the safe answer.
    fn settled(self) -> Self {
        self.reduced().unwrap_or(Self::UNKNOWN)
    }

    /// From the parts that arithmetic on whole numbers computes.
    fn wide(bits: Tnum<BITS>, u64: Interval<u64, BITS>, s64: Interval<i64, BITS>) -> Self {
        Number {
            bits,
            u64,
            s64,
            ..Self::UNKNOWN
        }
        .settled()
    }

    /// The low `bits` bits, the others zero.
    pub fn zero_extend(&self, bits: u32) -> Self {
        let max = ones(bits);
        if self.u64.max <= max {
            return *self;
        }
        let u64 = if bits == HALF || bits < HALF && u64::from(self.u32.max) <= max {
            Interval {
                min: u64::from(self.u32.min),
                max: u64::from(self.u32.max),
            }
        } else {
            Interval { min: 0, max }
        };
        // Extending from the low half leaves the low half as it is.
        let low = if bits == HALF { *self } else { Self::UNKNOWN };
        Number {
            bits: self.bits.zero_extend(bits),
            u64,
            u32: low.u32,
            s32: low.s32,
            ..Self::UNKNOWN
        }
        .settled()
    }

    /// The low `bits` bits, their sign in the others.
    pub fn sign_extend(&self, bits: u32) -> Self {
        let (min, max) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        if min <= self.s64.min && self.s64.max <= max {
            return *self;
        }
        let s64 = if bits == HALF
            || bits < HALF && min <= i64::from(self.s32.min) && i64::from(self.s32.max) <= max
        {
            Interval {
                min: i64::from(self.s32.min),
                max: i64::from(self.s32.max),
            }
        } else {
            Interval { min, max }
        };
        let low = if bits == HALF { *self } else { Self::UNKNOWN };
        Number {
            bits: self.bits.sign_extend(bits),
            s64,
            u32: low.u32,
            s32: low.s32,
            ..Self::UNKNOWN
        }
        .settled()
    }

    /// `a + b` of whole numbers, for offsets.
    pub fn plus(&self, other: &Self) -> Self {
        Self::alu(AluOp::Add, true, self, other)
    }

    /// `dst op src` as RFC 9669 §4.1 defines it; an operation on low halves (not `wide`) zeroes the
    /// upper half.
    pub fn alu(op: AluOp, wide: bool, dst: &Self, src: &Self) -> Self {
        if let (Some(a), Some(b)) = (dst.known(), src.known()) {
            return Self::constant(alu_of::<BITS, HALF>(wide, op, a, b));
        }
        if !wide {
            return Self::alu_low(op, dst, src);
        }
        let result = Self::alu_wide(op, BITS, dst, src);
        match op {
            // The low half of the result comes from the low halves alone, and their bounds may be
            // the sharper ones.
            AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor => {
                let low = Self::alu_low(op, dst, src);
                let both = result.u32.meet(low.u32).zip(result.s32.meet(low.s32));
                match both {
                    Some((u32, s32)) => Number { u32, s32, ..result }.settled(),
                    None => result,
                }
            }
            AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => result,
            AluOp::Mov | AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => result,
        }
    }

    /// `-x`
    pub fn neg(&self, wide: bool) -> Self {
        Self::alu(AluOp::Sub, wide, &Self::constant(0), self)
    }

    fn alu_low(op: AluOp, dst: &Self, src: &Self) -> Self {
        let unsigned = || Self::alu_wide(op, HALF, &dst.zero_extend(HALF), &src.zero_extend(HALF));
        let signed = || Self::alu_wide(op, HALF, &dst.sign_extend(HALF), &src.sign_extend(HALF));
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
                let bits = a.bits.unknown_above(HALF).meet(b.bits.unknown_above(HALF));
                match (bits, a.u32.meet(b.u32), a.s32.meet(b.s32)) {
                    (Some(bits), Some(u32), Some(s32)) => Number {
                        bits,
                        u32,
                        s32,
                        ..Self::UNKNOWN
                    },
                    // Cannot be, both contain the result: keep one of them.
                    _ => a,
                }
            }
            AluOp::Div | AluOp::Mod | AluOp::Rsh => unsigned(),
            AluOp::SDiv | AluOp::SMod | AluOp::Arsh => signed(),
        };
        low.settled().zero_extend(HALF)
    }

    /// The operation on whole numbers; `bits` is the width whose bits of a shift amount count (RFC
    /// 9669: modulo width).
    fn alu_wide(op: AluOp, bits: u32, a: &Self, b: &Self) -> Self {
        match op {
            AluOp::Mov => *b,
            AluOp::Add => Self::wide(a.bits.add(b.bits), a.u64.add(b.u64), a.s64.add(b.s64)),
            AluOp::Sub => Self::wide(a.bits.sub(b.bits), a.u64.sub(b.u64), a.s64.sub(b.s64)),
            AluOp::Mul => Self::wide(a.bits.mul(b.bits), a.u64.mul(b.u64), a.s64.mul(b.s64)),
            AluOp::And => {
                let u64 = Interval {
                    min: 0,
                    max: a.u64.max.min(b.u64.max),
                };
                Self::wide(a.bits.and(b.bits), u64, Interval::FULL)
            }
            AluOp::Or => {
                let u64 = Interval {
                    min: a.u64.min.max(b.u64.min),
                    max: ones(BITS),
                };
                Self::wide(a.bits.or(b.bits), u64, Interval::FULL)
            }
            AluOp::Xor => Self::wide(a.bits.xor(b.bits), Interval::FULL, Interval::FULL),
            AluOp::Div => Self::wide(Tnum::UNKNOWN, divided(a.u64, b.u64), Interval::FULL),
            AluOp::Mod => remainder(a, b),
            AluOp::SDiv => Self::wide(
                Tnum::UNKNOWN,
                Interval::FULL,
                divided_signed(a.s64, b.known()),
            ),
            AluOp::SMod => Self::wide(
                Tnum::UNKNOWN,
                Interval::FULL,
                remainder_signed(a.s64, b.known()),
            ),
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => {
                let mask = shift_mask(bits);
                let amount = Self::wide(
                    b.bits.and(Tnum::constant(mask)),
                    if b.u64.max <= mask {
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

impl Scalar {
    /// The bytes of the low `bits` bits in opposite order, the others zero. `bits` is 16, 32 or 64.
    pub fn swap_bytes(&self, bits: u32) -> Scalar {
        Number {
            bits: self.bits.swap_bytes().rsh(64 - bits),
            ..Scalar::UNKNOWN
        }
        .settled()
    }
}

/// Intervals of a number of `BITS` bits, sharpened by its known bits.
fn by_bits<const BITS: u32>(
    bits: Tnum<BITS>,
    u: Interval<u64, BITS>,
    s: Interval<i64, BITS>,
) -> Option<Both<BITS>> {
    let sign = 1 << (BITS - 1);
    let u = u.meet(Interval {
        min: bits.min(),
        max: bits.max(),
    })?;
    let s = s.meet(Interval {
        min: signed(BITS, bits.value | bits.mask & sign),
        max: signed(BITS, bits.value | bits.mask & !sign),
    })?;
    Some((u, s))
}

/// Intervals of a number, each sharpened by the other: of one sign, signed and unsigned order
/// agree.
fn by_sign<const BITS: u32>(
    mut u: Interval<u64, BITS>,
    mut s: Interval<i64, BITS>,
) -> Option<Both<BITS>> {
    if (s.min ^ s.max) >= 0 {
        u = u.meet(Interval {
            min: unsigned(BITS, s.min),
            max: unsigned(BITS, s.max),
        })?;
    }
    if signed(BITS, u.min ^ u.max) >= 0 {
        s = s.meet(Interval {
            min: signed(BITS, u.min),
            max: signed(BITS, u.max),
        })?;
    }
    overlap(u, s)
}

/// Both are signed numbers of `BITS` bits.
fn fits<const BITS: u32>(min: i64, max: i64) -> bool {
    let all = Interval::<i64, BITS>::FULL;
    min >= all.min && max <= all.max
}

/// `a / b`, 0 where `b` is 0.
fn divided<const BITS: u32>(a: Interval<u64, BITS>, b: Interval<u64, BITS>) -> Interval<u64, BITS> {
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
fn remainder<const BITS: u32, const HALF: u32>(
    a: &Number<BITS, HALF>,
    b: &Number<BITS, HALF>,
) -> Number<BITS, HALF> {
    if a.u64.max < b.u64.min {
        return *a;
    }
    match b.known() {
        Some(0) => return *a,
        Some(n) if n.is_power_of_two() => {
            return Number::alu_wide(AluOp::And, BITS, a, &Number::constant(n - 1));
        }
        _ => {}
    }
    let max = if b.u64.min == 0 {
        a.u64.max
    } else {
        a.u64.max.min(b.u64.max - 1)
    };
    Number::wide(Tnum::UNKNOWN, Interval { min: 0, max }, Interval::FULL)
}

/// `a / b` signed: 0 where `b` is 0, `MIN / -1 = MIN`. `b` if it is known.
fn divided_signed<const BITS: u32>(a: Interval<i64, BITS>, b: Option<u64>) -> Interval<i64, BITS> {
    match b.map(|b| signed(BITS, b)) {
        Some(0) => Interval::constant(0),
        Some(b) => Interval::hull(&[a.min.checked_div(b), a.max.checked_div(b)]),
        None if a.min == Interval::<i64, BITS>::FULL.min => Interval::FULL,
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
fn remainder_signed<const BITS: u32>(
    a: Interval<i64, BITS>,
    b: Option<u64>,
) -> Interval<i64, BITS> {
    let toward_zero = Interval {
        min: a.min.min(0),
        max: a.max.max(0),
    };
    match b.map(|b| signed(BITS, b)) {
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
fn shifted<const BITS: u32, const HALF: u32>(
    op: AluOp,
    a: &Number<BITS, HALF>,
    low: u32,
    high: u32,
) -> Number<BITS, HALF> {
    let exact = low == high;
    match op {
        // Half the number goes: what was known of the low half decides (compilers extend 32-bit
        // numbers this way).
        AluOp::Lsh if exact && low == HALF => {
            let u64 = Interval {
                min: u64::from(a.u32.min) << HALF,
                max: u64::from(a.u32.max) << HALF,
            };
            let s64 = Interval {
                min: i64::from(a.s32.min) << HALF,
                max: i64::from(a.s32.max) << HALF,
            };
            Number::wide(a.bits.lsh(HALF), u64, s64)
        }
        AluOp::Lsh => {
            let fits = a.u64.max <= ones(BITS) >> high;
            let u64 = if fits {
                Interval {
                    min: a.u64.min << low,
                    max: a.u64.max << high,
                }
            } else {
                Interval::FULL
            };
            let fits_shifted = |x: i64| signed(BITS, (x << high) as u64) >> high == x;
            let fits_signed = exact && fits_shifted(a.s64.min) && fits_shifted(a.s64.max);
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
            Number::wide(bits, u64, s64)
        }
        AluOp::Rsh => {
            let bits = if exact {
                a.bits.rsh(low)
            } else {
                Tnum::UNKNOWN
            };
            Number::wide(
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
            Number::wide(bits, Interval::FULL, s64)
        }
    }
}

/// `7`, `0..=31`, `-4..=4`, `any number`, with `& MASK` appended where known zero bits say more.
impl<const BITS: u32, const HALF: u32> fmt::Display for Number<BITS, HALF> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(x) = self.known() {
            let negative = signed(BITS, x);
            return if negative < 0 && negative > -4096 {
                write!(f, "{negative}")
            } else {
                write!(f, "{x}")
            };
        }
        let span_u = self.u64.max.wrapping_sub(self.u64.min);
        let span_s = self.s64.max.wrapping_sub(self.s64.min) as u64;
        if span_u == ones(BITS) && span_s == ones(BITS) {
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
