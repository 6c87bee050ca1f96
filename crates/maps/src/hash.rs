//! HASH: open addressing over nodes, as `HashLayout` tells it. The host reads any snapshot, and changes a map while no
//! kernel runs; compaction takes back the slots and nodes of deleted keys.

use warpbpf_abi::layout::{HashLayout, MapLayout};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, MapType};
use warpbpf_object::MapDef;

use crate::bytes::{put, slice, u32_at, u64_at};
use crate::plan::{check_bytes, check_filled, stride};
use crate::{AccessError, MapError, MapPlan, Write};

/// Longest key in bytes: what a program's stack can hold.
pub const MAX_KEY: u32 = 512;
/// Most entries: node numbers must stay below the mark of a deleted slot.
pub const MAX_ENTRIES: u32 = 1 << 30;

pub(crate) fn plan(def: &MapDef, plan: &mut MapPlan) -> Result<(), MapError> {
    check_filled(def, MapType::Hash)?;
    if def.key_size == 0 || def.key_size > MAX_KEY {
        return Err(MapError::KeySize {
            map: def.name.clone(),
            map_type: MapType::Hash.name(),
            found: def.key_size,
            wanted: "1 to 512",
        });
    }
    let entries = u128::from(def.max_entries);
    let slots = (entries * 4).next_power_of_two().max(256);
    let nodes = entries * 2 + 1024;
    let bytes = slots * 8 + nodes * (stride(def.key_size) + stride(def.value_size));
    let what = || {
        format!(
            "{nodes} nodes of key {} + value {} bytes and {slots} slots for `max_entries` {}",
            def.key_size, def.value_size, def.max_entries
        )
    };
    check_bytes(def, what, bytes, "lower `max_entries` or `value_size`")?;
    if def.max_entries > MAX_ENTRIES {
        return Err(MapError::TooLarge {
            map: def.name.clone(),
            what: what(),
            bytes,
            limit: crate::MAX_BYTES,
            advice: "lower `max_entries` to 2^30 at most",
        });
    }
    plan.layout = MapLayout::Hash(HashLayout {
        max_entries: def.max_entries,
        key_size: def.key_size,
        value_size: def.value_size,
    });
    Ok(())
}

/// A key and its value in a snapshot.
pub(crate) struct Node<'a> {
    slot: u64,
    node: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// All keys of the snapshot, in slot order. A slot whose node does not hold a key of its tag is left out: it was
/// published while the copy was under way, behind the copy's back.
pub(crate) fn nodes<'a>(
    layout: &HashLayout,
    bytes: &'a [u8],
) -> impl Iterator<Item = Node<'a>> + use<'a> {
    let layout = *layout;
    (0..layout.slots()).filter_map(move |slot| node_of(&layout, bytes, slot))
}

fn node_of<'a>(layout: &HashLayout, bytes: &'a [u8], slot: u64) -> Option<Node<'a>> {
    let word = u64_at(bytes, HashLayout::SLOTS + slot * 8);
    if word == 0 || word == HashLayout::DELETED {
        return None;
    }
    let node = (word & 0xffff_ffff).checked_sub(1)?;
    if node >= layout.nodes() {
        return None;
    }
    let at = layout.nodes_at() + node * layout.node_stride();
    let key = slice(bytes, at, u64::from(layout.key_size));
    if layout.hash(key) >> 32 != word >> 32 {
        return None;
    }
    let value = slice(
        bytes,
        at + layout.key_stride(),
        u64::from(layout.value_size),
    );
    Some(Node {
        slot,
        node,
        key,
        value,
    })
}

/// The slots that a probe for `key` visits, in order.
fn probe(layout: &HashLayout, key: &[u8]) -> impl Iterator<Item = u64> + use<> {
    let (first, slots) = (layout.hash(key), layout.slots());
    (0..u64::from(HashLayout::PROBES)).map(move |i| first.wrapping_add(i) & (slots - 1))
}

/// The node of `key`, as a device lookup finds it.
pub(crate) fn find<'a>(layout: &HashLayout, bytes: &'a [u8], key: &[u8]) -> Option<Node<'a>> {
    probe(layout, key)
        .take_while(|slot| u64_at(bytes, HashLayout::SLOTS + slot * 8) != 0)
        .filter_map(|slot| node_of(layout, bytes, slot))
        .find(|node| node.key == key)
}

/// Updates refused because the map was full, and operations given up because a bound was reached.
pub(crate) fn counters(bytes: &[u8]) -> (u64, u64) {
    (
        u64_at(bytes, HashLayout::COUNT_FULL),
        u64_at(bytes, HashLayout::COUNT_BUSY),
    )
}

/// The writes that give `key` its value in a quiet map. A map that has used up its nodes or the slots near the key is
/// compacted, and then the only write is all of it.
pub(crate) fn store(
    map: &str,
    layout: &HashLayout,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    let name = || map.to_owned();
    if let Some(node) = find(layout, bytes, key) {
        if flags == BPF_NOEXIST {
            return Err(AccessError::Exists { map: name() });
        }
        let at = layout.nodes_at() + node.node * layout.node_stride() + layout.key_stride();
        return Ok(vec![Write {
            offset: at,
            bytes: value.to_vec(),
        }]);
    }
    match flags {
        BPF_ANY | BPF_NOEXIST => {}
        BPF_EXIST => return Err(AccessError::Missing { map: name() }),
        _ => {
            return Err(AccessError::Unsupported {
                map: name(),
                map_type: MapType::Hash.name(),
                what: format!("an update with flags {flags:#x}"),
            });
        }
    }
    if u32_at(bytes, HashLayout::LIVE) >= layout.max_entries {
        return Err(AccessError::Full {
            map: name(),
            why: format!("`max_entries` is {}", layout.max_entries),
        });
    }
    if let Some(writes) = insert(layout, bytes, key, value) {
        return Ok(writes);
    }
    let mut fresh = compact(map, layout, bytes)?;
    let writes = insert(layout, &fresh, key, value).ok_or_else(|| AccessError::Busy {
        map: name(),
        probes: HashLayout::PROBES,
    })?;
    for write in writes {
        put(&mut fresh, write.offset, &write.bytes);
    }
    Ok(vec![Write {
        offset: 0,
        bytes: fresh,
    }])
}

/// Node, counts, then the slot that publishes it. `None` without a free node or a never used slot in reach.
fn insert(layout: &HashLayout, bytes: &[u8], key: &[u8], value: &[u8]) -> Option<Vec<Write>> {
    let node = u64::from(u32_at(bytes, HashLayout::NEXT_NODE));
    if node >= layout.nodes() {
        return None;
    }
    let slot = probe(layout, key).find(|slot| u64_at(bytes, HashLayout::SLOTS + slot * 8) == 0)?;
    let mut content = vec![0; layout.node_stride() as usize];
    put(&mut content, 0, key);
    put(&mut content, layout.key_stride(), value);
    let live = u32_at(bytes, HashLayout::LIVE) + 1;
    let word = (layout.hash(key) >> 32) << 32 | (node + 1);
    Some(vec![
        Write {
            offset: layout.nodes_at() + node * layout.node_stride(),
            bytes: content,
        },
        Write {
            offset: HashLayout::LIVE,
            bytes: live.to_le_bytes().to_vec(),
        },
        Write {
            offset: HashLayout::NEXT_NODE,
            bytes: (node as u32 + 1).to_le_bytes().to_vec(),
        },
        Write {
            offset: HashLayout::SLOTS + slot * 8,
            bytes: word.to_le_bytes().to_vec(),
        },
    ])
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
    let live = u32_at(bytes, HashLayout::LIVE).saturating_sub(1);
    Ok(vec![
        Write {
            offset: HashLayout::SLOTS + node.slot * 8,
            bytes: HashLayout::DELETED.to_le_bytes().to_vec(),
        },
        Write {
            offset: HashLayout::LIVE,
            bytes: live.to_le_bytes().to_vec(),
        },
    ])
}

/// The whole map anew: the keys of `bytes` and the counters of refusals, without what deleted keys left behind. The map
/// must be quiet, and `bytes` as long as the layout.
///
/// # Errors
/// [`AccessError::Busy`] if so many keys collide that a bounded probe would not find one of them again;
/// [`AccessError::Snapshot`] if `bytes` has another length.
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
        let writes =
            insert(layout, &fresh, node.key, node.value).ok_or_else(|| AccessError::Busy {
                map: map.to_owned(),
                probes: HashLayout::PROBES,
            })?;
        for write in writes {
            put(&mut fresh, write.offset, &write.bytes);
        }
    }
    Ok(fresh)
}
