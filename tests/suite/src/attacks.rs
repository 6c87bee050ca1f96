//! What hostile neighbours, odd applications and a machine without room try, and what must hold all
//! the same. Each attack says its own line; the table of all of them is in docs/safety.md, "Attacks
//! that are tried".

mod agents;
mod caches;
mod commands;
mod hostile;
mod kills;
mod limits;
mod memory;
mod places;
mod surroundings;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same};

/// How long something may take that others do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// All cases.
pub fn cases() -> Vec<Case> {
    let parts: [fn() -> Vec<Case>; 8] = [
        agents::cases,
        memory::cases,
        places::cases,
        caches::cases,
        limits::cases,
        surroundings::cases,
        kills::cases,
        commands::cases,
    ];
    parts.iter().flat_map(|cases| cases()).collect()
}

/// Says what came of one attack, in a line of its own.
pub(crate) fn told(attack: &str, what: &str) {
    say!("attack: {attack}: {what}");
}

/// Runs attacks one after the other; the first that succeeds is told by its name.
pub(crate) fn each(attacks: &[(&str, &dyn Fn() -> Told)]) -> Told {
    let mut skipped = Vec::new();
    for (name, attack) in attacks {
        match attack().map_err(|why| format!("{name}: {why}"))? {
            what if what.starts_with("skipped: ") => {
                told(name, &what);
                skipped.push(what);
            }
            what => told(name, &what),
        }
    }
    match (attacks.len() - skipped.len(), skipped.first()) {
        (0, Some(why)) => Ok(why.clone()),
        (done, None) => Ok(format!("{done} attacks")),
        (done, Some(why)) => Ok(format!("{done} attacks, and {} {why}", skipped.len())),
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            return Err(format!("{what}: it is not so"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Root, who may do to others what others may not do to him.
pub(crate) fn is_root() -> bool {
    // SAFETY: it cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A user that nobody is.
pub(crate) const SOMEBODY: u32 = 54_321;
pub(crate) const ONLY_ROOT: &str = "skipped: only root can be two users";

/// A kilobyte's number in `/proc/PID/status`.
pub(crate) fn status_of(pid: u32, field: &str) -> u64 {
    let bytes = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let digits = line.unwrap_or_default().trim_start_matches(':').trim();
    digits
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// How many descriptors a process has.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// One launch of `vectoradd` with 1,000 elements.
pub(crate) const ARGUMENTS: &[&str] = &["1000", "1"];

/// `warpbpf serve` at work. It is ended with the case.
pub(crate) struct Served {
    tool: Owned,
    report: PathBuf,
    pub(crate) variables: Vec<(String, String)>,
    /// Descriptors that it had before anybody came.
    pub(crate) before: usize,
    /// What it has said on standard error since.
    said: Arc<Mutex<String>>,
}

impl Served {
    /// Starts it with `launchcount`.
    pub(crate) fn start(bench: &Bench) -> Result<Served, String> {
        Served::with(bench, &["--json"], |_| {})
    }

    /// The same with other flags, and something more done to the command.
    pub(crate) fn with(
        bench: &Bench,
        flags: &[&str],
        more: impl FnOnce(&mut Command),
    ) -> Result<Served, String> {
        let report = bench.scratch("served.json");
        let mut command = bench.warpbpf("serve");
        command.arg("--socket").arg(bench.scratch("serve"));
        command.args(flags).arg("-o").arg(&report);
        command.arg(bench.object("launchcount"));
        more(&mut command);
        let mut tool = Owned::spawn(command.stderr(Stdio::piped())).map_err(|e| e.to_string())?;
        let errors = BufReader::new(tool.stderr.take().ok_or("no errors")?);
        let mut variables = Vec::new();
        let mut lines = errors.lines().map_while(Result::ok);
        let mut others = Vec::new();
        loop {
            let Some(line) = lines.next() else {
                return Err(others.join("\n"));
            };
            if let Some((name, value)) = line.split_once('=') {
                variables.push((name.to_owned(), value.to_owned()));
            }
            if line.contains("Ctrl-C ends this") {
                break;
            }
            others.push(line);
        }
        // It must not be stopped by a pipe that nobody reads.
        let said = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                *kept += &line;
                kept.push('\n');
            }
        });
        let before = descriptors(tool.id());
        Ok(Served {
            tool,
            report,
            variables,
            before,
            said,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.tool.id()
    }

    /// Where agents connect.
    pub(crate) fn socket(&self) -> Result<PathBuf, String> {
        let named = self
            .variables
            .iter()
            .find(|(name, _)| name == "WARPBPF_SOCKET");
        named
            .map(|(_, value)| value.into())
            .ok_or("no socket".into())
    }

    /// An application comes, is served, and computes what it does alone.
    pub(crate) fn serves(&self, bench: &Bench) -> Result<(), String> {
        let expected = bench.plain("vectoradd", ARGUMENTS)?;
        let mut command = Command::new(bench.app("vectoradd"));
        command.args(ARGUMENTS).envs(self.variables.iter().cloned());
        let output = command.output().map_err(|e| e.to_string())?;
        same("status of the application", output.status.code(), Some(0))?;
        same("output of the application", output.stdout == expected, true)
    }

    /// Nobody who is gone has left it a descriptor.
    pub(crate) fn holds_no_more(&self) -> Result<(), String> {
        let (pid, before) = (self.pid(), self.before);
        until("its descriptors are as before", || {
            descriptors(pid) <= before
        })
        .map_err(|why| format!("{why}: {} and {before} before", descriptors(pid)))
    }

    /// Most memory that it had so far, of its own and shared, in MiB.
    pub(crate) fn peak(&self) -> u64 {
        status_of(self.pid(), "VmHWM") >> 10
    }

    /// Ctrl-C, and its report.
    pub(crate) fn end(self) -> Result<Value, String> {
        let bytes = self.end_as_it_is()?;
        serde_json::from_slice(&bytes).map_err(|e| e.to_string())
    }

    /// The same, in whatever form it is.
    pub(crate) fn end_as_it_is(mut self) -> Result<Vec<u8>, String> {
        process::signal(self.pid(), Signal::Interrupt)?;
        let status = self.tool.wait().map_err(|e| e.to_string())?;
        same("status of the tool", status.code(), Some(0)).map_err(|why| {
            // Who reads it on another thread may not be through.
            std::thread::sleep(Duration::from_millis(200));
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            format!("{why}: {said}")
        })?;
        std::fs::read(&self.report).map_err(|e| e.to_string())
    }
}

/// How many of the applications in a report have launched the kernel once with programs.
pub(crate) fn good_ones(report: &Value) -> usize {
    let processes = report["processes"].as_array().into_iter().flatten();
    let once = |process: &&Value| process["kernels"][0]["launches"].as_u64() == Some(1);
    processes.filter(once).count()
}

/// What a report notes.
pub(crate) fn notes(report: &Value) -> Vec<String> {
    let notes = report["notes"].as_array().into_iter().flatten();
    notes
        .filter_map(|note| note.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    /// The rows of the table: what is done, what must hold, the case.
    fn rows() -> Vec<[String; 3]> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/safety.md");
        let text = std::fs::read_to_string(file).expect(file);
        let (_, section) = text
            .split_once("\n## Attacks that are tried\n")
            .expect("the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let lines = section.lines().filter(|line| line.starts_with('|'));
        // The head, and the line below it.
        let rows = lines.skip(2).map(|line| {
            let cells: Vec<String> = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect();
            <[String; 3]>::try_from(cells).unwrap_or_else(|cells| panic!("{cells:?}"))
        });
        rows.collect()
    }

    /// A name that has such signs itself stands without them.
    fn named(cell: &str) -> &str {
        let inner = cell
            .strip_prefix('`')
            .and_then(|cell| cell.strip_suffix('`'));
        inner.unwrap_or(cell)
    }

    #[test]
    fn the_table_of_attacks_names_cases_that_there_are() {
        let rows = rows();
        assert!(rows.len() >= 50, "{} rows", rows.len());
        let cases = crate::list::all();
        let mut attacks: Vec<&str> = Vec::new();
        for [attack, holds, case] in &rows {
            assert!(!attack.is_empty() && !holds.is_empty());
            let name = named(case);
            assert!(cases.iter().any(|c| c.name == name), "no case `{name}`");
            attacks.push(attack);
        }
        attacks.sort_unstable();
        attacks.dedup();
        assert_eq!(attacks.len(), rows.len(), "an attack is there twice");
        // What is new here is in the table.
        for case in super::cases() {
            let of = |row: &&[String; 3]| named(&row[2]) == case.name;
            assert!(
                rows.iter().any(|row| of(&row)),
                "`{}` has no row",
                case.name
            );
        }
    }
}
