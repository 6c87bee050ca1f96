//! The shared memfd: per-map snapshots and the event ring.
//!
//! Layout, all offsets in bytes, all numbers little-endian u64:
//!
//! | where | what |
//! |---|---|
//! | 0 | magic, version, number of maps, ring offset, ring bytes, total bytes, error of the device's host clock in ns + 1 |
//! | 128 | ring head: bytes ever written, moved by the agent |
//! | 256 | ring tail: bytes ever read, moved by the tool |
//! | 320 | epoch: how many consumers the ring has had |
//! | 328 | within: where the first record lies that was not handed out, if that is in the chunk at the tail |
//! | 384 | events of the printk ring lost here because the ring was full, and on the device: full, busy |
//! | 4096 | per map 64 bytes: offset, bytes, distance of its two copies, sequence, events lost as above |
//! | … | snapshot areas, page-aligned, two copies of each map |
//! | … | the ring, a power of two |
//!
//! A map's sequence is the number of snapshots published; snapshot `n` lies in copy `n & 1`. The agent writes the copy
//! that is not the published one, then publishes. So an agent that dies while it writes leaves the last snapshot whole,
//! and a reader that sees the same sequence before and after its copy has a consistent one.
//!
//! A ring entry is `map: u32, shard: u32, len: u32, kind: u32`, then `len` bytes padded to 8. Kind 0 is an event, whose bytes
//! are its payload. Kind 1 is a chunk: bytes of a device ring as the copy engine left them, from the next multiple of 256 on.
//! Its records have the device's headers and are looked at by the consumer alone, so the writer does nothing for single events.
//! Entries wrap at the end of the ring. An event that does not fit is counted, a chunk stays on the device; the writer never waits.
//!
//! The ring has one consumer at a time. The first look at events makes a reader the consumer: it raises the epoch and goes
//! on where the tail is, or behind what was handed out of the chunk there. One that was the consumer before sees that it is not any
//! more, and hands out nothing. So a tool that died is followed by another, and each event is handed out; the one that it died with
//! may be so twice. One that lives on stops at the first event before which it sees that it was followed; what it hands out until
//! then may come twice.
//!
//! Launches are counted in a memfd of their own (`launches`).
//!
//! Maps that come later have a memfd of their own of the same layout, with numbers that begin behind those that there are
//! ([`SharedWriter::append`], [`SharedReader::append`]). Its ring is the smallest, and nobody uses it: events go by the first one.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::words::Words;

mod chunks;
mod kept;
mod launches;
mod ring;
mod snapshot;

use ring::{Consumer, Ring};

pub use chunks::{Chunks, Span};
pub use kept::Kept;
pub use launches::{
    LastCopy, LaunchKind, LaunchReader, LaunchRow, LaunchWriter, Launches, Missing,
};

/// Bytes of the event ring when nobody says otherwise.
pub const DEFAULT_RING_BYTES: u64 = 64 << 20;
/// The map number of `bpf_trace_printk` events.
pub const PRINTK: u32 = u32::MAX;

/// What `memfd_create` makes is in.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const MAGIC: u64 = u64::from_le_bytes(*b"wbpfshm\0");
const VERSION: u64 = 2;
const PAGE: u64 = 4096;
const HEAD: u64 = 128;
const TAIL: u64 = 256;
const EPOCH: u64 = 320;
const WITHIN: u64 = 328;
const LOST_PRINTK: u64 = 384;
/// In the header: 1 + the bound of the error of host time on the device, in ns; 0 before it is known.
const CLOCK_ERROR: u64 = 48;
/// Behind a count of lost events: those lost on the device before, because a ring was full or a retry ran out.
const LOSSES_FULL: u64 = 8;
const LOSSES_BUSY: u64 = 16;
const TABLE: u64 = PAGE;
const TABLE_STRIDE: u64 = 64;
/// More maps than any process has.
const MOST_MAPS: u64 = 1 << 16;
/// Bytes of a snapshot that are copied at once; a multiple of 8.
pub const SNAPSHOT_PART: u64 = 4 << 20;

/// What is wrong with a shared area.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SharedError {
    #[error("the shared area cannot be set up: `{call}` failed with {errno}")]
    Os { call: &'static str, errno: Errno },
    #[error(
        "what is shared with the tool has {bytes} bytes, and files of this process may have {limit} (RLIMIT_FSIZE, `ulimit -f`): raise the limit"
    )]
    Limit { bytes: u64, limit: u64 },
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
    #[error(
        "the record header {header:#x} at {position} of the event ring is damaged (map {map}, ring {shard}); {skipped} bytes were skipped"
    )]
    Record {
        map: u32,
        shard: u32,
        position: u64,
        header: u32,
        skipped: u64,
    },
    #[error("another tool has taken the events over")]
    TakenOver,
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
    /// Which memfd it is in: 0 is the one with the ring.
    part: usize,
    /// Where its row of the table is.
    entry: u64,
    offset: u64,
    bytes: u64,
    stride: u64,
}

impl Area {
    fn sequence_at(self) -> u64 {
        self.entry + 24
    }
}

fn entry(map: usize) -> u64 {
    TABLE + TABLE_STRIDE * map as u64
}

/// Maps in one memfd, or in several.
#[derive(Debug)]
struct Areas {
    all: Vec<Area>,
    /// The memfds behind the first one.
    more: Vec<Words>,
}

impl Areas {
    /// Those of another memfd, with the numbers that follow.
    fn append(&mut self, words: Words, areas: Vec<Area>) {
        self.more.push(words);
        let part = self.more.len();
        self.all
            .extend(areas.into_iter().map(|area| Area { part, ..area }));
    }

    fn get(&self, map: usize) -> Result<Area, SharedError> {
        let maps = self.all.len();
        self.all
            .get(map)
            .copied()
            .ok_or(SharedError::Map { map, maps })
    }

    /// The words of an area's memfd; `first` are those of the first one.
    fn words<'a>(&'a self, first: &'a Words, area: Area) -> &'a Words {
        match area.part {
            0 => first,
            part => &self.more[part - 1],
        }
    }

    /// Copies the last published snapshot of a map.
    fn snapshot(
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
    fn sequence<'a>(&'a self, first: &'a Words, map: usize) -> Option<&'a AtomicU64> {
        let area = self.get(map).ok()?;
        Some(self.words(first, area).word(area.sequence_at()))
    }

    /// The word that counts lost events of a map ([`PRINTK`] too), or one that stands `behind` it.
    fn lost<'a>(&'a self, first: &'a Words, map: u32, behind: u64) -> Option<&'a AtomicU64> {
        if map == PRINTK {
            return Some(first.word(LOST_PRINTK + behind));
        }
        let area = self.get(map as usize).ok()?;
        Some(self.words(first, area).word(area.entry + 32 + behind))
    }
}

fn os(call: &'static str) -> impl FnOnce(Errno) -> SharedError {
    move |errno| SharedError::Os { call, errno }
}

/// A new memfd of so many bytes, sealed against any change of size.
fn sealed_file(name: &CStr, total: u64) -> Result<OwnedFd, SharedError> {
    let fault = |site, errno| warpbpf_faults::check(site, || errno);
    let fd = fault("shared/memfd", Errno::MFILE)
        .and_then(|()| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            memfd_create(name, flags)
        })
        .map_err(os("memfd_create"))?;
    fault("shared/size", Errno::NOSPC)
        .and_then(|()| ftruncate(&fd, total))
        .map_err(|errno| match (errno, getrlimit(Resource::Fsize).current) {
            (Errno::FBIG, Some(limit)) => SharedError::Limit {
                bytes: total,
                limit,
            },
            _ => os("ftruncate")(errno),
        })?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fault("shared/seal", Errno::PERM)
        .and_then(|()| fcntl_add_seals(&fd, seals))
        .map_err(os("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

/// The same, and its mapping.
fn sealed(name: &CStr, total: u64) -> Result<(Words, OwnedFd), SharedError> {
    let fd = sealed_file(name, total)?;
    let words = warpbpf_faults::check("shared/mmap", || Errno::NOMEM)
        .and_then(|()| Words::map(&fd, total as usize))
        .map_err(os("mmap"))?;
    Ok((words, fd))
}

/// The agent's side.
#[derive(Debug)]
pub struct SharedWriter {
    words: Words,
    areas: Areas,
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
        Ok((writer, fd))
    }

    /// The writer of a memfd whose writer in this process is gone. Its ring is not written to any more.
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

    /// Copies the snapshot that was published last and returns its sequence; `None` before the first one.
    ///
    /// # Errors
    /// [`SharedError::Map`].
    pub fn snapshot(&self, map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError> {
        self.areas.snapshot(&self.words, map, into)
    }

    /// Takes in maps that have one memfd of their own: their numbers follow those that there are. Readers of this one must append a reader
    /// of that one.
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

    /// Publishes a snapshot that `fill` brings part by part, in order, so that a large map needs little memory on its
    /// way: as large as `scratch`, and at most [`SNAPSHOT_PART`] bytes. `Ok(false)` when `fill` failed: then the last snapshot stays.
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

    /// Counts an event of a map ([`PRINTK`] too) as lost.
    pub fn count_lost(&mut self, map: u32) {
        if let Some(lost) = self.areas.lost(&self.words, map, 0) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How far the tool has come: bytes that it has read since the start, and its place in a chunk. It changes while the tool reads.
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

    /// Begins to append chunks.
    pub fn chunks(&mut self) -> Chunks<'_> {
        Chunks::new(self)
    }

    /// The pages of the ring: what a driver can lock, so that its copy engine writes into them. They stay where they are as long as
    /// the writer lives.
    pub fn ring_pages(&self) -> Span {
        chunks::span(self.words.slice(self.ring, self.ring_bytes))
    }

    /// Publishes the bound of the error of host time on the device.
    pub fn clock_error(&mut self, nanoseconds: u64) {
        let word = self.words.word(CLOCK_ERROR);
        word.store(nanoseconds.saturating_add(1), Ordering::Relaxed);
    }

    /// Publishes what a map ([`PRINTK`] too) lost on the device so far.
    pub fn device_losses(&mut self, map: u32, losses: DeviceLosses) {
        for (behind, value) in [(LOSSES_FULL, losses.full), (LOSSES_BUSY, losses.busy)] {
            if let Some(word) = self.areas.lost(&self.words, map, behind) {
                word.store(value, Ordering::Relaxed);
            }
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
    areas: Areas,
    ring: u64,
    ring_bytes: u64,
    consumer: Consumer,
}

impl SharedReader {
    /// Maps a memfd from an agent after checking that it cannot shrink and that every offset in it is inside.
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

    /// Copies the last published snapshot of a map and returns its sequence; `None` before the first one.
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

    /// Hands every event that is there to `sink` and gives its room back. Returns how many. The first call takes the ring
    /// over from whoever read it before.
    ///
    /// # Errors
    /// [`SharedError::Ring`], [`SharedError::TakenOver`]; [`SharedError::Record`], after which the next call goes on behind the
    /// damaged chunk. What came before an error was handed out.
    pub fn events(&mut self, mut sink: impl FnMut(Event<'_>)) -> Result<u64, SharedError> {
        self.events_while(|event| {
            sink(event);
            true
        })
    }

    /// As [`SharedReader::events`], until `sink` says false: the event that it was given then counts as handed out.
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

    /// Events of a map ([`PRINTK`] too) that did not fit into this ring.
    pub fn lost(&self, map: u32) -> u64 {
        let lost = self.areas.lost(&self.words, map, 0);
        lost.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Bound of the error of host time on the device in ns, once it was measured.
    pub fn clock_error(&self) -> Option<u64> {
        let word = self.words.word(CLOCK_ERROR).load(Ordering::Relaxed);
        word.checked_sub(1)
    }

    /// Events of a map ([`PRINTK`] too) lost on the device.
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

/// The event ring in the mapping.
fn ring(words: &Words, at: u64, bytes: u64) -> Ring<'_, AtomicU64> {
    Ring {
        head: words.word(HEAD),
        tail: words.word(TAIL),
        within: words.word(WITHIN),
        epoch: words.word(EPOCH),
        data: words.slice(at, bytes),
    }
}

/// The two copies of a map's snapshot.
fn copies(words: &Words, area: Area) -> [&[AtomicU64]; 2] {
    let bytes = area.bytes.next_multiple_of(8);
    [0, 1].map(|copy| words.slice(area.offset + area.stride * copy, bytes))
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
