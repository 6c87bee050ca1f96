//! RINGBUF: the host's reader, as a state machine without a device. It names ranges to copy; what
//! is in them is looked at where they come to lie, by whoever wants records ([`Chunk::records`]).
//!
//! One round, in this order, each copy finished before the next begins:
//!
//! 1. copy [`Reader::commits`],
//! 2. copy [`Reader::controls`],
//! 3. [`Reader::cover`] answers with the chunks that are written; copy as many as there is room
//!    for, each ring's in their order, and give them to [`Reader::take`],
//! 4. write [`Reader::consumed`] to the device.
//!
//! Why a covered chunk is whole: commits only follow reservations. If the commit count of a
//! sub-buffer, copied first, equals what `reserved`, copied later, says was reserved in it, then
//! every record reserved there by then has been committed, and its bytes were fenced before the
//! commit. That holds for a full sub-buffer, for the last one while nobody writes in it, and for
//! one of which the host has taken only a part.

use std::ops::Range;

use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::bytes::{u32_at, u64_at};
use crate::checks::check_bytes;
use crate::error::MapError;
use crate::map_plan::{MapPlan, Write};

pub(crate) fn plan(def: &MapDef, sms: u32, plan: &mut MapPlan) -> Result<(), MapError> {
    let map_type = MapType::Ringbuf.name();
    if def.max_entries == 0 {
        return Err(MapError::Zero {
            map: def.name.clone(),
            what: "max_entries",
            map_type,
        });
    }
    if def.key_size != 0 {
        return Err(MapError::KeySize {
            map: def.name.clone(),
            map_type,
            found: def.key_size,
            wanted: "none (0)",
        });
    }
    // A value type is allowed: it tells the tools what the records are.
    let layout = RingLayout::new(def.max_entries, sms).with_wait(wait_of(def, map_type)?);
    check_bytes(
        def,
        || {
            format!(
                "`max_entries` {} as rings of {} bytes for {sms} multiprocessors",
                def.max_entries, layout.shard_bytes
            )
        },
        u128::from(layout.size()),
        "lower `max_entries`",
    )?;
    plan.layout = MapLayout::Ring(layout);
    Ok(())
}

/// `map_extra`: how long a writer waits for room, in microseconds.
fn wait_of(def: &MapDef, map_type: &'static str) -> Result<u32, MapError> {
    let wanted = def.extra.get("map_extra").copied().unwrap_or(0);
    match u32::try_from(wanted) {
        Ok(wait) if wait <= RingLayout::MAX_WAIT_US => Ok(wait),
        Ok(_) | Err(_) => Err(MapError::Wait {
            map: def.name.clone(),
            map_type,
            found: wanted,
            most: RingLayout::MAX_WAIT_US,
        }),
    }
}

/// Rings of PERF_EVENT_ARRAY and bpftime's GPU_RINGBUF, whose `max_entries` tells no size: see
/// [`RingLayout::events`].
pub(crate) fn plan_events(
    def: &MapDef,
    map_type: MapType,
    sms: u32,
    plan: &mut MapPlan,
) -> Result<(), MapError> {
    // bpftime's ring says how large its records are; Linux's holds file descriptors.
    let sizes = [
        ("key_size", def.key_size, true),
        (
            "value_size",
            def.value_size,
            map_type == MapType::PerfEventArray,
        ),
    ];
    for (what, size, checked) in sizes {
        if checked && size != 0 && size != 4 {
            return Err(MapError::EventSize {
                map: def.name.clone(),
                map_type: map_type.name(),
                what,
                found: size,
            });
        }
    }
    let wait = wait_of(def, map_type.name())?;
    plan.layout = MapLayout::Ring(RingLayout::events(sms).with_wait(wait));
    Ok(())
}

/// Written bytes of one ring that can be copied now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The ring: a multiprocessor.
    pub shard: u32,
    /// Where they are, from the map's base address.
    pub range: Range<u64>,
    position: u64,
    /// Bytes of a sub-buffer, at whose ends records end.
    sub: u64,
}

impl Chunk {
    /// Bytes to copy.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
    /// Never: chunks hold at least one record.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The longest beginning of it that has at most `most` bytes and ends with a record, which is
    /// known of the ends of sub-buffers alone.
    pub fn beginning(&self, most: u64) -> Option<Chunk> {
        if self.len() <= most {
            return Some(self.clone());
        }
        let end = self.position.saturating_add(most) / self.sub * self.sub;
        let bytes = end.checked_sub(self.position).filter(|bytes| *bytes > 0)?;
        Some(Chunk {
            range: self.range.start..self.range.start + bytes,
            ..self.clone()
        })
    }

    /// What is left of it behind a beginning.
    pub fn behind(&self, beginning: &Chunk) -> Option<Chunk> {
        let bytes = beginning.len();
        (bytes < self.len()).then(|| Chunk {
            range: self.range.start + bytes..self.range.end,
            position: self.position + bytes,
            ..self.clone()
        })
    }

    /// Hands the records in `bytes`, which are the chunk's, to `each`, in the order of their
    /// reservation.
    ///
    /// # Errors
    /// [`RingError::Length`]; [`RingError::Damaged`] for the first header that cannot be: what
    /// stands before it has been handed out.
    pub fn records<'a>(
        &self,
        bytes: &'a [u8],
        mut each: impl FnMut(Record<'a>),
    ) -> Result<(), RingError> {
        check_length("copy of a chunk", &self.range, bytes)?;
        let mut at = 0;
        while at < self.len() {
            let left = self.len() - at;
            // A record lies in one sub-buffer.
            let room = left.min(self.sub - (self.position + at) % self.sub);
            let header = match left < RingLayout::HEADER {
                true => 0,
                false => u32_at(bytes, at),
            };
            let record = RingLayout::record(header, room).ok_or(RingError::Damaged {
                shard: self.shard,
                position: self.position + at,
                header,
                skipped: left,
            })?;
            if let Some(length) = record.payload {
                let start = (at + RingLayout::HEADER) as usize;
                each(Record {
                    shard: self.shard,
                    payload: &bytes[start..start + length as usize],
                });
            }
            at += record.bytes;
        }
        Ok(())
    }
}

/// A submitted record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The ring that it came through: the multiprocessor of its writer.
    pub shard: u32,
    /// What the program wrote.
    pub payload: &'a [u8],
}

/// A ring that holds what no writer writes. The application wrote into our memory, or the wrong
/// memory was copied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RingError {
    /// A copy of another length than asked for: the caller's bug.
    #[error("the {what} has {found} bytes but {expected} were asked for")]
    Length {
        /// Which copy.
        what: &'static str,
        /// Bytes asked for.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// A chunk that is not the next one of its ring: the caller's bug.
    #[error("ring {shard}: the chunk at {found} was taken while {expected} is next")]
    Order {
        /// The ring.
        shard: u32,
        /// Position that is next.
        expected: u64,
        /// Position of the chunk.
        found: u64,
    },
    /// A header that cannot be: where the next record begins is not known.
    #[error(
        "ring {shard}: the record header {header:#x} at position {position} is damaged; {skipped} bytes were skipped"
    )]
    Damaged {
        /// The ring.
        shard: u32,
        /// Bytes since the ring was made.
        position: u64,
        /// Length and flags as read.
        header: u32,
        /// Bytes up to the chunk's end, given up.
        skipped: u64,
    },
}

/// Losses since the ring was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Records that found no room.
    pub full: u64,
    /// Records given up because other writers kept winning.
    pub busy: u64,
}

/// Reads all rings of a map.
#[derive(Clone, Debug)]
pub struct Reader {
    layout: RingLayout,
    consumed: Vec<u64>,
    reserved: Vec<u64>,
    lost: Vec<Lost>,
}

impl Reader {
    /// A reader of a map that no one has read from yet.
    pub fn new(layout: RingLayout) -> Reader {
        let shards = layout.shards as usize;
        Reader {
            layout,
            consumed: vec![0; shards],
            reserved: vec![0; shards],
            lost: vec![Lost::default(); shards],
        }
    }

    /// The range of the commit counts: the first copy of a round.
    pub fn commits(&self) -> Range<u64> {
        let at = self.layout.commits_at();
        at..at + u64::from(self.layout.shards) * RingLayout::SUBS * 8
    }

    /// The range of the control lines: the second copy of a round, begun after the first has ended.
    pub fn controls(&self) -> Range<u64> {
        0..u64::from(self.layout.shards) * RingLayout::CONTROL_STRIDE
    }

    /// What may be copied now, ring after ring, in order within a ring.
    ///
    /// # Errors
    /// [`RingError::Length`] if a copy is not as long as its range.
    pub fn cover(&mut self, commits: &[u8], controls: &[u8]) -> Result<Vec<Chunk>, RingError> {
        check_length("copy of the commit counts", &self.commits(), commits)?;
        check_length("copy of the control lines", &self.controls(), controls)?;
        let mut chunks = Vec::new();
        for shard in 0..self.layout.shards {
            let line = u64::from(shard) * RingLayout::CONTROL_STRIDE;
            let at = shard as usize;
            self.lost[at] = Lost {
                full: u64_at(controls, line + RingLayout::LOST_FULL),
                busy: u64_at(controls, line + RingLayout::LOST_BUSY),
            };
            self.reserved[at] = u64_at(controls, line + RingLayout::RESERVED);
            let counts = u64::from(shard) * RingLayout::SUBS * 8;
            self.cover_shard(shard, |sub| u64_at(commits, counts + sub * 8), &mut chunks);
        }
        Ok(chunks)
    }

    fn cover_shard(&self, shard: u32, count: impl Fn(u64) -> u64, chunks: &mut Vec<Chunk>) {
        let layout = &self.layout;
        let start = self.consumed[shard as usize];
        let reserved = self.reserved[shard as usize];
        let mut end = start;
        while end < reserved && end - start < layout.shard_bytes {
            let sub = end / layout.sub_bytes() % RingLayout::SUBS;
            if count(sub) != reserved_in(layout, sub, reserved) {
                break;
            }
            end = reserved.min((end / layout.sub_bytes() + 1) * layout.sub_bytes());
        }
        end = end.min(start.saturating_add(layout.shard_bytes));
        // In memory the ring may wrap once.
        let base = layout.data_at() + u64::from(shard) * layout.shard_bytes;
        let mut at = start;
        while at < end {
            let offset = at % layout.shard_bytes;
            let len = (end - at).min(layout.shard_bytes - offset);
            chunks.push(Chunk {
                shard,
                range: base + offset..base + offset + len,
                position: at,
                sub: layout.sub_bytes(),
            });
            at += len;
        }
    }

    /// Counts `chunk` as consumed: its bytes have been copied.
    ///
    /// # Errors
    /// [`RingError::Order`] if it is not the next one of its ring.
    pub fn take(&mut self, chunk: &Chunk) -> Result<(), RingError> {
        let next = &mut self.consumed[chunk.shard as usize];
        if *next != chunk.position {
            return Err(RingError::Order {
                shard: chunk.shard,
                expected: *next,
                found: chunk.position,
            });
        }
        *next += chunk.len();
        Ok(())
    }

    /// The consumed positions, to be written to the device: the end of a round.
    pub fn consumed(&self) -> Write {
        Write {
            offset: self.layout.consumed_at(),
            bytes: self
                .consumed
                .iter()
                .flat_map(|position| position.to_le_bytes())
                .collect(),
        }
    }

    /// Losses of all rings together, as of the last [`Reader::cover`].
    pub fn lost(&self) -> Lost {
        self.lost.iter().fold(Lost::default(), |sum, lost| Lost {
            full: sum.full + lost.full,
            busy: sum.busy + lost.busy,
        })
    }

    /// Losses of one ring, as of the last [`Reader::cover`].
    pub fn lost_in(&self, shard: u32) -> Option<Lost> {
        self.lost.get(shard as usize).copied()
    }

    /// Bytes that were reserved, but not yet taken, as of the last [`Reader::cover`]. After a
    /// kernel's end, a round leaves none; what remains then belongs to threads that were killed
    /// between reserving and submitting.
    pub fn pending(&self) -> u64 {
        self.reserved
            .iter()
            .zip(&self.consumed)
            .map(|(reserved, consumed)| reserved.saturating_sub(*consumed))
            .sum()
    }
}

/// Bytes of sub-buffer `sub` that have been reserved, all turns of the ring together, once
/// `reserved` bytes of the ring have been.
fn reserved_in(layout: &RingLayout, sub: u64, reserved: u64) -> u64 {
    let turns = reserved / layout.shard_bytes;
    let within = (reserved % layout.shard_bytes).saturating_sub(sub * layout.sub_bytes());
    turns * layout.sub_bytes() + within.min(layout.sub_bytes())
}

fn check_length(what: &'static str, range: &Range<u64>, bytes: &[u8]) -> Result<(), RingError> {
    let expected = range.end - range.start;
    if bytes.len() as u64 == expected {
        return Ok(());
    }
    Err(RingError::Length {
        what,
        expected,
        found: bytes.len() as u64,
    })
}
