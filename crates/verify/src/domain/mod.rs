//! Abstract values: what is known of registers and memory at a point of the program.
//!
//! Each domain stands alone and states what it means as a set of concrete values; every operation's
//! result contains all results of the concrete operation on members of its arguments. That is the
//! whole of soundness, and the tests of each file check it against concrete arithmetic. Numbers are
//! generic in their width: at 6 bits all of it can be tried.

pub mod compare;
pub mod interval;
pub mod pointer;
pub mod scalar;
pub mod stack;
pub mod state;
pub mod tnum;
pub mod widen;
pub mod width;

#[cfg(test)]
mod small;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
