//! Floating point arithmetic, PTX ISA "Floating Point Instructions", "Half Precision Floating Point
//! Instructions" and "Mixed Precision": one meaning for f16, bf16, f32 and f64, because they differ
//! in their format only.

use super::format::{Format, Round};
use super::lanes::Lanes;
use super::ty::{FloatTy, Ty};

/// A floating point arithmetic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Float {
    kind: Kind,
    ty: FloatTy,
    round: Round,
    /// `.ftz`: subnormal sources and results become zeros.
    flush: bool,
    /// `.sat`
    saturate: bool,
    /// `.relu`: negative results become 0.
    relu: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// "Floating Point Instructions: add"
    Add,
    /// "sub"
    Sub,
    /// "mul"
    Mul,
    /// "fma", and "mad", which is the same on every target of today
    Fma,
    /// "div"
    Div,
    /// `div.approx`, which gives 0 for divisors above 2^126
    DivApprox,
    /// "rcp"
    Rcp,
    /// "sqrt"
    Sqrt,
    /// "rsqrt"
    Rsqrt,
    /// `rcp.approx.ftz.f64`: the lower word of source and result is 0.
    RcpHigh,
    /// `rsqrt.approx.ftz.f64`: likewise.
    RsqrtHigh,
    /// "sin"
    Sin,
    /// "cos"
    Cos,
    /// "tanh"
    Tanh,
    /// "ex2"
    Ex2,
    /// "lg2"
    Lg2,
    /// "neg"
    Neg,
    /// "abs"
    Abs,
    /// "copysign": the sign of the first source, the magnitude of the second
    CopySign,
    /// "min" and "max"
    Extremum(Extremum),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Extremum {
    max: bool,
    /// `.NaN`: a NaN source makes the result NaN, rather than being ignored.
    nan: bool,
    /// `.xorsign.abs`: of the magnitudes, with the product's sign.
    xor_sign: bool,
    /// Two sources or three.
    three: bool,
}

/// 2^126 as an f32: the last divisor that `div.approx` divides by.
const DIV_APPROX_LAST: u64 = 0x7e80_0000;

/// What `rcp` and `rsqrt` of the upper word give where there is no number.
const HIGH_WORD_NAN: u64 = 0x7fff_ffff_0000_0000;

/// The modifiers of an operation before it is known which of them it takes.
#[derive(Default)]
struct Modifiers {
    round: Option<Round>,
    approx: bool,
    full: bool,
    flush: bool,
    saturate: bool,
    relu: bool,
    nan: bool,
    xor_sign: bool,
}

impl Modifiers {
    fn parse(words: &[&str]) -> Option<Modifiers> {
        let mut found = Modifiers::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let flag = match word {
                "approx" => &mut found.approx,
                "full" => &mut found.full,
                "ftz" => &mut found.flush,
                "sat" => &mut found.saturate,
                "relu" => &mut found.relu,
                "NaN" => &mut found.nan,
                "xorsign" => {
                    if words.next() != Some(&"abs") {
                        return None;
                    }
                    &mut found.xor_sign
                }
                _ => {
                    if found.round.replace(Round::parse(word)?).is_some() {
                        return None;
                    }
                    continue;
                }
            };
            if std::mem::replace(flag, true) {
                return None;
            }
        }
        Some(found)
    }

    /// True if nothing is set but what `allowed` says.
    fn only(&self, allowed: &[&str]) -> bool {
        let set = [
            (self.round.is_some(), "round"),
            (self.approx, "approx"),
            (self.full, "full"),
            (self.flush, "ftz"),
            (self.saturate, "sat"),
            (self.relu, "relu"),
            (self.nan, "NaN"),
            (self.xor_sign, "xorsign"),
        ];
        set.iter()
            .all(|(is_set, name)| !is_set || allowed.contains(name))
    }
}

impl Float {
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<Float> {
        if opcode == "copysign" {
            let [ty @ ("f32" | "f64")] = modifiers else {
                return None;
            };
            return Some(Float::plain(Kind::CopySign, Ty::parse(ty)?.float()?));
        }
        // `ex2.approx.ftz.bf16` and all others have the type last.
        let (&last, rest) = modifiers.split_last()?;
        let ty = Ty::parse(last)?.float()?;
        let found = Modifiers::parse(rest)?;
        let half = matches!(
            ty,
            FloatTy::F16 | FloatTy::F16x2 | FloatTy::BF16 | FloatTy::BF16x2
        );
        let single = ty == FloatTy::F32;
        let double = ty == FloatTy::F64;
        let is_round_to_nearest = found.round.is_none_or(|round| round == Round::Nearest);
        let extremum = |max| {
            Kind::Extremum(Extremum {
                max,
                nan: found.nan,
                xor_sign: found.xor_sign,
                three: false,
            })
        };
        let (kind, allowed): (Kind, &[&str]) = match opcode {
            "add" | "sub" | "mul" if half && is_round_to_nearest => {
                (arithmetic(opcode)?, &["round", "ftz", "sat"])
            }
            "add" | "sub" | "mul" if single => (arithmetic(opcode)?, &["round", "ftz", "sat"]),
            "add" | "sub" | "mul" if double => (arithmetic(opcode)?, &["round"]),
            "fma" if half && found.round == Some(Round::Nearest) => {
                (Kind::Fma, &["round", "ftz", "sat", "relu"])
            }
            "fma" | "mad" if single => (Kind::Fma, &["round", "ftz", "sat"]),
            "fma" | "mad" if double => (Kind::Fma, &["round"]),
            "div" if single && found.approx => (Kind::DivApprox, &["approx", "ftz"]),
            "div" if single => (Kind::Div, &["round", "full", "ftz"]),
            "div" if double && found.round.is_some() => (Kind::Div, &["round"]),
            "rcp" if single => (Kind::Rcp, &["round", "approx", "ftz"]),
            "rcp" if double && found.approx && found.flush => (Kind::RcpHigh, &["approx", "ftz"]),
            "rcp" if double => (Kind::Rcp, &["round"]),
            "sqrt" if single => (Kind::Sqrt, &["round", "approx", "ftz"]),
            "sqrt" if double => (Kind::Sqrt, &["round"]),
            "rsqrt" if single && found.approx => (Kind::Rsqrt, &["approx", "ftz"]),
            "rsqrt" if double && found.approx && found.flush => {
                (Kind::RsqrtHigh, &["approx", "ftz"])
            }
            "rsqrt" if double && found.approx => (Kind::Rsqrt, &["approx"]),
            "sin" if single && found.approx => (Kind::Sin, &["approx", "ftz"]),
            "cos" if single && found.approx => (Kind::Cos, &["approx", "ftz"]),
            "lg2" if single && found.approx => (Kind::Lg2, &["approx", "ftz"]),
            "tanh" if !double && found.approx => (Kind::Tanh, &["approx"]),
            "ex2" if !double && found.approx => (Kind::Ex2, &["approx", "ftz"]),
            "neg" => (Kind::Neg, if double { &[] } else { &["ftz"] }),
            "abs" => (Kind::Abs, if double { &[] } else { &["ftz"] }),
            "min" | "max" if double => (extremum(opcode == "max"), &[]),
            "min" | "max" => (extremum(opcode == "max"), &["ftz", "NaN", "xorsign"]),
            _ => return None,
        };
        let imprecise = found.approx || found.full;
        if !found.only(allowed)
            || imprecise && (found.round.is_some() || found.approx && found.full)
        {
            return None;
        }
        let round = found.round.unwrap_or(Round::Nearest);
        Some(Float {
            kind,
            ty,
            round,
            flush: found.flush,
            saturate: found.saturate,
            relu: found.relu,
        })
    }

    fn plain(kind: Kind, ty: FloatTy) -> Float {
        Float {
            kind,
            ty,
            round: Round::Nearest,
            flush: false,
            saturate: false,
            relu: false,
        }
    }

    pub(super) fn for_sources(self, count: usize) -> Option<Float> {
        if let Kind::Extremum(extremum) = self.kind {
            let can_be_three = self.ty == FloatTy::F32 && !extremum.xor_sign;
            return match count {
                2 => Some(self),
                3 if can_be_three => Some(Float {
                    kind: Kind::Extremum(Extremum {
                        three: true,
                        ..extremum
                    }),
                    ..self
                }),
                _ => None,
            };
        }
        (self.sources() == count).then_some(self)
    }

    pub(super) fn sources(self) -> usize {
        match self.kind {
            Kind::Add | Kind::Sub | Kind::Mul | Kind::Div | Kind::DivApprox | Kind::CopySign => 2,
            Kind::Fma => 3,
            Kind::Rcp
            | Kind::Sqrt
            | Kind::Rsqrt
            | Kind::RcpHigh
            | Kind::RsqrtHigh
            | Kind::Neg
            | Kind::Abs => 1,
            Kind::Sin | Kind::Cos | Kind::Tanh | Kind::Ex2 | Kind::Lg2 => 1,
            Kind::Extremum(extremum) => 2 + usize::from(extremum.three),
        }
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        match (self.kind, self.ty) {
            // What nearly every kernel spends its time on goes to the host's arithmetic in a loop
            // of its own.
            (Kind::Add, FloatTy::F32) if self.is_nearest() => self.single(lanes, |[a, b, _]| a + b),
            (Kind::Sub, FloatTy::F32) if self.is_nearest() => self.single(lanes, |[a, b, _]| a - b),
            (Kind::Mul, FloatTy::F32) if self.is_nearest() => self.single(lanes, |[a, b, _]| a * b),
            (Kind::Div, FloatTy::F32) if self.is_nearest() => self.single(lanes, |[a, b, _]| a / b),
            (Kind::Rcp, FloatTy::F32) if self.is_nearest() => self.single(lanes, |[a, ..]| 1.0 / a),
            (Kind::Sqrt, FloatTy::F32) if self.is_nearest() => {
                self.single(lanes, |[a, ..]| a.sqrt())
            }
            (Kind::Fma, FloatTy::F32) if self.is_nearest() => {
                self.single(lanes, |[a, b, c]| a.mul_add(b, c));
            }
            (Kind::Add, FloatTy::F64) if self.is_nearest() => {
                lanes.map(|[a, b, ..]| double_bits(double(a) + double(b), &[a, b]));
            }
            (Kind::Sub, FloatTy::F64) if self.is_nearest() => {
                lanes.map(|[a, b, ..]| double_bits(double(a) - double(b), &[a, b]));
            }
            (Kind::Mul, FloatTy::F64) if self.is_nearest() => {
                lanes.map(|[a, b, ..]| double_bits(double(a) * double(b), &[a, b]));
            }
            (Kind::Div, FloatTy::F64) if self.is_nearest() => {
                lanes.map(|[a, b, ..]| double_bits(double(a) / double(b), &[b, a]));
            }
            (Kind::Sqrt, FloatTy::F64) if self.is_nearest() => {
                lanes.map(|[a, ..]| double_bits(double(a).sqrt(), &[a]));
            }
            (Kind::Fma, FloatTy::F64) if self.is_nearest() => lanes.map(|[a, b, c, ..]| {
                double_bits(double(a).mul_add(double(b), double(c)), &[a, c, b])
            }),
            (_, FloatTy::F32) => lanes.map(|[a, b, c, ..]| self.element(Format::F32, [a, b, c])),
            (_, FloatTy::F64) => lanes.map(|[a, b, c, ..]| self.element(Format::F64, [a, b, c])),
            (_, FloatTy::F16) => lanes.map(|[a, b, c, ..]| self.element(Format::F16, [a, b, c])),
            (_, FloatTy::BF16) => lanes.map(|[a, b, c, ..]| self.element(Format::BF16, [a, b, c])),
            (_, FloatTy::F16x2) => lanes.map(|[a, b, c, ..]| self.halves(Format::F16, [a, b, c])),
            (_, FloatTy::BF16x2) => lanes.map(|[a, b, c, ..]| self.halves(Format::BF16, [a, b, c])),
        }
    }

    fn is_nearest(self) -> bool {
        self.round == Round::Nearest
    }

    /// An f32 operation that the host has.
    #[inline]
    fn single(self, lanes: impl Lanes, f: impl Fn([f32; 3]) -> f32) {
        let value = |bits: u64| f32::from_bits(bits as u32);
        if self.flush || self.saturate {
            lanes.map(|[a, b, c, ..]| {
                let sources = [a, b, c].map(|bits| {
                    value(if self.flush {
                        Format::F32.flush(bits)
                    } else {
                        bits
                    })
                });
                let bits = sources.map(|source| source.to_bits().into());
                self.finish(
                    Format::F32,
                    self.tiny(Format::F32, bits, single_bits(f(sources))),
                )
            });
        } else {
            lanes.map(|[a, b, c, ..]| single_bits(f([a, b, c].map(value))));
        }
    }

    fn halves(self, format: Format, sources: [u64; 3]) -> u64 {
        let low = self.element(format, sources);
        let high = self.element(format, sources.map(|source| source >> 16));
        low | high << 16
    }

    /// One value of `format`.
    fn element(self, format: Format, sources: [u64; 3]) -> u64 {
        let sources = sources.map(|bits| {
            if self.flush {
                format.flush(bits)
            } else {
                bits & format.mask()
            }
        });
        let result = self.rounded(format, sources);
        self.finish(format, self.tiny(format, sources, result))
    }

    /// A product on an H200 (`fma.ftz.f32` and `mul.ftz.f16` were seen) is flushed if it is
    /// subnormal when it is rounded as if there were no smallest exponent: to more bits than a
    /// subnormal number has, so that some of what would be rounded up to the smallest normal number
    /// is not.
    fn tiny(self, format: Format, sources: [u64; 3], result: u64) -> u64 {
        let smallest = format.fraction_mask() + 1;
        let sign = result & format.sign_bit();
        let product = matches!(self.kind, Kind::Fma | Kind::Mul);
        if !self.flush || !product || result ^ sign != smallest {
            return result;
        }
        // Where the result is so small its terms are too, at most 2^49 times as large (2^11 times
        // in f16): they fit when they are made larger by this power of two, in units of the
        // exponent.
        let larger_by = smallest * if format == Format::F16 { 10 } else { 64 };
        let magnitude = |bits: u64| bits & !format.sign_bit();
        let larger = |bits: u64| match magnitude(bits) {
            0 => bits,
            _ => bits + larger_by,
        };
        let [a, b, c] = sources;
        let scaled = if magnitude(a) < magnitude(b) {
            [larger(a), b, larger(c)]
        } else {
            [a, larger(b), larger(c)]
        };
        let rounded = self.rounded(format, scaled);
        if magnitude(rounded) < smallest + larger_by {
            sign
        } else {
            result
        }
    }

    /// What modifiers make of a rounded result.
    fn finish(self, format: Format, mut result: u64) -> u64 {
        if self.flush {
            result = format.flush(result);
        }
        if self.relu && format.is_negative(result) {
            result = 0;
        }
        if self.saturate {
            result = format.saturate(result);
        }
        result
    }

    fn rounded(self, format: Format, mut sources: [u64; 3]) -> u64 {
        if matches!(self.kind, Kind::RcpHigh | Kind::RsqrtHigh) {
            sources[0] = high_word(sources[0]);
        }
        let round = self.round;
        let [a, b, c] = sources;
        let operands = &sources[..self.sources()];
        match self.kind {
            // These two are additions to the hardware.
            Kind::Neg | Kind::Abs if format.is_nan(a) => return format.nan_of(&[a]),
            Kind::Neg => return a ^ format.sign_bit(),
            Kind::Abs => return a & !format.sign_bit(),
            Kind::CopySign => return a & format.sign_bit() | b & !format.sign_bit(),
            Kind::Extremum(extremum) => {
                let two = extremum.of(format, a, b);
                return if extremum.three {
                    extremum.of(format, two, c)
                } else {
                    two
                };
            }
            _ => {}
        }
        if operands.iter().any(|&bits| format.is_nan(bits)) {
            // Which of several f64 NaNs the hardware passes on.
            return match self.kind {
                Kind::RcpHigh | Kind::RsqrtHigh => HIGH_WORD_NAN,
                Kind::Fma => format.nan_of(&[a, c, b]),
                Kind::Div => format.nan_of(&[b, a]),
                _ => format.nan_of(operands),
            };
        }
        let [x, y, z] = sources.map(|bits| format.unpack(bits));
        let approximate = |f: fn(f64) -> f64| format.round_f64(f(format.to_f64(a)), Round::Nearest);
        match self.kind {
            Kind::Add => format.pack(x.add(y, round), round),
            Kind::Sub => format.pack(x.add(y.negated(), round), round),
            Kind::Mul => format.pack(x.mul(y), round),
            Kind::Fma => format.pack(x.mul(y).add(z, round), round),
            Kind::Div => format.pack(x.div(y), round),
            Kind::DivApprox => {
                // Its reciprocal is subnormal, and taken for 0.
                let vanishes = b & !format.sign_bit() > DIV_APPROX_LAST && !format.is_infinite(b);
                let y = if vanishes {
                    format.unpack(b & format.sign_bit() | format.infinity())
                } else {
                    y
                };
                format.pack(x.div(y), round)
            }
            Kind::Rcp => format.pack(format.unpack(format.one()).div(x), round),
            Kind::Sqrt => format.pack(x.sqrt(), round),
            Kind::Rsqrt => approximate(|x| x.sqrt().recip()),
            Kind::RcpHigh => high_word(double(a).recip().to_bits()),
            Kind::RsqrtHigh => match double(a).sqrt().recip() {
                root if root.is_nan() => HIGH_WORD_NAN,
                root => high_word(root.to_bits()),
            },
            Kind::Sin => approximate(f64::sin),
            Kind::Cos => approximate(f64::cos),
            Kind::Tanh => approximate(f64::tanh),
            Kind::Ex2 => approximate(f64::exp2),
            Kind::Lg2 => approximate(f64::log2),
            Kind::Neg | Kind::Abs | Kind::CopySign | Kind::Extremum(_) => {
                unreachable!("returned above")
            }
        }
    }
}

fn arithmetic(opcode: &str) -> Option<Kind> {
    Some(match opcode {
        "add" => Kind::Add,
        "sub" => Kind::Sub,
        "mul" => Kind::Mul,
        _ => return None,
    })
}

impl Extremum {
    /// The smaller or larger of two values; -0 is smaller than +0.
    fn of(self, format: Format, a: u64, b: u64) -> u64 {
        let magnitude = format.mask() >> 1;
        let sign = if self.xor_sign {
            (a ^ b) & format.sign_bit()
        } else {
            0
        };
        let (a, b) = if self.xor_sign {
            (a & magnitude, b & magnitude)
        } else {
            (a, b)
        };
        let result = match (format.is_nan(a), format.is_nan(b)) {
            (false, false) => {
                // Negative numbers order backwards by their bits.
                let key = |bits: u64| {
                    let size = (bits & magnitude).cast_signed();
                    if format.is_negative(bits) {
                        !size
                    } else {
                        size
                    }
                };
                if (key(a) < key(b)) != self.max { a } else { b }
            }
            (true, false) if !self.nan => b,
            (false, true) if !self.nan => a,
            _ => return format.nan_of(&[a, b]),
        };
        result | sign
    }
}

fn single_bits(value: f32) -> u64 {
    if value.is_nan() {
        Format::F32.nan()
    } else {
        value.to_bits().into()
    }
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn double_bits(value: f64, sources: &[u64]) -> u64 {
    if value.is_nan() {
        Format::F64.nan_of(sources)
    } else {
        value.to_bits()
    }
}

fn high_word(bits: u64) -> u64 {
    bits & 0xffff_ffff_0000_0000
}
