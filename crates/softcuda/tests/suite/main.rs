//! The soft GPU as a CUDA driver and runtime: what programs and single calls get from it.

mod common;
mod devices;
mod driver;
mod graphs;
mod images;
mod programs;
mod uninitialised;
mod virtuals;
