//! What an agent says of maps, held against what was agreed before anything is made of it: an agent
//! is in somebody else's process, and may say what that process likes.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::MapType;
use warpbpf_maps::MAX_BYTES;
use warpbpf_object::MapDef;
use warpbpf_wire::{DEFAULT_RING_BYTES, MapInfo, SharedReader};

use crate::heard::plan::plan_of;

/// Most copies of a map, one for each multiprocessor.
const MOST_COPIES: u32 = 1 << 12;
/// Most bytes of a key, and of a value.
const MOST_KEY: u32 = 1 << 16;
const MOST_VALUE: u32 = 1 << 30;
/// Most maps of a process.
pub(crate) const MOST_MAPS: usize = 1 << 16;
/// Most bytes of a map that the object does not have: a session adds small ones.
const MOST_ADDED: u64 = 64 << 20;
/// Entries that a layout may have more than the map.
const MORE_ENTRIES: u64 = 1 << 10;

/// All maps of a process as they were announced; `defs` are those of the object, where it is known.
///
/// # Errors
/// Text: which one cannot be, and why.
pub(crate) fn check_maps(infos: &[MapInfo], defs: Option<&[MapDef]>) -> Result<(), String> {
    if infos.len() > MOST_MAPS {
        return Err(format!("it has {} maps", infos.len()));
    }
    for (index, info) in infos.iter().enumerate() {
        let checked = check(info).and_then(|()| match defs {
            None => Ok(()),
            Some(defs) => check_by(info, defs.get(index)),
        });
        checked.map_err(|what| format!("its map `{}` {what}", info.name))?;
    }
    Ok(())
}

/// Nothing in it is more than a map can have, and its parts fit each other.
fn check(info: &MapInfo) -> Result<(), String> {
    let layout = MapLayout::from(info.layout);
    if info.key_size > MOST_KEY || info.value_size > MOST_VALUE {
        let (key, value) = (info.key_size, info.value_size);
        return Err(format!("has keys of {key} and values of {value} bytes"));
    }
    let Some(most) = most_bytes(&layout) else {
        return Err("has a layout that no map has".into());
    };
    if most > u128::from(MAX_BYTES) * 8 || layout.size() > MAX_BYTES {
        return Err(format!("would have {most} bytes"));
    }
    if let Some(map_type) = MapType::from_number(info.map_type)
        && !fits(map_type, &layout)
    {
        return Err(format!(
            "is of type {} and is not laid out so",
            map_type.name()
        ));
    }
    let fields = info.summed.iter().chain(&info.added);
    let inside = |offset: u32, size: u32| {
        (size == 4 || size == 8)
            && offset
                .checked_add(size)
                .is_some_and(|end| u64::from(end) <= u64::from(info.value_size).next_multiple_of(8))
    };
    if fields
        .into_iter()
        .any(|field| !inside(field.offset, field.size))
    {
        return Err("has sums outside of its values".into());
    }
    let bytes = plan_of(info).map_or(info.bytes, |plan| plan.snapshot_bytes());
    // One that comes by a replacement may not be copied at all.
    match info.bytes == 0 || bytes == info.bytes {
        true => Ok(()),
        false => Err(format!(
            "would have {bytes} bytes, and {} are said",
            info.bytes
        )),
    }
}

/// It is the map that the object has in its place, or a small one that it does not have.
fn check_by(info: &MapInfo, def: Option<&MapDef>) -> Result<(), String> {
    let Some(def) = def else {
        return match info.bytes <= MOST_ADDED {
            true => Ok(()),
            false => Err(format!("is not the object's, and has {} bytes", info.bytes)),
        };
    };
    let said = (
        info.name.as_str(),
        info.map_type,
        info.key_size,
        info.value_size,
        info.max_entries,
    );
    let known = (
        def.name.as_str(),
        def.map_type,
        def.key_size,
        def.value_size,
        def.max_entries,
    );
    if said != known {
        return Err(format!("is not that of the object, `{}`", def.name));
    }
    let most = u64::from(def.max_entries)
        .saturating_mul(8)
        .saturating_add(MORE_ENTRIES);
    match entries(&MapLayout::from(info.layout)) <= most {
        true => Ok(()),
        false => Err("has more entries than the object says".into()),
    }
}

fn entries(layout: &MapLayout) -> u64 {
    match layout {
        MapLayout::Array(l) => l.max_entries.into(),
        MapLayout::Hash(l) => l.max_entries.into(),
        MapLayout::Lru(l) => l.max_entries.into(),
        MapLayout::PerThread(l) => l.max_entries.into(),
        MapLayout::Queue(l) => l.max_entries.into(),
        MapLayout::Bloom(l) => l.max_entries.into(),
        MapLayout::Hosted(l) => l.max_entries.into(),
        // Of bytes, which are bounded as such.
        MapLayout::Ring(_) | MapLayout::UserRing(_) => 0,
    }
}

/// More than the bytes of a layout, without overflow. `None` where a number is none that a layout
/// has.
fn most_bytes(layout: &MapLayout) -> Option<u128> {
    let sized = |size: u32| {
        (1..=MOST_VALUE)
            .contains(&size)
            .then(|| u128::from(size) + 64)
    };
    let keyed = |size: u32| {
        (1..=MOST_KEY)
            .contains(&size)
            .then(|| u128::from(size) + 64)
    };
    let copied = |copies: u32| {
        (1..=MOST_COPIES)
            .contains(&copies)
            .then(|| u128::from(copies))
    };
    let many = |entries: u32| (entries > 0).then(|| u128::from(entries));
    Some(match layout {
        MapLayout::Array(l) => {
            let bytes = (u128::from(l.value_size).next_multiple_of(8) * many(l.max_entries)?) + 128;
            sized(l.value_size)?;
            bytes * copied(l.shards)?
        }
        MapLayout::Hash(l) => {
            many(l.max_entries)? * (keyed(l.key_size)? + sized(l.value_size)? * copied(l.copies)?)
        }
        MapLayout::Lru(l) => {
            many(l.max_entries)? * (keyed(l.key_size)? + sized(l.value_size)? * copied(l.copies)?)
        }
        MapLayout::Ring(l) => u128::from(l.shard_bytes) * copied(l.shards)?,
        MapLayout::PerThread(l) => {
            sized(l.value_size)?;
            let value = u128::from(l.value_size).next_multiple_of(8);
            value
                .checked_mul(many(l.max_entries)?)?
                .checked_mul(u128::from(l.threads).max(1))?
        }
        MapLayout::Queue(l) => many(l.max_entries)? * sized(l.value_size)?,
        MapLayout::Bloom(l) => {
            (1..=1024).contains(&l.hashes).then_some(())?;
            sized(l.value_size)?;
            many(l.max_entries)? * 64
        }
        MapLayout::Hosted(l) => many(l.max_entries)? * (keyed(l.key_size)? + sized(l.value_size)?),
        MapLayout::UserRing(l) => u128::from(l.bytes),
    })
}

/// A map of this type may be laid out so.
fn fits(map_type: MapType, layout: &MapLayout) -> bool {
    use MapType as T;
    match layout {
        MapLayout::Ring(_) => matches!(map_type, T::Ringbuf | T::PerfEventArray | T::GpuRingbuf),
        MapLayout::UserRing(_) => map_type == T::UserRingbuf,
        MapLayout::Queue(_) => matches!(map_type, T::Queue | T::Stack),
        MapLayout::Bloom(_) => map_type == T::BloomFilter,
        MapLayout::Lru(_) => matches!(map_type, T::LruHash | T::LruPercpuHash),
        MapLayout::PerThread(_) => matches!(map_type, T::PerThreadArray | T::PerThreadHostArray),
        MapLayout::Array(_) | MapLayout::Hash(_) | MapLayout::Hosted(_) => !matches!(
            map_type,
            T::Ringbuf
                | T::PerfEventArray
                | T::GpuRingbuf
                | T::UserRingbuf
                | T::Queue
                | T::Stack
                | T::BloomFilter
                | T::LruHash
                | T::LruPercpuHash
        ),
    }
}

/// Most bytes of the memory with these maps, and a ring of as many bytes as was requested, or more
/// where two parts of a map's ring need more.
pub(crate) fn most_shared(infos: &[MapInfo], ring: Option<u64>) -> u64 {
    const PAGE: u64 = 4096;
    let parts = infos.iter().map(|info| match MapLayout::from(info.layout) {
        MapLayout::Ring(l) => 2 * l.shard_bytes + 1,
        _ => 0,
    });
    let ring = ring
        .unwrap_or(DEFAULT_RING_BYTES)
        .max(parts.max().unwrap_or(0));
    let ring = ring.clamp(PAGE, 1 << 40);
    let maps = infos
        .iter()
        .map(|info| 2 * info.bytes.next_multiple_of(PAGE) + 64);
    maps.fold(ring.next_power_of_two() + 2 * PAGE, u64::saturating_add)
}

/// Memory with maps has those that were announced, from the one with the number `first` on.
///
/// # Errors
/// Text: which has another size.
pub(crate) fn check_shared(
    shared: &SharedReader,
    infos: &[MapInfo],
    first: usize,
) -> Result<(), String> {
    let announced = infos.get(first..).unwrap_or_default();
    for map in 0..shared.maps() {
        let there = shared.snapshot_bytes(map).unwrap_or(0);
        // One more than were announced by now is not looked at before it is.
        if let Some(info) = announced.get(map)
            && info.bytes != there
        {
            return Err(format!(
                "its map `{}` has {there} bytes, and {} were said",
                info.name, info.bytes
            ));
        }
    }
    Ok(())
}
