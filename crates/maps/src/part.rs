//! What one GPU context has of a map, as it lies there: of a map of maps what it is stored as.

use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::MapType;

use crate::bytes::{index, u64_at};
use crate::error::AccessError;
use crate::map_plan::MapPlan;
use crate::value::{Counters, Entry, Value};
use crate::{array, hash, hosted, lru, per_thread, percpu, queue};

/// A copy of a map's device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) plan: &'a MapPlan,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// A view of `bytes`, a copy of all of the map's memory, or a snapshot
    /// ([`MapPlan::snapshot_bytes`]).
    ///
    /// # Errors
    /// [`AccessError::Snapshot`] if `bytes` has another length than the layout.
    pub(crate) fn new(plan: &'a MapPlan, bytes: &'a [u8]) -> Result<Part<'a>, AccessError> {
        let is_snapshot = matches!(plan.layout, MapLayout::UserRing(_))
            && bytes.len() as u64 == plan.snapshot_bytes();
        if bytes.len() as u64 != plan.bytes() && !is_snapshot {
            return Err(AccessError::Snapshot {
                map: plan.name.clone(),
                expected: plan.bytes(),
                found: bytes.len() as u64,
            });
        }
        Ok(Part { plan, bytes })
    }

    /// All entries: arrays in key order with every key, hashes in slot order. Values of maps of
    /// maps are as they lie there.
    pub(crate) fn entries(self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        let part = self;
        match &self.plan.layout {
            MapLayout::Array(_) | MapLayout::PerThread(_) => {
                let keys = 0..self.plan.max_entries;
                Box::new(keys.filter_map(move |key| {
                    Some(Entry {
                        key: key.to_le_bytes().to_vec(),
                        value: part.indexed(key)?,
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
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Option<Value>, AccessError> {
        check_key(self.plan, key)?;
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

    /// The value at an index; `None` outside, and of a map without them.
    pub(crate) fn indexed(&self, key: u32) -> Option<Value> {
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

    /// What the device counted. A ring's losses are told by its reader.
    pub(crate) fn counters(&self) -> Counters {
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
}

/// The copies are the user's, not ours.
pub(crate) fn has_copies(plan: &MapPlan) -> bool {
    plan.map_type == MapType::PercpuArray
}

/// A key has the size that the map was declared with.
pub(crate) fn check_key(plan: &MapPlan, key: &[u8]) -> Result<(), AccessError> {
    if key.len() == plan.key_size as usize {
        return Ok(());
    }
    Err(AccessError::Key {
        map: plan.name.clone(),
        expected: plan.key_size,
        found: key.len(),
    })
}

/// A value has the size that the map was declared with.
pub(crate) fn check_value(plan: &MapPlan, value: &[u8]) -> Result<(), AccessError> {
    if value.len() == plan.value_size as usize {
        return Ok(());
    }
    Err(AccessError::Value {
        map: plan.name.clone(),
        expected: u64::from(plan.value_size),
        found: value.len(),
    })
}

/// The map cannot be asked for that.
pub(crate) fn unsupported(plan: &MapPlan, what: &str) -> AccessError {
    AccessError::Unsupported {
        map: plan.name.clone(),
        map_type: plan.map_type.name(),
        what: what.to_owned(),
    }
}
