//! One view of a map that several GPU contexts have a part of each: what merging means, type by
//! type.
//!
//! What programs only add to is summed. Values of multiprocessors and threads stand side by side,
//! those of the first context first. Of any other value, and of what lies beside sums, the first
//! part shows that is not all zero: the device that has something to say.

use std::collections::BTreeMap;

use warpbpf_abi::layout::{MapLayout, SumField};
use warpbpf_abi::maps::MapType;

use crate::bytes::{put, u32_at, u64_at};
use crate::map_plan::MapPlan;
use crate::value::{Counters, Entry, Value};

/// The value of a key as a lookup gives it to the host: of a map with a value per multiprocessor or
/// thread all of them, in a row. `parts` has the value in each context, in the order of contexts;
/// `None` where there is no such key.
pub fn flat(plan: &MapPlan, parts: &[Option<Vec<u8>>]) -> Option<Vec<u8>> {
    let there: Vec<&Vec<u8>> = parts.iter().flatten().collect();
    let first = *there.first()?;
    if !is_side_by_side(plan) {
        return Some(one(&plan.added, &there));
    }
    let mut all = Vec::with_capacity(first.len() * parts.len());
    for part in parts {
        match part {
            Some(part) => all.extend_from_slice(part),
            None => all.resize(all.len() + first.len(), 0),
        }
    }
    Some(all)
}

/// A value as a lookup gives it to the host, as [`flat`] has them.
pub fn in_a_row(plan: &MapPlan, value: Value) -> Vec<u8> {
    match value {
        Value::One(value) => value,
        Value::PerSm(values) => {
            let padded = |mut value: Vec<u8>| {
                value.resize(value.len().next_multiple_of(8), 0);
                value
            };
            values.into_iter().flat_map(padded).collect()
        }
        // The zeros are not listed.
        Value::PerThread(values) => {
            let threads = values.last().map_or(0, |(thread, _)| *thread as usize + 1);
            let parts = threads.div_ceil(values_per_part(plan)).max(1);
            let mut all = vec![0; parts * part_bytes(plan)];
            let stride = part_bytes(plan) / values_per_part(plan);
            for (thread, value) in values {
                let at = thread as usize * stride;
                all[at..at + value.len()].copy_from_slice(&value);
            }
            all
        }
    }
}

/// The values to give to each of `count` contexts where the host gives a key `value`, as [`flat`]
/// would show it.
pub fn split(plan: &MapPlan, value: &[u8], count: usize) -> Vec<Vec<u8>> {
    if is_side_by_side(plan) {
        let each = part_bytes(plan);
        if value.len() <= each || !value.len().is_multiple_of(each) {
            // One for all, or one device's for each.
            return vec![value.to_vec(); count];
        }
        let parts = value.chunks(each).map(<[u8]>::to_vec);
        let nothing = std::iter::repeat_with(|| vec![0; each]);
        return parts.chain(nothing).take(count).collect();
    }
    let mut others = value.to_vec();
    for field in &plan.added {
        let end = field.offset as usize + field.size as usize;
        if let Some(bytes) = others.get_mut(field.offset as usize..end) {
            bytes.fill(0);
        }
    }
    let mut values = vec![others; count];
    if let Some(first) = values.first_mut() {
        *first = value.to_vec();
    }
    values
}

/// Each multiprocessor or thread has a value of its own.
pub fn is_side_by_side(plan: &MapPlan) -> bool {
    matches!(plan.layout, MapLayout::PerThread(_))
        || matches!(
            plan.map_type,
            MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash
        )
}

/// How many values one context has for a key.
fn values_per_part(plan: &MapPlan) -> usize {
    let values = match plan.layout {
        MapLayout::Array(layout) => u64::from(layout.shards),
        MapLayout::Hash(layout) => u64::from(layout.copies),
        MapLayout::Lru(layout) => u64::from(layout.copies),
        MapLayout::PerThread(layout) => layout.threads,
        _ => 1,
    };
    values.max(1) as usize
}

/// Bytes of them.
fn part_bytes(plan: &MapPlan) -> usize {
    (plan.value_size as usize).next_multiple_of(8) * values_per_part(plan)
}

/// One value of several, of which there is at least one.
fn one(added: &[SumField], parts: &[&Vec<u8>]) -> Vec<u8> {
    let summed = |at: usize| {
        let within = |f: &SumField| (f.offset as usize..(f.offset + f.size) as usize).contains(&at);
        added.iter().any(within)
    };
    let says = |part: &&&Vec<u8>| {
        let mut bytes = part.iter().enumerate();
        bytes.any(|(at, byte)| *byte != 0 && !summed(at))
    };
    let chosen = parts.iter().find(says).or(parts.first());
    let mut value = chosen.map(|part| (*part).clone()).unwrap_or_default();
    for field in added {
        let at = u64::from(field.offset);
        if field.size == 4 {
            let sum = parts
                .iter()
                .fold(0u32, |n, p| n.wrapping_add(u32_at(p, at)));
            put(&mut value, at, &sum.to_le_bytes());
        } else {
            let sum = parts
                .iter()
                .fold(0u64, |n, p| n.wrapping_add(u64_at(p, at)));
            put(&mut value, at, &sum.to_le_bytes());
        }
    }
    value
}

/// The value of a key that `parts` have; `None` where one has it not.
pub(crate) fn value(plan: &MapPlan, parts: Vec<Option<Value>>) -> Option<Value> {
    let first = parts.iter().flatten().next()?.clone();
    match first {
        Value::One(_) => {
            let all: Vec<Vec<u8>> = parts
                .into_iter()
                .filter_map(|part| match part {
                    Some(Value::One(value)) => Some(value),
                    _ => None,
                })
                .collect();
            Some(Value::One(one(
                &plan.added,
                &all.iter().collect::<Vec<_>>(),
            )))
        }
        Value::PerSm(like) => {
            let none: Vec<Vec<u8>> = like.iter().map(|v| vec![0; v.len()]).collect();
            let each = parts.into_iter().flat_map(|part| match part {
                Some(Value::PerSm(values)) => values,
                _ => none.clone(),
            });
            Some(Value::PerSm(each.collect()))
        }
        Value::PerThread(_) => {
            let threads = match plan.layout {
                MapLayout::PerThread(layout) => layout.threads,
                _ => 0,
            };
            let each = (0u64..).zip(parts).flat_map(|(at, part)| match part {
                Some(Value::PerThread(values)) => values
                    .into_iter()
                    .map(|(thread, value)| (at * threads + thread, value))
                    .collect(),
                _ => Vec::new(),
            });
            Some(Value::PerThread(each.collect()))
        }
    }
}

/// The entries of all parts: of types without keys one after the other, else each key once, in the
/// order in which the parts have them.
pub(crate) fn entries(plan: &MapPlan, parts: Vec<impl Iterator<Item = Entry>>) -> Vec<Entry> {
    if matches!(plan.layout, MapLayout::Queue(_)) {
        return parts.into_iter().flatten().collect();
    }
    let count = parts.len();
    let mut order: Vec<Vec<u8>> = Vec::new();
    let mut found: BTreeMap<Vec<u8>, Vec<Option<Value>>> = BTreeMap::new();
    for (at, part) in parts.into_iter().enumerate() {
        for entry in part {
            let values = found.entry(entry.key).or_insert_with_key(|key| {
                order.push(key.clone());
                vec![None; count]
            });
            values[at] = Some(entry.value);
        }
    }
    let merged = order.into_iter().filter_map(|key| {
        let value = value(plan, found.remove(&key)?)?;
        Some(Entry { key, value })
    });
    merged.collect()
}

/// What the devices counted, together.
pub(crate) fn counters(parts: impl Iterator<Item = Counters>) -> Counters {
    let mut sum = Counters::default();
    for counted in parts {
        sum.full = sum.full.saturating_add(counted.full);
        sum.busy = sum.busy.saturating_add(counted.busy);
        sum.refused = sum.refused.saturating_add(counted.refused);
        sum.timed_out = sum.timed_out.saturating_add(counted.timed_out);
        sum.taken_over = sum.taken_over.saturating_add(counted.taken_over);
        sum.broken = sum.broken.saturating_add(counted.broken);
    }
    sum
}
