//! What a map is, from what the agent sent of it.

use std::collections::BTreeMap;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{MapType, Placement};
use warpbpf_maps::MapPlan;
use warpbpf_object::{MapDef, MapKind};
use warpbpf_wire::MapInfo;

/// The plan that a view needs, from what the agent sent; `None` for a type that is not known here.
#[doc(hidden)]
pub fn plan_of(info: &MapInfo) -> Option<MapPlan> {
    Some(MapPlan {
        name: info.name.clone(),
        map_type: MapType::from_number(info.map_type)?,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        read_only: false,
        layout: MapLayout::from(info.layout),
        sum_fields: info.summed.iter().map(|f| (*f).into()).collect(),
        added: info.added.iter().map(|f| (*f).into()).collect(),
        not_summed: None,
        placement: Placement::Device,
        image: Vec::new(),
        further: Vec::new(),
    })
}

/// The definition of a map of which no object is known, from what the agent sent: its keys and
/// values have no types.
#[doc(hidden)]
pub fn untyped_map(info: &MapInfo) -> MapDef {
    MapDef {
        name: info.name.clone(),
        map_type: info.map_type,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}
