//! One way to read and change maps of every type, for callers that only have a plan and bytes.

use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::MapType;

use crate::bytes::u64_at;
use crate::error::AccessError;
use crate::map_plan::{MapPlan, Write};
use crate::part::{Part, check_key, check_value, unsupported};
use crate::value::{Counters, Entry, Value};
use crate::{array, bloom, change, hash, inner, merge, per_thread};

/// A map's device memory as it was when copied; of several devices, that of all.
#[derive(Clone, Copy, Debug)]
pub struct MapView<'a> {
    first: Part<'a>,
    /// In further contexts.
    others: &'a [Vec<u8>],
}

impl<'a> MapView<'a> {
    /// A view of `bytes`, a copy of all of the map's memory, or a snapshot
    /// ([`MapPlan::snapshot_bytes`]).
    ///
    /// # Errors
    /// [`AccessError::Snapshot`] if `bytes` has another length than the layout.
    pub fn new(plan: &'a MapPlan, bytes: &'a [u8]) -> Result<MapView<'a>, AccessError> {
        Ok(MapView {
            first: Part::new(plan, bytes)?,
            others: &[],
        })
    }

    /// One view of the parts that several contexts have ([`merge`]), in the order of contexts.
    ///
    /// # Errors
    /// [`AccessError::Snapshot`] if one has another length than the layout, or there is none.
    pub fn merged(plan: &'a MapPlan, parts: &'a [Vec<u8>]) -> Result<MapView<'a>, AccessError> {
        for part in parts {
            MapView::new(plan, part)?;
        }
        let (first, others) = parts.split_first().unzip();
        let view = MapView::new(plan, first.map_or(&[], Vec::as_slice))?;
        Ok(MapView {
            others: others.unwrap_or_default(),
            ..view
        })
    }

    /// Each part by itself.
    fn parts(&self) -> Vec<Part<'a>> {
        let plan = self.first.plan;
        let others = self.others.iter().map(|bytes| Part { plan, bytes });
        std::iter::once(self.first).chain(others).collect()
    }

    /// All entries: arrays in key order with every key, hashes in slot order. A ring has none: see
    /// [`crate::ring::Reader`].
    pub fn entries(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        if self.others.is_empty() {
            return shown_entries(self.first);
        }
        let parts = self.parts().into_iter().map(shown_entries);
        Box::new(merge::entries(self.first.plan, parts.collect()).into_iter())
    }

    /// The same, but of an array only what is not zeros everywhere: what a report shows of it.
    pub fn entries_set(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        let Part { plan, bytes } = self.first;
        match &plan.layout {
            MapLayout::Array(layout) if self.others.is_empty() && !inner::is_outer(plan) => {
                let (part, keys) = (self.first, array::keys_set(layout, bytes));
                Box::new(keys.filter_map(move |key| {
                    let value = part.indexed(key)?;
                    let key = key.to_le_bytes().to_vec();
                    Some(Entry { key, value })
                }))
            }
            _ => self.entries(),
        }
    }

    /// Every key of a map with one value per key, with its value, without a copy of either: what a
    /// large map is read by. In the order of [`MapView::entries`]. Values of maps of maps are as
    /// they lie there. Nothing for maps with several values per key, and rings.
    pub fn each(&self, mut each: impl FnMut(&[u8], &[u8])) {
        if !self.others.is_empty() {
            for entry in self.entries() {
                if let Value::One(value) = &entry.value {
                    each(&entry.key, value);
                }
            }
            return;
        }
        let Part { plan, bytes } = self.first;
        let several = matches!(plan.map_type, MapType::PercpuHash | MapType::LruPercpuHash);
        match &plan.layout {
            MapLayout::Hash(layout) if !several => hash::each(layout, bytes, each),
            _ => {
                for entry in self.first.entries() {
                    if let Value::One(value) = &entry.value {
                        each(&entry.key, value);
                    }
                }
            }
        }
    }

    /// The value of `key`; `None` if there is no such key.
    ///
    /// # Errors
    /// A key of another size, or a ring.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Value>, AccessError> {
        if self.others.is_empty() {
            return shown_lookup(self.first, key);
        }
        let parts = self.parts().into_iter();
        let values = parts.map(|part| shown_lookup(part, key));
        Ok(merge::value(
            self.first.plan,
            values.collect::<Result<_, _>>()?,
        ))
    }

    /// The value of `key` in one thread, zero or not; threads of a further context are counted
    /// behind those before. `None` if there is no such key or thread, or the map is of another
    /// type.
    pub fn thread_value(&self, key: u32, thread: u64) -> Option<&'a [u8]> {
        let MapLayout::PerThread(layout) = &self.first.plan.layout else {
            return None;
        };
        let part = match thread / layout.threads {
            0 => self.first.bytes,
            further => self.others.get(usize::try_from(further).ok()? - 1)?,
        };
        let thread = thread % layout.threads;
        (key < layout.max_entries).then(|| per_thread::value(layout, part, key, thread))
    }

    /// What the device counted. A ring's losses are told by its reader.
    pub fn counters(&self) -> Counters {
        merge::counters(self.parts().iter().map(Part::counters))
    }

    /// Bytes of records that a user ring holds and nobody has drained yet; `None` of any other map.
    pub fn undrained(&self) -> Option<u64> {
        let MapLayout::UserRing(layout) = &self.first.plan.layout else {
            return None;
        };
        let held = |bytes: &[u8]| {
            let filled = u64_at(bytes, UserRingLayout::PRODUCER);
            let left = filled.wrapping_sub(u64_at(bytes, UserRingLayout::CONSUMER));
            left.min(layout.bytes.into())
        };
        Some(self.parts().iter().map(|part| held(part.bytes)).sum())
    }

    /// `value` was put into the bloom filter, or something like it was.
    ///
    /// # Errors
    /// A value of another size, or a map of another type.
    pub fn contains(&self, value: &[u8]) -> Result<bool, AccessError> {
        let MapLayout::Bloom(layout) = &self.first.plan.layout else {
            return Err(unsupported(self.first.plan, "a question for a value"));
        };
        check_value(self.first.plan, value)?;
        let parts = self.parts();
        let mut parts = parts.iter();
        Ok(parts.any(|part| bloom::contains(layout, part.bytes, value)))
    }
}

/// The entries of one part, values of maps of maps as the host sees them.
fn shown_entries<'a>(part: Part<'a>) -> Box<dyn Iterator<Item = Entry> + 'a> {
    if !inner::is_outer(part.plan) {
        return part.entries();
    }
    Box::new(part.entries().filter_map(|entry| {
        let value = inner::shown(entry.value)?;
        Some(Entry { value, ..entry })
    }))
}

/// The value of a key in one part, that of a map of maps as the host sees it.
fn shown_lookup(part: Part<'_>, key: &[u8]) -> Result<Option<Value>, AccessError> {
    let value = part.lookup(key)?;
    Ok(if inner::is_outer(part.plan) {
        value.and_then(inner::shown)
    } else {
        value
    })
}

/// The value of `key` in a HASH that may change meanwhile, by reading what such a lookup needs and
/// no more: `read` fills bytes with what lies from an offset of the map. `None` if this type has to
/// be looked at as a whole.
///
/// # Errors
/// What `read` answers; inside, a key of another size.
pub fn look_up<E>(
    plan: &MapPlan,
    key: &[u8],
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Option<Result<Result<Option<Value>, AccessError>, E>> {
    match (&plan.layout, plan.map_type) {
        (MapLayout::Hash(layout), MapType::Hash | MapType::GpuHash) => {
            if let Err(error) = check_key(plan, key) {
                return Some(Ok(Err(error)));
            }
            Some(hash::look_up(layout, plan.map_type, key, read).map(Ok))
        }
        _ => None,
    }
}

/// The writes that give `key` the value `value` in a map that no kernel uses now; `bytes` is a
/// snapshot of all of it. They must be done in order. `flags` is `BPF_ANY`, `BPF_NOEXIST` or
/// `BPF_EXIST`.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn update(
    plan: &MapPlan,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    if inner::is_outer(plan) {
        return inner::store(plan, bytes, key, value, flags);
    }
    change::update(plan, bytes, key, value, flags)
}

/// The writes that remove `key` from a hash that no kernel uses now, or from a map of maps; `bytes`
/// is a snapshot of all of it. Those of a map of maps may be done while programs look into it, in
/// order ([`inner::store_live`]).
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn delete(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Result<Vec<Write>, AccessError> {
    if inner::is_outer(plan) {
        return inner::remove(plan, bytes, key);
    }
    change::delete(plan, bytes, key)
}
