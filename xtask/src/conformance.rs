//! bpf_conformance on every engine that this machine has, and the fuzzer: one program does both, here it gets built and
//! its driver chosen.

use std::path::Path;
use std::process::Command;

use crate::artifacts::{Profile, target_dir};
use crate::shell::{Failure, cargo, root, run as run_command, succeeds};
use crate::soft;

/// Builds what is needed and runs the suite: one table, a row for each case, a column for each engine.
pub fn run() -> Result<(), Failure> {
    let binaries = build()?;
    suite(&binaries)
}

/// Builds and runs the fuzzer with the user's own options.
pub fn fuzz(options: &[&str]) -> Result<(), Failure> {
    let binaries = build()?;
    run_command(
        Command::new(binaries.join("warpbpf-conformance"))
            .arg("fuzz")
            .args(options),
    )
}

/// Runs the suite with binaries from this folder. The third engine goes through the CUDA driver API: the GPU's driver
/// where there is one, else the soft GPU's.
pub fn suite(binaries: &Path) -> Result<(), Failure> {
    let has_gpu = succeeds(Command::new("nvidia-smi").arg("-L"));
    let driver = if has_gpu {
        "libcuda.so.1".into()
    } else {
        binaries.join("soft/libcuda.so.1")
    };
    run_command(
        Command::new(binaries.join("warpbpf-conformance"))
            .arg("suite")
            .arg(root().join("suites/bpf_conformance"))
            .arg(root().join("suites/found"))
            .arg("--driver")
            .arg(driver),
    )
}

fn build() -> Result<std::path::PathBuf, Failure> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--release"]);
    run_command(command.args(["-p", "warpbpf-conformance", "-p", "warpbpf-softcuda"]))?;
    let binaries = target_dir().join(Profile::Release.folder());
    soft::assemble(&binaries, &binaries.join("soft"))?;
    Ok(binaries)
}
