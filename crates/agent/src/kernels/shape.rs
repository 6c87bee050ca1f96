//! What a launch looks like, whichever function it came by.

use std::ffi::c_uint;

/// What a launch looks like, whichever function it came by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) cooperative: bool,
    /// It may begin before another one with the same launch record has ended.
    pub(crate) overlaps: bool,
    /// It is of a node of a graph.
    pub(crate) in_graph: bool,
}

/// Elements of a grid or block.
pub(crate) fn count(dimensions: [c_uint; 3]) -> u64 {
    let multiply = |n: u64, m: &c_uint| n.saturating_mul(u64::from(*m));
    dimensions.iter().fold(1, multiply)
}
