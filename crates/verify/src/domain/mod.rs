//! Abstract values: what is known of registers and memory at a point of the program.
//!
//! Each domain stands alone and states what it means as a set of concrete values; every operation's result contains
//! all results of the concrete operation on members of its arguments. That is the whole of soundness, and the tests
//! of each file check it against concrete arithmetic.

pub mod compare;
pub mod interval;
pub mod pointer;
pub mod scalar;
pub mod stack;
pub mod state;
pub mod tnum;
pub mod widen;

#[cfg(test)]
mod tests;
