//! This machine: is there a GPU, where is the soft one, where is the agent.

use std::path::PathBuf;

use warpbpf_driver::DeviceInfo;

use crate::error::CliError;
use crate::flags::DeviceChoice;

/// Where an application's kernels will run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The real driver; the first device.
    Gpu(DeviceInfo),
    /// The soft GPU's libraries in this folder, and why it is used.
    Soft {
        /// Folder with `libcuda.so.1` and `libcudart.so.13`.
        folder: PathBuf,
        /// For the user.
        why: String,
    },
}

/// Asks the real driver for its first device. The question runs in this process; the application starts its own driver.
pub fn gpu() -> Result<DeviceInfo, String> {
    let driver = warpbpf_driver::open("libcuda.so.1").map_err(|e| e.to_string())?;
    driver.init().map_err(|e| e.to_string())?;
    if driver.device_count().map_err(|e| e.to_string())? == 0 {
        return Err("the driver sees no device".into());
    }
    let info = driver.device_info(0).map_err(|e| e.to_string())?;
    if info.name == warpbpf_abi::names::SOFT_DEVICE {
        return Err("`libcuda.so.1` on the library path is the soft GPU's".into());
    }
    Ok(info)
}

/// Decides where to run.
///
/// # Errors
/// [`CliError::NoGpu`] when a GPU was asked for, [`CliError::Missing`] when the soft GPU is needed and not built.
pub fn choose(choice: DeviceChoice) -> Result<Device, CliError> {
    let why = match choice {
        DeviceChoice::Soft => "asked for".to_string(),
        DeviceChoice::Gpu => {
            return gpu()
                .map(Device::Gpu)
                .map_err(|reason| CliError::NoGpu { reason });
        }
        DeviceChoice::Auto => match gpu() {
            Ok(info) => return Ok(Device::Gpu(info)),
            Err(reason) => format!("no GPU: {reason}"),
        },
    };
    Ok(Device::Soft {
        folder: soft_folder()?,
        why,
    })
}

/// Folder of the soft GPU's libraries: `WARPBPF_SOFT_DIR`, or `soft/` beside this command.
pub fn soft_folder() -> Result<PathBuf, CliError> {
    let folder = beside_us("WARPBPF_SOFT_DIR", "soft");
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return Ok(folder);
    }
    Err(CliError::Missing {
        what: "the soft GPU",
        path: library.display().to_string(),
        variable: "WARPBPF_SOFT_DIR",
    })
}

/// The agent: `WARPBPF_AGENT`, or `libwarpbpf_agent.so` beside this command.
pub fn agent() -> Result<PathBuf, CliError> {
    let path = beside_us("WARPBPF_AGENT", "libwarpbpf_agent.so");
    if path.exists() {
        return Ok(path);
    }
    Err(CliError::Missing {
        what: "the agent",
        path: path.display().to_string(),
        variable: "WARPBPF_AGENT",
    })
}

fn beside_us(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return PathBuf::from(named);
    }
    let exe = std::env::current_exe().unwrap_or_default();
    exe.parent()
        .map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}
