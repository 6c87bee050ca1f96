//! What several processes have of each map, as one: their copies are put together as those of
//! several devices are.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf::Process;

use crate::collect::begun;
use crate::contents::fill;
use crate::model;
use crate::pretty::Printer;
use crate::render::map_text;
use crate::table::{Table, group};

/// All maps of several processes, each as one, and why others are not among them.
#[derive(Debug, Default)]
pub struct Together {
    /// As of one process; events are only counted.
    pub maps: Vec<model::Map>,
    /// What a person should know.
    pub remarks: Vec<String>,
}

impl Together {
    /// Of processes, and of what a report shows of each, without the contents of `elsewhere`.
    /// Nothing where fewer than two have maps.
    pub fn of(
        processes: &[Process],
        shown: &[model::Process],
        elsewhere: &BTreeSet<&str>,
    ) -> Together {
        let both = processes.iter().zip(shown);
        let ready: Vec<(&Process, &model::Process)> = both
            .filter(|(process, shown)| process.is_ready() && !shown.maps.is_empty())
            .collect();
        let mut together = Together::default();
        let [first, others @ ..] = ready.as_slice() else {
            return together;
        };
        if others.is_empty() {
            return together;
        }
        let kernels = agreed(ready.iter().map(|(process, _)| process.kernel_names()));
        let sites = agreed(ready.iter().map(|(process, _)| process.site_names()));
        let (Some(kernels), Some(sites)) = (kernels, sites) else {
            together.remarks.push(
                "the processes number their kernels or sites differently, so their maps are not shown together".into(),
            );
            return together;
        };
        let object = first.0.object();
        let printer = Printer {
            btf: object.as_ref().and_then(warpbpf::Object::btf),
            kernels: &kernels,
            sites: &sites,
        };
        for map in first.0.maps() {
            let Some((def, mut all)) = begun(&map) else {
                continue;
            };
            if map.info().bytes == 0 {
                all.events = Some(events(&ready, map.name()));
                together.maps.push(all);
                continue;
            }
            if elsewhere.contains(map.name()) {
                continue;
            }
            let (Some(plan), mut parts) = (map.plan(), Vec::new()) else {
                continue;
            };
            let mut alike = true;
            for (process, _) in &ready {
                let own = process
                    .maps()
                    .into_iter()
                    .find(|own| own.index() == map.index());
                match own.filter(|own| own.plan().as_ref() == Some(&plan)) {
                    // One of which nothing was ever copied has nothing to add.
                    Some(own) => parts.extend(
                        own.last_snapshot()
                            .iter()
                            .flat_map(|snapshot| snapshot.parts().to_vec()),
                    ),
                    None => alike = false,
                }
            }
            match alike {
                true => {
                    fill(&mut all, &plan, &def, &parts, &printer);
                    together.maps.push(all);
                }
                false => together.remarks.push(format!(
                    "map `{}` has another size in some processes, whose devices differ, so it is not shown together",
                    map.name()
                )),
            }
        }
        together
    }
}

fn events(ready: &[(&Process, &model::Process)], name: &str) -> model::Events {
    let maps = ready.iter().flat_map(|(_, shown)| &shown.maps);
    let rings = maps.filter(|map| map.name == name);
    let mut sum = model::Events::default();
    for events in rings.filter_map(|map| map.events.as_ref()) {
        sum.received += events.received;
        sum.lost += events.lost;
    }
    // They are listed with their processes.
    sum.left_out = sum.received;
    sum
}

/// The names that all lists have at a place, as long as the longest; `None` if two say different
/// things of one number.
fn agreed(lists: impl Iterator<Item = Vec<String>>) -> Option<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for list in lists {
        if all.len() < list.len() {
            all.resize(list.len(), String::new());
        }
        for (known, name) in all.iter_mut().zip(list) {
            if known.is_empty() {
                *known = name;
            } else if !name.is_empty() && *known != name {
                return None;
            }
        }
    }
    Some(all)
}

/// Who was there, with launches of each, and what they have together.
pub fn text(out: &mut String, report: &model::Report, rows: usize) {
    if report.processes.len() < 2 {
        return;
    }
    let _ = writeln!(out, "\nall {} processes", report.processes.len());
    let mut table = Table::new(&["pid", "program", "launches", "uninstrumented", "skipped"]);
    for process in &report.processes {
        let sum = |of: fn(&model::Kernel) -> u64| {
            let launches: u64 = process.kernels.iter().map(of).sum();
            group(launches.into())
        };
        table.row(vec![
            process.pid.to_string(),
            process.exe.rsplit('/').next().unwrap_or("").to_owned(),
            sum(|k| k.launches),
            sum(|k| k.uninstrumented),
            sum(|k| k.skipped),
        ]);
    }
    table.write(out);
    for map in &report.together {
        map_text(out, map, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_not_contradict_each_other() {
        let list = |names: &[&str]| -> Vec<String> { names.iter().map(|n| (*n).into()).collect() };
        let of = |lists: &[&[&str]]| agreed(lists.iter().map(|names| list(names)));
        assert_eq!(of(&[&["a"], &["a", "", "c"]]), Some(list(&["a", "", "c"])));
        assert_eq!(
            of(&[&["", "b"], &["a"], &["", "b", "c"]]),
            Some(list(&["a", "b", "c"]))
        );
        assert_eq!(of(&[&["a", "b"], &["a", "c"]]), None);
    }

    #[test]
    fn processes_are_listed_where_there_are_several() {
        let process = |pid, launches, uninstrumented| model::Process {
            pid,
            exe: "/bin/app".into(),
            kernels: vec![model::Kernel {
                launches,
                uninstrumented,
                ..model::Kernel::default()
            }],
            ..model::Process::default()
        };
        let mut report = model::Report {
            processes: vec![process(7, 1200, 0)],
            ..model::Report::default()
        };
        let mut out = String::new();
        text(&mut out, &report, 5);
        assert_eq!(out, "");
        report.processes.push(process(8, 3, 1));
        text(&mut out, &report, 5);
        let lines: Vec<Vec<&str>> = out
            .lines()
            .map(|line| line.split_ascii_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["all", "2", "processes"]);
        assert_eq!(lines[3], ["7", "app", "1,200", "0", "0"]);
        assert_eq!(lines[4], ["8", "app", "3", "1", "0"]);
    }
}
