//! What the device did and when, as a file that Perfetto and `chrome://tracing` open: calls on the
//! application's threads, operations on the device's streams, and an arrow from each call to what
//! it had the device do.

mod file;
mod graphs;
mod journal;
mod ranges;
mod recorded;
mod rows;
mod stacks;

pub use file::Timeline;
