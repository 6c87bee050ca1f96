//! What callers ask for: code, where it goes, and how.

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::{Fragment, SlotSpace};

use crate::select::Select;
use crate::tensor::TensorLayout;

/// A piece of code and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// Kind of site.
    pub site: Site,
    /// How often it fires there.
    pub scope: Scope,
    /// Which of the sites of its kind.
    pub select: &'a Select,
    /// The code.
    pub fragment: &'a Fragment,
    /// What says whether it runs, if something does ([`warpbpf_abi::layout::gate`]).
    pub gate: Option<Gate>,
    /// The bit that a launch sets in which it runs, where those are not the same for all of the
    /// kernel ([`warpbpf_abi::layout::launch::PARAM_CHOSEN`]).
    pub choice: Option<u32>,
}

/// A bit that is read at each site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// A program, which does not run while this bit of the gate is set.
    Program(u32),
    /// A slot, which is empty while this bit of the word behind the gate is not set.
    Slot(u32),
}

/// The slot table of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// First slot that is free for the module's globals: all slots below belong to the session.
    pub first_global_slot: u32,
    /// Where the table lies.
    pub slot_space: SlotSpace,
    /// Number of the first site in the middle of a kernel; those of a variant are numbered on from
    /// it, see [`Variant::sites`](crate::Variant::sites).
    pub first_site: u32,
    /// Put each program into the module once, as a function that its sites call, instead of inline
    /// at each site: the kernel then needs registers for one call and not for many copies.
    pub out_of_line: bool,
    /// Most registers of a thread (`.maxnreg`; what the kernel says itself is only lowered). An
    /// option of the compiler does not bind kernels with launch bounds, and in a clone it would
    /// bind the application's own kernels.
    pub max_registers: Option<u32>,
    /// How tensor maps say what a copy moves. Without it copies of tensors are said to move 0
    /// bytes.
    pub tensors: Option<TensorLayout>,
}
