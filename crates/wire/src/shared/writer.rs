//! The agent's side of the shared memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::area::{
    Area, Areas, CLOCK_ERROR, DeviceLosses, HEAD, LOSSES_BUSY, LOSSES_FULL, MAGIC, PAGE, TABLE,
    TABLE_STRIDE, TAIL, VERSION, WITHIN, copies, entry, ring,
};
use super::error::SharedError;
use super::memfd::{given, sealed};
use super::reader::SharedReader;
use super::snapshot::{self, SNAPSHOT_PART};
use crate::words::Words;

/// The agent's side.
#[derive(Debug)]
pub struct SharedWriter {
    pub(super) words: Words,
    pub(super) areas: Areas,
    pub(super) ring: u64,
    pub(super) ring_bytes: u64,
    pub(super) head: u64,
}

impl SharedWriter {
    /// Makes the memfd for maps of these snapshot sizes (0: no snapshot) and a ring of at least
    /// `ring_bytes`. The descriptor is sealed against any change of size.
    pub fn create(sizes: &[u64], ring_bytes: u64) -> Result<(SharedWriter, OwnedFd), SharedError> {
        let ring_bytes = ring_bytes.clamp(PAGE, 1 << 40).next_power_of_two();
        let page = |n: u128| n.next_multiple_of(u128::from(PAGE));
        let mut end = page(u128::from(TABLE) + u128::from(TABLE_STRIDE) * sizes.len() as u128);
        let mut areas = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            let stride = page(u128::from(bytes));
            areas.push((end, bytes, stride));
            end += stride * 2;
        }
        let ring = end;
        let total = ring + u128::from(ring_bytes);
        if total > isize::MAX as u128 {
            return Err(SharedError::TooLarge { bytes: total });
        }
        let areas: Vec<Area> = areas
            .into_iter()
            .enumerate()
            .map(|(map, (offset, bytes, stride))| Area {
                part: 0,
                entry: entry(map),
                offset: offset as u64,
                bytes,
                stride: stride as u64,
            })
            .collect();
        let (ring, total) = (ring as u64, total as u64);

        let (words, fd) = sealed(c"warpbpf", total)?;
        let header = [VERSION, areas.len() as u64, ring, ring_bytes, total];
        for (i, value) in header.iter().enumerate() {
            words
                .word(8 + i as u64 * 8)
                .store(*value, Ordering::Relaxed);
        }
        for area in &areas {
            for (field, value) in [area.offset, area.bytes, area.stride].iter().enumerate() {
                words
                    .word(area.entry + field as u64 * 8)
                    .store(*value, Ordering::Relaxed);
            }
        }
        words.word(0).store(MAGIC, Ordering::Release);
        let writer = SharedWriter {
            words,
            areas: Areas {
                all: areas,
                more: Vec::new(),
            },
            ring,
            ring_bytes,
            head: 0,
        };
        Ok((writer, given(fd)?))
    }

    /// The writer of a memfd whose writer in this process is gone. Its ring is not written to any
    /// more.
    ///
    /// # Errors
    /// Those of [`SharedReader::open`].
    pub fn reopen(fd: impl AsFd) -> Result<SharedWriter, SharedError> {
        let reader = SharedReader::open(fd)?;
        Ok(SharedWriter {
            head: reader.words.word(HEAD).load(Ordering::Acquire),
            words: reader.words,
            areas: reader.areas,
            ring: reader.ring,
            ring_bytes: reader.ring_bytes,
        })
    }

    /// Copies the snapshot that was published last and returns its sequence; `None` before the
    /// first one.
    ///
    /// # Errors
    /// [`SharedError::Map`].
    pub fn snapshot(&self, map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError> {
        self.areas.snapshot(&self.words, map, into)
    }

    /// Takes in maps that have one memfd of their own: their numbers follow those that there are.
    /// Readers of this one must append a reader of that one.
    pub fn append(&mut self, maps: SharedWriter) {
        self.areas.append(maps.words, maps.areas.all);
    }

    /// Number of maps.
    pub fn maps(&self) -> usize {
        self.areas.all.len()
    }

    /// Publishes a snapshot of a map.
    pub fn publish(&mut self, map: usize, bytes: &[u8]) -> Result<(), SharedError> {
        let area = self.areas.get(map)?;
        if bytes.len() as u64 != area.bytes {
            return Err(SharedError::Size {
                map,
                expected: area.bytes,
                got: bytes.len() as u64,
            });
        }
        let mut from = 0;
        let mut scratch = vec![0; bytes.len().next_multiple_of(8).min(SNAPSHOT_PART as usize)];
        self.publish_parts(map, &mut scratch, |into| {
            into.copy_from_slice(&bytes[from..from + into.len()]);
            from += into.len();
            Ok::<(), std::convert::Infallible>(())
        })
        .map(|_| ())
    }

    /// Publishes a snapshot that `fill` brings part by part, in order, so that a large map needs
    /// little memory on its way: as large as `scratch`, and at most [`SNAPSHOT_PART`] bytes.
    /// `Ok(false)` when `fill` failed: then the last snapshot stays.
    pub fn publish_parts<E>(
        &mut self,
        map: usize,
        scratch: &mut [u8],
        fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, SharedError> {
        let area = self.areas.get(map)?;
        let words = self.areas.words(&self.words, area);
        let sequence = words.word(area.sequence_at());
        let copies = copies(words, area);
        Ok(snapshot::publish(
            sequence, copies, area.bytes, scratch, fill,
        ))
    }

    /// Snapshots published of a map.
    pub fn sequence(&self, map: usize) -> u64 {
        let sequence = self.areas.sequence(&self.words, map);
        sequence.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Appends an event; false (and counted for its map) when the tool has not made room.
    pub fn push(&mut self, map: u32, shard: u32, payload: &[u8]) -> bool {
        let pushed = self.try_push(map, shard, payload);
        if !pushed {
            self.count_lost(map);
        }
        pushed
    }

    /// Counts an event of a map ([`super::PRINTK`] too) as lost.
    pub fn count_lost(&mut self, map: u32) {
        if let Some(lost) = self.areas.lost(&self.words, map, 0) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How far the tool has come: bytes that it has read since the start, and its place in a chunk.
    /// It changes while the tool reads.
    pub fn read_so_far(&self) -> [u64; 2] {
        [TAIL, WITHIN].map(|at| self.words.word(at).load(Ordering::Acquire))
    }

    /// Appends an event; false, and not counted, when the tool has not made room.
    pub fn try_push(&mut self, map: u32, shard: u32, payload: &[u8]) -> bool {
        if warpbpf_faults::strikes("shared/event-room") {
            return false;
        }
        let ring = ring(&self.words, self.ring, self.ring_bytes);
        ring.try_push(&mut self.head, map, shard, payload)
    }

    /// Publishes the bound of the error of host time on the device.
    pub fn clock_error(&mut self, nanoseconds: u64) {
        let word = self.words.word(CLOCK_ERROR);
        word.store(nanoseconds.saturating_add(1), Ordering::Relaxed);
    }

    /// Publishes what a map ([`super::PRINTK`] too) lost on the device so far.
    pub fn device_losses(&mut self, map: u32, losses: DeviceLosses) {
        for (behind, value) in [(LOSSES_FULL, losses.full), (LOSSES_BUSY, losses.busy)] {
            if let Some(word) = self.areas.lost(&self.words, map, behind) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
}
