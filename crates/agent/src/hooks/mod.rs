//! The hooks of the driver's functions, by the files of their subjects.

pub(crate) mod attributes;
pub(crate) mod child;
pub(crate) mod choice;
pub(crate) mod contexts;
pub(crate) mod exports;
pub(crate) mod graphs;
pub(crate) mod hook_rows;
pub(crate) mod launch;
pub(crate) mod launch_notes;
pub(crate) mod link_hooks;
pub(crate) mod loads;
pub(crate) mod memory_hooks;
pub(crate) mod occupancy;
pub(crate) mod stream_hooks;
