//! The proof of a program that the tool has run by `BPF_PROG_TEST_RUN`.

use std::collections::BTreeMap;

use warpbpf_object::MapDef;
use warpbpf_session::PlannedProgram;

/// A program that is tried, as it was proved: tools run one for each thread of what would be a
/// grid, and a proof takes longer than a run.
#[derive(Debug)]
pub(crate) struct Proved {
    pub(crate) of: Basis,
    /// Its number of each map, by place in the kernel's table.
    pub(crate) numbers: BTreeMap<usize, u32>,
    pub(crate) program: PlannedProgram,
    pub(crate) maps: Vec<MapDef>,
}

/// What can be another one at the next run of the same program, of all that a proof depends on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Basis {
    /// Maps that it uses, and those in them.
    pub(crate) maps: Vec<usize>,
    /// The constants in them.
    pub(crate) constants: Vec<Option<Vec<u8>>>,
}
