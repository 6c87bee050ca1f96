//! What lies in memory: for each map of a script one map of the object, and two more for what the
//! tool must know.

use warpbpf_abi::maps::MapType;

use crate::typed::{Kind, Map};

/// The ring that takes what programs ask the tool for.
pub const RECORDS: &str = "records";
/// What was lost: an entry for each map, and one for loops that were ended.
pub const LOST: &str = "lost";
/// Bytes of the ring, in all.
const RING: u32 = 8 << 20;

/// A map of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laid {
    /// Its name.
    pub name: String,
    /// Its type.
    pub map_type: MapType,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries.
    pub entries: u32,
}

/// All maps of the object. Those of the script come first, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The maps.
    pub maps: Vec<Laid>,
    /// Index of [`LOST`].
    pub lost: usize,
    /// Index of [`RECORDS`].
    pub records: usize,
}

/// A map without a key of its own is an array, so that additions to it are cheap. A histogram in
/// one has its bucket as the index.
pub fn is_array(map: &Map) -> bool {
    map.key.is_empty()
}

/// Offset of what an aggregate keeps in a value of the map: behind the count, if there is one.
pub fn offset(map: &Map) -> i16 {
    match map.kind {
        Kind::Avg | Kind::Stats => 8,
        // A key that is there was given a value. An array's entry is always there, so it is
        // counted.
        Kind::Min | Kind::Max if is_array(map) => 8,
        _ => 0,
    }
}

/// Bytes of a value.
pub fn value_size(map: &Map) -> u32 {
    offset(map) as u32 + 8
}

/// Lays out the maps of a script; hashes have room for `keys` keys.
pub fn layout(maps: &[Map], keys: u32) -> Layout {
    let mut all: Vec<Laid> = maps.iter().map(|map| laid(map, keys)).collect();
    let lost = all.len();
    all.push(Laid {
        name: LOST.to_owned(),
        map_type: MapType::Array,
        key_size: 4,
        value_size: 8,
        entries: maps.len() as u32 + 1,
    });
    all.push(Laid {
        name: RECORDS.to_owned(),
        map_type: MapType::Ringbuf,
        key_size: 0,
        value_size: 0,
        entries: RING,
    });
    Layout {
        maps: all,
        lost,
        records: lost + 1,
    }
}

fn laid(map: &Map, keys: u32) -> Laid {
    let (map_type, key_size, entries) = match is_array(map) {
        true => (MapType::Array, 4, map.kind.buckets().unwrap_or(1)),
        false => {
            let words: usize = map.key.iter().map(|ty| ty.words()).sum();
            let bucket = usize::from(map.kind.buckets().is_some());
            (MapType::Hash, 8 * (words + bucket) as u32, keys)
        }
    };
    Laid {
        name: map.name.clone(),
        map_type,
        key_size,
        value_size: value_size(map),
        entries,
    }
}
