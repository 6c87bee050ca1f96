//! A descriptor that waits to be sent with its message.
//!
//! The process that sends it may be an application that closes every descriptor which it does not
//! know, and whose own files get the numbers. So nothing is sent and nothing is closed unless it is
//! what was attached.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// Device and number of what a descriptor leads to: no two files, sockets or pipes have the same.
type Identity = (u64, u64);

/// The descriptor, and what it was.
#[derive(Debug)]
pub(crate) struct Attached {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    let there = rustix::fs::fstat(fd).ok()?;
    Some((there.st_dev, there.st_ino))
}

impl Attached {
    pub(crate) fn new(fd: OwnedFd) -> Attached {
        Attached {
            identity: identity(fd.as_fd()),
            fd: ManuallyDrop::new(fd),
        }
    }

    /// The descriptor, if the number still leads to what was attached.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_fd();
        (self.identity.is_some() && identity(fd) == self.identity).then_some(fd)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: it is ours, and nobody uses it behind this. An `OwnedFd` would end the
            // process if another thread closed the number since it was looked at.
            unsafe { rustix::io::close(self.fd.as_raw_fd()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{FromRawFd as _, IntoRawFd as _};

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (read, write) = std::os::unix::net::UnixStream::pair().unwrap();
        (read.into(), write.into())
    }

    #[test]
    fn what_the_application_has_closed_is_neither_sent_nor_closed_again() {
        let (read, write) = pipe();
        let number = write.as_raw_fd();
        let attached = Attached::new(write);
        assert!(attached.get().is_some());
        let other = File::open("/dev/null").unwrap();
        // The application has a file of its own at the number now.
        // SAFETY: the number is the pipe's, which `attached` must not touch behind this.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut taken).unwrap();
        let taken = taken.into_raw_fd();
        assert!(attached.get().is_none());
        drop(attached);
        // SAFETY: it is the file, which nobody has closed.
        let taken = unsafe { OwnedFd::from_raw_fd(taken) };
        assert_eq!(identity(taken.as_fd()), identity(other.as_fd()));
        drop(read);
    }

    #[test]
    fn what_is_ours_is_closed() {
        let (read, write) = pipe();
        drop(Attached::new(write));
        // The end of the pipe: nobody holds its other side any more.
        assert_eq!(rustix::io::read(&read, &mut [0; 8]), Ok(0));
    }
}
