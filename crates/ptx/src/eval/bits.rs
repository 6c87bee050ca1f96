//! Logic, shifts, bit fields and permutations, PTX ISA "Logic and Shift Instructions" and the bit
//! instructions of "Integer Arithmetic Instructions".

use super::lanes::Lanes;
use super::ty::{IntTy, Ty};

/// An operation on bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitOp {
    kind: Kind,
    /// 1 (predicates), 16, 32 or 64.
    width: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// "Logic and Shift Instructions: and"
    And,
    /// "or"
    Or,
    /// "xor"
    Xor,
    /// "not"
    Not,
    /// "cnot"
    Cnot,
    /// "shl": amounts beyond the width give 0.
    Shl,
    /// "shr": amounts beyond the width give 0 or, arithmetic, the sign.
    Shr { signed: bool },
    /// "shf"
    Funnel { left: bool, clamp: bool },
    /// "lop3": the table is the fourth source.
    Lop3 { predicate: Option<Logic> },
    /// "Data Movement and Conversion Instructions: prmt"
    Permute(Permute),
    /// "bfe"
    Extract { signed: bool },
    /// "bfi"
    Insert,
    /// "bfind"
    Find { signed: bool, shift_amount: bool },
    /// "popc"
    Count,
    /// "clz"
    LeadingZeros,
    /// "brev"
    Reverse,
    /// "fns"
    FindNth,
    /// "szext"
    Extend { signed: bool, clamp: bool },
    /// "bmsk"
    Mask { clamp: bool },
}

/// How `lop3` combines its predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Logic {
    Or,
    And,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Permute {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeClampLeft,
    EdgeClampRight,
    Replicate16,
}

impl BitOp {
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<BitOp> {
        if opcode == "prmt" {
            return Self::decode_permute(modifiers);
        }
        let (&last, rest) = modifiers.split_last()?;
        let ty = Ty::parse(last)?;
        let untyped = matches!(ty, Ty::Pred | Ty::B16 | Ty::B32 | Ty::B64);
        let word_or_long = matches!(ty, Ty::B32 | Ty::B64);
        let signed = ty.is_signed();
        let int = ty.int().filter(|ty| ty.bits() >= 32);
        let clamp = match rest {
            [.., "clamp"] => Some(true),
            [.., "wrap"] => Some(false),
            _ => None,
        };
        let kind = match (opcode, rest) {
            ("and", []) if untyped => Kind::And,
            ("or", []) if untyped => Kind::Or,
            ("xor", []) if untyped => Kind::Xor,
            ("not", []) if untyped => Kind::Not,
            ("cnot", []) if untyped && ty != Ty::Pred => Kind::Cnot,
            ("shl", []) if untyped && ty != Ty::Pred => Kind::Shl,
            ("shr", [])
                if (untyped && ty != Ty::Pred) || ty.int().is_some_and(|ty| ty.bits() > 8) =>
            {
                Kind::Shr { signed }
            }
            ("shf", [side @ ("l" | "r"), _]) if ty == Ty::B32 => Kind::Funnel {
                left: *side == "l",
                clamp: clamp?,
            },
            ("lop3", []) if ty == Ty::B32 => Kind::Lop3 { predicate: None },
            ("lop3", ["or"]) if ty == Ty::B32 => Kind::Lop3 {
                predicate: Some(Logic::Or),
            },
            ("lop3", ["and"]) if ty == Ty::B32 => Kind::Lop3 {
                predicate: Some(Logic::And),
            },
            ("bfe", []) if int.is_some() => Kind::Extract { signed },
            ("bfi", []) if word_or_long => Kind::Insert,
            ("bfind", []) if int.is_some() => Kind::Find {
                signed,
                shift_amount: false,
            },
            ("bfind", ["shiftamt"]) if int.is_some() => Kind::Find {
                signed,
                shift_amount: true,
            },
            ("popc", []) if word_or_long => Kind::Count,
            ("clz", []) if word_or_long => Kind::LeadingZeros,
            ("brev", []) if word_or_long => Kind::Reverse,
            ("fns", []) if ty == Ty::B32 => Kind::FindNth,
            ("szext", [_]) if int.is_some_and(|ty| matches!(ty, IntTy::U32 | IntTy::S32)) => {
                Kind::Extend {
                    signed,
                    clamp: clamp?,
                }
            }
            ("bmsk", [_]) if ty == Ty::B32 => Kind::Mask { clamp: clamp? },
            _ => return None,
        };
        Some(BitOp {
            kind,
            width: ty.bits(),
        })
    }

    fn decode_permute(modifiers: &[&str]) -> Option<BitOp> {
        let mode = match modifiers {
            ["b32"] => Permute::Index,
            ["b32", "f4e"] => Permute::Forward4,
            ["b32", "b4e"] => Permute::Backward4,
            ["b32", "rc8"] => Permute::Replicate8,
            ["b32", "ecl"] => Permute::EdgeClampLeft,
            ["b32", "ecr"] => Permute::EdgeClampRight,
            ["b32", "rc16"] => Permute::Replicate16,
            _ => return None,
        };
        Some(BitOp {
            kind: Kind::Permute(mode),
            width: 32,
        })
    }

    pub(super) fn sources(self) -> usize {
        match self.kind {
            Kind::Not
            | Kind::Cnot
            | Kind::Count
            | Kind::LeadingZeros
            | Kind::Reverse
            | Kind::Find { .. } => 1,
            Kind::And | Kind::Or | Kind::Xor | Kind::Shl | Kind::Shr { .. } => 2,
            Kind::Extend { .. } | Kind::Mask { .. } => 2,
            Kind::Funnel { .. } | Kind::Permute(_) | Kind::Extract { .. } | Kind::FindNth => 3,
            Kind::Lop3 { predicate: None } | Kind::Insert => 4,
            Kind::Lop3 { predicate: Some(_) } => 5,
        }
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        let width = self.width;
        let mask = u64::MAX >> (64 - width);
        // A value's bits moved to the top, where the host's shifts see its sign.
        let top = 64 - width;
        match self.kind {
            Kind::And => lanes.map(|[a, b, ..]| a & b & mask),
            Kind::Or => lanes.map(|[a, b, ..]| (a | b) & mask),
            Kind::Xor => lanes.map(|[a, b, ..]| (a ^ b) & mask),
            Kind::Not => lanes.map(|[a, ..]| !a & mask),
            Kind::Cnot => lanes.map(|[a, ..]| u64::from(a & mask == 0)),
            // The amount is a u32 whatever the type; its upper half in the register is not looked
            // at.
            Kind::Shl => lanes.map(|[a, b, ..]| {
                if b as u32 >= width {
                    0
                } else {
                    (a << (b as u32)) & mask
                }
            }),
            Kind::Shr { signed: false } => {
                lanes.map(|[a, b, ..]| {
                    if b as u32 >= width {
                        0
                    } else {
                        (a & mask) >> (b as u32)
                    }
                });
            }
            Kind::Shr { signed: true } => lanes.map(|[a, b, ..]| {
                let value = (a << top) as i64 >> top;
                (value >> (b as u32).min(63)) as u64 & mask
            }),
            Kind::Funnel { left, clamp } => lanes.map(|[a, b, c, ..]| {
                let pair = (b << 32) | u64::from(a as u32);
                let amount = if clamp {
                    (c as u32).min(32)
                } else {
                    c as u32 & 31
                };
                let shifted = if left {
                    (pair << amount) >> 32
                } else {
                    pair >> amount
                };
                u64::from(shifted as u32)
            }),
            Kind::Lop3 { predicate: None } => {
                lanes.map(|[a, b, c, table, _]| {
                    u64::from(lop3(a as u32, b as u32, c as u32, table))
                });
            }
            Kind::Lop3 {
                predicate: Some(logic),
            } => lanes.map2(|[a, b, c, table, q]| {
                let result = lop3(a as u32, b as u32, c as u32, table);
                let predicate = match logic {
                    Logic::Or => result != 0 || q & 1 == 1,
                    Logic::And => result != 0 && q & 1 == 1,
                };
                [result.into(), predicate.into()]
            }),
            Kind::Permute(mode) => {
                lanes.map(|[a, b, c, ..]| u64::from(permute(mode, a as u32, b as u32, c as u32)))
            }
            Kind::Extract { signed } => lanes.map(|[a, b, c, ..]| {
                extract(a & mask, field(b, width), field(c, width), width, signed) & mask
            }),
            Kind::Insert => lanes.map(|[a, b, c, d, _]| {
                let (position, length) = (field(c, width), field(d, width));
                if position >= width {
                    return b & mask;
                }
                let field = low_mask(length) << position;
                ((b & !field) | ((a << position) & field)) & mask
            }),
            Kind::Find {
                signed,
                shift_amount,
            } => lanes.map(|[a, ..]| {
                let value = a & mask;
                // The highest bit unlike the sign is the highest one of its complement.
                let value = if signed && value >> (width - 1) == 1 {
                    !value & mask
                } else {
                    value
                };
                u64::from(match value.checked_ilog2() {
                    None => u32::MAX,
                    Some(at) if shift_amount => width - 1 - at,
                    Some(at) => at,
                })
            }),
            Kind::Count => lanes.map(|[a, ..]| (a & mask).count_ones().into()),
            Kind::LeadingZeros => lanes.map(|[a, ..]| ((a & mask).leading_zeros() - top).into()),
            Kind::Reverse => lanes.map(|[a, ..]| a.reverse_bits() >> top),
            Kind::FindNth => {
                lanes.map(|[a, b, c, ..]| find_nth(a as u32, b as u32, c as i32).into())
            }
            Kind::Extend { signed, clamp } => lanes.map(|[a, b, ..]| {
                let (a, b) = (a as u32, b as u32);
                let kept = b & 31;
                if clamp && b >= 32 {
                    return a.into();
                }
                let above = u32::MAX << kept;
                let negative = signed && kept != 0 && a >> (kept - 1) & 1 == 1;
                ((a & !above) | if negative { above } else { 0 }).into()
            }),
            Kind::Mask { clamp } => lanes.map(|[a, b, ..]| {
                let (a, b) = (a as u32, b as u32);
                let sum = (a & 31) + (b & 31);
                let from = if clamp && a >= 32 {
                    0
                } else {
                    u32::MAX << (a & 31)
                };
                let open = sum >= 32 || clamp && (a >= 32 || b >= 32);
                let beyond = if open { 0 } else { u32::MAX << sum };
                (from & !beyond).into()
            }),
        }
    }
}

/// A field's position or length. The ISA says that 0 to 255 count; the hardware takes the low byte
/// for 32-bit fields, but all 32 bits for 64-bit ones, and so do we.
fn field(source: u64, width: u32) -> u32 {
    if width == 64 {
        source as u32
    } else {
        source as u32 & 0xff
    }
}

/// The lowest `length` bits.
fn low_mask(length: u32) -> u64 {
    if length >= 64 {
        u64::MAX
    } else {
        (1 << length) - 1
    }
}

/// Each bit is the table's entry at the index its three source bits make, `a` the highest.
fn lop3(a: u32, b: u32, c: u32, table: u64) -> u32 {
    let mut result = 0;
    for index in 0..8u32 {
        let chosen = ((table >> index) as u32 & 1).wrapping_neg();
        let pick = |value: u32, bit: u32| if index >> bit & 1 == 1 { value } else { !value };
        result |= chosen & pick(a, 2) & pick(b, 1) & pick(c, 0);
    }
    result
}

fn permute(mode: Permute, a: u32, b: u32, c: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    // Selectors of the special modes, for each value of the low two bits of `c`: one digit a byte,
    // highest first.
    let selector = match (mode, c & 3) {
        (Permute::Index, _) => {
            return (0..4).fold(0, |result, at| {
                let selector = c >> (4 * at) & 0xf;
                let byte = (bytes >> (8 * (selector & 7))) as u8;
                // The high bit of a selector asks for the byte's sign in all eight bits.
                let byte = if selector & 8 == 0 {
                    byte
                } else {
                    (byte as i8 >> 7) as u8
                };
                result | u32::from(byte) << (8 * at)
            });
        }
        (Permute::Forward4, 0) => 0x3210,
        (Permute::Forward4, 1) => 0x4321,
        (Permute::Forward4, 2) => 0x5432,
        (Permute::Forward4, _) => 0x6543,
        (Permute::Backward4, 0) => 0x5670,
        (Permute::Backward4, 1) => 0x6701,
        (Permute::Backward4, 2) => 0x7012,
        (Permute::Backward4, _) => 0x0123,
        (Permute::Replicate8, 0) => 0x0000,
        (Permute::Replicate8, 1) => 0x1111,
        (Permute::Replicate8, 2) => 0x2222,
        (Permute::Replicate8, _) => 0x3333,
        (Permute::EdgeClampLeft, 0) => 0x3210,
        (Permute::EdgeClampLeft, 1) => 0x3211,
        (Permute::EdgeClampLeft, 2) => 0x3222,
        (Permute::EdgeClampLeft, _) => 0x3333,
        (Permute::EdgeClampRight, 0) => 0x0000,
        (Permute::EdgeClampRight, 1) => 0x1110,
        (Permute::EdgeClampRight, 2) => 0x2210,
        (Permute::EdgeClampRight, _) => 0x3210,
        (Permute::Replicate16, 0 | 2) => 0x1010,
        (Permute::Replicate16, _) => 0x3232,
    };
    permute(Permute::Index, a, b, selector)
}

/// `bfe`: bits past the value's end, and all of them for a signed field, repeat the field's sign.
fn extract(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let sign =
        signed && length != 0 && a >> position.saturating_add(length - 1).min(width - 1) & 1 == 1;
    let fill = if sign { u64::MAX } else { 0 };
    let kept = length.min(width.saturating_sub(position));
    if kept == 0 {
        return fill;
    }
    (a >> position) & low_mask(kept) | fill & !low_mask(kept)
}

/// `fns`: the position of the `offset`-th set bit from `base` on, upwards or downwards. (For the
/// offset -2^31, whose magnitude is no i32, an H200 gives 0; here it is an offset like any other
/// and finds nothing.)
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let set = |at: i64| (0..32).contains(&at) && mask >> at & 1 == 1;
    let base = i64::from(base.cast_signed());
    if offset == 0 {
        return if set(base) { base as u32 } else { u32::MAX };
    }
    let step = i64::from(offset.signum());
    let mut left = offset.unsigned_abs();
    let mut at = base;
    while (0..32).contains(&at) {
        if set(at) {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += step;
    }
    u32::MAX
}
