//! Known bits: for each bit of a 64-bit number 0, 1 or unknown.
//!
//! The arithmetic is that of Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation with Tristate
//! Numbers" (CGO 2022).

/// The set of numbers `x` with `x & !mask == value`. A bit of `value` is 0 where `mask` is 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tnum {
    /// The known ones.
    pub value: u64,
    /// The unknown bits.
    pub mask: u64,
}

impl Tnum {
    /// Every number.
    pub const UNKNOWN: Tnum = Tnum {
        value: 0,
        mask: u64::MAX,
    };

    /// One number.
    pub const fn constant(value: u64) -> Tnum {
        Tnum { value, mask: 0 }
    }

    /// The smallest set that holds `min..=max`: their common leading bits.
    pub const fn range(min: u64, max: u64) -> Tnum {
        let differing = min ^ max;
        let mask = match differing.leading_zeros() {
            0 => u64::MAX,
            64 => 0,
            zeros => u64::MAX >> zeros,
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
    pub const fn is_subset(self, other: Tnum) -> bool {
        self.mask & !other.mask == 0 && self.value & !other.mask == other.value
    }

    /// What is in both; `None` if nothing is.
    pub const fn meet(self, other: Tnum) -> Option<Tnum> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        let mask = self.mask & other.mask;
        Some(Tnum {
            value: (self.value | other.value) & !mask,
            mask,
        })
    }

    /// `a + b`
    pub const fn add(self, other: Tnum) -> Tnum {
        let values = self.value.wrapping_add(other.value);
        let sigma = values.wrapping_add(self.mask.wrapping_add(other.mask));
        let mask = (sigma ^ values) | self.mask | other.mask;
        Tnum {
            value: values & !mask,
            mask,
        }
    }

    /// `a - b`
    pub const fn sub(self, other: Tnum) -> Tnum {
        let values = self.value.wrapping_sub(other.value);
        let high = values.wrapping_add(self.mask);
        let low = values.wrapping_sub(other.mask);
        let mask = (high ^ low) | self.mask | other.mask;
        Tnum {
            value: values & !mask,
            mask,
        }
    }

    /// `a * b`
    pub const fn mul(self, other: Tnum) -> Tnum {
        let values = Tnum::constant(self.value.wrapping_mul(other.value));
        let (mut a, mut b) = (self, other);
        let mut unknown = Tnum::constant(0);
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
    pub const fn and(self, other: Tnum) -> Tnum {
        let value = self.value & other.value;
        Tnum {
            value,
            mask: self.max() & other.max() & !value,
        }
    }

    /// `a | b`
    pub const fn or(self, other: Tnum) -> Tnum {
        let value = self.value | other.value;
        Tnum {
            value,
            mask: (self.mask | other.mask) & !value,
        }
    }

    /// `a ^ b`
    pub const fn xor(self, other: Tnum) -> Tnum {
        let mask = self.mask | other.mask;
        Tnum {
            value: (self.value ^ other.value) & !mask,
            mask,
        }
    }

    /// `a << n`, n below 64.
    pub const fn lsh(self, n: u32) -> Tnum {
        Tnum {
            value: self.value << n,
            mask: self.mask << n,
        }
    }

    /// `a >> n`, n below 64.
    pub const fn rsh(self, n: u32) -> Tnum {
        Tnum {
            value: self.value >> n,
            mask: self.mask >> n,
        }
    }

    /// `a >> n` keeping the sign, n below 64. An unknown sign bit makes all copies of it unknown.
    pub const fn arsh(self, n: u32) -> Tnum {
        Tnum {
            value: (self.value as i64 >> n) as u64,
            mask: (self.mask as i64 >> n) as u64,
        }
    }

    /// The low `bits` bits, the others zero. `bits` is 8, 16, 32 or 64.
    pub const fn zero_extend(self, bits: u32) -> Tnum {
        let keep = u64::MAX >> (64 - bits);
        Tnum {
            value: self.value & keep,
            mask: self.mask & keep,
        }
    }

    /// The low `bits` bits, their sign in the others. `bits` is 8, 16, 32 or 64.
    pub const fn sign_extend(self, bits: u32) -> Tnum {
        self.lsh(64 - bits).arsh(64 - bits)
    }

    /// The bytes in opposite order.
    pub const fn swap_bytes(self) -> Tnum {
        Tnum {
            value: self.value.swap_bytes(),
            mask: self.mask.swap_bytes(),
        }
    }
}
