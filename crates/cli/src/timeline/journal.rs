//! A timeline while applications run: a file that is whole after each write, so that whoever ends
//! this command loses only what came since.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::recorded::{CLOCK, Told};
use super::rows::{Rows, other};
use super::stacks;
use crate::term::destination::Destination;
use crate::term::error::CliError;
use crate::term::plain;

/// What every file begins with.
const HEAD: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

/// The file.
pub(super) struct Journal {
    path: PathBuf,
    /// It has a name of its own, as what was at the timeline's stays until that is whole.
    is_beside: bool,
    file: File,
    /// Behind the last event.
    end: u64,
    /// What stands there.
    tail: String,
    /// Nothing comes in front of the next event.
    is_empty: bool,
    /// By process.
    rows: Vec<(Rows, (usize, usize))>,
    /// Why no more is written.
    failed: Option<io::Error>,
}

impl Journal {
    /// Begins the file, at the timeline's own name if nothing is lost by that; `None` where a
    /// timeline is no file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(to: &Destination) -> Result<Option<Journal>, CliError> {
        let Some(target) = to.regular() else {
            return Ok(None);
        };
        let is_beside = std::fs::metadata(target).is_ok_and(|there| there.len() > 0);
        let mut path = target.as_os_str().to_owned();
        if is_beside {
            path.push(".part");
        }
        let path = PathBuf::from(path);
        let failed = |source| CliError::Write {
            path: path.display().to_string(),
            source,
        };
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(true).open(&path);
        let mut journal = Journal {
            file: file.map_err(failed)?,
            is_beside,
            end: 0,
            tail: String::new(),
            is_empty: true,
            rows: Vec::new(),
            failed: None,
            path: path.clone(),
        };
        journal.put(HEAD, tail(&[])).map_err(failed)?;
        Ok(Some(journal))
    }

    /// Writes what is new. If that fails the file stays as it was.
    pub(super) fn add(&mut self, told: &[Told]) {
        if self.failed.is_some() {
            return;
        }
        self.rows.resize_with(told.len(), Default::default);
        let mut events = Vec::new();
        // Their names are looked up at the end.
        let mut frames = stacks::Frames::default();
        for (process, (rows, done)) in told.iter().zip(&mut self.rows) {
            let part = process.since(*done);
            if !part.operations.is_empty() || !part.ranges.is_empty() {
                rows.push(&mut events, &part, &mut frames);
                *done = (
                    process.operations.operations.len(),
                    process.ranges.ranges.len(),
                );
            }
        }
        if events.is_empty() {
            return;
        }
        let mut text = String::new();
        for event in &events {
            text += if std::mem::replace(&mut self.is_empty, false) {
                ""
            } else {
                ",\n"
            };
            text += &plain::output(&event.to_string());
        }
        self.failed = self.put(&text, tail(told)).err();
    }

    /// Writes events and what stands behind the last one. If that fails, what stood there stands
    /// there again.
    fn put(&mut self, text: &str, tail: String) -> io::Result<()> {
        let whole = format!("{text}{tail}");
        let written = self.at(self.end, &whole);
        match written {
            Ok(()) => {
                self.end += text.len() as u64;
                self.tail = tail;
            }
            // There was room for it.
            Err(_) => self.at(self.end, &self.tail.clone())?,
        }
        written
    }

    fn at(&mut self, place: u64, text: &str) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(place + text.len() as u64)
    }

    /// The timeline is written: this one is no longer needed. Where it had the timeline's name,
    /// that is another file by now.
    pub(super) fn end(self) {
        if self.is_beside {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The timeline cannot be written: this one stays, with all that was told if there is room, and
    /// is said to be there.
    pub(super) fn stay(mut self, told: &[Told]) -> Option<String> {
        self.add(told);
        let path = self.path.display();
        Some(match &self.failed {
            None => format!("`{path}` has all operations of the timeline, without their stacks"),
            Some(error) => {
                format!("`{path}` has the timeline's beginning; more cannot be written: {error}")
            }
        })
    }
}

/// What stands behind the events.
fn tail(told: &[Told]) -> String {
    let processes: Vec<Value> = told.iter().map(other).collect();
    let other = json!({ "clock": CLOCK, "processes": processes, "unfinished": true });
    format!(
        "\n],\"otherData\":{}}}\n",
        plain::output(&other.to_string())
    )
}

#[cfg(test)]
mod tests {
    use warpbpf_tool::{Operation, Operations};

    use super::*;

    fn told(count: u64) -> Vec<Told> {
        let operation = |id| Operation {
            id,
            api: "cuMemsetD8".into(),
            kind: "fill".into(),
            thread: 41,
            called: (id * 1000, id * 1000 + 5),
            ..Operation::default()
        };
        vec![Told {
            pid: 40,
            exe: "/bin/app\u{9b}".into(),
            operations: Operations {
                operations: (1..=count).map(operation).collect(),
                ..Operations::default()
            },
            ..Told::default()
        }]
    }

    fn read(path: &std::path::Path) -> (usize, Value) {
        let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let calls = events.iter().filter(|event| event["ph"] == "X").count();
        (calls, value["otherData"].take())
    }

    #[test]
    fn the_file_is_whole_after_each_write() {
        let folder = std::env::temp_dir().join(format!("warpbpf-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("timeline.json");
        let to = Destination::check(&path).unwrap();
        let mut journal = Journal::begin(&to).unwrap().unwrap();
        assert_eq!(read(&path).0, 0);
        for count in [3, 3, 5] {
            journal.add(&told(count));
            let (calls, other) = read(&path);
            assert_eq!(calls as u64, count);
            assert_eq!(other["processes"][0]["operations"], json!(count));
            assert_eq!(other["unfinished"], json!(true));
        }
        // What is there stays until the timeline is whole.
        let mut beside = Journal::begin(&to).unwrap().unwrap();
        beside.add(&told(9));
        assert_eq!(read(&path).0, 5);
        assert_eq!(read(&folder.join("timeline.json.part")).0, 9);
        beside.end();
        assert!(!folder.join("timeline.json.part").exists());
        // Nothing can be written any more.
        journal.file = File::open("/dev/null").unwrap();
        let said = journal.stay(&told(7)).unwrap();
        assert!(said.contains("has the timeline's beginning"), "{said}");
        assert_eq!(read(&path).0, 5);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
