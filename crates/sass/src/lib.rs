//! Probes in machine code that has no PTX: a cubin is edited before it is loaded, so that a kernel
//! calls a function where it begins and wherever a thread of it ends.
//!
//! ```text
//! cubin ── elf ── file ──▶ splice, one kernel after the other ──▶ check ──▶ cubin with probes
//!                            ▲   table, word
//! cubin of a function ── probe ─────┘      made outside, by `ptxas --compile-as-tools-patch`
//! ```
//!
//! Nothing of the kernel moves. Its first instruction becomes a branch behind the original code,
//! where the probe is called, the instruction that was replaced follows, and a branch leads back;
//! each `EXIT` becomes a branch, with the same predicates, to a call and an `EXIT` of its own. No
//! register is saved, because at these places none is in use. What is not understood is refused
//! ([`Refusal`]), and what was made is checked again from its bytes alone ([`check`]).
//!
//! What differs from launch to launch is a further parameter of the kernel ([`Launch`]), which
//! stubs hand to probes.
//!
//! In front of loads and stores ([`splice_accesses`], an experiment for `sm_90`) a stub saves
//! everything that the probe may change.
//!
//! Pure: bytes in, bytes out.
//!
//! Layers, each uses only those to its right: `memory → write → splice → text → check → inline →
//! data → hidden → probe → scan → access → calls → file → kinds → offsets → bank → word → elf →
//! info → table → arch → error → number`.

#![forbid(unsafe_code)]

pub mod check;
pub mod elf;
pub mod error;
pub mod info;
pub mod kinds;
pub mod table;
pub mod word;

mod access;
mod arch;
mod bank;
mod calls;
mod data;
mod file;
mod hidden;
mod inline;
mod memory;
mod number;
mod offsets;
mod probe;
mod scan;
mod splice;
mod text;
mod write;

#[cfg(test)]
mod fuzz;

pub use access::Access;
pub use arch::Arch;
pub use bank::Addresses;
pub use data::Variable;
pub use error::{CheckError, ElfError, Refusal, SharedData};
pub use file::File;
pub use hidden::{Hidden, Launch};
pub use memory::splice_accesses;
pub use probe::{Hook, Probe, REGISTERS};
pub use splice::{Change, Edit};
pub use write::{Spliced, Written, splice};
