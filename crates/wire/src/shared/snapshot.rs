//! The protocol of a snapshot, over any kind of atomic words: two copies, and a sequence that says
//! which one is whole.

use std::sync::atomic::Ordering;

use crate::words::{Word, load, store};

/// Bytes of a snapshot that are copied at once; a multiple of 8.
pub const SNAPSHOT_PART: u64 = 4 << 20;

/// How often a reader tries again when the agent publishes faster than it copies: seldom where a
/// copy takes long, as who publishes copies as much.
pub(super) fn tries(bytes: u64) -> u32 {
    const MOST: u64 = 1000;
    const LEAST: u64 = 4;
    const BYTES: u64 = 1 << 30;
    (BYTES / bytes.max(1)).clamp(LEAST, MOST) as u32
}

/// Publishes `bytes` bytes that `fill` brings part by part. False when it failed: then the last
/// snapshot stays.
pub(super) fn publish<W: Word, E>(
    sequence: &W,
    copies: [&[W]; 2],
    bytes: u64,
    scratch: &mut [u8],
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> bool {
    let next = sequence.load(Ordering::Relaxed).wrapping_add(1);
    // A reader that sees any word stored below must also see the sequence that was published
    // before.
    W::fence(Ordering::Release);
    let copy = copies[(next & 1) as usize];
    // Whole words, but for the last one.
    let most = SNAPSHOT_PART.min(scratch.len() as u64 / 8 * 8);
    if most == 0 && bytes > 0 {
        return false;
    }
    let mut done = 0;
    while done < bytes {
        let part = most.min(bytes - done);
        let scratch = &mut scratch[..part as usize];
        if fill(scratch).is_err() {
            return false;
        }
        store(&copy[done as usize / 8..], scratch);
        done += part;
    }
    sequence.store(next, Ordering::Release);
    true
}

/// Copies the snapshot that was published last, and gives its sequence: 0 before the first one.
/// `None` if it was published faster than it could be copied.
pub(super) fn read<W: Word>(sequence: &W, copies: [&[W]; 2], into: &mut [u8]) -> Option<u64> {
    for _ in 0..tries(into.len() as u64) {
        let before = sequence.load(Ordering::Acquire);
        if before == 0 {
            return Some(0);
        }
        load(copies[(before & 1) as usize], into);
        W::fence(Ordering::Acquire);
        if sequence.load(Ordering::Relaxed) == before {
            return Some(before);
        }
        W::pause();
    }
    None
}
