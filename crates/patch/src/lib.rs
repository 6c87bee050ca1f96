//! Puts our PTX into somebody else's kernel: finds the sites, elects lanes, splices, and makes slices and clones.
//!
//! An instrumented kernel is a variant beside the original. [`way`] says how it can be made: as a [`slice()`], a module of
//! its own with that kernel and what it reaches, or as a clone in the original module ([`clone_in_module`]), where
//! function pointers, constants and textures stay one and the same. Both are byte splices of the original text; no
//! instruction of the application is understood further than its operands' names, nor moved.
//!
//! Absent on purpose: loading, launching, addresses. [`Variant`] tells the session what those need.
#![forbid(unsafe_code)]

pub mod error;
pub mod variant;

mod bake;
mod body;
mod clone;
mod closure;
mod insert;
mod params;
mod patcher;
mod scope;
mod site;
mod slice;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::{Fragment, SlotSpace};

pub use bake::bake;
pub use clone::clone_in_module;
pub use closure::{Way, way};
pub use error::PatchError;
pub use patcher::Patcher;
pub use slice::slice;
pub use variant::*;

/// A piece of code and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// Kind of site.
    pub site: Site,
    /// How often it fires there.
    pub scope: Scope,
    /// The code.
    pub fragment: &'a Fragment,
}

/// The slot table of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// First slot that is free for the module's globals: all slots below belong to the session.
    pub first_global_slot: u32,
    /// Where the table lies.
    pub slot_space: SlotSpace,
}
