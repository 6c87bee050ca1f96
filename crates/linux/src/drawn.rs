//! Ring buffers and perf buffers of Linux, whose records are taken out and go to a [`Sink`].
//!
//! A record that finds no room there stays in Linux's ring, which drops and tells its program as it
//! always does.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::memory::{Access, Memory, PAGE};
use crate::uapi::{perf, ringbuf};

/// Pages of data of a perf buffer.
pub const OUTPUT_PAGES: u64 = 64;

/// Where records go.
pub trait Sink: Send + Sync {
    /// Somebody still wants them.
    fn is_wanted(&self) -> bool;
    /// They can be taken. Else all stays where it is.
    fn is_open(&self) -> bool;
    /// Takes a record; false if there is no room now.
    fn push(&self, record: &[u8]) -> bool;
    /// So many records were lost before they came here; false if there is no room to say so now.
    fn lost(&self, count: u64) -> bool;
}

/// A ring of Linux, and where its records go.
pub enum Drawn {
    /// A ring buffer.
    Ring(DrawnRing),
    /// A perf buffer's ring of a CPU.
    Output(DrawnOutput),
}

/// A ring buffer.
pub struct DrawnRing {
    consumer: Memory,
    /// The producer's page and the data.
    producer: Memory,
    /// Bytes of the data.
    size: u64,
    to: Box<dyn Sink>,
}

/// The ring of an event.
pub struct DrawnOutput {
    memory: Memory,
    to: Box<dyn Sink>,
}

impl Drawn {
    /// Maps the ring behind a map's descriptor, with so many bytes of data.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_ring(fd: OwnedFd, size: u64, to: Box<dyn Sink>) -> Result<Drawn, Errno> {
        let again = fd.try_clone().map_err(|_| Errno::MFILE)?;
        Ok(Drawn::Ring(DrawnRing {
            consumer: Memory::of(fd, 0, PAGE, Access::Write)?,
            producer: Memory::of(again, PAGE, PAGE + size, Access::Read)?,
            size,
            to,
        }))
    }

    /// Maps the ring of an event.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_output(event: OwnedFd, to: Box<dyn Sink>) -> Result<Drawn, Errno> {
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

    fn is_wanted(&self) -> bool {
        match self {
            Drawn::Ring(ring) => ring.to.is_wanted(),
            Drawn::Output(output) => output.to.is_wanted(),
        }
    }
}

impl DrawnOutput {
    /// As for a ring buffer.
    fn draw(&self) -> bool {
        if !self.to.is_open() {
            return false;
        }
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
                    self.to.push(payload)
                }
                // Behind the header an id.
                (perf::RECORD_LOST, _) => {
                    let count = word(16).map_or(0, |count| u32::from_ne_bytes(*count));
                    self.to.lost(u64::from(count))
                }
                _ => true,
            };
            if !pushed {
                return came;
            }
            came = true;
            tail.store(at + length, Ordering::Release);
        }
    }
}

impl DrawnRing {
    /// Hands over what is there while there is room. True if something came.
    fn draw(&self) -> bool {
        let (position, mask) = (self.consumer.word(0), self.size - 1);
        let mut came = false;
        if !self.to.is_open() {
            return false;
        }
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
                let first = (self.size - start).min(length);
                let mut payload = self.producer.copy(PAGE + start, first);
                payload.extend(self.producer.copy(PAGE, length - first));
                if !self.to.push(&payload) {
                    return came;
                }
                came = true;
            }
            let behind = at + (ringbuf::HEADER + length).next_multiple_of(8);
            position.store(behind, Ordering::Release);
        }
    }
}

/// All of them.
#[derive(Default, Clone)]
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

    /// Hands over from each what is there. Rings that nobody wants are gone.
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
