//! The two kinds of rings that tools read by themselves, with Linux's layout:
//! `BPF_MAP_TYPE_RINGBUF` and the ring of a perf event.
//!
//! Writers are our threads alone, readers the tool's. A record that does not fit is not written:
//! the caller keeps it.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::memory::{Memory, PAGE};
use crate::tool::notify::Notify;
use crate::uapi::{perf, ringbuf};

/// A ring buffer: a page with the consumer's position, a page with ours, the data.
#[derive(Debug)]
pub struct Ring {
    memory: Memory,
    size: u64,
    notify: Notify,
    /// Records come from applications and from Linux.
    writer: Mutex<()>,
}

impl Ring {
    /// A ring of `size` bytes.
    ///
    /// # Errors
    /// `EINVAL` unless `size` is a power of two and whole pages, as in Linux.
    pub fn new(size: u32) -> Result<Ring, Errno> {
        let size = ringbuf::data_size(size)?;
        let memory = Memory::new(2 * PAGE + size)?;
        Ok(Ring {
            memory,
            size,
            notify: Notify::new()?,
            writer: Mutex::default(),
        })
    }

    /// What is mapped.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What its descriptors are names of.
    pub fn notify(&self) -> &Notify {
        &self.notify
    }

    /// Readable while there is something to read.
    pub fn refresh(&self) {
        self.notify.clear();
        if self.unread() > 0 {
            self.notify.signal();
        }
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn produced(&self) -> u64 {
        self.memory.word(PAGE).load(Ordering::Relaxed)
    }

    /// Bytes that the tool has not read.
    pub fn unread(&self) -> u64 {
        let consumed = self.memory.word(0).load(Ordering::Acquire);
        self.produced().wrapping_sub(consumed)
    }

    /// Appends a record; false if there is no room now.
    pub fn push(&self, payload: &[u8]) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let need = (ringbuf::HEADER + payload.len() as u64).next_multiple_of(8);
        // As in Linux, where a ring is never filled to its last byte.
        if self.unread() + need >= self.size {
            return false;
        }
        let head = self.produced();
        let at = |position: u64| 2 * PAGE + (position & (self.size - 1));
        let length = payload.len() as u32;
        debug_assert_eq!(length & (ringbuf::BUSY | ringbuf::DISCARD), 0);
        // The header does not wrap: positions are multiples of 8. Its second half is a page offset
        // that readers ignore.
        self.memory
            .word(at(head))
            .store(u64::from(length), Ordering::Relaxed);
        let start = head + ringbuf::HEADER;
        let first = (self.size - (start & (self.size - 1))).min(payload.len() as u64) as usize;
        self.memory.store(at(start), &payload[..first]);
        self.memory.store(2 * PAGE, &payload[first..]);
        self.memory.word(PAGE).store(head + need, Ordering::Release);
        true
    }

    /// A record this large can never be written.
    pub fn too_large(&self, payload: usize) -> bool {
        (ringbuf::HEADER + payload as u64).next_multiple_of(8) >= self.size
    }
}

/// The ring of a perf event: a page of numbers, then data.
#[derive(Debug)]
pub struct PerfRing {
    memory: Memory,
    size: u64,
    /// Samples come from applications and from Linux.
    writer: Mutex<()>,
}

impl PerfRing {
    /// A ring with this many pages of data.
    ///
    /// # Errors
    /// `EINVAL` unless that is a power of two, as in Linux.
    pub fn new(pages: u64) -> Result<PerfRing, Errno> {
        if !pages.is_power_of_two() || pages > 1 << 20 {
            return Err(Errno::INVAL);
        }
        let size = pages * PAGE;
        let memory = Memory::new(PAGE + size)?;
        memory
            .word(perf::DATA_OFFSET)
            .store(PAGE, Ordering::Relaxed);
        memory.word(perf::DATA_SIZE).store(size, Ordering::Relaxed);
        Ok(PerfRing {
            memory,
            size,
            writer: Mutex::default(),
        })
    }

    /// What is mapped.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Pages of data.
    pub fn pages(&self) -> u64 {
        self.size / PAGE
    }

    /// Bytes that the tool has not read.
    pub fn unread(&self) -> u64 {
        let tail = self.memory.word(perf::DATA_TAIL).load(Ordering::Acquire);
        let head = self.memory.word(perf::DATA_HEAD).load(Ordering::Relaxed);
        head.wrapping_sub(tail)
    }

    /// Appends a sample as `bpf_perf_event_output` makes it; false if there is no room now.
    pub fn push(&self, payload: &[u8]) -> bool {
        // The size counts itself into the padding: Linux keeps samples at multiples of 8.
        let raw = (4 + payload.len()).next_multiple_of(8) - 4;
        let mut record = Vec::with_capacity(12 + raw);
        record.extend(perf::RECORD_SAMPLE.to_ne_bytes());
        record.extend(0u16.to_ne_bytes());
        record.extend((12 + raw as u16).to_ne_bytes());
        record.extend((raw as u32).to_ne_bytes());
        record.extend(payload);
        record.resize(12 + raw, 0);
        self.append(&record)
    }

    /// Says that `count` samples were lost; false if there is no room now.
    pub fn lost(&self, count: u64) -> bool {
        let mut record = Vec::with_capacity(24);
        record.extend(perf::RECORD_LOST.to_ne_bytes());
        record.extend(0u16.to_ne_bytes());
        record.extend(24u16.to_ne_bytes());
        record.extend(0u64.to_ne_bytes());
        record.extend(count.to_ne_bytes());
        self.append(&record)
    }

    fn append(&self, record: &[u8]) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.unread() + record.len() as u64 > self.size {
            return false;
        }
        let head = self.memory.word(perf::DATA_HEAD);
        let position = head.load(Ordering::Relaxed);
        let start = position & (self.size - 1);
        let first = (self.size - start).min(record.len() as u64) as usize;
        self.memory.store(PAGE + start, &record[..first]);
        self.memory.store(PAGE, &record[first..]);
        head.store(position + record.len() as u64, Ordering::Release);
        true
    }

    /// A sample this large can never be written: a record's size has 16 bits.
    pub fn too_large(&self, payload: usize) -> bool {
        let record = (16 + payload as u64).next_multiple_of(8);
        record > self.size || record > u64::from(u16::MAX)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads as libbpf does: a header, its payload, until our position.
    pub(crate) fn read(ring: &Ring) -> Vec<Vec<u8>> {
        let memory = ring.memory();
        let mut records = Vec::new();
        loop {
            let consumed = memory.word(0).load(Ordering::Relaxed);
            if consumed == memory.word(PAGE).load(Ordering::Acquire) {
                return records;
            }
            let byte = |at: u64| {
                let mut one = [0];
                memory.load(2 * PAGE + ((consumed + at) & (ring.size() - 1)), &mut one);
                one[0]
            };
            let length = u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)]);
            assert_eq!(length & (ringbuf::BUSY | ringbuf::DISCARD), 0);
            records.push((0..u64::from(length)).map(|i| byte(8 + i)).collect());
            let next = consumed + (8 + u64::from(length)).next_multiple_of(8);
            memory.word(0).store(next, Ordering::Release);
        }
    }

    #[test]
    fn a_ring_gives_back_what_was_written_over_its_end_too() {
        let ring = Ring::new(4096).unwrap();
        let mut next = 0u8;
        for _ in 0..40 {
            let mut written = Vec::new();
            for length in [0usize, 1, 7, 8, 333] {
                next = next.wrapping_add(1);
                let record = vec![next; length];
                assert!(ring.push(&record));
                written.push(record);
            }
            assert_eq!(read(&ring), written);
            assert_eq!(ring.unread(), 0);
        }
    }

    #[test]
    fn two_writers_lose_nothing() {
        let (ring, perf) = (Ring::new(1 << 20).unwrap(), PerfRing::new(256).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        assert!(ring.push(&[1; 8]) && perf.push(&[1; 12]));
                    }
                });
            }
        });
        assert_eq!((ring.unread(), perf.unread()), (20_000 * 16, 20_000 * 24));
        assert_eq!(read(&ring).len(), 20_000);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_keeps_what_it_has() {
        let ring = Ring::new(4096).unwrap();
        let mut taken = 0;
        while ring.push(&[taken as u8; 120]) {
            taken += 1;
        }
        assert_eq!(taken, 31);
        assert_eq!(read(&ring).len(), 31);
        assert!(ring.push(&[0; 4080]));
        assert!(!ring.too_large(4080) && ring.too_large(4081));
        assert_eq!(Ring::new(4095).unwrap_err(), Errno::INVAL);
        assert_eq!(Ring::new(3 * 4096).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_perf_ring_holds_samples_and_losses() {
        let ring = PerfRing::new(1).unwrap();
        assert!(ring.push(&[7; 9]));
        assert!(ring.lost(3));
        let memory = ring.memory();
        assert_eq!(ring.unread(), 32 + 24 - 8);
        let mut record = [0; 48];
        memory.load(PAGE, &mut record);
        let half = |at: usize| u16::from_ne_bytes([record[at], record[at + 1]]);
        assert_eq!((record[0], half(6), record[8]), (9, 24, 12));
        assert_eq!(record[12..21], [7; 9]);
        assert_eq!((record[24], half(30), record[40]), (2, 24, 3));
        while ring.push(&[1; 500]) {}
        let before = ring.unread();
        assert!(!ring.push(&[1; 500]));
        assert_eq!(ring.unread(), before);
        memory
            .word(perf::DATA_TAIL)
            .store(before, Ordering::Release);
        assert!(ring.push(&[1; 500]));
        assert!(ring.too_large(4081) && !ring.too_large(4080));
        assert_eq!(PerfRing::new(3).unwrap_err(), Errno::INVAL);
    }
}
