//! The 8-bit floats, PTX ISA "Alternate Floating-Point Data Formats": they only come in pairs and
//! only in conversions. `.e4m3` has no infinities and one NaN per sign, so it is no
//! [`Format`](super::format::Format).

use super::format::{Format, Round};

/// An 8-bit float format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Narrow {
    E4m3,
    E5m2,
}

/// The NaN that conversions give, in both formats.
const NAN: u64 = 0x7f;

impl Narrow {
    /// Reads `e4m3x2` and `e5m2x2`.
    pub(super) fn parse_pair(text: &str) -> Option<Narrow> {
        match text {
            "e4m3x2" => Some(Narrow::E4m3),
            "e5m2x2" => Some(Narrow::E5m2),
            _ => None,
        }
    }

    /// Stored fraction bits.
    fn fraction(self) -> i32 {
        match self {
            Narrow::E4m3 => 3,
            Narrow::E5m2 => 2,
        }
    }

    /// Exponent of the smallest normal number.
    fn smallest(self) -> i32 {
        match self {
            Narrow::E4m3 => -6,
            Narrow::E5m2 => -14,
        }
    }

    /// The greatest finite number.
    fn greatest(self) -> f64 {
        match self {
            Narrow::E4m3 => 448.0,
            Narrow::E5m2 => 57_344.0,
        }
    }

    /// `.rn.satfinite`: what is too large becomes the greatest finite number.
    pub(super) fn rounded(self, format: Format, bits: u64, relu: bool) -> u64 {
        if format.is_nan(bits) {
            return NAN;
        }
        if relu && format.is_negative(bits) {
            return 0;
        }
        let value = format.to_f64(bits);
        let size = value.abs().min(2.0 * self.greatest());
        // Exponent of the f64; its subnormal numbers are far below every quantum.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(self.smallest());
        let quantum = 2f64.powi(exponent - self.fraction());
        let rounded = ((size / quantum).round_ties_even() * quantum).min(self.greatest());
        let sign = u64::from(format.is_negative(bits)) << 7;
        sign | self.encode(rounded)
    }

    /// The bits of a number of the format that is not negative.
    fn encode(self, value: f64) -> u64 {
        let exponent = (value.to_bits() >> 52) as i32 - 1023;
        if exponent < self.smallest() {
            return (value * 2f64.powi(self.fraction() - self.smallest())) as u64;
        }
        let fraction = value.to_bits() >> (52 - self.fraction()) & ((1 << self.fraction()) - 1);
        ((exponent - self.smallest() + 1) as u64) << self.fraction() | fraction
    }

    /// As an f16, which holds every number of both formats.
    pub(super) fn to_half(self, bits: u64, relu: bool) -> u64 {
        let (negative, size) = (bits & 0x80 != 0, bits & 0x7f);
        let half = match self {
            Narrow::E5m2 => size << 8,
            Narrow::E4m3 if size == NAN => Format::F16.nan(),
            Narrow::E4m3 => {
                let (exponent, fraction) = ((size >> 3) as i32, (size & 7) as f64);
                let value = if exponent == 0 {
                    fraction * 2f64.powi(-9)
                } else {
                    (8.0 + fraction) * 2f64.powi(exponent - 10)
                };
                Format::F16.round_f64(value, Round::Nearest)
            }
        };
        if Format::F16.is_nan(half) {
            return Format::F16.nan();
        }
        match (negative, relu) {
            (true, true) => 0,
            (true, false) => half | Format::F16.sign_bit(),
            (false, _) => half,
        }
    }
}
