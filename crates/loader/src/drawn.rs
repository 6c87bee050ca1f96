//! Ring buffers of Linux whose records go to rings that the tool reads: a map that programs of Linux and of the GPU write to
//! is one ring for the tool.
//!
//! A record that finds no room in the tool's ring stays in Linux's, which drops and tells its program as it always does.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::memory::{Access, Memory, PAGE};
use crate::ring::Ring;
use crate::uapi::ringbuf;

/// A ring of Linux, read, and the one that its records go to.
#[derive(Debug)]
pub struct Drawn {
    consumer: Memory,
    /// The producer's page and the data.
    producer: Memory,
    to: Arc<Ring>,
}

impl Drawn {
    /// Maps the ring behind a descriptor, which is as large as the one that its records go to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(fd: OwnedFd, to: Arc<Ring>) -> Result<Drawn, Errno> {
        let again = fd.try_clone().map_err(|_| Errno::MFILE)?;
        Ok(Drawn {
            consumer: Memory::of(fd, 0, PAGE, Access::Write)?,
            producer: Memory::of(again, PAGE, PAGE + to.size(), Access::Read)?,
            to,
        })
    }

    /// Hands over what is there while there is room. True if something came.
    fn draw(&self) -> bool {
        let (position, mask) = (self.consumer.word(0), self.to.size() - 1);
        let mut came = false;
        loop {
            let at = position.load(Ordering::Relaxed);
            if at >= self.producer.word(0).load(Ordering::Acquire) {
                return came;
            }
            let header = self.producer.word(PAGE + (at & mask));
            let header = header.load(Ordering::Acquire) as u32;
            if header & ringbuf::BUSY != 0 {
                return came;
            }
            let length = u64::from(header & !ringbuf::DISCARD);
            if header & ringbuf::DISCARD == 0 {
                let start = (at + ringbuf::HEADER) & mask;
                let first = (self.to.size() - start).min(length);
                let mut payload = self.producer.copy(PAGE + start, first);
                payload.extend(self.producer.copy(PAGE, length - first));
                if !self.to.too_large(payload.len()) && !self.to.push(&payload) {
                    return came;
                }
                self.to.bell().ring();
                came = true;
            }
            let behind = at + (ringbuf::HEADER + length).next_multiple_of(8);
            position.store(behind, Ordering::Release);
        }
    }
}

/// All of them.
#[derive(Debug, Default, Clone)]
pub struct AllDrawn(Arc<Mutex<Vec<Drawn>>>);

impl AllDrawn {
    fn all(&self) -> MutexGuard<'_, Vec<Drawn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more.
    pub fn add(&self, drawn: Drawn) {
        self.all().push(drawn);
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Hands over from each what is there. Rings that nobody else holds are gone.
    pub fn draw(&self) -> bool {
        let mut all = self.all();
        all.retain(|drawn| Arc::strong_count(&drawn.to) > 1);
        all.iter().fold(false, |came, drawn| drawn.draw() || came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_ring_come_behind_those_that_are_there() {
        let (linux, to) = (Ring::new(4096).unwrap(), Arc::new(Ring::new(4096).unwrap()));
        let all = AllDrawn::default();
        assert!(all.is_empty() && !all.draw());
        let fd = linux.memory().fd().try_clone().unwrap();
        all.add(Drawn::new(fd, to.clone()).unwrap());
        let mut expected = Vec::new();
        // Around the end more than once.
        for round in 0..30u8 {
            assert!(to.push(&[round]) && linux.push(&[round; 501]) && linux.push(&[round; 3]));
            assert!(all.draw() && !all.draw());
            expected.extend([vec![round], vec![round; 501], vec![round; 3]]);
            let read = crate::ring::tests::read(&to);
            assert_eq!(read, expected.split_off(0));
        }
        assert_eq!(linux.unread(), 0);
        // What finds no room stays where it is.
        assert!(to.push(&[0; 4000]) && linux.push(&[1; 100]) && linux.push(&[2; 8]));
        assert!(!all.draw());
        assert_eq!(linux.unread(), 108 + 4 + 16);
        crate::ring::tests::read(&to);
        assert!(all.draw());
        assert_eq!(crate::ring::tests::read(&to), [vec![1; 100], vec![2; 8]]);
        drop(to);
        assert!(!all.draw() && all.is_empty());
    }
}
