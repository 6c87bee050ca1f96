//! What the device did and when, as a file that Perfetto and `chrome://tracing` open: calls on the application's threads, operations on
//! the device's streams, and an arrow from each call to what it had the device do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use warpbpf::{Operation, Operations, Process, Ranges};
use warpbpf_session::names::demangle;

use crate::error::CliError;
use crate::model::Report;

mod graphs;
mod ranges;
mod stacks;

/// Numbers of a process's contexts follow its own times this.
const CONTEXTS: u64 = 1000;

/// What was told of a process.
struct Told {
    pid: u32,
    exe: String,
    operations: Operations,
    ranges: Ranges,
    named: stacks::Named,
    /// Operations whose stacks are not known, as there were too many different ones.
    crowded: u64,
}

impl Told {
    fn of(process: &Process) -> Told {
        let operations = process.take_operations();
        // Those of all operations are known by now.
        let stacks = process.stacks();
        Told {
            pid: process.pid(),
            exe: process.exe(),
            operations,
            ranges: process.take_ranges(),
            named: stacks::Named::of(&stacks),
            crowded: stacks.crowded,
        }
    }
}

/// Writes the file, and says in the report what is in it.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    path: &Path,
    folded: Option<&Path>,
    processes: &[Process],
    report: &mut Report,
) -> Result<(), CliError> {
    let told: Vec<Told> = processes.iter().map(Told::of).collect();
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|source| CliError::Write {
            path: path.display().to_string(),
            source,
        })
    };
    write(path, trace(&told).to_string())?;
    if let Some(folded) = folded {
        let lines = told
            .iter()
            .map(|process| stacks::folded(&process.named, &process.operations.operations));
        write(folded, lines.collect())?;
    }
    for process in &told {
        let (pid, told) = (process.pid, &process.operations);
        let timed = told
            .operations
            .iter()
            .filter(|op| op.device.is_some())
            .count();
        let ranges = match process.ranges.ranges.len() {
            0 => String::new(),
            count => format!(", {count} NVTX ranges and marks"),
        };
        report.remarks.push(format!(
            "timeline of {pid}: {} operations, {timed} with their times on the device (± {} ns){ranges}, in `{}`",
            told.operations.len(),
            told.error,
            path.display()
        ));
        report.notes.extend(untimed(told));
        report.notes.extend(graphs::unknown(told.unlisted));
        report.notes.extend(ranges::unknown(&process.ranges));
        let crowded = process.crowded;
        if crowded > 0 {
            let note =
                format!("{crowded} operations have no stack: there are too many different ones");
            report.notes.push(note);
        }
    }
    Ok(())
}

fn untimed(told: &Operations) -> Option<String> {
    let kinds = [
        (
            told.untimed.crowded,
            "more were under way than there are marks for",
        ),
        (
            told.untimed.refused,
            "the driver refused a mark, or their context ended first",
        ),
    ];
    let said: Vec<String> = (kinds.iter().filter(|(count, _)| *count > 0))
        .map(|(count, why)| format!("{count} operations have no times on the device: {why}"))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The whole file, in the Trace Event Format.
fn trace(told: &[Told]) -> Value {
    let mut events = Vec::new();
    let mut other = Vec::new();
    let mut frames = stacks::Frames::default();
    for process in told {
        let named = &process.named;
        let (exe, told) = (&process.exe, &process.operations);
        let pid = u64::from(process.pid);
        let mut streams: BTreeMap<(u32, u64, u64), usize> = BTreeMap::new();
        for operation in &told.operations {
            let next = streams.len() + 1;
            let key = row_of(operation);
            streams.entry(key).or_insert(next);
        }
        let name = |what: &str, pid: u64, tid: u64, name: String| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
        events.push(name("process_name", pid, 0, exe.clone()));
        let mut threads: BTreeSet<u32> = told.operations.iter().map(|op| op.thread).collect();
        threads.extend(process.ranges.ranges.iter().map(|range| range.thread));
        for thread in threads {
            let text = ranges::thread_name(&process.ranges, thread);
            events.push(name("thread_name", pid, thread.into(), text));
        }
        let contexts: BTreeSet<u32> = streams.keys().map(|(context, ..)| *context).collect();
        for context in contexts.into_iter().filter(|context| *context != u32::MAX) {
            let text = format!("{exe}: device, context {context}");
            events.push(name("process_name", in_context(pid, context), 0, text));
        }
        for ((context, stream, number), tid) in &streams {
            if *context != u32::MAX {
                let text = stream_name(*stream, *number);
                let text = match ranges::stream_name(&process.ranges, *number) {
                    Some(name) => format!("{name} ({text})"),
                    None => text,
                };
                events.push(name(
                    "thread_name",
                    in_context(pid, *context),
                    *tid as u64,
                    text,
                ));
            }
        }
        let lists = graphs::Lists::of(told);
        for operation in &told.operations {
            let tid = streams[&row_of(operation)];
            let stack = frames.of(process.pid, named, operation.stack);
            push(&mut events, pid, tid as u64, operation, (&lists, stack));
        }
        ranges::push(&mut events, pid, &process.ranges, told);
        let lost = process.ranges.lost;
        other.push(json!({ "pid": pid, "device_error_ns": told.error, "operations": told.operations.len(),
            "untimed": { "crowded": told.untimed.crowded, "captured": told.untimed.captured, "refused": told.untimed.refused },
            "graphs": lists.table(), "graphs_unlisted": told.unlisted,
            "ranges": process.ranges.ranges.len(),
            "ranges_unknown": { "deep": lost.deep, "crowded": lost.crowded, "names_cut": lost.cut } }));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns", "stackFrames": frames.table(),
        "otherData": { "clock": "CLOCK_MONOTONIC", "processes": other } })
}

/// What operations of one row have in common. A handle may have been another stream's before.
fn row_of(operation: &Operation) -> (u32, u64, u64) {
    let stream = stream_of(operation);
    (operation.context, stream, operation.stream_number)
}

/// The streams of threads have one name in all of them.
fn stream_of(operation: &Operation) -> u64 {
    match operation.stream {
        2 => 2 | u64::from(operation.thread) << 32,
        stream => stream,
    }
}

fn stream_name(stream: u64, number: u64) -> String {
    match (stream, stream & 0xffff_ffff) {
        (1, _) => "default stream".to_owned(),
        (_, 2) => format!("stream of thread {}", stream >> 32),
        _ => format!("stream {number}"),
    }
}

fn in_context(pid: u64, context: u32) -> u64 {
    pid * CONTEXTS + u64::from(context) + 1
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The name of what the device did.
fn name_of(operation: &Operation) -> String {
    let kernel = operation.kernel.as_deref().map(demangle);
    kernel.unwrap_or_else(|| operation.api.clone())
}

fn push(
    events: &mut Vec<Value>,
    pid: u64,
    tid: u64,
    operation: &Operation,
    (lists, stack): (&graphs::Lists<'_>, Option<u64>),
) {
    let (called, returned) = operation.called;
    let mut what = json!({ "id": operation.id, "api": operation.api });
    if let Some(bytes) = operation.bytes {
        what["bytes"] = json!(bytes);
    }
    if operation.launch != 0 {
        what["launch_id"] = json!(operation.launch);
    }
    if let Some(nvtx) = &operation.nvtx {
        what["nvtx"] = json!(nvtx);
    }
    lists.describe(operation, &mut what);
    let mut call = json!({ "ph": "X", "name": operation.api, "cat": "call", "pid": pid, "tid": operation.thread,
        "ts": microseconds(called), "dur": microseconds(returned.saturating_sub(called)), "args": what });
    if let Some(stack) = stack {
        call["sf"] = json!(stack.to_string());
    }
    events.push(call);
    let Some((begin, end)) = operation.device else {
        return;
    };
    let name = name_of(operation);
    let device = in_context(pid, operation.context);
    events.push(
        json!({ "ph": "X", "name": name, "cat": operation.kind, "pid": device, "tid": tid,
        "ts": microseconds(begin), "dur": microseconds(end.saturating_sub(begin)), "args": what }),
    );
    let arrow = |ph: &str, pid: u64, tid: u64, ns: u64| json!({ "ph": ph, "bp": "e", "name": "asks for", "cat": "call", "id": operation.id, "pid": pid, "tid": tid, "ts": microseconds(ns) });
    events.push(arrow("s", pid, operation.thread.into(), called));
    events.push(arrow("f", device, tid, begin));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation() -> Operation {
        Operation {
            id: 7,
            api: "cuLaunchKernel".into(),
            kind: "kernel".into(),
            thread: 41,
            context: 0,
            stream: 2,
            stream_number: 0,
            called: (1_000, 3_500),
            device: Some((9_000, 19_250)),
            bytes: None,
            kernel: Some("_Z9vectorAddPKfS0_Pfi".into()),
            launch: 3,
            nvtx: Some("step/forward".into()),
            stack: 0,
            graph: None,
        }
    }

    #[test]
    fn calls_and_operations_have_rows_of_their_own_and_an_arrow() {
        let captured = Operation {
            id: 8,
            device: None,
            ..operation()
        };
        let told = Operations {
            operations: vec![operation(), captured],
            error: 900,
            ..Operations::default()
        };
        let made = trace(&[Told {
            pid: 40,
            exe: "/bin/app".into(),
            operations: told,
            ranges: Ranges::default(),
            named: stacks::Named::of(&warpbpf::HostStacks::default()),
            crowded: 0,
        }]);
        let events = made["traceEvents"].as_array().unwrap();
        let all = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
        let rows = all("X");
        assert_eq!(
            rows.len(),
            3,
            "two calls, of which one has its times on the device"
        );
        assert_eq!(rows[0]["name"], "cuLaunchKernel");
        assert_eq!((&rows[0]["pid"], &rows[0]["tid"]), (&json!(40), &json!(41)));
        assert_eq!(
            (&rows[0]["ts"], &rows[0]["dur"]),
            (&json!(1.0), &json!(2.5))
        );
        assert_eq!(rows[1]["name"], "vectorAdd");
        assert_eq!(
            (&rows[1]["pid"], &rows[1]["tid"]),
            (&json!(40_001), &json!(1))
        );
        assert_eq!(
            (&rows[1]["ts"], &rows[1]["dur"]),
            (&json!(9.0), &json!(10.25))
        );
        assert_eq!(rows[1]["args"]["launch_id"], 3);
        assert_eq!(rows[1]["args"]["nvtx"], "step/forward");
        assert_eq!((all("s").len(), all("f").len()), (1, 1));
        assert_eq!(made["otherData"]["processes"][0]["device_error_ns"], 900);
        let names: Vec<&str> = all("M")
            .iter()
            .filter_map(|e| e["args"]["name"].as_str())
            .collect();
        assert!(names.contains(&"stream of thread 41"), "{names:?}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut told = Operations::default();
        assert_eq!(untimed(&told), None);
        told.untimed.captured = 5;
        assert_eq!(
            untimed(&told),
            None,
            "they are part of their graph's launches"
        );
        told.untimed.crowded = 2;
        let text = untimed(&told).unwrap();
        assert!(
            text.starts_with("2 operations have no times on the device: more"),
            "{text}"
        );
    }
}
