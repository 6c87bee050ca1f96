//! One piece of device memory for all whose addresses stand in code, at an address that is the same
//! in each process: then the code is the same too, and can be found in a cache.
//!
//! Code has addresses as numbers (`warpbpf_patch::bake`), because a module with a variable of its
//! own is slower to launch. ptxas folds them into other numbers, in several forms, so they cannot
//! be replaced in machine code afterwards.

use warpbpf_driver::{DriverError, Stream};

use crate::runtime::held::Held;

/// The first address that is tried: far from what devices, processes and sanitizers of memory use.
const FIRST: u64 = 0x3000_0000_0000;
/// From one try to the next, and the most that one can have.
const STEP: u64 = 1 << 36;
/// Contexts of a process that can have one.
const TRIES: u64 = 8;
/// As `cuMemAlloc` aligns.
const ALIGNMENT: u64 = 512;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    next: u64,
    end: u64,
}

impl Ground {
    /// One with room for pieces of these sizes. Without room if it cannot be had, whatever the
    /// reason: then pieces lie where the driver puts them.
    pub(crate) fn new(
        held: &mut Held<'_>,
        pieces: impl Iterator<Item = u64>,
        stream: Stream,
    ) -> Ground {
        let sum = |all: u64, piece: u64| all.saturating_add(rounded(piece));
        let bytes = pieces.fold(0, sum);
        if bytes == 0 || bytes > STEP {
            return Ground::default();
        }
        for number in 0..TRIES {
            let next = FIRST + number * STEP;
            match held.alloc_fixed(next, bytes, stream) {
                Ok(Some(size)) => {
                    let end = next + size;
                    return Ground { next, end };
                }
                // Another context of this process has it.
                Ok(None) => {}
                Err(_) => break,
            }
        }
        Ground::default()
    }

    /// A piece, zeroed. `bytes` must not be 0.
    pub(crate) fn zeroed(
        &mut self,
        held: &mut Held<'_>,
        bytes: u64,
        stream: Stream,
    ) -> Result<u64, DriverError> {
        let room = self.end - self.next;
        if rounded(bytes) > room {
            return held.alloc_zeroed(bytes, stream);
        }
        let piece = self.next;
        self.next += rounded(bytes);
        Ok(piece)
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(ALIGNMENT)
        .unwrap_or(u64::MAX)
}
