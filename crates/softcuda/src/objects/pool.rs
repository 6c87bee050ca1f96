//! Memory pools that programs made.

/// A pool that a program made: allocation from it is ordinary allocation.
pub(crate) struct Pool {
    pub device: usize,
}
