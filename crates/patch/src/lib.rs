//! Puts our PTX into somebody else's kernel: finds the sites, elects lanes, splices, and makes
//! slices and clones.
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

mod attachment;
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
mod tools_code;
mod tools_event;
mod tools_place;
mod tools_refused;

pub use attachment::{Attachment, Gate, Options};
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
