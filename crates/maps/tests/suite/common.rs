//! What the tests share: definitions of maps.

use std::collections::BTreeMap;

use warpbpf_object::{MapDef, MapKind};

/// A map `m` of a type by number, without anything special.
pub fn def(map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: "m".to_owned(),
        map_type,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}
