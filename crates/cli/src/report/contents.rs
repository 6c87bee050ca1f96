//! What maps hold, from their bytes on a device to what a report shows.

use serde_json::Value;
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::MapType;
use warpbpf_maps::printk::Message;
use warpbpf_maps::{MapPlan, MapView, stops};
use warpbpf_object::{MapDef, MapKind, Object};

use crate::report::model;
use crate::report::pretty::Printer;

/// A report's map while entries come into it.
pub struct Filling<'m> {
    map: &'m mut model::Map,
    def: &'m MapDef,
    printer: &'m Printer<'m>,
    sum: Option<u128>,
}

impl<'m> Filling<'m> {
    /// Of a map with this definition.
    pub fn new(map: &'m mut model::Map, def: &'m MapDef, printer: &'m Printer<'m>) -> Filling<'m> {
        Filling {
            map,
            def,
            printer,
            sum: Some(0),
        }
    }

    fn add(&mut self, value: &[u8]) {
        let number = self.sum.zip(number(value));
        self.sum = number.map(|(total, n)| total + u128::from(n));
    }

    fn put(&mut self, key: &[u8], value: Value) {
        let key = self.printer.json(self.def.key_type, key);
        self.map.entries.push(model::Entry { key, value });
    }

    /// A key with its value.
    pub fn one(&mut self, key: &[u8], value: &[u8]) {
        self.add(value);
        let value = self.printer.json(self.def.value_type, value);
        self.put(key, value);
    }

    /// A key with a value for each CPU or multiprocessor.
    pub fn several(&mut self, key: &[u8], values: &[Vec<u8>]) {
        values.iter().for_each(|value| self.add(value));
        let values = values.iter();
        let values = values.map(|value| self.printer.json(self.def.value_type, value));
        let values = Value::Array(values.collect());
        self.put(key, values);
    }

    /// Of what the user declared there is a sum.
    pub fn end(self) {
        self.map.sum = self.sum.filter(|_| matches!(self.def.kind, MapKind::User));
    }
}

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
    let mut filling = Filling::new(map, def, printer);
    for entry in view.entries_set() {
        match entry.value {
            warpbpf_maps::Value::One(value) => {
                if matches!(plan.layout, MapLayout::Array(_)) && value.iter().all(|b| *b == 0) {
                    continue;
                }
                filling.one(&entry.key, &value);
            }
            warpbpf_maps::Value::PerSm(values) => {
                if !plan.map_type.is_hash() && values.iter().flatten().all(|b| *b == 0) {
                    continue;
                }
                filling.several(&entry.key, &values);
            }
            warpbpf_maps::Value::PerThread(values) => {
                values.iter().for_each(|(_, v)| filling.add(v));
                let threads = threads(&values);
                if plan.max_entries == 1 {
                    filling.map.threads = threads;
                    continue;
                }
                if !values.is_empty() {
                    filling.put(&entry.key, in_short(values.len(), threads));
                }
            }
        }
    }
    filling.end();
    map.undrained = view.undrained();
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

/// What is known of a map without its contents; `None` for constants, which nobody asks for, and
/// for counts of ended programs, which are told in words.
pub fn begun(map: &warpbpf_tool::Map) -> Option<(MapDef, model::Map)> {
    let shown = |def: &MapDef| !def.is_constant() && stops::program_of(&def.name).is_none();
    let def = map.definition().filter(shown)?;
    let begun = model::Map {
        name: map.name().to_owned(),
        kind: map.map_type().map_or("unknown", MapType::name).into(),
        max_entries: map.info().max_entries,
        ..model::Map::default()
    };
    Some((def, begun))
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
