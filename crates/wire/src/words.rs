//! A shared mapping seen as atomic words. The peer may write at any moment and may be wrong, so
//! nothing here ever makes a plain reference to the bytes.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An atomic word of shared memory, as the protocols over it need it.
pub(crate) trait Word {
    /// A chunk in a ring of such words begins at a multiple of this many bytes, where copy engines
    /// write best.
    const CHUNK_ALIGN: u64;
    /// Bytes of a chunk that a consumer copies before it looks at records, if none of them is
    /// larger.
    const PIECE: u64;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// A compare and swap, with acquire and release.
    fn swap_if(&self, old: u64, new: u64) -> Result<u64, u64>;
    /// Adds, with acquire and release; gives what was there.
    fn add(&self, n: u64) -> u64;
    fn fence(order: Ordering);
    /// Lets others run.
    fn pause();
}

/// [`Word`] for an atomic, of the standard library or of a model checker. Inlined, because copies
/// of whole chunks go word by word and the orders are known where they are asked for.
macro_rules! word {
    ($atomic:ty, $fence:path, $pause:path, align: $align:expr, piece: $piece:expr) => {
        impl $crate::words::Word for $atomic {
            const CHUNK_ALIGN: u64 = $align;
            const PIECE: u64 = $piece;
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                <$atomic>::load(self, order)
            }
            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
            #[inline]
            fn swap_if(&self, old: u64, new: u64) -> Result<u64, u64> {
                self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            }
            #[inline]
            fn add(&self, n: u64) -> u64 {
                self.fetch_add(n, Ordering::AcqRel)
            }
            #[inline]
            fn fence(order: Ordering) {
                $fence(order);
            }
            #[inline]
            fn pause() {
                $pause();
            }
        }
    };
}
#[cfg(test)]
pub(crate) use word;

word!(AtomicU64, std::sync::atomic::fence, std::thread::yield_now, align: 256, piece: 64 << 10);

/// A mapped memfd. Lengths and offsets are bytes and multiples of 8.
#[derive(Debug)]
pub(crate) struct Words {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping lives as long as the value and is only touched through atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the first `bytes` of a file that is at least that long and is sealed against shrinking.
    pub(crate) fn map(fd: impl AsFd, bytes: usize) -> Result<Words, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Words { base, bytes })
    }

    /// Maps another file of this length, sealed as the one before, in its place: who still has a
    /// word of that has the same one of this.
    pub(crate) fn map_again(&self, fd: impl AsFd) -> Result<(), Errno> {
        // SAFETY: it takes the place of our own mapping, whose words are only touched through
        // atomics.
        unsafe {
            mmap(
                self.base.as_ptr().cast(),
                self.bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                0,
            )?;
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The words of `offset..offset + bytes`.
    pub(crate) fn slice(&self, offset: u64, bytes: u64) -> &[AtomicU64] {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes as u64),
            "{offset}+{bytes} is outside the mapping"
        );
        assert!(offset.is_multiple_of(8) && bytes.is_multiple_of(8));
        // SAFETY: the range is inside the mapping, which is page-aligned and lives as long as
        // `self`; every u64 is a valid AtomicU64, and all access on this side is atomic.
        unsafe {
            std::slice::from_raw_parts(
                self.base.as_ptr().add(offset as usize).cast(),
                (bytes / 8) as usize,
            )
        }
    }

    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        &self.slice(offset, 8)[0]
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: our own mapping; slices of it borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Copies bytes into words; the last word is filled up with zeroes.
pub(crate) fn store<W: Word>(to: &[W], from: &[u8]) {
    let (words, rest) = from.as_chunks::<8>();
    for (bytes, word) in words.iter().zip(to) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (rest.is_empty(), to.get(words.len())) {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// Copies words out.
pub(crate) fn load<W: Word>(from: &[W], to: &mut [u8]) {
    let (words, rest) = to.as_chunks_mut::<8>();
    for (word, bytes) in from.iter().zip(&mut *words) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if let (false, Some(word)) = (rest.is_empty(), from.get(words.len())) {
        let bytes = word.load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&bytes[..rest.len()]);
    }
}
