//! The driver API as programs in sections `cuda/NAME` and `cudaret/NAME` see it: which symbols a
//! name covers, where its arguments are when it is called, and the context that a program gets.

mod api;
mod context;
mod ops;
mod symbol;
mod table;

pub use api::{Api, apis, is_glob, nearest};
pub use context::*;
pub use ops::{OPS, Op, OpKind, bytes_of, op_of, stream_of};
pub use symbol::{Kind, Place, Symbol};
pub use table::SYMBOLS;
