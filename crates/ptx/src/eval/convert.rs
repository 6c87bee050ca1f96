//! Conversion, PTX ISA "Data Movement and Conversion Instructions: cvt, cvt.pack".

use super::compare::format_of;
use super::format::{Exact, Format, Round, Value};
use super::lanes::Lanes;
use super::narrow::Narrow;
use super::ty::{FloatTy, IntTy, Ty};

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Convert {
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    IntToInt {
        from: IntTy,
        to: IntTy,
        saturate: bool,
    },
    IntToFloat {
        from: IntTy,
        to: Format,
        round: Round,
        saturate: bool,
    },
    FloatToInt {
        from: Format,
        to: IntTy,
        round: Round,
        flush: bool,
    },
    FloatToFloat(ToFloat),
    /// `.f16x2.f32 d, a, b`: `a` becomes the upper half.
    Pair(ToFloat),
    /// `.e4m3x2.f32 d, a, b`: `a` becomes the upper byte; `.e4m3x2.f16x2` has both halves in one
    /// source.
    ToNarrow {
        from: Format,
        to: Narrow,
        relu: bool,
    },
    /// `.f16x2.e4m3x2`
    FromNarrow {
        from: Narrow,
        relu: bool,
    },
    /// `cvt.pack`: two numbers and the lower bits of a third side by side.
    Pack {
        to: IntTy,
        width: u32,
        keeps: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ToFloat {
    from: Format,
    to: Format,
    round: Round,
    /// `.rni` and its like: to an integer of the same type.
    integral: bool,
    /// `.ftz`, which concerns f32 only.
    flush: bool,
    saturate: bool,
    /// `.relu`
    relu: bool,
    /// The result stands this many bits up: a tf32 is the upper part of 32 bits.
    shift: u32,
}

/// What stands before the types.
#[derive(Default)]
struct Modifiers {
    round: Option<Round>,
    integral: bool,
    flush: bool,
    saturate: bool,
    relu: bool,
}

impl Modifiers {
    fn parse(words: &[&str]) -> Option<Modifiers> {
        let mut found = Modifiers::default();
        for &word in words {
            let flag = match word {
                "ftz" => &mut found.flush,
                "sat" => &mut found.saturate,
                "relu" => &mut found.relu,
                _ => {
                    let (round, integral) = match word {
                        "rni" => (Round::Nearest, true),
                        "rzi" => (Round::Zero, true),
                        "rmi" => (Round::Down, true),
                        "rpi" => (Round::Up, true),
                        "rna" => (Round::NearestAway, false),
                        _ => (Round::parse(word)?, false),
                    };
                    if found.round.replace(round).is_some() {
                        return None;
                    }
                    found.integral = integral;
                    continue;
                }
            };
            if std::mem::replace(flag, true) {
                return None;
            }
        }
        Some(found)
    }
}

/// An integer type, or bits read as unsigned, which converts alike.
fn int_of(ty: Ty) -> Option<IntTy> {
    match ty {
        Ty::B8 => Some(IntTy::U8),
        Ty::B16 => Some(IntTy::U16),
        Ty::B32 => Some(IntTy::U32),
        Ty::B64 => Some(IntTy::U64),
        _ => ty.int(),
    }
}

impl Convert {
    pub(super) fn decode(modifiers: &[&str]) -> Option<Convert> {
        if let ["pack", "sat", rest @ ..] = modifiers {
            return Self::decode_pack(rest);
        }
        let [rest @ .., to, from] = modifiers else {
            return None;
        };
        if let Some(narrow) = Self::decode_narrow(rest, to, from) {
            return Some(narrow);
        }
        let found = Modifiers::parse(rest)?;
        let from = Ty::parse(from)?;
        if *to == "tf32" {
            return Self::decode_tf32(found, from);
        }
        let to = Ty::parse(to)?;
        let round = found.round.unwrap_or(Round::Nearest);
        let away = round == Round::NearestAway;
        let kind = match (int_of(from), from.float(), int_of(to), to.float()) {
            (Some(from), _, Some(to), _)
                if found.round.is_none() && !found.flush && !found.relu =>
            {
                Kind::IntToInt {
                    from,
                    to,
                    saturate: found.saturate,
                }
            }
            (Some(from), _, _, Some(to))
                if !found.integral && !found.relu && !away && !is_packed(to) =>
            {
                Kind::IntToFloat {
                    from,
                    to: format_of(to),
                    round,
                    saturate: found.saturate,
                }
            }
            // Clamping to the destination's range happens with `.sat` and without.
            (_, Some(from), Some(to), _) if !found.relu && !away && !is_packed(from) => {
                let round = if found.integral {
                    round
                } else {
                    found.round.unwrap_or(Round::Zero)
                };
                Kind::FloatToInt {
                    from: format_of(from),
                    to,
                    round,
                    flush: found.flush,
                }
            }
            (_, Some(from), _, Some(to)) if !away => {
                let packed = match to {
                    FloatTy::F16x2 | FloatTy::BF16x2 if from == FloatTy::F32 && !found.integral => {
                        true
                    }
                    _ if is_packed(to) || is_packed(from) => return None,
                    _ => false,
                };
                let part = ToFloat {
                    from: format_of(from),
                    to: format_of(to),
                    round,
                    integral: found.integral,
                    flush: found.flush,
                    saturate: found.saturate,
                    relu: found.relu,
                    shift: 0,
                };
                if packed {
                    Kind::Pair(part)
                } else {
                    Kind::FloatToFloat(part)
                }
            }
            _ => return None,
        };
        Some(Convert { kind })
    }

    /// `cvt.rna.tf32.f32`, `cvt.rn{.relu}.tf32.f32`, `cvt.rz{.relu}.tf32.f32`
    fn decode_tf32(found: Modifiers, from: Ty) -> Option<Convert> {
        let round = found.round?;
        let known = matches!(round, Round::Nearest | Round::NearestAway | Round::Zero);
        let relu_away = found.relu && round == Round::NearestAway;
        if from != Ty::F32 || relu_away || found.integral || found.flush || found.saturate || !known
        {
            return None;
        }
        Some(Convert {
            kind: Kind::FloatToFloat(ToFloat {
                from: Format::F32,
                to: Format::TF32,
                round,
                integral: false,
                flush: false,
                saturate: false,
                relu: found.relu,
                shift: 13,
            }),
        })
    }

    /// `cvt.rn.satfinite{.relu}.e4m3x2.f32` and its like, and `cvt.rn{.relu}.f16x2.e4m3x2`.
    fn decode_narrow(rest: &[&str], to: &str, from: &str) -> Option<Convert> {
        let (relu, rest) = match rest {
            [rest @ .., "relu"] => (true, rest),
            rest => (false, rest),
        };
        let kind = match (rest, Narrow::parse_pair(to), Narrow::parse_pair(from)) {
            (["rn", "satfinite"], Some(to), None) => Kind::ToNarrow {
                from: match from {
                    "f32" => Format::F32,
                    "f16x2" => Format::F16,
                    _ => return None,
                },
                to,
                relu,
            },
            (["rn"], None, Some(from)) if to == "f16x2" => Kind::FromNarrow { from, relu },
            _ => return None,
        };
        Some(Convert { kind })
    }

    fn decode_pack(modifiers: &[&str]) -> Option<Convert> {
        let (to, keeps) = match modifiers {
            [to, "s32"] => (to, false),
            [to, "s32", "b32"] => (to, true),
            _ => return None,
        };
        let (to, width) = match (*to, keeps) {
            ("u16", false) => (IntTy::U16, 16),
            ("s16", false) => (IntTy::S16, 16),
            ("u8", true) => (IntTy::U8, 8),
            ("s8", true) => (IntTy::S8, 8),
            ("u4", true) => (IntTy::U8, 4),
            ("s4", true) => (IntTy::S8, 4),
            ("u2", true) => (IntTy::U8, 2),
            ("s2", true) => (IntTy::S8, 2),
            _ => return None,
        };
        Some(Convert {
            kind: Kind::Pack { to, width, keeps },
        })
    }

    pub(super) fn sources(self) -> usize {
        match self.kind {
            Kind::IntToInt { .. }
            | Kind::IntToFloat { .. }
            | Kind::FloatToInt { .. }
            | Kind::FloatToFloat(_) => 1,
            Kind::ToNarrow { from, .. } => 1 + usize::from(from == Format::F32),
            Kind::FromNarrow { .. } => 1,
            Kind::Pair(_) => 2,
            Kind::Pack { keeps, .. } => 2 + usize::from(keeps),
        }
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        match self.kind {
            Kind::IntToInt {
                from,
                to,
                saturate: false,
            } => {
                let top = 64 - from.bits();
                let mask = register_mask(to);
                // Cut to the smaller type, then extended as the type it is cut to says.
                let cut = 64 - to.bits();
                let signed = from.is_signed();
                let to_signed = to.is_signed();
                lanes.map(|[a, ..]| {
                    let value = if signed {
                        ((a << top) as i64 >> top) as u64
                    } else {
                        a << top >> top
                    };
                    let value = if to_signed {
                        ((value << cut) as i64 >> cut) as u64
                    } else {
                        value << cut >> cut
                    };
                    value & mask
                });
            }
            Kind::IntToInt {
                from,
                to,
                saturate: true,
            } => {
                let (low, high) = range(to);
                let mask = register_mask(to);
                lanes.map(|[a, ..]| int_value(a, from).clamp(low, high) as u64 & mask);
            }
            Kind::IntToFloat {
                from,
                to,
                round,
                saturate,
            } => {
                let plain = round == Round::Nearest && !saturate;
                match (from, to) {
                    (IntTy::S32, Format::F32) if plain => {
                        lanes.map(|[a, ..]| (a as i32 as f32).to_bits().into())
                    }
                    (IntTy::U32, Format::F32) if plain => {
                        lanes.map(|[a, ..]| (a as u32 as f32).to_bits().into())
                    }
                    (IntTy::S32, Format::F64) if plain => {
                        lanes.map(|[a, ..]| f64::from(a as i32).to_bits())
                    }
                    (IntTy::U32, Format::F64) if plain => {
                        lanes.map(|[a, ..]| f64::from(a as u32).to_bits())
                    }
                    _ => lanes.map(|[a, ..]| {
                        let value = Exact::from_int(int_value(a, from));
                        let bits = to.pack(
                            value.map_or(Value::Zero { negative: false }, Value::Finite),
                            round,
                        );
                        if saturate { to.saturate(bits) } else { bits }
                    }),
                }
            }
            Kind::FloatToInt {
                from,
                to,
                round,
                flush,
            } => match (from, to, round) {
                // The host's cast truncates, saturates and makes NaN 0, as the ISA wants between
                // 32-bit types.
                (Format::F32, IntTy::S32, Round::Zero) => {
                    lanes.map(|[a, ..]| {
                        u64::from((f32::from_bits(a as u32) as i32).cast_unsigned())
                    });
                }
                (Format::F32, IntTy::U32, Round::Zero) => {
                    lanes.map(|[a, ..]| u64::from(f32::from_bits(a as u32) as u32));
                }
                _ => lanes.map(|[a, ..]| float_to_int(a, from, to, round, flush)),
            },
            Kind::FloatToFloat(part) => match (part.from, part.to) {
                (Format::F32, Format::F64) if !part.flush && !part.saturate && !part.integral => {
                    lanes.map(|[a, ..]| widen_single(a));
                }
                _ => lanes.map(|[a, ..]| part.convert(a)),
            },
            Kind::Pair(part) => lanes.map(|[a, b, ..]| part.convert(a) << 16 | part.convert(b)),
            Kind::ToNarrow { from, to, relu } => {
                let halves = from == Format::F16;
                lanes.map(|[a, b, ..]| {
                    let (high, low) = if halves { (a >> 16, a) } else { (a, b) };
                    let [high, low] = [high, low].map(|x| x & from.mask());
                    to.rounded(from, high, relu) << 8 | to.rounded(from, low, relu)
                });
            }
            Kind::FromNarrow { from, relu } => {
                lanes.map(|[a, ..]| from.to_half(a >> 8, relu) << 16 | from.to_half(a, relu));
            }
            Kind::Pack { to, width, keeps } => {
                let (low, high) = match to.is_signed() {
                    true => (-1i128 << (width - 1), (1i128 << (width - 1)) - 1),
                    false => (0, (1i128 << width) - 1),
                };
                let mask = (1u64 << width) - 1;
                lanes.map(|[a, b, c, ..]| {
                    let [a, b] = [a, b]
                        .map(|value| int_value(value, IntTy::S32).clamp(low, high) as u64 & mask);
                    let kept = if keeps { c << (2 * width) } else { 0 };
                    (kept | a << width | b) & u64::from(u32::MAX)
                });
            }
        }
    }
}

fn is_packed(ty: FloatTy) -> bool {
    matches!(ty, FloatTy::F16x2 | FloatTy::BF16x2)
}

/// Result bits of an integer conversion: those of the type, but all of them for signed ones
/// narrower than the register they may go to.
fn register_mask(to: IntTy) -> u64 {
    match to {
        IntTy::S8 | IntTy::S16 => u64::MAX,
        IntTy::U8 | IntTy::U16 | IntTy::U32 | IntTy::U64 | IntTy::S32 | IntTy::S64 => {
            u64::MAX >> (64 - to.bits())
        }
    }
}

fn range(ty: IntTy) -> (i128, i128) {
    let bits = ty.bits();
    if ty.is_signed() {
        (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

fn int_value(bits: u64, ty: IntTy) -> i128 {
    let top = 64 - ty.bits();
    if ty.is_signed() {
        i128::from((bits << top) as i64 >> top)
    } else {
        i128::from(bits << top >> top)
    }
}

/// Out of range goes to the nearest end; NaN gives 0, but the highest bit alone where a 64-bit type
/// is on either side.
fn float_to_int(bits: u64, from: Format, to: IntTy, round: Round, flush: bool) -> u64 {
    let bits = if flush && from == Format::F32 {
        from.flush(bits)
    } else {
        bits
    };
    let mask = register_mask(to);
    if from.is_nan(bits) {
        let wide = from == Format::F64 || to.bits() == 64;
        let highest = (1i64 << (to.bits() - 1)).wrapping_neg() as u64;
        let highest = if to.is_signed() {
            highest
        } else {
            1 << (to.bits() - 1)
        };
        return if wide { highest & mask } else { 0 };
    }
    let value = from.to_f64(bits);
    // The casts below cut the fraction off themselves.
    let value = if round == Round::Zero {
        value
    } else {
        integral(value, round)
    };
    let (low, high) = range(to);
    if to.bits() <= 32 {
        // Both ends are integers that an f64 holds, and an i64 holds what lies between.
        return value.clamp(low as f64, high as f64) as i64 as u64 & mask;
    }
    let (low, high) = range(to);
    // The cast saturates at 128 bits, far outside of any range here.
    (value as i128).clamp(low, high) as u64 & mask
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::NearestAway => value.round(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

/// f32 to f64, exactly; a NaN keeps its sign and payload and becomes quiet.
fn widen_single(bits: u64) -> u64 {
    if Format::F32.is_nan(bits) {
        let sign = (bits >> 31 & 1) << 63;
        return sign | 0x7ff8_0000_0000_0000 | (bits & 0x003f_ffff) << 29;
    }
    f64::from(f32::from_bits(bits as u32)).to_bits()
}

impl ToFloat {
    /// What an H200 makes of each kind of NaN; the ISA leaves it open.
    fn convert_nan(self, bits: u64) -> u64 {
        let sign = if self.from.is_negative(bits) {
            self.to.sign_bit()
        } else {
            0
        };
        match (self.from, self.to) {
            (Format::F64, Format::F64) => self.to.nan_of(&[bits]),
            (Format::F64, _) => sign | self.to.narrow_nan(bits),
            (Format::F32, Format::F64) if self.flush => widen_single(self.from.nan()),
            (Format::F32, Format::F64) => widen_single(bits),
            (Format::F32, Format::TF32) if self.round == Round::NearestAway => bits >> self.shift,

            (Format::F16, Format::F64) => sign | 0x7ff8_0000_0000_0000 | (bits & 0x3ff) << 42,
            (Format::BF16, Format::F32) => bits << 16,
            _ => self.to.nan(),
        }
    }

    fn convert(self, bits: u64) -> u64 {
        let bits = if self.flush && self.from == Format::F32 {
            self.from.flush(bits)
        } else {
            bits & self.from.mask()
        };
        let mut result = if self.from.is_nan(bits) {
            self.convert_nan(bits)
        } else if self.integral {
            self.to
                .round_f64(integral(self.from.to_f64(bits), self.round), self.round)
        } else {
            self.to.pack(self.from.unpack(bits), self.round)
        };
        if self.flush && self.to == Format::F32 {
            result = self.to.flush(result);
        }
        if self.relu && self.to.is_negative(result) {
            result = 0;
        }
        if self.saturate {
            result = self.to.saturate(result);
        }
        result << self.shift
    }
}
