//! Everything that must pass: formatting, lints, tidy, generated files, and every test, on whatever this machine has.

use std::process::Command;

use crate::artifacts::{self, Profile};
use crate::conformance;
use crate::generated;
use crate::setup;
use crate::shell::{Failure, cargo, root, run as run_command};
use crate::tidy;

/// Sets up and runs all checks; the first failure ends it.
pub fn run() -> Result<(), Failure> {
    let tools = setup::run()?;
    tidy::run()?;
    generated::check()?;
    run_command(cargo().args(["fmt", "--all", "--check"]))?;
    run_command(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    if setup::other_target() {
        let packages = [
            "-p",
            "warpbpf-agent",
            "-p",
            "warpbpf-inject",
            "-p",
            "warpbpf",
        ];
        run_command(
            cargo()
                .args(["check", "--quiet", "--target", setup::OTHER_TARGET])
                .args(packages)
                .env("RUSTFLAGS", "-D warnings")
                .env("CARGO_TARGET_DIR", artifacts::target_dir().join("other")),
        )?;
    } else {
        println!(
            "skipped: no Rust library for {} (`rustup target add`)",
            setup::OTHER_TARGET
        );
    }
    let artifacts = artifacts::build_all(&tools, Profile::Dev)?;
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--quiet", "--no-fail-fast"]);
    tests
        .env("WARPBPF_CLANG", &tools.clang)
        .env("WARPBPF_CUDA_HOME", &tools.cuda);
    // The same random cases everywhere, so that a change is what breaks a build. Set the variable to explore others.
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        tests.env("PROPTEST_RNG_SEED", "20261120");
    }
    run_command(&mut tests)?;
    // Loom's atomics need a build of their own. It takes a few seconds once that is there.
    run_command(
        cargo()
            .args(["test", "--quiet", "-p", "warpbpf-wire", "--lib", "models"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", artifacts::target_dir().join("loom")),
    )?;
    // What the parts of tests/gpu/run.sh make of reports, without a GPU.
    run_command(
        Command::new("python3")
            .arg("-B")
            .arg(root().join("tests/gpu/test_backends.py")),
    )?;
    let folder = artifacts.warpbpf.with_file_name("");
    run_command(
        Command::new(folder.join("warpbpf-suite"))
            .arg("soft")
            .arg(&folder),
    )?;
    let kernels = folder.join("warpbpf-kernels");
    run_command(Command::new(&kernels).arg("soft").arg(&folder))?;
    run_command(
        Command::new(&kernels)
            .args(["mutants", "soft"])
            .arg(&folder)
            .args(["--seconds", "600", "--count", "60", "--ptxas"])
            .arg(tools.cuda.join("bin/ptxas")),
    )?;
    run_command(
        Command::new(&kernels)
            .arg("text")
            .arg(&folder)
            .arg(tools.cuda.join("bin/ptxas")),
    )?;
    conformance::suite(&folder)?;
    if Command::new("nvidia-smi")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        println!(
            "a GPU is here: tests/gpu/run.sh runs the GPU suite from `cargo xtask gpu-bundle`"
        );
    } else {
        println!("skipped: no GPU (tests/gpu)");
    }
    Ok(())
}
