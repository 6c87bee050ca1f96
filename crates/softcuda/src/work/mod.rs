//! What is done with the objects: graphs are built and run, operations are performed.

pub(crate) mod bytes;
mod operation;

mod conditional;
pub(crate) mod graph;
mod user_object;
