//! The protocol of the event ring, over any kind of atomic words: a model checker runs the same
//! code as the mapping does (`models`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use warpbpf_abi::layout::RingLayout;

use super::error::SharedError;
use crate::words::{Word, load, store};

/// How often a consumer may find its tail moved in one look.
const MOST_LATE: u32 = 1000;
/// Positions beyond this are of no writer of ours: it would take centuries.
const LAST: u64 = 1 << 62;
/// Bytes of an entry's header.
pub(super) const ENTRY_HEADER: u64 = 16;
/// In an entry's header: one event.
const EVENT: u32 = 0;
/// In an entry's header: a chunk of a device ring.
pub(super) const CHUNK: u32 = 1;

/// The ring in shared memory: what the writer moves, what consumers move, and a power of two of
/// bytes.
pub(super) struct Ring<'a, W> {
    /// Bytes ever written.
    pub head: &'a W,
    /// Bytes ever read: where an entry begins.
    pub tail: &'a W,
    /// Where the first record lies that has not been handed out, if that is in the chunk at the
    /// tail.
    pub within: &'a W,
    /// How many consumers there were.
    pub epoch: &'a W,
    pub data: &'a [W],
}

/// What an entry's header says.
struct Entry {
    map: u32,
    shard: u32,
    is_chunk: bool,
    /// Positions of its payload, or of the chunk.
    bytes: Range<u64>,
    /// Position of the next entry.
    end: u64,
}

impl Entry {
    /// The entry at `position` with a payload of `len` bytes. Positions do not overflow: a ring
    /// would have to be used for centuries.
    fn new<W: Word>(position: u64, [map, shard, len, kind]: [u32; 4]) -> Entry {
        let is_chunk = kind == CHUNK;
        let start = match is_chunk {
            true => (position + ENTRY_HEADER).next_multiple_of(W::CHUNK_ALIGN),
            false => position + ENTRY_HEADER,
        };
        Entry {
            map,
            shard,
            is_chunk,
            bytes: start..start + u64::from(len),
            end: start + u64::from(len).next_multiple_of(8),
        }
    }
}

impl<W: Word> Ring<'_, W> {
    fn bytes(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    /// Bytes that may be written behind `head`.
    fn free(&self, head: u64) -> u64 {
        let tail = self.tail.load(Ordering::Acquire);
        // A tail that is ahead or far behind comes from a broken reader: it only costs that reader
        // its events.
        self.bytes().saturating_sub(head.wrapping_sub(tail))
    }

    /// Appends an event at `head`, which is the only writer's; false when consumers have not made
    /// room.
    pub(super) fn try_push(&self, head: &mut u64, map: u32, shard: u32, payload: &[u8]) -> bool {
        let Ok(len) = u32::try_from(payload.len()) else {
            return false;
        };
        let Some(bytes) = self.begin(head, [map, shard, len, EVENT]) else {
            return false;
        };
        self.write(bytes.start, payload);
        self.publish(*head);
        true
    }

    /// Most bytes of a chunk that there is room for behind `next`: a multiple of what records begin
    /// at.
    pub(super) fn chunk_room(&self, next: u64) -> u64 {
        let before = Entry::new::<W>(next, [0, 0, 0, CHUNK]).bytes.start - next;
        let room = self.free(next).saturating_sub(before).min(1 << 31);
        room / RingLayout::ALIGN * RingLayout::ALIGN
    }

    /// Room behind `next` for a chunk of so many bytes, which the caller fills before
    /// [`Ring::publish`]: its place in the data, in two parts if it lies over the end. `None` when
    /// consumers have not made room.
    pub(super) fn reserve(
        &self,
        next: &mut u64,
        map: u32,
        shard: u32,
        bytes: u64,
    ) -> Option<[Range<u64>; 2]> {
        let len = u32::try_from(bytes).ok()?;
        let place = self.begin(next, [map, shard, len, CHUNK])?;
        Some(self.parts(place.start, bytes))
    }

    /// Writes an entry's header at `next` and moves that behind the entry.
    fn begin(&self, next: &mut u64, header: [u32; 4]) -> Option<Range<u64>> {
        let entry = Entry::new::<W>(*next, header);
        if entry.end - *next > self.free(*next) {
            return None;
        }
        // A reader that has been taken over may still be looking at this room. If it sees a word
        // that is stored from here on, it must also see that there was another consumer, who gave
        // the room back.
        W::fence(Ordering::Release);
        let mut bytes = [0u8; ENTRY_HEADER as usize];
        for (to, field) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(header) {
            *to = field.to_le_bytes();
        }
        self.write(*next, &bytes);
        *next = entry.end;
        Some(entry.bytes)
    }

    /// Everything before `head` is written.
    pub(super) fn publish(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    /// Where bytes at a position lie in the data: in one part, or in two over its end.
    fn parts(&self, position: u64, bytes: u64) -> [Range<u64>; 2] {
        let start = position & (self.bytes() - 1);
        let first = (self.bytes() - start).min(bytes);
        [start..start + first, 0..bytes - first]
    }

    pub(super) fn write(&self, position: u64, bytes: &[u8]) {
        let [one, two] = self.parts(position, bytes.len() as u64);
        let (first, second) = bytes.split_at((one.end - one.start) as usize);
        for (at, part) in [(one.start, first), (two.start, second)] {
            store(&self.data[at as usize / 8..], part);
        }
    }

    fn read(&self, position: u64, into: &mut [u8]) {
        let [one, two] = self.parts(position, into.len() as u64);
        let (first, second) = into.split_at_mut((one.end - one.start) as usize);
        for (at, part) in [(one.start, first), (two.start, second)] {
            load(&self.data[at as usize / 8..], part);
        }
    }
}

/// One reader of the ring.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    tail: u64,
    /// As the ring's `within`.
    within: u64,
    /// Which consumer of the ring it is, if it is one.
    epoch: Option<u64>,
    /// A copy of what is looked at, because the writer may be another program than it says.
    copy: Vec<u8>,
}

/// How far a consumer came with an entry.
enum Came {
    /// To its end.
    Through,
    /// The sink wants no more.
    Enough,
    /// The consumer before this one has given the entry's room back.
    Late,
}

impl Consumer {
    /// Hands events to `sink` until it says false: the event that it was given then counts as
    /// handed out. Returns how many.
    pub(super) fn events_while<W: Word>(
        &mut self,
        ring: &Ring<'_, W>,
        mut sink: impl FnMut(Event<'_>) -> bool,
    ) -> Result<u64, SharedError> {
        self.take_over(ring)?;
        let mut head = ring.head.load(Ordering::Acquire);
        let (mut events, mut late) = (0, 0);
        while self.tail != head {
            // Each consumer before this one gives back one entry at most behind our back.
            if late > MOST_LATE {
                return Err(SharedError::Ring {
                    position: self.tail,
                    what: "somebody else moves its tail".into(),
                });
            }
            let entry = self.entry(ring, head);
            if !self.is_as_read(ring)? {
                (head, late) = (self.catch_up(ring), late + 1);
                continue;
            }
            let entry = entry?;
            let came = match entry.is_chunk {
                true => self.chunk(ring, &entry, &mut sink, &mut events),
                false => {
                    events += 1;
                    Ok(match sink(entry.event(&self.copy)) {
                        true => Came::Through,
                        false => Came::Enough,
                    })
                }
            };
            // A chunk that is damaged is left behind, so that what follows it can be read.
            let over = match &came {
                Ok(Came::Through) | Err(SharedError::Record { .. }) => true,
                Ok(Came::Enough) => !entry.is_chunk || self.within == entry.bytes.end,
                Ok(Came::Late) | Err(_) => false,
            };
            if over {
                match ring.tail.swap_if(self.tail, entry.end) {
                    Ok(_) => self.tail = entry.end,
                    // The consumer before us was about to give this entry's room back when we came.
                    Err(_) if self.is_consumer(ring) => {
                        (head, late) = (self.catch_up(ring), late + 1);
                    }
                    Err(_) => return Err(SharedError::TakenOver),
                }
            }
            match came? {
                Came::Through => {}
                Came::Enough => break,
                Came::Late => (head, late) = (self.catch_up(ring), late + 1),
            }
        }
        Ok(events)
    }

    /// Hands out the records of the chunk at the tail, from where the last look at it ended.
    fn chunk<W: Word>(
        &mut self,
        ring: &Ring<'_, W>,
        entry: &Entry,
        sink: &mut impl FnMut(Event<'_>) -> bool,
        events: &mut u64,
    ) -> Result<Came, SharedError> {
        let Range { start, end } = entry.bytes;
        // What the consumer before has left there, or nonsense.
        let begun = (start..=end).contains(&self.within)
            && (self.within - start).is_multiple_of(RingLayout::ALIGN);
        if !begun {
            self.within = start;
        }
        let mut want = W::PIECE;
        while self.within < end {
            let piece = self.within..end.min(self.within + want);
            self.copy.resize((piece.end - piece.start) as usize, 0);
            ring.read(piece.start, &mut self.copy);
            if !self.is_as_read(ring)? {
                return Ok(Came::Late);
            }
            want = W::PIECE;
            let mut rest = &self.copy[..];
            while !rest.is_empty() {
                let room = end - self.within;
                let header = match rest.first_chunk::<{ RingLayout::HEADER as usize }>() {
                    Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
                    None => 0,
                };
                let Some(record) = RingLayout::record(header, room) else {
                    return Err(SharedError::Record {
                        map: entry.map,
                        shard: entry.shard,
                        position: self.within,
                        header,
                        skipped: room,
                    });
                };
                let Some((bytes, behind)) = rest.split_at_checked(record.bytes as usize) else {
                    // It begins the next piece.
                    want = W::PIECE.max(record.bytes);
                    break;
                };
                let mut more = true;
                if let Some(length) = record.payload {
                    if !self.is_consumer(ring) {
                        return Err(SharedError::TakenOver);
                    }
                    *events += 1;
                    more = sink(Event {
                        map: entry.map,
                        shard: entry.shard,
                        payload: &bytes[RingLayout::HEADER as usize..][..length as usize],
                    });
                }
                rest = behind;
                self.within += record.bytes;
                // Who comes after us goes on there.
                ring.within.store(self.within, Ordering::Release);
                if !more {
                    return Ok(Came::Enough);
                }
            }
        }
        Ok(Came::Through)
    }

    /// Reads the header of the entry at the tail, and an event's payload.
    fn entry<W: Word>(&mut self, ring: &Ring<'_, W>, head: u64) -> Result<Entry, SharedError> {
        let damaged = |what: String| SharedError::Ring {
            position: self.tail,
            what,
        };
        let there = head.wrapping_sub(self.tail);
        // Both are what its writer's process likes: what follows adds to positions.
        if self.tail > head || there > ring.bytes() || there < ENTRY_HEADER || head > LAST {
            return Err(damaged(format!("{there} bytes are said to be there")));
        }
        let mut header = [0u8; ENTRY_HEADER as usize];
        ring.read(self.tail, &mut header);
        let mut fields = [0; 4];
        for (field, bytes) in fields.iter_mut().zip(header.as_chunks::<4>().0) {
            *field = u32::from_le_bytes(*bytes);
        }
        let [_, _, len, kind] = fields;
        if kind != EVENT && kind != CHUNK {
            return Err(damaged(format!("there is no entry of kind {kind}")));
        }
        let entry = Entry::new::<W>(self.tail, fields);
        if entry.end - self.tail > there {
            let what = if entry.is_chunk { "chunk" } else { "record" };
            return Err(damaged(format!(
                "a {what} of {len} bytes where {there} are there"
            )));
        }
        if !entry.is_chunk {
            self.copy.resize(len as usize, 0);
            ring.read(entry.bytes.start, &mut self.copy);
        }
        Ok(entry)
    }

    /// What was read before this is as it was written, if its room has not been given back: by a
    /// consumer that came after this one, which is an error, or by the one before, which was about
    /// to when this one came.
    fn is_as_read<W: Word>(&self, ring: &Ring<'_, W>) -> Result<bool, SharedError> {
        W::fence(Ordering::Acquire);
        if !self.is_consumer(ring) {
            return Err(SharedError::TakenOver);
        }
        Ok(ring.tail.load(Ordering::Acquire) == self.tail)
    }

    /// Goes on where the consumer before has moved the tail to; gives the head.
    fn catch_up<W: Word>(&mut self, ring: &Ring<'_, W>) -> u64 {
        self.tail = ring.tail.load(Ordering::Acquire);
        self.within = ring.within.load(Ordering::Acquire);
        ring.head.load(Ordering::Acquire)
    }

    /// Makes this reader the consumer of the ring, if it never was.
    fn take_over<W: Word>(&mut self, ring: &Ring<'_, W>) -> Result<(), SharedError> {
        if self.epoch.is_none() {
            self.epoch = Some(ring.epoch.add(1).wrapping_add(1));
            self.tail = ring.tail.load(Ordering::Acquire);
            self.within = ring.within.load(Ordering::Acquire);
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

impl Entry {
    /// The event that it is.
    fn event<'a>(&self, payload: &'a [u8]) -> Event<'a> {
        Event {
            map: self.map,
            shard: self.shard,
            payload,
        }
    }
}

/// An event out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Index of the map, or [`super::PRINTK`].
    pub map: u32,
    /// The device ring it came from: the SM.
    pub shard: u32,
    /// What the program wrote.
    pub payload: &'a [u8],
}
