//! Files that become readable when there is something to read, or writable when there is room: what the tool polls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd. Its descriptors in the tool are duplicates, so that this one stays whatever the tool does with its own.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<Bell, Errno> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unwritable, until it is silenced.
    pub fn fill(&self) {
        self.silence();
        // The highest number that it takes. One that was rung at this moment is silenced by who rang it.
        let _ = rustix::io::write(&self.0, &(u64::MAX - 1).to_ne_bytes());
    }

    /// Makes it unreadable, and writable.
    pub fn silence(&self) {
        let mut counter = [0; 8];
        // One that was silent stays so.
        let _ = rustix::io::read(&self.0, &mut counter);
    }

    /// Takes the descriptor out.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
