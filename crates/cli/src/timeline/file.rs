//! The files of a timeline: one that grows while applications run, and the whole one at the end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpbpf_tool::{Operations, Process};

use super::journal::Journal;
use super::recorded::{CLOCK, Told};
use super::rows::{Rows, other};
use super::{graphs, ranges, stacks};
use crate::flags::RequestFlags;
use crate::report::model::Report;
use crate::report::outlet::Outlet;
use crate::term::destination::Destination;
use crate::term::error::CliError;
use crate::term::output;

/// Time between two writes while applications run.
const JOURNAL: Duration = Duration::from_millis(500);
/// A timeline that is written while applications run, and once more, with all that is known, at the
/// end.
pub struct Timeline {
    to: Option<Destination>,
    folded: Option<Destination>,
    /// By process, in the tool's order.
    told: Vec<Told>,
    journal: Option<Journal>,
    next: Instant,
}

impl Timeline {
    /// Looks whether the files can be written, and begins the first; `None` if none is asked for.
    ///
    /// # Errors
    /// One cannot be written, or is the report's.
    pub fn open(request: &RequestFlags, report: &Outlet) -> Result<Option<Timeline>, CliError> {
        if !request.recorded().0 {
            return Ok(None);
        }
        let check = |path: &Option<PathBuf>| path.as_deref().map(Destination::check).transpose();
        let (to, folded) = (check(&request.timeline)?, check(&request.folded)?);
        let all = [
            ("-o", report.destination()),
            ("--folded", folded.as_ref()),
            ("--timeline", to.as_ref()),
        ];
        for (place, (later, this)) in all.iter().enumerate() {
            let same = |(_, other): &&(&str, Option<&Destination>)| {
                other
                    .zip(*this)
                    .is_some_and(|(other, this)| other.is_same(this))
            };
            if let (Some((earlier, _)), Some(this)) = (all[..place].iter().find(same), this) {
                return Err(CliError::Other(format!(
                    "`{earlier}` and `{later}` name the same file, `{}`: give each its own",
                    this.path().display()
                )));
            }
        }
        let journal = to.as_ref().map(Journal::begin).transpose()?.flatten();
        Ok(Some(Timeline {
            to,
            folded,
            told: Vec::new(),
            journal,
            next: Instant::now() + JOURNAL,
        }))
    }

    /// Takes in what was told, and writes it down from time to time.
    pub fn turn(&mut self, processes: &[Process]) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + JOURNAL;
        self.take(processes);
        if let Some(journal) = &mut self.journal {
            journal.add(&self.told);
        }
    }

    fn take(&mut self, processes: &[Process]) {
        self.told.resize_with(processes.len(), Told::default);
        for (told, process) in self.told.iter_mut().zip(processes) {
            told.take(process);
        }
    }

    /// Writes the files, and says in the report what is in them. What cannot be written is said
    /// there, too.
    pub fn write(mut self, processes: &[Process], report: &mut Report) {
        self.take(processes);
        for (told, process) in self.told.iter_mut().zip(processes) {
            told.name_stacks(process);
        }
        let text = |told| trace(told).to_string();
        let written = self.to.as_ref();
        let written = written.map(|to| to.write(text(&self.told).as_bytes()));
        if let (Some(journal), Some(written)) = (self.journal.take(), &written) {
            match written {
                Ok(()) => journal.end(),
                Err(_) => report.notes.extend(journal.stay(&self.told)),
            }
        }
        let folded = self.folded.as_ref().map(|folded| {
            let lines = self.told.iter();
            let lines = lines.map(|told| stacks::folded(&told.named, &told.operations.operations));
            folded.write(lines.collect::<String>().as_bytes())
        });
        for error in [written.as_ref(), folded.as_ref()].into_iter().flatten() {
            if let Err(error) = error {
                output::lose();
                report.notes.push(error.to_string());
            }
        }
        let whole = |to: &Option<Destination>, written: Option<Result<(), CliError>>| {
            let path = to.as_ref().filter(|_| matches!(written, Some(Ok(()))));
            path.map(|to| to.path().display().to_string())
        };
        let paths = [whole(&self.to, written), whole(&self.folded, folded)];
        for process in &self.told {
            remark(process, &paths, report);
        }
    }
}

/// Says what was told of a process, and what is missing.
fn remark(process: &Told, [timeline, folded]: &[Option<String>; 2], report: &mut Report) {
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
    if let Some(path) = timeline {
        report.remarks.push(format!(
            "timeline of {pid}: {} operations, {timed} with their times on the device (± {} ns){ranges}, in `{path}`",
            told.operations.len(),
            told.error,
        ));
    }
    if let (None, Some(path)) = (timeline, folded) {
        report.remarks.push(format!(
            "stacks of {pid}: of {} operations, {timed} with their times on the device (± {} ns), in `{path}`",
            told.operations.len(),
            told.error,
        ));
    }
    report.notes.extend(untimed(told));
    report.notes.extend(graphs::unknown(told.unlisted));
    report.notes.extend(ranges::unknown(&process.ranges));
    let crowded = process.crowded;
    if crowded > 0 {
        let note = format!("{crowded} operations have no stack: there are too many different ones");
        report.notes.push(note);
    }
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
    let mut frames = stacks::Frames::default();
    for process in told {
        Rows::default().push(&mut events, &process.since((0, 0)), &mut frames);
    }
    let other: Vec<Value> = told.iter().map(other).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ns", "stackFrames": frames.table(),
        "otherData": { "clock": CLOCK, "processes": other } })
}

#[cfg(test)]
mod tests {
    use warpbpf_tool::{Operation, Ranges};

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
            named: stacks::Named::of(&warpbpf_tool::HostStacks::default()),
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
