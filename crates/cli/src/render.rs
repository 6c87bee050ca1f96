//! Reports as text: tables, histograms, and the few sentences that matter.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::{Kernel, Map, Process, Report};

/// Width of a histogram's longest bar.
const BAR: usize = 40;
/// Rows of a histogram; beyond, neighbouring values share one.
const BUCKETS: usize = 16;

/// The whole report; at most `rows` rows per map.
pub fn report(report: &Report, rows: usize) -> String {
    let mut out = String::new();
    for process in &report.processes {
        process_text(&mut out, process, rows);
    }
    for note in &report.notes {
        let _ = writeln!(out, "warpbpf: {note}");
    }
    out
}

/// A line per map, for the time while the application runs.
pub fn summary(processes: &[Process]) -> String {
    let mut out = String::new();
    for process in processes {
        let launches: u64 = process.kernels.iter().map(|k| k.launches).sum();
        let _ = write!(
            out,
            "warpbpf: pid {}: {} launches",
            process.pid,
            group(u128::from(launches))
        );
        for map in &process.maps {
            let _ = match (&map.events, &map.threads, map.sum) {
                (Some(events), _, _) => write!(
                    out,
                    ", {} {} events ({} lost)",
                    map.name,
                    group(events.received.into()),
                    events.lost
                ),
                (_, Some(threads), sum) => {
                    write!(
                        out,
                        ", {} {} threads (sum {})",
                        map.name,
                        group(threads.count.into()),
                        group(sum.unwrap_or(0))
                    )
                }
                (_, _, Some(sum)) => write!(
                    out,
                    ", {} {} entries (sum {})",
                    map.name,
                    map.entries.len(),
                    group(sum)
                ),
                _ => write!(out, ", {} {} entries", map.name, map.entries.len()),
            };
        }
        out.push('\n');
    }
    out
}

/// A record in one line: `time_ns=5 block=0`.
pub fn line(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let shown: Vec<String> = fields
                .iter()
                .map(|(name, v)| format!("{name}={}", cell(v)))
                .collect();
            shown.join(" ")
        }
        other => cell(other),
    }
}

/// The table of `warpbpf kernels`.
pub fn kernels(process: &Process) -> String {
    let mut out = String::new();
    heading(&mut out, process);
    kernel_table(&mut out, &process.kernels, false);
    out
}

fn process_text(out: &mut String, process: &Process, rows: usize) {
    heading(out, process);
    if !process.complete {
        out.push_str(
            "  the application ended without a good-bye: these are the data read until then\n",
        );
    }
    let wanted: Vec<Kernel> = process
        .kernels
        .iter()
        .filter(|k| k.way != "not matched")
        .cloned()
        .collect();
    if !wanted.is_empty() {
        kernel_table(out, &wanted, true);
    }
    for map in &process.maps {
        map_text(out, map, rows);
    }
    if !process.messages.is_empty() {
        out.push_str("\nmessages\n");
        for message in process.messages.iter().take(rows) {
            let _ = writeln!(out, "  {message}");
        }
        more(out, process.messages.len(), rows);
    }
    if process.messages_lost > 0 {
        let _ = writeln!(out, "  {} messages were lost", process.messages_lost);
    }
}

fn heading(out: &mut String, process: &Process) {
    let soft = if process.soft { " (soft GPU)" } else { "" };
    // The whole path is in the JSON.
    let exe = process.exe.rsplit('/').next().unwrap_or(&process.exe);
    let _ = writeln!(
        out,
        "\n{exe} [pid {}] on {}{soft}",
        process.pid, process.device
    );
}

fn kernel_table(out: &mut String, kernels: &[Kernel], with_counts: bool) {
    let mut table = Table::new(if with_counts {
        &["kernel", "launches", "missed", "registers", "way"]
    } else {
        &["kernel", "registers", "source", "way"]
    });
    for kernel in kernels {
        let registers = match kernel.registers {
            Some((before, after)) if before == after || !kernel.instrumented => before.to_string(),
            Some((before, after)) => format!("{before} → {after}"),
            None => "?".into(),
        };
        table.row(if with_counts {
            vec![
                kernel.name.clone(),
                group(kernel.launches.into()),
                group(kernel.missed.into()),
                registers,
                kernel.way.clone(),
            ]
        } else {
            vec![
                kernel.name.clone(),
                registers,
                kernel.source.clone(),
                kernel.way.clone(),
            ]
        });
    }
    table.write(out);
}

fn map_text(out: &mut String, map: &Map, rows: usize) {
    let _ = write!(out, "\n{} ({})", map.name, map.kind);
    if let Some(events) = &map.events {
        let _ = writeln!(
            out,
            ": {} events, {} lost",
            group(events.received.into()),
            group(events.lost.into())
        );
        let mut table = Table::for_values(&[], &events.first);
        for value in events.first.iter().take(rows) {
            table.row(columns(value));
        }
        table.write(out);
        more(out, events.received as usize, rows.min(events.first.len()));
        if events.lost > 0 {
            out.push_str("  warning: records were lost because a ring was full; raise `max_entries` or send fewer\n");
        }
    } else if let Some(threads) = &map.threads {
        let sum = map.sum.unwrap_or(0);
        let _ = writeln!(
            out,
            ": {} threads with a value, sum {}, min {}, max {}",
            group(threads.count.into()),
            group(sum),
            group(threads.min.into()),
            group(threads.max.into())
        );
        histogram(out, &threads.histogram, "value", "threads");
    } else {
        let sum = map
            .sum
            .map_or(String::new(), |s| format!(", sum {}", group(s)));
        let _ = writeln!(out, ": {} entries{sum}", group(map.entries.len() as u128));
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
        let _ = writeln!(out, "  warning: {warning}");
    }
}

fn more(out: &mut String, all: usize, shown: usize) {
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

/// Digits in groups of three.
pub fn group(n: u128) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn columns(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields.values().map(cell).collect(),
        other => vec![cell(other)],
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
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
                .map(|(name, v)| format!("{name}={}", cell(v)))
                .collect();
            format!("{{{}}}", shown.join(" "))
        }
        other => other.to_string(),
    }
}

struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heads: &[&str]) -> Table {
        Table {
            rows: vec![heads.iter().map(|h| (*h).to_string()).collect()],
        }
    }

    /// Heads from the fields of the first value.
    fn for_values(before: &[&str], values: &[Value]) -> Table {
        let mut heads: Vec<&str> = before.to_vec();
        match values.first() {
            Some(Value::Object(fields)) => heads.extend(fields.keys().map(String::as_str)),
            _ => heads.push("value"),
        }
        Table::new(&heads)
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn write(&self, out: &mut String) {
        if self.rows.len() < 2 {
            return;
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|t| t.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |c: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|r| r.get(c));
            cells.all(|t| {
                t.starts_with(|d: char| d.is_ascii_digit())
                    && t.chars().all(|d| d.is_ascii_digit() || d == ',')
            })
        };
        let right: Vec<bool> = (0..columns).map(numeric).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (c, text) in row.iter().enumerate() {
                let fill = " ".repeat(widths[c] - text.chars().count());
                let _ = if right[c] {
                    write!(line, " {fill}{text}")
                } else {
                    write!(line, " {text}{fill}")
                };
                line.push(' ');
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Entry, Events, Threads};

    #[test]
    fn a_process_is_called_by_its_file_name() {
        let process = crate::model::Process {
            pid: 7,
            exe: "/opt/apps/vectoradd".to_owned(),
            device: "H200".to_owned(),
            ..Default::default()
        };
        let mut out = String::new();
        super::heading(&mut out, &process);
        assert_eq!(out, "\nvectoradd [pid 7] on H200\n");
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(group(0), "0");
        assert_eq!(group(999), "999");
        assert_eq!(group(1000), "1,000");
        assert_eq!(group(1_234_567), "1,234,567");
    }

    #[test]
    fn a_map_of_structs_is_a_table() {
        let value = |n: u64| serde_json::json!({ "launches": n, "threads": n * 256 });
        let entry = |key: &str, n| Entry {
            key: serde_json::json!(key),
            value: value(n),
        };
        let map = Map {
            name: "kernels".into(),
            kind: "hash".into(),
            entries: vec![entry("vectorAdd", 10), entry("gemm", 3)],
            warnings: vec!["1 update failed".into()],
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 1);
        assert_eq!(
            out,
            "\nkernels (hash): 2 entries\n  key        launches  threads\n  vectorAdd        10     2560\n  … 1 more\n  warning: 1 update failed\n"
        );
    }

    #[test]
    fn a_record_in_one_line() {
        let record =
            serde_json::json!({ "time_ns": 5, "where": { "block": 1, "sm": 2 }, "list": [1, 2] });
        assert_eq!(line(&record), "time_ns=5 where={block=1 sm=2} list=[1, 2]");
        assert_eq!(line(&serde_json::json!(7)), "7");
    }

    #[test]
    fn threads_are_a_histogram() {
        let threads = Threads {
            count: 30,
            min: 1,
            max: 2,
            histogram: vec![(1, 10), (2, 20)],
        };
        let map = Map {
            name: "t".into(),
            kind: "per_thread_array".into(),
            threads: Some(threads),
            sum: Some(50),
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 20);
        let expect = format!(
            "\nt (per_thread_array): 30 threads with a value, sum 50, min 1, max 2\n  value  threads\n      1  {} 10\n      2  {} 20\n",
            "█".repeat(20),
            "█".repeat(40)
        );
        assert_eq!(out, expect);
    }

    #[test]
    fn events_say_how_many_more() {
        let events = Events {
            received: 5,
            lost: 1,
            first: vec![serde_json::json!({ "sm": 3 })],
        };
        let map = Map {
            name: "e".into(),
            kind: "ringbuf".into(),
            events: Some(events),
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 20);
        assert_eq!(
            out,
            "\ne (ringbuf): 5 events, 1 lost\n  sm\n   3\n  … 4 more\n  warning: records were lost because a ring was full; raise `max_entries` or send fewer\n"
        );
    }
}
