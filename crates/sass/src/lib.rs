//! Probes in machine code that has no PTX: a cubin is edited before it is loaded, so that a kernel calls a function where it
//! begins and wherever a thread of it ends.
//!
//! ```text
//! cubin ── elf ── file ──▶ splice, one kernel after the other ──▶ check ──▶ cubin with probes
//!                            ▲   table, word
//! cubin of a function ── probe ─────┘      made outside, by `ptxas --compile-as-tools-patch`
//! ```
//!
//! Nothing of the kernel moves. Its first instruction becomes a branch behind the original code, where the probe is called, the
//! instruction that was replaced follows, and a branch leads back; each `EXIT` becomes a branch, with the same
//! predicates, to a call and an `EXIT` of its own. No register is saved, because at these places none is in use. What is not
//! understood is refused ([`Refusal`]), and what was made is checked again from its bytes alone ([`check`]).
//!
//! What differs from launch to launch is a further parameter of the kernel ([`Launch`]), which stubs hand to probes.
//!
//! In front of loads and stores ([`splice_accesses`], an experiment for `sm_90`) a stub saves everything that the probe may change.
//!
//! Pure: bytes in, bytes out.

#![forbid(unsafe_code)]

pub mod check;
pub mod elf;
pub mod error;
pub mod info;
pub mod table;
pub mod word;

mod access;
mod calls;
mod data;
mod file;
mod hidden;
mod inline;
mod memory;
mod offsets;
mod probe;
mod scan;
mod splice;
mod text;

#[cfg(test)]
mod fuzz;

pub use access::Access;
pub use data::{Addresses, Variable};
pub use error::{CheckError, ElfError, Refusal, SharedData};
pub use file::{File, Written};
pub use hidden::{Hidden, Launch};
pub use memory::splice_accesses;
pub use probe::{Probe, REGISTERS};
pub use splice::{Change, Edit, Hook, Spliced, splice};

/// An architecture whose machine code is in [`table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// A100.
    Sm80,
    /// H100, H200, GH200.
    Sm90,
}

impl Arch {
    /// By its number, e.g. 90.
    pub fn of(number: u32) -> Option<Arch> {
        match number {
            80 => Some(Arch::Sm80),
            90 => Some(Arch::Sm90),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Arch::Sm80 => 80,
            Arch::Sm90 => 90,
        }
    }

    /// Distances of branches stand in two places of the instruction.
    pub(crate) fn splits_distances(self) -> bool {
        self == Arch::Sm90
    }

    /// How an instruction that waits for all lanes of a warp names them.
    pub(crate) fn all_lanes(self) -> u32 {
        match self {
            Arch::Sm80 => u32::MAX,
            // Without a mask it is for all.
            Arch::Sm90 => 0,
        }
    }

    /// Offset in constant bank 0 of a kernel's parameters.
    pub(crate) fn parameters(self) -> u32 {
        match self {
            Arch::Sm80 => 0x160,
            Arch::Sm90 => 0x210,
        }
    }

    /// Offset in constant bank 0 of the stack pointer that a thread begins with.
    pub(crate) fn stack_pointer(self) -> u32 {
        match self {
            Arch::Sm80 | Arch::Sm90 => 0x28,
        }
    }
}
