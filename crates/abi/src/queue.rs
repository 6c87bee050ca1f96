//! Device layouts of maps without keys: queues, stacks, bloom filters.
//!
//! All sizes are bytes, all positions offsets from the map's base address. All-zero memory is an
//! empty map.

use crate::align::align_up;
use crate::hash::hash;

/// QUEUE and STACK: values lie in nodes, and what moves is a node's number plus one, so that a
/// value is whole before anybody can find it.
///
/// Nodes that are free, and the values of a queue, stand in a *ring of cells*. A ring has two
/// tickets that only grow: who puts takes one from `TAIL`, who takes one from `HEAD`, each by an
/// add, so that lanes do not disturb each other. The cell of ticket `t` is `t % cells`, and the
/// word in it is `cycle | unsafe | node + 1`, where `cycle` is [`QueueLayout::cycle`] of the ticket
/// that wrote it and 0 for the node says that nothing is there.
///
/// Who puts swaps a cell of an older cycle without a node for its own word, if the cell is not
/// *unsafe* or `HEAD` has not passed its ticket; else it takes another ticket,
/// [`QueueLayout::TRIES`] times. Who takes finds its cycle with a node, and swaps the word for one
/// without; else it makes sure that nothing comes to its ticket any more: it marks the cell unsafe,
/// and where no older node is in it raises the word to its own cycle. A node of an older cycle that
/// came between these two steps is taken by who raised the word, and its ticket's owner finds the
/// ticket closed. That needs no repetition, so no ticket is left open, and a value that was put is
/// taken by exactly one. `TAIL` not beyond `HEAD` says that the ring is empty.
///
/// A stack is a list: `TOP` is `version << 32 | node + 1`, and each node has a link
/// ([`QueueLayout::link`]) to the one below it. Lanes of a warp that push together do so as one:
/// their nodes are a *run*, linked beforehand, and one CAS puts it on top. Each node of a run knows
/// how many of it are left from there on and what is below all of them, so lanes that pop together
/// take a whole run by one CAS, if they are as many; else one value. A link does not change while
/// its node is on the stack, and a CAS that succeeds proves by the version that it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueLayout {
    /// Most values at once, at most [`QueueLayout::MAX_ENTRIES`].
    pub max_entries: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// A stack.
    pub lifo: bool,
}

impl QueueLayout {
    /// Tickets of the ring of free nodes: `HEAD`, and `TAIL` at [`QueueLayout::TAIL`] from here
    /// (u64 each).
    pub const FREE: u64 = 0;
    /// Tickets of the ring of values; of a stack, `TOP` (u64).
    pub const VALUES: u64 = 256;
    /// From a ring's `HEAD` to its `TAIL`.
    pub const TAIL: u64 = 128;
    /// u32: nodes handed out for the first time.
    pub const NEXT_NODE: u64 = 512;
    /// u32: nodes in the bitmap of spare ones.
    pub const SPARES: u64 = 640;
    /// u64: pushes refused because the map was full (`-E2BIG`).
    pub const COUNT_FULL: u64 = 768;
    /// u64: operations given up after [`QueueLayout::TRIES`] tickets or [`QueueLayout::TURNS`]
    /// turns (`-EBUSY`).
    pub const COUNT_BUSY: u64 = 776;
    /// First cell of the ring of free nodes.
    pub const CELLS: u64 = 896;
    /// Most tickets that an operation takes.
    pub const TRIES: u32 = 64;
    /// Most turns of a stack's loop: in each, some lanes' CAS succeeds, so who has lost so often
    /// met as many who did not.
    pub const TURNS: u32 = 1024;
    /// In a link: u32, the node below plus one, 0 if there is none.
    pub const BELOW: u64 = 0;
    /// In a link: u32, the node below the run plus one, 0 if there is none.
    pub const BELOW_RUN: u64 = 4;
    /// In a link: u32, nodes of the run from this one on.
    pub const LEFT: u64 = 8;
    /// Bytes of a link.
    pub const LINK_BYTES: u64 = 16;
    /// Most words of the bitmap of spare nodes that one search looks at.
    pub const SPARE_SEARCH: u64 = 64;
    /// Most values: a node's number plus one must stay below the flag in a cell.
    pub const MAX_ENTRIES: u32 = 1 << 30;

    /// Cells of a ring: a power of two, more than twice the nodes.
    pub const fn cells(&self) -> u64 {
        let n = (self.max_entries as u64 * 2 + 2).next_power_of_two();
        if n < 256 { 256 } else { n }
    }
    /// In a cell: nobody may put here whose ticket `HEAD` has passed.
    pub const fn unsafe_flag(&self) -> u64 {
        self.cells() / 2
    }
    /// In a cell: the node's number plus one.
    pub const fn node_mask(&self) -> u64 {
        self.cells() / 2 - 1
    }
    /// In a cell: the cycle of a ticket, never 0.
    pub const fn cycle(&self, ticket: u64) -> u64 {
        (ticket | (self.cells() - 1)) + 1
    }
    /// First cell of the ring of values; of a stack, the first link.
    pub const fn values_at(&self) -> u64 {
        Self::CELLS + self.cells() * 8
    }
    /// First u32 of the bitmap of spare nodes: given back when [`QueueLayout::TRIES`] tickets of
    /// the ring of free nodes did not serve. Bit `n % 32` of word `n / 32` is node `n`.
    pub const fn spare_at(&self) -> u64 {
        let bytes = if self.lifo {
            self.max_entries as u64 * Self::LINK_BYTES
        } else {
            self.cells() * 8
        };
        align_up(self.values_at() + bytes, 128)
    }
    /// Position of a stack's node's link.
    pub const fn link(&self, node: u64) -> u64 {
        self.values_at() + node * Self::LINK_BYTES
    }
    /// Words of the bitmap.
    pub const fn spare_words(&self) -> u64 {
        (self.max_entries as u64).div_ceil(32)
    }
    /// First node.
    pub const fn nodes_at(&self) -> u64 {
        align_up(self.spare_at() + self.spare_words() * 4, 128)
    }
    /// Distance of nodes.
    pub const fn node_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Position of a node's value.
    pub const fn node(&self, node: u64) -> u64 {
        self.nodes_at() + node * self.node_stride()
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        self.node(self.max_entries as u64)
    }
}

/// BLOOM_FILTER: bits. Value `v` sets the bits `(h + i * s) % bits` for `i` below `hashes`, where
/// `h` is the lower and `s` the upper half of [`hash`]`(v)`, the latter made odd.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BloomLayout {
    /// Values that it is made for.
    pub max_entries: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// Hash functions, 1 to [`BloomLayout::MAX_HASHES`].
    pub hashes: u32,
}

impl BloomLayout {
    /// Bits of `map_extra` that hold the number of hash functions.
    pub const MAX_HASHES: u32 = 15;
    /// Hash functions where `map_extra` is 0, as in Linux (`kernel/bpf/bloom_filter.c`).
    pub const DEFAULT_HASHES: u32 = 5;

    /// Bits: a power of two, as many as Linux takes.
    pub const fn bits(&self) -> u64 {
        let bits = self.max_entries as u64 * self.hashes as u64 / 5 * 7;
        if bits > 1 << 31 {
            1 << 32
        } else if bits <= 64 {
            64
        } else {
            bits.next_power_of_two()
        }
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        self.bits() / 8
    }
    /// The bits of a value.
    pub fn places(&self, value: &[u8]) -> impl Iterator<Item = u32> + use<> {
        let hash = hash(value);
        let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let mask = (self.bits() - 1) as u32;
        (0..self.hashes).map(move |i| first.wrapping_add(i.wrapping_mul(step)) & mask)
    }
}
