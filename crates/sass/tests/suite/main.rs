//! The splice against NVIDIA's own tools, on cubins that the tests build themselves: one binary, so
//! that its parts share those.

mod accesses;
mod accesses_refused;
mod common;
mod encoder;
mod encodings;
mod hidden;
mod locals;
mod programs;
mod refusals;
mod splices;
