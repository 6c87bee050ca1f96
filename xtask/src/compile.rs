//! What compilers of C, CUDA and BPF make: units that know their sources, made as wide as there are
//! processors, and only where a source is newer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::jobs::{self, StepResult};
use crate::log::Log;
use crate::setup::Tools;
use crate::shell::Failure;

type Make<'u> = Box<dyn Fn(&Log) -> Result<(), Failure> + Sync + 'u>;

/// Files that are made together from sources.
pub struct Unit<'u> {
    made: Vec<PathBuf>,
    sources: Vec<PathBuf>,
    make: Make<'u>,
}

impl<'u> Unit<'u> {
    /// What makes `made`, all of them, of `sources`.
    pub fn new(
        made: impl IntoIterator<Item = PathBuf>,
        sources: impl IntoIterator<Item = PathBuf>,
        make: impl Fn(&Log) -> Result<(), Failure> + Sync + 'u,
    ) -> Unit<'u> {
        Unit {
            made: made.into_iter().collect(),
            sources: sources.into_iter().collect(),
            make: Box::new(make),
        }
    }

    /// One file by one command, to which its name is added.
    pub fn by(
        made: PathBuf,
        sources: impl IntoIterator<Item = PathBuf>,
        command: impl Fn() -> Command + Sync + 'u,
    ) -> Unit<'u> {
        let output = made.clone();
        Unit::new([made], sources, move |log| {
            log.run(command().arg("-o").arg(&output))
        })
    }

    fn is_made(&self) -> bool {
        let sources: Vec<&Path> = self.sources.iter().map(PathBuf::as_path).collect();
        self.made.iter().all(|made| is_newer(made, &sources))
    }
}

/// Makes all units that are not made yet.
pub fn all(log: &Log, units: &[Unit<'_>]) -> StepResult {
    let missing: Vec<&Unit<'_>> = units.iter().filter(|unit| !unit.is_made()).collect();
    for unit in &missing {
        for folder in unit.made.iter().filter_map(|made| made.parent()) {
            make_dir(folder)?;
        }
    }
    let count = AtomicUsize::new(0);
    jobs::each(&missing, |unit| {
        (unit.make)(log)?;
        let done = count.fetch_add(1, Ordering::Relaxed) + 1;
        log.progress(&format!("{done}/{}", missing.len()));
        Ok(())
    })?;
    let kept = units.len() - missing.len();
    Ok(match kept {
        0 => format!("{} compiled", missing.len()),
        kept => format!("{} compiled, {kept} there", missing.len()),
    })
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

/// Makes a folder and those above it.
pub fn make_dir(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|e| Failure(format!("cannot make `{}`: {e}", path.display())))
}

/// Clang for BPF, with our headers and libbpf's.
pub fn clang(tools: &Tools, source: &Path) -> Command {
    let mut clang = Command::new(&tools.clang);
    clang.args([
        "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
    ]);
    clang.arg("-I").arg(crate::shell::root().join("include"));
    clang.arg(format!(
        "-I/usr/include/{}-linux-gnu",
        std::env::consts::ARCH
    ));
    clang.arg("-c").arg(source);
    clang
}

/// The host's compiler of C.
pub fn cc(arguments: &[&str]) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .args(arguments);
    cc
}

/// CUDA's compiler.
pub fn nvcc(tools: &Tools, arguments: &[&str]) -> Command {
    let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
    nvcc.args(arguments);
    nvcc
}

/// Headers in a source's folder, which it may include.
pub fn headers_beside(source: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = source.parent().unwrap_or(source);
    let failed = |e: std::io::Error| Failure(format!("cannot read `{}`: {e}", folder.display()));
    let mut headers = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|kind| kind == "h") {
            headers.push(path);
        }
    }
    Ok(headers)
}
