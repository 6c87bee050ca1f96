//! One way to read and change maps of every type, for callers that only have a plan and bytes.

use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, BPF_RB_WAKEUPS, MapType};

use crate::bytes::{index, u64_at};
use crate::{
    AccessError, MapPlan, Write, array, bloom, hash, hosted, inner, lru, merge, per_thread, percpu,
    queue, user_ring,
};

/// What a key stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// One value; of a summed array, the sum.
    One(Vec<u8>),
    /// One per multiprocessor, in their order.
    PerSm(Vec<Vec<u8>>),
    /// The values that are not all zero: linear global thread, value.
    PerThread(Vec<(u64, Vec<u8>)>),
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Key bytes.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
}

/// What the device counted about a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Updates refused because the map was full.
    pub full: u64,
    /// Operations given up because a bounded retry ran out.
    pub busy: u64,
    /// Lookups by threads that have no value.
    pub refused: u64,
    /// Calls to the host that ran out of time.
    pub timed_out: u64,
    /// Drainers of a user ring that ended or were stopped while they drained: another one went on.
    pub taken_over: u64,
    /// Times that a user ring held what no producer writes: what it held was skipped.
    pub broken: u64,
}

/// A map's device memory as it was when copied; of several devices, that of all.
#[derive(Clone, Copy, Debug)]
pub struct MapView<'a> {
    plan: &'a MapPlan,
    bytes: &'a [u8],
    /// In further contexts.
    others: &'a [Vec<u8>],
}

impl<'a> MapView<'a> {
    /// A view of `bytes`, a copy of all of the map's memory, or a snapshot ([`MapPlan::snapshot_bytes`]).
    ///
    /// # Errors
    /// [`AccessError::Snapshot`] if `bytes` has another length than the layout.
    pub fn new(plan: &'a MapPlan, bytes: &'a [u8]) -> Result<MapView<'a>, AccessError> {
        let is_snapshot = matches!(plan.layout, MapLayout::UserRing(_))
            && bytes.len() as u64 == plan.snapshot_bytes();
        if bytes.len() as u64 != plan.bytes() && !is_snapshot {
            return Err(AccessError::Snapshot {
                map: plan.name.clone(),
                expected: plan.bytes(),
                found: bytes.len() as u64,
            });
        }
        Ok(MapView {
            plan,
            bytes,
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

    /// A view of each part by itself.
    fn parts(&self) -> Vec<MapView<'a>> {
        let plan = self.plan;
        let view = |bytes: &'a [u8]| MapView {
            plan,
            bytes,
            others: &[],
        };
        let others = self.others.iter().map(|part| view(part));
        std::iter::once(view(self.bytes)).chain(others).collect()
    }

    /// All entries: arrays in key order with every key, hashes in slot order. A ring has none: see
    /// [`crate::ring::Reader`].
    pub fn entries(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        if !self.others.is_empty() {
            return Box::new(merge::entries(self.plan, &self.parts()).into_iter());
        }
        let view = *self;
        if inner::is_outer(self.plan) {
            return Box::new(view.plain_entries().filter_map(|entry| {
                let value = inner::shown(entry.value)?;
                Some(Entry { value, ..entry })
            }));
        }
        view.plain_entries()
    }

    /// The same, but of an array only what is not zeros everywhere: what a report shows of it.
    pub fn entries_set(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        let (view, plan) = (*self, self.plan);
        match &plan.layout {
            MapLayout::Array(layout) if self.others.is_empty() && !inner::is_outer(plan) => {
                let keys = array::keys_set(layout, self.bytes);
                Box::new(keys.filter_map(move |key| {
                    let value = view.indexed(key)?;
                    let key = key.to_le_bytes().to_vec();
                    Some(Entry { key, value })
                }))
            }
            _ => self.entries(),
        }
    }

    /// Every key of a map with one value per key, with its value, without a copy of either: what a large map is read by.
    /// In the order of [`MapView::entries`]. Values of maps of maps are as they lie there. Nothing for maps with several
    /// values per key, and rings.
    pub fn each(&self, mut each: impl FnMut(&[u8], &[u8])) {
        if !self.others.is_empty() {
            for entry in self.entries() {
                if let Value::One(value) = &entry.value {
                    each(&entry.key, value);
                }
            }
            return;
        }
        let several = matches!(
            self.plan.map_type,
            MapType::PercpuHash | MapType::LruPercpuHash
        );
        match &self.plan.layout {
            MapLayout::Hash(layout) if !several => hash::each(layout, self.bytes, each),
            _ => {
                for entry in self.plain_entries() {
                    if let Value::One(value) = &entry.value {
                        each(&entry.key, value);
                    }
                }
            }
        }
    }

    fn plain_entries(self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        let view = self;
        match &self.plan.layout {
            MapLayout::Array(_) | MapLayout::PerThread(_) => {
                let keys = 0..self.plan.max_entries;
                Box::new(keys.filter_map(move |key| {
                    Some(Entry {
                        key: key.to_le_bytes().to_vec(),
                        value: view.indexed(key)?,
                    })
                }))
            }
            MapLayout::Hash(layout) => {
                let (map_type, size) = (self.plan.map_type, layout.value_size);
                Box::new(hash::nodes(layout, self.bytes).map(move |node| Entry {
                    key: node.key.to_vec(),
                    value: node.value(map_type, size),
                }))
            }
            MapLayout::Lru(layout) => {
                let (map_type, size) = (self.plan.map_type, layout.value_size);
                Box::new(lru::nodes(layout, self.bytes).map(move |node| Entry {
                    key: node.key.to_vec(),
                    value: node.value(map_type, size),
                }))
            }
            MapLayout::Queue(layout) => {
                let values = queue::values(layout, self.bytes);
                Box::new(values.into_iter().map(|value| Entry {
                    key: Vec::new(),
                    value: Value::One(value.to_vec()),
                }))
            }
            MapLayout::Hosted(layout) => {
                Box::new(hosted::entries(layout, self.bytes).map(|found| Entry {
                    key: found.key.to_vec(),
                    value: Value::One(found.value.to_vec()),
                }))
            }
            MapLayout::Ring(_) | MapLayout::UserRing(_) | MapLayout::Bloom(_) => {
                Box::new(std::iter::empty())
            }
        }
    }

    /// The value of `key`; `None` if there is no such key.
    ///
    /// # Errors
    /// A key of another size, or a ring.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Value>, AccessError> {
        check_key(self.plan, key)?;
        if !self.others.is_empty() {
            let parts = self.parts();
            let values = parts.iter().map(|part| part.lookup(key));
            return Ok(merge::value(self.plan, values.collect::<Result<_, _>>()?));
        }
        let value = self.plain_lookup(key)?;
        Ok(if inner::is_outer(self.plan) {
            value.and_then(inner::shown)
        } else {
            value
        })
    }

    fn plain_lookup(&self, key: &[u8]) -> Result<Option<Value>, AccessError> {
        Ok(match &self.plan.layout {
            MapLayout::Array(_) | MapLayout::PerThread(_) => {
                index(key).and_then(|key| self.indexed(key))
            }
            MapLayout::Hash(layout) => hash::find(layout, self.bytes, key)
                .map(|node| node.value(self.plan.map_type, layout.value_size)),
            MapLayout::Lru(layout) => lru::find(layout, self.bytes, key)
                .map(|node| node.value(self.plan.map_type, layout.value_size)),
            MapLayout::Hosted(layout) => hosted::entries(layout, self.bytes)
                .find(|found| found.key == key)
                .map(|found| Value::One(found.value.to_vec())),
            MapLayout::Queue(layout) => {
                queue::peek(layout, self.bytes).map(|value| Value::One(value.to_vec()))
            }
            MapLayout::Ring(_) | MapLayout::UserRing(_) | MapLayout::Bloom(_) => {
                return Err(unsupported(self.plan, "a lookup"));
            }
        })
    }

    /// The value of `key` in one thread, zero or not; threads of a further context are counted behind those before. `None` if there is no such key or thread, or the map is of another
    /// type.
    pub fn thread_value(&self, key: u32, thread: u64) -> Option<&'a [u8]> {
        let MapLayout::PerThread(layout) = &self.plan.layout else {
            return None;
        };
        let part = match thread / layout.threads {
            0 => self.bytes,
            further => self.others.get(usize::try_from(further).ok()? - 1)?,
        };
        let thread = thread % layout.threads;
        (key < layout.max_entries).then(|| per_thread::value(layout, part, key, thread))
    }

    /// What the device counted. A ring's losses are told by its reader.
    pub fn counters(&self) -> Counters {
        if !self.others.is_empty() {
            return merge::counters(&self.parts());
        }
        match &self.plan.layout {
            MapLayout::Hash(_) | MapLayout::Lru(_) => {
                let (full, busy) = match &self.plan.layout {
                    MapLayout::Lru(_) => lru::counters(self.bytes),
                    _ => hash::counters(self.bytes),
                };
                Counters {
                    full,
                    busy,
                    ..Counters::default()
                }
            }
            MapLayout::PerThread(_) => Counters {
                refused: per_thread::refused(self.bytes),
                ..Counters::default()
            },
            MapLayout::Queue(_) => {
                let (full, busy) = queue::counters(self.bytes);
                Counters {
                    full,
                    busy,
                    ..Counters::default()
                }
            }
            MapLayout::Hosted(_) => {
                let (full, timed_out) = hosted::counters(self.bytes);
                Counters {
                    full,
                    timed_out,
                    ..Counters::default()
                }
            }
            MapLayout::UserRing(_) => Counters {
                taken_over: u64_at(self.bytes, UserRingLayout::TAKEN_OVER),
                broken: u64_at(self.bytes, UserRingLayout::BROKEN),
                ..Counters::default()
            },
            MapLayout::Array(_) | MapLayout::Ring(_) | MapLayout::Bloom(_) => Counters::default(),
        }
    }

    /// Bytes of records that a user ring holds and nobody has drained yet; `None` of any other map.
    pub fn undrained(&self) -> Option<u64> {
        let MapLayout::UserRing(layout) = &self.plan.layout else {
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
        let MapLayout::Bloom(layout) = &self.plan.layout else {
            return Err(unsupported(self.plan, "a question for a value"));
        };
        check_value(self.plan, value)?;
        let parts = self.parts();
        let mut parts = parts.iter();
        Ok(parts.any(|part| bloom::contains(layout, part.bytes, value)))
    }

    fn indexed(&self, key: u32) -> Option<Value> {
        if key >= self.plan.max_entries {
            return None;
        }
        match &self.plan.layout {
            MapLayout::Array(layout) if has_copies(self.plan) => {
                Some(Value::PerSm(percpu::values(layout, self.bytes, key)))
            }
            MapLayout::Array(layout) => Some(Value::One(array::value(
                layout,
                &self.plan.sum_fields,
                self.bytes,
                key,
            ))),
            MapLayout::PerThread(layout) => Some(Value::PerThread(per_thread::values(
                layout, self.bytes, key,
            ))),
            MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::Hosted(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::UserRing(_)
            | MapLayout::Bloom(_) => None,
        }
    }
}

/// The copies are the user's, not ours.
/// The value of `key` in a HASH that may change meanwhile, by reading what such a lookup needs and no more: `read` fills bytes
/// with what lies from an offset of the map. `None` if this type has to be looked at as a whole.
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

fn has_copies(plan: &MapPlan) -> bool {
    plan.map_type == MapType::PercpuArray
}

/// The writes that give `key` the value `value` in a map that no kernel uses now; `bytes` is a snapshot of all of it.
/// They must be done in order. `flags` is `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`.
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
    MapView::new(plan, bytes)?;
    check_key(plan, key)?;
    if inner::is_outer(plan) {
        check_value(plan, value)?;
        return inner::store(plan, bytes, key, value, flags);
    }
    match &plan.layout {
        MapLayout::Array(layout) => {
            match flags {
                BPF_ANY | BPF_EXIST => {}
                BPF_NOEXIST => {
                    return Err(AccessError::Exists {
                        map: plan.name.clone(),
                    });
                }
                _ => {
                    return Err(unsupported(
                        plan,
                        &format!("an update with flags {flags:#x}"),
                    ));
                }
            }
            let at = index(key)
                .filter(|key| *key < plan.max_entries)
                .ok_or_else(|| AccessError::Outside {
                    map: plan.name.clone(),
                    max_entries: plan.max_entries,
                })?;
            if has_copies(plan) {
                return percpu::store(&plan.name, layout, at, value);
            }
            check_value(plan, value)?;
            Ok(array::store(layout, at, value))
        }
        MapLayout::Hash(layout) => hash::store(plan, layout, bytes, key, value, flags),
        MapLayout::Lru(layout) => lru::store(plan, layout, bytes, key, value, flags),
        MapLayout::Hosted(layout) => hosted::store(&plan.name, layout, bytes, key, value, flags),
        MapLayout::Queue(layout) => {
            check_value(plan, value)?;
            queue::push(plan, layout, bytes, value, flags)
        }
        MapLayout::Bloom(layout) => {
            check_value(plan, value)?;
            if flags != BPF_ANY {
                return Err(unsupported(plan, &format!("a push with flags {flags:#x}")));
            }
            Ok(bloom::put(layout, bytes, value))
        }
        MapLayout::UserRing(layout) => {
            if flags & !BPF_RB_WAKEUPS != 0 {
                return Err(unsupported(plan, &format!("a push with flags {flags:#x}")));
            }
            user_ring::push(plan, layout, bytes, value)
        }
        MapLayout::PerThread(_) | MapLayout::Ring(_) => {
            Err(unsupported(plan, "an update from the host"))
        }
    }
}

/// The writes that remove `key` from a hash that no kernel uses now, or from a map of maps; `bytes` is a snapshot of all of it. Those of a map of
/// maps may be done while programs look into it, in order ([`inner::store_live`]).
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn delete(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Result<Vec<Write>, AccessError> {
    MapView::new(plan, bytes)?;
    check_key(plan, key)?;
    if inner::is_outer(plan) {
        return inner::remove(plan, bytes, key);
    }
    match &plan.layout {
        MapLayout::Hash(layout) => hash::remove(&plan.name, layout, bytes, key),
        MapLayout::Lru(layout) => lru::remove(&plan.name, layout, bytes, key),
        MapLayout::Hosted(layout) => hosted::remove(&plan.name, layout, bytes, key),
        MapLayout::Array(_)
        | MapLayout::PerThread(_)
        | MapLayout::Ring(_)
        | MapLayout::Queue(_)
        | MapLayout::UserRing(_)
        | MapLayout::Bloom(_) => Err(unsupported(plan, "a delete")),
    }
}

/// The value that comes out of a queue or stack next, and the writes that take it out; no kernel uses the map now and
/// `bytes` is a snapshot of all of it. The writes must be done in order.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn pop(plan: &MapPlan, bytes: &[u8]) -> Result<(Vec<u8>, Vec<Write>), AccessError> {
    MapView::new(plan, bytes)?;
    let MapLayout::Queue(layout) = &plan.layout else {
        return Err(unsupported(plan, "a pop"));
    };
    queue::pop(layout, bytes).ok_or_else(|| AccessError::Empty {
        map: plan.name.clone(),
    })
}

fn check_key(plan: &MapPlan, key: &[u8]) -> Result<(), AccessError> {
    if key.len() == plan.key_size as usize {
        return Ok(());
    }
    Err(AccessError::Key {
        map: plan.name.clone(),
        expected: plan.key_size,
        found: key.len(),
    })
}

fn check_value(plan: &MapPlan, value: &[u8]) -> Result<(), AccessError> {
    if value.len() == plan.value_size as usize {
        return Ok(());
    }
    Err(AccessError::Value {
        map: plan.name.clone(),
        expected: u64::from(plan.value_size),
        found: value.len(),
    })
}

fn unsupported(plan: &MapPlan, what: &str) -> AccessError {
    AccessError::Unsupported {
        map: plan.name.clone(),
        map_type: plan.map_type.name(),
        what: what.to_owned(),
    }
}
