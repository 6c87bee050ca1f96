//! What stands in the rings that a tool reads or fills by itself, and in which order it is written and looked at: Linux's layouts, over
//! words that a model checker may stand behind.
//!
//! A tool's threads are on the other side, with libbpf's code. It writes headers and positions by a store with release, and reads them
//! by a load with acquire; bytes of records lie in whole words here, of which positions are multiples.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::uapi::ringbuf;

/// An atomic word.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u64;
    /// Changes it.
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

/// A ring: who reads moves one position, who writes the other. `data` is a power of two of words.
#[derive(Debug)]
pub struct Ring<'r, W> {
    /// Up to where records were read.
    pub consumer: &'r W,
    /// Up to where records stand.
    pub producer: &'r W,
    /// Where they stand, over and over.
    pub data: &'r [W],
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
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The position behind it.
    pub end: u64,
    /// `None` if it was discarded.
    pub payload: Option<Vec<u8>>,
}

impl<W: Word> Ring<'_, W> {
    /// Bytes of data.
    fn size(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    fn word(&self, position: u64) -> &W {
        &self.data[((position & (self.size() - 1)) / 8) as usize]
    }

    /// Bytes that were written and not read, for who writes.
    pub fn unread(&self) -> u64 {
        let consumed = self.consumer.load(Ordering::Acquire);
        self.producer.load(Ordering::Relaxed).wrapping_sub(consumed)
    }

    /// Bytes at a position, in whole words.
    fn put(&self, position: u64, bytes: &[u8]) {
        for (at, some) in (position..).step_by(8).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..some.len()].copy_from_slice(some);
            self.word(at)
                .store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Appends a record of `BPF_MAP_TYPE_RINGBUF`; false if there is no room now. One thread does it at a time.
    pub fn push(&self, payload: &[u8]) -> bool {
        let need = (ringbuf::HEADER + payload.len() as u64).next_multiple_of(8);
        // As in Linux, where a ring is never filled to its last byte.
        if self.unread() + need >= self.size() {
            return false;
        }
        let head = self.producer.load(Ordering::Relaxed);
        let length = payload.len() as u32;
        debug_assert_eq!(length & (ringbuf::BUSY | ringbuf::DISCARD), 0);
        // The header's second half is a page offset that readers ignore.
        self.word(head).store(u64::from(length), Ordering::Relaxed);
        self.put(head + ringbuf::HEADER, payload);
        self.producer.store(head + need, Ordering::Release);
        true
    }

    /// Appends what a ring of a perf event holds, whole words, header and all; false if there is no room now. One thread does it at a time.
    pub fn append(&self, record: &[u8]) -> bool {
        if self.unread() + record.len() as u64 > self.size() {
            return false;
        }
        let head = self.producer.load(Ordering::Relaxed);
        self.put(head, record);
        self.producer
            .store(head + record.len() as u64, Ordering::Release);
        true
    }

    /// The record of `BPF_MAP_TYPE_USER_RINGBUF` at a position, if the tool has given it back.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn record(&self, at: u64) -> Result<Option<Record>, Broken> {
        let produced = self.producer.load(Ordering::SeqCst);
        if !produced.is_multiple_of(8) {
            let position = produced;
            return Err(Broken::Position { position });
        }
        if at >= produced {
            return Ok(None);
        }
        // The length is the word's first half on the machines that there are.
        let header = self.word(at).load(Ordering::SeqCst) as u32;
        let length = header & !(ringbuf::BUSY | ringbuf::DISCARD);
        let total = (ringbuf::HEADER + u64::from(length)).next_multiple_of(8);
        if total > produced - at || total > self.size() {
            let position = at;
            return Err(Broken::Length { position, length });
        }
        let end = at + total;
        if header & ringbuf::DISCARD != 0 {
            return Ok(Some(Record { end, payload: None }));
        }
        if header & ringbuf::BUSY != 0 {
            return Ok(None);
        }
        let words = (at + ringbuf::HEADER..end).step_by(8);
        let bytes = words.flat_map(|at| self.word(at).load(Ordering::Relaxed).to_ne_bytes());
        let payload = Some(bytes.take(length as usize).collect());
        Ok(Some(Record { end, payload }))
    }
}

#[cfg(all(test, loom))]
mod models;
