//! warpbpf inside the target process: hooks the CUDA driver, puts programs into kernels as they are
//! loaded, chooses the kernel at each launch, and carries maps and events out.
//!
//! Rules, and where they are kept: a hook that fails inside calls the original and returns its
//! result (`sys::guard`); no panic leaves, nothing is printed, no process is started; the
//! application never waits for the tool, except for one bounded handshake and the last data at its
//! end (`agent`, `control`); a launch loads and compiles nothing, but with the first in a context,
//! where the driver itself loads the kernel only then (`launch`); without a tool in the environment
//! nothing happens at all (`install`), unless somebody who may trace this process asks for it
//! (`late`).
//!
//! Layers, each uses only those to its right: `startup → control → hooks → instrument → uprobe →
//! trace → contexts → runtime → sources → device → kernels → sys`.
//! The agent itself (`runtime`) owns the parts of the layers below it, which know no agent. What a
//! lower layer asks of an upper one goes through functions that the agent is started with
//! (`startup::start`).
//!
//! Reading order: `startup` (`preload`, `install`, `late`), `hooks` (`exports`, `launch`,
//! `graphs`), `instrument` (`modules`, `context_life`), `runtime`, `device` (`context_registry`,
//! `pump`), and how it gets out (`control`).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the test's own files, which nobody closes"
    )
)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the agent hooks code of x86-64 and AArch64; other processors need their own code in `warpbpf-hook`"
);

mod startup;

mod control;
mod hooks;

mod instrument;

mod uprobe;

mod contexts;
mod trace;

mod runtime;

mod sources;

mod device;

mod kernels;

mod sys;

pub use startup::install::install_into;
pub use startup::late::warpbpf_live;
pub use startup::preload::InitializeInjection;
pub use trace::nvtx::InitializeInjectionNvtx2;

#[cfg(test)]
mod tests;
