//! Where things are in the shared memory, and what stands there for each map.

use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SharedError;
use super::ring::Ring;
use super::snapshot;
use crate::words::Words;

/// Bytes of the event ring when nobody says otherwise.
pub const DEFAULT_RING_BYTES: u64 = 64 << 20;
/// The map number of `bpf_trace_printk` events.
pub const PRINTK: u32 = u32::MAX;

/// What `memfd_create` makes is in.
pub(super) const TMPFS_MAGIC: i64 = 0x0102_1994;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"wbpfshm\0");
pub(super) const VERSION: u64 = 2;
pub(super) const PAGE: u64 = 4096;
pub(super) const HEAD: u64 = 128;
pub(super) const TAIL: u64 = 256;
pub(super) const EPOCH: u64 = 320;
pub(super) const WITHIN: u64 = 328;
pub(super) const LOST_PRINTK: u64 = 384;
/// In the header: 1 + the bound of the error of host time on the device, in ns; 0 before it is
/// known.
pub(super) const CLOCK_ERROR: u64 = 48;
/// Behind a count of lost events: those lost on the device before, because a ring was full or a
/// retry ran out.
pub(super) const LOSSES_FULL: u64 = 8;
pub(super) const LOSSES_BUSY: u64 = 16;
pub(super) const TABLE: u64 = PAGE;
pub(super) const TABLE_STRIDE: u64 = 64;
/// More maps than any process has.
pub(super) const MOST_MAPS: u64 = 1 << 16;

/// Losses on the device, before events reach this ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceLosses {
    /// A ring was full.
    pub full: u64,
    /// A bounded retry ran out.
    pub busy: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    /// Which memfd it is in: 0 is the one with the ring.
    pub(super) part: usize,
    /// Where its row of the table is.
    pub(super) entry: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) stride: u64,
}

impl Area {
    pub(super) fn sequence_at(self) -> u64 {
        self.entry + 24
    }
}

pub(super) fn entry(map: usize) -> u64 {
    TABLE + TABLE_STRIDE * map as u64
}

/// Maps in one memfd, or in several.
#[derive(Debug)]
pub(super) struct Areas {
    pub(super) all: Vec<Area>,
    /// The memfds behind the first one.
    pub(super) more: Vec<Words>,
}

impl Areas {
    /// Those of another memfd, with the numbers that follow.
    pub(super) fn append(&mut self, words: Words, areas: Vec<Area>) {
        self.more.push(words);
        let part = self.more.len();
        self.all
            .extend(areas.into_iter().map(|area| Area { part, ..area }));
    }

    pub(super) fn get(&self, map: usize) -> Result<Area, SharedError> {
        let maps = self.all.len();
        self.all
            .get(map)
            .copied()
            .ok_or(SharedError::Map { map, maps })
    }

    /// The words of an area's memfd; `first` are those of the first one.
    pub(super) fn words<'a>(&'a self, first: &'a Words, area: Area) -> &'a Words {
        match area.part {
            0 => first,
            part => &self.more[part - 1],
        }
    }

    /// Copies the last published snapshot of a map.
    pub(super) fn snapshot(
        &self,
        first: &Words,
        map: usize,
        into: &mut Vec<u8>,
    ) -> Result<Option<u64>, SharedError> {
        let area = self.get(map)?;
        let words = self.words(first, area);
        let sequence = words.word(area.sequence_at());
        if sequence.load(Ordering::Acquire) == 0 {
            into.clear();
            return Ok(None);
        }
        into.resize(area.bytes as usize, 0);
        match snapshot::read(sequence, copies(words, area), into) {
            Some(0) => {
                into.clear();
                Ok(None)
            }
            Some(read) => Ok(Some(read)),
            None => Err(SharedError::Busy {
                map,
                tries: snapshot::tries(area.bytes),
            }),
        }
    }

    /// The word that counts snapshots of a map.
    pub(super) fn sequence<'a>(&'a self, first: &'a Words, map: usize) -> Option<&'a AtomicU64> {
        let area = self.get(map).ok()?;
        Some(self.words(first, area).word(area.sequence_at()))
    }

    /// The word that counts lost events of a map ([`PRINTK`] too), or one that stands `behind` it.
    pub(super) fn lost<'a>(
        &'a self,
        first: &'a Words,
        map: u32,
        behind: u64,
    ) -> Option<&'a AtomicU64> {
        if map == PRINTK {
            return Some(first.word(LOST_PRINTK + behind));
        }
        let area = self.get(map as usize).ok()?;
        Some(self.words(first, area).word(area.entry + 32 + behind))
    }
}

/// The event ring in the mapping.
pub(super) fn ring(words: &Words, at: u64, bytes: u64) -> Ring<'_, AtomicU64> {
    Ring {
        head: words.word(HEAD),
        tail: words.word(TAIL),
        within: words.word(WITHIN),
        epoch: words.word(EPOCH),
        data: words.slice(at, bytes),
    }
}

/// The two copies of a map's snapshot.
pub(super) fn copies(words: &Words, area: Area) -> [&[AtomicU64]; 2] {
    let bytes = area.bytes.next_multiple_of(8);
    [0, 1].map(|copy| words.slice(area.offset + area.stride * copy, bytes))
}
