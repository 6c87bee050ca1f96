//! The shared memfd: per-map snapshots and the event ring.
//!
//! Layout, all offsets in bytes, all numbers little-endian u64:
//!
//! | where | what |
//! |---|---|
//! | 0 | magic, version, number of maps, ring offset, ring bytes, total bytes, device losses (full, busy) |
//! | 128 | ring head: bytes ever written, moved by the agent |
//! | 256 | ring tail: bytes ever read, moved by the tool |
//! | 384 | events of the printk ring lost because the ring was full |
//! | 4096 | per map 64 bytes: offset, bytes, distance of its two copies, sequence, events lost |
//! | … | snapshot areas, page-aligned, two copies of each map |
//! | … | the ring, a power of two |
//!
//! A map's sequence is the number of snapshots published; snapshot `n` lies in copy `n & 1`. The agent writes the copy
//! that is not the published one, then publishes. So an agent that dies while it writes leaves the last snapshot whole,
//! and a reader that sees the same sequence before and after its copy has a consistent one.
//!
//! A ring record is `map: u32, shard: u32, len: u32, 0: u32`, then the payload padded to 8. Records wrap at the end of
//! the ring. A record that does not fit is counted, never waited for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::words::{Words, load, store};

/// Bytes of the event ring when nobody says otherwise.
pub const DEFAULT_RING_BYTES: u64 = 64 << 20;
/// The map number of `bpf_trace_printk` events.
pub const PRINTK: u32 = u32::MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"wbpfshm\0");
const VERSION: u64 = 1;
const PAGE: u64 = 4096;
const HEAD: u64 = 128;
const TAIL: u64 = 256;
const LOST_PRINTK: u64 = 384;
const LOSSES_FULL: u64 = 48;
const LOSSES_BUSY: u64 = 56;
const TABLE: u64 = PAGE;
const TABLE_STRIDE: u64 = 64;
const RECORD_HEADER: u64 = 16;
/// Bytes of a snapshot that are copied at once; a multiple of 8.
const PART: u64 = 4 << 20;
/// How often a reader tries again when the agent publishes faster than it copies.
const SNAPSHOT_TRIES: u32 = 1000;

/// What is wrong with a shared area.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SharedError {
    #[error("the shared area cannot be set up: `{call}` failed with {errno}")]
    Os { call: &'static str, errno: Errno },
    #[error("the shared area would have {bytes} bytes, more than this machine can address")]
    TooLarge { bytes: u128 },
    #[error("the shared area is not one of this warpbpf: {what}")]
    Format { what: String },
    #[error("map {map} does not exist: the shared area has {maps}")]
    Map { map: usize, maps: usize },
    #[error("a snapshot of map {map} has {expected} bytes, not {got}")]
    Size { map: usize, expected: u64, got: u64 },
    #[error("map {map} was published faster than it could be copied, {tries} times in a row")]
    Busy { map: usize, tries: u32 },
    #[error("the event ring is damaged at {position}: {what}")]
    Ring { position: u64, what: String },
}

/// Losses on the device, before events reach this ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceLosses {
    /// A ring was full.
    pub full: u64,
    /// A bounded retry ran out.
    pub busy: u64,
}

#[derive(Debug, Clone, Copy)]
struct Area {
    offset: u64,
    bytes: u64,
    stride: u64,
}

fn entry(map: usize) -> u64 {
    TABLE + TABLE_STRIDE * map as u64
}
fn sequence_at(map: usize) -> u64 {
    entry(map) + 24
}
fn lost_at(map: u32) -> u64 {
    if map == PRINTK {
        LOST_PRINTK
    } else {
        entry(map as usize) + 32
    }
}

fn os(call: &'static str) -> impl FnOnce(Errno) -> SharedError {
    move |errno| SharedError::Os { call, errno }
}

/// The agent's side. One per memfd.
#[derive(Debug)]
pub struct SharedWriter {
    words: Words,
    areas: Vec<Area>,
    ring: u64,
    ring_bytes: u64,
    head: u64,
}

impl SharedWriter {
    /// Makes the memfd for maps of these snapshot sizes (0: no snapshot) and a ring of at least `ring_bytes`.
    /// The descriptor is sealed against any change of size.
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
            .map(|(offset, bytes, stride)| Area {
                offset: offset as u64,
                bytes,
                stride: stride as u64,
            })
            .collect();
        let (ring, total) = (ring as u64, total as u64);

        let fd = memfd_create(c"warpbpf", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(os("memfd_create"))?;
        ftruncate(&fd, total).map_err(os("ftruncate"))?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("fcntl(F_ADD_SEALS)"))?;
        let words = Words::map(&fd, total as usize).map_err(os("mmap"))?;
        let header = [VERSION, areas.len() as u64, ring, ring_bytes, total];
        for (i, value) in header.iter().enumerate() {
            words
                .word(8 + i as u64 * 8)
                .store(*value, Ordering::Relaxed);
        }
        for (i, area) in areas.iter().enumerate() {
            for (field, value) in [area.offset, area.bytes, area.stride].iter().enumerate() {
                words
                    .word(entry(i) + field as u64 * 8)
                    .store(*value, Ordering::Relaxed);
            }
        }
        words.word(0).store(MAGIC, Ordering::Release);
        let writer = SharedWriter {
            words,
            areas,
            ring,
            ring_bytes,
            head: 0,
        };
        Ok((writer, fd))
    }

    /// Publishes a snapshot of a map.
    pub fn publish(&mut self, map: usize, bytes: &[u8]) -> Result<(), SharedError> {
        let area = self.areas.get(map).ok_or(SharedError::Map {
            map,
            maps: self.areas.len(),
        })?;
        if bytes.len() as u64 != area.bytes {
            return Err(SharedError::Size {
                map,
                expected: area.bytes,
                got: bytes.len() as u64,
            });
        }
        let mut from = 0;
        self.publish_parts(map, &mut Vec::new(), |into| {
            into.copy_from_slice(&bytes[from..from + into.len()]);
            from += into.len();
            Ok::<(), std::convert::Infallible>(())
        })
        .map(|_| ())
    }

    /// Publishes a snapshot that `fill` brings part by part, in order, so that a large map needs little memory on its
    /// way. `scratch` is reused between calls. `Ok(false)` when `fill` failed: then the last snapshot stays.
    pub fn publish_parts<E>(
        &mut self,
        map: usize,
        scratch: &mut Vec<u8>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, SharedError> {
        let area = self.areas.get(map).ok_or(SharedError::Map {
            map,
            maps: self.areas.len(),
        })?;
        let sequence = self.words.word(sequence_at(map));
        let next = sequence.load(Ordering::Relaxed).wrapping_add(1);
        // A reader that sees any word stored below must also see the sequence that was published before.
        fence(Ordering::Release);
        let copy = area.offset + area.stride * (next & 1);
        let mut done = 0;
        while done < area.bytes {
            let part = PART.min(area.bytes - done);
            scratch.resize(part as usize, 0);
            if fill(scratch).is_err() {
                return Ok(false);
            }
            store(
                self.words.slice(copy + done, part.next_multiple_of(8)),
                scratch,
            );
            done += part;
        }
        sequence.store(next, Ordering::Release);
        Ok(true)
    }

    /// Appends an event; false (and counted for its map) when the tool has not made room.
    pub fn push(&mut self, map: u32, shard: u32, payload: &[u8]) -> bool {
        let pushed = self.try_push(map, shard, payload);
        if !pushed {
            self.count_lost(map);
        }
        pushed
    }

    /// Counts an event of a map as lost.
    pub fn count_lost(&mut self, map: u32) {
        if map == PRINTK || (map as usize) < self.areas.len() {
            let lost = self.words.word(lost_at(map));
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Bytes that the tool has read since the start: moves while it reads.
    pub fn tail(&self) -> u64 {
        self.words.word(TAIL).load(Ordering::Acquire)
    }

    /// Appends an event; false, and not counted, when the tool has not made room.
    pub fn try_push(&mut self, map: u32, shard: u32, payload: &[u8]) -> bool {
        let need = RECORD_HEADER + (payload.len() as u64).next_multiple_of(8);
        let tail = self.words.word(TAIL).load(Ordering::Acquire);
        // A tail that is ahead or far behind comes from a broken reader: it only costs that reader its events.
        let used = self.head.wrapping_sub(tail);
        if used > self.ring_bytes || need > self.ring_bytes - used {
            return false;
        }
        let mut header = [0u8; RECORD_HEADER as usize];
        header[0..4].copy_from_slice(&map.to_le_bytes());
        header[4..8].copy_from_slice(&shard.to_le_bytes());
        header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        self.ring_store(self.head, &header);
        self.ring_store(self.head + RECORD_HEADER, payload);
        self.head += need;
        self.words.word(HEAD).store(self.head, Ordering::Release);
        true
    }

    /// Publishes what was lost on the device so far.
    pub fn device_losses(&mut self, losses: DeviceLosses) {
        for (at, value) in [(LOSSES_FULL, losses.full), (LOSSES_BUSY, losses.busy)] {
            self.words.word(at).store(value, Ordering::Relaxed);
        }
    }

    fn ring_store(&self, position: u64, bytes: &[u8]) {
        let start = position & (self.ring_bytes - 1);
        let first = (self.ring_bytes - start).min(bytes.len() as u64) as usize;
        for (at, part) in [(start, &bytes[..first]), (0, &bytes[first..])] {
            let padded = (part.len() as u64).next_multiple_of(8);
            store(self.words.slice(self.ring + at, padded), part);
        }
    }
}

/// An event out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Index of the map, or [`PRINTK`].
    pub map: u32,
    /// The device ring it came from: the SM.
    pub shard: u32,
    /// What the program wrote.
    pub payload: &'a [u8],
}

/// The tool's side. Keeps working when the agent is dead.
#[derive(Debug)]
pub struct SharedReader {
    words: Words,
    areas: Vec<Area>,
    ring: u64,
    ring_bytes: u64,
    tail: u64,
    payload: Vec<u8>,
}

impl SharedReader {
    /// Maps a memfd from an agent after checking that it cannot shrink and that every offset in it is inside.
    pub fn open(fd: impl AsFd) -> Result<SharedReader, SharedError> {
        let format = |what: &str| SharedError::Format { what: what.into() };
        let seals = fcntl_get_seals(&fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(format("its file may shrink"));
        }
        let bytes = fstat(&fd).map_err(os("fstat"))?.st_size as u64;
        if bytes < TABLE || !bytes.is_multiple_of(8) {
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
        let table = maps.checked_mul(TABLE_STRIDE);
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
        let tail = words.word(TAIL).load(Ordering::Relaxed);
        Ok(SharedReader {
            words,
            areas,
            ring,
            ring_bytes,
            tail,
            payload: Vec::new(),
        })
    }

    /// Number of maps.
    pub fn maps(&self) -> usize {
        self.areas.len()
    }

    /// Copies the last published snapshot of a map and returns its sequence; `None` before the first one.
    pub fn snapshot(&self, map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError> {
        let area = self.areas.get(map).ok_or(SharedError::Map {
            map,
            maps: self.areas.len(),
        })?;
        let sequence = self.words.word(sequence_at(map));
        into.resize(area.bytes as usize, 0);
        for _ in 0..SNAPSHOT_TRIES {
            let before = sequence.load(Ordering::Acquire);
            if before == 0 {
                into.clear();
                return Ok(None);
            }
            let copy = area.offset + area.stride * (before & 1);
            load(self.words.slice(copy, area.bytes.next_multiple_of(8)), into);
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) == before {
                return Ok(Some(before));
            }
            std::thread::yield_now();
        }
        Err(SharedError::Busy {
            map,
            tries: SNAPSHOT_TRIES,
        })
    }

    /// Number of snapshots published of a map: changes when there is something new.
    pub fn sequence(&self, map: usize) -> u64 {
        if map < self.areas.len() {
            self.words.word(sequence_at(map)).load(Ordering::Acquire)
        } else {
            0
        }
    }

    /// Hands every event that is there to `sink` and gives its room back. Returns how many.
    pub fn events(&mut self, mut sink: impl FnMut(Event<'_>)) -> Result<u64, SharedError> {
        let head = self.words.word(HEAD).load(Ordering::Acquire);
        let mut events = 0;
        while self.tail != head {
            let damaged = |what: String| SharedError::Ring {
                position: self.tail,
                what,
            };
            let there = head.wrapping_sub(self.tail);
            if there > self.ring_bytes || there < RECORD_HEADER {
                return Err(damaged(format!("{there} bytes are said to be there")));
            }
            let mut header = [0u8; RECORD_HEADER as usize];
            self.ring_load(self.tail, &mut header);
            let word = |i: usize| {
                u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]])
            };
            let (map, shard, len) = (word(0), word(4), word(8) as usize);
            let need = RECORD_HEADER + (len as u64).next_multiple_of(8);
            if need > there {
                return Err(damaged(format!(
                    "a record of {len} bytes where {there} are there"
                )));
            }
            let mut payload = std::mem::take(&mut self.payload);
            payload.resize(len, 0);
            self.ring_load(self.tail + RECORD_HEADER, &mut payload);
            sink(Event {
                map,
                shard,
                payload: &payload,
            });
            self.payload = payload;
            self.tail += need;
            self.words.word(TAIL).store(self.tail, Ordering::Release);
            events += 1;
        }
        Ok(events)
    }

    /// Events of a map ([`PRINTK`] too) that did not fit into this ring.
    pub fn lost(&self, map: u32) -> u64 {
        if map == PRINTK || (map as usize) < self.areas.len() {
            self.words.word(lost_at(map)).load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Events lost on the device.
    pub fn device_losses(&self) -> DeviceLosses {
        DeviceLosses {
            full: self.words.word(LOSSES_FULL).load(Ordering::Relaxed),
            busy: self.words.word(LOSSES_BUSY).load(Ordering::Relaxed),
        }
    }

    /// Bytes of the whole area.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn ring_load(&self, position: u64, into: &mut [u8]) {
        let start = position & (self.ring_bytes - 1);
        let first = (self.ring_bytes - start).min(into.len() as u64) as usize;
        let (one, two) = into.split_at_mut(first);
        for (at, part) in [(start, one), (0, two)] {
            let padded = (part.len() as u64).next_multiple_of(8);
            load(self.words.slice(self.ring + at, padded), part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    fn both(sizes: &[u64], ring: u64) -> (SharedWriter, SharedReader) {
        let (writer, fd) = SharedWriter::create(sizes, ring).unwrap();
        let reader = SharedReader::open(&fd).unwrap();
        (writer, reader)
    }

    fn all(reader: &mut SharedReader) -> Vec<(u32, u32, Vec<u8>)> {
        let mut got = Vec::new();
        let n = reader
            .events(|e| got.push((e.map, e.shard, e.payload.to_vec())))
            .unwrap();
        assert_eq!(n, got.len() as u64);
        got
    }

    #[test]
    fn a_snapshot_is_what_was_published_last() {
        let (mut writer, reader) = both(&[13, 0, 4096], PAGE);
        assert_eq!(reader.maps(), 3);
        let mut copy = vec![1, 2, 3];
        assert_eq!(reader.snapshot(0, &mut copy).unwrap(), None);
        assert!(copy.is_empty());
        for n in 1..=5u8 {
            writer.publish(0, &[n; 13]).unwrap();
            assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(u64::from(n)));
            assert_eq!(copy, [n; 13]);
            assert_eq!(reader.sequence(0), u64::from(n));
        }
        writer.publish(1, &[]).unwrap();
        assert_eq!(reader.snapshot(1, &mut copy).unwrap(), Some(1));
        assert!(copy.is_empty());
        assert_eq!(reader.sequence(2), 0);
        assert_eq!(reader.sequence(3), 0);
    }

    #[test]
    fn a_large_map_is_published_in_parts_and_not_at_all_if_one_fails() {
        let bytes = PART * 2 + 12;
        let (mut writer, fd) = SharedWriter::create(&[bytes], PAGE).unwrap();
        let reader = SharedReader::open(fd).unwrap();
        let mut scratch = Vec::new();
        let mut parts = Vec::new();
        let published = writer.publish_parts(0, &mut scratch, |into| {
            parts.push(into.len() as u64);
            into.fill(parts.len() as u8);
            Ok::<(), ()>(())
        });
        assert!(published.unwrap());
        assert_eq!(parts, [PART, PART, 12]);
        let mut failing = 0;
        let published = writer.publish_parts(0, &mut scratch, |into| {
            into.fill(9);
            failing += 1;
            if failing == 2 { Err(()) } else { Ok(()) }
        });
        assert!(!published.unwrap());
        let mut got = Vec::new();
        assert_eq!(reader.snapshot(0, &mut got).unwrap(), Some(1));
        assert_eq!(got.len() as u64, bytes);
        let (first, rest) = got.split_at(PART as usize);
        let (second, third) = rest.split_at(PART as usize);
        assert!(first.iter().all(|b| *b == 1));
        assert!(second.iter().all(|b| *b == 2));
        assert_eq!(third, [3; 12]);
    }

    #[test]
    fn wrong_maps_and_sizes_are_named() {
        let (mut writer, reader) = both(&[16], PAGE);
        assert_eq!(
            writer.publish(0, &[0; 8]).unwrap_err().to_string(),
            "a snapshot of map 0 has 16 bytes, not 8"
        );
        assert_eq!(
            writer.publish(1, &[]).unwrap_err().to_string(),
            "map 1 does not exist: the shared area has 1"
        );
        assert_eq!(
            reader.snapshot(4, &mut Vec::new()).unwrap_err().to_string(),
            "map 4 does not exist: the shared area has 1"
        );
        assert!(matches!(
            SharedWriter::create(&[u64::MAX], PAGE),
            Err(SharedError::TooLarge { .. })
        ));
    }

    #[test]
    fn an_agent_that_dies_while_it_writes_leaves_the_last_snapshot_whole() {
        let (mut writer, fd) = SharedWriter::create(&[64], PAGE).unwrap();
        writer.publish(0, &[7; 64]).unwrap();
        assert!(writer.push(0, 3, b"before"));
        // The unpublished copy is half written.
        let area = writer.areas[0];
        store(writer.words.slice(area.offset, 32), &[9; 32]);
        drop(writer);
        let mut reader = SharedReader::open(&fd).unwrap();
        let mut copy = Vec::new();
        assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(1));
        assert_eq!(copy, [7; 64]);
        assert_eq!(all(&mut reader), [(0, 3, b"before".to_vec())]);
    }

    #[test]
    fn a_torn_snapshot_is_never_seen() {
        let (mut writer, reader) = both(&[8 * 512], PAGE);
        let done = AtomicBool::new(false);
        writer.publish(0, &[0; 8 * 512]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..4000u64 {
                    let bytes: Vec<u8> = (0..512).flat_map(|_| n.to_le_bytes()).collect();
                    writer.publish(0, &bytes).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            let mut copy = Vec::new();
            let (mut seen, mut last) = (0, 0);
            while !done.load(Ordering::Acquire) {
                match reader.snapshot(0, &mut copy) {
                    Ok(sequence) => {
                        let sequence = sequence.unwrap();
                        assert!(sequence >= last);
                        last = sequence;
                        assert!(copy.chunks(8).all(|c| c == &copy[..8]), "torn");
                        seen += 1;
                    }
                    Err(SharedError::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(seen > 0);
        });
        let mut copy = Vec::new();
        assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(4001));
        assert_eq!(copy[..8], 3999u64.to_le_bytes());
    }

    #[test]
    fn a_full_ring_counts_and_recovers() {
        let (mut writer, mut reader) = both(&[8, 8], PAGE);
        // 16 + 16 bytes each: 128 fit.
        let mut stored = 0;
        for n in 0..200u32 {
            stored += u32::from(writer.push(n & 1, n, &[n as u8; 13]));
        }
        assert_eq!(stored, 128);
        assert_eq!((reader.lost(0), reader.lost(1)), (36, 36));
        let got = all(&mut reader);
        assert_eq!(got.len(), 128);
        assert_eq!(got[127], (1, 127, vec![127; 13]));
        assert!(writer.push(PRINTK, 0, &[]));
        assert!(!writer.push(PRINTK, 0, &[0; 8192]));
        assert_eq!(reader.lost(PRINTK), 1);
        assert_eq!(reader.lost(77), 0);
        assert_eq!(all(&mut reader), [(PRINTK, 0, vec![])]);
        writer.device_losses(DeviceLosses { full: 5, busy: 6 });
        assert_eq!(reader.device_losses(), DeviceLosses { full: 5, busy: 6 });
        assert_eq!(reader.bytes() as u64, PAGE * 2 + PAGE * 4 + PAGE);
    }

    #[test]
    fn a_reader_that_dies_leaves_the_rest_for_the_next() {
        let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
        let mut first = SharedReader::open(&fd).unwrap();
        assert!(writer.push(0, 1, b"one"));
        assert_eq!(all(&mut first).len(), 1);
        drop(first);
        assert!(writer.push(0, 2, b"two"));
        let mut second = SharedReader::open(&fd).unwrap();
        assert_eq!(all(&mut second), [(0, 2, b"two".to_vec())]);
    }

    #[test]
    fn a_mad_tail_costs_events_and_nothing_else() {
        let (mut writer, reader) = both(&[8], PAGE);
        reader
            .words
            .word(TAIL)
            .store(u64::MAX / 2, Ordering::Release);
        assert!(!writer.push(0, 0, b"x"));
        assert!(!writer.push(5, 0, b"x"));
        assert_eq!(reader.lost(0), 1);
    }

    #[test]
    fn a_damaged_ring_is_an_error() {
        let (mut writer, mut reader) = both(&[8], PAGE);
        assert!(writer.push(0, 0, b"x"));
        writer
            .words
            .word(writer.ring + 8)
            .store(5000, Ordering::Relaxed);
        assert_eq!(
            reader.events(|_| {}).unwrap_err().to_string(),
            "the event ring is damaged at 0: a record of 5000 bytes where 24 are there"
        );
        writer.words.word(HEAD).store(1 << 40, Ordering::Relaxed);
        assert_eq!(
            reader.events(|_| {}).unwrap_err().to_string(),
            "the event ring is damaged at 0: 1099511627776 bytes are said to be there"
        );
    }

    fn damaged(change: impl FnOnce(&SharedWriter)) -> String {
        let (writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
        change(&writer);
        SharedReader::open(&fd).unwrap_err().to_string()
    }

    #[test]
    fn a_strange_memfd_is_refused() {
        let set = |at: u64, value: u64| {
            move |w: &SharedWriter| w.words.word(at).store(value, Ordering::Relaxed)
        };
        let not = "the shared area is not one of this warpbpf: ";
        assert_eq!(damaged(set(0, 1)), format!("{not}its magic is wrong"));
        assert_eq!(
            damaged(set(8, 9)),
            format!("{not}its version is 9, this is 1")
        );
        for maps in [1000, u64::MAX] {
            assert_eq!(
                damaged(set(16, maps)),
                format!("{not}its map table is outside the file")
            );
        }
        for (at, value) in [(24, u64::MAX - 7), (24, 3), (32, 3), (32, 1 << 60)] {
            assert_eq!(
                damaged(set(at, value)),
                format!("{not}its ring is outside the file")
            );
        }
        for field in 0..3 {
            assert_eq!(
                damaged(set(TABLE + field * 8, u64::MAX)),
                format!("{not}map 0 is outside the file")
            );
        }
        let fd = memfd_create(c"x", MemfdFlags::ALLOW_SEALING).unwrap();
        let open = |fd: &OwnedFd| SharedReader::open(fd).unwrap_err().to_string();
        assert_eq!(open(&fd), format!("{not}its file may shrink"));
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        assert_eq!(open(&fd), format!("{not}it has 0 bytes"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn events_come_out_as_they_went_in(records in prop::collection::vec((0u32..3, any::<u32>(), prop::collection::vec(any::<u8>(), 0..300)), 1..200), burst in 1usize..8) {
            let (mut writer, mut reader) = both(&[8, 8, 8], PAGE);
            for part in records.chunks(burst) {
                for (map, shard, payload) in part {
                    prop_assert!(writer.push(*map, *shard, payload));
                }
                prop_assert_eq!(all(&mut reader), part.to_vec());
            }
        }
    }
}
