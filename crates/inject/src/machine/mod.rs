//! What differs between processors when a thread of another process is moved: its registers, how it
//! enters the kernel, what a call leaves behind. A module for each, with the same functions; what
//! only reads and writes words is tested anywhere.

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
mod state;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
pub(crate) use state::{Frame, Return, Vectors};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// A system call that a thread of this processor was stopped in.
pub(crate) type Waiting = state::Waiting<Registers>;
