//! bpf_conformance on every engine that this machine has, and the fuzzer: one program does both,
//! here it gets built and its driver chosen.

use std::path::Path;
use std::process::Command;

use crate::artifacts::Profile;
use crate::jobs::Plan;
use crate::log::Log;
use crate::shell::{Failure, root, run as run_command, succeeds};
use crate::soft;

/// Builds what is needed and runs the suite: one table, a row for each case, a column for each
/// engine.
pub fn run() -> Result<(), Failure> {
    build()?;
    run_command(&mut suite_command(&Profile::Release.folder()))
}

/// Builds and runs the fuzzer with the user's own options.
pub fn fuzz(options: &[&str]) -> Result<(), Failure> {
    build()?;
    let mut command = Command::new(Profile::Release.folder().join("warpbpf-conformance"));
    run_command(command.arg("fuzz").args(options))
}

/// Runs the suite with binaries from this folder.
pub fn suite(log: &Log, binaries: &Path) -> Result<(), Failure> {
    log.run(&mut suite_command(binaries))
}

/// The third engine goes through the CUDA driver API: the GPU's driver where there is one, else the
/// soft GPU's.
fn suite_command(binaries: &Path) -> Command {
    let has_gpu = succeeds(Command::new("nvidia-smi").arg("-L"));
    let driver = if has_gpu {
        "libcuda.so.1".into()
    } else {
        binaries.join("soft/libcuda.so.1")
    };
    let mut command = Command::new(binaries.join("warpbpf-conformance"));
    command
        .arg("suite")
        .arg(root().join("suites/bpf_conformance"))
        .arg(root().join("suites/found"));
    command.arg("--driver").arg(driver);
    command
}

fn build() -> Result<(), Failure> {
    let mut plan = Plan::new();
    plan.cargo("cargo", &[], |log| {
        let packages = ["-p", "warpbpf-conformance", "-p", "warpbpf-softcuda"];
        log.cargo(&mut Profile::Release.cargo_build(&packages))?;
        let binaries = Profile::Release.folder();
        soft::assemble(log, &binaries, &binaries.join("soft"))?;
        Ok(String::new())
    });
    plan.run()
}
