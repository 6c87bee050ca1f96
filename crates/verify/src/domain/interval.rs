//! Intervals of machine integers: unsigned or signed, 64 or 32 bits. Arithmetic that may wrap gives the full interval.

use std::fmt;

/// An integer type that an [`Interval`] can be over.
pub trait Bound: Copy + Ord + fmt::Debug + fmt::Display {
    /// Smallest value.
    const MIN: Self;
    /// Largest value.
    const MAX: Self;
    /// One.
    const ONE: Self;
    /// `self + other` if it does not wrap.
    fn checked_add(self, other: Self) -> Option<Self>;
    /// `self - other` if it does not wrap.
    fn checked_sub(self, other: Self) -> Option<Self>;
    /// `self * other` if it does not wrap.
    fn checked_mul(self, other: Self) -> Option<Self>;
}

macro_rules! bound {
    ($($t:ty)*) => { $(
        impl Bound for $t {
            const MIN: Self = <$t>::MIN;
            const MAX: Self = <$t>::MAX;
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

/// The numbers from `min` to `max`, both included; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval<T> {
    /// Smallest member.
    pub min: T,
    /// Largest member.
    pub max: T,
}

impl<T: Bound> Interval<T> {
    /// Every number.
    pub const FULL: Interval<T> = Interval {
        min: T::MIN,
        max: T::MAX,
    };

    /// `min..=max`, or `None` if that is empty.
    pub fn new(min: T, max: T) -> Option<Interval<T>> {
        (min <= max).then_some(Interval { min, max })
    }

    /// One number.
    pub const fn constant(x: T) -> Interval<T> {
        Interval { min: x, max: x }
    }

    /// The smallest interval that holds all of `xs`, full if one of them wrapped.
    pub fn hull(xs: &[Option<T>]) -> Interval<T> {
        let mut all: Option<Interval<T>> = None;
        for x in xs {
            let Some(x) = *x else { return Self::FULL };
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
    #[cfg(test)]
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
        if x == T::MAX {
            None
        } else {
            self.meet(Interval {
                min: succ(x),
                max: T::MAX,
            })
        }
    }

    /// The members below `x`.
    pub fn below(self, x: T) -> Option<Self> {
        if x == T::MIN {
            None
        } else {
            self.meet(Interval {
                min: T::MIN,
                max: pred(x),
            })
        }
    }

    /// The members that are at least `x`.
    pub fn at_least(self, x: T) -> Option<Self> {
        self.meet(Interval {
            min: x,
            max: T::MAX,
        })
    }

    /// The members that are at most `x`.
    pub fn at_most(self, x: T) -> Option<Self> {
        self.meet(Interval {
            min: T::MIN,
            max: x,
        })
    }
}

/// Next number; saturates, but no caller is at the end.
fn succ<T: Bound>(x: T) -> T {
    x.checked_add(T::ONE).unwrap_or(T::MAX)
}

fn pred<T: Bound>(x: T) -> T {
    x.checked_sub(T::ONE).unwrap_or(T::MIN)
}

/// An unsigned and a signed interval that both go round their ends: where only one of the two halves that they could
/// share is shared, it is all there is.
pub fn overlap(u: Interval<u64>, s: Interval<i64>) -> Option<(Interval<u64>, Interval<i64>)> {
    if s.min >= 0 || s.max < 0 || u.max <= i64::MAX as u64 || u.min > i64::MAX as u64 {
        return Some((u, s));
    }
    // Here `s` has numbers of both signs, and so has `u`.
    if u.max < s.min as u64 {
        let both = Interval::new(u.min, s.max as u64)?;
        return Some((both, Interval::new(both.min as i64, both.max as i64)?));
    }
    if (s.max as u64) < u.min {
        let both = Interval::new(s.min as u64, u.max)?;
        return Some((both, Interval::new(both.min as i64, both.max as i64)?));
    }
    Some((u, s))
}

/// The same of the low halves.
pub fn overlap_low(u: Interval<u32>, s: Interval<i32>) -> Option<(Interval<u32>, Interval<i32>)> {
    if s.min >= 0 || s.max < 0 || u.max <= i32::MAX as u32 || u.min > i32::MAX as u32 {
        return Some((u, s));
    }
    if u.max < s.min as u32 {
        let both = Interval::new(u.min, s.max as u32)?;
        return Some((both, Interval::new(both.min as i32, both.max as i32)?));
    }
    if (s.max as u32) < u.min {
        let both = Interval::new(s.min as u32, u.max)?;
        return Some((both, Interval::new(both.min as i32, both.max as i32)?));
    }
    Some((u, s))
}
