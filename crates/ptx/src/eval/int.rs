//! Integer arithmetic, PTX ISA "Integer Arithmetic Instructions" and "Extended-Precision Integer
//! Arithmetic Instructions".

use super::lanes::Lanes;
use super::ty::{IntTy, Ty, each_int};

/// An integer arithmetic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Int {
    kind: Kind,
    ty: IntTy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// "Integer Arithmetic Instructions: add"
    Add,
    /// `add.sat.s32`
    AddSat,
    /// "sub"
    Sub,
    /// `sub.sat.s32`
    SubSat,
    /// "mul"
    Mul(Part),
    /// "mad"
    Mad(Part),
    /// `mad.hi.sat.s32`
    MadHiSat,
    /// "mul24"
    Mul24 { high: bool },
    /// "mad24"
    Mad24 { high: bool, saturate: bool },
    /// "div": all ones for a zero divisor.
    Div,
    /// "rem": all ones for a zero divisor.
    Rem,
    /// "abs"
    Abs,
    /// "neg"
    Neg,
    /// "min", with `.relu` at least 0
    Min { relu: bool },
    /// "max", with `.relu` at least 0
    Max { relu: bool },
    /// "sad"
    Sad,
    /// "dp4a": bytes of `a` are of type `ty`, those of `b` signed or not.
    Dot4 { b_signed: bool },
    /// "dp2a": 16-bit halves of `a` times the low or high two bytes of `b`.
    Dot2 { b_signed: bool, high: bool },
    /// `add`, `min`, `max` on two 16-bit halves
    Halves(Half),
}

/// Which part of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Lo,
    Hi,
    /// All of it, of twice the width.
    Wide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Half {
    Add,
    Min { relu: bool },
    Max { relu: bool },
}

impl Part {
    fn parse(text: &str) -> Option<Part> {
        Some(match text {
            "lo" => Part::Lo,
            "hi" => Part::Hi,
            "wide" => Part::Wide,
            _ => return None,
        })
    }
}

impl Int {
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<Int> {
        let (&last, rest) = modifiers.split_last()?;
        // The modifier is written on either side of the type.
        if let ("relu", [ty]) = (last, rest) {
            return match opcode {
                "min" | "max" => Self::decode(opcode, &["relu", ty]).filter(|_| *ty != "relu"),
                _ => None,
            };
        }
        if let Some(op) = Self::decode_halves(opcode, rest, last) {
            return Some(op);
        }
        let ty = Ty::parse(last)?.int()?;
        if opcode == "dp4a" || opcode == "dp2a" {
            return Self::decode_dot(opcode, rest, ty);
        }
        // Bytes take part in conversions and comparisons only.
        if ty.bits() == 8 {
            return None;
        }
        let word = ty.bits() == 32;
        let kind = match (opcode, rest) {
            ("add", []) => Kind::Add,
            ("add", ["sat"]) if ty == IntTy::S32 => Kind::AddSat,
            ("sub", []) => Kind::Sub,
            ("sub", ["sat"]) if ty == IntTy::S32 => Kind::SubSat,
            ("mul", [part]) => {
                Kind::Mul(Part::parse(part).filter(|&part| part != Part::Wide || ty.bits() < 64)?)
            }
            ("mad", ["hi", "sat"]) if ty == IntTy::S32 => Kind::MadHiSat,
            ("mad", [part]) => {
                Kind::Mad(Part::parse(part).filter(|&part| part != Part::Wide || ty.bits() < 64)?)
            }
            ("mul24", [part @ ("lo" | "hi")]) if word => Kind::Mul24 {
                high: *part == "hi",
            },
            ("mad24", [part @ ("lo" | "hi")]) if word => Kind::Mad24 {
                high: *part == "hi",
                saturate: false,
            },
            ("mad24", ["hi", "sat"]) if ty == IntTy::S32 => Kind::Mad24 {
                high: true,
                saturate: true,
            },
            ("div", []) => Kind::Div,
            ("rem", []) => Kind::Rem,
            ("abs", []) if ty.is_signed() => Kind::Abs,
            ("neg", []) if ty.is_signed() => Kind::Neg,
            ("min", []) => Kind::Min { relu: false },
            ("max", []) => Kind::Max { relu: false },
            ("min", ["relu"]) if ty == IntTy::S32 => Kind::Min { relu: true },
            ("max", ["relu"]) if ty == IntTy::S32 => Kind::Max { relu: true },
            ("sad", []) => Kind::Sad,
            _ => return None,
        };
        Some(Int { kind, ty })
    }

    fn decode_halves(opcode: &str, rest: &[&str], last: &str) -> Option<Int> {
        let ty = match last {
            "u16x2" => IntTy::U16,
            "s16x2" => IntTy::S16,
            _ => return None,
        };
        let half = match (opcode, rest) {
            ("add", []) => Half::Add,
            ("min", []) => Half::Min { relu: false },
            ("max", []) => Half::Max { relu: false },
            ("min", ["relu"]) if ty == IntTy::S16 => Half::Min { relu: true },
            ("max", ["relu"]) if ty == IntTy::S16 => Half::Max { relu: true },
            _ => return None,
        };
        Some(Int {
            kind: Kind::Halves(half),
            ty,
        })
    }

    fn decode_dot(opcode: &str, rest: &[&str], b: IntTy) -> Option<Int> {
        if b.bits() != 32 {
            return None;
        }
        let b_signed = b.is_signed();
        let (kind, a) = match (opcode, rest) {
            ("dp4a", [a]) => (Kind::Dot4 { b_signed }, a),
            ("dp2a", [part @ ("lo" | "hi"), a]) => (
                Kind::Dot2 {
                    b_signed,
                    high: *part == "hi",
                },
                a,
            ),
            _ => return None,
        };
        let ty = Ty::parse(a)?.int().filter(|ty| ty.bits() == 32)?;
        Some(Int { kind, ty })
    }

    pub(super) fn sources(self) -> usize {
        match self.kind {
            Kind::Abs | Kind::Neg => 1,
            Kind::Add
            | Kind::AddSat
            | Kind::Sub
            | Kind::SubSat
            | Kind::Mul(_)
            | Kind::Mul24 { .. } => 2,
            Kind::Div | Kind::Rem | Kind::Min { .. } | Kind::Max { .. } | Kind::Halves(_) => 2,
            Kind::Mad(_)
            | Kind::MadHiSat
            | Kind::Mad24 { .. }
            | Kind::Sad
            | Kind::Dot4 { .. }
            | Kind::Dot2 { .. } => 3,
        }
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        let ty = self.ty;
        match self.kind {
            Kind::Add => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((a as U).wrapping_add(b as U))))
            }
            Kind::Sub => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((a as U).wrapping_sub(b as U))))
            }
            Kind::AddSat => lanes.map(|[a, b, ..]| word((a as i32).saturating_add(b as i32))),
            Kind::SubSat => lanes.map(|[a, b, ..]| word((a as i32).saturating_sub(b as i32))),
            Kind::Mul(Part::Lo) => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((a as U).wrapping_mul(b as U))))
            }
            Kind::Mul(Part::Hi) => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((product(a as T, b as T) >> T::BITS) as U)))
            }
            Kind::Mul(Part::Wide) => {
                let mask = wide_mask(ty);
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| product(a as T, b as T) as u64 & mask));
            }
            Kind::Mad(Part::Lo) => each_int!(ty, T, U => {
                lanes.map(|[a, b, c, ..]| bits((a as U).wrapping_mul(b as U).wrapping_add(c as U)))
            }),
            Kind::Mad(Part::Hi) => each_int!(ty, T, U => {
                lanes.map(|[a, b, c, ..]| bits(((product(a as T, b as T) >> T::BITS) as U).wrapping_add(c as U)))
            }),
            Kind::Mad(Part::Wide) => {
                let mask = wide_mask(ty);
                each_int!(ty, T, U => lanes.map(|[a, b, c, ..]| {
                    (product(a as T, b as T) as u64).wrapping_add(c) & mask
                }));
            }
            Kind::MadHiSat => lanes.map(|[a, b, c, ..]| {
                let high = (i64::from(a as i32) * i64::from(b as i32)) >> 32;
                word((high as i32).saturating_add(c as i32))
            }),
            Kind::Mul24 { high } => {
                let signed = ty.is_signed();
                lanes.map(|[a, b, ..]| product24(a, b, signed, high).into());
            }
            Kind::Mad24 { high, saturate } => {
                let signed = ty.is_signed();
                lanes.map(|[a, b, c, ..]| {
                    let product = product24(a, b, signed, high);
                    if saturate {
                        word((product as i32).saturating_add(c as i32))
                    } else {
                        product.wrapping_add(c as u32).into()
                    }
                });
            }
            Kind::Div => each_int!(ty, T, U => lanes.map(|[a, b, ..]| match b as T {
                0 => bits(U::MAX),
                b => bits((a as T).wrapping_div(b) as U),
            })),
            Kind::Rem => each_int!(ty, T, U => lanes.map(|[a, b, ..]| match b as T {
                0 => bits(U::MAX),
                b => bits((a as T).wrapping_rem(b) as U),
            })),
            Kind::Abs => each_int!(ty, T, U => lanes.map(|[a, ..]| {
                // Decoded for signed types only, whose sign is their highest bit.
                let value = a as U;
                bits(if value >> (U::BITS - 1) == 1 { value.wrapping_neg() } else { value })
            })),
            Kind::Neg => each_int!(ty, T, U => lanes.map(|[a, ..]| bits((a as U).wrapping_neg()))),
            Kind::Min { relu: false } => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((a as T).min(b as T) as U)))
            }
            Kind::Max { relu: false } => {
                each_int!(ty, T, U => lanes.map(|[a, b, ..]| bits((a as T).max(b as T) as U)))
            }
            Kind::Min { relu: true } => {
                lanes.map(|[a, b, ..]| word((a as i32).min(b as i32).max(0)))
            }
            Kind::Max { relu: true } => {
                lanes.map(|[a, b, ..]| word((a as i32).max(b as i32).max(0)))
            }
            Kind::Sad => each_int!(ty, T, U => {
                lanes.map(|[a, b, c, ..]| bits(((a as T).abs_diff(b as T) as U).wrapping_add(c as U)))
            }),
            Kind::Dot4 { b_signed } => {
                let a_signed = ty.is_signed();
                lanes.map(|[a, b, c, ..]| {
                    let dot = (0..4)
                        .map(|at| byte(a, at, a_signed) * byte(b, at, b_signed))
                        .sum::<i32>();
                    (c as u32).wrapping_add(dot as u32).into()
                });
            }
            Kind::Dot2 { b_signed, high } => {
                let a_signed = ty.is_signed();
                let first = if high { 2 } else { 0 };
                lanes.map(|[a, b, c, ..]| {
                    let half = |at: u32| {
                        let bits = (a >> (16 * at)) as u16;
                        if a_signed {
                            i32::from(bits as i16)
                        } else {
                            i32::from(bits)
                        }
                    };
                    let dot = (0..2)
                        .map(|at| half(at) * byte(b, first + at, b_signed))
                        .sum::<i32>();
                    (c as u32).wrapping_add(dot as u32).into()
                });
            }
            Kind::Halves(half) => {
                let signed = ty.is_signed();
                lanes.map(|[a, b, ..]| {
                    let low = half.element(a as u16, b as u16, signed);
                    let high = half.element((a >> 16) as u16, (b >> 16) as u16, signed);
                    u64::from(low) | u64::from(high) << 16
                });
            }
        }
    }
}

impl Half {
    fn element(self, a: u16, b: u16, signed: bool) -> u16 {
        let floor = |relu: bool, value: i16| if relu { value.max(0) } else { value } as u16;
        match (self, signed) {
            (Half::Add, _) => a.wrapping_add(b),
            (Half::Min { .. }, false) => a.min(b),
            (Half::Max { .. }, false) => a.max(b),
            (Half::Min { relu }, true) => floor(relu, (a as i16).min(b as i16)),
            (Half::Max { relu }, true) => floor(relu, (a as i16).max(b as i16)),
        }
    }
}

/// A result of the type's own width.
fn bits(value: impl Into<u64>) -> u64 {
    value.into()
}

/// An i32 as the bits of a 32-bit result.
fn word(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// The exact product of two integers of at most 64 bits. A product of two u64 does not fit an i128,
/// but its bits do.
fn product(a: impl Into<i128>, b: impl Into<i128>) -> i128 {
    a.into().wrapping_mul(b.into())
}

/// The bits of a result twice as wide as `ty`.
fn wide_mask(ty: IntTy) -> u64 {
    u64::MAX >> (64 - (2 * ty.bits()).min(64))
}

/// `mul24`: 32 bits of the 48-bit product of the low 24 bits; the high form gives bits 47 to 16.
fn product24(a: u64, b: u64, signed: bool, high: bool) -> u32 {
    let low24 = |value: u64| {
        let top = (value as u32) << 8;
        if signed {
            i64::from(top as i32 >> 8)
        } else {
            i64::from(top >> 8)
        }
    };
    let product = low24(a).wrapping_mul(low24(b));
    (if high { product >> 16 } else { product }) as u32
}

fn byte(word: u64, at: u32, signed: bool) -> i32 {
    let bits = (word >> (8 * at)) as u8;
    if signed {
        i32::from(bits as i8)
    } else {
        i32::from(bits)
    }
}

/// An operation of extended precision. The flag `CC.CF` is the carry of the adder, as on hardware:
/// a subtraction adds the complement, so that its flag is 1 if nothing was borrowed. The ISA's text
/// says the reverse of subtractions, which is the same for who does not mix the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Carry {
    kind: CarryKind,
    /// 64 rather than 32 bits.
    long: bool,
    signed: bool,
    reads: bool,
    writes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CarryKind {
    Add,
    Sub,
    MadLo,
    MadHi,
}

impl Carry {
    /// "Extended-Precision Integer Arithmetic Instructions: add.cc, addc, sub.cc, subc, mad.cc,
    /// madc"
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<Carry> {
        let (&last, rest) = modifiers.split_last()?;
        let ty = Ty::parse(last)?.int().filter(|ty| ty.bits() >= 32)?;
        let (rest, writes) = match rest {
            [rest @ .., "cc"] => (rest, true),
            rest => (rest, false),
        };
        let (kind, reads) = match (opcode, rest) {
            ("add", []) => (CarryKind::Add, false),
            ("addc", []) => (CarryKind::Add, true),
            ("sub", []) => (CarryKind::Sub, false),
            ("subc", []) => (CarryKind::Sub, true),
            ("mad", ["lo"]) => (CarryKind::MadLo, false),
            ("madc", ["lo"]) => (CarryKind::MadLo, true),
            ("mad", ["hi"]) => (CarryKind::MadHi, false),
            ("madc", ["hi"]) => (CarryKind::MadHi, true),
            _ => return None,
        };
        (reads || writes).then_some(Carry {
            kind,
            long: ty.bits() == 64,
            signed: ty.is_signed(),
            reads,
            writes,
        })
    }

    pub(super) fn sources(self) -> usize {
        let own = match self.kind {
            CarryKind::Add | CarryKind::Sub => 2,
            CarryKind::MadLo | CarryKind::MadHi => 3,
        };
        own + usize::from(self.reads)
    }

    pub(super) fn reads_carry(self) -> bool {
        self.reads
    }

    pub(super) fn writes_carry(self) -> bool {
        self.writes
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        let Carry {
            kind,
            long,
            signed,
            reads,
            writes: _,
        } = self;
        let carry_at = self.sources() - 1;
        let mask = if long { u64::MAX } else { u64::from(u32::MAX) };
        lanes.map2(|sources| {
            let [a, b, c, ..] = sources.map(|source| source & mask);
            let carry = u128::from(reads && sources[carry_at] & 1 == 1);
            let extend = |value: u64| match (long, signed) {
                (true, true) => i128::from(value as i64),
                (false, true) => i128::from(value as i32),
                (_, false) => i128::from(value),
            };
            let (low, high, carry) = match kind {
                CarryKind::Add => (a, b, carry),
                CarryKind::Sub => (a, !b & mask, if reads { carry } else { 1 }),
                CarryKind::MadLo => (product(extend(a), extend(b)) as u64 & mask, c, carry),
                CarryKind::MadHi => {
                    let width = if long { 64 } else { 32 };
                    (
                        (product(extend(a), extend(b)) >> width) as u64 & mask,
                        c,
                        carry,
                    )
                }
            };
            let sum = u128::from(low) + u128::from(high) + carry;
            [sum as u64 & mask, u64::from(sum > u128::from(mask))]
        });
    }
}
