//! Binary floating point of any width in integers: unpacking, exact sums, products, quotients and
//! roots, and one rounding at the end. The host rounds to nearest only and knows no f16, so this is
//! what directed rounding and the narrow formats are computed with; for f32 and f64 to nearest the
//! host is faster and gives the same bits.

use std::cmp::Ordering;

/// A format with a sign, a biased exponent and a fraction, IEEE 754 encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Format {
    /// Stored fraction bits.
    fraction: u32,
    exponent: u32,
}

/// Rounding, PTX ISA "Rounding Modifiers".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Round {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rna`: to nearest, ties away from zero.
    NearestAway,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards negative infinity.
    Down,
    /// `.rp`: towards positive infinity.
    Up,
}

impl Round {
    /// Reads `rn`, `rz`, `rm`, `rp`.
    pub(super) fn parse(text: &str) -> Option<Round> {
        Some(match text {
            "rn" => Round::Nearest,
            "rz" => Round::Zero,
            "rm" => Round::Down,
            "rp" => Round::Up,
            _ => return None,
        })
    }
}

/// A finite number that is not zero: `magnitude * 2^exponent`. After a `jam` the lowest bit may
/// stand for lower ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    negative: bool,
    magnitude: u128,
    exponent: i32,
}

/// A value as arithmetic sees it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Nan,
    Infinity { negative: bool },
    Zero { negative: bool },
    Finite(Exact),
}

/// Where sums are aligned: high enough that what is shifted out below never reaches a rounding
/// decision except as "something", low enough that a carry fits.
const TOP: u32 = 125;

impl Exact {
    pub(super) fn from_int(value: i128) -> Option<Exact> {
        let exact = Exact {
            negative: value < 0,
            magnitude: value.unsigned_abs(),
            exponent: 0,
        };
        (value != 0).then_some(exact)
    }

    /// The same value with its highest set bit at `TOP`. No bit is lost: magnitudes come from
    /// products of at most 106 bits.
    fn aligned(self) -> Exact {
        let shift = TOP as i32 - self.magnitude.ilog2() as i32;
        let magnitude = if shift >= 0 {
            self.magnitude << shift
        } else {
            jam(self.magnitude, shift.unsigned_abs())
        };
        Exact {
            magnitude,
            exponent: self.exponent - shift,
            ..self
        }
    }
}

/// Shifts right; bits shifted out set the lowest bit.
fn jam(value: u128, shift: u32) -> u128 {
    match value.checked_shr(shift) {
        Some(shifted) => shifted | u128::from(value & ((1 << shift) - 1) != 0),
        None => u128::from(value != 0),
    }
}

impl Value {
    fn negative(self) -> bool {
        match self {
            Value::Nan => false,
            Value::Infinity { negative } | Value::Zero { negative } => negative,
            Value::Finite(exact) => exact.negative,
        }
    }

    pub(super) fn negated(self) -> Value {
        match self {
            Value::Nan => Value::Nan,
            Value::Infinity { negative } => Value::Infinity {
                negative: !negative,
            },
            Value::Zero { negative } => Value::Zero {
                negative: !negative,
            },
            Value::Finite(exact) => Value::Finite(Exact {
                negative: !exact.negative,
                ..exact
            }),
        }
    }

    /// The sum; the mode decides the sign of a zero that two numbers cancel to.
    pub(super) fn add(self, other: Value, round: Round) -> Value {
        let cancelled = Value::Zero {
            negative: round == Round::Down,
        };
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { negative: a }, Value::Infinity { negative: b }) if a != b => {
                Value::Nan
            }
            (Value::Infinity { .. }, _) => self,
            (_, Value::Infinity { .. }) => other,
            (Value::Zero { negative: a }, Value::Zero { negative: b }) => {
                if a == b {
                    self
                } else {
                    cancelled
                }
            }
            (Value::Zero { .. }, _) => other,
            (_, Value::Zero { .. }) => self,
            (Value::Finite(a), Value::Finite(b)) => {
                let (a, b) = (a.aligned(), b.aligned());
                let (high, low) = if a.exponent >= b.exponent {
                    (a, b)
                } else {
                    (b, a)
                };
                let lower = jam(low.magnitude, high.exponent.abs_diff(low.exponent));
                if high.negative == low.negative {
                    return Value::Finite(Exact {
                        magnitude: high.magnitude + lower,
                        ..high
                    });
                }
                let magnitude = high.magnitude.abs_diff(lower);
                match high.magnitude.cmp(&lower) {
                    Ordering::Equal => cancelled,
                    Ordering::Greater => Value::Finite(Exact { magnitude, ..high }),
                    Ordering::Less => Value::Finite(Exact {
                        magnitude,
                        negative: low.negative,
                        ..high
                    }),
                }
            }
        }
    }

    /// The exact product.
    pub(super) fn mul(self, other: Value) -> Value {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { .. }, Value::Zero { .. })
            | (Value::Zero { .. }, Value::Infinity { .. }) => Value::Nan,
            (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => {
                Value::Infinity { negative }
            }
            (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => Value::Zero { negative },
            (Value::Finite(a), Value::Finite(b)) => Value::Finite(Exact {
                negative,
                magnitude: a.magnitude * b.magnitude,
                exponent: a.exponent + b.exponent,
            }),
        }
    }

    /// The quotient, its remainder jammed.
    pub(super) fn div(self, other: Value) -> Value {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { .. }, Value::Infinity { .. })
            | (Value::Zero { .. }, Value::Zero { .. }) => Value::Nan,
            (Value::Infinity { .. }, _) | (_, Value::Zero { .. }) => Value::Infinity { negative },
            (Value::Zero { .. }, _) | (_, Value::Infinity { .. }) => Value::Zero { negative },
            (Value::Finite(a), Value::Finite(b)) => {
                let a = a.aligned();
                let (quotient, rest) = (a.magnitude / b.magnitude, a.magnitude % b.magnitude);
                Value::Finite(Exact {
                    negative,
                    magnitude: quotient | u128::from(rest != 0),
                    exponent: a.exponent - b.exponent,
                })
            }
        }
    }

    /// The square root, its remainder jammed.
    pub(super) fn sqrt(self) -> Value {
        match self {
            Value::Nan | Value::Zero { .. } | Value::Infinity { negative: false } => self,
            Value::Infinity { negative: true } => Value::Nan,
            Value::Finite(Exact { negative: true, .. }) => Value::Nan,
            Value::Finite(exact) => {
                let mut exact = exact.aligned();
                if exact.exponent % 2 != 0 {
                    exact.magnitude <<= 1;
                    exact.exponent -= 1;
                }
                let root = exact.magnitude.isqrt();
                let magnitude = root | u128::from(root * root != exact.magnitude);
                Value::Finite(Exact {
                    negative: false,
                    magnitude,
                    exponent: exact.exponent / 2,
                })
            }
        }
    }
}

impl Format {
    pub(super) const F16: Format = Format {
        fraction: 10,
        exponent: 5,
    };
    pub(super) const BF16: Format = Format {
        fraction: 7,
        exponent: 8,
    };
    /// f32 cut to 10 fraction bits; its values are the upper bits of an f32.
    pub(super) const TF32: Format = Format {
        fraction: 10,
        exponent: 8,
    };
    pub(super) const F32: Format = Format {
        fraction: 23,
        exponent: 8,
    };
    pub(super) const F64: Format = Format {
        fraction: 52,
        exponent: 11,
    };

    pub(super) fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    pub(super) fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    pub(super) fn sign_bit(self) -> u64 {
        1 << (self.bits() - 1)
    }

    fn exponent_mask(self) -> u64 {
        (1 << self.exponent) - 1
    }

    pub(super) fn fraction_mask(self) -> u64 {
        (1 << self.fraction) - 1
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    pub(super) fn infinity(self) -> u64 {
        self.exponent_mask() << self.fraction
    }

    pub(super) fn one(self) -> u64 {
        (self.bias() as u64) << self.fraction
    }

    /// The NaN that an operation on numbers gives.
    pub(super) fn nan(self) -> u64 {
        if self == Format::F64 {
            0xfff8_0000_0000_0000
        } else {
            self.mask() >> 1
        }
    }

    /// What an operation gives for NaN sources: the last of them, quieted, for f64; else always the
    /// same.
    pub(super) fn nan_of(self, sources: &[u64]) -> u64 {
        if self != Format::F64 {
            return self.nan();
        }
        let quiet = 1 << (self.fraction - 1);
        sources
            .iter()
            .rfind(|&&source| self.is_nan(source))
            .map_or(self.nan(), |source| source | quiet)
    }

    /// The quiet NaN with the upper payload bits of an f64's, without its sign.
    pub(super) fn narrow_nan(self, bits: u64) -> u64 {
        let payload = bits & Format::F64.fraction_mask();
        self.infinity()
            | 1 << (self.fraction - 1)
            | payload >> (Format::F64.fraction - self.fraction)
    }

    pub(super) fn is_nan(self, bits: u64) -> bool {
        bits & self.mask() & !self.sign_bit() > self.infinity()
    }

    pub(super) fn is_infinite(self, bits: u64) -> bool {
        bits & self.mask() & !self.sign_bit() == self.infinity()
    }

    /// True for zeros and subnormal numbers.
    pub(super) fn has_zero_exponent(self, bits: u64) -> bool {
        bits & self.infinity() == 0
    }

    pub(super) fn is_zero(self, bits: u64) -> bool {
        bits & self.mask() & !self.sign_bit() == 0
    }

    pub(super) fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    /// `.ftz`: a subnormal number becomes a zero of its sign.
    pub(super) fn flush(self, bits: u64) -> u64 {
        if self.has_zero_exponent(bits) {
            bits & self.sign_bit()
        } else {
            bits & self.mask()
        }
    }

    /// `.sat`: into 0 to 1; NaN becomes 0.
    pub(super) fn saturate(self, bits: u64) -> u64 {
        if self.is_nan(bits) || self.is_negative(bits) {
            0
        } else {
            bits.min(self.one())
        }
    }

    pub(super) fn unpack(self, bits: u64) -> Value {
        let negative = self.is_negative(bits);
        let fraction = bits & self.fraction_mask();
        let exponent = bits >> self.fraction & self.exponent_mask();
        if exponent == self.exponent_mask() {
            return if fraction == 0 {
                Value::Infinity { negative }
            } else {
                Value::Nan
            };
        }
        let hidden = u64::from(exponent != 0) << self.fraction;
        let magnitude = u128::from(hidden | fraction);
        if magnitude == 0 {
            return Value::Zero { negative };
        }
        // A subnormal number has the exponent of the smallest normal one.
        let exponent = exponent.max(1) as i32 - self.bias() - self.fraction as i32;
        Value::Finite(Exact {
            negative,
            magnitude,
            exponent,
        })
    }

    /// The one rounding.
    pub(super) fn pack(self, value: Value, round: Round) -> u64 {
        let signed = |negative: bool, bits: u64| {
            if negative {
                bits | self.sign_bit()
            } else {
                bits
            }
        };
        let Exact {
            negative,
            magnitude,
            exponent,
        } = match value {
            Value::Nan => return self.nan(),
            Value::Infinity { negative } => return signed(negative, self.infinity()),
            Value::Zero { negative } => return signed(negative, 0),
            Value::Finite(exact) => exact,
        };
        let fraction = self.fraction as i32;
        let smallest = 1 - self.bias();
        // Exponent of the result's lowest bit.
        let mut unit = (exponent + magnitude.ilog2() as i32).max(smallest) - fraction;
        let mut kept = if unit <= exponent {
            magnitude << (exponent - unit)
        } else {
            // Two bits below the unit: the half, and everything under it.
            let shift = unit - exponent;
            let quarter = if shift >= 2 {
                jam(magnitude, (shift - 2) as u32)
            } else {
                magnitude << (2 - shift)
            };
            let (kept, rest) = (quarter >> 2, quarter & 3);
            let up = match round {
                Round::Nearest => rest > 2 || rest == 2 && kept & 1 == 1,
                Round::NearestAway => rest >= 2,
                Round::Zero => false,
                Round::Down => negative && rest != 0,
                Round::Up => !negative && rest != 0,
            };
            kept + u128::from(up)
        };
        if kept >> (fraction + 1) != 0 {
            kept >>= 1;
            unit += 1;
        }
        if kept >> fraction == 0 {
            return signed(negative, kept as u64);
        }
        let biased = unit + fraction + self.bias();
        if biased >= self.exponent_mask() as i32 {
            let to_infinity = match round {
                Round::Nearest | Round::NearestAway => true,
                Round::Zero => false,
                Round::Down => negative,
                Round::Up => !negative,
            };
            return signed(
                negative,
                if to_infinity {
                    self.infinity()
                } else {
                    self.infinity() - 1
                },
            );
        }
        signed(
            negative,
            (biased as u64) << self.fraction | kept as u64 & self.fraction_mask(),
        )
    }

    /// As an f64, exactly; every format but f64 itself is narrower in both parts. A NaN stays some
    /// NaN.
    pub(super) fn to_f64(self, bits: u64) -> f64 {
        match self {
            Format::F64 => f64::from_bits(bits),
            Format::F32 => f32::from_bits(bits as u32).into(),
            Format::BF16 => f32::from_bits((bits as u32) << 16).into(),
            _ => f64::from_bits(Format::F64.pack(self.unpack(bits), Round::Nearest)),
        }
    }

    /// From an f64, rounded.
    pub(super) fn round_f64(self, value: f64, round: Round) -> u64 {
        if self == Format::F32 && round == Round::Nearest && !value.is_nan() {
            return (value as f32).to_bits().into();
        }
        self.pack(Format::F64.unpack(value.to_bits()), round)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bits of an f64 or f32 with extreme exponents and fractions among them.
    fn operand(fraction: u32, exponent: u32) -> impl Strategy<Value = u64> {
        let last = (1u64 << exponent) - 1;
        let middle = last / 2;
        let exponents = prop_oneof![
            prop::sample::select(vec![
                0,
                1,
                2,
                middle - 1,
                middle,
                middle + 1,
                last - 1,
                last
            ]),
            0..=last,
            middle.saturating_sub(60)..middle + 60,
        ];
        let ones = (1u64 << fraction) - 1;
        let fractions = prop_oneof![Just(0), Just(1), Just(ones), Just(ones / 2 + 1), 0..=ones];
        (any::<bool>(), exponents, fractions)
            .prop_map(move |(s, e, f)| u64::from(s) << (fraction + exponent) | e << fraction | f)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// The host computes the same bits by other means.
        #[test]
        fn nearest_is_the_host(a in operand(52, 11), b in operand(52, 11), c in operand(52, 11)) {
            let [x, y, z] = [a, b, c].map(|bits| Format::F64.unpack(bits));
            let [p, q, r] = [a, b, c].map(f64::from_bits);
            let check = |value: Value, host: f64| {
                let found = Format::F64.pack(value, Round::Nearest);
                prop_assert!(found == host.to_bits() || host.is_nan() && Format::F64.is_nan(found), "{found:x} {host:e}");
                Ok(())
            };
            check(x.add(y, Round::Nearest), p + q)?;
            check(x.mul(y), p * q)?;
            check(x.div(y), p / q)?;
            check(x.sqrt(), p.sqrt())?;
            check(x.mul(y).add(z, Round::Nearest), p.mul_add(q, r))?;
        }

        #[test]
        fn single_nearest_is_the_host(a in operand(23, 8), b in operand(23, 8), c in operand(23, 8)) {
            let [x, y, z] = [a, b, c].map(|bits| Format::F32.unpack(bits));
            let [p, q, r] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            let check = |value: Value, host: f32| {
                let found = Format::F32.pack(value, Round::Nearest);
                prop_assert!(found == u64::from(host.to_bits()) || host.is_nan() && Format::F32.is_nan(found), "{found:x} {host:e}");
                Ok(())
            };
            check(x.add(y, Round::Nearest), p + q)?;
            check(x.mul(y), p * q)?;
            check(x.div(y), p / q)?;
            check(x.sqrt(), p.sqrt())?;
            check(x.mul(y).add(z, Round::Nearest), p.mul_add(q, r))?;
        }
    }
}
