//! Known bits: for each bit of a number 0, 1 or unknown.
//!
//! The arithmetic is that of Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation
//! with Tristate Numbers" (CGO 2022).

use super::width::{ones, signed, unsigned};

/// The set of numbers `x` of `BITS` bits with `x & !mask == value`. A bit of `value` is 0 where
/// `mask` is 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Hash))]
pub struct Tnum<const BITS: u32> {
    /// The known ones.
    pub value: u64,
    /// The unknown bits.
    pub mask: u64,
}

impl<const BITS: u32> Tnum<BITS> {
    /// Every number.
    pub const UNKNOWN: Self = Tnum {
        value: 0,
        mask: ones(BITS),
    };

    /// One number.
    pub const fn constant(value: u64) -> Self {
        Tnum {
            value: value & ones(BITS),
            mask: 0,
        }
    }

    /// The smallest set that holds `min..=max`: their common leading bits.
    pub const fn range(min: u64, max: u64) -> Self {
        let differing = min ^ max;
        let mask = match differing {
            0 => 0,
            _ => u64::MAX >> differing.leading_zeros(),
        };
        Tnum {
            value: min & !mask,
            mask,
        }
    }

    /// Its member, if it has one only.
    pub const fn known(self) -> Option<u64> {
        if self.mask == 0 {
            Some(self.value)
        } else {
            None
        }
    }

    /// Smallest member.
    pub const fn min(self) -> u64 {
        self.value
    }

    /// Largest member.
    pub const fn max(self) -> u64 {
        self.value | self.mask
    }

    /// `x` is a member.
    #[cfg(test)]
    pub const fn contains(self, x: u64) -> bool {
        x & !self.mask == self.value
    }

    /// All members are in `other`.
    pub const fn is_subset(self, other: Self) -> bool {
        self.mask & !other.mask == 0 && self.value & !other.mask == other.value
    }

    /// What is in both; `None` if nothing is.
    pub const fn meet(self, other: Self) -> Option<Self> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        let mask = self.mask & other.mask;
        Some(Tnum {
            value: (self.value | other.value) & !mask,
            mask,
        })
    }

    /// The numbers whose low `BITS` bits are those of `value` but for those of `mask`.
    const fn within(value: u64, mask: u64) -> Self {
        let mask = mask & ones(BITS);
        Tnum {
            value: value & ones(BITS) & !mask,
            mask,
        }
    }

    /// `a + b`
    pub const fn add(self, other: Self) -> Self {
        let values = self.value.wrapping_add(other.value);
        let sigma = values.wrapping_add(self.mask.wrapping_add(other.mask));
        Self::within(values, (sigma ^ values) | self.mask | other.mask)
    }

    /// `a - b`
    pub const fn sub(self, other: Self) -> Self {
        let values = self.value.wrapping_sub(other.value);
        let high = values.wrapping_add(self.mask);
        let low = values.wrapping_sub(other.mask);
        Self::within(values, (high ^ low) | self.mask | other.mask)
    }

    /// `a * b`
    pub const fn mul(self, other: Self) -> Self {
        let values = Self::constant(self.value.wrapping_mul(other.value));
        let (mut a, mut b) = (self, other);
        let mut unknown = Self::constant(0);
        while a.value != 0 || a.mask != 0 {
            if a.value & 1 != 0 {
                unknown = unknown.add(Tnum {
                    value: 0,
                    mask: b.mask,
                });
            } else if a.mask & 1 != 0 {
                unknown = unknown.add(Tnum {
                    value: 0,
                    mask: b.value | b.mask,
                });
            }
            a = a.rsh(1);
            b = b.lsh(1);
        }
        values.add(unknown)
    }

    /// `a & b`
    pub const fn and(self, other: Self) -> Self {
        let value = self.value & other.value;
        Tnum {
            value,
            mask: self.max() & other.max() & !value,
        }
    }

    /// `a | b`
    pub const fn or(self, other: Self) -> Self {
        let value = self.value | other.value;
        Tnum {
            value,
            mask: (self.mask | other.mask) & !value,
        }
    }

    /// `a ^ b`
    pub const fn xor(self, other: Self) -> Self {
        let mask = self.mask | other.mask;
        Tnum {
            value: (self.value ^ other.value) & !mask,
            mask,
        }
    }

    /// `a << n`, n below 64.
    pub const fn lsh(self, n: u32) -> Self {
        Self::within(self.value << n, self.mask << n)
    }

    /// `a >> n`, n below 64.
    pub const fn rsh(self, n: u32) -> Self {
        Tnum {
            value: self.value >> n,
            mask: self.mask >> n,
        }
    }

    /// `a >> n` keeping the sign, n below 64. An unknown sign bit makes all copies of it unknown.
    pub const fn arsh(self, n: u32) -> Self {
        Tnum {
            value: unsigned(BITS, signed(BITS, self.value) >> n),
            mask: unsigned(BITS, signed(BITS, self.mask) >> n),
        }
    }

    /// The low `bits` bits, the others zero.
    pub const fn zero_extend(self, bits: u32) -> Self {
        Tnum {
            value: self.value & ones(bits),
            mask: self.mask & ones(bits),
        }
    }

    /// The low `bits` bits, their sign in the others.
    pub const fn sign_extend(self, bits: u32) -> Self {
        self.lsh(BITS - bits).arsh(BITS - bits)
    }

    /// The low `bits` bits, the others unknown.
    pub const fn unknown_above(self, bits: u32) -> Self {
        Tnum {
            value: self.value & ones(bits),
            mask: self.mask | ones(BITS) & !ones(bits),
        }
    }

    /// The low bits as a number of their own.
    pub const fn low<const LOW: u32>(self) -> Tnum<LOW> {
        Tnum {
            value: self.value & ones(LOW),
            mask: self.mask & ones(LOW),
        }
    }
}

impl Tnum<64> {
    /// The bytes in opposite order.
    pub const fn swap_bytes(self) -> Self {
        Tnum {
            value: self.value.swap_bytes(),
            mask: self.mask.swap_bytes(),
        }
    }
}
