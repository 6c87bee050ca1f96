//! Answers `bpf()` in a tool that is linked with libbpf, so that it drives warpbpf without a
//! change.
//!
//! The library is preloaded into the tool. [`interpose`] stands in front of the calls of libc that
//! libbpf makes; the [`kernel`] is what they ask: maps, programs, links and types behind
//! descriptors, without any I/O of its own. When the tool has attached programs to GPU kernels,
//! [`kernel::gather`] makes one object of them, and [`app::live`] sends it to the agent of each
//! application that connects, and brings back what their maps hold and their events, which rings
//! ([`tool`]) hand to the tool as Linux does.
//!
//! Nothing else of the tool is touched: what is not about a descriptor of ours goes to libc as it
//! came.
//!
//! Layers, each uses only those to its right: `interpose → app → syscall → linux →
//! kernel → objects → tool`.

use warpbpf_linux::{memory, spec, uapi};

pub mod tool;

pub mod objects;

pub mod kernel;

pub mod linux;

pub mod syscall;

pub mod app;

pub mod interpose;

#[cfg(test)]
mod tests;
