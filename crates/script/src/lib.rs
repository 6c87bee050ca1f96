//! The script language of `warpbpf trace`: from a line of text to an object file and a description
//! of what it keeps.

pub mod span;

pub mod error;

pub mod ast;
pub mod lex;
mod parse;
mod parse_expr;
mod probe;
mod read;

pub mod format;
pub mod typed;
pub mod types;

mod check;
mod check_block;
mod check_expr;
mod check_map;
mod language;

mod asm;
mod emit;
mod emit_expr;
mod emit_map;
pub mod layout;
mod object;

pub mod host;
pub mod json;
pub mod results;
pub mod show;

mod compile;

pub use check::gpu_section;
pub use compile::{Compiled, Options, compile};
pub use error::{Problem, ScriptError};
pub use parse::one_probe;
