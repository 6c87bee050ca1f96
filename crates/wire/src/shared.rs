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
//! A map's sequence is the number of snapshots published; snapshot `n` lies in copy `n & 1`. The
//! agent writes the copy that is not the published one, then publishes. So an agent that dies while
//! it writes leaves the last snapshot whole, and a reader that sees the same sequence before and
//! after its copy has a consistent one.
//!
//! A ring entry is `map: u32, shard: u32, len: u32, kind: u32`, then `len` bytes padded to 8. Kind
//! 0 is an event, whose bytes are its payload. Kind 1 is a chunk: bytes of a device ring as the
//! copy engine left them, from the next multiple of 256 on. Its records have the device's headers
//! and are looked at by the consumer alone, so the writer does nothing for single events. Entries
//! wrap at the end of the ring. An event that does not fit is counted, a chunk stays on the device;
//! the writer never waits.
//!
//! The ring has one consumer at a time. The first look at events makes a reader the consumer: it
//! raises the epoch and goes on where the tail is, or behind what was handed out of the chunk
//! there. One that was the consumer before sees that it is not any more, and hands out nothing. So
//! a tool that died is followed by another, and each event is handed out; the one that it died with
//! may be so twice. One that lives on stops at the first event before which it sees that it was
//! followed; what it hands out until then may come twice.
//!
//! Launches are counted in a memfd of their own (`launches`).
//!
//! Maps that come later have a memfd of their own of the same layout, with numbers that begin
//! behind those that there are ([`SharedWriter::append`], [`SharedReader::append`]). Its ring is
//! the smallest, and nobody uses it: events go by the first one.

mod area;
mod chunks;
mod error;
mod kept;
mod launches;
mod memfd;
mod reader;
mod ring;
mod snapshot;
mod writer;

pub use area::{DEFAULT_RING_BYTES, DeviceLosses, PRINTK};
pub use chunks::{Chunks, Span};
pub use error::SharedError;
pub use kept::Kept;
pub use launches::{
    LastCopy, LaunchKind, LaunchReader, LaunchRow, LaunchWriter, Launches, Missing,
};
pub use reader::SharedReader;
pub use ring::Event;
pub use snapshot::SNAPSHOT_PART;
pub use writer::SharedWriter;

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
