//! How applications are started, as flags say.

use std::path::Path;
use std::process::Child;

pub use warpbpf::start::{
    Entry, INJECTION, NVTX_INJECTION, SOCKET, Surroundings, find, listed, split,
};

use crate::application::machine::Device;
use crate::flags::{Inject, TargetFlags};
use crate::term::inherited::Inherited;

impl From<Inject> for warpbpf::Inject {
    fn from(inject: Inject) -> warpbpf::Inject {
        match inject {
            Inject::Auto => warpbpf::Inject::Auto,
            Inject::Env => warpbpf::Inject::Env,
            Inject::Preload => warpbpf::Inject::Preload,
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
) -> Result<(Child, Entry), warpbpf::Error> {
    // SAFETY: system calls alone.
    unsafe {
        warpbpf::start::start_after(
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
