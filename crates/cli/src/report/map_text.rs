//! Maps as text: rows of keys and values, and histograms.

use std::fmt::Write as _;

use serde_json::Value;

use crate::report::model::Map;
use crate::report::table::{Table, counted, group};
use crate::term::plain;

/// Width of a histogram's longest bar.
const BAR: usize = 40;
/// Rows of a histogram; beyond, neighbouring values share one.
const BUCKETS: usize = 16;

/// A map and its rows.
pub fn map_text(out: &mut String, map: &Map, rows: usize) {
    let _ = write!(
        out,
        "\n{} ({})",
        plain::name(&map.name),
        plain::name(&map.kind)
    );
    if let Some(events) = &map.events {
        let _ = writeln!(
            out,
            ": {}, {} lost",
            counted(events.received.into(), "event"),
            group(events.lost.into())
        );
        let mut table = Table::for_values(&[], &events.first);
        for value in events.first.iter().take(rows) {
            table.row(columns(value));
        }
        table.write(out);
        more(out, events.received as usize, rows.min(events.first.len()));
        for (count, why) in [
            (
                events.lost_full,
                "its ring on the device was full; raise `max_entries` or send fewer",
            ),
            (
                events.lost_busy,
                "a bounded retry ran out where many lanes sent at once; send fewer, or one for a warp",
            ),
            (
                events.lost_unread,
                "they were not read in time; raise `max_entries` or send fewer",
            ),
        ] {
            if count > 0 {
                let lost = counted(count.into(), "record");
                let _ = writeln!(out, "  warning: {lost} lost: {why}");
            }
        }
    } else if let Some(threads) = &map.threads {
        let sum = map.sum.unwrap_or(0);
        let _ = writeln!(
            out,
            ": {} with a value, sum {}, min {}, max {}",
            counted(threads.count.into(), "thread"),
            group(sum),
            group(threads.min.into()),
            group(threads.max.into())
        );
        histogram(out, &threads.histogram, "value", "threads");
    } else if let Some(bytes) = map.undrained {
        let _ = writeln!(out, ": {} not drained", counted(bytes.into(), "byte"));
    } else {
        let sum = map.sum.filter(|_| !map.entries.is_empty());
        let sum = sum.map_or(String::new(), |s| format!(", sum {}", group(s)));
        let entries = match map.entries.is_empty() && map.kind.ends_with("array") {
            true => format!("{}, all zero", counted(map.max_entries.into(), "entry")),
            false => counted(map.entries.len() as u128, "entry"),
        };
        let _ = writeln!(out, ": {entries}{sum}");
        let values: Vec<Value> = map.entries.iter().map(|e| e.value.clone()).collect();
        let mut table = Table::for_values(&["key"], &values);
        for entry in map.entries.iter().take(rows) {
            let mut row = vec![cell(&entry.key)];
            row.extend(columns(&entry.value));
            table.row(row);
        }
        table.write(out);
        more(out, map.entries.len(), rows);
    }
    for warning in &map.warnings {
        let _ = writeln!(out, "  warning: {}", plain::message(warning));
    }
}

/// Says that more rows exist than are shown.
pub fn more(out: &mut String, all: usize, shown: usize) {
    if all > shown {
        let _ = writeln!(out, "  … {} more", group((all - shown) as u128));
    }
}

/// Bars over `(value, count)`, sorted by value.
fn histogram(out: &mut String, pairs: &[(u64, u64)], value: &str, count: &str) {
    let per_bucket = pairs.len().div_ceil(BUCKETS).max(1);
    let buckets: Vec<(String, u64)> = pairs
        .chunks(per_bucket)
        .map(|chunk| {
            let (first, last) = (chunk[0].0, chunk[chunk.len() - 1].0);
            let label = if first == last {
                first.to_string()
            } else {
                format!("{first}–{last}")
            };
            (label, chunk.iter().map(|(_, n)| n).sum())
        })
        .collect();
    let most = buckets.iter().map(|(_, n)| *n).max().unwrap_or(1).max(1);
    let width = buckets
        .iter()
        .map(|(label, _)| label.chars().count())
        .max()
        .unwrap_or(0)
        .max(value.len());
    let _ = writeln!(out, "  {value:>width$}  {count}");
    for (label, n) in &buckets {
        let bar = "█".repeat((*n as u128 * BAR as u128).div_ceil(u128::from(most)) as usize);
        let _ = writeln!(out, "  {label:>width$}  {bar} {}", group((*n).into()));
    }
}

/// A record in one line: `time_ns=5 block=0`.
pub fn line(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let shown: Vec<String> = fields
                .iter()
                .map(|(name, v)| format!("{}={}", plain::name(name), cell(v)))
                .collect();
            shown.join(" ")
        }
        other => cell(other),
    }
}

fn columns(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields.values().map(cell).collect(),
        other => vec![cell(other)],
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => plain::name(text).into_owned(),
        Value::Array(items) => {
            let shown: Vec<String> = items.iter().take(8).map(cell).collect();
            let rest = if items.len() > 8 {
                format!(", … {} more", items.len() - 8)
            } else {
                String::new()
            };
            format!("[{}{rest}]", shown.join(", "))
        }
        Value::Object(fields) => {
            let shown: Vec<String> = fields
                .iter()
                .map(|(name, v)| format!("{}={}", plain::name(name), cell(v)))
                .collect();
            format!("{{{}}}", shown.join(" "))
        }
        other => other.to_string(),
    }
}
