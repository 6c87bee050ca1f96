//! `BPF_MAP_TYPE_USER_RINGBUF`: a ring that the tool fills by itself, through libbpf's
//! `user_ring_buffer`, with Linux's layout.
//!
//! It lies in the tool, and the application's ring on its device: records wait here until an
//! application takes them ([`crate::app::feed`]). The tool writes records and the producer's
//! position, we read them and move the consumer's. What the tool wrote is checked as Linux checks
//! it when a program drains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::memory::{Memory, PAGE};
use crate::tool::notify::Notify;
use crate::uapi::ringbuf;

/// How many records are lent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// All that there are.
    All,
    /// What fits into one message: of bytes, or one record.
    Some {
        /// Most records.
        records: usize,
        /// Most bytes of them.
        bytes: u64,
    },
}

impl Portion {
    fn takes(self, records: usize, bytes: u64) -> bool {
        match self {
            Portion::All => true,
            Portion::Some {
                records: most,
                bytes: most_bytes,
            } => records <= 1 || records <= most && bytes <= most_bytes,
        }
    }
}

/// A ring: a page with our position, a page with the tool's, the data.
#[derive(Debug)]
pub struct UserRing {
    memory: Memory,
    size: u64,
    notify: Notify,
    lent: AtomicBool,
}

/// What no program of Linux would drain either: it is answered with this error for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// `EINVAL`.
    #[error("the producer's position, {position}, is no multiple of 8")]
    Position {
        /// The position.
        position: u64,
    },
    /// `EINVAL`, `E2BIG`.
    #[error(
        "the record at position {position} claims {length} bytes, more than were reserved or than the ring has"
    )]
    Length {
        /// The record's position.
        position: u64,
        /// Bytes of its payload.
        length: u32,
    },
}

/// A record that the tool has given back.
struct Record {
    /// The position behind it.
    end: u64,
    /// `None` if it was discarded.
    payload: Option<Vec<u8>>,
}

/// Records that are on their way to an application. Nobody else gets any until it is dropped; those
/// that were not [`Lent::keep`]-ed are lent again then.
#[derive(Debug)]
pub struct Lent {
    ring: Arc<UserRing>,
    /// Payloads in their order.
    pub records: Vec<Vec<u8>>,
    /// The position behind each.
    ends: Vec<u64>,
}

impl UserRing {
    /// A ring of `size` bytes.
    ///
    /// # Errors
    /// `EINVAL` unless `size` is a power of two and whole pages, as in Linux.
    pub fn new(size: u32) -> Result<UserRing, Errno> {
        let size = ringbuf::data_size(size)?;
        Ok(UserRing {
            memory: Memory::new(2 * PAGE + size)?,
            size,
            notify: Notify::new()?,
            lent: AtomicBool::new(false),
        })
    }

    /// What is mapped.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What its descriptors are names of.
    pub fn notify(&self) -> &Notify {
        &self.notify
    }

    /// Makes its descriptors writable while there is any room, and else not.
    pub fn refresh(&self) {
        self.notify.clear();
        if self.is_full() {
            self.notify.fill();
            // Room may have come between: who gave it has looked at the descriptor before.
            if !self.is_full() {
                self.notify.clear();
            }
        }
    }

    fn is_full(&self) -> bool {
        let (consumed, produced) = (self.consumed(), self.produced());
        produced.wrapping_sub(consumed) >= self.size
    }

    fn consumed(&self) -> u64 {
        self.memory.word(0).load(Ordering::SeqCst)
    }

    fn produced(&self) -> u64 {
        self.memory.word(PAGE).load(Ordering::SeqCst)
    }

    fn move_to(&self, position: u64) {
        self.memory.word(0).store(position, Ordering::SeqCst);
        self.refresh();
    }

    /// Lends the records that are submitted, up to the first that is not; `None` if there are none,
    /// or somebody has some. Discarded ones in front of them are gone.
    ///
    /// # Errors
    /// [`Broken`], if that is found in front.
    pub fn lend(self: &Arc<UserRing>, portion: Portion) -> Result<Option<Lent>, Broken> {
        if self.lent.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        let mut lent = Lent {
            ring: self.clone(),
            records: Vec::new(),
            ends: Vec::new(),
        };
        let (mut at, mut bytes) = (self.consumed(), 0);
        loop {
            let Record { end, payload } = match self.record(at) {
                Ok(Some(found)) => found,
                Err(broken) if lent.records.is_empty() => return Err(broken),
                // What stands in front of it is good.
                Ok(None) | Err(_) => break,
            };
            let Some(payload) = payload else {
                at = end;
                if lent.records.is_empty() {
                    self.move_to(at);
                }
                continue;
            };
            bytes += end - at;
            if !portion.takes(lent.records.len() + 1, bytes) {
                break;
            }
            at = end;
            lent.records.push(payload);
            lent.ends.push(at);
        }
        Ok((!lent.records.is_empty()).then_some(lent))
    }

    /// The record at a position, if it is given back.
    fn record(&self, at: u64) -> Result<Option<Record>, Broken> {
        let produced = self.produced();
        if !produced.is_multiple_of(8) {
            let position = produced;
            return Err(Broken::Position { position });
        }
        if at >= produced {
            return Ok(None);
        }
        let place = |position: u64| 2 * PAGE + (position & (self.size - 1));
        // The length is the word's first half on the machines that there are.
        let header = self.memory.word(place(at)).load(Ordering::SeqCst) as u32;
        let length = header & !(ringbuf::BUSY | ringbuf::DISCARD);
        let total = (ringbuf::HEADER + u64::from(length)).next_multiple_of(8);
        if total > produced - at || total > self.size {
            let position = at;
            return Err(Broken::Length { position, length });
        }
        if header & ringbuf::DISCARD != 0 {
            let (end, payload) = (at + total, None);
            return Ok(Some(Record { end, payload }));
        }
        if header & ringbuf::BUSY != 0 {
            return Ok(None);
        }
        let start = place(at + ringbuf::HEADER);
        let first = (2 * PAGE + self.size - start).min(length.into());
        let mut payload = self.memory.copy(start, first);
        payload.extend(self.memory.copy(2 * PAGE, u64::from(length) - first));
        Ok(Some(Record {
            end: at + total,
            payload: Some(payload),
        }))
    }
}

impl Lent {
    /// The first `count` records are the application's now.
    pub fn keep(&self, count: usize) {
        if let Some(end) = count.checked_sub(1).and_then(|last| self.ends.get(last)) {
            self.ring.move_to(*end);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.ring.lent.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const SIZE: u64 = 4096;

    pub(crate) fn new() -> Arc<UserRing> {
        Arc::new(UserRing::new(SIZE as u32).unwrap())
    }

    /// Reserves and gives back as libbpf does; false if there is no room.
    pub(crate) fn write(ring: &UserRing, payload: &[u8], flags: u32) -> bool {
        let need = (ringbuf::HEADER + payload.len() as u64).next_multiple_of(8);
        let at = ring.produced();
        if SIZE - (at - ring.consumed()) < need {
            return false;
        }
        let place = |position: u64| 2 * PAGE + position % SIZE;
        let header = u64::from(payload.len() as u32 | flags);
        ring.memory.word(place(at)).store(header, Ordering::SeqCst);
        for (position, byte) in (at + 8..).zip(payload) {
            ring.memory.store(place(position), &[*byte]);
        }
        ring.memory.word(PAGE).store(at + need, Ordering::SeqCst);
        true
    }

    fn is_writable(ring: &UserRing) -> bool {
        ring.refresh();
        let mut fds = [PollFd::new(ring.notify(), PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn records_come_out_in_order_around_the_end_without_what_was_discarded() {
        let ring = new();
        let mut next = 0u8;
        for round in 0..60 {
            let mut written = Vec::new();
            for length in [0usize, 1, 7, 8, 333] {
                next = next.wrapping_add(1);
                let flags = if next.is_multiple_of(4) {
                    ringbuf::DISCARD
                } else {
                    0
                };
                assert!(write(&ring, &vec![next; length], flags));
                if flags == 0 {
                    written.push(vec![next; length]);
                }
            }
            let lent = ring.lend(Portion::All).unwrap().unwrap();
            assert_eq!(lent.records, written, "round {round}");
            lent.keep(written.len());
        }
        assert!(ring.lend(Portion::All).unwrap().is_none());
        assert_eq!(ring.consumed(), ring.produced());
    }

    #[test]
    fn what_is_not_kept_is_lent_again_and_to_one_at_a_time() {
        let ring = new();
        for number in 0..4u8 {
            assert!(write(&ring, &[number], 0));
        }
        let lent = ring.lend(Portion::All).unwrap().unwrap();
        assert_eq!(lent.records.len(), 4);
        assert!(ring.lend(Portion::All).unwrap().is_none());
        lent.keep(0);
        lent.keep(2);
        drop(lent);
        let lent = ring.lend(Portion::All).unwrap().unwrap();
        assert_eq!(lent.records, [[2], [3]]);
    }

    #[test]
    fn a_portion_is_some_records_or_some_bytes_or_one_record() {
        let ring = new();
        for number in 0..6u8 {
            assert!(write(
                &ring,
                &vec![number; if number == 3 { 400 } else { 8 }],
                0
            ));
        }
        for (records, bytes, lengths) in [
            (2, 1000, vec![8, 8]),
            (9, 20, vec![8]),
            (9, 100, vec![400]),
            (0, 0, vec![8]),
            (9, 1000, vec![8]),
        ] {
            let lent = ring
                .lend(Portion::Some { records, bytes })
                .unwrap()
                .unwrap();
            let found: Vec<usize> = lent.records.iter().map(Vec::len).collect();
            assert_eq!(found, lengths);
            lent.keep(found.len());
        }
    }

    #[test]
    fn a_record_that_is_not_submitted_holds_back_what_follows() {
        let ring = new();
        assert!(write(&ring, b"first", 0) && write(&ring, b"second", ringbuf::BUSY));
        assert!(write(&ring, b"third", 0));
        let lent = ring.lend(Portion::All).unwrap().unwrap();
        assert_eq!(lent.records, [b"first"]);
        lent.keep(1);
        drop(lent);
        assert!(ring.lend(Portion::All).unwrap().is_none());
        let second = ring.memory.word(2 * PAGE + 16);
        second.store(u64::from(ringbuf::DISCARD | 6), Ordering::SeqCst);
        assert_eq!(
            ring.lend(Portion::All).unwrap().unwrap().records,
            [b"third"]
        );
    }

    #[test]
    fn a_full_ring_is_not_writable_until_something_is_kept() {
        let ring = new();
        assert!(is_writable(&ring));
        assert!(write(&ring, &[1; 1000], 0) && is_writable(&ring));
        assert!(write(&ring, &[2; SIZE as usize - 1008 - 8], 0));
        assert!(!write(&ring, &[], 0) && !is_writable(&ring));
        ring.lend(Portion::All).unwrap().unwrap().keep(1);
        assert!(is_writable(&ring));
        assert!(write(&ring, &[3; 1000], 0) && !is_writable(&ring));
    }

    #[test]
    fn what_linux_would_not_drain_is_not_lent() {
        for size in [0, 4095, 2048, 3 * 4096] {
            assert_eq!(UserRing::new(size).unwrap_err(), Errno::INVAL);
        }
        let ring = new();
        assert!(write(&ring, b"good", 0) && write(&ring, b"longer", 0));
        ring.memory.word(2 * PAGE + 16).store(9, Ordering::SeqCst);
        let lent = ring.lend(Portion::All).unwrap().unwrap();
        assert_eq!(lent.records, [b"good"]);
        lent.keep(1);
        drop(lent);
        let broken = Broken::Length {
            position: 16,
            length: 9,
        };
        assert_eq!(ring.lend(Portion::All).unwrap_err(), broken);
        assert_eq!(
            broken.to_string(),
            "the record at position 16 claims 9 bytes, more than were reserved or than the ring has"
        );
        ring.memory.word(PAGE).store(33, Ordering::SeqCst);
        assert_eq!(
            ring.lend(Portion::All).unwrap_err(),
            Broken::Position { position: 33 }
        );
    }
}
