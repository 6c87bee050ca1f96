//! The corpus on a device: every group plain, then with each probe, everything compared.

use std::collections::BTreeMap;

use crate::bench::{Bench, Kernel, Run};
use crate::groups::{Expected, Group};
use crate::known;
use crate::ledger::{self, Entry};
use crate::probes::{Counts, Probe};

/// A row of the table: a kernel.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Row {
    /// How it was instrumented.
    pub method: String,
    /// What each probe counted, `entry 64, exit 64`, and the sites that it did not get.
    pub counts: Vec<(&'static str, String)>,
}

/// What became of a group.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By kernel.
    pub rows: BTreeMap<String, Row>,
    /// Kernels of the group that were run.
    pub ran: Vec<String>,
    /// Kernels of the group that stand in the list and could not be run.
    pub not_run: Vec<String>,
    /// Results that were the same with a probe as without: kernels times probes.
    pub same: usize,
    /// Counts that were known and right.
    pub exact: usize,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Runs a group. `listed` is what the soft GPU cannot run, of this group, if this is the soft GPU.
pub fn run(bench: &Bench, group: &Group, listed: &[&Entry], probes: &[Probe]) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(reason) = try_run(bench, group, listed, probes, &mut outcome) {
        outcome.wrong.push(reason);
    }
    outcome
}

fn try_run(
    bench: &Bench,
    group: &Group,
    listed: &[&Entry],
    probes: &[Probe],
    outcome: &mut Outcome,
) -> Result<(), String> {
    let all = bench.list(group)?;
    for entry in listed {
        if !all.contains(&entry.kernel) {
            outcome.wrong.push(format!(
                "`{}` is on the list of what the soft GPU cannot run, and is no kernel of the group",
                entry.kernel
            ));
            continue;
        }
        let run = bench.plain(group, &[&entry.kernel])?;
        if run.status.success() {
            outcome.wrong.push(format!(
                "`{}` runs on the soft GPU now: take it off not-on-soft.txt",
                entry.kernel
            ));
        } else if !run.errors.contains(&entry.reason) {
            outcome.wrong.push(format!(
                "`{}` cannot be run, but not for the reason on the list, `{}`: {}",
                entry.kernel,
                entry.reason,
                run.errors.trim_end()
            ));
        } else {
            outcome.not_run.push(entry.kernel.clone());
        }
    }
    let runnable = all
        .iter()
        .filter(|name| !listed.iter().any(|e| e.kernel == **name))
        .map(String::as_str);
    let (apart, together): (Vec<&str>, Vec<&str>) =
        runnable.partition(|name| group.apart.contains(name));
    if !together.is_empty() {
        compare(bench, group, &together, probes, outcome)?;
    }
    for name in apart {
        compare(bench, group, &[name], probes, outcome)?;
    }
    Ok(())
}

/// Runs kernels of a group plain and with each probe.
fn compare(
    bench: &Bench,
    group: &Group,
    kernels: &[&str],
    probes: &[Probe],
    outcome: &mut Outcome,
) -> Result<(), String> {
    let plain = bench.plain(group, kernels)?;
    if !plain.status.success() {
        return Err(alone(bench, group, kernels)?);
    }
    let text = String::from_utf8_lossy(&plain.output);
    for name in kernels {
        let (found, wanted) = (
            ledger::result(&text, name).unwrap_or("nothing"),
            ledger::result(ledger::RESULTS, name).unwrap_or("nothing"),
        );
        let approximate = bench.soft && ledger::APPROXIMATE.contains(name);
        if found == "nothing" || (found != wanted && !approximate) {
            outcome.wrong.push(format!(
                "`{name}` prints `{found}`, and in results.txt is `{wanted}`"
            ));
        }
        outcome.ran.push(name.to_string());
    }
    // Machine code that is made again from the PTX is the half of instrumenting that is not ours.
    if !bench.soft && group.expected == Expected::Instrumented {
        let run = bench.recompiled(group, kernels)?;
        if run.output != plain.output || run.status != plain.status {
            outcome.wrong.push(format!(
                "recompiled without programs: {}; {}",
                difference(&run.output, &plain.output),
                run.status
            ));
        }
    }
    for probe in probes {
        let run = bench.probed(probe, group, kernels)?;
        match probed(group, probe, &plain, &run, outcome) {
            Ok(()) => outcome.same += kernels.len(),
            Err(reason) => outcome.wrong.push(format!("{}: {reason}", probe.name)),
        }
    }
    Ok(())
}

/// The group failed: which of its kernels does, by itself?
fn alone(bench: &Bench, group: &Group, kernels: &[&str]) -> Result<String, String> {
    let mut failures = Vec::new();
    for name in kernels {
        let run = bench.plain(group, &[name])?;
        if !run.status.success() {
            failures.push(format!(
                "`{name}` ended with {}: {}",
                run.status,
                run.errors.trim_end()
            ));
        }
    }
    if bench.soft && !failures.is_empty() {
        failures.push(format!(
            "a limit of the soft GPU belongs into not-on-soft.txt as `{} KERNEL: REASON`",
            group.name
        ));
    }
    if failures.is_empty() {
        failures.push("it fails, but none of its kernels does by itself".into());
    }
    Ok(failures.join("; "))
}

fn probed(
    group: &Group,
    probe: &Probe,
    plain: &Run,
    run: &Run,
    outcome: &mut Outcome,
) -> Result<(), String> {
    if run.output != plain.output || run.status != plain.status {
        return Err(format!(
            "{}; {}, without programs {}; {}",
            difference(&run.output, &plain.output),
            run.status,
            plain.status,
            run.errors.trim_end()
        ));
    }
    if run.report.is_null() {
        return Err(format!("no report: {}", run.errors.trim_end()));
    }
    let kernels = run.kernels();
    let launched = |k: &&Kernel| k.launches + k.uninstrumented > 0;
    let mut seen = 0;
    for kernel in kernels.iter().filter(launched) {
        seen += 1;
        let row = outcome.rows.entry(kernel.name.clone()).or_default();
        row.method = short(&kernel.method);
        match group.expected {
            Expected::Refused(reason) => {
                if !kernel.method.starts_with("refused: ") || !kernel.method.contains(reason) {
                    outcome.wrong.push(format!(
                        "{}: `{}` must be refused (`{reason}`): {}",
                        probe.name, kernel.name, kernel.method
                    ));
                }
                continue;
            }
            Expected::Instrumented if kernel.method == "no site" => continue,
            Expected::Instrumented => {}
        }
        let Some(id) = kernel.id.filter(|_| kernel.uninstrumented == 0) else {
            outcome.wrong.push(format!(
                "{}: `{}` was launched {} times without programs: {}",
                probe.name, kernel.name, kernel.uninstrumented, kernel.method
            ));
            continue;
        };
        let counts = run.counts("counts", id, probe.stride);
        let lanes = run.counts("lanes", id, probe.stride);
        let mut told = shown(probe, &counts);
        for (reason, n) in &kernel.left_out {
            told += &format!(" (left out: {n} {reason})");
            if !probe.may_miss.iter().any(|part| reason.contains(part)) {
                outcome.wrong.push(format!(
                    "{}: `{}`: {n} sites left out: {reason}",
                    probe.name, kernel.name
                ));
            }
        }
        row.counts.push((probe.name, told));
        if group.apart.contains(&kernel.name.as_str()) {
            continue;
        }
        match judge(probe, &kernel.name, counts, &lanes) {
            Ok(exact) => outcome.exact += exact,
            Err(reason) => outcome
                .wrong
                .push(format!("{}: `{}`: {reason}", probe.name, kernel.name)),
        }
    }
    // Where a probe has no place, launches are not its business.
    if seen == 0 && !kernels.iter().any(|k| k.method == "no site") {
        return Err("the report knows of no launch".into());
    }
    Ok(())
}

/// How many counts were known and right.
fn judge(probe: &Probe, kernel: &str, counts: Counts, lanes: &Counts) -> Result<usize, String> {
    (probe.holds)(&counts, lanes)?;
    let Some(expected) = known::expected(probe.name, kernel) else {
        return Ok(0);
    };
    let counts = known::without_params(probe.name, counts);
    if counts == expected {
        return Ok(expected.len());
    }
    Err(format!(
        "{}; expected {}",
        shown(probe, &counts),
        shown(probe, &expected)
    ))
}

/// `entry 64, exit 64`
fn shown(probe: &Probe, counts: &Counts) -> String {
    let each: Vec<String> = counts
        .iter()
        .map(|(what, n)| format!("{} {n}", (probe.label)(*what)))
        .collect();
    each.join(", ")
}

/// `clone: reasons` is long.
fn short(method: &str) -> String {
    match method.split_once(':') {
        Some(("clone", _)) => "clone".into(),
        _ => method.to_owned(),
    }
}

/// The first line that is another one.
fn difference(found: &[u8], expected: &[u8]) -> String {
    let (found, expected) = (
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(expected),
    );
    let mut wanted = expected.lines();
    for line in found.lines() {
        let other = wanted.next().unwrap_or("nothing");
        if line != other {
            return format!("`{line}` instead of `{other}`");
        }
    }
    match wanted.next() {
        Some(line) => format!("nothing instead of `{line}`"),
        None => "the output is the same, the exit status is not".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::PROBES;

    #[test]
    fn the_first_difference_is_shown() {
        assert_eq!(
            difference(b"a: 1\nb: 2\n", b"a: 1\nb: 3\n"),
            "`b: 2` instead of `b: 3`"
        );
        assert_eq!(
            difference(b"a: 1\n", b"a: 1\nb: 3\n"),
            "nothing instead of `b: 3`"
        );
        assert_eq!(
            difference(b"a: 1\nx\n", b"a: 1\n"),
            "`x` instead of `nothing`"
        );
    }

    #[test]
    fn known_counts_are_compared() {
        let branch = PROBES
            .iter()
            .find(|p| p.name == "branch")
            .expect("it is there");
        let right = Counts::from([(0, 100), (1, 44)]);
        assert_eq!(
            judge(branch, "predicatedAccess", right.clone(), &right),
            Ok(2)
        );
        assert_eq!(judge(branch, "unknown", right.clone(), &right), Ok(0));
        let wrong = Counts::from([(0, 99), (1, 44)]);
        assert_eq!(
            judge(branch, "predicatedAccess", wrong.clone(), &wrong),
            Err("not taken 99, taken 44; expected not taken 100, taken 44".into())
        );
    }
}
