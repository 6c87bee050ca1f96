//! LRU_HASH and LRU_PERCPU_HASH: buckets of slots that are clocks, as `LruLayout` tells it. The
//! host reads any snapshot, and changes a map while no kernel runs; when it is full, what the host
//! puts in drops another key, as on the device.

use warpbpf_abi::layout::{LruLayout, MapLayout, hash};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::bytes::{slice, u32_at, u64_at};
use crate::checks::{check_bytes, stride};
use crate::error::{AccessError, MapError};
use crate::hash::{check_entries, check_flags, check_key, given, node_in_words, shown};
use crate::map_plan::{MapPlan, Write};
use crate::value::Value;

/// Most entries: a slot counts nodes in 27 bits.
pub const MAX_ENTRIES: u32 = LruLayout::MAX_ENTRIES;

pub(crate) fn plan(
    def: &MapDef,
    map_type: MapType,
    copies: u32,
    plan: &mut MapPlan,
) -> Result<(), MapError> {
    check_key(def, map_type)?;
    let layout = LruLayout {
        max_entries: def.max_entries,
        key_size: def.key_size,
        value_size: def.value_size,
        copies,
    };
    // The layout's own sums are of 64 bits, and a node may be too large for them.
    let node = u128::from(LruLayout::KEY)
        + stride(def.key_size)
        + stride(def.value_size) * u128::from(copies);
    let bytes = u128::from(layout.slots()) * 8 + u128::from(layout.nodes()) * node;
    let what = || {
        format!(
            "{} nodes of {} and {} slots for `max_entries` {}",
            layout.nodes(),
            node_in_words(def, copies),
            layout.slots(),
            def.max_entries
        )
    };
    check_bytes(def, what, bytes, "lower `max_entries` or `value_size`")?;
    check_entries(
        def,
        MAX_ENTRIES,
        bytes,
        "lower `max_entries` to 2^26 at most",
        what,
    )?;
    plan.layout = MapLayout::Lru(layout);
    Ok(())
}

/// A key and its values in a snapshot.
pub(crate) struct Node<'a> {
    /// Position of its slot, and what is there.
    slot: u64,
    word: u64,
    /// Position of the node.
    at: u64,
    pub(crate) key: &'a [u8],
    values: &'a [u8],
}

impl Node<'_> {
    /// Its value, or those of the multiprocessors.
    pub(crate) fn value(&self, map_type: MapType, size: u32) -> Value {
        shown(map_type, size, self.values)
    }
}

/// All keys of the snapshot, in slot order. A slot whose node does not hold a key that belongs
/// there is left out: the node was taken for another key while the copy was under way.
pub(crate) fn nodes<'a>(
    layout: &LruLayout,
    bytes: &'a [u8],
) -> impl Iterator<Item = Node<'a>> + use<'a> {
    let layout = *layout;
    (0..layout.slots())
        .filter_map(move |i| node_of(&layout, bytes, i / LruLayout::WAYS, i % LruLayout::WAYS))
}

fn node_of<'a>(layout: &LruLayout, bytes: &'a [u8], bucket: u64, way: u64) -> Option<Node<'a>> {
    let slot = layout.slot(bucket, way);
    let word = u64_at(bytes, slot);
    let at = layout.node(layout.node_of(word)?);
    let key = slice(bytes, at + LruLayout::KEY, u64::from(layout.key_size));
    let hash = hash(key);
    let tag = LruLayout::TAG_SHIFT;
    if hash >> tag != word >> tag || hash & (layout.buckets() - 1) != bucket {
        return None;
    }
    let values = layout.value_stride() * u64::from(layout.copies);
    Some(Node {
        slot,
        word,
        at,
        key,
        values: slice(bytes, at + LruLayout::KEY + layout.key_stride(), values),
    })
}

/// The node of `key`.
pub(crate) fn find<'a>(layout: &LruLayout, bytes: &'a [u8], key: &[u8]) -> Option<Node<'a>> {
    let bucket = hash(key) & (layout.buckets() - 1);
    (0..LruLayout::WAYS)
        .filter_map(|way| node_of(layout, bytes, bucket, way))
        .find(|node| node.key == key)
}

/// Inserts that found nothing to drop, and operations given up because a bound was reached.
pub(crate) fn counters(bytes: &[u8]) -> (u64, u64) {
    (
        u64_at(bytes, LruLayout::COUNT_FULL),
        u64_at(bytes, LruLayout::COUNT_BUSY),
    )
}

/// The writes that give `key` its value in a quiet map; `value` is as `given` takes it.
pub(crate) fn store(
    plan: &MapPlan,
    layout: &LruLayout,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    let values = given(&plan.name, layout.value_size, layout.copies, value)?;
    let node = find(layout, bytes, key);
    check_flags(&plan.name, plan.map_type, flags, node.is_some())?;
    let mut edit = Edit {
        layout,
        bytes,
        writes: Vec::new(),
    };
    if let Some(node) = node {
        edit.set(node.at + LruLayout::USED, LruLayout::TOUCHED);
        edit.put(node.at + LruLayout::KEY + layout.key_stride(), values);
        return Ok(edit.writes);
    }
    edit.insert(key, values).ok_or_else(|| AccessError::Full {
        map: plan.name.clone(),
        why: "no key could be dropped".to_owned(),
    })?;
    Ok(edit.writes)
}

/// The writes that remove `key` from a quiet map.
pub(crate) fn remove(
    map: &str,
    layout: &LruLayout,
    bytes: &[u8],
    key: &[u8],
) -> Result<Vec<Write>, AccessError> {
    let node = find(layout, bytes, key).ok_or_else(|| AccessError::Missing {
        map: map.to_owned(),
    })?;
    let mut edit = Edit {
        layout,
        bytes,
        writes: Vec::new(),
    };
    edit.drop_key(node.slot, node.word);
    Ok(edit.writes)
}

/// A snapshot with writes that are to come.
struct Edit<'a> {
    layout: &'a LruLayout,
    bytes: &'a [u8],
    writes: Vec<Write>,
}

impl Edit<'_> {
    fn put(&mut self, offset: u64, bytes: Vec<u8>) {
        self.writes.push(Write { offset, bytes });
    }

    /// Sets a u64.
    fn set(&mut self, offset: u64, word: u64) {
        self.put(offset, word.to_le_bytes().to_vec());
    }

    /// A field as it will be. Fields are always written whole.
    fn pending(&self, offset: u64, size: usize) -> Option<&[u8]> {
        self.writes
            .iter()
            .rev()
            .find(|w| w.offset == offset && w.bytes.len() == size)
            .map(|w| w.bytes.as_slice())
    }

    fn u64(&self, offset: u64) -> u64 {
        match self.pending(offset, 8) {
            Some(bytes) => u64_at(bytes, 0),
            None => u64_at(self.bytes, offset),
        }
    }

    fn u32(&self, offset: u64) -> u32 {
        match self.pending(offset, 4) {
            Some(bytes) => u32_at(bytes, 0),
            None => u32_at(self.bytes, offset),
        }
    }

    /// Changes a u32.
    fn change(&mut self, offset: u64, change: impl FnOnce(u32) -> u32) {
        let word = change(self.u32(offset));
        self.put(offset, word.to_le_bytes().to_vec());
    }

    /// The word of the bitmap with a node's bit, and the bit.
    fn bit(&self, node: u64) -> (u64, u32) {
        (self.layout.taken_at() + node / 32 * 4, 1 << (node % 32))
    }

    /// Empties a slot and frees its node.
    fn drop_key(&mut self, slot: u64, word: u64) {
        self.set(slot, word & LruLayout::LAP_MASK);
        self.change(LruLayout::LIVE, |live| live.wrapping_sub(1));
        self.free(word);
    }

    fn free(&mut self, word: u64) {
        if let Some(node) = self.layout.node_of(word) {
            let (at, bit) = self.bit(node);
            self.change(at, |taken| taken & !bit);
        }
    }

    fn take(&mut self) -> Option<u64> {
        let free = |edit: &Self| {
            (0..edit.layout.nodes()).find(|&node| {
                let (at, bit) = edit.bit(node);
                edit.u32(at) & bit == 0
            })
        };
        let node = match free(self) {
            Some(node) => node,
            None => {
                self.evict(u64::MAX)?;
                free(self)?
            }
        };
        let (at, bit) = self.bit(node);
        self.change(at, |taken| taken | bit);
        Some(node)
    }

    fn used(&self, word: u64) -> Option<u64> {
        Some(self.layout.node(self.layout.node_of(word)?) + LruLayout::USED)
    }

    /// Drops a key that is not in the slot `spare`, as the hand that goes over all buckets does.
    fn evict(&mut self, spare: u64) -> Option<()> {
        for round in 0..LruLayout::EVICT_BUCKETS {
            let bucket = u64::from(self.u32(LruLayout::HAND)) & (self.layout.buckets() - 1);
            self.change(LruLayout::HAND, |hand| hand.wrapping_add(1));
            for way in 0..LruLayout::WAYS {
                let slot = self.layout.slot(bucket, way);
                let word = self.u64(slot);
                let Some(used) = self.used(word).filter(|_| slot != spare) else {
                    continue;
                };
                let spared = self.u64(used);
                if spared > 0 && round < LruLayout::EVICT_BUCKETS / 2 {
                    self.set(used, spared - 1);
                    continue;
                }
                self.drop_key(slot, word);
                return Some(());
            }
        }
        None
    }

    /// Puts in a key that is not there. `None` if that needs room and no key can be dropped.
    fn insert(&mut self, key: &[u8], values: Vec<u8>) -> Option<()> {
        let node = self.take()?;
        let at = self.layout.node(node);
        let mut key_bytes = key.to_vec();
        key_bytes.resize(self.layout.key_stride() as usize, 0);
        self.set(at + LruLayout::USED, LruLayout::NEW);
        self.put(at + LruLayout::KEY, key_bytes);
        self.put(at + LruLayout::KEY + self.layout.key_stride(), values);
        let hash = hash(key);
        let (slot, old) = self.turn(hash & (self.layout.buckets() - 1));
        let tag = hash >> LruLayout::TAG_SHIFT << LruLayout::TAG_SHIFT;
        let lap = LruLayout::next_lap(old) & LruLayout::LAP_MASK;
        self.set(slot, tag | lap | (node + 1));
        if self.layout.node_of(old).is_some() {
            self.free(old);
            return Some(());
        }
        self.change(LruLayout::LIVE, |live| live.wrapping_add(1));
        if self.u32(LruLayout::LIVE) > self.layout.max_entries {
            self.evict(slot)?;
        }
        Some(())
    }

    /// Moves a bucket's hand to the slot that a new key is to be written to, and gives its position
    /// and what is there.
    fn turn(&mut self, bucket: u64) -> (u64, u64) {
        let slots = (0..LruLayout::WAYS).map(|way| self.layout.slot(bucket, way));
        let slots: Vec<u64> = slots.collect();
        let words: Vec<u64> = slots.iter().map(|slot| self.u64(*slot)).collect();
        let lap = |word: u64| word & LruLayout::LAP_MASK;
        let hand = words
            .iter()
            .take_while(|w| lap(**w) == lap(words[0]))
            .count();
        let hole = words.iter().any(|w| self.layout.node_of(*w).is_none());
        // Nobody is spared more often than that.
        let rounds = LruLayout::TOUCHED as usize * slots.len();
        for slot in slots.iter().cycle().skip(hand).take(rounds) {
            let word = self.u64(*slot);
            match self.used(word) {
                None => return (*slot, word),
                Some(_) if hole => {}
                Some(used) => match self.u64(used) {
                    0 => return (*slot, word),
                    spared => self.set(used, spared - 1),
                },
            }
            self.set(*slot, LruLayout::next_lap(word));
        }
        let slot = slots[hand % slots.len()];
        (slot, self.u64(slot))
    }
}
