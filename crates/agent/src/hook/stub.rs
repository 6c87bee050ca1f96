//! Stubs that come before a function whatever its signature, for probes of functions that we know by address alone.
//!
//! A stub pushes its number and goes to code that is common to all (`uprobe::entry`). It gets in front of a function by an
//! inline hook like any other, or, where the function is hooked by ourselves, by [`Link`]: the address in its entry stub is
//! exchanged.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions};

use super::memory::{self, Region};
use super::{FAR_JUMP, HookError, NOP, far_jump, plan};

/// Bytes from one stub to the next.
const STRIDE: usize = 32;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_IMM32: u8 = 0x68;

/// One stub for each number, anywhere within reach of `near`, which go to `common` with their number pushed.
///
/// # Errors
/// Text: there is no memory.
pub(crate) fn stubs(numbers: Range<u32>, near: usize, common: usize) -> Result<Vec<usize>, String> {
    let count = numbers.len();
    let region = Region::near(near, near, count * STRIDE).ok_or("there is no free memory")?;
    let base = region.base();
    let mut code = Vec::new();
    let mut addresses = Vec::new();
    for number in numbers {
        addresses.push(base + code.len());
        let start = code.len();
        code.extend(ENDBR64);
        code.push(PUSH_IMM32);
        code.extend(number.to_le_bytes());
        far_jump(&mut code, common as u64);
        code.resize(start + STRIDE, 0xcc);
    }
    region.finish(&code)?;
    Ok(addresses)
}

/// A function that is hooked by ourselves: the word that says what runs in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    word: usize,
    /// What runs there now.
    pub(crate) replacement: usize,
}

/// Finds it for the function at `address` with these bytes, if one of `ours` runs in its place.
pub(crate) fn link(address: usize, code: &[u8], ours: &[usize]) -> Option<Link> {
    let HookError::Taken { .. } = plan(address as u64, code).err()? else {
        return None;
    };
    // Its first instruction is as it was; behind it stands our jump.
    let mut decoder = Decoder::with_ip(64, code, address as u64, DecoderOptions::NONE);
    let (_, jump) = (decoder.decode(), decoder.decode());
    if jump.code() != Code::Jmp_rel32_64 {
        return None;
    }
    let stub = usize::try_from(jump.near_branch_target()).ok()?;
    if !memory::is_ours(stub, STRIDE) {
        return None;
    }
    // SAFETY: regions are never freed, and can be read once they are full.
    let bytes = unsafe { std::slice::from_raw_parts(stub as *const u8, STRIDE) };
    let far = bytes
        .windows(6)
        .position(|six| six == [0xff, 0x25, 0, 0, 0, 0])?;
    // Before it stand only what undoes the first instruction, and padding.
    let word = stub + far + 6;
    if !word.is_multiple_of(8) || far + FAR_JUMP > STRIDE {
        return None;
    }
    debug_assert!(bytes[..far].iter().filter(|b| **b != NOP).count() <= 8);
    let replacement = usize::from_le_bytes(*bytes.get(far + 6..)?.first_chunk()?);
    ours.contains(&replacement)
        .then_some(Link { word, replacement })
}

impl Link {
    /// Puts another function in the place of what runs there.
    ///
    /// # Errors
    /// Text: it cannot be changed.
    ///
    /// # Safety
    /// `function` does as the one that it replaces, and goes on to it.
    pub(crate) unsafe fn exchange(self, function: usize) -> Result<(), String> {
        let (before, after) = (self.replacement.to_le_bytes(), function.to_le_bytes());
        // SAFETY: an aligned word of a stub of ours that is read by a jump, which takes the old one or the new one.
        unsafe { memory::patch(self.word, &before, &after) }
    }
}
