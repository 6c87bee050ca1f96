//! The tool's memory as `bpf()` sees it: addresses that may be wrong.
//!
//! The kernel copies with fault handling, and so do we: by `process_vm_readv` on ourselves, which
//! gives `EFAULT` where a pointer of the tool is bad, instead of killing it inside our code.

use rustix::io::Errno;

/// Bytes that are read at once before any are known to be there.
const PIECE: usize = 1 << 20;

/// Memory behind addresses.
pub trait User {
    /// Copies `into.len()` bytes from `address`.
    ///
    /// # Errors
    /// `EFAULT`.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;
    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// `EFAULT`.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// `length` bytes from `address`.
    ///
    /// # Errors
    /// `EFAULT`.
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        // A tool may give any length: no more memory is taken than twice what is there to read.
        while bytes.len() < length {
            let from = bytes.len();
            let piece = (length - from).min(from.max(PIECE));
            bytes.resize(from + piece, 0);
            let at = address.wrapping_add(from as u64);
            self.read(at, &mut bytes[from..])?;
        }
        Ok(bytes)
    }

    /// The text that ends with a NUL at `address`, of at most `limit` bytes.
    ///
    /// # Errors
    /// `EFAULT`, or `ENAMETOOLONG` if no NUL is among them.
    fn text(&self, address: u64, limit: usize) -> Result<String, Errno> {
        let mut text = Vec::new();
        // Piece by piece up to page borders: what follows the NUL may not be there.
        while text.len() < limit {
            let at = address.wrapping_add(text.len() as u64);
            let piece = (256 - at % 256) as usize;
            let bytes = self.bytes(at, piece)?;
            let end = bytes.iter().position(|b| *b == 0);
            text.extend_from_slice(&bytes[..end.unwrap_or(piece)]);
            if end.is_some() {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
        Err(Errno::NAMETOOLONG)
    }
}

/// A process, which may be another one that lets us.
#[derive(Debug, Clone, Copy)]
pub struct Process(libc::pid_t);

impl Process {
    /// This one.
    pub fn own() -> Process {
        // SAFETY: it has no preconditions.
        Process(unsafe { libc::getpid() })
    }
    /// The one with this number.
    pub fn other(pid: libc::pid_t) -> Process {
        Process(pid)
    }
}

impl User for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        copy(self.0, address, local, true)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        copy(self.0, address, local, false)
    }
}

fn copy(pid: libc::pid_t, address: u64, local: libc::iovec, read: bool) -> Result<(), Errno> {
    if local.iov_len == 0 {
        return Ok(());
    }
    let remote = libc::iovec {
        iov_base: address as usize as *mut libc::c_void,
        iov_len: local.iov_len,
    };
    // SAFETY: `local` is a live buffer of the caller, written only when `read`; `remote` is checked
    // by the kernel. The tool's memory may change under us as under the kernel: bytes are copied,
    // nothing is referred to.
    let done = unsafe {
        if read {
            libc::process_vm_readv(pid, &local, 1, &remote, 1, 0)
        } else {
            libc::process_vm_writev(pid, &local, 1, &remote, 1, 0)
        }
    };
    if usize::try_from(done) == Ok(local.iov_len) {
        Ok(())
    } else {
        Err(Errno::FAULT)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Memory for tests: addresses are offsets from 4096, everything else faults.
    #[derive(Default)]
    pub(crate) struct Memory {
        pub(crate) bytes: RefCell<Vec<u8>>,
    }

    pub(crate) const BASE: u64 = 4096;

    impl Memory {
        /// Puts bytes somewhere and says where.
        pub(crate) fn put(&self, bytes: &[u8]) -> u64 {
            let mut all = self.bytes.borrow_mut();
            let at = all.len();
            all.extend(bytes);
            let end = all.len().next_multiple_of(256);
            all.resize(end, 0);
            BASE + at as u64
        }
        pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
            self.bytes(address, length).unwrap()
        }
    }

    impl User for Memory {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
            let at = address.checked_sub(BASE).ok_or(Errno::FAULT)? as usize;
            let bytes = self.bytes.borrow();
            into.copy_from_slice(bytes.get(at..at + into.len()).ok_or(Errno::FAULT)?);
            Ok(())
        }
        fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
            let at = address.checked_sub(BASE).ok_or(Errno::FAULT)? as usize;
            let mut bytes = self.bytes.borrow_mut();
            let into = bytes.get_mut(at..at + from.len()).ok_or(Errno::FAULT)?;
            into.copy_from_slice(from);
            Ok(())
        }
    }

    #[test]
    fn a_length_beyond_what_is_there_faults_before_it_is_allocated() {
        let memory = Memory::default();
        let at = memory.put(&[7; 3 * PIECE]);
        assert_eq!(memory.bytes(at, 3 * PIECE), Ok(vec![7; 3 * PIECE]));
        assert_eq!(memory.bytes(at, 3 * PIECE + 1), Err(Errno::FAULT));
        assert_eq!(memory.bytes(at, usize::MAX), Err(Errno::FAULT));
    }

    #[test]
    fn own_memory_faults_like_the_kernel() {
        let mut value = [1u8, 2, 3, 4];
        let at = value.as_mut_ptr() as u64;
        assert_eq!(Process::own().bytes(at, 4), Ok(vec![1, 2, 3, 4]));
        assert_eq!(Process::own().write(at, &[9, 8, 7, 6]), Ok(()));
        assert_eq!(std::hint::black_box(&mut value), &[9, 8, 7, 6]);
        assert_eq!(Process::own().bytes(8, 4), Err(Errno::FAULT));
        assert_eq!(Process::own().write(8, &[1]), Err(Errno::FAULT));
        assert_eq!(Process::own().write(0, &[]), Ok(()));
        let text = c"kernel";
        assert_eq!(
            Process::own().text(text.as_ptr() as u64, 4096).unwrap(),
            "kernel"
        );
    }

    #[test]
    fn texts_end_at_their_nul() {
        let memory = Memory::default();
        let at = memory.put(b"abc\0def");
        assert_eq!(memory.text(at, 4096).unwrap(), "abc");
        let at = memory.put(&[b'x'; 512]);
        assert_eq!(memory.text(at, 256), Err(Errno::NAMETOOLONG));
        assert_eq!(memory.text(1, 256), Err(Errno::FAULT));
    }
}
