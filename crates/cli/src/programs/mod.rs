//! The programs of a command, and those of them that Linux runs.

pub mod linux;
pub mod objects;
