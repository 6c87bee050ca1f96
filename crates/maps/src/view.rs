//! One way to read and change maps of every type, for callers that only have a plan and bytes.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, MapType};

use crate::bytes::index;
use crate::{AccessError, MapPlan, Write, array, hash, per_thread, percpu};

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
}

/// A map's device memory as it was when copied.
#[derive(Clone, Copy, Debug)]
pub struct MapView<'a> {
    plan: &'a MapPlan,
    bytes: &'a [u8],
}

impl<'a> MapView<'a> {
    /// A view of `bytes`, a copy of all of the map's memory.
    ///
    /// # Errors
    /// [`AccessError::Snapshot`] if `bytes` has another length than the layout.
    pub fn new(plan: &'a MapPlan, bytes: &'a [u8]) -> Result<MapView<'a>, AccessError> {
        if bytes.len() as u64 != plan.bytes() {
            return Err(AccessError::Snapshot {
                map: plan.name.clone(),
                expected: plan.bytes(),
                found: bytes.len() as u64,
            });
        }
        Ok(MapView { plan, bytes })
    }

    /// All entries: arrays in key order with every key, hashes in slot order. A ring has none: see
    /// [`crate::ring::Reader`].
    pub fn entries(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        let view = *self;
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
                Box::new(hash::nodes(layout, self.bytes).map(|node| Entry {
                    key: node.key.to_vec(),
                    value: Value::One(node.value.to_vec()),
                }))
            }
            MapLayout::Ring(_) => Box::new(std::iter::empty()),
        }
    }

    /// The value of `key`; `None` if there is no such key.
    ///
    /// # Errors
    /// A key of another size, or a ring.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Value>, AccessError> {
        check_key(self.plan, key)?;
        Ok(match &self.plan.layout {
            MapLayout::Array(_) | MapLayout::PerThread(_) => {
                index(key).and_then(|key| self.indexed(key))
            }
            MapLayout::Hash(layout) => {
                hash::find(layout, self.bytes, key).map(|node| Value::One(node.value.to_vec()))
            }
            MapLayout::Ring(_) => return Err(unsupported(self.plan, "a lookup")),
        })
    }

    /// The value of `key` in one thread, zero or not; `None` if there is no such key or thread, or the map is of another
    /// type.
    pub fn thread_value(&self, key: u32, thread: u64) -> Option<&'a [u8]> {
        let MapLayout::PerThread(layout) = &self.plan.layout else {
            return None;
        };
        (key < layout.max_entries && thread < layout.threads)
            .then(|| per_thread::value(layout, self.bytes, key, thread))
    }

    /// What the device counted. A ring's losses are told by its reader.
    pub fn counters(&self) -> Counters {
        match &self.plan.layout {
            MapLayout::Hash(_) => {
                let (full, busy) = hash::counters(self.bytes);
                Counters {
                    full,
                    busy,
                    refused: 0,
                }
            }
            MapLayout::PerThread(_) => Counters {
                refused: per_thread::refused(self.bytes),
                ..Counters::default()
            },
            MapLayout::Array(_) | MapLayout::Ring(_) => Counters::default(),
        }
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
            MapLayout::Hash(_) | MapLayout::Ring(_) => None,
        }
    }
}

/// The copies are the user's, not ours.
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
                .ok_or_else(|| AccessError::Full {
                    map: plan.name.clone(),
                    why: format!("the key is not below `max_entries`, {}", plan.max_entries),
                })?;
            if has_copies(plan) {
                return percpu::store(&plan.name, layout, at, value);
            }
            check_value(plan, value)?;
            Ok(array::store(layout, at, value))
        }
        MapLayout::Hash(layout) => {
            check_value(plan, value)?;
            hash::store(&plan.name, layout, bytes, key, value, flags)
        }
        MapLayout::PerThread(_) | MapLayout::Ring(_) => {
            Err(unsupported(plan, "an update from the host"))
        }
    }
}

/// The writes that remove `key` from a hash that no kernel uses now; `bytes` is a snapshot of all of it.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn delete(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Result<Vec<Write>, AccessError> {
    MapView::new(plan, bytes)?;
    check_key(plan, key)?;
    match &plan.layout {
        MapLayout::Hash(layout) => hash::remove(&plan.name, layout, bytes, key),
        MapLayout::Array(_) | MapLayout::PerThread(_) | MapLayout::Ring(_) => {
            Err(unsupported(plan, "a delete"))
        }
    }
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
