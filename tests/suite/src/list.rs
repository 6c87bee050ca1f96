//! All cases in their order, and what the order of a run depends on besides: which run alone, which
//! are quick, how long one may take.

use crate::run::{Case, is_deep};

/// All cases, in the order in which they are told of.
pub fn all() -> Vec<Case> {
    let parts: &[fn() -> Vec<Case>] = &[
        crate::counts::cases,
        crate::helpers::cases,
        crate::maps_more::cases,
        crate::many::cases,
        crate::maps_hash::cases,
        crate::churn::cases,
        crate::maps_host::cases,
        crate::maps_inner::cases,
        crate::memory::cases,
        crate::host_ops::cases,
        crate::library::cases,
        crate::together::cases,
        crate::user_ring::cases,
        crate::bpftime::cases,
        crate::lookup::cases,
        crate::drain::cases,
        crate::graphs::cases,
        crate::blocks::cases,
        crate::cache::cases,
        crate::choice::cases,
        crate::links::cases,
        crate::ranges::cases,
        crate::ranges_later::cases,
        crate::devices::cases,
        crate::driver_api::cases,
        crate::jit::cases,
        crate::launching::cases,
        crate::linux::cases,
        crate::uprobes::cases,
        crate::places::cases,
        crate::tensors::cases,
        crate::timeline::cases,
        crate::torch::cases,
        crate::trace::cases,
        crate::trace_more::cases,
        crate::touched::cases,
        crate::documents::cases,
        crate::tools::cases,
        crate::extension::cases,
        crate::waits::cases,
        crate::selectors::cases,
        crate::splice::cases,
        crate::backends::cases,
        crate::splice_maps::cases,
        crate::splice_replace::cases,
        crate::instructions::cases,
        crate::loader::cases,
        crate::loader_maps::cases,
        crate::late_tools::cases,
        crate::attach::cases,
        crate::cached::cases,
        crate::attach_killed::cases,
        crate::attach_more::cases,
        crate::ways::cases,
        crate::replace::cases,
        crate::clients::cases,
        crate::gate::cases,
        crate::soak::cases,
        crate::slots::cases,
        crate::unharmed::cases,
        crate::endings::cases,
        crate::attacks::cases,
        crate::bad_input::cases,
        crate::signals::cases,
        crate::outputs::cases,
        crate::faults::cases,
    ];
    parts.iter().flat_map(|cases| cases()).collect()
}

/// Cases beside which no other one runs on a GPU, and why. On the soft GPU all of them run beside
/// others.
pub const ALONE: &[(&str, &str)] = &[
    (
        "host lookup of one value while a kernel runs",
        "a ratio of times on the device",
    ),
    (
        "events: burst and drain against a bare copy",
        "rates on the device",
    ),
    (
        "events: writers that wait for a tool that reads",
        "writers wait for so many cycles, which others' time slices take from the reader",
    ),
    (
        "ways: a bound on what probes cost",
        "a part of a kernel's time, which others' time slices change",
    ),
    ("host time on the device", "two clocks within 2 us"),
    (
        "a timeline tells the phases of a pipeline apart",
        "durations within 20 us of the application's own events",
    ),
    (
        "calls to a host that has little time",
        "some calls must be late and some not",
    ),
    (
        "linux: a uprobe that is there when we start",
        "it is in the driver's file and counts all processes of the machine",
    ),
    (
        "linux: a uprobe that is there when we attach",
        "it is in the driver's file and counts all processes of the machine",
    ),
];

/// A dozen cases that together pass through every part: `cargo xtask test --quick`.
pub const QUICK: &[&str] = &[
    "threadhist on vectoradd",
    "hash under many warps",
    "maps on the host",
    "library: events as they come",
    "graphs: launches in the report",
    "cache: a second run compiles nothing",
    "calls of the driver API are seen, each once",
    "accesses of reduction by space and place",
    "a kernel before and after",
    "loader: counter, a hash by process",
    "attach: twice to one that runs, and out again",
    "replace: programs replaced, added and taken out between launches",
    "a program that is refused",
];

/// Seconds after which a case is ended, on two busy cores. It is there for what hangs: nothing is
/// measured by it.
pub const SECONDS: u64 = 300;

/// How many times as long a case may take whose searches are whole (`cargo xtask test --deep`).
const DEEP: u64 = 6;

/// Cases that may take longer, and how long.
pub const LONGER: &[(&str, u64)] = &[
    // On a GPU: a bundle that is not optimised compares code for longer than kernels run.
    ("probes in machine code", 900),
];

impl Case {
    /// No other case may run meanwhile.
    pub fn is_alone(&self, soft: bool) -> bool {
        !soft && ALONE.iter().any(|(name, _)| *name == self.name)
    }

    /// How long it may take.
    pub fn seconds(&self) -> u64 {
        let longer = LONGER.iter().find(|(name, _)| *name == self.name);
        let seconds = longer.map_or(SECONDS, |(_, seconds)| *seconds);
        if is_deep() { DEEP * seconds } else { seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_that_is_named_is_there_once() {
        let cases = all();
        let named = ALONE.iter().map(|(name, _)| *name);
        let named = named.chain(LONGER.iter().map(|(name, _)| *name));
        for name in named.chain(QUICK.iter().copied()) {
            let count = cases.iter().filter(|case| case.name == name).count();
            assert_eq!(count, 1, "cases named `{name}`");
        }
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let mut names: Vec<&str> = all().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
