//! ARRAY_OF_MAPS and HASH_OF_MAPS: an array or a hash whose values name other maps of the session,
//! as `warpbpf_abi::layout::inner` tells it. For the host a value is 4 bytes, the map's index in
//! the session plus one, where Linux has a file descriptor or an id; its address on the device is
//! filled in once that is known ([`resolve`]).

use warpbpf_abi::layout::{HashLayout, inner};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, MapType, PLACE};
use warpbpf_object::{InitialValue, MapDef};

use crate::bytes::{put, u32_at};
use crate::error::{AccessError, MapError};
use crate::map_plan::{MapPlan, Write};
use crate::part::{Part, check_key, check_value};
use crate::value::Value;
use crate::{array, change, hash};

/// Types that a map in a map can have.
const INNER: &[MapType] = &[
    MapType::Array,
    MapType::PercpuArray,
    MapType::Hash,
    MapType::Ringbuf,
    MapType::Queue,
    MapType::Stack,
    MapType::BloomFilter,
    MapType::GpuArray,
];

pub(crate) fn plan(
    def: &MapDef,
    map_type: MapType,
    wide_atomics: bool,
    plan: &mut MapPlan,
) -> Result<(), MapError> {
    let problem = |problem: String| MapError::Inner {
        map: def.name.clone(),
        problem,
    };
    if def.value_size != 4 {
        return Err(problem(format!(
            "`value_size` is {} but a value names a map in 4 bytes",
            def.value_size
        )));
    }
    let Some(template) = &def.inner else {
        return Err(problem(
            "its definition does not say what the maps in it are like; declare `__array(values, struct { … })`".to_owned(),
        ));
    };
    if !is_possible(template) {
        let names: Vec<&str> = INNER.iter().map(|t| t.name()).collect();
        return Err(problem(format!(
            "maps of type {} cannot be in it; possible are {}",
            MapType::from_number(template.map_type)
                .map_or_else(|| template.map_type.to_string(), |t| t.name().to_owned()),
            names.join(", ")
        )));
    }
    let plain = MapDef {
        map_type: plain_type(map_type) as u32,
        value_size: inner::VALUE,
        inner: None,
        initial: Vec::new(),
        ..def.clone()
    };
    if map_type == MapType::HashOfMaps {
        hash::plan(&plain, MapType::Hash, 1, wide_atomics, plan)?;
    } else {
        array::plan(&plain, 1, &[], plan)?;
    }
    initial(def, plan)
}

/// The type that a map of maps is stored as.
fn plain_type(map_type: MapType) -> MapType {
    match map_type {
        MapType::HashOfMaps => MapType::Hash,
        _ => MapType::Array,
    }
}

/// The plan of the map that a map of maps is stored as.
fn plain(plan: &MapPlan) -> MapPlan {
    MapPlan {
        map_type: plain_type(plan.map_type),
        value_size: inner::VALUE,
        ..plan.clone()
    }
}

fn is_possible(template: &MapDef) -> bool {
    MapType::from_number(template.map_type).is_some_and(|t| INNER.contains(&t))
}

/// The declared values become the image.
fn initial(def: &MapDef, plan: &mut MapPlan) -> Result<(), MapError> {
    if def.initial.is_empty() {
        return Ok(());
    }
    let problem = |problem: String| MapError::Inner {
        map: def.name.clone(),
        problem,
    };
    if def.key_size != 4 {
        return Err(problem(format!(
            "initial values have keys of 4 bytes, not {}; put the maps in after loading",
            def.key_size
        )));
    }
    let mut bytes = vec![0; plan.bytes() as usize];
    for entry in &def.initial {
        let InitialValue::Map(map) = entry.value else {
            return Err(problem(format!(
                "the initial value of key {} is no map",
                entry.index
            )));
        };
        let key = entry.index.to_le_bytes();
        let writes = store(plan, &bytes, &key, &(map + 1).to_le_bytes(), 0).map_err(|error| {
            problem(format!("the initial value of key {}: {error}", entry.index))
        })?;
        for write in writes {
            put(&mut bytes, write.offset, &write.bytes);
            plan.image.push(write);
        }
    }
    Ok(())
}

/// The writes that give `key` the map of `value`, an index plus one, without its address.
pub(crate) fn store(
    plan: &MapPlan,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    Part::new(plan, bytes)?;
    check_key(plan, key)?;
    check_value(plan, value)?;
    let mut word = vec![0; inner::VALUE as usize];
    put(&mut word, inner::INDEX, value);
    change::update(&plain(plan), bytes, key, &word, flags)
}

/// The writes that give `key` the map of `value`, an index plus one, which lies at `address`, while
/// programs look for maps in `plan`: they must be done in order, each before the next one begins. A
/// program reads the address alone, and a key's place is whole before its slot is published, so it
/// finds the map before, or this one, or none. `bytes` is all of the map; programs write nothing
/// there.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's; [`AccessError::Busy`] where a hash
/// would have to be made anew for the key.
pub fn store_live(
    plan: &MapPlan,
    bytes: &[u8],
    key: &[u8],
    (value, address): (u32, u64),
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    let mut word = vec![0; inner::VALUE as usize];
    put(&mut word, inner::ADDRESS, &address.to_le_bytes());
    put(&mut word, inner::INDEX, &value.to_le_bytes());
    let writes = change::update(&plain(plan), bytes, key, &word, flags)?;
    let anew = |write: &Write| write.bytes.len() as u64 == plan.bytes();
    if plan.map_type == MapType::HashOfMaps && writes.iter().any(anew) {
        return Err(AccessError::Busy {
            map: plan.name.clone(),
            probes: HashLayout::PROBES,
        });
    }
    Ok(writes)
}

/// The writes that take the map of `key` out, under the same conditions as [`store_live`].
pub(crate) fn remove(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Result<Vec<Write>, AccessError> {
    if Part::new(plan, bytes)?
        .lookup(key)?
        .and_then(shown)
        .is_none()
    {
        return Err(AccessError::Missing {
            map: plan.name.clone(),
        });
    }
    match plan.map_type {
        MapType::HashOfMaps => change::delete(&plain(plan), bytes, key),
        _ => store_live(plan, bytes, key, (0, 0), BPF_ANY),
    }
}

/// A value as the host sees it; `None` where no map was put.
pub(crate) fn shown(value: Value) -> Option<Value> {
    match value {
        Value::One(bytes) => match u32_at(&bytes, inner::INDEX) {
            0 => None,
            index => Some(Value::One(index.to_le_bytes().to_vec())),
        },
        Value::PerSm(_) | Value::PerThread(_) => None,
    }
}

/// The plan is of a map whose values name maps.
pub fn is_outer(plan: &MapPlan) -> bool {
    matches!(plan.map_type, MapType::ArrayOfMaps | MapType::HashOfMaps)
}

/// The writes that complete the image of a map of maps: the address of each map that is in it.
/// `address` gives that of a map of the session, `None` if there is no such map; such a value stays
/// null for programs.
pub fn resolve(plan: &MapPlan, address: impl Fn(u32) -> Option<u64>) -> Vec<Write> {
    if !is_outer(plan) || plan.image.is_empty() {
        return Vec::new();
    }
    let mut bytes = vec![0; plan.bytes() as usize];
    for write in &plan.image {
        put(&mut bytes, write.offset, &write.bytes);
    }
    let plain = plain(plan);
    let Ok(part) = Part::new(&plain, &bytes) else {
        return Vec::new();
    };
    let mut writes = Vec::new();
    for entry in part.entries() {
        if let Value::One(mut value) = entry.value
            && let Some(index) = u32_at(&value, inner::INDEX).checked_sub(1)
            && let Some(address) = address(index)
        {
            put(&mut value, inner::ADDRESS, &address.to_le_bytes());
            // The key is there, so this writes its value and nothing else.
            writes.extend(
                change::update(&plain, &bytes, &entry.key, &value, BPF_EXIST).unwrap_or_default(),
            );
        }
    }
    writes
}

/// Whether `def` can be in `outer`, as Linux asks: type, sizes, number of entries, flags and
/// `map_extra` are those that `outer` declares, because programs are compiled for them.
///
/// # Errors
/// [`MapError::InnerMismatch`] names both maps and what differs.
pub fn check(outer: &MapDef, def: &MapDef) -> Result<(), MapError> {
    let Some(template) = &outer.inner else {
        return Ok(());
    };
    let extra = |def: &MapDef| def.extra.get("map_extra").copied().unwrap_or(0);
    // A hash that is asked for is another kind of map to a program; an array is the same wherever
    // it lies.
    let asked = |def: &MapDef| u64::from(def.is_asked_for());
    let attributes = [
        (
            "type",
            u64::from(template.map_type),
            u64::from(def.map_type),
        ),
        ("key_size", template.key_size.into(), def.key_size.into()),
        (
            "value_size",
            template.value_size.into(),
            def.value_size.into(),
        ),
        (
            "max_entries",
            template.max_entries.into(),
            def.max_entries.into(),
        ),
        ("map_flags", template.flags.into(), def.flags.into()),
        ("map_extra", extra(template), extra(def)),
        (PLACE, asked(template), asked(def)),
    ];
    match attributes
        .into_iter()
        .find(|(_, want, found)| want != found)
    {
        None => Ok(()),
        Some((what, wanted, found)) => Err(MapError::InnerMismatch {
            outer: outer.name.clone(),
            map: def.name.clone(),
            what,
            wanted,
            found,
        }),
    }
}

/// Checks every map that is declared as a value of another.
///
/// # Errors
/// The first [`MapError::InnerMismatch`].
pub fn check_all(defs: &[MapDef]) -> Result<(), MapError> {
    for outer in defs {
        for entry in &outer.initial {
            if let InitialValue::Map(map) = entry.value
                && let Some(def) = defs.get(map as usize)
            {
                check(outer, def)?;
            }
        }
    }
    Ok(())
}

/// The map of maps that map `index` is or could be put into: programs then find it there, compiled
/// for one copy.
pub fn outer_of(defs: &[MapDef], index: usize) -> Option<&str> {
    let def = defs.get(index)?;
    defs.iter()
        .find(|outer| outer.inner.is_some() && check(outer, def).is_ok())
        .map(|outer| outer.name.as_str())
}
