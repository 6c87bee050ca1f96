//! The application's NVTX ranges in a timeline: those of threads on their rows, those of the
//! process beside them.

use serde_json::{Value, json};
use warpbpf_tool::{Range, RangeKind, Ranges};

use super::recorded::{Part, microseconds};

/// The row of a thread: by the name that the application gave to it.
pub(super) fn thread_name(told: &Ranges, thread: u32) -> String {
    let named = told.threads.iter().find(|(number, _)| *number == thread);
    match named {
        Some((_, name)) => format!("{name} (thread {thread})"),
        None => format!("thread {thread}"),
    }
}

/// The name that the application gave to a stream.
pub(super) fn stream_name(told: &Ranges, number: u64) -> Option<&str> {
    let named = told.streams.iter().find(|(stream, _)| *stream == number);
    named.map(|(_, name)| name.as_str())
}

/// Adds all ranges. What was not ended lasts until the last thing that is known.
pub(super) fn push(events: &mut Vec<Value>, pid: u64, part: &Part<'_>) {
    let of_operations = part.operations.iter().map(|op| {
        op.device
            .map_or(op.called.1, |(_, end)| end.max(op.called.1))
    });
    let of_ranges = part.ranges.iter().map(|r| r.end.unwrap_or(r.begin));
    let last = of_operations.chain(of_ranges).max().unwrap_or(0);
    for (number, range) in (part.first_range..).zip(part.ranges) {
        let end = range.end.unwrap_or(last);
        let mut args = json!({});
        if let Some(domain) = &range.domain {
            args["domain"] = json!(domain);
        }
        if range.end.is_none() {
            args["ended"] = json!(false);
        }
        let event = |ph: &str, ns: u64| json!({ "ph": ph, "name": range.name, "cat": "nvtx", "pid": pid, "tid": range.thread, "ts": microseconds(ns), "args": args });
        match range.kind {
            RangeKind::Thread => events.push(whole(event("X", range.begin), range, end)),
            RangeKind::Process => {
                for (ph, ns) in [("b", range.begin), ("e", end)] {
                    let mut event = event(ph, ns);
                    event["id"] = json!(number);
                    events.push(event);
                }
            }
            RangeKind::Mark => {
                let mut event = event("i", range.begin);
                event["s"] = json!("t");
                events.push(event);
            }
        }
    }
}

fn whole(mut event: Value, range: &Range, end: u64) -> Value {
    event["dur"] = json!(microseconds(end.saturating_sub(range.begin)));
    event
}

/// What is missing, for the report.
pub(super) fn unknown(told: &Ranges) -> Option<String> {
    let kinds = [
        (
            told.lost.deep,
            "NVTX ranges are not in the timeline: too many were around them, or open at once",
        ),
        (
            told.lost.crowded,
            "NVTX ranges and marks are not in the timeline: there was no room until they were fetched",
        ),
        (told.lost.cut, "names given by NVTX are cut, or not kept"),
    ];
    let said: Vec<String> = (kinds.iter().filter(|(count, _)| *count > 0))
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::recorded::Told;
    use super::*;

    #[test]
    fn each_kind_has_its_row() {
        let range = |name: &str, kind, end| Range {
            name: name.into(),
            domain: None,
            thread: 7,
            kind,
            begin: 1_000,
            end,
        };
        let told = Ranges {
            ranges: vec![
                Range {
                    domain: Some("NCCL".into()),
                    ..range("step", RangeKind::Thread, Some(4_500))
                },
                range("open", RangeKind::Thread, None),
                range("epoch", RangeKind::Process, Some(9_000)),
                range("here", RangeKind::Mark, Some(1_000)),
            ],
            threads: vec![(7, "loader".into())],
            streams: vec![(4, "copies".into())],
            ..Ranges::default()
        };
        let mut events = Vec::new();
        let process = Told {
            ranges: told.clone(),
            ..Told::default()
        };
        push(&mut events, 40, &process.since((0, 0)));
        let rows: Vec<(&str, &str, f64)> = events
            .iter()
            .map(|e| {
                let text = |key: &str| e[key].as_str().unwrap_or_default();
                (text("ph"), text("name"), e["ts"].as_f64().unwrap())
            })
            .collect();
        let expected = [
            ("X", "step", 1.0),
            ("X", "open", 1.0),
            ("b", "epoch", 1.0),
            ("e", "epoch", 9.0),
            ("i", "here", 1.0),
        ];
        assert_eq!(rows, expected);
        assert_eq!(
            (&events[0]["dur"], &events[0]["args"]["domain"]),
            (&json!(3.5), &json!("NCCL"))
        );
        assert_eq!(
            (&events[1]["dur"], &events[1]["args"]["ended"]),
            (&json!(8.0), &json!(false))
        );
        assert_eq!((&events[2]["id"], &events[3]["id"]), (&json!(3), &json!(3)));
        assert_eq!(thread_name(&told, 7), "loader (thread 7)");
        assert_eq!(thread_name(&told, 8), "thread 8");
        assert_eq!(stream_name(&told, 4), Some("copies"));
        assert_eq!(stream_name(&told, 1), None);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut told = Ranges::default();
        assert_eq!(unknown(&told), None);
        (told.lost.deep, told.lost.cut) = (3, 1);
        let text = "3 NVTX ranges are not in the timeline: too many were around them, or open at once; 1 names given by NVTX are cut, or \
                    not kept";
        assert_eq!(unknown(&told).unwrap(), text);
    }
}
