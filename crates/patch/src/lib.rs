//! Puts our PTX into somebody else's kernel: finds the sites, elects lanes, splices, and makes slices and clones.
//!
//! An instrumented kernel is a variant beside the original. [`method`] says how it can be made: as
//! a [`slice()`], a module of its own with that kernel and what it reaches, or as a clone in the
//! original module ([`clone_in_module`]), where function pointers, constants and textures stay one
//! and the same. Both are byte splices of the original text; no instruction of the application is
//! moved, changed or executed twice.
//!
//! Absent on purpose: loading, launching, addresses. [`Variant`] tells the session what those need.
#![forbid(unsafe_code)]

pub mod error;
pub mod select;
pub mod variant;

mod bake;
mod body;
mod capture;
mod clone;
mod closure;
mod find;
mod gaps;
mod gate;
mod insert;
mod launch_args;
mod launch_bits;
mod list;
mod middle;
mod operand;
mod params;
mod patcher;
mod program;
mod registers;
mod scope;
mod site;
mod slice;
mod sums;
mod tensor;
mod tools;
mod tools_access;
mod tools_barrier;
mod tools_event;
mod tools_place;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::{Fragment, SlotSpace};

pub use bake::bake;
pub use clone::clone_in_module;
pub use closure::{Method, method};
pub use error::PatchError;
pub use launch_args::{launch_arg_words, launch_args_of_kernel};
pub use list::{Detail, SiteFact, SiteList, list_sites};
pub use patcher::Patcher;
pub use select::Select;
pub use slice::slice;
pub use tensor::{TensorBits, TensorField, TensorLayout};
pub use tools::{Caller, tools_function};
pub use tools_event::Event;
pub use variant::*;

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
    /// The bit that a launch sets in which it runs, where those are not the same for all of the kernel ([`warpbpf_abi::layout::launch::PARAM_CHOSEN`]).
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
    /// Number of the first site in the middle of a kernel; those of a variant are numbered on from it, see
    /// [`Variant::sites`].
    pub first_site: u32,
    /// Put each program into the module once, as a function that its sites call, instead of inline at each site: the
    /// kernel then needs registers for one call and not for many copies.
    pub out_of_line: bool,
    /// Most registers of a thread (`.maxnreg`; what the kernel says itself is only lowered). An option of the compiler does not
    /// bind kernels with launch bounds, and in a clone it would bind the application's own kernels.
    pub max_registers: Option<u32>,
    /// How tensor maps say what a copy moves. Without it copies of tensors are said to move 0 bytes.
    pub tensors: Option<TensorLayout>,
}
