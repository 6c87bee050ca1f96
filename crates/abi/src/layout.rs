//! Device layouts: where the bytes of each map, ring and control block lie. The code generator
//! emits these offsets, the host's readers use the same functions.
//!
//! All sizes are bytes, all positions offsets from the block's base address, which is 256-byte
//! aligned.

use crate::align::align_up;
pub use crate::hash::{HASH_INVERSE, HASH_MULTIPLIER, hash, unhash};
pub use crate::queue::{BloomLayout, QueueLayout};

mod dense;
mod hash;
mod hosted;
mod user_ring;

pub use hash::{HashLayout, LruLayout};
pub use hosted::HostedLayout;
pub use user_ring::UserRingLayout;

/// Entries of the slot table ([`crate::names::SLOTS`]) with a fixed meaning. Maps follow, then the
/// module's globals.
pub mod slot {
    /// Address of the [`super::env`] block.
    pub const ENV: u32 = 0;
    /// First slot of the maps: map `i` that a session begins with has slot `FIRST_MAP + i`. Those
    /// that come with other programs later stand behind the printk ring.
    pub const FIRST_MAP: u32 = 1;
}

/// The environment block: what programs read of the host.
pub mod env {
    /// Which of the two time records is current: 0 or 1 (u64). The host writes the other one, then
    /// flips this.
    pub const TIME_INDEX: u64 = 0;
    /// First time record; the second follows at `TIME + TIME_STRIDE`.
    pub const TIME: u64 = 32;
    /// Bytes of one time record.
    pub const TIME_STRIDE: u64 = 32;
    /// In a time record: %globaltimer at calibration (u64).
    pub const TIME_BASE_DEVICE: u64 = 0;
    /// In a time record: CLOCK_MONOTONIC at the same instant (u64, ns).
    pub const TIME_BASE_HOST: u64 = 8;
    /// In a time record: drift, i64 in units of 2^-32: host = base_host + d + ((d * drift) >> 32),
    /// d = %globaltimer - base_device.
    pub const TIME_DRIFT: u64 = 16;
    /// `pid << 32 | pid` of the application (u64).
    pub const PID_TGID: u64 = 96;
    /// Address of the [`super::fence`] block (u64); 0 if no program reads the application's memory.
    /// Never changes.
    pub const FENCE: u64 = 104;
    /// `gid << 32 | uid` of the application (u64).
    pub const UID_GID: u64 = 112;
    /// Name of the application's main thread: 16 bytes, NUL-terminated and zero-padded.
    pub const COMM: u64 = 120;
    /// Bytes of [`COMM`].
    pub const COMM_BYTES: u64 = 16;
    /// What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC (u64, ns). The host renews it with the time
    /// records.
    pub const BOOT_OFFSET: u64 = 136;
    /// What CLOCK_TAI is ahead of CLOCK_MONOTONIC (u64, ns). The host renews it with the time
    /// records.
    pub const TAI_OFFSET: u64 = 144;
    /// Multiprocessors of the device (u64).
    pub const SM_COUNT: u64 = 152;
    /// Bytes of the block.
    pub const SIZE: u64 = 256;
}

/// The gate, which lies behind the environment block where it was asked for: a word in which each
/// program has a bit. A program whose bit is set does not run. A kernel reads it at each site, so
/// what the host writes reaches kernels that run and never end.
pub mod gate {
    /// Where the copies of the word begin, from the environment block on.
    pub const COPIES_AT: u64 = super::env::SIZE;
    /// Copies of the word: `%smid` chooses, modulo this.
    pub const COPIES: u64 = 256;
    /// Distance of copies: a cache line each, so that multiprocessors read at different places.
    pub const STRIDE: u64 = 128;
    /// Bytes of all copies.
    pub const SIZE: u64 = COPIES * STRIDE;
    /// The bit of programs that come when all others are given away. They are only closed together
    /// with all.
    pub const SHARED: u32 = 63;
    /// The word when no program runs.
    pub const CLOSED: u64 = u64::MAX;
    /// Behind the word, in each copy: a bit for each slot in which something is to run (u64), see
    /// [`super::slots`].
    pub const OPEN: u64 = 8;
    /// Behind that: address of the half that is in force (u64).
    pub const HALF: u64 = 16;
}

/// Slots, which lie behind the gate where they were asked for: programs that came while kernels
/// run, as instructions for the interpreter on the device. There are two halves: the host fills the
/// one that nobody uses, then each copy of the gate says that it is in force. Who runs a program is
/// counted as a reader of the [`fence`] is, in counters at the same places of this block, so a half
/// is filled again only when all have left it.
pub mod slots {
    use super::{fence, gate};

    /// Where the block begins, from the environment block on.
    pub const AT: u64 = gate::COPIES_AT + gate::SIZE;
    /// First half; the second follows at `HALVES + HALF`. A half begins with the address of the
    /// program of each slot (u64), 0 where there is none; programs and their constants follow.
    pub const HALVES: u64 = fence::TABLES;
    /// Slots of a session. Places that come when all are taken have none.
    pub const MOST: u64 = 256;
    /// Where programs begin in a half.
    pub const PROGRAMS: u64 = MOST * 8;
    /// Bytes of a half.
    pub const HALF: u64 = 1 << 20;
    /// Bytes of the block.
    pub const SIZE: u64 = HALVES + 2 * HALF;
    /// The bit of slots that have none of their own: where one of them is open all are, and each
    /// looks into the half.
    pub const SHARED: u32 = 63;
}

/// The fence around the application's memory: which addresses programs may read now, and who is
/// reading.
///
/// There are two tables of ranges, and an index says which is current. A reader counts itself in
/// one of two sets of counters, looks its address up, reads, and counts itself out. A range is
/// withdrawn like this: the host writes the other table, changes the index, and waits until all are
/// out who may have seen the old table; the two sets let it wait for them without waiting for those
/// who come later. So memory that is about to go can be withdrawn under a kernel that never ends.
pub mod fence {
    /// `ranges << 1 | table` (u64): which table is current, 0 or 1, and how many ranges are in it.
    pub const CURRENT: u64 = 0;
    /// Which set of counters new readers use: its lowest bit (u64).
    pub const EPOCH: u64 = 8;
    /// First set of counters (u32 each, how many lanes read now); the second follows at `READERS +
    /// SET`.
    pub const READERS: u64 = 256;
    /// Counters of a set: `%smid` chooses, modulo this.
    pub const COUNTERS: u64 = 256;
    /// Distance of counters: a sector each, so that multiprocessors do not disturb each other.
    pub const COUNTER_STRIDE: u64 = 32;
    /// Bytes of a set.
    pub const SET: u64 = COUNTERS * COUNTER_STRIDE;
    /// First table; the second follows at `TABLES + TABLE`. A range is two u64: its first byte, and
    /// the one behind its last. Ranges are in ascending order and do not touch.
    pub const TABLES: u64 = READERS + 2 * SET;
    /// Bytes of a range.
    pub const RANGE: u64 = 16;
    /// Most ranges in a table.
    pub const CAPACITY: u64 = 1 << 14;
    /// Bytes of a table.
    pub const TABLE: u64 = CAPACITY * RANGE;
    /// Most steps of a search.
    pub const STEPS: u32 = CAPACITY.trailing_zeros() + 1;
    /// Bytes of the block.
    pub const SIZE: u64 = TABLES + 2 * TABLE;
}

/// The hidden parameter and the launch record that it points to; both exist only for variants that
/// ask for them.
pub mod launch {
    /// In the hidden parameter: address of the record (u64), 0 if the variant counts no arrivals.
    pub const PARAM_RECORD: u64 = 0;
    /// In the hidden parameter: number of the launch (u64), see
    /// [`crate::context::Capture::Launch`].
    pub const PARAM_NUMBER: u64 = 8;
    /// In the hidden parameter: the node of a graph that it is (u64), see [`graph_node`]; 0 outside
    /// of graphs.
    pub const PARAM_NODE: u64 = 16;
    /// In the hidden parameter of a variant whose programs are in different launches: which of
    /// their choices take this one, a bit for each (u64).
    pub const PARAM_CHOSEN: u64 = 24;
    /// Choices of one kernel: bits of [`PARAM_CHOSEN`].
    pub const MOST_CHOICES: usize = 64;
    /// Bytes of the hidden parameter.
    pub const fn param_size(chosen: bool) -> u64 {
        if chosen { 32 } else { 24 }
    }
    /// A node as programs have it: the executable graph's number, from 1, above the node's number
    /// among its kernels, from 0.
    pub const fn graph_node(graph: u32, node: u32) -> u64 {
        (graph as u64) << 32 | node as u64
    }
    /// Cells of the calls that aggregate over a block, [`CELL`] bytes each: for each linear block
    /// id those of all calls of the kernel, one after the other. Behind them arrival counters for
    /// `exit.block` (u32 per linear block id), then for `exit.warp` (u32 per warp of the grid). All
    /// are zero before the launch and zero again after it.
    pub const CELLS: u64 = 0;
    /// Bytes of a cell.
    pub const CELL: u64 = 16;
    /// In a cell: what has come together of the values (u64), in a form of which 0 is the neutral
    /// element.
    pub const CELL_VALUE: u64 = 0;
    /// In a cell: threads of the block that have come (u32).
    pub const CELL_COUNT: u64 = 8;

    /// Bytes needed: so many cells per block, one u32 per block when `block` scope is used, one per
    /// warp when `warp` scope is.
    pub const fn size(
        blocks: u64,
        warps_per_block: u64,
        cells: u64,
        block_scope: bool,
        warp_scope: bool,
    ) -> u64 {
        let warp_bytes = if warp_scope {
            blocks * warps_per_block * 4
        } else {
            0
        };
        warp_counters(blocks, cells, block_scope) + warp_bytes
    }
    /// Where the counters of `exit.block` begin.
    pub const fn block_counters(blocks: u64, cells: u64) -> u64 {
        CELLS + blocks * cells * CELL
    }
    /// Where the counters of `exit.warp` begin.
    pub const fn warp_counters(blocks: u64, cells: u64, block_scope: bool) -> u64 {
        block_counters(blocks, cells) + if block_scope { blocks * 4 } else { 0 }
    }
}

/// A value of a map of maps.
pub mod inner {
    /// u64: base address of the map on the device; 0 if there is none.
    pub const ADDRESS: u64 = 0;
    /// u32: its index in the session plus one; 0 if there is none.
    pub const INDEX: u64 = 8;
    /// Bytes of a value.
    pub const VALUE: u32 = 16;
}

/// How a map lies in device memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapLayout {
    /// ARRAY, `.data`, per-SM array and sharded counters.
    Array(ArrayLayout),
    /// HASH, GPU_HASH, PERCPU_HASH, HASH_OF_MAPS.
    Hash(HashLayout),
    /// LRU_HASH, LRU_PERCPU_HASH.
    Lru(LruLayout),
    /// RINGBUF and the printk ring.
    Ring(RingLayout),
    /// 1502.
    PerThread(PerThreadLayout),
    /// QUEUE and STACK.
    Queue(QueueLayout),
    /// BLOOM_FILTER.
    Bloom(BloomLayout),
    /// A hash that lies on the host, by the user's request. Its size is that of the host block.
    Hosted(HostedLayout),
    /// USER_RINGBUF.
    UserRing(UserRingLayout),
}

impl MapLayout {
    /// Bytes of device memory.
    pub const fn size(&self) -> u64 {
        match self {
            MapLayout::Array(l) => l.size(),
            MapLayout::Hash(l) => l.size(),
            MapLayout::Lru(l) => l.size(),
            MapLayout::Ring(l) => l.size(),
            MapLayout::PerThread(l) => l.size(),
            MapLayout::Queue(l) => l.size(),
            MapLayout::Bloom(l) => l.size(),
            MapLayout::Hosted(l) => l.size(),
            MapLayout::UserRing(l) => l.size(),
        }
    }
}

/// `shards` copies of `max_entries` values. Value `k` of shard `s` is at `s * shard_stride + k *
/// value_stride`. A shard starts on its own 128-byte line, so that SMs do not contend for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArrayLayout {
    /// Number of values.
    pub max_entries: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// 1, or one per SM.
    pub shards: u32,
    /// The copies are an implementation detail: the map's value is their sum, field by field (see
    /// `SumField`).
    pub summed: bool,
}

impl ArrayLayout {
    /// Distance of values: the size rounded up to 8.
    pub const fn value_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Distance of shards.
    pub const fn shard_stride(&self) -> u64 {
        align_up(self.value_stride() * self.max_entries as u64, 128)
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        self.shard_stride() * self.shards as u64
    }
    /// Position of a value.
    pub const fn value(&self, shard: u32, key: u32) -> u64 {
        self.shard_stride() * shard as u64 + self.value_stride() * key as u64
    }
}

/// A field of a summed array's value that programs add to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SumField {
    /// Byte offset in the value.
    pub offset: u32,
    /// 4 or 8.
    pub size: u32,
}

/// One value per key and linear global thread: `(key * threads + thread) * value_stride`, after a
/// 128-byte header whose first u64 counts lookups by threads beyond `threads` (they got NULL).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PerThreadLayout {
    /// Number of keys.
    pub max_entries: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// Threads that have a value.
    pub threads: u64,
}

impl PerThreadLayout {
    /// Where the u64 count of refused lookups is.
    pub const REFUSED: u64 = 0;
    /// Where values begin.
    pub const VALUES: u64 = 128;
    /// Distance of values.
    pub const fn value_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        Self::VALUES + self.value_stride() * self.threads * self.max_entries as u64
    }
    /// Position of a value.
    pub const fn value(&self, key: u32, thread: u64) -> u64 {
        Self::VALUES + (key as u64 * self.threads + thread) * self.value_stride()
    }
}

/// Rings, one per SM, each divided into [`RingLayout::SUBS`] sub-buffers with a commit count.
///
/// Positions are bytes since the ring was made and only grow. A writer checks that `reserved +
/// need - consumed` is within [`RingLayout::limit`], moves `reserved`, writes, fences, and adds
/// what it wrote to the commit count of its sub-buffer. `reserved` is moved by an add where the
/// free eighth of a large ring allows it ([`RingLayout::adds`]), else by a bounded CAS. A record
/// never crosses the end of a sub-buffer: a writer that finds too little room there, or whose add
/// crosses, turns what it has into padding, commits that too, and tries again. The host copies all
/// commit counts, then all `reserved`, then only bytes that are covered: those of sub-buffers
/// whose count equals what had been reserved in them. As counts are read before positions,
/// equality means that nothing was open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RingLayout {
    /// One per SM.
    pub shards: u32,
    /// Bytes of each ring: a power of two, at least 64 KiB.
    pub shard_bytes: u64,
    /// How long a writer that finds no room waits for the host at most, in microseconds; 0 if it
    /// does not. A wait in vain leaves the position at which the host stood then in `GAVE_UP`:
    /// nobody waits again before the host has moved. So a host that is gone costs each ring one
    /// wait.
    pub wait_us: u32,
}

impl RingLayout {
    /// Sub-buffers of a ring.
    pub const SUBS: u64 = 8;
    /// Distance of the per-ring control lines at offset 0.
    pub const CONTROL_STRIDE: u64 = 128;
    /// In a control line: bytes reserved (u64).
    pub const RESERVED: u64 = 0;
    /// In a control line: records lost because the ring was full (u64).
    pub const LOST_FULL: u64 = 8;
    /// In a control line: records lost because the bounded CAS kept losing (u64).
    pub const LOST_BUSY: u64 = 16;
    /// In a control line: 1 + what the host had consumed when a wait was given up (u64).
    pub const GAVE_UP: u64 = 24;
    /// Longest wait.
    pub const MAX_WAIT_US: u32 = 1_000_000;
    /// Nanoseconds that a waiting lane sleeps between two looks, as it asks for them.
    pub const NAP_NS: u32 = 500;
    /// Looks in each microsecond of a wait at most: what bounds it even if the clock stood still.
    pub const LOOKS_PER_US: u32 = 4;
    /// Instructions of a look that finds no room, or after which another writer was first, up to
    /// the next one.
    pub const LOOK_COST: u32 = 33;
    /// Bound of the reserving loop.
    pub const RETRIES: u32 = 64;
    /// From this size on a ring keeps an eighth free, so that reservations may overtake each other:
    /// see [`RingLayout::limit`].
    pub const LARGE: u64 = 1 << 20;
    /// Most lanes that can stand between looking at `reserved` and adding to it: twice what an SM
    /// holds, because two SMs share the last ring where %smid exceeds the number of SMs.
    pub const IN_FLIGHT: u64 = 4096;
    /// Record header: u32 length of the payload with flags, u32 zero. Payload follows.
    pub const HEADER: u64 = 8;
    /// Records begin at multiples of this, so the header and the payload's first word lie in one
    /// 16-byte word, as do each two words that follow: a record is written by few wide stores. A
    /// payload is 8 bytes beyond such a multiple.
    pub const ALIGN: u64 = 16;
    /// Header flag: the record was discarded.
    pub const DISCARDED: u32 = 1 << 30;
    /// Header flag: filler up to the end of the sub-buffer; the length field holds its bytes after
    /// the header.
    pub const PADDING: u32 = 1 << 29;
    /// Largest length in a header.
    pub const LENGTH_MASK: u32 = (1 << 29) - 1;

    /// Rings for `max_entries` bytes on `shards` SMs: every SM alone holds a burst of `max_entries`
    /// up to 1 MiB.
    pub const fn new(max_entries: u32, shards: u32) -> RingLayout {
        let share = (max_entries as u64).div_ceil(shards as u64);
        let alone = if max_entries < 1 << 20 {
            max_entries as u64
        } else {
            1 << 20
        };
        let bytes = if share > alone { share } else { alone };
        let bytes = if bytes < 64 << 10 {
            64 << 10
        } else {
            bytes.next_power_of_two()
        };
        RingLayout {
            shards,
            shard_bytes: bytes,
            wait_us: 0,
        }
    }
    /// Rings of maps whose `max_entries` is not a size: 1 MiB on each SM, less where all together
    /// would pass 256 MiB.
    pub const fn events(shards: u32) -> RingLayout {
        let mut bytes = 1 << 20;
        while bytes > 64 << 10 && bytes * shards as u64 > 256 << 20 {
            bytes /= 2;
        }
        RingLayout {
            shards,
            shard_bytes: bytes,
            wait_us: 0,
        }
    }
    /// The same rings with writers that wait.
    pub const fn with_wait(self, wait_us: u32) -> RingLayout {
        RingLayout { wait_us, ..self }
    }
    /// Most instructions that a wait adds to a reservation.
    pub const fn wait_cost(wait_us: u32) -> u64 {
        wait_us as u64 * Self::LOOKS_PER_US as u64 * Self::LOOK_COST as u64
    }
    /// Bytes of a sub-buffer.
    pub const fn sub_bytes(&self) -> u64 {
        self.shard_bytes / Self::SUBS
    }
    /// Position of the host's consumed positions: u64 per ring, contiguous.
    pub const fn consumed_at(&self) -> u64 {
        self.shards as u64 * Self::CONTROL_STRIDE
    }
    /// Position of the commit counts: u64 per sub-buffer, ring after ring, contiguous.
    pub const fn commits_at(&self) -> u64 {
        align_up(self.consumed_at() + self.shards as u64 * 8, 128)
    }
    /// Position of the first ring's data.
    pub const fn data_at(&self) -> u64 {
        align_up(self.commits_at() + self.shards as u64 * Self::SUBS * 8, 256)
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        self.data_at() + self.shards as u64 * self.shard_bytes
    }
    /// Most bytes that may be reserved and not yet consumed when a writer looks. A large ring keeps
    /// the rest for those who have looked already: however long each of them takes, it adds only
    /// once to what it saw.
    pub const fn limit(&self) -> u64 {
        if self.shard_bytes >= Self::LARGE {
            self.shard_bytes / 8 * 7
        } else {
            self.shard_bytes
        }
    }
    /// A record of `bytes`, header included, may be reserved by looking and adding, without a CAS.
    pub const fn adds(&self, bytes: u64) -> bool {
        self.shard_bytes >= Self::LARGE && Self::IN_FLIGHT * bytes <= self.shard_bytes / 8
    }
    /// Bytes that a record of `payload` takes. What follows the payload in them is undefined.
    pub const fn record_bytes(payload: u64) -> u64 {
        align_up(Self::HEADER + payload, Self::ALIGN)
    }
    /// Largest payload.
    pub const fn max_payload(&self) -> u64 {
        self.sub_bytes() - Self::HEADER
    }
    // A consumer calls it for every event.
    /// Reads the header of a record for which there are `room` bytes. `None` if no writer writes
    /// such a header there.
    #[inline]
    pub const fn record(header: u32, room: u64) -> Option<RecordHead> {
        let length = (header & Self::LENGTH_MASK) as u64;
        let bytes = Self::record_bytes(length);
        if bytes > room || header >> 31 != 0 {
            return None;
        }
        let skipped = header & (Self::DISCARDED | Self::PADDING) != 0;
        Some(RecordHead {
            bytes,
            payload: if skipped { None } else { Some(length) },
        })
    }
}

/// What the header of a ring's record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Bytes of the record, with its header and what fills it up.
    pub bytes: u64,
    /// Bytes of the payload behind the header. `None` for what readers skip: discarded records and
    /// filler.
    pub payload: Option<u64>,
}

/// A record of `bpf_trace_printk`, `bpf_trace_vprintk` or `bpf_gpu_puts` in the printk ring.
pub mod printk {
    /// u32: session index of the map that holds the format, or [`CARRIED`].
    pub const FORMAT_MAP: u64 = 0;
    /// In [`FORMAT_MAP`]: the format is in the record, behind the arguments, as no map has it.
    pub const CARRIED: u32 = u32::MAX;
    /// u32: byte offset of the format in that map's value; 0 if it is in the record.
    pub const FORMAT_OFFSET: u64 = 4;
    /// u32: format size in bytes with its NUL; 0 if only its NUL tells (`bpf_gpu_puts`). In the
    /// record that many bytes are there, and zeros up to a multiple of 8.
    pub const FORMAT_SIZE: u64 = 8;
    /// u32: number of arguments, 0 to [`crate::format::MAX_VALUES`], or [`VERBATIM`].
    pub const ARGS: u64 = 12;
    /// In [`ARGS`]: the text is no format; a `%` in it is a `%`.
    pub const VERBATIM: u32 = u32::MAX;
    /// u64: %globaltimer.
    pub const TIME: u64 = 16;
    /// u32 ×3: blockIdx.
    pub const BLOCK: u64 = 24;
    /// u32 ×3: threadIdx.
    pub const THREAD: u64 = 36;
    /// u64 per argument, to the record's end or the format's start.
    pub const ARG: u64 = 48;
    /// Bytes of a record's payload with so many arguments, and no format.
    pub const fn size(args: usize) -> u64 {
        ARG + args as u64 * 8
    }
    /// Bytes of a format of `size` bytes in the record.
    pub const fn carried(size: usize) -> u64 {
        (size as u64).next_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::launch;

    #[test]
    fn what_a_launch_record_counts_lies_one_behind_the_other() {
        // 6 blocks of 4 warps.
        let size = |cells, block, warp| launch::size(6, 4, cells, block, warp);
        assert_eq!(size(0, false, false), 0);
        assert_eq!(size(0, true, true), 6 * 4 + 24 * 4);
        assert_eq!(size(3, false, false), 6 * 3 * launch::CELL);
        assert_eq!(
            size(3, true, true),
            size(3, false, false) + size(0, true, true)
        );
        assert_eq!(launch::block_counters(6, 3), size(3, false, false));
        assert_eq!(launch::warp_counters(6, 3, true), size(3, true, false));
        assert_eq!(launch::warp_counters(6, 3, false), size(3, false, false));
        // What atomics touch is aligned, whatever stands in front.
        assert_eq!(launch::CELLS % 8, 0);
        assert_eq!(launch::CELL % 8, 0);
        assert_eq!(launch::CELL_VALUE % 8, 0);
        assert!(!((launch::CELL_VALUE..launch::CELL_VALUE + 8).contains(&launch::CELL_COUNT)));
        assert_eq!(launch::CELL_COUNT % 4, 0);
    }
}
