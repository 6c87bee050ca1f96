//! Builds what the examples need: the tools, the soft GPU's libraries, BPF objects and CUDA applications.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::Tools;
use crate::shell::{Failure, cargo, root, run};
use crate::soft;

/// Cargo profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// For the demo, the bundle and benchmarks.
    Release,
    /// What `cargo test` builds.
    Dev,
}

impl Profile {
    /// Its folder in cargo's target folder.
    pub fn folder(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Dev => "debug",
        }
    }
}

/// What was built.
#[derive(Debug)]
pub struct Artifacts {
    /// The `warpbpf` command.
    pub warpbpf: PathBuf,
    /// Folder with `libcuda.so.1` and `libcudart.so.13` of the soft GPU.
    pub soft: PathBuf,
    /// Folder of BPF objects: `NAME.bpf.o`.
    pub objects: PathBuf,
    /// Folder of applications: `NAME` with the static runtime, `NAME-shared` with the shared one.
    pub apps: PathBuf,
}

/// BPF programs: name and source.
const PROGRAMS: &[(&str, &str)] = &[
    ("threadhist", "examples/threadhist/threadhist.bpf.c"),
    (
        "kernelretsnoop",
        "examples/kernelretsnoop/kernelretsnoop.bpf.c",
    ),
    ("launchcount", "examples/launchcount/launchcount.bpf.c"),
    ("scopes", "tests/programs/scopes.bpf.c"),
    ("hashstress", "tests/programs/hashstress.bpf.c"),
    ("helpers", "tests/programs/helpers.bpf.c"),
    ("clock", "tests/programs/clock.bpf.c"),
    ("refused", "tests/programs/refused.bpf.c"),
    ("nomatch", "tests/programs/nomatch.bpf.c"),
    ("bpftime", "tests/programs/bpftime.bpf.c"),
    ("loops", "tests/programs/loops.bpf.c"),
    ("atomizer", "tests/programs/atomizer.bpf.c"),
    ("bench-empty", "benches/probes/empty.bpf.c"),
    ("bench-counter", "benches/probes/counter.bpf.c"),
    ("bench-slot", "benches/probes/slot.bpf.c"),
    ("bench-ring", "benches/probes/ring.bpf.c"),
    ("bench-launch", "benches/probes/launch.bpf.c"),
];

/// CUDA applications: name and source.
const APPS: &[(&str, &str)] = &[
    ("vectoradd", "examples/apps/vectoradd.cu"),
    ("matmul", "examples/apps/matmul.cu"),
    ("reduction", "examples/apps/reduction.cu"),
    ("variants", "tests/apps/variants.cu"),
    ("crash", "tests/apps/crash.cu"),
    ("vecadd-bench", "benches/vecadd.cu"),
    ("launch-bench", "benches/launch.cu"),
];

/// Builds everything.
pub fn build(tools: &Tools, profile: Profile) -> Result<Artifacts, Failure> {
    let mut command = cargo();
    command.args(["build", "--quiet"]);
    for package in [
        "warpbpf-cli",
        "warpbpf-agent",
        "warpbpf-softcuda",
        "warpbpf-suite",
        "warpbpf-conformance",
    ] {
        command.args(["-p", package]);
    }
    if profile == Profile::Release {
        command.arg("--release");
    }
    run(&mut command)?;
    let binaries = target_dir().join(profile.folder());
    let artifacts = Artifacts {
        warpbpf: binaries.join("warpbpf"),
        soft: binaries.join("soft"),
        objects: binaries.join("objects"),
        apps: binaries.join("apps"),
    };
    soft::assemble(&binaries, &artifacts.soft)?;
    objects(tools, &artifacts.objects)?;
    apps(tools, &artifacts.apps)?;
    Ok(artifacts)
}

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Compiles the BPF programs.
pub fn objects(tools: &Tools, into: &Path) -> Result<(), Failure> {
    make_dir(into)?;
    for (name, source) in PROGRAMS {
        let source = root().join(source);
        let object = into.join(format!("{name}.bpf.o"));
        if is_newer(&object, &[&source, &root().join("include/warpbpf.h")]) {
            continue;
        }
        let mut clang = Command::new(&tools.clang);
        clang.args([
            "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ]);
        clang.arg("-I").arg(root().join("include")).arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ));
        run(clang.arg("-c").arg(&source).arg("-o").arg(&object))?;
    }
    Ok(())
}

/// Compiles the applications, with the static and the shared CUDA runtime.
pub fn apps(tools: &Tools, into: &Path) -> Result<(), Failure> {
    make_dir(into)?;
    for (name, source) in APPS {
        let source = root().join(source);
        for (runtime, suffix) in [("shared", "-shared"), ("static", "")] {
            let program = into.join(format!("{name}{suffix}"));
            if is_newer(&program, &[&source]) {
                continue;
            }
            let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
            nvcc.args(["-O2", "-std=c++17", "-cudart", runtime]);
            nvcc.args(["-gencode", "arch=compute_75,code=compute_75"]);
            nvcc.args(["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]);
            nvcc.arg("-L")
                .arg(tools.cuda.join("lib"))
                .arg("-o")
                .arg(&program);
            run(nvcc.arg(&source))?;
        }
    }
    other_tool(into)
}

/// A library that can hold the injection slot.
fn other_tool(into: &Path) -> Result<(), Failure> {
    let source = root().join("tests/apps/othertool.c");
    let library = into.join("libothertool.so");
    if is_newer(&library, &[&source]) {
        return Ok(());
    }
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source))
}

/// `made` exists and is not older than any of `sources`.
pub fn is_newer(made: &Path, sources: &[&Path]) -> bool {
    let time = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(made) = time(made) else {
        return false;
    };
    sources
        .iter()
        .all(|source| time(source).is_some_and(|t| t <= made))
}

fn make_dir(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|e| Failure(format!("cannot make `{}`: {e}", path.display())))
}
