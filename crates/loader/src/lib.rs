//! Answers `bpf()` in a tool that is linked with libbpf, so that it drives warpbpf without a
//! change.
//!
//! The library is preloaded into the tool. [`hooks`] stands in front of the calls of libc that
//! libbpf makes; the [`kernel`] is what they ask: maps, programs, links and types behind
//! descriptors, without any I/O of its own. When the tool has attached programs to GPU kernels,
//! [`kernel::gather`] makes one object of them, and [`app::live`] sends it to the agent of each
//! application that connects, and brings back what their maps hold and their events, which rings
//! ([`tool`]) hand to the tool as Linux does.
//!
//! Nothing else of the tool is touched: what is not about a descriptor of ours goes to libc as it
//! came.
//!
//! Layers, each uses only those to its right: `app → syscall → linux → kernel →
//! objects → tool`.

use warpbpf_linux::{memory, spec, uapi};

pub mod kernel;
pub mod objects;
pub mod tool;

pub mod app;
pub mod linux;
pub mod syscall;

pub mod files;

#[cfg(not(test))]
mod guard;
#[cfg(not(test))]
mod real;

// In a test's executable these symbols would stand in front of its own libc.
#[cfg(not(test))]
mod bpftime;
#[cfg(not(test))]
mod context;
#[cfg(not(test))]
mod global;
#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod libbpf_handler;
#[cfg(not(test))]
mod passed;
#[cfg(not(test))]
mod remote;
#[cfg(not(test))]
mod waits;

#[cfg(test)]
mod tests;
