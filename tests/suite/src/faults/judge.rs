//! What has to hold after a run, whatever failed in it: the application did what it does, what was
//! counted is exact or told to be missing, and each thing is told once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::plan::Fault;
use super::scenario::{Counts, How, Scenario};
use crate::run::same;

/// What is known of a run.
#[derive(Debug, Default)]
pub struct Facts {
    /// The application's own, with a line that tells its status.
    pub output: String,
    /// Of the tool.
    pub status: Option<i32>,
    /// Its programs came into a process that ran.
    pub attached: bool,
    /// What the agent wrote of its sites.
    pub log: String,
    pub report: Value,
    pub errors: String,
}

/// A run without a fault counts, exactly. Whether launches fall back is chance.
pub fn clean(scenario: &Scenario, report: &Value, by_chance: bool) -> Result<(), String> {
    let seen = Seen::new(report).ok_or_else(|| format!("no process in the report: {report}"))?;
    same("complete", seen.is_complete(), true)?;
    if seen
        .kernels()
        .all(|kernel| number(&kernel["launches"]) == 0)
    {
        return Err(format!("nothing had probes: {report}"));
    }
    // Launches before programs come fall back.
    if scenario.how != How::Attach
        && !by_chance
        && seen
            .kernels()
            .any(|k| is_instrumented(k) && number(&k["uninstrumented"]) > 0)
    {
        return Err(format!("launches fell back: {report}"));
    }
    counted(scenario, &seen, &seen)
}

/// True if the fault cost something, and that was told.
pub fn judge(
    scenario: &Scenario,
    expected: &str,
    clean: &Value,
    facts: &Facts,
    fault: &Fault,
    struck: bool,
) -> Result<bool, String> {
    same("the application's output", facts.output.as_str(), expected)?;
    if fault.kills() && struck {
        return match scenario.how {
            How::Attach => Ok(true),
            _ => same("the tool's end", facts.status, None).map(|()| true),
        };
    }
    let texts = |list: &str| -> Vec<String> {
        let all = facts.report[list].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let notes = texts("notes");
    let known: Vec<&str> = clean["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let different: BTreeSet<&String> = notes.iter().collect();
    same("notes, each once", notes.len(), different.len())?;
    let new: Vec<&String> = notes
        .iter()
        .filter(|note| !known.contains(&note.as_str()))
        .collect();
    if facts.status.is_none() {
        return Err(format!("the tool was killed by a signal: {}", facts.errors));
    }
    if facts.report.is_null() {
        // It did not come into the process.
        let told = scenario.how == How::Attach && !facts.attached && !facts.errors.is_empty();
        return match told {
            true => Ok(true),
            false => Err(format!("no report; the tool said `{}`", facts.errors)),
        };
    }
    let all = Seen::new(clean).ok_or("no process without a fault")?;
    let Some(seen) = Seen::new(&facts.report) else {
        return match new.is_empty() {
            true => Err(format!("nothing is told: {}", facts.report)),
            false => Ok(true),
        };
    };
    if !seen.is_complete() {
        // What is there is what it was at some moment, and the report says so.
        return Ok(true);
    }
    let lost = lost(scenario, &all, &seen, !new.is_empty())?;
    match counted(scenario, &all, &seen) {
        Ok(()) => {}
        // What is not counted is told: by a note that says so, and not by any.
        Err(_) if new.iter().any(|note| says_numbers_are_short(note)) => {}
        Err(reason) => return Err(format!("{reason}; it is told {new:?}")),
    }
    Ok(lost || !new.is_empty())
}

/// A note that tells that what the report shows is less than what happened.
fn says_numbers_are_short(note: &str) -> bool {
    [
        "lost",
        "too old",
        "cannot be copied",
        "not counted",
        "may be wrong",
    ]
    .iter()
    .any(|words| note.contains(words))
}

/// Launches without probes are counted as such, or it is told why the kernel is not known.
fn lost(scenario: &Scenario, all: &Seen<'_>, seen: &Seen<'_>, told: bool) -> Result<bool, String> {
    let mut lost = false;
    for kernel in all.kernels().filter(|kernel| is_instrumented(kernel)) {
        let name = kernel["mangled"].as_str().unwrap_or_default();
        let Some(now) = seen.kernel(name) else {
            match told {
                true => lost = true,
                false => return Err(format!("nothing is told of `{name}`")),
            }
            continue;
        };
        let made = |kernel: &Value| number(&kernel["launches"]) + number(&kernel["uninstrumented"]);
        let fewer = number(&now["launches"]) < number(&kernel["launches"]);
        lost |= fewer;
        if scenario.how == How::Attach || made(now) == made(kernel) {
            continue;
        }
        // Launches that are not counted at all: of a kernel that says so itself, or because nothing
        // was in force any more.
        let refused = now["method"] != kernel["method"];
        if !told && !refused {
            return Err(format!(
                "`{name}`: {} launches, not {}, and nothing is told",
                made(now),
                made(kernel)
            ));
        }
        if made(now) > made(kernel) {
            return Err(format!(
                "`{name}`: {} launches of {}",
                made(now),
                made(kernel)
            ));
        }
    }
    Ok(lost)
}

/// What the device counted is what the launches with probes must have counted.
fn counted(scenario: &Scenario, all: &Seen<'_>, seen: &Seen<'_>) -> Result<(), String> {
    for kernel in seen.kernels() {
        let name = kernel["mangled"].as_str().unwrap_or_default();
        let shown = kernel["name"].as_str().unwrap_or_default();
        let launches = number(&kernel["launches"]);
        let Some(whole) = all.kernel(name) else {
            continue;
        };
        // As many for each launch as there are when nothing fails.
        let share = |n: u64| match number(&whole["launches"]) {
            0 => 0,
            of => n * launches / of,
        };
        match scenario.counts {
            Counts::Launches => {
                let entries = seen.entries("kernels");
                let entry = entries.iter().find(|entry| entry["key"] == shown);
                let on_device = entry.map_or(0, |entry| number(&entry["value"]["launches"]));
                same(
                    &format!("launches of `{shown}` on the device"),
                    on_device,
                    launches,
                )?;
            }
            // A kernel without a number has no code of ours.
            Counts::Scopes(uneven) if !uneven.contains(&shown) && !kernel["id"].is_null() => {
                // Lanes come in groups of any size where warps begin.
                for what in [0, 2, 4, 5, 6] {
                    let of = |seen: &Seen<'_>, kernel: &Value| {
                        seen.value("counts", number(&kernel["id"]) * 8 + what)
                    };
                    let expected = share(of(all, whole));
                    same(
                        &format!("`{shown}`, scope {what}, in {launches} launches"),
                        of(seen, kernel),
                        expected,
                    )?;
                }
            }
            Counts::Events(map) => {
                let events = |seen: &Seen<'_>| {
                    let events = &seen.map(map)["events"];
                    number(&events["received"]) + number(&events["lost"])
                };
                same(
                    "events, with those that are told to be lost",
                    events(seen),
                    share(events(all)),
                )?;
            }
            Counts::Scopes(_) | Counts::Versions | Counts::Report => {}
        }
    }
    match scenario.counts {
        Counts::Versions => versions(seen),
        _ => Ok(()),
    }
}

/// Every launch with probes had those of one version, from its start to its end. Programs that came
/// besides count where no version does.
fn versions(seen: &Seen<'_>) -> Result<(), String> {
    const BESIDES: u64 = 1000;
    let counts = |map: &str| -> Vec<(u64, u64)> {
        let entries = seen.entries(map).iter();
        let counts = entries.map(|entry| (number(&entry["key"]), number(&entry["value"])));
        counts.filter(|(key, n)| *key < BESIDES && *n > 0).collect()
    };
    let entered = counts("entered");
    same(
        "launches by version, at their end",
        counts("left"),
        entered.clone(),
    )?;
    let launches: u64 = seen
        .kernels()
        .map(|kernel| number(&kernel["launches"]))
        .sum();
    let sum: u64 = entered.iter().map(|(_, n)| n).sum();
    same("launches of all versions", sum, launches)
}

/// The first process of a report.
struct Seen<'r>(&'r Value);

impl<'r> Seen<'r> {
    fn new(report: &'r Value) -> Option<Seen<'r>> {
        let process = &report["processes"][0];
        (!process.is_null()).then_some(Seen(process))
    }

    fn is_complete(&self) -> bool {
        self.0["complete"] == true
    }

    fn kernels(&self) -> impl Iterator<Item = &'r Value> {
        self.0["kernels"].as_array().into_iter().flatten()
    }

    fn kernel(&self, mangled: &str) -> Option<&'r Value> {
        self.kernels().find(|kernel| kernel["mangled"] == mangled)
    }

    fn map(&self, name: &str) -> &'r Value {
        let mut maps = self.0["maps"].as_array().into_iter().flatten();
        maps.find(|map| map["name"] == name).unwrap_or(&Value::Null)
    }

    fn entries(&self, map: &str) -> &'r [Value] {
        self.map(map)["entries"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    fn value(&self, map: &str, key: u64) -> u64 {
        let mut entries = self.entries(map).iter();
        entries
            .find(|entry| number(&entry["key"]) == key)
            .map_or(0, |entry| number(&entry["value"]))
    }
}

fn is_instrumented(kernel: &Value) -> bool {
    kernel["instrumented"] == true
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
