//! What chores need built, as steps that run side by side: the tools and the soft GPU's libraries
//! by cargo, BPF objects by clang, applications by nvcc.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::compile::{self, Unit, headers_beside, make_dir};
use crate::cuda::{self, Runtimes};
use crate::jobs::{Plan, StepResult};
use crate::libbpf::Newest;
use crate::log::Log;
use crate::setup::{self, Tools};
use crate::shell::{Failure, cargo, failure, make_link, root};
use crate::sources::PROGRAMS;
use crate::{libbpf, soft, units};

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
    pub fn folder(self) -> PathBuf {
        target_dir().join(match self {
            Profile::Release => "release",
            Profile::Dev => "debug",
        })
    }

    /// `cargo build` for it.
    pub fn cargo_build(self, selection: &[&str]) -> Command {
        let mut command = cargo();
        command.arg("build").args(selection);
        if self == Profile::Release {
            command.arg("--release");
        }
        command
    }
}

/// How much is built, from little to much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Extent {
    /// What the main job needs: one program and one application.
    Demo,
    /// The tools, the soft GPU, the example programs and applications.
    Examples,
    /// All that the end-to-end suite runs on the soft GPU.
    Suite,
    /// That, and the tests of all crates.
    Tests,
    /// What the suite runs on a GPU.
    Bundle,
}

/// Where in a folder of cargo's everything is.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Folder with the `warpbpf` command and all below.
    pub folder: PathBuf,
    /// The `warpbpf` command.
    pub warpbpf: PathBuf,
    /// Folder with `libcuda.so.1` and `libcudart.so.13` of the soft GPU.
    pub soft: PathBuf,
    /// Folder of BPF objects: `NAME.bpf.o`.
    pub objects: PathBuf,
    /// Folder of applications: `NAME` with the static runtime, `NAME-shared` with the shared one.
    pub apps: PathBuf,
    /// Folder of the tests' tools that use libbpf; empty without `bpftool`.
    pub libbpf: PathBuf,
    /// Folder of the corpus: programs as above, their PTX `NAME.ptx`, and `triton/`.
    pub kernels: PathBuf,
    /// Folder of the counter of accesses by Compute Sanitizer: `libmemcount.so` and its patches,
    /// `memcount.fatbin`.
    pub sanitizer: PathBuf,
    /// Folder of cubins for `warpbpf-splice`: kernels and probes, `NAME.sm_NN.cubin`; and of those
    /// of a compiler's cache, `cached.*`.
    pub splice: PathBuf,
}

impl Artifacts {
    /// Those of a profile, whether they are there or not.
    pub fn of(profile: Profile) -> Artifacts {
        let folder = profile.folder();
        Artifacts {
            warpbpf: folder.join("warpbpf"),
            soft: folder.join("soft"),
            objects: folder.join("objects"),
            apps: folder.join("apps"),
            libbpf: folder.join("libbpf"),
            kernels: folder.join("kernels"),
            sanitizer: folder.join("sanitizer"),
            splice: folder.join("splice"),
            folder,
        }
    }
}

/// Steps that everything built is behind.
pub const BUILT: &[&str] = &["cargo", "bpf", "cuda", "soft"];

/// Adds the steps that set up and build: `setup`, `cargo`, `bpf`, `cuda`, `soft`.
pub fn add_steps<'p>(
    plan: &mut Plan<'p>,
    tools: &'p OnceLock<Tools>,
    profile: Profile,
    extent: Extent,
) {
    let artifacts = Artifacts::of(profile);
    plan.step("setup", &[], move |log| set_up(tools, extent, log));
    plan.cargo("cargo", &[], move |log| cargo_step(profile, extent, log));
    let made = artifacts.clone();
    plan.step("bpf", &["setup"], move |log| {
        let tools = found(tools)?;
        let objects = compile::all(log, &bpf(tools, extent, &made)?)?;
        if extent < Extent::Suite {
            return Ok(objects);
        }
        let newest = Newest::fetched(&made.folder.join("libbpf-newest"))?;
        compile::all(log, &newest.units()?)?;
        let programs = compile::all(log, &libbpf::tools(tools, &newest, &made.libbpf)?)?;
        Ok(format!("{objects}; {programs}"))
    });
    let made = artifacts.clone();
    plan.step("cuda", &["setup"], move |log| {
        let told = compile::all(log, &cuda(found(tools)?, extent, &made))?;
        if extent >= Extent::Suite {
            cuda::captured(&made.kernels.join("triton"))?;
            jit_folder(&made.folder.join("jit"))?;
            torch(&made.folder.join("examples").join("torch"))?;
        }
        Ok(told)
    });
    plan.step("soft", &["cargo", "cuda"], move |log| {
        soft::assemble(log, &artifacts.folder, &artifacts.soft)?;
        if extent < Extent::Suite {
            return Ok(String::new());
        }
        let (tools, runtimes) = (found(tools)?, runtimes(extent));
        let apps = cuda::driver_apps(tools, &artifacts.soft, runtimes, &artifacts.apps);
        compile::all(log, &apps)
    });
}

/// What the step `setup` found.
pub fn found(tools: &OnceLock<Tools>) -> Result<&Tools, Failure> {
    tools.get().ok_or(Failure("nothing was set up".into()))
}

fn set_up(tools: &OnceLock<Tools>, extent: Extent, log: &Log) -> StepResult {
    let there = setup::run(log)?;
    if extent >= Extent::Suite {
        setup::for_tests(log)?;
    }
    let told = there.to_string();
    let _ = tools.set(there);
    Ok(told)
}

fn runtimes(extent: Extent) -> Runtimes {
    match extent {
        Extent::Suite | Extent::Tests => Runtimes::Shared,
        Extent::Demo | Extent::Examples | Extent::Bundle => Runtimes::Both,
    }
}

fn cargo_step(profile: Profile, extent: Extent, log: &Log) -> StepResult {
    let selection: &[&str] = match extent {
        Extent::Demo | Extent::Examples => &[
            "-p",
            "warpbpf-cli",
            "-p",
            "warpbpf-agent",
            "-p",
            "warpbpf-loader",
            "-p",
            "warpbpf-softcuda",
        ],
        Extent::Suite | Extent::Bundle => &["--workspace", "--lib", "--bins", "--examples"],
        Extent::Tests => &["--workspace", "--lib", "--bins", "--examples", "--tests"],
    };
    let messages = log.cargo_messages(&mut profile.cargo_build(selection))?;
    if extent == Extent::Tests {
        units::keep(&messages)?;
    }
    if profile == Profile::Release {
        for library in ["libwarpbpf_agent.so", "libwarpbpf_loader.so"] {
            has_no_sites(&profile.folder().join(library))?;
        }
    }
    Ok(String::new())
}

/// Nobody can make a release build fail from outside: it does not know the variable
/// (`crates/faults`).
fn has_no_sites(library: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(library)
        .map_err(|e| Failure(format!("cannot read `{}`: {e}", library.display())))?;
    let variable = b"WARPBPF_FAULT";
    if bytes.windows(variable.len()).any(|w| w == variable) {
        let library = library.display();
        return failure(format!(
            "`{library}` is a release build and has sites that can be made to fail"
        ));
    }
    Ok(())
}

fn bpf<'t>(
    tools: &'t Tools,
    extent: Extent,
    artifacts: &Artifacts,
) -> Result<Vec<Unit<'t>>, Failure> {
    let mut units = Vec::new();
    for (name, source) in PROGRAMS {
        let is_wanted = match extent {
            Extent::Demo => *name == "threadhist",
            Extent::Examples => source.starts_with("examples/"),
            _ => true,
        };
        if !is_wanted {
            continue;
        }
        let source = root().join(source);
        let mut sources = headers_beside(&source)?;
        sources.extend([source.clone(), root().join("include/warpbpf.h")]);
        let object = artifacts.objects.join(format!("{name}.bpf.o"));
        units.push(Unit::by(object, sources, move || {
            compile::clang(tools, &source)
        }));
    }
    Ok(units)
}

fn cuda<'t>(tools: &'t Tools, extent: Extent, artifacts: &Artifacts) -> Vec<Unit<'t>> {
    let (runtimes, into) = (runtimes(extent), &artifacts.apps);
    match extent {
        Extent::Demo => cuda::apps(tools, "examples/apps/vectoradd", runtimes, into),
        Extent::Examples => cuda::apps(tools, "examples/", runtimes, into),
        Extent::Suite | Extent::Tests | Extent::Bundle => {
            let mut units = cuda::apps(tools, "", runtimes, into);
            units.extend(cuda::kernels(tools, runtimes, &artifacts.kernels));
            units.extend(cuda::squash(tools, runtimes, into));
            units.extend(cuda::sanitizer(tools, &artifacts.sanitizer));
            units.extend(cuda::splice(tools, &artifacts.splice));
            units.extend(cuda::cached(tools, &artifacts.splice));
            units.extend(cuda::preloaded(into));
            units
        }
    }
}

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// What the example of PyTorch is besides its programs.
const TORCH: &[&str] = &[
    "profile",
    "report.py",
    "test_report.py",
    "test_hook.py",
    "model.py",
    "hook/sitecustomize.py",
];

/// Copies the scripts of the example of PyTorch into a folder, from where they find what stands two
/// folders above: `warpbpf`, `objects/`.
pub fn torch(into: &Path) -> Result<(), Failure> {
    make_dir(&into.join("hook"))?;
    for name in TORCH {
        let (from, to) = (root().join("examples/torch").join(name), into.join(name));
        std::fs::copy(&from, &to).map_err(|e| {
            Failure(format!(
                "cannot copy `{}` to `{}`: {e}",
                from.display(),
                to.display()
            ))
        })?;
    }
    Ok(())
}

/// Says where what `jit` compiles with is. A bundle has none of it: the machine that it runs on has
/// its own.
fn jit_folder(link: &Path) -> Result<(), Failure> {
    make_link(&setup::jit_folder(), link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_build_with_sites_that_can_fail_is_refused() {
        let folder = scratch("sites");
        let (with, without) = (folder.join("with.so"), folder.join("without.so"));
        std::fs::write(&with, b"\x7fELF..\0WARPBPF_FAULT\0..").unwrap();
        std::fs::write(&without, b"\x7fELF..\0WARPBPF_CACHE\0..").unwrap();
        assert!(has_no_sites(&without).is_ok());
        let Err(Failure(text)) = has_no_sites(&with) else {
            panic!("it has them");
        };
        let wanted = "with.so` is a release build and has sites that can be made to fail";
        assert!(text.ends_with(wanted), "{text}");
        let Err(Failure(text)) = has_no_sites(&folder.join("none.so")) else {
            panic!("it is not there");
        };
        assert!(text.starts_with("cannot read `"), "{text}");
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = target_dir().join("tmp").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
