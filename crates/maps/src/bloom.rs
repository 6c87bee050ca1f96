//! BLOOM_FILTER: bits that values set. It may say yes to a value that was never put in, and never
//! no to one that was.

use std::collections::BTreeMap;

use warpbpf_abi::layout::{BloomLayout, MapLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::checks::check_bytes;
use crate::error::MapError;
use crate::map_plan::{MapPlan, Write};
use crate::queue::check_keyless;

pub(crate) fn plan(def: &MapDef, plan: &mut MapPlan) -> Result<(), MapError> {
    check_keyless(def, MapType::BloomFilter)?;
    let extra = def.extra.get("map_extra").copied().unwrap_or(0);
    let hashes = match u32::try_from(extra) {
        Ok(0) => BloomLayout::DEFAULT_HASHES,
        Ok(n) if n <= BloomLayout::MAX_HASHES => n,
        Ok(_) | Err(_) => {
            return Err(MapError::Hashes {
                map: def.name.clone(),
                found: extra,
                most: BloomLayout::MAX_HASHES,
            });
        }
    };
    let layout = BloomLayout {
        max_entries: def.max_entries,
        value_size: def.value_size,
        hashes,
    };
    check_bytes(
        def,
        || format!("`max_entries` {} x {hashes} hashes", def.max_entries),
        u128::from(layout.size()),
        "lower `max_entries`",
    )?;
    plan.layout = MapLayout::Bloom(layout);
    Ok(())
}

/// Every bit of the value is set.
pub(crate) fn contains(layout: &BloomLayout, bytes: &[u8], value: &[u8]) -> bool {
    layout
        .places(value)
        .all(|bit| bytes[bit as usize / 8] >> (bit % 8) & 1 != 0)
}

/// The writes that put a value in.
pub(crate) fn put(layout: &BloomLayout, bytes: &[u8], value: &[u8]) -> Vec<Write> {
    let mut changed: BTreeMap<usize, u8> = BTreeMap::new();
    for bit in layout.places(value) {
        let at = bit as usize / 8;
        *changed.entry(at).or_insert(bytes[at]) |= 1 << (bit % 8);
    }
    changed
        .into_iter()
        .map(|(at, byte)| Write {
            offset: at as u64,
            bytes: vec![byte],
        })
        .collect()
}
