//! USER_RINGBUF: the host's producer, as a state machine without a device, in the manner of
//! libbpf's `user_ring_buffer`.
//!
//! [`Producer::reserve`] gives room for a record, [`Producer::submit`] or [`Producer::discard`]
//! gives it back, and [`Producer::writes`] says what to write to the device: records first, then
//! the position behind them. The writes are done in their order, each finished before the next
//! begins, so a program that sees the position sees the records.
//!
//! Records come out in the order in which they were reserved: one that was neither submitted nor
//! discarded holds back all that follow.

use std::collections::VecDeque;
use std::ops::Range;

use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::bytes::u64_at;
use crate::error::{AccessError, MapError};
use crate::map_plan::{MapPlan, Write};

pub(crate) fn plan(def: &MapDef, plan: &mut MapPlan) -> Result<(), MapError> {
    let map_type = MapType::UserRingbuf.name();
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
    let Some(layout) = UserRingLayout::new(def.max_entries) else {
        return Err(MapError::TooLarge {
            map: def.name.clone(),
            what: format!("`max_entries` {}", def.max_entries),
            bytes: def.max_entries.into(),
            limit: UserRingLayout::MOST.into(),
            advice: "lower `max_entries`",
        });
    };
    plan.layout = MapLayout::UserRing(layout);
    Ok(())
}

/// Why there is no room for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoRoom {
    /// There never will be: `-E2BIG`.
    #[error("a record of {size} bytes is larger than the ring takes, {most}")]
    TooLarge {
        /// Bytes asked for.
        size: usize,
        /// Largest payload.
        most: u64,
    },
    /// Programs must drain some first: `-ENOSPC`.
    #[error("the ring is full: {size} bytes find no room until a program has drained it")]
    Full {
        /// Bytes asked for.
        size: usize,
    },
}

impl NoRoom {
    /// Linux's error number, negative, as libbpf's `user_ring_buffer__reserve` sets it.
    pub fn errno(&self) -> i64 {
        match self {
            NoRoom::TooLarge { .. } => warpbpf_abi::maps::E2BIG,
            NoRoom::Full { .. } => warpbpf_abi::maps::ENOSPC,
        }
    }
}

/// Positions that no ring has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the ring is filled to {filled} and drained to {consumed}, which no ring of its size can be"
)]
pub struct BadPositions {
    /// Of the producer.
    pub filled: u64,
    /// Of the consumer.
    pub consumed: u64,
}

/// Room for a record. It must be given back by [`Producer::submit`] or [`Producer::discard`].
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a record that is not given back holds back all that follow"]
pub struct Sample {
    at: u64,
    /// What the program will see: zeroes at first.
    pub payload: Vec<u8>,
}

/// A record that was reserved and is not on the device yet.
#[derive(Clone, Debug)]
struct Waiting {
    at: u64,
    /// Bytes in the ring.
    bytes: u64,
    /// Header and payload; nothing while it is reserved.
    content: Option<Vec<u8>>,
}

/// Fills a ring.
#[derive(Clone, Debug)]
pub struct Producer {
    layout: UserRingLayout,
    /// Programs have drained it to there, as far as is known.
    consumed: u64,
    /// Room is given from here on.
    next: u64,
    waiting: VecDeque<Waiting>,
}

impl Producer {
    /// A producer of a ring whose positions are these.
    ///
    /// # Errors
    /// [`BadPositions`]: the caller's snapshot is not of such a ring, or the application wrote into
    /// it.
    pub fn new(
        layout: UserRingLayout,
        filled: u64,
        consumed: u64,
    ) -> Result<Producer, BadPositions> {
        let between = |position: u64| !position.is_multiple_of(UserRingLayout::ALIGN);
        let pending = filled.checked_sub(consumed);
        if between(filled) || between(consumed) || pending.is_none_or(|p| p > layout.bytes.into()) {
            return Err(BadPositions { filled, consumed });
        }
        Ok(Producer {
            layout,
            consumed,
            next: filled,
            waiting: VecDeque::new(),
        })
    }

    /// Where the device says how far programs are: eight bytes for [`Producer::consumed`], to be
    /// copied when there is no room.
    pub fn consumer(&self) -> Range<u64> {
        UserRingLayout::CONSUMER..UserRingLayout::CONSUMER + 8
    }

    /// Takes what the device said. A position that cannot be (the application wrote into our
    /// memory) is not believed.
    pub fn consumed(&mut self, position: u64) {
        if (self.consumed..=self.next).contains(&position)
            && position.is_multiple_of(UserRingLayout::ALIGN)
        {
            self.consumed = position;
        }
    }

    /// Bytes that programs have not drained yet, as far as is known, and those that are reserved.
    pub fn pending(&self) -> u64 {
        self.next - self.consumed
    }

    /// Room for a record of `size` bytes.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn reserve(&mut self, size: usize) -> Result<Sample, NoRoom> {
        let most = self.layout.max_payload();
        if size as u64 > most {
            return Err(NoRoom::TooLarge { size, most });
        }
        let ring = u64::from(self.layout.bytes);
        let need = UserRingLayout::record_bytes(size as u64);
        let to_end = ring - self.next % ring;
        let free = ring - self.pending();
        let fill = if need <= to_end { 0 } else { to_end };
        if fill + need > free {
            // Where it would not fit even into an empty ring, the filler must be drained first.
            if fill > 0 && fill + need > ring && fill <= free {
                self.fill(fill);
            }
            return Err(NoRoom::Full { size });
        }
        if fill > 0 {
            self.fill(fill);
        }
        let at = self.next;
        self.next += need;
        self.waiting.push_back(Waiting {
            at,
            bytes: need,
            content: None,
        });
        Ok(Sample {
            at,
            payload: vec![0; size],
        })
    }

    /// A discarded record up to the ring's end.
    fn fill(&mut self, bytes: u64) {
        let length = (bytes - UserRingLayout::HEADER) as u32;
        self.waiting.push_back(Waiting {
            at: self.next,
            bytes,
            content: Some(header(length | UserRingLayout::DISCARDED)),
        });
        self.next += bytes;
    }

    /// Programs are to see the record.
    pub fn submit(&mut self, sample: Sample) {
        let mut content = header(sample.payload.len() as u32);
        content.extend_from_slice(&sample.payload);
        self.give_back(sample.at, content);
    }

    /// Programs are to skip the record.
    pub fn discard(&mut self, sample: Sample) {
        let flags = UserRingLayout::DISCARDED;
        self.give_back(sample.at, header(sample.payload.len() as u32 | flags));
    }

    fn give_back(&mut self, at: u64, content: Vec<u8>) {
        // They stand in the order of their places; of a batch there are thousands.
        if let Ok(index) = self.waiting.binary_search_by_key(&at, |w| w.at) {
            self.waiting[index].content = Some(content);
        }
    }

    /// What to write to the device now, in this order; nothing if no record is ready.
    pub fn writes(&mut self) -> Vec<Write> {
        let ring = u64::from(self.layout.bytes);
        let mut writes: Vec<Write> = Vec::new();
        let mut filled = None;
        while let Some(front) = self.waiting.front_mut() {
            let Some(mut content) = front.content.take() else {
                break;
            };
            let (at, end) = (front.at % ring, front.at + front.bytes);
            self.waiting.pop_front();
            filled = Some(end);
            let offset = UserRingLayout::DATA + at;
            // What follows at once goes with it, and the padding between them.
            match writes.last_mut() {
                Some(last)
                    if (last.offset + last.bytes.len() as u64)
                        .next_multiple_of(UserRingLayout::ALIGN)
                        == offset =>
                {
                    last.bytes.resize((offset - last.offset) as usize, 0);
                    last.bytes.append(&mut content);
                }
                _ => writes.push(Write {
                    offset,
                    bytes: content,
                }),
            }
        }
        if let Some(filled) = filled {
            writes.push(Write {
                offset: UserRingLayout::PRODUCER,
                bytes: filled.to_le_bytes().to_vec(),
            });
        }
        writes
    }
}

fn header(length: u32) -> Vec<u8> {
    u64::from(length).to_le_bytes().to_vec()
}

/// The writes that add a record to a ring that no kernel uses now; `bytes` is a snapshot of all of
/// it.
pub(crate) fn push(
    plan: &MapPlan,
    layout: &UserRingLayout,
    bytes: &[u8],
    value: &[u8],
) -> Result<Vec<Write>, AccessError> {
    let position = |at| u64_at(bytes, at);
    let (filled, consumed) = (
        position(UserRingLayout::PRODUCER),
        position(UserRingLayout::CONSUMER),
    );
    let producer = Producer::new(*layout, filled, consumed);
    let mut producer = producer.map_err(|error| AccessError::Corrupt {
        map: plan.name.clone(),
        why: error.to_string(),
    })?;
    match producer.reserve(value.len()) {
        Ok(mut sample) => {
            sample.payload.copy_from_slice(value);
            producer.submit(sample);
            Ok(producer.writes())
        }
        Err(error) => Err(AccessError::Full {
            map: plan.name.clone(),
            why: error.to_string(),
        }),
    }
}
