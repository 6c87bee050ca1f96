//! What differs between processors when a thread of another process is moved: its registers, how it enters the kernel, what a call
//! leaves behind. A module for each, with the same functions; what only reads and writes words is tested anywhere.

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// A system call that a thread was stopped in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<R = Registers> {
    /// Its number.
    pub(crate) number: i64,
    /// Our stop has ended it with `EINTR`, as a signal would have: with these registers it is made again.
    pub(crate) again: Option<R>,
}
