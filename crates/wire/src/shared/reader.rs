//! The tool's side of the shared memory.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use super::area::{
    Area, Areas, CLOCK_ERROR, DeviceLosses, HEAD, LOSSES_BUSY, LOSSES_FULL, MAGIC, MOST_MAPS, PAGE,
    TABLE, TABLE_STRIDE, TAIL, TMPFS_MAGIC, VERSION, entry, ring,
};
use super::error::{SharedError, os};
use super::ring::{Consumer, Event};
use crate::words::Words;

/// The tool's side. Keeps working when the agent is dead.
#[derive(Debug)]
pub struct SharedReader {
    pub(super) words: Words,
    pub(super) areas: Areas,
    pub(super) ring: u64,
    pub(super) ring_bytes: u64,
    pub(super) consumer: Consumer,
}

impl SharedReader {
    /// Maps a memfd from an agent after checking that it cannot shrink and that every offset in it
    /// is inside.
    pub fn open(fd: impl AsFd) -> Result<SharedReader, SharedError> {
        SharedReader::open_bounded(fd, u64::MAX)
    }

    /// As [`SharedReader::open`], if it has no more than `most` bytes.
    pub fn open_bounded(fd: impl AsFd, most: u64) -> Result<SharedReader, SharedError> {
        let format = |what: &str| SharedError::Format { what: what.into() };
        let seals = fcntl_get_seals(&fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(format("its file may shrink"));
        }
        // Pages of other file systems may not be there when they are looked at, which is a signal:
        // the machine may have no huge ones left, whatever the file's size.
        if fstatfs(&fd).map_err(os("fstatfs"))?.f_type != TMPFS_MAGIC {
            return Err(format("its file is not of plain memory"));
        }
        let bytes = fstat(&fd).map_err(os("fstat"))?.st_size as u64;
        if bytes < TABLE || !bytes.is_multiple_of(8) || bytes > most {
            return Err(SharedError::Format {
                what: format!("it has {bytes} bytes"),
            });
        }
        let words = Words::map(&fd, bytes as usize).map_err(os("mmap"))?;
        let header = |i: u64| words.word(i * 8).load(Ordering::Relaxed);
        if words.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(format("its magic is wrong"));
        }
        if header(1) != VERSION {
            return Err(SharedError::Format {
                what: format!("its version is {}, this is {VERSION}", header(1)),
            });
        }
        let (maps, ring, ring_bytes) = (header(2), header(3), header(4));
        let inside = |offset: u64, size: u64| {
            offset.is_multiple_of(8) && offset.checked_add(size).is_some_and(|end| end <= bytes)
        };
        let table = maps.checked_mul(TABLE_STRIDE).filter(|_| maps <= MOST_MAPS);
        if !table.is_some_and(|table| inside(TABLE, table)) {
            return Err(format("its map table is outside the file"));
        }
        if !ring_bytes.is_power_of_two() || ring_bytes < PAGE || !inside(ring, ring_bytes) {
            return Err(format("its ring is outside the file"));
        }
        let mut areas = Vec::with_capacity(maps as usize);
        for map in 0..maps as usize {
            let field = |i: u64| words.word(entry(map) + i * 8).load(Ordering::Relaxed);
            let area = Area {
                part: 0,
                entry: entry(map),
                offset: field(0),
                bytes: field(1),
                stride: field(2),
            };
            let whole = area.stride.checked_mul(2);
            let fits = whole.is_some_and(|whole| inside(area.offset, whole))
                && area.stride.is_multiple_of(8)
                && area
                    .bytes
                    .checked_next_multiple_of(8)
                    .is_some_and(|b| b <= area.stride);
            if !fits {
                return Err(SharedError::Format {
                    what: format!("map {map} is outside the file"),
                });
            }
            areas.push(area);
        }
        Ok(SharedReader {
            words,
            areas: Areas {
                all: areas,
                more: Vec::new(),
            },
            ring,
            ring_bytes,
            consumer: Consumer::default(),
        })
    }

    /// Takes in the one memfd of maps that came later: their numbers follow those that there are.
    pub fn append(&mut self, maps: SharedReader) {
        self.areas.append(maps.words, maps.areas.all);
    }

    /// Number of maps.
    pub fn maps(&self) -> usize {
        self.areas.all.len()
    }

    /// Copies the last published snapshot of a map and returns its sequence; `None` before the
    /// first one.
    pub fn snapshot(&self, map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError> {
        self.areas.snapshot(&self.words, map, into)
    }

    /// Bytes of a snapshot of a map.
    pub fn snapshot_bytes(&self, map: usize) -> Option<u64> {
        self.areas.all.get(map).map(|area| area.bytes)
    }

    /// Number of snapshots published of a map: changes when there is something new.
    pub fn sequence(&self, map: usize) -> u64 {
        let sequence = self.areas.sequence(&self.words, map);
        sequence.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Hands every event that is there to `sink` and gives its room back. Returns how many. The
    /// first call takes the ring over from whoever read it before.
    ///
    /// # Errors
    /// [`SharedError::Ring`], [`SharedError::TakenOver`]; [`SharedError::Record`], after which the
    /// next call goes on behind the damaged chunk. What came before an error was handed out.
    pub fn events(&mut self, mut sink: impl FnMut(Event<'_>)) -> Result<u64, SharedError> {
        self.events_while(|event| {
            sink(event);
            true
        })
    }

    /// As [`SharedReader::events`], until `sink` says false: the event that it was given then
    /// counts as handed out.
    pub fn events_while(
        &mut self,
        sink: impl FnMut(Event<'_>) -> bool,
    ) -> Result<u64, SharedError> {
        let ring = ring(&self.words, self.ring, self.ring_bytes);
        self.consumer.events_while(&ring, sink)
    }

    /// Bytes that were ever written to the ring.
    pub fn written(&self) -> u64 {
        self.words.word(HEAD).load(Ordering::Acquire)
    }

    /// No event is in the ring that was not handed out.
    pub fn is_drained(&self) -> bool {
        let [head, tail] = [HEAD, TAIL].map(|at| self.words.word(at).load(Ordering::Acquire));
        head == tail
    }

    /// Events of a map ([`super::PRINTK`] too) that did not fit into this ring.
    pub fn lost(&self, map: u32) -> u64 {
        let lost = self.areas.lost(&self.words, map, 0);
        lost.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Bound of the error of host time on the device in ns, once it was measured.
    pub fn clock_error(&self) -> Option<u64> {
        let word = self.words.word(CLOCK_ERROR).load(Ordering::Relaxed);
        word.checked_sub(1)
    }

    /// Events of a map ([`super::PRINTK`] too) lost on the device.
    pub fn device_losses(&self, map: u32) -> DeviceLosses {
        let word = |behind| {
            let word = self.areas.lost(&self.words, map, behind);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        DeviceLosses {
            full: word(LOSSES_FULL),
            busy: word(LOSSES_BUSY),
        }
    }

    /// Bytes of the first memfd.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }
}
