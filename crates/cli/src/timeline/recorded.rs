//! What agents tell of what the device did.

use warpbpf_tool::{Operation, Operations, Process, Range, Ranges};

use super::stacks::Named;

/// What times are by.
pub(super) const CLOCK: &str = "CLOCK_MONOTONIC";

/// What was told of a process.
#[derive(Default)]
pub(super) struct Told {
    pub(super) pid: u32,
    pub(super) exe: String,
    pub(super) operations: Operations,
    pub(super) ranges: Ranges,
    pub(super) named: Named,
    /// Operations whose stacks are not known, as there were too many different ones.
    pub(super) crowded: u64,
}

impl Told {
    /// Adds what was told since the last time.
    pub(super) fn take(&mut self, process: &Process) {
        (self.pid, self.exe) = (process.pid(), process.exe());
        let mut operations = std::mem::take(&mut self.operations.operations);
        self.operations = process.take_operations();
        operations.append(&mut self.operations.operations);
        self.operations.operations = operations;
        let mut ranges = std::mem::take(&mut self.ranges.ranges);
        self.ranges = process.take_ranges();
        ranges.append(&mut self.ranges.ranges);
        self.ranges.ranges = ranges;
    }

    /// Those of all operations are known by now.
    pub(super) fn name_stacks(&mut self, process: &Process) {
        let stacks = process.stacks();
        self.named = Named::of(&stacks);
        self.crowded = stacks.crowded;
    }

    /// What was told behind so many operations and ranges.
    pub(super) fn since(&self, (operations, ranges): (usize, usize)) -> Part<'_> {
        Part {
            told: self,
            operations: self
                .operations
                .operations
                .get(operations..)
                .unwrap_or_default(),
            ranges: self.ranges.ranges.get(ranges..).unwrap_or_default(),
            first_range: ranges as u64 + 1,
        }
    }
}

/// Some of what was told of a process.
pub(super) struct Part<'t> {
    pub(super) told: &'t Told,
    pub(super) operations: &'t [Operation],
    pub(super) ranges: &'t [Range],
    /// The number of the first range.
    pub(super) first_range: u64,
}

/// As the file has times.
pub(super) fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}
