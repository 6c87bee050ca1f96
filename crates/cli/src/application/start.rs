//! How applications are started, as flags say.

use std::path::Path;
use std::process::Child;

pub use warpbpf_tool::start::{
    Entry, INJECTION, NVTX_INJECTION, SOCKET, Surroundings, find, listed, split,
};

use crate::application::machine::Device;
use crate::flags::{Inject, TargetFlags};
use crate::term::inherited::Inherited;

impl From<Inject> for warpbpf_tool::Inject {
    fn from(inject: Inject) -> warpbpf_tool::Inject {
        match inject {
            Inject::Auto => warpbpf_tool::Inject::Auto,
            Inject::Env => warpbpf_tool::Inject::Env,
            Inject::Preload => warpbpf_tool::Inject::Preload,
        }
    }
}

/// Starts the application, where it matters with its NVTX `ranges` known. Its standard streams are
/// ours, and it inherits what we did.
///
/// # Errors
/// It was not found, cannot be run, or the agent is not built; nothing was started then.
pub fn start(
    flags: &TargetFlags,
    device: &Device,
    socket: &Path,
    surroundings: &Surroundings,
    ranges: bool,
    inherited: Inherited,
) -> Result<(Child, Entry), warpbpf_tool::Error> {
    // SAFETY: system calls alone.
    unsafe {
        warpbpf_tool::start::start_after(
            &flags.command,
            device,
            flags.inject.into(),
            socket,
            surroundings,
            ranges,
            move |_| inherited.give(),
        )
    }
}
