//! How applications are started, as flags say.

use std::path::Path;
use std::process::Child;

pub use warpbpf::start::{
    Entry, INJECTION, NVTX_INJECTION, SOCKET, Surroundings, find, prepend, split,
};

use crate::flags::{Inject, TargetFlags};
use crate::machine::Device;

impl From<Inject> for warpbpf::Inject {
    fn from(inject: Inject) -> warpbpf::Inject {
        match inject {
            Inject::Auto => warpbpf::Inject::Auto,
            Inject::Env => warpbpf::Inject::Env,
            Inject::Preload => warpbpf::Inject::Preload,
        }
    }
}

/// Starts the application, where it matters with its NVTX `ranges` known. Its standard streams are ours.
///
/// # Errors
/// It was not found, cannot be run, or the agent is not built; nothing was started then.
pub fn start(
    flags: &TargetFlags,
    device: &Device,
    socket: &Path,
    surroundings: &Surroundings,
    ranges: bool,
) -> Result<(Child, Entry), warpbpf::Error> {
    warpbpf::start::start(
        &flags.command,
        device,
        flags.inject.into(),
        socket,
        surroundings,
        ranges,
    )
}
