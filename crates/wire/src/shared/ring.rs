//! The protocol of the event ring, over any kind of atomic words: a model checker runs the same code as the mapping does
//! (`models`).

use std::sync::atomic::Ordering;

use super::{Event, RECORD_HEADER, SharedError};
use crate::words::{Word, load, store};

/// The ring in shared memory: what the writer moves, what consumers move, and a power of two of bytes.
pub(super) struct Ring<'a, W> {
    /// Bytes ever written.
    pub head: &'a W,
    /// Bytes ever read.
    pub tail: &'a W,
    /// How many consumers there were.
    pub epoch: &'a W,
    pub data: &'a [W],
}

impl<W: Word> Ring<'_, W> {
    fn bytes(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    /// Appends an event at `head`, which is the only writer's; false when consumers have not made room.
    pub(super) fn try_push(&self, head: &mut u64, map: u32, shard: u32, payload: &[u8]) -> bool {
        let need = RECORD_HEADER + (payload.len() as u64).next_multiple_of(8);
        let tail = self.tail.load(Ordering::Acquire);
        // A tail that is ahead or far behind comes from a broken reader: it only costs that reader its events.
        let used = head.wrapping_sub(tail);
        if used > self.bytes() || need > self.bytes() - used {
            return false;
        }
        // A reader that has been taken over may still be looking at this room. If it sees a word that is stored below, it must
        // also see that there was another consumer, who gave the room back.
        W::fence(Ordering::Release);
        let mut header = [0u8; RECORD_HEADER as usize];
        header[0..4].copy_from_slice(&map.to_le_bytes());
        header[4..8].copy_from_slice(&shard.to_le_bytes());
        header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        self.write(*head, &header);
        self.write(*head + RECORD_HEADER, payload);
        *head += need;
        self.head.store(*head, Ordering::Release);
        true
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        let start = position & (self.bytes() - 1);
        let first = (self.bytes() - start).min(bytes.len() as u64) as usize;
        for (at, part) in [(start, &bytes[..first]), (0, &bytes[first..])] {
            store(&self.data[at as usize / 8..], part);
        }
    }

    fn read(&self, position: u64, into: &mut [u8]) {
        let start = position & (self.bytes() - 1);
        let first = (self.bytes() - start).min(into.len() as u64) as usize;
        let (one, two) = into.split_at_mut(first);
        for (at, part) in [(start, one), (0, two)] {
            load(&self.data[at as usize / 8..], part);
        }
    }
}

/// One reader of the ring.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    tail: u64,
    /// Which consumer of the ring it is, if it is one.
    epoch: Option<u64>,
    payload: Vec<u8>,
}

impl Consumer {
    /// Hands events to `sink` until it says false: the event that it was given then counts as handed out. Returns how many.
    pub(super) fn events_while<W: Word>(
        &mut self,
        ring: &Ring<'_, W>,
        mut sink: impl FnMut(Event<'_>) -> bool,
    ) -> Result<u64, SharedError> {
        self.take_over(ring)?;
        let mut head = ring.head.load(Ordering::Acquire);
        let mut events = 0;
        while self.tail != head {
            let record = self.record(ring, head);
            // What was read before this is as it was written, if its room has not been given back: by a consumer that came
            // after this one, or by the one before, which was about to when this one came.
            W::fence(Ordering::Acquire);
            if !self.is_consumer(ring) {
                return Err(SharedError::TakenOver);
            }
            let tail = ring.tail.load(Ordering::Acquire);
            if tail != self.tail {
                self.tail = tail;
                head = ring.head.load(Ordering::Acquire);
                continue;
            }
            let (map, shard, need) = record?;
            let more = sink(Event {
                map,
                shard,
                payload: &self.payload,
            });
            let next = self.tail + need;
            match ring.tail.swap_if(self.tail, next) {
                Ok(_) => self.tail = next,
                // The consumer before us was about to give this event's room back when we came.
                Err(moved) if self.is_consumer(ring) => {
                    self.tail = moved;
                    head = ring.head.load(Ordering::Acquire);
                }
                Err(_) => return Err(SharedError::TakenOver),
            }
            events += 1;
            if !more {
                break;
            }
        }
        Ok(events)
    }

    /// Reads the record at the tail into `payload`: its map, its shard, and the bytes that it takes.
    fn record<W: Word>(
        &mut self,
        ring: &Ring<'_, W>,
        head: u64,
    ) -> Result<(u32, u32, u64), SharedError> {
        let damaged = |what: String| SharedError::Ring {
            position: self.tail,
            what,
        };
        let there = head.wrapping_sub(self.tail);
        if there > ring.bytes() || there < RECORD_HEADER {
            return Err(damaged(format!("{there} bytes are said to be there")));
        }
        let mut header = [0u8; RECORD_HEADER as usize];
        ring.read(self.tail, &mut header);
        let word =
            |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let (map, shard, len) = (word(0), word(4), word(8) as usize);
        let need = RECORD_HEADER + (len as u64).next_multiple_of(8);
        if need > there {
            return Err(damaged(format!(
                "a record of {len} bytes where {there} are there"
            )));
        }
        self.payload.resize(len, 0);
        ring.read(self.tail + RECORD_HEADER, &mut self.payload);
        Ok((map, shard, need))
    }

    /// Makes this reader the consumer of the ring, if it never was.
    fn take_over<W: Word>(&mut self, ring: &Ring<'_, W>) -> Result<(), SharedError> {
        if self.epoch.is_none() {
            self.epoch = Some(ring.epoch.add(1) + 1);
            self.tail = ring.tail.load(Ordering::Acquire);
        }
        if self.is_consumer(ring) {
            Ok(())
        } else {
            Err(SharedError::TakenOver)
        }
    }

    /// Nobody has taken the ring over from it.
    fn is_consumer<W: Word>(&self, ring: &Ring<'_, W>) -> bool {
        self.epoch == Some(ring.epoch.load(Ordering::Acquire))
    }
}
