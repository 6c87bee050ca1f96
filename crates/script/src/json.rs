//! Maps as lines of JSON, in bpftrace's form.

use std::collections::BTreeMap;

use serde_json::{Map as Object, Value, json};

use crate::results::{Cell, Key, bounds};
use crate::show::sorted;
use crate::typed::{Kind, Map};

/// A whole map.
pub fn map(map: &Map, cells: &BTreeMap<Key, Cell>, top: Option<u64>) -> Value {
    let what = match map.kind {
        Kind::Hist => "hist",
        Kind::Lhist { .. } => "hist",
        Kind::Stats => "stats",
        _ => "map",
    };
    let all = sorted(map.kind, cells, top);
    let data = match map.key.is_empty() {
        true => all
            .first()
            .map_or(Value::Null, |(_, cell)| value(map.kind, cell)),
        false => {
            let keyed = all.into_iter().map(|(key, cell)| {
                let parts: Vec<String> = key.iter().map(ToString::to_string).collect();
                (parts.join(","), value(map.kind, cell))
            });
            Value::Object(keyed.collect::<Object<String, Value>>())
        }
    };
    json!({ "type": what, "data": { map.name.clone(): data } })
}

/// What a `printf` prints.
pub fn printed(text: &str) -> Value {
    json!({ "type": "printf", "data": text })
}

fn value(kind: Kind, cell: &Cell) -> Value {
    match kind {
        Kind::Value(_) => match &cell.name {
            Some(name) => json!(name),
            None => json!(cell.number),
        },
        Kind::Count => json!(cell.count),
        Kind::Sum => json!(cell.number),
        Kind::Avg => json!(cell.average()),
        Kind::Min | Kind::Max => json!(cell.extreme(kind)),
        Kind::Stats => json!({
            "count": cell.count,
            "average": cell.average(),
            "total": cell.number,
        }),
        Kind::Hist | Kind::Lhist { .. } => {
            let used = cell.buckets.iter().filter(|(_, count)| **count > 0);
            let used: Vec<u32> = used.map(|(bucket, _)| *bucket).collect();
            let (Some(first), Some(last)) = (used.first(), used.last()) else {
                return json!([]);
            };
            let row = |bucket: u32| {
                let mut row = Object::new();
                let (from, to) = bounds(kind, bucket);
                if let Some(from) = from {
                    row.insert("min".into(), json!(from));
                }
                if let Some(to) = to {
                    row.insert("max".into(), json!(to - 1));
                }
                let count = cell.buckets.get(&bucket).copied().unwrap_or(0);
                row.insert("count".into(), json!(count));
                Value::Object(row)
            };
            (*first..=*last).map(row).collect()
        }
    }
}
