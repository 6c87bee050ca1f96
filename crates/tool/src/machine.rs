//! This machine: is there a GPU, where is the soft one, where is the agent.

use std::path::PathBuf;

use warpbpf_driver::DeviceInfo;

use crate::error::Error;

/// The agent's file.
pub(crate) const AGENT: &str = "libwarpbpf_agent.so";

/// Which device an application is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The GPU if there is one, else the soft GPU.
    #[default]
    Auto,
    /// The GPU; fail if there is none.
    Gpu,
    /// The built-in soft GPU.
    Soft,
}

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

/// Asks the real driver for its first device. The question runs in this process; the application
/// starts its own driver.
pub fn gpu() -> Result<DeviceInfo, String> {
    gpus().map(|mut all| all.swap_remove(0))
}

/// All devices of the real driver, by ordinal; there is at least one.
pub fn gpus() -> Result<Vec<DeviceInfo>, String> {
    let driver = warpbpf_driver::open("libcuda.so.1").map_err(|e| e.to_string())?;
    driver.init().map_err(|e| e.to_string())?;
    let count = driver.device_count().map_err(|e| e.to_string())?;
    if count == 0 {
        return Err("the driver sees no device".into());
    }
    let all: Result<Vec<DeviceInfo>, String> = (0..count as i32)
        .map(|ordinal| driver.device_info(ordinal).map_err(|e| e.to_string()))
        .collect();
    let all = all?;
    if all[0].name == warpbpf_abi::names::SOFT_DEVICE {
        return Err("`libcuda.so.1` on the library path is the soft GPU's".into());
    }
    Ok(all)
}

/// Decides where to run.
///
/// # Errors
/// [`Error::NoGpu`] when a GPU was asked for, [`Error::Missing`] when the soft GPU is needed and
/// not built.
pub fn choose(choice: DeviceChoice) -> Result<Device, Error> {
    let why = match choice {
        DeviceChoice::Soft => "asked for".to_string(),
        DeviceChoice::Gpu => {
            return gpu()
                .map(Device::Gpu)
                .map_err(|reason| Error::NoGpu { reason });
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

/// Folder of the soft GPU's libraries: `WARPBPF_SOFT_DIR`, or `soft/` beside this program.
pub fn soft_folder() -> Result<PathBuf, Error> {
    let folder = beside_us("WARPBPF_SOFT_DIR", "soft");
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return Ok(folder);
    }
    Err(Error::Missing {
        what: "the soft GPU",
        path: library.display().to_string(),
        variable: "WARPBPF_SOFT_DIR",
    })
}

/// The agent: `WARPBPF_AGENT`, or `libwarpbpf_agent.so` beside this program.
pub fn agent() -> Result<PathBuf, Error> {
    let path = beside_us("WARPBPF_AGENT", AGENT);
    if path.exists() {
        return Ok(path);
    }
    Err(Error::Missing {
        what: "the agent",
        path: path.display().to_string(),
        variable: "WARPBPF_AGENT",
    })
}

/// What is preloaded into tools that use libbpf: `WARPBPF_LOADER`, or `libwarpbpf_loader.so` beside
/// this program.
pub fn loader() -> Result<PathBuf, Error> {
    let path = beside_us("WARPBPF_LOADER", "libwarpbpf_loader.so");
    if path.exists() {
        return Ok(path);
    }
    Err(Error::Missing {
        what: "the loader",
        path: path.display().to_string(),
        variable: "WARPBPF_LOADER",
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
