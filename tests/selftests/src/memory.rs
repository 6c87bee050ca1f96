//! How much memory a proof takes: an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what the system's allocator gives and takes back.
pub struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator with the same arguments; counting
// touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract, and `alloc` took the block from the
        // system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and gives the most bytes that were allocated at once while it ran, beyond those
/// before.
pub fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_block_that_was_given_back_counts() {
        let (length, bytes) = super::most(|| std::hint::black_box(vec![1u8; 1 << 20]).len());
        assert_eq!(length, 1 << 20);
        // Other tests allocate at the same time.
        assert!(bytes >= 1 << 20, "{bytes}");
    }
}
