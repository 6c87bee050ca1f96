//! Programs and maps of Linux beside those of GPUs: `bpf()` as it is asked, maps that both sides
//! use, and what brings the two together.
//!
//! Who loads such programs differs: a tool's libbpf under `warpbpf loader`, warpbpf itself under
//! `warpbpf run`. What is the same is here: Linux behind a trait ([`sys`]), a map of it ([`map`]),
//! what both sides of a shared map have changed ([`ledger`]), which way values are carried
//! ([`carry`]), and records out of its rings ([`drawn`]). An object's programs are brought to Linux
//! by [`side`].

#![deny(missing_docs)]

pub mod carry;
pub mod drawn;
pub mod ledger;
pub mod map;
pub mod memory;
pub mod section;
pub mod side;
pub mod spec;
pub mod sys;
pub mod types;
pub mod uapi;

mod define;
mod error;
mod place;
mod program;
mod records;
mod variable;

pub use define::maps_of_all;
pub use error::{LinuxError, PlaceError};
pub use place::{Tracefs, offset as function_offset};
pub use variable::Variable;
