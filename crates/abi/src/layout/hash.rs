//! The hash family. Two ways to lay a hash out: one for maps whose keys stay until they are
//! deleted, and one for maps that drop what was not used lately. In both no lane waits for another,
//! and a key is there at most once.

use crate::align::align_up;

/// HASH and PERCPU_HASH: open addressing. What follows is about slots that are not *dense*;
/// `dense_word` tells where those differ. A slot is a word (u64) and, where a node is small, room
/// for one behind it, its *home*: a lookup then finds word, key and value in one sector.
///
/// The word is 0 when never used, else `tag << 32 | state | place`. The place
/// ([`HashLayout::PLACE`]) is
/// - 0: none yet;
/// - [`HashLayout::HOME`]: key and value are in the home;
/// - `n + FIRST_NODE`: they are in node `n` of the pool.
///
/// The state is none of the bits of [`HashLayout::CLAIMED`] while the key is there;
/// [`HashLayout::DEAD`] when it was deleted; both bits while a lane that has *claimed* the slot
/// prepares to put the key there.
///
/// **A slot belongs to one key** from its first claim on, until the map is compacted. A key's own
/// slot is the first one of its probe that belongs to it, or, if it has none, the first one that is
/// empty or was claimed with its tag and has no place yet. All slots before that one belong to
/// other keys and will do so; so whoever looks for the key, whenever, comes to the same slot, and
/// the key is there at most once. (A slot that another tag has claimed will never be this key's, so
/// going past it is safe.) Where there is a place, it holds the slot's key, and a place that was
/// ever in a slot's word holds that key for good.
///
/// **Insert.** A lane first finds room ([`HashLayout::quota`]), so a key that is refused uses up no
/// slot. Then it claims its slot: empty or dead → claimed, by a CAS; it fills a place and
/// publishes: claimed → there, by a CAS that releases. The place is the home of an empty slot, or
/// the place that the slot has, where values are written in place; else it is a new node of the
/// pool, which is filled first and needs no claim. Who finds the slot claimed looks again a few
/// times after a pause, and then does not wait but fills a node of the pool and puts that in the
/// place of the claim, published. The claimant's CAS then fails; the room it found is that key's,
/// and it looks again and finds the key. What it claimed is not used again, for it may still be
/// writing there. A place is filled before it is published, so nobody sees half a key or half a
/// value.
///
/// **Overwrite.** A value of at most 8 bytes is stored in place, by one store. A larger one goes
/// into a new node, and the word is swapped by a CAS; a lane whose CAS fails was overtaken by
/// another overwrite or a delete and is done: its value was there, for no time. The copies of a
/// per-SM value are written in place, word by word.
///
/// **Delete** sets [`HashLayout::DEAD`] by an atomic OR, whose answer tells whether the key was
/// there: a claim has the bit already. A pointer that a lane holds stays one to the key that it
/// looked up: where values are written in place, and the key is inserted again, to its new value;
/// elsewhere, to the old one. Nodes that were replaced are not used again until the host compacts a
/// quiet map.
///
/// **Room.** Each shard of the control block has a share of `max_entries` ([`HashLayout::quota`])
/// and counts what was inserted on account of it (in a small map, the first has all); a lane takes
/// from its own SM's shard first, and lanes of a warp take together. A lane counts its key before
/// it claims a slot, and as *pending* until it is published or given up, because another lane may
/// make the same key first. Keys less pending ones are there for certain: only if those are as many
/// as may be is the map full; else who finds no room looks again. A delete gives back to the own
/// shard once the key is gone, so for a moment there is one counted that is not there; the count of
/// a shard may so fall below zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashLayout {
    /// Most keys alive at once.
    pub max_entries: u32,
    /// Key size as declared.
    pub key_size: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// 1, or one per SM: how many values each key has. A lane uses that of its SM; a new key's
    /// others are zero.
    pub copies: u32,
    /// Slots are of another kind, of 16 bytes with key and value in them (see `dense_word`), and
    /// there is no pool. Only where [`HashLayout::fits_dense`] says so.
    pub dense: bool,
}

impl HashLayout {
    /// u64: updates refused because the map was full (`-E2BIG`).
    pub const COUNT_FULL: u64 = 0;
    /// u64: operations given up after [`HashLayout::PROBES`] slots or without a node (`-EBUSY`).
    pub const COUNT_BUSY: u64 = 8;
    /// First shard of the control block: a line each.
    pub const CONTROL: u64 = 128;
    /// Distance of shards.
    pub const CONTROL_STRIDE: u64 = 128;
    /// Shards: `%smid` chooses, modulo this.
    pub const SHARDS: u32 = 32;
    /// Where fewer entries are possible, the first shard counts all: their sum over all, read one
    /// after the other while keys come and go, may never have been.
    pub const COUNTED_APART: u32 = 1024;
    /// In a shard: i64, [`HashLayout::PENDING`] times the keys that are pending, plus keys counted
    /// here less keys given back here, which its lower half is, as an i32. The sum of those over
    /// shards is the number of keys.
    pub const USED: u64 = 0;
    /// A key that is pending, in [`HashLayout::USED`].
    pub const PENDING: u64 = 1 << 32;
    /// In a shard: u32, nodes handed out of its part of the pool since the last compaction.
    pub const NEXT_NODE: u64 = 8;
    /// First slot.
    pub const SLOTS: u64 = Self::CONTROL + Self::SHARDS as u64 * Self::CONTROL_STRIDE;
    /// In a slot's word: its key is not there.
    pub const DEAD: u64 = 1 << 30;
    /// In a slot's word: its key is not there, and a lane is about to put it there.
    /// [`HashLayout::DEAD`] and one bit more.
    pub const CLAIMED: u64 = 3 << 30;
    /// In a slot's word: where its key and value are.
    pub const PLACE: u64 = Self::DEAD - 1;
    /// The home, as a place.
    pub const HOME: u64 = 1;
    /// Node 0 of the pool, as a place.
    pub const FIRST_NODE: u64 = 2;
    /// Most entries: places must stay below the bits of states.
    pub const MAX_ENTRIES: u32 = 1 << 28;
    /// Longest probe, in slots.
    pub const PROBES: u32 = 128;
    /// How often an insert that finds no room looks again while keys are pending. Those that are
    /// for a key which others make too are given back at once, in about a microsecond on a GPU; the
    /// soft GPU may have been interrupted just there by its own system.
    pub const ROOM_LOOKS: u32 = 1 << 14;
    /// Largest slot with a home.
    pub const HOME_BYTES: u64 = 64;

    /// Slots: a power of two, at least four times the live keys; twice where slots have homes, for
    /// then all that is read is in slots, and it should be little.
    pub const fn slots(&self) -> u64 {
        let (times, least) = if self.dense {
            (2, Self::DENSE_SLOTS)
        } else if self.homes() {
            (2, 256)
        } else {
            (4, 256)
        };
        let n = (self.max_entries as u64 * times).next_power_of_two();
        if n < least { least } else { n }
    }
    /// Bytes of a key in a node.
    pub const fn key_stride(&self) -> u64 {
        align_up(self.key_size as u64, 8)
    }
    /// Distance of the copies of a value.
    pub const fn value_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Distance of nodes: key, then the copies of the value.
    pub const fn node_stride(&self) -> u64 {
        self.key_stride() + self.value_stride() * self.copies as u64
    }
    /// Slots have homes.
    pub const fn homes(&self) -> bool {
        !self.dense && 8 + self.node_stride() <= Self::HOME_BYTES
    }
    /// Overwriting swaps nodes.
    pub const fn swaps(&self) -> bool {
        self.copies == 1 && self.value_size > 8
    }
    /// Distance of slots: a power of two, so that one with a home lies in as few sectors as can be.
    pub const fn slot_stride(&self) -> u64 {
        if self.dense {
            Self::DENSE_STRIDE
        } else if self.homes() {
            (8 + self.node_stride()).next_power_of_two()
        } else {
            8
        }
    }
    /// Position of a slot's word. Its home is 8 bytes on.
    pub const fn slot(&self, slot: u64) -> u64 {
        Self::SLOTS + slot * self.slot_stride()
    }
    /// Nodes of each shard of the pool: a multiple of 32. Where slots have homes and nothing is
    /// swapped, only lanes that insert one key at the same time need the pool; dense slots have
    /// none; else twice the keys and some, so that inserts after deletes, and overwrites, succeed
    /// between compactions.
    pub const fn shard_nodes(&self) -> u64 {
        if self.dense {
            return 0;
        }
        let nodes = if self.homes() && !self.swaps() {
            1024
        } else {
            self.max_entries as u64 * 2 + 1024
        };
        align_up(nodes.div_ceil(Self::SHARDS as u64), 32)
    }
    /// Nodes of the pool.
    pub const fn nodes(&self) -> u64 {
        self.shard_nodes() * Self::SHARDS as u64
    }
    /// First node of the pool.
    pub const fn nodes_at(&self) -> u64 {
        align_up(Self::SLOTS + self.slots() * self.slot_stride(), 128)
    }
    /// Position of a node of the pool.
    pub const fn node(&self, node: u64) -> u64 {
        self.nodes_at() + node * self.node_stride()
    }
    /// First u32 of the bitmap of free nodes: bit `n % 32` of word `n / 32` is set while node `n`
    /// was handed out and given back unpublished, because another lane was first. Its value is zero
    /// again. All zero after a compaction.
    pub const fn free_at(&self) -> u64 {
        self.nodes_at() + self.nodes() * self.node_stride()
    }
    /// Words of the bitmap.
    pub const fn free_words(&self) -> u64 {
        self.nodes() / 32
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        align_up(self.free_at() + self.free_words() * 4, 8)
    }
    /// Position of a shard of the control block.
    pub const fn control(shard: u32) -> u64 {
        Self::CONTROL + shard as u64 * Self::CONTROL_STRIDE
    }
    /// Shards that count keys.
    pub const fn counting(&self) -> u32 {
        if self.max_entries < Self::COUNTED_APART {
            1
        } else {
            Self::SHARDS
        }
    }
    /// Keys that are counted in this shard at most.
    pub const fn quota(&self, shard: u32) -> u32 {
        if self.counting() == 1 {
            return if shard == 0 { self.max_entries } else { 0 };
        }
        self.max_entries / Self::SHARDS + (shard < self.max_entries % Self::SHARDS) as u32
    }
    /// Where the key is that a slot belongs to, be it there or not; `None` if it has no place, or
    /// one that does not exist.
    pub const fn place_of(&self, slot: u64, word: u64) -> Option<u64> {
        match word & Self::PLACE {
            Self::HOME if self.homes() => Some(self.slot(slot) + 8),
            place if place >= Self::FIRST_NODE && place - Self::FIRST_NODE < self.nodes() => {
                Some(self.node(place - Self::FIRST_NODE))
            }
            _ => None,
        }
    }
    /// Where the key of a slot's word is; `None` if no key is there.
    pub const fn node_of(&self, slot: u64, word: u64) -> Option<u64> {
        if word & Self::CLAIMED != 0 {
            return None;
        }
        self.place_of(slot, word)
    }
}

/// LRU_HASH and LRU_PERCPU_HASH: buckets of [`LruLayout::WAYS`] slots, each a clock of its own, and
/// nodes that are used again at once.
///
/// A slot is a u64: `tag << TAG_SHIFT | lap << LAP_SHIFT | node`, where node is 0 in an empty slot
/// and else the node's number plus one. The slots of a bucket are written in turn, from the first
/// to the last and round again; each time that a slot is, its lap grows by one (modulo 2^20). So
/// the laps tell where the hand is: at the first slot whose lap is one less than that of the first
/// one, or at the first if all are alike.
///
/// **Insert.** A lane reads all slots of the key's bucket. If the key is not there, it writes the
/// slot at the hand by a CAS from what it saw. As slots are written in turn only, a CAS that
/// succeeds means that nothing was inserted since: the key is there once. If the slot at the hand
/// holds a key and another one is empty, or that key was used lately, the lane only moves the hand,
/// by writing the slot again as it is with its lap one more (at most 16 times); else the new key
/// takes the old one's place. Others may do the same at once, and a lane whose CAS fails looks
/// again, [`LruLayout::TRIES`] times at most.
///
/// **Eviction.** A key that went into an empty slot is counted. If there are more than
/// `max_entries` now, the lane drops another one: a second hand goes over all buckets and takes the
/// first key that was not used since it last came by. It gives up after
/// [`LruLayout::EVICT_BUCKETS`] buckets, of which the later half loses keys even if they were used;
/// then the new key goes again (`-ENOMEM`, counted). While lanes insert, there may be as many more
/// keys as lanes that have not yet dropped one; at rest there are never more than `max_entries`.
///
/// **Used lately** is a word in the node: [`LruLayout::NEW`] when it is filled,
/// [`LruLayout::TOUCHED`] by lookups and overwrites, one less each time that a hand comes by. So a
/// hand spares a new key once and a key that is used twice.
///
/// **Overwrite** swaps a new node in (per-SM values are written in place); **delete** empties the
/// slot. Either leaves the lap as it is.
///
/// **Nodes** that were dropped, swapped out or deleted are free at once, as in Linux; so a pointer
/// that a lane got before may be one to another key's value by then (it stays a value of this map),
/// and an overwrite of a per-SM value may land there if its key is dropped at that instant. What
/// holds: a lookup gives a node only if its key was seen to be the one asked for, and if the key
/// has more than one word, the slot was the same before and after the key was read. Lookups see a
/// key that is there throughout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LruLayout {
    /// Most keys.
    pub max_entries: u32,
    /// Key size as declared.
    pub key_size: u32,
    /// Value size as declared.
    pub value_size: u32,
    /// 1, or one per SM: how many values each key has. A lane uses that of its SM; a new key's
    /// others are zero.
    pub copies: u32,
}

impl LruLayout {
    /// i32: keys that are there. May be beyond `max_entries` by those that lanes are about to drop.
    pub const LIVE: u64 = 0;
    /// u32: the hand that goes over all buckets, modulo their number.
    pub const HAND: u64 = 128;
    /// u64: inserts that found nothing to drop (`-ENOMEM`).
    pub const COUNT_FULL: u64 = 256;
    /// u64: operations given up after [`LruLayout::TRIES`] (`-EBUSY`).
    pub const COUNT_BUSY: u64 = 264;
    /// First slot.
    pub const SLOTS: u64 = 384;
    /// Slots of a bucket.
    pub const WAYS: u64 = 8;
    /// Distance of buckets.
    pub const BUCKET: u64 = Self::WAYS * 8;
    /// Bits of a slot that hold the node's number plus one.
    pub const NODE_MASK: u64 = (1 << Self::LAP_SHIFT) - 1;
    /// Lowest bit of the lap.
    pub const LAP_SHIFT: u32 = 27;
    /// Bits of the lap, where they are in the slot.
    pub const LAP_MASK: u64 = (1 << Self::TAG_SHIFT) - 1 - Self::NODE_MASK;
    /// Lowest bit of the tag.
    pub const TAG_SHIFT: u32 = 47;
    /// How often an operation looks at its bucket.
    pub const TRIES: u32 = 64;
    /// Buckets that an eviction looks at.
    pub const EVICT_BUCKETS: u32 = 64;
    /// Words of the bitmap that a lane looks at for a free node, before it drops a key to get one.
    pub const FREE_SEARCH: u32 = 64;
    /// Most entries: slots count nodes, and some more, in 27 bits.
    pub const MAX_ENTRIES: u32 = 1 << 26;
    /// In a node: u64, how often hands spare it.
    pub const USED: u64 = 0;
    /// In [`LruLayout::USED`]: the key is new.
    pub const NEW: u64 = 1;
    /// In [`LruLayout::USED`]: the key was looked up or overwritten.
    pub const TOUCHED: u64 = 2;
    /// In a node: its key. The value follows.
    pub const KEY: u64 = 8;

    /// Buckets: a power of two, such that there are at least four slots for each key.
    pub const fn buckets(&self) -> u64 {
        (self.max_entries as u64 * 4)
            .div_ceil(Self::WAYS)
            .next_power_of_two()
    }
    /// Slots in all.
    pub const fn slots(&self) -> u64 {
        self.buckets() * Self::WAYS
    }
    /// Bytes of a key in a node.
    pub const fn key_stride(&self) -> u64 {
        align_up(self.key_size as u64, 8)
    }
    /// Distance of the copies of a value.
    pub const fn value_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Distance of nodes: a multiple of 16, so that the mark and the key's first word are read
    /// together.
    pub const fn node_stride(&self) -> u64 {
        align_up(
            Self::KEY + self.key_stride() + self.value_stride() * self.copies as u64,
            16,
        )
    }
    /// Nodes: one for each key, and some for lanes that are about to insert or swap; a multiple
    /// of 32.
    pub const fn nodes(&self) -> u64 {
        let spare = match self.max_entries {
            ..1024 => 1024,
            n if n > 1 << 16 => 1 << 16,
            n => n,
        };
        align_up(self.max_entries as u64 + spare as u64, 32)
    }
    /// First node.
    pub const fn nodes_at(&self) -> u64 {
        align_up(Self::SLOTS + self.slots() * 8, 128)
    }
    /// Position of a node.
    pub const fn node(&self, node: u64) -> u64 {
        self.nodes_at() + node * self.node_stride()
    }
    /// First u32 of the bitmap of nodes in use: bit `n % 32` of word `n / 32`.
    pub const fn taken_at(&self) -> u64 {
        self.nodes_at() + self.nodes() * self.node_stride()
    }
    /// Words of the bitmap.
    pub const fn taken_words(&self) -> u64 {
        self.nodes() / 32
    }
    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        align_up(self.taken_at() + self.taken_words() * 4, 8)
    }
    /// Position of a slot.
    pub const fn slot(&self, bucket: u64, way: u64) -> u64 {
        Self::SLOTS + bucket * Self::BUCKET + way * 8
    }
    /// The number of a slot's node, if it holds one that exists.
    pub const fn node_of(&self, word: u64) -> Option<u64> {
        match (word & Self::NODE_MASK).checked_sub(1) {
            Some(node) if node < self.nodes() => Some(node),
            _ => None,
        }
    }
    /// A slot with its lap one more.
    pub const fn next_lap(word: u64) -> u64 {
        (word & !Self::LAP_MASK) | (word + (1 << Self::LAP_SHIFT)) & Self::LAP_MASK
    }
}
