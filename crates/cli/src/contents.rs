//! What maps hold, from their bytes on a device to what a report shows.

use serde_json::Value;
use warpbpf_abi::layout::MapLayout;
use warpbpf_maps::printk::Message;
use warpbpf_maps::{MapPlan, MapView};
use warpbpf_object::{MapDef, MapKind, Object};

use crate::model;
use crate::pretty::Printer;

/// Puts the entries of a snapshot, which has a part in each context, into the report's map.
pub fn fill(
    map: &mut model::Map,
    plan: &MapPlan,
    def: &MapDef,
    parts: &[Vec<u8>],
    printer: &Printer<'_>,
) {
    let view = match MapView::merged(plan, parts) {
        Ok(view) => view,
        Err(error) => {
            map.warnings.push(error.to_string());
            return;
        }
    };
    let mut sum = Some(0u128);
    let mut add = |value: &[u8]| {
        sum = sum
            .zip(number(value))
            .map(|(total, n)| total + u128::from(n));
    };
    for entry in view.entries() {
        let value = match entry.value {
            warpbpf_maps::Value::One(value) => {
                if matches!(plan.layout, MapLayout::Array(_)) && value.iter().all(|b| *b == 0) {
                    continue;
                }
                add(&value);
                printer.json(def.value_type, &value)
            }
            warpbpf_maps::Value::PerSm(values) => {
                if !plan.map_type.is_hash() && values.iter().flatten().all(|b| *b == 0) {
                    continue;
                }
                values.iter().for_each(|v| add(v));
                Value::Array(
                    values
                        .iter()
                        .map(|v| printer.json(def.value_type, v))
                        .collect(),
                )
            }
            warpbpf_maps::Value::PerThread(values) => {
                values.iter().for_each(|(_, v)| add(v));
                let threads = threads(&values);
                if plan.max_entries == 1 {
                    map.threads = threads;
                    continue;
                }
                if values.is_empty() {
                    continue;
                }
                in_short(values.len(), threads)
            }
        };
        map.entries.push(model::Entry {
            key: printer.json(def.key_type, &entry.key),
            value,
        });
    }
    map.undrained = view.undrained();
    map.sum = sum.filter(|_| matches!(def.kind, MapKind::User));
    let counters = view.counters();
    for (count, what) in [
        (
            counters.full,
            "updates found the map full; raise `max_entries`",
        ),
        (
            counters.busy,
            "operations were given up after the bound on retries",
        ),
        (
            counters.refused,
            "lookups came from threads beyond the array's; raise `map_extra` or pass `--threads`",
        ),
        (
            counters.timed_out,
            "calls to the host ran out of time (ETIMEDOUT; a lookup found nothing)",
        ),
        (
            counters.taken_over,
            "drains of this ring by a thread that ended or was stopped were taken over: the record that it was at may have been drained twice",
        ),
        (
            counters.broken,
            "times this ring held no record where one must begin (-EINVAL): what the host had pushed until then was skipped",
        ),
    ] {
        if count > 0 {
            map.warnings.push(format!("{count} {what}"));
        }
    }
}

/// Of one key among several: how many threads have a value, and between which numbers they lie.
fn in_short(count: usize, threads: Option<model::Threads>) -> Value {
    let mut value = serde_json::json!({ "threads": count });
    if let (Some(threads), Some(fields)) = (threads, value.as_object_mut()) {
        let sum: u128 = threads
            .histogram
            .iter()
            .map(|(value, n)| u128::from(*value) * u128::from(*n))
            .sum();
        // Sums beyond 64 bits are not shown.
        fields.insert("sum".into(), u64::try_from(sum).ok().into());
        fields.insert("min".into(), threads.min.into());
        fields.insert("max".into(), threads.max.into());
    }
    value
}

fn threads(values: &[(u64, Vec<u8>)]) -> Option<model::Threads> {
    let mut numbers = values
        .iter()
        .map(|(_, v)| number(v))
        .collect::<Option<Vec<u64>>>()?;
    numbers.sort_unstable();
    let mut histogram: Vec<(u64, u64)> = Vec::new();
    for value in &numbers {
        match histogram.last_mut() {
            Some((last, count)) if last == value => *count += 1,
            _ => histogram.push((*value, 1)),
        }
    }
    Some(model::Threads {
        count: numbers.len() as u64,
        min: numbers.first().copied().unwrap_or(0),
        max: numbers.last().copied().unwrap_or(0),
        histogram,
    })
}

fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        8 => bytes.try_into().ok().map(u64::from_le_bytes),
        4 => bytes
            .try_into()
            .ok()
            .map(|b| u64::from(u32::from_le_bytes(b))),
        _ => None,
    }
}

/// A message of `bpf_printk` as a line; `None` if it is not one.
pub fn printk(object: &Object, payload: &[u8]) -> Option<String> {
    let message = Message::read(payload)?;
    let data = |map: u32, offset: u32| match &object.maps.get(map as usize)?.kind {
        MapKind::Data { image, .. } => image.get(offset as usize..),
        MapKind::User => None,
    };
    let [bx, by, bz] = message.block;
    let [tx, ty, tz] = message.thread;
    Some(format!(
        "block ({bx},{by},{bz}) thread ({tx},{ty},{tz}): {}",
        message.text(data)?.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_several_keys_are_told_apart() {
        let value = |n: u64| n.to_le_bytes().to_vec();
        let values = [(3, value(5)), (9, value(7)), (64, value(5))];
        let short = in_short(values.len(), threads(&values));
        assert_eq!(
            short.to_string(),
            r#"{"threads":3,"sum":17,"min":5,"max":7}"#
        );
        let strange = [(3, vec![1; 12])];
        let short = in_short(strange.len(), threads(&strange));
        assert_eq!(short.to_string(), r#"{"threads":1}"#);
    }
}
