//! Intervals of machine integers: unsigned or signed, of any number of bits. Arithmetic that may
//! wrap gives the full interval.

use std::fmt;

use super::width::{ones, signed, unsigned};

/// An integer type that holds the bounds of an [`Interval`]; signed ones have copies of the sign
/// above the interval's width.
pub trait Bound: Copy + Ord + fmt::Debug + fmt::Display {
    /// Smallest and largest number of as many bits as the index says.
    const LIMITS: [(Self, Self); 65];
    /// One.
    const ONE: Self;
    /// `self + other` if the type holds it.
    fn checked_add(self, other: Self) -> Option<Self>;
    /// `self - other` if the type holds it.
    fn checked_sub(self, other: Self) -> Option<Self>;
    /// `self * other` if the type holds it.
    fn checked_mul(self, other: Self) -> Option<Self>;
}

macro_rules! bound {
    ($($t:ty)*) => { $(
        impl Bound for $t {
            const LIMITS: [(Self, Self); 65] = {
                let mut limits = [(0, 0); 65];
                let mut bits = 1;
                while bits <= 64 {
                    // More bits than the type has are never asked for.
                    let spare = <$t>::BITS.saturating_sub(bits);
                    limits[bits as usize] = (<$t>::MIN >> spare, <$t>::MAX >> spare);
                    bits += 1;
                }
                limits
            };
            const ONE: Self = 1;
            fn checked_add(self, other: Self) -> Option<Self> {
                <$t>::checked_add(self, other)
            }
            fn checked_sub(self, other: Self) -> Option<Self> {
                <$t>::checked_sub(self, other)
            }
            fn checked_mul(self, other: Self) -> Option<Self> {
                <$t>::checked_mul(self, other)
            }
        }
    )* };
}

bound! { u64 i64 u32 i32 }

/// The numbers of `BITS` bits from `min` to `max`, both included; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Hash))]
pub struct Interval<T, const BITS: u32> {
    /// Smallest member.
    pub min: T,
    /// Largest member.
    pub max: T,
}

impl<T: Bound, const BITS: u32> Interval<T, BITS> {
    /// Every number.
    pub const FULL: Self = Interval {
        min: T::LIMITS[BITS as usize].0,
        max: T::LIMITS[BITS as usize].1,
    };

    /// `min..=max`, or `None` if that is empty.
    pub fn new(min: T, max: T) -> Option<Self> {
        (min <= max).then_some(Interval { min, max })
    }

    /// One number.
    pub const fn constant(x: T) -> Self {
        Interval { min: x, max: x }
    }

    /// The smallest interval that holds all of `xs`, full if one of them wrapped.
    pub fn hull(xs: &[Option<T>]) -> Self {
        let mut all: Option<Self> = None;
        for x in xs {
            let Some(x) = x.filter(|x| Self::FULL.contains(*x)) else {
                return Self::FULL;
            };
            all = Some(match all {
                None => Self::constant(x),
                Some(i) => Interval {
                    min: i.min.min(x),
                    max: i.max.max(x),
                },
            });
        }
        all.unwrap_or(Self::FULL)
    }

    /// `x` is a member.
    pub fn contains(self, x: T) -> bool {
        self.min <= x && x <= self.max
    }

    /// All members are in `other`.
    pub fn is_subset(self, other: Self) -> bool {
        other.min <= self.min && self.max <= other.max
    }

    /// What is in both; `None` if nothing is.
    pub fn meet(self, other: Self) -> Option<Self> {
        Self::new(self.min.max(other.min), self.max.min(other.max))
    }

    /// `a + b`
    pub fn add(self, other: Self) -> Self {
        Self::hull(&[
            self.min.checked_add(other.min),
            self.max.checked_add(other.max),
        ])
    }

    /// `a - b`
    pub fn sub(self, other: Self) -> Self {
        Self::hull(&[
            self.min.checked_sub(other.max),
            self.max.checked_sub(other.min),
        ])
    }

    /// `a * b`: the extremes are at corners.
    pub fn mul(self, other: Self) -> Self {
        Self::hull(&[
            self.min.checked_mul(other.min),
            self.min.checked_mul(other.max),
            self.max.checked_mul(other.min),
            self.max.checked_mul(other.max),
        ])
    }

    /// Without `x`, where that still is an interval; `None` if `x` was all of it.
    pub fn without(self, x: T) -> Option<Self> {
        let mut i = self;
        if i.min == x {
            if i.max == x {
                return None;
            }
            // `min < max`, so the neighbour exists.
            i.min = succ(x);
        } else if i.max == x {
            i.max = pred(x);
        }
        Some(i)
    }

    /// The members above `x`.
    pub fn above(self, x: T) -> Option<Self> {
        if x == Self::FULL.max {
            None
        } else {
            self.meet(Interval {
                min: succ(x),
                max: Self::FULL.max,
            })
        }
    }

    /// The members below `x`.
    pub fn below(self, x: T) -> Option<Self> {
        if x == Self::FULL.min {
            None
        } else {
            self.meet(Interval {
                min: Self::FULL.min,
                max: pred(x),
            })
        }
    }

    /// The members that are at least `x`.
    pub fn at_least(self, x: T) -> Option<Self> {
        self.meet(Interval {
            min: x,
            max: Self::FULL.max,
        })
    }

    /// The members that are at most `x`.
    pub fn at_most(self, x: T) -> Option<Self> {
        self.meet(Interval {
            min: Self::FULL.min,
            max: x,
        })
    }
}

/// Next number. No caller is at the end.
fn succ<T: Bound>(x: T) -> T {
    x.checked_add(T::ONE).unwrap_or(x)
}

fn pred<T: Bound>(x: T) -> T {
    x.checked_sub(T::ONE).unwrap_or(x)
}

impl<const BITS: u32> Interval<u32, BITS> {
    /// The same numbers in a larger type.
    pub fn wide(self) -> Interval<u64, BITS> {
        Interval {
            min: u64::from(self.min),
            max: u64::from(self.max),
        }
    }
}

impl<const BITS: u32> Interval<i32, BITS> {
    /// The same numbers in a larger type.
    pub fn wide(self) -> Interval<i64, BITS> {
        Interval {
            min: i64::from(self.min),
            max: i64::from(self.max),
        }
    }
}

impl<const BITS: u32> Interval<u64, BITS> {
    /// The same numbers in a smaller type, which holds all of them as `BITS` is at most 32.
    pub fn narrow(self) -> Interval<u32, BITS> {
        const { assert!(BITS <= 32) };
        Interval {
            min: self.min as u32,
            max: self.max as u32,
        }
    }
}

impl<const BITS: u32> Interval<i64, BITS> {
    /// The same numbers in a smaller type, which holds all of them as `BITS` is at most 32.
    pub fn narrow(self) -> Interval<i32, BITS> {
        const { assert!(BITS <= 32) };
        Interval {
            min: self.min as i32,
            max: self.max as i32,
        }
    }
}

/// Intervals of one number, unsigned and signed.
pub type Both<const BITS: u32> = (Interval<u64, BITS>, Interval<i64, BITS>);

/// An unsigned and a signed interval that both go round their ends: where only one of the two
/// halves that they could share is shared, it is all there is.
pub fn overlap<const BITS: u32>(
    u: Interval<u64, BITS>,
    s: Interval<i64, BITS>,
) -> Option<Both<BITS>> {
    let positive = ones(BITS) >> 1;
    if s.min >= 0 || s.max < 0 || u.max <= positive || u.min > positive {
        return Some((u, s));
    }
    // Here `s` has numbers of both signs, and so has `u`.
    let (lowest, highest) = (unsigned(BITS, s.min), unsigned(BITS, s.max));
    if u.max < lowest {
        let both = Interval::new(u.min, highest)?;
        return Some((both, Interval::new(both.min as i64, both.max as i64)?));
    }
    if highest < u.min {
        let both = Interval::new(lowest, u.max)?;
        let signs = Interval::new(signed(BITS, both.min), signed(BITS, both.max))?;
        return Some((both, signs));
    }
    Some((u, s))
}
