//! Memory of this process that another thread may be giving back: the kernel copies it, and says
//! where there is none.

/// Copies `into.len()` bytes from `address`. False: not all of them are there, or this system lets
/// no process copy its own memory (`process_vm_readv(2)`).
pub fn read(address: usize, into: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // This thread, as the main thread may have ended, which has no memory any more. SAFETY: the
    // kernel writes into a live buffer, and fails where there is nothing at the other address.
    let copied = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    usize::try_from(copied) == Ok(into.len())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        let (from, mut into) = ([7u8; 8], [0; 8]);
        assert!(read(from.as_ptr() as usize, &mut into));
        assert_eq!(into, from);
        assert!(!read(8, &mut into));
    }
}
