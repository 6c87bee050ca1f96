//! A global variable of Linux's programs, where they see it.

use crate::memory::Memory;

/// A global variable of Linux's programs.
#[derive(Debug)]
pub struct Variable<'s> {
    pub(crate) memory: &'s Memory,
    pub(crate) at: u64,
    /// Its size.
    pub bytes: usize,
}

impl Variable<'_> {
    /// Gives it a value; what of that finds no room is left out. Only stores to memory: it may be
    /// done where a signal's handler may.
    pub fn set(&self, value: u64) {
        let value = value.to_le_bytes();
        self.memory
            .store(self.at, &value[..self.bytes.min(value.len())]);
    }
}
