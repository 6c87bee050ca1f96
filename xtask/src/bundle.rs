//! Packs what a machine with a GPU needs to run `tests/gpu/run.sh`: stripped binaries, objects and
//! programs, no compiler.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::artifacts::{self, Artifacts, Extent, Profile};
use crate::jobs::Plan;
use crate::shell::{Failure, failure, root, run as run_command, succeeds};

/// Most bytes of a packed bundle.
const MAX_BYTES: u64 = 52 << 20;

/// Builds and packs into the folder `target/gpu-bundle` and the archive `target/gpu-bundle.tar.xz`.
pub fn run(profile: Profile) -> Result<(), Failure> {
    let tools = OnceLock::new();
    let mut plan = Plan::new();
    artifacts::add_steps(&mut plan, &tools, profile, Extent::Bundle);
    plan.run()?;
    let artifacts = Artifacts::of(profile);
    let bundle = artifacts::target_dir().join("gpu-bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle)
            .map_err(|e| Failure(format!("cannot clear the bundle: {e}")))?;
    }
    std::fs::create_dir_all(bundle.join("soft"))
        .map_err(|e| Failure(format!("cannot make the bundle: {e}")))?;
    let binaries = &artifacts.folder;
    for name in [
        "warpbpf",
        "warpbpf-suite",
        "warpbpf-conformance",
        "warpbpf-kernels",
        "warpbpf-splice",
        "libwarpbpf_agent.so",
        "libwarpbpf_loader.so",
    ] {
        copy_stripped(&binaries.join(name), &bundle.join(name))?;
    }
    let examples = bundle.join("examples");
    std::fs::create_dir_all(&examples)
        .map_err(|e| Failure(format!("cannot make the bundle: {e}")))?;
    for name in ["counter", "events"] {
        copy_stripped(&binaries.join("examples").join(name), &examples.join(name))?;
    }
    artifacts::torch(&examples.join("torch"))?;
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        copy_stripped(&artifacts.soft.join(name), &bundle.join("soft").join(name))?;
    }
    copy_folder(&artifacts.objects, &bundle.join("objects"))?;
    copy_folder(&artifacts.apps, &bundle.join("apps"))?;
    copy_folder(&artifacts.libbpf, &bundle.join("libbpf"))?;
    copy_folder(&artifacts.sanitizer, &bundle.join("sanitizer"))?;
    copy_folder(&artifacts.splice, &bundle.join("splice"))?;
    copy_folder(&root().join("suites"), &bundle.join("suites"))?;
    copy_kernels(&artifacts.kernels, &bundle.join("kernels"))?;
    let archive = artifacts::target_dir().join("gpu-bundle.tar.xz");
    let mut tar = Command::new("tar");
    // With everything unoptimised `gzip` does not make it small enough to travel.
    tar.args(["--use-compress-program", "xz -T0 -2", "--create", "--file"])
        .arg(&archive);
    run_command(
        tar.arg("--directory")
            .arg(artifacts::target_dir())
            .arg("gpu-bundle"),
    )?;
    let bytes = std::fs::metadata(&archive)
        .map_err(|e| Failure(format!("cannot see the archive: {e}")))?
        .len();
    say!(
        "gpu-bundle: {} in {:.1} MiB",
        archive.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    if bytes > MAX_BYTES {
        failure("the archive is larger than 52 MiB")
    } else {
        Ok(())
    }
}

/// The corpus: programs that bring their runtime along, and captured texts. Libraries of the GPU
/// machine may be others.
fn copy_kernels(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure(format!("cannot pack the corpus: {e}"));
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let target = to.join(name.as_ref());
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else if path.extension().is_none() && !name.ends_with("-shared") {
            copy_stripped(&path, &target)?;
        } else if path.extension().is_some_and(|kind| kind == "ptx") {
            // What mutants are made of.
            copy(&path, &target)?;
        }
    }
    Ok(())
}

fn copy_stripped(from: &Path, to: &Path) -> Result<(), Failure> {
    copy(from, to)?;
    // Without binutils the bundle is only larger.
    let _ = succeeds(Command::new("strip").arg("--strip-debug").arg(to));
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::copy(from, to).map(|_| ()).map_err(|e| {
        Failure(format!(
            "cannot copy `{}` to `{}`: {e}",
            from.display(),
            to.display()
        ))
    })
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    run_command(Command::new("cp").arg("-r").arg(from).arg(to))
}
