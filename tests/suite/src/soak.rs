//! Attach, replace, detach, again and again, while an application launches as fast as it can:
//! afterwards it has as many descriptors and threads as before, and its memory has grown by no more
//! than is known to stay (docs/measurements.md).

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attach::{Application, Attached, number, until_seen};
use crate::run::{Bench, Case, Told, is_deep, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "soak: attach, replace, detach under launches",
        check: |bench| soak(bench, Duration::from_secs(if is_deep() { 60 } else { 10 })),
    }]
}

/// Rounds after which nothing more may come to be there: the first ones load what stays.
const WARM: u64 = 4;
/// The least that is to be said of: the warm ones and some more.
const LEAST: u64 = WARM + 3;
/// What the application's memory may differ by, on the soft GPU and on a GPU: its allocator, and a
/// GPU's driver, keep more or less of what was given back, by chance. 10.7 MB were seen in 11
/// rounds on an H200, where 47 rounds differed by 0.9 MB (docs/measurements.md).
const SLACK_KB: [u64; 2] = [1 << 10, 16 << 10];
/// What a round may leave there besides: 4 kB were seen, and where a thread is in a hook for long
/// at a detach, memory of maps stays.
const ROUND_KB: u64 = 8;

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    resident_kb: u64,
}

impl Held {
    fn of(pid: &str) -> Result<Held, String> {
        let folder = format!("/proc/{pid}");
        let told = |e: std::io::Error| format!("{folder}: {e}");
        let count = |name: &str| std::fs::read_dir(format!("{folder}/{name}")).map(Iterator::count);
        let maps = std::fs::read(format!("{folder}/maps")).map_err(told)?;
        let status = std::fs::read_to_string(format!("{folder}/status")).map_err(told)?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        Ok(Held {
            descriptors: count("fd").map_err(told)?,
            threads: count("task").map_err(told)?,
            mappings: maps.iter().filter(|byte| **byte == b'\n').count(),
            resident_kb: resident.ok_or("no VmRSS")?,
        })
    }

    /// The most of both.
    fn most(self, other: Held) -> Held {
        Held {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            mappings: self.mappings.max(other.mappings),
            resident_kb: self.resident_kb.max(other.resident_kb),
        }
    }

    /// No more than before, and than so many rounds may leave.
    fn is_flat(&self, before: &Held, rounds: u64, soft: bool) -> bool {
        // The soft GPU's threads and mappings come and go with streams.
        let slack = SLACK_KB[usize::from(!soft)];
        self.descriptors <= before.descriptors
            && self.threads <= before.threads + 2
            && self.mappings <= before.mappings + 16
            && self.resident_kb <= before.resident_kb + slack + ROUND_KB * rounds
    }
}

/// For so long, and a few rounds at least.
pub(crate) fn soak(bench: &Bench, time: Duration) -> Told {
    let mut command = Command::new(bench.app("soak"));
    if bench.soft {
        command.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
    }
    let mut application = Application::start(command)?;
    same("says", application.next_line()?, "launching".to_owned())?;
    let pid = application.pid();
    let end = Instant::now() + time;
    let (mut round, mut warm, mut last) = (0, Held::of(&pid)?, Held::of(&pid)?);
    while round < LEAST || Instant::now() < end {
        match one(bench, &application, round) {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            done => done.map_err(|why| format!("round {round}: {why}"))?,
        }
        round += 1;
        last = Held::of(&pid)?;
        if round <= WARM {
            warm = warm.most(last);
            continue;
        }
        // A thread may be about to end.
        for _ in 0..100 {
            if last.is_flat(&warm, round - WARM, bench.soft) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            last = Held::of(&pid)?;
        }
        if !last.is_flat(&warm, round - WARM, bench.soft) {
            return Err(format!(
                "after round {round}: {last:?}, and at most {warm:?} after the first {WARM}"
            ));
        }
    }
    let said = application.end()?;
    let words: Vec<u64> = said
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    let &[launches, ran, a_second] = words.as_slice() else {
        return Err(format!("the application says `{said}`"));
    };
    same("launches that ran", ran, launches)?;
    Ok(format!(
        "{round} rounds, {launches} launches ({a_second} a second); {} descriptors, {} threads, {} mappings, {} kB ({} kB after {WARM} rounds)",
        last.descriptors, last.threads, last.mappings, last.resident_kb, warm.resident_kb
    ))
}

/// Attach, until launches are counted; replace, until others are; detach. Each launch with programs
/// had those of one version, whole.
fn one(bench: &Bench, application: &Application, round: u64) -> Result<(), String> {
    let pid = application.pid();
    let attached = Attached::start(bench, application, "replace")?;
    until_seen(bench, (&pid, "entered"), || Ok(()))?;
    let mut command = bench.warpbpf("replace");
    let version = format!("version={}", 2 + round % 2000);
    command
        .arg(bench.object("replace"))
        .args(["--set", &version]);
    let output = command.args(["--json", "--pid", &pid]).output();
    let output = output.map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::thread::sleep(Duration::from_millis(50));
    let report = attached.interrupt()?;
    let maps = report["processes"][0]["maps"].as_array();
    let counted = |name: &str| {
        let map = maps.into_iter().flatten().find(|map| map["name"] == name);
        let entries = map.and_then(|map| map["entries"].as_array());
        let mut counts: Vec<(u64, u64)> = entries
            .into_iter()
            .flatten()
            .map(|entry| (number(&entry["key"]), number(&entry["value"])))
            .filter(|(_, count)| *count > 0)
            .collect();
        counts.sort_unstable();
        counts
    };
    let entered = counted("entered");
    same(
        "at the start and at the end",
        counted("left"),
        entered.clone(),
    )?;
    same("versions that ran", entered.len(), 2)?;
    let kernels = report["processes"][0]["kernels"].as_array();
    let launches: u64 = kernels
        .into_iter()
        .flatten()
        .map(|kernel: &Value| number(&kernel["launches"]))
        .sum();
    let counted: u64 = entered.iter().map(|(_, count)| count).sum();
    same("launches with programs", counted, launches)
        .map_err(|why| format!("{why}: {entered:?}, {}", report["processes"][0]["kernels"]))
}
