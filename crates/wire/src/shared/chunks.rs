//! Room in the event ring for chunks of device rings, which somebody else fills: the copy engine.
//! They are published together, when all of them are whole.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::area::ring;
use super::writer::SharedWriter;

/// Bytes of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where they begin.
    pub start: *mut u8,
    /// How many there are.
    pub bytes: u64,
}

/// The bytes of words. They may be written through the pointer: what is atomic may change behind a
/// shared reference.
pub(super) fn span(words: &[AtomicU64]) -> Span {
    Span {
        start: words.as_ptr().cast_mut().cast(),
        bytes: size_of_val(words) as u64,
    }
}

/// Chunks behind the ring's head that no consumer sees yet. Those that are not published are
/// forgotten.
#[derive(Debug)]
pub struct Chunks<'w> {
    writer: &'w mut SharedWriter,
    next: u64,
}

impl Chunks<'_> {
    pub(super) fn new(writer: &mut SharedWriter) -> Chunks<'_> {
        let next = writer.head;
        Chunks { writer, next }
    }

    /// Most bytes of a chunk that there is room for now.
    pub fn room(&self) -> u64 {
        if warpbpf_faults::strikes("shared/chunk-room") {
            return 0;
        }
        let writer = &self.writer;
        ring(&writer.words, writer.ring, writer.ring_bytes).chunk_room(self.next)
    }

    /// Room for a chunk of a map ([`super::PRINTK`] too) and a shard; in two parts where it lies
    /// over the end of the ring, else the second is empty. Every byte of it must be written before
    /// it is published. `None` if it is larger than [`Chunks::room`].
    pub fn reserve(&mut self, map: u32, shard: u32, bytes: u64) -> Option<[Span; 2]> {
        let writer = &self.writer;
        let ring = ring(&writer.words, writer.ring, writer.ring_bytes);
        let parts = ring.reserve(&mut self.next, map, shard, bytes)?;
        Some(parts.map(|Range { start, end }| {
            let words = start as usize / 8..end.div_ceil(8) as usize;
            Span {
                bytes: end - start,
                ..span(&ring.data[words])
            }
        }))
    }

    /// Lets consumers see everything that was reserved.
    pub fn publish(&mut self) {
        let writer = &mut self.writer;
        writer.head = self.next;
        ring(&writer.words, writer.ring, writer.ring_bytes).publish(self.next);
    }
}

impl SharedWriter {
    /// Begins to append chunks.
    pub fn chunks(&mut self) -> Chunks<'_> {
        Chunks::new(self)
    }

    /// The pages of the ring: what a driver can lock, so that its copy engine writes into them.
    /// They stay where they are as long as the writer lives.
    pub fn ring_pages(&self) -> Span {
        span(self.words.slice(self.ring, self.ring_bytes))
    }
}
