//! HASH, GPU_HASH and PERCPU_HASH: open addressing, as `HashLayout` tells it. The host reads any
//! snapshot, and changes a map while no kernel runs; compaction takes back what deleted keys and
//! overwritten values left behind.

use std::borrow::Cow;

use warpbpf_abi::layout::{HashLayout, MapLayout, hash};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, MapType};
use warpbpf_object::MapDef;

use crate::bytes::{put, slice, u32_at, u64_at};
use crate::checks::{check_bytes, check_filled, stride};
use crate::dense;
use crate::error::{AccessError, MapError};
use crate::map_plan::{MapPlan, Write};
use crate::probe::probe;
use crate::value::Value;

/// Longest key in bytes: what a program's stack can hold.
pub const MAX_KEY: u32 = 512;
/// Most entries: a slot counts nodes in 30 bits.
pub const MAX_ENTRIES: u32 = HashLayout::MAX_ENTRIES;

pub(crate) fn plan(
    def: &MapDef,
    map_type: MapType,
    copies: u32,
    wide_atomics: bool,
    plan: &mut MapPlan,
) -> Result<(), MapError> {
    check_key(def, map_type)?;
    let layout = HashLayout {
        max_entries: def.max_entries,
        key_size: def.key_size,
        value_size: def.value_size,
        copies,
        dense: wide_atomics && HashLayout::fits_dense(def.key_size, def.value_size, copies),
    };
    let node = stride(def.key_size) + stride(def.value_size) * u128::from(copies);
    // The layout's own sums are of 64 bits, and a node may be too large for them.
    let in_slots = layout.dense || 8 + node <= u128::from(HashLayout::HOME_BYTES);
    let slot = if in_slots { layout.slot_stride() } else { 8 };
    let bytes = u128::from(layout.slots()) * u128::from(slot) + u128::from(layout.nodes()) * node;
    let what = || {
        let nodes = layout.nodes() + if in_slots { layout.slots() } else { 0 };
        format!(
            "{nodes} nodes of {} and {} slots for `max_entries` {}",
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
        "lower `max_entries` to 2^28 at most",
        what,
    )?;
    plan.layout = MapLayout::Hash(layout);
    Ok(())
}

/// `key 4 + value 8 bytes`, with the number of copies if there are several.
pub(crate) fn node_in_words(def: &MapDef, copies: u32) -> String {
    let times = match copies {
        1 => String::new(),
        n => format!(" x {n} multiprocessors"),
    };
    format!(
        "key {} + value {} bytes{times}",
        def.key_size, def.value_size
    )
}

/// A key of a size that programs can pass, a value, some entries.
pub(crate) fn check_key(def: &MapDef, map_type: MapType) -> Result<(), MapError> {
    check_filled(def, map_type)?;
    if def.key_size == 0 || def.key_size > MAX_KEY {
        return Err(MapError::KeySize {
            map: def.name.clone(),
            map_type: map_type.name(),
            found: def.key_size,
            wanted: "1 to 512",
        });
    }
    Ok(())
}

/// Refuses more entries than words can count.
pub(crate) fn check_entries(
    def: &MapDef,
    most: u32,
    bytes: u128,
    advice: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), MapError> {
    if def.max_entries <= most {
        return Ok(());
    }
    Err(MapError::TooLarge {
        map: def.name.clone(),
        what: what(),
        bytes,
        limit: crate::map_plan::MAX_BYTES,
        advice,
    })
}

/// A key and its values in a snapshot.
pub(crate) struct Node<'a> {
    slot: u64,
    /// The slot's word.
    word: u64,
    /// Where the values are.
    values_at: u64,
    pub(crate) key: Cow<'a, [u8]>,
    /// All copies of the value.
    values: &'a [u8],
}

impl Node<'_> {
    /// Its value, or those of the multiprocessors.
    pub(crate) fn value(&self, map_type: MapType, size: u32) -> Value {
        shown(map_type, size, self.values)
    }
}

/// The copies of a value as they are shown: types that have one for each multiprocessor show all,
/// on a device with one multiprocessor too.
pub(crate) fn shown(map_type: MapType, size: u32, copies: &[u8]) -> Value {
    let stride = size.next_multiple_of(8) as usize;
    let mut values = copies
        .chunks(stride)
        .map(|copy| copy[..size as usize].to_vec());
    if matches!(map_type, MapType::PercpuHash | MapType::LruPercpuHash) {
        Value::PerSm(values.collect())
    } else {
        Value::One(values.next().unwrap_or_default())
    }
}

/// All copies of a value that the host gives. `value` is one value, for every multiprocessor, or as
/// in Linux one per multiprocessor, each padded to 8 bytes.
pub(crate) fn given(
    map: &str,
    size: u32,
    copies: u32,
    value: &[u8],
) -> Result<Vec<u8>, AccessError> {
    let stride = size.next_multiple_of(8) as usize;
    let all = stride * copies as usize;
    if value.len() == size as usize {
        let mut one = value.to_vec();
        one.resize(stride, 0);
        return Ok(one.repeat(copies as usize));
    }
    if copies > 1 && value.len() == all {
        return Ok(value.to_vec());
    }
    Err(AccessError::Value {
        map: map.to_owned(),
        expected: if copies > 1 { all as u64 } else { size.into() },
        found: value.len(),
    })
}

/// All keys of the snapshot, in slot order. A slot whose node does not hold a key of its tag is
/// left out: it was published while the copy was under way, behind the copy's back.
pub(crate) fn nodes<'a>(
    layout: &HashLayout,
    bytes: &'a [u8],
) -> impl Iterator<Item = Node<'a>> + use<'a> {
    let layout = *layout;
    (0..layout.slots()).filter_map(move |slot| node_of(&layout, bytes, slot))
}

/// Every key with its first value, as [`nodes`] gives them, for maps so large that what is computed
/// per slot counts: keys of the usual sizes are hashed without a loop.
pub(crate) fn each(layout: &HashLayout, bytes: &[u8], each: impl FnMut(&[u8], &[u8])) {
    if layout.dense {
        return dense::each(layout, bytes, each);
    }
    fn fixed<const N: usize>(key: &[u8]) -> u64 {
        key.first_chunk::<N>().map_or(0, |key| hash(key))
    }
    match layout.key_size {
        4 => walk(layout, bytes, fixed::<4>, each),
        8 => walk(layout, bytes, fixed::<8>, each),
        16 => walk(layout, bytes, fixed::<16>, each),
        _ => walk(layout, bytes, hash, each),
    }
}

fn walk(
    layout: &HashLayout,
    bytes: &[u8],
    hash: impl Fn(&[u8]) -> u64,
    mut each: impl FnMut(&[u8], &[u8]),
) {
    let (stride, homes) = (layout.slot_stride() as usize, layout.homes());
    let (key_size, value_size) = (layout.key_size as usize, layout.value_size as usize);
    let value_at = layout.key_stride() as usize;
    let all = slice(
        bytes,
        HashLayout::SLOTS,
        layout.slots() * layout.slot_stride(),
    );
    // Which slots of a part hold a key is found out first, without a branch: where half of them do,
    // a processor guesses half of those branches wrong, and that takes longer than all else.
    const PART: usize = 256;
    let mut with_key = [0; PART];
    for (part, places) in all.chunks(PART * stride).enumerate() {
        let mut n = 0;
        for (i, place) in places.chunks_exact(stride).enumerate() {
            let word = u64_at(place, 0);
            with_key[n] = i;
            n += usize::from(word != 0 && word & HashLayout::CLAIMED == 0);
        }
        for &i in &with_key[..n] {
            let place = &places[i * stride..(i + 1) * stride];
            let word = u64_at(place, 0);
            let node = if homes && word & HashLayout::PLACE == HashLayout::HOME {
                &place[8..]
            } else if let Some(at) = layout.node_of((part * PART + i) as u64, word) {
                slice(bytes, at, layout.node_stride())
            } else {
                continue;
            };
            let key = &node[..key_size];
            if hash(key) >> 32 == word >> 32 {
                each(key, &node[value_at..value_at + value_size]);
            }
        }
    }
}

fn node_of<'a>(layout: &HashLayout, bytes: &'a [u8], slot: u64) -> Option<Node<'a>> {
    let word = u64_at(bytes, layout.slot(slot));
    let (key, values_at) = if layout.dense {
        let key = dense::key(layout, slot, word)?;
        let key = key[..layout.key_size as usize].to_vec();
        (key.into(), layout.slot(slot) + HashLayout::DENSE_VALUE)
    } else {
        let at = layout.node_of(slot, word)?;
        let key = slice(bytes, at, u64::from(layout.key_size));
        if hash(key) >> 32 != word >> 32 {
            return None;
        }
        (key.into(), at + layout.key_stride())
    };
    let values = layout.value_stride() * u64::from(layout.copies);
    Some(Node {
        slot,
        word,
        values_at,
        key,
        values: slice(bytes, values_at, values),
    })
}

/// The node of `key`, as a device lookup finds it.
pub(crate) fn find<'a>(layout: &HashLayout, bytes: &'a [u8], key: &[u8]) -> Option<Node<'a>> {
    probe(layout, hash(key))
        .take_while(|slot| u64_at(bytes, layout.slot(*slot)) != 0)
        .filter_map(|slot| node_of(layout, bytes, slot))
        .find(|node| *node.key == *key)
}

/// Bytes of slots that a lookup reads first: nearly every probe ends there, and they cost as much
/// as one slot does.
const NEAR: u64 = 1024;

/// The value of `key` in a map that may change meanwhile: `read` fills bytes with what lies from an
/// offset of it, mostly once, and at most five times unless tags collide. Each of the slots in the
/// key's reach is read at most once, and the nodes that may be the key's where they lie apart; each
/// aligned word is one that was there.
pub(crate) fn look_up<E>(
    layout: &HashLayout,
    map_type: MapType,
    key: &[u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<Value>, E> {
    let (hash, slots, stride) = (hash(key), layout.slots(), layout.slot_stride());
    let reach = u64::from(HashLayout::PROBES).min(slots);
    let near = (NEAR / stride).clamp(1, reach);
    let mut window = Vec::with_capacity((near * stride) as usize);
    let size = layout.value_stride() * u64::from(layout.copies);
    let mut apart = vec![0; layout.node_stride() as usize];
    for (step, slot) in probe(layout, hash).take(reach as usize).enumerate() {
        let have = window.len() / stride as usize;
        if step == have {
            let more = if have == 0 { near } else { reach - near };
            read_slots(layout, slot, more, &mut window, &mut read)?;
        }
        let place = &window[step * stride as usize..][..stride as usize];
        let word = u64_at(place, 0);
        if word == 0 {
            break;
        }
        let values = if layout.dense {
            match dense::key(layout, slot, word) {
                Some(found) if found[..key.len()] == *key => {
                    slice(place, HashLayout::DENSE_VALUE, size)
                }
                _ => continue,
            }
        } else {
            let Some(at) = layout
                .node_of(slot, word)
                .filter(|_| word >> 32 == hash >> 32)
            else {
                continue;
            };
            let node = if at == layout.slot(slot) + 8 {
                &place[8..]
            } else {
                read(at, &mut apart)?;
                &apart
            };
            if node[..key.len()] != *key {
                continue;
            }
            slice(node, layout.key_stride(), size)
        };
        return Ok(Some(shown(map_type, layout.value_size, values)));
    }
    Ok(None)
}

/// Appends `count` slots from `slot` on to `window`, those behind the last one being the first.
fn read_slots<E>(
    layout: &HashLayout,
    slot: u64,
    count: u64,
    window: &mut Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (stride, had) = (layout.slot_stride(), window.len());
    window.resize(had + (count * stride) as usize, 0);
    let first = count.min(layout.slots() - slot);
    let (head, wrapped) = window[had..].split_at_mut((first * stride) as usize);
    read(layout.slot(slot), head)?;
    if !wrapped.is_empty() {
        read(layout.slot(0), wrapped)?;
    }
    Ok(())
}

/// Updates refused because the map was full, and operations given up because a bound was reached.
pub(crate) fn counters(bytes: &[u8]) -> (u64, u64) {
    (
        u64_at(bytes, HashLayout::COUNT_FULL),
        u64_at(bytes, HashLayout::COUNT_BUSY),
    )
}

fn used(bytes: &[u8], shard: u32) -> i32 {
    u32_at(bytes, HashLayout::control(shard) + HashLayout::USED) as i32
}

/// The shard that counts one key more: the one with most room, so that lanes of every
/// multiprocessor find some near by.
fn room(layout: &HashLayout, bytes: &[u8]) -> Option<u32> {
    let left = |shard| i64::from(layout.quota(shard)) - i64::from(used(bytes, shard));
    (0..HashLayout::SHARDS)
        .rev()
        .max_by_key(|shard| left(*shard))
        .filter(|shard| left(*shard) > 0)
}

/// Nodes that a shard has handed out; more than it has if lanes asked in vain.
fn next_node(bytes: &[u8], shard: u32) -> u32 {
    u32_at(bytes, HashLayout::control(shard) + HashLayout::NEXT_NODE)
}

/// The write that sets what a shard counts; nothing is pending in a quiet map.
fn count(shard: u32, used: i32) -> Write {
    Write {
        offset: HashLayout::control(shard) + HashLayout::USED,
        bytes: i64::from(used).to_le_bytes().to_vec(),
    }
}

/// What to do with a key, by the flags of an update: Linux's errors, or whether it may be made.
pub(crate) fn check_flags(
    map: &str,
    map_type: MapType,
    flags: u64,
    exists: bool,
) -> Result<(), AccessError> {
    let map = map.to_owned();
    match (flags, exists) {
        (BPF_ANY, _) | (BPF_EXIST, true) | (BPF_NOEXIST, false) => Ok(()),
        (BPF_NOEXIST, true) => Err(AccessError::Exists { map }),
        (BPF_EXIST, false) => Err(AccessError::Missing { map }),
        _ => Err(AccessError::Unsupported {
            map,
            map_type: map_type.name(),
            what: format!("an update with flags {flags:#x}"),
        }),
    }
}

/// The writes that give `key` its value in a quiet map; `values` are all copies. A map that has
/// used up its nodes or the slots near the key is compacted, and then the only write is all of it.
pub(crate) fn store(
    plan: &MapPlan,
    layout: &HashLayout,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    let map = plan.name.as_str();
    let values = given(map, layout.value_size, layout.copies, value)?;
    let node = find(layout, bytes, key);
    check_flags(map, plan.map_type, flags, node.is_some())?;
    if let Some(node) = node {
        return Ok(vec![Write {
            offset: node.values_at,
            bytes: values,
        }]);
    }
    let Some(room) = room(layout, bytes) else {
        return Err(AccessError::Full {
            map: map.to_owned(),
            why: format!("`max_entries` is {}", layout.max_entries),
        });
    };
    if let Some(mut writes) = insert(layout, bytes, key, &values) {
        // Before the slot, which publishes it.
        writes.insert(writes.len() - 1, count(room, used(bytes, room) + 1));
        return Ok(writes);
    }
    let mut fresh = compact(map, layout, bytes)?;
    store_fresh(layout, &mut fresh, key, &values).ok_or_else(|| busy(map))?;
    Ok(vec![Write {
        offset: 0,
        bytes: fresh,
    }])
}

fn busy(map: &str) -> AccessError {
    AccessError::Busy {
        map: map.to_owned(),
        probes: HashLayout::PROBES,
    }
}

/// Inserts and counts a key that is not there.
fn store_fresh(layout: &HashLayout, fresh: &mut [u8], key: &[u8], values: &[u8]) -> Option<()> {
    let mut writes = insert(layout, fresh, key, values)?;
    let room = room(layout, fresh)?;
    writes.push(count(room, used(fresh, room) + 1));
    for write in writes {
        put(fresh, write.offset, &write.bytes);
    }
    Some(())
}

/// The place, then the slot that publishes it. `None` without a free node, or without a slot in
/// reach that is the key's or was never used.
fn insert(layout: &HashLayout, bytes: &[u8], key: &[u8], values: &[u8]) -> Option<Vec<Write>> {
    let hash = hash(key);
    if layout.dense {
        return dense::insert(layout, bytes, hash, values);
    }
    let tag = hash >> 32 << 32;
    // A claim that nobody made good, because its kernel was ended, is as good as a dead slot; if it
    // has no place yet, as an empty one, but then the home may be half full.
    let claimed = tag | HashLayout::CLAIMED;
    let (slot, word, own) = probe(layout, hash).find_map(|slot| {
        let word = u64_at(bytes, layout.slot(slot));
        if word == 0 || word == claimed {
            return Some((slot, word, None));
        }
        let own = layout
            .place_of(slot, word)
            .filter(|_| word >> 32 << 32 == tag)?;
        let there = slice(bytes, own, u64::from(layout.key_size));
        (there == key).then_some((slot, word, Some(own)))
    })?;
    let mut writes = Vec::new();
    let (at, low) = if let Some(own) = own {
        (own, word & HashLayout::PLACE)
    } else if layout.homes() && word == 0 {
        (layout.slot(slot) + 8, HashLayout::HOME)
    } else {
        let (shard, next) = (0..HashLayout::SHARDS)
            .map(|shard| (shard, next_node(bytes, shard)))
            .min_by_key(|(_, next)| *next)
            .filter(|(_, next)| u64::from(*next) < layout.shard_nodes())?;
        writes.push(Write {
            offset: HashLayout::control(shard) + HashLayout::NEXT_NODE,
            bytes: (next + 1).to_le_bytes().to_vec(),
        });
        let node = u64::from(shard) * layout.shard_nodes() + u64::from(next);
        (layout.node(node), node + HashLayout::FIRST_NODE)
    };
    let mut content = vec![0; layout.node_stride() as usize];
    put(&mut content, 0, key);
    put(&mut content, layout.key_stride(), values);
    writes.push(Write {
        offset: at,
        bytes: content,
    });
    writes.push(Write {
        offset: layout.slot(slot),
        bytes: (tag | low).to_le_bytes().to_vec(),
    });
    Some(writes)
}

/// The bit of a slot's word that says that its key is not there.
fn gone(layout: &HashLayout) -> u64 {
    if layout.dense {
        HashLayout::GONE
    } else {
        HashLayout::DEAD
    }
}

/// The writes that remove `key` from a quiet map.
pub(crate) fn remove(
    map: &str,
    layout: &HashLayout,
    bytes: &[u8],
    key: &[u8],
) -> Result<Vec<Write>, AccessError> {
    let node = find(layout, bytes, key).ok_or_else(|| AccessError::Missing {
        map: map.to_owned(),
    })?;
    Ok(vec![
        Write {
            offset: layout.slot(node.slot),
            bytes: (node.word | gone(layout)).to_le_bytes().to_vec(),
        },
        count(0, used(bytes, 0) - 1),
    ])
}

/// The whole map anew: the keys of `bytes` and the counters of refusals, without what deleted keys
/// and overwritten values left behind. The map must be quiet, and `bytes` as long as the layout. An
/// LRU map never needs it.
///
/// # Errors
/// [`AccessError::Busy`] if so many keys collide that a bounded probe would not find one of them
/// again; [`AccessError::Snapshot`] if `bytes` has another length.
pub fn compact(map: &str, layout: &HashLayout, bytes: &[u8]) -> Result<Vec<u8>, AccessError> {
    if bytes.len() as u64 != layout.size() {
        return Err(AccessError::Snapshot {
            map: map.to_owned(),
            expected: layout.size(),
            found: bytes.len() as u64,
        });
    }
    let mut fresh = vec![0; bytes.len()];
    for at in [HashLayout::COUNT_FULL, HashLayout::COUNT_BUSY] {
        put(&mut fresh, at, slice(bytes, at, 8));
    }
    for node in nodes(layout, bytes) {
        store_fresh(layout, &mut fresh, &node.key, node.values).ok_or_else(|| busy(map))?;
    }
    Ok(fresh)
}

/// The beginning of a map by which [`wants_compaction`] can tell: all counters, and as many slots
/// as give a fair picture, for keys are spread over them by their hash.
pub fn sample(layout: &HashLayout) -> u64 {
    layout.slot(layout.slots().min(SAMPLE))
}

/// Slots of a sample.
const SAMPLE: u64 = 4096;

/// Whether a map has used up so much that updates may soon give up (`-EBUSY`), and compaction would
/// help: a quarter of the slots belong to keys that are gone (at most a half can be others'), or
/// three quarters of the pool are handed out (at most half of it holds values). `bytes` are the map
/// or a [`sample`] of it.
pub fn wants_compaction(layout: &HashLayout, bytes: &[u8]) -> bool {
    let slots = (bytes.len() as u64).saturating_sub(HashLayout::SLOTS) / layout.slot_stride();
    let slots = slots.min(layout.slots());
    let handed_out: u64 = (0..HashLayout::SHARDS)
        .map(|shard| u64::from(next_node(bytes, shard)).min(layout.shard_nodes()))
        .sum();
    let gone = || {
        (0..slots)
            .filter(|slot| u64_at(bytes, layout.slot(*slot)) & gone(layout) != 0)
            .count() as u64
    };
    handed_out * 4 > layout.nodes() * 3 || gone() * 4 > slots
}
