//! Files that become readable when there is something to read, or writable when there is room: what
//! the tool polls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd. Its descriptors in the tool are duplicates, so that this one stays whatever the tool
/// does with its own.
#[derive(Debug)]
pub struct Notify(OwnedFd);

impl Notify {
    /// One that is not readable.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<Notify, Errno> {
        Ok(Notify(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unwritable, until it is cleared.
    pub fn fill(&self) {
        self.clear();
        // The highest number that it takes. If it is signalled at this moment, who signals clears
        // it.
        let _ = rustix::io::write(&self.0, &(u64::MAX - 1).to_ne_bytes());
    }

    /// Makes it unreadable, and writable.
    pub fn clear(&self) {
        let mut counter = [0; 8];
        // One that is not readable stays so.
        let _ = rustix::io::read(&self.0, &mut counter);
    }

    /// Takes the descriptor out.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
