//! Proves a program safe: each lane by itself first, then the lanes of a warp together.
//!
//! What is proved, for every input and every interleaving with other threads:
//! - every register and stack byte that is read was written; `r10` is not;
//! - every access is inside its region, aligned to its size, and of an allowed kind: context fields
//!   are read whole, `.rodata` is not written, a value or record that may be null is not touched
//!   before it was compared with null;
//! - pointers stay in registers and stack; they are not compared, returned, or stored where others
//!   could read them;
//! - helpers exist, get what the table asks for, and change the application only if that was
//!   allowed;
//! - a reserved record is submitted or discarded exactly once on every path;
//! - an iterator is made once, used with its own functions only, and destroyed on every path;
//! - the program ends within its budget of instructions, 8 call frames and 512 bytes of stack.
//!   Loops end by their own counters, or by what counts their rounds: an iterator, a helper that
//!   calls back, `may_goto`. Others can be given one of these ([`bounded`]).
//!
//! How: every path is followed (`explore`), with sets of values in place of values (`domain`); a
//! path is dropped where an earlier one covers it, and states are joined where too many meet. What
//! must hold (`assert`), whether it holds (`check`, `call`) and what an instruction does
//! (`transfer`) are three things in three files.
//!
//! The warp half ([`warp`]) then says for every instruction whether all lanes that arrived together
//! reach it and see the same value or go the same way, refuses helpers that need more of a warp
//! than is there, and names loops that wait for another thread (`wait`). Varying branches are
//! allowed: no generated code needs lanes to be together. Updates of shared values that can be lost
//! are no fault but a [`Warning`].
//!
//! Layers, each uses only those to its right: `apart → bounded → padded → verified → explore →
//! execute → loops → report → explorer → warn → shared → warp → flows → effect → gather → atomic →
//! call → once → transfer → budget → check → graph → log → wait → env → liveness → platform →
//! domain → path → bound → broken → locks → assert → defines → event → facts → rule → subject`.
//!
//! [`verify`] (or [`verify_logged`], which tells every step) is the only way to a [`Verified`], and
//! the code generator takes nothing else.
#![forbid(unsafe_code)]

mod apart;
mod assert;
mod atomic;
mod bound;
pub mod bounded;
mod broken;
pub mod budget;
mod call;
mod check;
mod defines;
mod domain;
mod effect;
mod env;
mod event;
mod execute;
mod explore;
mod explorer;
pub mod facts;
mod flows;
mod gather;
mod graph;
mod liveness;
mod locks;
pub mod log;
mod loops;
mod once;
mod padded;
mod path;
pub mod platform;
pub mod report;
pub mod rule;
mod shared;
pub mod subject;
mod transfer;
mod verified;
mod wait;
pub mod warn;
pub mod warp;

#[cfg(test)]
mod fuzz;

pub use apart::prove_apart;
pub use bounded::{Bounded, prove_bounded};
pub use budget::{HelperUse, helpers_used};
pub use facts::*;
pub use locks::note_locks;
pub use log::LogStep;
pub use padded::prove_padded;
pub use platform::{ContextField, Platform};
pub use report::{Rejection, Step};
pub use rule::Rule;
pub use subject::{SourceLine, Subject};
pub use verified::{Verified, verify, verify_logged};
pub use warn::{Related, Warning};
pub use warp::{WarpFact, WarpFacts};
