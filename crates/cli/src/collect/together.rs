//! What several processes have of each map, as one: their copies are put together as those of
//! several devices are.

use std::collections::BTreeSet;

use warpbpf_tool::Process;

use crate::report::contents::{begun, fill};
use crate::report::model;
use crate::report::pretty::Printer;

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
            btf: object.as_ref().and_then(warpbpf_tool::Object::btf),
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
}
