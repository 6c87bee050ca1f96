//! Numbers of fewer than 64 bits in 64: unsigned ones with zeros above, signed ones with copies of
//! their sign.
//!
//! The domain is generic in its width, so that what proves programs at 64 bits is tested at 6,
//! where all there is can be tried.

/// The largest unsigned number of `bits` bits, 1 to 64.
pub const fn ones(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// The low `bits` bits as a signed number.
pub const fn signed(bits: u32, x: u64) -> i64 {
    (x << (64 - bits)) as i64 >> (64 - bits)
}

/// The low `bits` bits as an unsigned number.
pub const fn unsigned(bits: u32, x: i64) -> u64 {
    x as u64 & ones(bits)
}
