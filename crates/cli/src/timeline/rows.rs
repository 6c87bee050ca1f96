//! Rows of the file: threads, contexts and streams by their names, and what stands on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use warpbpf_tool::Operation;

use super::recorded::{Part, Told, microseconds};
use super::stacks::name_of;
use super::{graphs, ranges, stacks};

/// Numbers of a process's contexts follow its own times this.
const CONTEXTS: u64 = 1000;

/// The rows of a process that have names by now.
#[derive(Default)]
pub(super) struct Rows {
    is_named: bool,
    threads: BTreeSet<u32>,
    contexts: BTreeSet<u32>,
    streams: BTreeMap<(u32, u64, u64), usize>,
}

impl Rows {
    /// Adds what is in a part, and the names of the rows that are new with it.
    pub(super) fn push(
        &mut self,
        events: &mut Vec<Value>,
        part: &Part<'_>,
        frames: &mut stacks::Frames,
    ) {
        let process = part.told;
        let (named, exe) = (&process.named, &process.exe);
        let pid = u64::from(process.pid);
        let mut fresh = BTreeSet::new();
        for operation in part.operations {
            let next = self.streams.len() + 1;
            let key = row_of(operation);
            self.streams.entry(key).or_insert_with(|| {
                fresh.insert(key);
                next
            });
        }
        let name = |what: &str, pid: u64, tid: u64, name: String| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
        if !std::mem::replace(&mut self.is_named, true) {
            events.push(name("process_name", pid, 0, exe.clone()));
        }
        let mut threads: BTreeSet<u32> = part.operations.iter().map(|op| op.thread).collect();
        threads.extend(part.ranges.iter().map(|range| range.thread));
        for thread in threads {
            if self.threads.insert(thread) {
                let text = ranges::thread_name(&process.ranges, thread);
                events.push(name("thread_name", pid, thread.into(), text));
            }
        }
        for (context, ..) in &fresh {
            if *context != u32::MAX && self.contexts.insert(*context) {
                let text = format!("{exe}: device, context {context}");
                events.push(name("process_name", in_context(pid, *context), 0, text));
            }
        }
        for key @ (context, stream, number) in fresh {
            if context != u32::MAX {
                let text = stream_name(stream, number);
                let text = match ranges::stream_name(&process.ranges, number) {
                    Some(name) => format!("{name} ({text})"),
                    None => text,
                };
                let tid = self.streams[&key] as u64;
                events.push(name("thread_name", in_context(pid, context), tid, text));
            }
        }
        let lists = graphs::Lists::of(&process.operations.graphs, part.operations);
        for operation in part.operations {
            let tid = self.streams[&row_of(operation)];
            let stack = frames.of(process.pid, named, operation.stack);
            push(events, pid, tid as u64, operation, (&lists, stack));
        }
        ranges::push(events, pid, part);
    }
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

/// What the file says of a process as a whole.
pub(super) fn other(process: &Told) -> Value {
    let (told, lost) = (&process.operations, process.ranges.lost);
    let lists = graphs::Lists::of(&told.graphs, &[]);
    json!({ "pid": process.pid, "device_error_ns": told.error, "operations": told.operations.len(),
        "untimed": { "crowded": told.untimed.crowded, "captured": told.untimed.captured, "refused": told.untimed.refused },
        "graphs": lists.table(), "graphs_unlisted": told.unlisted,
        "ranges": process.ranges.ranges.len(),
        "ranges_unknown": { "deep": lost.deep, "crowded": lost.crowded, "names_cut": lost.cut } })
}
