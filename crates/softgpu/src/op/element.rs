//! Elements of matrices: their bits and what numbers they are. Every element of every type is exact
//! as an f64, and so are products of two, except of f64 elements: one kind of number serves all.

use half::{bf16, f16};

/// Element type of a multiplicand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
}

/// Element type of an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accumulator {
    F16,
    F32,
    F64,
    S32,
}

impl Element {
    pub(crate) fn parse(modifier: &str) -> Option<Element> {
        Some(match modifier {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "f64" => Element::F64,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            "b1" => Element::B1,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    /// Elements in a register.
    pub(crate) fn per_register(self) -> usize {
        (32 / self.bits()).max(1)
    }

    /// The number that the low bits are.
    pub(crate) fn number(self, bits: u64) -> f64 {
        match self {
            Element::F16 => f16::from_bits(bits as u16).to_f64(),
            Element::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            // The hardware does not look at the low 13 bits.
            Element::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
            Element::E4m3 => e4m3(bits as u8),
            // The upper half of an f16.
            Element::E5m2 => f16::from_bits((bits as u16) << 8).to_f64(),
            Element::F64 => f64::from_bits(bits),
            Element::S8 => f64::from(bits as i8),
            Element::U8 => f64::from(bits as u8),
            Element::S4 => f64::from((bits as i8) << 4 >> 4),
            Element::U4 => f64::from(bits as u8 & 15),
            Element::B1 => f64::from(bits as u8 & 1),
        }
    }
}

/// Sign, four bits of exponent with bias 7, three of mantissa; no infinities, and only all ones is
/// no number.
fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if bits >> 7 == 1 { -size } else { size }
}

impl Accumulator {
    pub(crate) fn parse(modifier: &str) -> Option<Accumulator> {
        Some(match modifier {
            "f16" => Accumulator::F16,
            "f32" => Accumulator::F32,
            "f64" => Accumulator::F64,
            "s32" => Accumulator::S32,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> usize {
        match self {
            Accumulator::F16 => 16,
            Accumulator::F32 | Accumulator::S32 => 32,
            Accumulator::F64 => 64,
        }
    }

    /// Elements in a register.
    pub(crate) fn per_register(self) -> usize {
        (32 / self.bits()).max(1)
    }

    /// The number that the low bits are.
    pub(crate) fn number(self, bits: u64) -> f64 {
        match self {
            Accumulator::F16 => f16::from_bits(bits as u16).to_f64(),
            Accumulator::F32 => f64::from(f32::from_bits(bits as u32)),
            Accumulator::F64 => f64::from_bits(bits),
            Accumulator::S32 => f64::from(bits as i32),
        }
    }

    /// The bits of a sum; a NaN is the one that the hardware gives.
    pub(crate) fn bits_of(self, value: f64, saturate: bool) -> u64 {
        match self {
            Accumulator::F16 if value.is_nan() => 0x7fff,
            Accumulator::F16 => u64::from(f16::from_f64(value).to_bits()),
            Accumulator::F32 if value.is_nan() => 0x7fff_ffff,
            Accumulator::F32 => u64::from((value as f32).to_bits()),
            Accumulator::F64 => value.to_bits(),
            Accumulator::S32 if saturate => u64::from(value as i32 as u32),
            // Sums of integers are exact and far below 2⁵³.
            Accumulator::S32 => u64::from(value as i64 as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats() {
        let cases = [
            (0x00, 0.0),
            (0x01, 2f64.powi(-9)),
            (0x07, 7.0 * 2f64.powi(-9)),
            (0x08, 2f64.powi(-6)),
            (0x38, 1.0),
            (0x3c, 1.5),
            (0xb8, -1.0),
            (0x7e, 448.0),
        ];
        for (bits, value) in cases {
            assert_eq!(Element::E4m3.number(bits), value, "{bits:#x}");
        }
        assert!(Element::E4m3.number(0x7f).is_nan() && Element::E4m3.number(0xff).is_nan());
        let cases = [
            (0x01, 2f64.powi(-16)),
            (0x3c, 1.0),
            (0xc0, -2.0),
            (0x7b, 57_344.0),
            (0x7c, f64::INFINITY),
        ];
        for (bits, value) in cases {
            assert_eq!(Element::E5m2.number(bits), value, "{bits:#x}");
        }
        assert!(Element::E5m2.number(0x7f).is_nan());
    }

    #[test]
    fn small_integers_and_truncated_floats() {
        assert_eq!(Element::S4.number(0xf8), -8.0);
        assert_eq!(Element::S4.number(7), 7.0);
        assert_eq!(Element::U4.number(0xf8), 8.0);
        assert_eq!(Element::S8.number(0x180), -128.0);
        assert_eq!(Element::B1.number(3), 1.0);
        assert_eq!(Element::Tf32.number(0x3f80_1fff), 1.0);
        assert_eq!(Element::Bf16.number(0xc040), -3.0);
    }

    #[test]
    fn results() {
        assert_eq!(Accumulator::F16.bits_of(f64::NAN, false), 0x7fff);
        assert_eq!(Accumulator::F16.bits_of(1e6, false), 0x7c00);
        assert_eq!(Accumulator::F32.bits_of(f64::NAN, false), 0x7fff_ffff);
        assert_eq!(Accumulator::F32.bits_of(-0.5, false), 0xbf00_0000);
        let over = 2f64.powi(31) + 5.0;
        assert_eq!(Accumulator::S32.bits_of(over, false), 0x8000_0005);
        assert_eq!(Accumulator::S32.bits_of(over, true), 0x7fff_ffff);
        assert_eq!(Accumulator::S32.bits_of(-over, true), 0x8000_0000);
    }
}
