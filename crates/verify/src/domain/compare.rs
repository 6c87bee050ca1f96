//! What a comparison teaches: the operands on the side where it holds. `None` means that no pair of
//! numbers is left, so that side of the branch cannot be taken.

use warpbpf_ebpf::JumpOp;

use super::interval::{Bound, Interval};
use super::scalar::Number;
use super::tnum::Tnum;
use super::width::{ones, signed};

/// The operands of `a op b` given that it came out as `holds`. One that is not `wide` looks at the
/// low halves.
pub fn refine<const BITS: u32, const HALF: u32>(
    op: JumpOp,
    wide: bool,
    a: &Number<BITS, HALF>,
    b: &Number<BITS, HALF>,
    holds: bool,
) -> Option<(Number<BITS, HALF>, Number<BITS, HALF>)> {
    let relation = if holds {
        Relation::of(op)
    } else {
        Relation::of(op).negated()
    };
    let (mut a, mut b) = (*a, *b);
    match relation {
        Relation::Equal => {
            if wide {
                let both = a.meet(&b)?;
                return Some((both, both));
            }
            let low = a
                .bits
                .unknown_above(HALF)
                .meet(b.bits.unknown_above(HALF))?;
            let (u32, s32) = (a.u32.meet(b.u32)?, a.s32.meet(b.s32)?);
            a = Number {
                bits: a.bits.meet(low)?,
                u32,
                s32,
                ..a
            };
            b = Number {
                bits: b.bits.meet(low)?,
                u32,
                s32,
                ..b
            };
        }
        Relation::NotEqual => {
            (a, b) = (differs(&a, &b, wide)?, differs(&b, &a, wide)?);
        }
        Relation::Shares => {
            let common = if wide {
                a.bits.and(b.bits)
            } else {
                a.bits.and(b.bits).zero_extend(HALF)
            };
            if common.max() == 0 {
                return None;
            }
            // One bit only can be common: then it is set in both.
            if common.max().is_power_of_two() {
                let bit = common.max();
                let set = Tnum {
                    value: bit,
                    mask: ones(BITS) & !bit,
                };
                a.bits = a.bits.meet(set)?;
                b.bits = b.bits.meet(set)?;
            }
        }
        Relation::Disjoint => {
            let seen = ones(if wide { BITS } else { HALF });
            let (ones_a, ones_b) = (a.bits.value & seen, b.bits.value & seen);
            a.bits = a.bits.meet(Tnum {
                value: 0,
                mask: ones(BITS) & !ones_b,
            })?;
            b.bits = b.bits.meet(Tnum {
                value: 0,
                mask: ones(BITS) & !ones_a,
            })?;
        }
        Relation::Less { signed, or_equal } => match (signed, wide) {
            (false, true) => (a.u64, b.u64) = less(a.u64, b.u64, or_equal)?,
            (true, true) => (a.s64, b.s64) = less(a.s64, b.s64, or_equal)?,
            (false, false) => (a.u32, b.u32) = less(a.u32, b.u32, or_equal)?,
            (true, false) => (a.s32, b.s32) = less(a.s32, b.s32, or_equal)?,
        },
        Relation::Greater { signed, or_equal } => match (signed, wide) {
            (false, true) => (b.u64, a.u64) = less(b.u64, a.u64, or_equal)?,
            (true, true) => (b.s64, a.s64) = less(b.s64, a.s64, or_equal)?,
            (false, false) => (b.u32, a.u32) = less(b.u32, a.u32, or_equal)?,
            (true, false) => (b.s32, a.s32) = less(b.s32, a.s32, or_equal)?,
        },
    }
    Some((a.reduced()?, b.reduced()?))
}

/// `a` where it is not `b`: only an end of an interval can be cut off, and only by a known number.
fn differs<const BITS: u32, const HALF: u32>(
    a: &Number<BITS, HALF>,
    b: &Number<BITS, HALF>,
    wide: bool,
) -> Option<Number<BITS, HALF>> {
    let mut a = *a;
    if wide {
        if let Some(x) = b.known() {
            a.u64 = a.u64.without(x)?;
            a.s64 = a.s64.without(signed(BITS, x))?;
        }
    } else if let Some(x) = b.bits.low::<HALF>().known() {
        a.u32 = a.u32.without(x as u32)?;
        a.s32 = a.s32.without(signed(HALF, x) as i32)?;
    }
    Some(a)
}

/// `a < b`, or `a <= b`.
fn less<T: Bound, const BITS: u32>(
    a: Interval<T, BITS>,
    b: Interval<T, BITS>,
    or_equal: bool,
) -> Option<(Interval<T, BITS>, Interval<T, BITS>)> {
    if or_equal {
        Some((a.at_most(b.max)?, b.at_least(a.min)?))
    } else {
        Some((a.below(b.max)?, b.above(a.min)?))
    }
}

/// A comparison or its negation; the set is closed under negation.
#[derive(Clone, Copy)]
enum Relation {
    Equal,
    NotEqual,
    /// `a & b != 0`
    Shares,
    /// `a & b == 0`
    Disjoint,
    Less {
        signed: bool,
        or_equal: bool,
    },
    Greater {
        signed: bool,
        or_equal: bool,
    },
}

impl Relation {
    fn of(op: JumpOp) -> Relation {
        match op {
            JumpOp::Eq => Relation::Equal,
            JumpOp::Ne => Relation::NotEqual,
            JumpOp::Set => Relation::Shares,
            JumpOp::Lt => Relation::Less {
                signed: false,
                or_equal: false,
            },
            JumpOp::Le => Relation::Less {
                signed: false,
                or_equal: true,
            },
            JumpOp::SLt => Relation::Less {
                signed: true,
                or_equal: false,
            },
            JumpOp::SLe => Relation::Less {
                signed: true,
                or_equal: true,
            },
            JumpOp::Gt => Relation::Greater {
                signed: false,
                or_equal: false,
            },
            JumpOp::Ge => Relation::Greater {
                signed: false,
                or_equal: true,
            },
            JumpOp::SGt => Relation::Greater {
                signed: true,
                or_equal: false,
            },
            JumpOp::SGe => Relation::Greater {
                signed: true,
                or_equal: true,
            },
        }
    }

    fn negated(self) -> Relation {
        match self {
            Relation::Equal => Relation::NotEqual,
            Relation::NotEqual => Relation::Equal,
            Relation::Shares => Relation::Disjoint,
            Relation::Disjoint => Relation::Shares,
            Relation::Less { signed, or_equal } => Relation::Greater {
                signed,
                or_equal: !or_equal,
            },
            Relation::Greater { signed, or_equal } => Relation::Less {
                signed,
                or_equal: !or_equal,
            },
        }
    }
}
