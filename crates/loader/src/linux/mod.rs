//! The kernel under the tool, if it lets us: programs that only it can run, and the maps of them.

pub mod programs;
mod ring_targets;
pub mod shadow_maps;
