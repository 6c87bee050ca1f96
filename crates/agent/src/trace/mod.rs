//! Timelines, ranges and stacks.

pub(crate) mod nvtx;
pub(crate) mod stacks;
pub(crate) mod timeline;
