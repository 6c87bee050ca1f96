//! Descriptors in a process that may close every descriptor which it does not know, and whose own
//! files get the numbers then. So each is compared with what was opened, by device and inode,
//! before it is read, written, sent or closed.
//!
//! Between the comparison and what follows lie moments in which another thread may still close the
//! number; only a table of descriptors of our own would rule that out, and NVIDIA's driver cannot
//! be called with one (docs/internals/attach.md).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// What a descriptor leads to, by device and inode, if it could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(Option<(u64, u64)>);

impl Identity {
    /// What tells a socket, a pipe and a file in memory from all others.
    pub fn of(fd: BorrowedFd<'_>) -> Identity {
        let there = rustix::fs::fstat(fd).ok();
        Identity(there.map(|there| (there.st_dev, there.st_ino)))
    }

    /// This number is still that descriptor.
    pub fn is(self, fd: BorrowedFd<'_>) -> bool {
        self.0.is_some() && Identity::of(fd) == self
    }

    /// Closes this number if it is still that descriptor. Nothing but system calls: for a child
    /// that was just forked, too. An `OwnedFd` would end the process where the number is closed.
    pub fn close(self, number: RawFd) {
        // SAFETY: it is only asked what it is; of one that is not open nothing is said.
        let there = unsafe { BorrowedFd::borrow_raw(number) };
        if self.is(there) {
            // SAFETY: whoever owns the descriptor has ended, or does not exist in this process.
            unsafe { rustix::io::close(number) };
        }
    }
}

/// A descriptor of ours, which is neither used nor closed where its number stands for something
/// else.
#[derive(Debug)]
pub struct OwnDescriptor {
    fd: Option<OwnedFd>,
    identity: Identity,
}

impl OwnDescriptor {
    /// Takes what was made just now.
    pub fn new(fd: OwnedFd) -> OwnDescriptor {
        OwnDescriptor {
            identity: Identity::of(fd.as_fd()),
            fd: Some(fd),
        }
    }

    /// The descriptor, if it is still the one that was made.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        self.identity.is(fd).then_some(fd)
    }

    /// The same, to be kept.
    pub fn take(mut self) -> Option<OwnedFd> {
        self.get()?;
        self.fd.take()
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.identity.close(fd.into_raw_fd());
        }
    }
}

/// All that is in a file.
///
/// # Errors
/// The system's; `EBADF` if the process has closed the descriptor meanwhile.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = OwnDescriptor::new(rustix::fs::open(path.as_ref(), flags, Mode::empty())?);
    let (mut all, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let fd = file.get().ok_or(rustix::io::Errno::BADF)?;
        match rustix::io::read(fd, &mut part) {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_the_process_has_closed_is_neither_used_nor_closed_again() {
        let (_read, write) = UnixStream::pair().unwrap();
        let number = write.as_raw_fd();
        let own = OwnDescriptor::new(write.into());
        assert!(own.get().is_some());
        let other = File::open("/dev/null").unwrap();
        // The process has a file of its own at the number now.
        // SAFETY: the number is the socket's, which `own` must not touch behind this.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut taken).unwrap();
        assert!(own.get().is_none());
        drop(own);
        assert_eq!(Identity::of(taken.as_fd()), Identity::of(other.as_fd()));
    }

    #[test]
    fn what_is_closed_already_ends_nothing() {
        let (read, write) = UnixStream::pair().unwrap();
        let own = OwnDescriptor::new(write.into());
        let number = own.get().unwrap().as_raw_fd();
        // SAFETY: as a process does that closes what it does not know.
        unsafe { rustix::io::close(number) };
        drop(own);
        drop(read);
    }

    #[test]
    fn what_is_ours_is_closed() {
        let (read, write) = UnixStream::pair().unwrap();
        drop(OwnDescriptor::new(write.into()));
        // The end of the stream: nobody holds its other side any more.
        assert_eq!(rustix::io::read(&read, &mut [0; 8]), Ok(0));
    }

    #[test]
    fn a_file_is_read_whole() {
        assert_eq!(
            read_file("/proc/self/cmdline").unwrap(),
            std::fs::read("/proc/self/cmdline").unwrap()
        );
        let none = read_file("/nowhere").unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
