//! Rounding up, for the layouts.

/// `n` or the next multiple of `to` above it.
pub(crate) const fn align_up(n: u64, to: u64) -> u64 {
    n.div_ceil(to) * to
}
