//! Stubs that come before a function whatever its signature, for probes of functions that we know
//! by address alone.
//!
//! A stub says its number and goes to code that is common to all (of the agent, `uprobe::entry`).
//! It gets in front of a function by an inline hook like any other, or, where the function is
//! hooked by ourselves, by [`Link`]: the address in its entry stub is exchanged.

use std::ops::Range;

use crate::error::{HookError, StubsError, WriteError};
use crate::memory::{self, Region};
use crate::{beneath, machine};

/// Bytes from one stub to the next.
const STRIDE: usize = 32;

/// One stub for each number, anywhere within reach of `near`, which go to `common` with their
/// number.
///
/// # Errors
/// There is no memory.
pub fn stubs(numbers: Range<u32>, near: usize, common: usize) -> Result<Vec<usize>, StubsError> {
    let count = numbers.len();
    let region = Region::near(near, near, count * STRIDE, machine::REACHES);
    let region = region.map_err(|error| match error {
        HookError::NoRoom => StubsError::NoRoom,
        error => StubsError::Memory(error),
    })?;
    let base = region.base();
    let mut code = Vec::new();
    let mut addresses = Vec::new();
    for number in numbers {
        addresses.push(base + code.len());
        let start = code.len();
        code.extend(machine::numbered(number, common as u64));
        code.resize(start + STRIDE, machine::FILL);
    }
    region.finish(&code)?;
    Ok(addresses)
}

/// A function that is hooked by ourselves: the word that says what runs in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    word: usize,
    /// What runs there now.
    pub replacement: usize,
}

/// Finds it for the function at `address` with these bytes, if one of `ours` runs in its place.
pub fn link(address: usize, code: &[u8], ours: &[usize]) -> Option<Link> {
    let code = beneath::code(address, code).ok()?;
    let stub = machine::jump_of(address, &code)?;
    if !memory::is_ours(stub, STRIDE) {
        return None;
    }
    // SAFETY: regions are never freed, and can be read once they are full.
    let bytes = unsafe { std::slice::from_raw_parts(stub as *const u8, STRIDE) };
    let at = machine::word_in(bytes)?;
    let word = stub + at;
    if !word.is_multiple_of(8) {
        return None;
    }
    let replacement = usize::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    ours.contains(&replacement)
        .then_some(Link { word, replacement })
}

impl Link {
    /// Puts another function in the place of what runs there.
    ///
    /// # Errors
    /// It cannot be changed.
    ///
    /// # Safety
    /// `function` does as the one that it replaces, and goes on to it.
    pub unsafe fn exchange(self, function: usize) -> Result<(), WriteError> {
        let (before, after) = (self.replacement.to_le_bytes(), function.to_le_bytes());
        // SAFETY: an aligned word of a stub of ours that is read by a jump, which takes the old one
        // or the new one.
        unsafe { memory::patch(self.word, &before, &after) }
    }
}
