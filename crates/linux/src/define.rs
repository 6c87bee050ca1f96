//! What an object says of maps: which programs have them, and what Linux is asked to make.

use std::collections::BTreeSet;

use warpbpf_abi::maps::MapType;
use warpbpf_object::{InitialValue, MapDef, Object, Program};

use crate::memory::PAGE;
use crate::spec::Spec;

/// Maps that programs name, and those that are in them from the start.
pub fn maps_of_all<'p>(
    object: &Object,
    programs: impl IntoIterator<Item = &'p Program>,
) -> BTreeSet<u32> {
    let named: BTreeSet<u32> = programs.into_iter().flat_map(Program::maps).collect();
    let held = named
        .iter()
        .filter_map(|map| object.maps.get(*map as usize));
    let held = held.flat_map(|def| &def.initial);
    let held = held.filter_map(|entry| match entry.value {
        InitialValue::Map(map) => Some(map),
        InitialValue::Program(_) => None,
    });
    let held: Vec<u32> = held.collect();
    named.into_iter().chain(held).collect()
}

/// What cannot be had by both sides.
pub(crate) fn unshared(spec: &Spec) -> Option<&'static str> {
    if spec.is_row() {
        return Some("a queue, a stack or a bloom filter");
    }
    match spec.kind() {
        Some(MapType::ArrayOfMaps | MapType::HashOfMaps) => Some("a map of maps"),
        _ => None,
    }
}

/// As libbpf fills in what definitions leave out.
pub(crate) fn spec_of(def: &MapDef, cpus: u32) -> Spec {
    let mut spec = Spec {
        map_type: def.map_type,
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        flags: def.flags,
        extra: def.extra.get("map_extra").copied().unwrap_or(0),
    };
    let kind = spec.kind();
    if kind == Some(MapType::PerfEventArray) {
        for size in [&mut spec.key_size, &mut spec.value_size] {
            *size = if *size == 0 { 4 } else { *size };
        }
        if spec.max_entries == 0 {
            spec.max_entries = cpus;
        }
    }
    if kind == Some(MapType::Ringbuf) {
        spec.max_entries = ring_bytes(spec.max_entries);
    }
    spec
}

/// Bytes of a ring: a power of two, and whole pages.
fn ring_bytes(wanted: u32) -> u32 {
    let pages = PAGE as u32;
    wanted
        .max(pages)
        .checked_next_power_of_two()
        .unwrap_or(wanted)
}
