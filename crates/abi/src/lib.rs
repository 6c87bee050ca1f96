//! What host and device agree on, byte for byte: helper and map numbers, context fields, device
//! layouts, names.
//!
//! Every number that crosses the boundary is written here and nowhere else; the C header for
//! program authors, the verifier's rules, the code generator's offsets and the host's readers all
//! come from these tables.
//!
//! Layers, each uses only those to its right: `helpers → layout → queue → context → attach →
//! options → access → choice → costs → cuda → format → kfuncs → linux → maps → method → names →
//! nearest → hash → align`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod align;
mod hash;

pub mod access;
pub mod attach;
pub mod choice;
pub mod context;
pub mod costs;
pub mod cuda;
pub mod format;
pub mod helpers;
pub mod kfuncs;
pub mod layout;
pub mod linux;
pub mod maps;
pub mod method;
pub mod names;
pub mod nearest;
pub mod options;
pub mod queue;
