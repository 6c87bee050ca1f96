//! PTX to ops: names become rows, offsets and addresses, labels become instruction numbers. A
//! kernel is decoded with every function it can reach, because the place of shared variables
//! depends on the kernel.
//!
//! What is malformed is a `LoadError`; what is only unknown becomes `Op::Unsupported`, a trap if it
//! is executed, so that a kernel with one exotic instruction on a path that is not taken runs.

mod async_store;
mod bulk;
mod decoder;
mod function;
mod image;
mod instruction;
pub(crate) mod kernel;
mod matrix;
mod memory;
mod moves;
mod names;
mod operand;
mod scope;
pub(crate) mod summary;
mod sync;
mod video;
