//! Inline hooks at functions that we cannot rebuild, without touching their first byte.
//!
//! The first instruction stays, so that a kernel uprobe may sit on it; a jump replaces what
//! follows. (An entry of a procedure linkage table is hardly more than a jump, so there ours takes
//! its place.) The jump leads to an *entry stub* that undoes the first instruction and goes on to
//! our function. A *trampoline* holds the displaced instructions and jumps back behind them:
//! calling it is calling the original.
//!
//! Three steps: [`stage`] reads, judges, and builds stubs in fresh memory within reach. The caller
//! publishes the trampolines, because a hooked function may be called at once. [`Staged::commit`]
//! writes the jumps.
//!
//! What instructions look like is in a module for each kind of processor, with the same functions
//! (`machine`). Nothing here knows CUDA.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the test's own files, which nobody closes"
    )
)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("code is that of x86-64 and AArch64; other processors need their own `machine`");

mod stage;

mod error;
mod target;

mod beneath;
mod machine;
mod memory;
mod patch;
mod stub;
mod xfsz;

pub mod maps;

pub use error::{BeneathError, HookError, StubsError, WriteError};
pub use patch::in_force;
pub use stage::{Staged, stage};
pub use stub::{Link, link, stubs};
pub use target::{Kind, Target};
pub use xfsz::without_xfsz;
