//! A map that lies in page-locked memory of the host: programs reach it across the bus, and the
//! host reads it without a copy by the device.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use warpbpf_driver::DriverError;
use warpbpf_maps::hosted::Words;

use crate::runtime::held::Held;

/// Memory of one map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostMemory {
    pointer: *mut u8,
    bytes: u64,
    /// Its address on the device.
    pub(crate) address: u64,
}
// SAFETY: it is only touched by atomics.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `bytes` zeroes.
    pub(crate) fn zeroed(held: &mut Held<'_>, bytes: u64) -> Result<HostMemory, DriverError> {
        let (pointer, address) = held.host_alloc(bytes as usize)?;
        // SAFETY: so many bytes were just allocated, and nobody else knows of them.
        unsafe { std::ptr::write_bytes(pointer, 0, bytes as usize) };
        Ok(HostMemory {
            pointer,
            bytes,
            address,
        })
    }

    /// Copies what lies from `offset` on, as far as the memory reaches. Each aligned 8-byte word is
    /// one that was written as such; words may be of different moments.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let room = self.bytes.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut at = 0;
        while at < room {
            let place = offset as usize + at;
            // SAFETY: `place` is below `bytes`, which lives as long as the session; it is only
            // touched by atomics here, and by the device.
            let from = unsafe { self.pointer.add(place) };
            if place.is_multiple_of(8) && room - at >= 8 {
                // SAFETY: as above; page-locked memory begins at a page, so it is aligned as
                // `place` is.
                let word = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed);
                into[at..at + 8].copy_from_slice(&word.to_le_bytes());
                at += 8;
            } else {
                // SAFETY: as above.
                into[at] = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
                at += 1;
            }
        }
    }
}

impl Words for HostMemory {
    fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }
    fn store(&self, at: u64, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }
}

impl HostMemory {
    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes);
        // SAFETY: just checked; the memory lives as long as the session, begins at a page, and is
        // only touched by atomics and the device.
        unsafe { AtomicU64::from_ptr(self.pointer.add(at as usize).cast()) }
    }
}
