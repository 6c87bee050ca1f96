//! Graphs and fixpoints: numbered things, sets of them, control-flow graphs, dominators, loops and
//! one dataflow solver.
//!
//! Every analysis of the workspace stands on this crate, whichever instruction set it reads, so
//! nothing here knows one. It allocates and computes; it never fails on a well-formed graph, and a
//! block that the entry does not reach is an ordinary answer (`None`), not an error.
#![forbid(unsafe_code)]

pub mod bitset;
pub mod cfg;
pub mod dataflow;
pub mod dom;
pub mod entity;
pub mod loops;

pub use bitset::BitSet;
pub use cfg::Cfg;
pub use dataflow::{Analysis, Direction, Solution, solve};
pub use dom::DomTree;
pub use entity::{Entity, EntityMap};
pub use loops::{Loop, LoopId, Loops};
