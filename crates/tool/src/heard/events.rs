//! Records of rings and messages of programs, as they come home.

use warpbpf_maps::printk;
use warpbpf_object::{MapKind, Object};
use warpbpf_wire::PRINTK;

/// Records of a batch, and bytes after which it is full.
const MOST_RECORDS: usize = 4096;
const MOST_BYTES: usize = 1 << 20;

/// A record of a ring. `bpf_printk` messages come so too: see [`Event::message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Index of the map among the object's.
    pub map: u32,
    /// The multiprocessor that wrote it, as libbpf's CPU number. Records of one are in their order.
    pub shard: u32,
    /// What the program wrote.
    pub payload: &'a [u8],
}

impl Event<'_> {
    /// It is a message of `bpf_printk`.
    pub fn is_message(&self) -> bool {
        self.map == PRINTK
    }

    /// The message, if it is one; `object` holds its format.
    pub fn message(&self, object: &crate::object::Object) -> Option<Message> {
        self.is_message()
            .then(|| Message::read(object.parsed(), self.payload))
            .flatten()
    }
}

/// A message of `bpf_printk`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Block that printed it.
    pub block: [u32; 3],
    /// Thread in the block.
    pub thread: [u32; 3],
    /// Formatted.
    pub text: String,
}

impl Message {
    /// Reads a record of the ring of messages; `None` if it is none.
    pub fn read(object: &Object, payload: &[u8]) -> Option<Message> {
        let message = printk::Message::read(payload)?;
        let data = |map: u32, offset: u32| match &object.maps.get(map as usize)?.kind {
            MapKind::Data { image, .. } => image.get(offset as usize..),
            MapKind::User => None,
        };
        Some(Message {
            block: message.block,
            thread: message.thread,
            text: message.text(data)?.trim_end().to_owned(),
        })
    }
}

/// `block (0,0,0) thread (1,0,0): text`
impl std::fmt::Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(
            f,
            "block ({bx},{by},{bz}) thread ({tx},{ty},{tz}): {}",
            self.text
        )
    }
}

/// Events that were taken out of the shared memory and not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Map, shard, end of its bytes.
    records: Vec<(u32, u32, usize)>,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    pub(crate) fn push(&mut self, map: u32, shard: u32, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.records.push((map, shard, self.bytes.len()));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= MOST_RECORDS || self.bytes.len() >= MOST_BYTES
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        let mut start = 0;
        self.records.iter().map(move |(map, shard, end)| {
            let payload = &self.bytes[start..*end];
            start = *end;
            Event {
                map: *map,
                shard: *shard,
                payload,
            }
        })
    }
}

/// Records of a ring that never came, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Not sent: the ring on the device had no room.
    pub full: u64,
    /// Not sent: a bounded retry ran out.
    pub busy: u64,
    /// Sent, and not taken in time here.
    pub unread: u64,
}

impl Losses {
    /// All of them.
    pub fn sum(&self) -> u64 {
        // Counts are in memory that the application's process may write.
        self.full
            .saturating_add(self.busy)
            .saturating_add(self.unread)
    }
}
