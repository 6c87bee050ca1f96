//! Ring buffers and perf buffers of Linux whose records go to rings that the tool reads: a map that programs of Linux and of the
//! GPU write to is one ring for the tool, or one for each CPU.
//!
//! A record that finds no room in the tool's ring stays in Linux's, which drops and tells its program as it always does.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::memory::{Access, Memory, PAGE};
use crate::perf::Output;
use crate::ring::Ring;
use crate::uapi::{perf, ringbuf};

/// Pages of data of a perf buffer.
const OUTPUT_PAGES: u64 = 64;

/// A ring of Linux, and the one that its records go to.
#[derive(Debug)]
pub enum Drawn {
    /// A ring buffer.
    Ring(DrawnRing),
    /// A perf buffer's ring of a CPU.
    Output(DrawnOutput),
}

/// A ring buffer.
#[derive(Debug)]
pub struct DrawnRing {
    consumer: Memory,
    /// The producer's page and the data.
    producer: Memory,
    to: Arc<Ring>,
}

/// The ring of an event.
#[derive(Debug)]
pub struct DrawnOutput {
    memory: Memory,
    to: Arc<Output>,
}

impl Drawn {
    /// Maps the ring behind a map's descriptor, which is as large as the one that its records go to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_ring(fd: OwnedFd, to: Arc<Ring>) -> Result<Drawn, Errno> {
        let again = fd.try_clone().map_err(|_| Errno::MFILE)?;
        Ok(Drawn::Ring(DrawnRing {
            consumer: Memory::of(fd, 0, PAGE, Access::Write)?,
            producer: Memory::of(again, PAGE, PAGE + to.size(), Access::Read)?,
            to,
        }))
    }

    /// Maps the ring of an event.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_output(event: OwnedFd, to: Arc<Output>) -> Result<Drawn, Errno> {
        let bytes = (1 + OUTPUT_PAGES) * PAGE;
        let memory = Memory::of(event, 0, bytes, Access::Write)?;
        Ok(Drawn::Output(DrawnOutput { memory, to }))
    }

    fn draw(&self) -> bool {
        match self {
            Drawn::Ring(ring) => ring.draw(),
            Drawn::Output(output) => output.draw(),
        }
    }

    /// Somebody else holds the ring that records go to.
    fn is_wanted(&self) -> bool {
        match self {
            Drawn::Ring(ring) => Arc::strong_count(&ring.to) > 1,
            Drawn::Output(output) => Arc::strong_count(&output.to) > 1,
        }
    }
}

impl DrawnOutput {
    /// As for a ring buffer. Before the tool has mapped its ring all stays where it is.
    fn draw(&self) -> bool {
        let Some(to) = self.to.ring() else {
            return false;
        };
        let (head, tail) = (
            self.memory.word(perf::DATA_HEAD).load(Ordering::Acquire),
            self.memory.word(perf::DATA_TAIL),
        );
        let mask = OUTPUT_PAGES * PAGE - 1;
        let bytes = |position: u64, length: u64| {
            let start = position & mask;
            let first = (mask + 1 - start).min(length);
            let mut bytes = self.memory.copy(PAGE + start, first);
            bytes.extend(self.memory.copy(PAGE, length - first));
            bytes
        };
        let mut came = false;
        loop {
            let at = tail.load(Ordering::Relaxed);
            if at >= head {
                return came;
            }
            let header = bytes(at, 8);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let length = u64::from(u16::from_ne_bytes([header[6], header[7]])).max(8);
            let record = bytes(at, length);
            let word = |at: usize| record.get(at..at + 4).and_then(|word| word.first_chunk());
            let pushed = match (kind, word(8)) {
                (perf::RECORD_SAMPLE, Some(size)) => {
                    let size = u32::from_ne_bytes(*size) as usize;
                    let payload = record.get(12..12 + size).unwrap_or_default();
                    if to.too_large(size) {
                        to.lost(1)
                    } else {
                        to.push(payload)
                    }
                }
                // Behind the header an id.
                (perf::RECORD_LOST, _) => {
                    let count = word(16).map_or(0, |count| u32::from_ne_bytes(*count));
                    to.lost(u64::from(count))
                }
                _ => true,
            };
            if !pushed {
                return came;
            }
            self.to.bell.ring();
            came = true;
            tail.store(at + length, Ordering::Release);
        }
    }
}

impl DrawnRing {
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
        all.retain(Drawn::is_wanted);
        let mut came = false;
        for drawn in &*all {
            came |= drawn.draw();
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::ring::PerfRing;

    #[test]
    fn samples_of_another_ring_and_what_it_lost_come_through() {
        let linux = PerfRing::new(OUTPUT_PAGES).unwrap();
        let to = Arc::new(Output {
            bell: Bell::new().unwrap(),
            ring: Mutex::default(),
        });
        let fd = linux.memory().fd().try_clone().unwrap();
        let all = AllDrawn::default();
        all.add(Drawn::of_output(fd, to.clone()).unwrap());
        assert!(linux.push(&[5; 100]));
        assert!(!all.draw(), "nobody reads yet");
        let ring = to.map(1).unwrap();
        // A sample is padded to whole words, as Linux pads it.
        for round in 0..2000u32 {
            assert!(round == 0 || linux.push(&[round as u8; 300]));
            assert!(all.draw() && !all.draw());
            assert_eq!(ring.unread(), if round == 0 { 112 } else { 312 });
            let tail = ring.memory().word(perf::DATA_TAIL);
            let last = ring
                .memory()
                .copy(PAGE + (tail.load(Ordering::Relaxed) + 12) % PAGE, 1);
            assert_eq!(last, [if round == 0 { 5 } else { round as u8 }]);
            tail.store(
                tail.load(Ordering::Relaxed) + ring.unread(),
                Ordering::Release,
            );
        }
        assert_eq!(linux.unread(), 0);
        // One that the tool's ring can never hold is told as lost, and so is what Linux has lost.
        assert!(linux.push(&[1; 5000]) && linux.lost(7));
        assert!(all.draw());
        assert_eq!((linux.unread(), ring.unread()), (0, 48));
    }

    #[test]
    fn records_of_another_ring_come_behind_those_that_are_there() {
        let (linux, to) = (Ring::new(4096).unwrap(), Arc::new(Ring::new(4096).unwrap()));
        let all = AllDrawn::default();
        assert!(all.is_empty() && !all.draw());
        let fd = linux.memory().fd().try_clone().unwrap();
        all.add(Drawn::of_ring(fd, to.clone()).unwrap());
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
