//! From a definition to a layout: everything that can be refused is refused here, before any memory
//! is asked for.

use warpbpf_abi::layout::{ArrayLayout, MapLayout};
pub use warpbpf_abi::maps::Placement;
use warpbpf_abi::maps::{MAP_TYPES, MapType, PLACE, unserved};
use warpbpf_object::{MapDef, MapKind};

use crate::error::MapError;
use crate::map_plan::{Hardware, MapPlan, SumUse, Write};
use crate::{array, bloom, hash, hosted, inner, lru, per_thread, percpu, queue, ring, user_ring};

/// Types that can be forced to the host: what has a fixed place for each value is reached there,
/// what has keys is asked for. All others would need atomics that the device and the host do
/// together, or waits without a bound.
const HOST_TYPES: &[MapType] = &[
    MapType::Array,
    MapType::PercpuArray,
    MapType::PerThreadArray,
    MapType::GpuArray,
    MapType::GpuKernelArray,
    MapType::PerThreadHostArray,
    MapType::GpuHostArray,
    MapType::Hash,
    MapType::GpuHash,
];

/// `BPF_F_NO_PREALLOC`: about host memory, so without effect here.
pub(crate) const F_NO_PREALLOC: u32 = 1;
/// `BPF_F_NO_COMMON_LRU`: a list of keys for each CPU; without effect here, where keys are dropped
/// bucket by bucket.
pub(crate) const F_NO_COMMON_LRU: u32 = 1 << 1;
/// `BPF_F_NUMA_NODE`: about host memory, so without effect here.
pub(crate) const F_NUMA_NODE: u32 = 1 << 2;
/// `BPF_F_RDONLY_PROG`: the verifier holds programs to it.
pub(crate) const F_RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`: the data sections carry it; host reads are copies anyway.
pub(crate) const F_MMAPABLE: u32 = 1 << 10;

/// Checks `def` and lays it out for a device of `sms` multiprocessors of which nothing else is
/// known. See [`plan_on`].
///
/// # Errors
/// As [`plan_on`].
pub fn plan(def: &MapDef, sms: u32, uses: &[SumUse]) -> Result<MapPlan, MapError> {
    let hardware = Hardware {
        sms,
        wide_atomics: false,
    };
    plan_on(def, hardware, uses)
}

/// Checks `def` and lays it out for a device. `uses` has one element per program that names the
/// map; an array that all of them only add to gets a copy per multiprocessor.
///
/// # Errors
/// [`MapError`] names the map, the attribute and what to change.
pub fn plan_on(def: &MapDef, hardware: Hardware, uses: &[SumUse]) -> Result<MapPlan, MapError> {
    let Hardware { sms, wide_atomics } = hardware;
    let sms = sms.max(1);
    let map_type = MapType::from_number(def.map_type).ok_or_else(|| unknown_type(def))?;
    check_attributes(def, map_type)?;
    let mut plan = MapPlan {
        name: def.name.clone(),
        map_type,
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        read_only: def.flags & F_RDONLY_PROG != 0,
        layout: MapLayout::Array(ArrayLayout {
            max_entries: 0,
            value_size: 0,
            shards: 1,
            summed: false,
        }),
        sum_fields: Vec::new(),
        added: Vec::new(),
        not_summed: None,
        placement: placement(def)?,
        image: Vec::new(),
        further: Vec::new(),
    };
    if let MapKind::Data { read_only, .. } = def.kind {
        plan.read_only |= read_only;
    }
    match map_type {
        MapType::Array => array::plan(def, sms, uses, &mut plan)?,
        MapType::PercpuArray => percpu::plan(def, sms, &mut plan)?,
        MapType::PerThreadArray => per_thread::plan(def, &mut plan)?,
        MapType::Hash | MapType::GpuHash if def.is_asked_for() => {
            hosted::plan(def, map_type, &mut plan)?;
        }
        MapType::Hash | MapType::GpuHash => {
            hash::plan(def, map_type, 1, wide_atomics, &mut plan)?;
        }
        MapType::PercpuHash => hash::plan(def, map_type, sms, false, &mut plan)?,
        MapType::LruHash => lru::plan(def, map_type, 1, &mut plan)?,
        MapType::LruPercpuHash => lru::plan(def, map_type, sms, &mut plan)?,
        MapType::Ringbuf => ring::plan(def, sms, &mut plan)?,
        MapType::PerfEventArray | MapType::GpuRingbuf => {
            ring::plan_events(def, map_type, sms, &mut plan)?;
        }
        MapType::ArrayOfMaps | MapType::HashOfMaps => {
            inner::plan(def, map_type, wide_atomics, &mut plan)?
        }
        MapType::Queue | MapType::Stack => queue::plan(def, map_type, &mut plan)?,
        MapType::BloomFilter => bloom::plan(def, &mut plan)?,
        MapType::GpuArray | MapType::GpuKernelArray | MapType::GpuHostArray => {
            // One copy, as bpftime's own: nobody asked for sums.
            array::plan(def, sms, &[], &mut plan)?;
        }
        MapType::PerThreadHostArray => per_thread::plan(def, &mut plan)?,
        MapType::UserRingbuf => user_ring::plan(def, &mut plan)?,
    }
    let keyed = matches!(
        map_type,
        MapType::Hash | MapType::GpuHash | MapType::LruHash
    );
    if keyed && !uses.iter().any(|u| u.more_than_adds) {
        // Fields that do not fit are the array's affair: then nothing is summed.
        plan.added = array::fields(def.value_size, uses).unwrap_or_default();
    }
    plan.further.clone_from(&plan.image);
    if !plan.image.is_empty() {
        // The variables of a section: one value, at its beginning.
        plan.further.extend(plan.added.iter().map(|field| Write {
            offset: u64::from(field.offset),
            bytes: vec![0; field.size as usize],
        }));
    }
    Ok(plan)
}

/// Whose memory a map is to lie in: what the user chose, else what the type says.
///
/// # Errors
/// [`MapError`]: the type is not served, or cannot lie there.
pub fn placement(def: &MapDef) -> Result<Placement, MapError> {
    let map_type = MapType::from_number(def.map_type).ok_or_else(|| unknown_type(def))?;
    let of_type = match map_type {
        MapType::GpuKernelArray | MapType::PerThreadHostArray | MapType::GpuHostArray => {
            Placement::Host
        }
        _ => Placement::Device,
    };
    let wanted = match def.extra.get(PLACE) {
        None | Some(0) => return Ok(of_type),
        Some(&number) => Placement::from_number(number).ok_or_else(|| MapError::Attribute {
            map: def.name.clone(),
            map_type: map_type.name(),
            attribute: PLACE.to_owned(),
            value: number,
        })?,
    };
    if wanted == Placement::Host && !HOST_TYPES.contains(&map_type) {
        return Err(MapError::Host {
            map: def.name.clone(),
            map_type: map_type.name(),
            possible: HOST_TYPES
                .iter()
                .map(|t| t.name())
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    Ok(wanted)
}

fn unknown_type(def: &MapDef) -> MapError {
    if let Some((name, advice)) = unserved(def.map_type) {
        return MapError::LinuxType {
            map: def.name.clone(),
            number: def.map_type,
            name,
            advice,
        };
    }
    MapError::UnknownType {
        map: def.name.clone(),
        number: def.map_type,
        served: MAP_TYPES
            .iter()
            .map(|(t, name)| format!("{name} ({})", *t as u32))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn check_attributes(def: &MapDef, map_type: MapType) -> Result<(), MapError> {
    let known = F_NUMA_NODE
        | match map_type {
            MapType::Array => F_RDONLY_PROG | F_MMAPABLE,
            MapType::PercpuArray | MapType::PerThreadArray => F_RDONLY_PROG,
            MapType::Hash | MapType::GpuHash | MapType::PercpuHash => F_NO_PREALLOC,
            // Where its nodes are is not for the author to choose: each SM takes from all.
            MapType::LruHash | MapType::LruPercpuHash => F_NO_COMMON_LRU,
            MapType::Ringbuf => 0,
            MapType::GpuArray | MapType::GpuKernelArray | MapType::GpuHostArray => {
                F_RDONLY_PROG | F_MMAPABLE
            }
            MapType::PerThreadHostArray => F_RDONLY_PROG,
            MapType::HashOfMaps => F_NO_PREALLOC,
            MapType::PerfEventArray
            | MapType::ArrayOfMaps
            | MapType::Queue
            | MapType::Stack
            | MapType::BloomFilter
            | MapType::UserRingbuf
            | MapType::GpuRingbuf => 0,
        };
    let bits = def.flags & !known;
    if bits != 0 {
        return Err(MapError::Flags {
            map: def.name.clone(),
            map_type: map_type.name(),
            bits,
        });
    }
    for (attribute, value) in &def.extra {
        let known = match attribute.as_str() {
            "numa_node" | PLACE => true,
            "map_extra" => {
                *value == 0
                    || matches!(
                        map_type,
                        MapType::PerThreadArray
                            | MapType::PerThreadHostArray
                            | MapType::BloomFilter
                            | MapType::Ringbuf
                            | MapType::PerfEventArray
                            | MapType::GpuRingbuf
                    )
            }
            _ => *value == 0,
        };
        if !known {
            return Err(MapError::Attribute {
                map: def.name.clone(),
                map_type: map_type.name(),
                attribute: attribute.clone(),
                value: *value,
            });
        }
    }
    let of_maps = matches!(map_type, MapType::ArrayOfMaps | MapType::HashOfMaps);
    if !of_maps && (def.inner.is_some() || !def.initial.is_empty()) {
        return Err(MapError::Initial {
            map: def.name.clone(),
            map_type: map_type.name(),
        });
    }
    Ok(())
}
