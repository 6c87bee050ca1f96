//! PTX text as a lossless index, a typed view of the functions that are looked at, and ordered byte
//! splices.
//!
//! The text itself is the truth and is never printed back from a tree: [`index()`] and
//! [`parse_body`] yield spans into it, and [`Splices`] edit those spans, so an instruction of a PTX
//! version nobody here has seen passes through untouched. [`eval`] is the one meaning of every
//! lane-local operation, shared by constant folding, the soft GPU and the hardware tests.
//!
//! Layers, each uses only those to its right: `arguments → link → sync → access → dwarf → index →
//! lines → parse → query → constant → decl → operand → sections → lex → ast → error → eval →
//! splice`.

pub mod access;
pub mod arguments;
pub mod ast;
pub mod constant;
pub mod error;
pub mod eval;
pub mod index;
pub mod lines;
pub mod link;
pub mod parse;
pub mod query;
pub mod splice;
pub mod sync;

mod decl;
mod dwarf;
mod lex;
mod operand;
mod sections;

#[cfg(test)]
mod fuzz;

pub use decl::type_size;
pub use error::PtxError;
pub use index::index;
pub use parse::parse_body;
pub use query::Target;
pub use splice::{SpliceError, Splices};
