//! Memory that more than one side has mapped: behind arrays with `BPF_F_MMAPABLE` and behind rings.
//!
//! A map of Linux, or a memfd that a tool maps in its own way besides. All sides touch it at the
//! same time, so it is only accessed by atomics.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A shared mapping of a file: of a whole memfd, or of a map of Linux.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: u64,
    fd: OwnedFd,
}

// SAFETY: the mapping is only accessed by atomics, and lives until `drop`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What may be done with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is written too.
    Write,
}

fn whole_pages(bytes: u64) -> Result<u64, Errno> {
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE);
    bytes.filter(|b| *b <= 1 << 40).ok_or(Errno::TOOBIG)
}

impl Memory {
    /// Zeroed memory of at least `bytes`, whole pages.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(bytes: u64) -> Result<Memory, Errno> {
        let bytes = whole_pages(bytes)?;
        let fd = memfd_create(c"warpbpf-map", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes)?;
        Memory::of(fd, 0, bytes, Access::Write)
    }

    /// At least `bytes` of a file from an offset on. What may only be read must not be stored to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(fd: OwnedFd, offset: u64, bytes: u64, access: Access) -> Result<Memory, Errno> {
        let bytes = whole_pages(bytes)?;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes as usize,
                protection,
                MapFlags::SHARED,
                &fd,
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Memory { base, bytes, fd })
    }

    /// The memfd.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The word at a multiple of 8.
    ///
    /// # Panics
    /// If it is outside.
    pub fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "word {at}");
        // SAFETY: inside the mapping and aligned, which is page-aligned; other accesses are atomic,
        // or the tool's.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at as usize).cast()) }
    }

    fn byte(&self, at: u64) -> &AtomicU8 {
        assert!(at < self.bytes, "byte {at}");
        // SAFETY: inside the mapping.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at as usize)) }
    }

    /// Copies bytes in: whole aligned words at once, as the tool reads counters by words.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn store(&self, at: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let here = at + done as u64;
            match from[done..].first_chunk::<8>() {
                Some(word) if here.is_multiple_of(8) => {
                    self.word(here)
                        .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                    done += 8;
                }
                _ => {
                    self.byte(here).store(from[done], Ordering::Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn load(&self, at: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let here = at + done as u64;
            match into[done..].first_chunk_mut::<8>() {
                Some(word) if here.is_multiple_of(8) => {
                    *word = self.word(here).load(Ordering::Relaxed).to_ne_bytes();
                    done += 8;
                }
                _ => {
                    into[done] = self.byte(here).load(Ordering::Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// Bytes from `at`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy(&self, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.load(at, &mut bytes);
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_any_place_survive() {
        let memory = Memory::new(100).unwrap();
        assert_eq!(memory.bytes(), PAGE);
        let text = b"twenty-three bytes long";
        memory.store(5, text);
        assert_eq!(memory.copy(5, 23), text);
        assert_eq!(memory.copy(0, 5), [0; 5]);
        assert_eq!(
            memory.word(8).load(Ordering::Relaxed).to_ne_bytes(),
            text[3..11]
        );
        assert_eq!(Memory::new(u64::MAX).unwrap_err(), Errno::TOOBIG);
    }
}
