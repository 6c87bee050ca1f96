//! Programs that a kernel gets while it runs: a function on the device that runs instructions out
//! of memory, because no code can be loaded beside a kernel that never ends. A kernel has places
//! for it where slots were asked for ([`slot`]); the conformance suite runs it too.
//!
//! What it runs is not eBPF but what [`translate`] makes of a program that was verified:
//! instructions of one size, decoded, with jumps and addresses resolved. The proof's facts are used
//! up there: each function is written out where it is called, as in compiled code, so the device
//! needs no calls and no stack of them; what cannot be done atomically on a stack, or is not
//! aligned, comes apart there too. So the function on the device knows nothing of eBPF's rules, and
//! is small.

mod area;
mod error;
mod form;
mod function;
mod ops;
mod slot;
mod text;
mod translate;

pub use error::NotInterpreted;
pub use form::Form;
pub use function::Interpreter;
pub use slot::holds;
pub use translate::{translate, translate_for_slot};
