//! Functions for kernels of which there is only machine code: `ptxas` makes them here, in the tool, because nothing is started in an application.

use std::path::{Path, PathBuf};
use std::process::Command;

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Arch, Options, Session};

/// Names the assembler, before any other place is looked at.
pub const PTXAS: &str = "WARPBPF_PTXAS";

/// Finds `ptxas`: where [`PTXAS`] says, in the CUDA toolkit that `CUDA_HOME` or `CUDA_PATH` names, in `PATH`, or where toolkits are installed.
///
/// # Errors
/// It is in none of these; what to do, for the user.
pub fn ptxas() -> Result<PathBuf, String> {
    let named = std::env::var_os(PTXAS).map(PathBuf::from);
    let toolkits = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(std::env::var_os);
    let toolkits = toolkits.map(|home| Path::new(&home).join("bin/ptxas"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| folder.join("ptxas"))
        .collect();
    let installed = PathBuf::from("/usr/local/cuda/bin/ptxas");
    let all = named.into_iter().chain(toolkits).chain(path);
    all.chain([installed])
        .find(|file| file.is_file())
        .ok_or_else(|| {
            format!(
                "`ptxas` is not there, which kernels without PTX need: install the CUDA toolkit or the package `nvidia-cuda-nvcc`, or name the file in {PTXAS}"
            )
        })
}

/// The functions that the programs of an object become on a device: of each the text, and what `ptxas` made of it.
pub fn functions(
    ptxas: &Path,
    object: &[u8],
    options: &Options,
    device: &DeviceInfo,
) -> Vec<(String, Result<Vec<u8>, String>)> {
    let (major, minor) = device.capability;
    // Kernels of other devices are refused by the agent, which tells why.
    let Some(arch) = Arch::of(major * 10 + minor) else {
        return Vec::new();
    };
    // So is an object that is refused.
    let Ok(session) = Session::new(object, options, device) else {
        return Vec::new();
    };
    let made = session.probe_texts(arch).into_iter().map(|text| {
        let cubin = assemble(ptxas, &text, arch);
        (text, cubin)
    });
    made.collect()
}

fn assemble(ptxas: &Path, text: &str, arch: Arch) -> Result<Vec<u8>, String> {
    let folder = Folder::new().map_err(|error| format!("no folder for `ptxas`: {error}"))?;
    let (source, cubin) = (folder.0.join("probe.ptx"), folder.0.join("probe.cubin"));
    std::fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
    let done = Command::new(ptxas)
        .arg("--compile-as-tools-patch")
        .args(["-arch", &format!("sm_{}", arch.number()), "-o"])
        .args([&cubin, &source])
        .output()
        .map_err(|error| format!("{}: {error}", ptxas.display()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let first = said.lines().next().unwrap_or("it says nothing");
        return Err(format!("`ptxas` refuses the function: {first}"));
    }
    std::fs::read(&cubin).map_err(|error| format!("{}: {error}", cubin.display()))
}

/// A folder of our own, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt as _;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpbpf-ptxas-{}-{number}", std::process::id());
        let path = warpbpf::runtime_folder().join(name);
        // Nobody else may put a cubin there.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It costs a few kilobytes if it stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
