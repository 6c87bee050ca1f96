//! Which device a command uses, as its flags say.

pub use warpbpf_tool::machine::{Device, agent, gpus, loader, soft_folder};

use crate::flags::DeviceChoice;
use crate::term::output::tell;

impl From<DeviceChoice> for warpbpf_tool::DeviceChoice {
    fn from(choice: DeviceChoice) -> warpbpf_tool::DeviceChoice {
        match choice {
            DeviceChoice::Auto => warpbpf_tool::DeviceChoice::Auto,
            DeviceChoice::Gpu => warpbpf_tool::DeviceChoice::Gpu,
            DeviceChoice::Soft => warpbpf_tool::DeviceChoice::Soft,
        }
    }
}

/// Decides where to run.
///
/// # Errors
/// A GPU was asked for and there is none, or the soft GPU is needed and not built.
pub fn choose(choice: DeviceChoice) -> Result<Device, warpbpf_tool::Error> {
    warpbpf_tool::machine::choose(choice.into())
}

/// Says where kernels run, if that is not what the flags say.
pub fn tell_of(device: &Device, choice: DeviceChoice) {
    if matches!((device, choice), (Device::Soft { .. }, DeviceChoice::Auto)) {
        tell!("warpbpf: no GPU here: kernels run on the soft GPU (`warpbpf doctor` says why)");
    }
}
