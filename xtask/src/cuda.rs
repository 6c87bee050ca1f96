//! What nvcc compiles: applications, the corpus of kernels, and machine code alone.
//!
//! An application is compiled once and linked for each runtime that is wanted: on the soft GPU the
//! shared one, on a GPU the static one, as its machine has other libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::{Unit, cc, make_dir, nvcc};
use crate::setup::{self, Tools};
use crate::shell::{Failure, read, root, write};
use crate::sources::{
    APPS, CONDITIONAL, CUTLASS, Code, DECIDER, DRIVER_API, EMBEDDED_PTX, FOR_OLDER, INSTRUCTIONS,
    KERNELS, LOADING, MACHINE_CODE, MACHINE_INSTRUCTIONS, NAMED, UNOPTIMISED,
};

/// CUDA's run-time libraries that applications are linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtimes {
    /// `NAME-shared`.
    Shared,
    /// That and `NAME`.
    Both,
}

impl Runtimes {
    /// As nvcc calls each, and how names end.
    fn each(self) -> &'static [(&'static str, &'static str)] {
        let both = &[("shared", "-shared"), ("static", "")];
        match self {
            Runtimes::Shared => &both[..1],
            Runtimes::Both => both,
        }
    }
}

/// The applications whose sources begin so, but those of [`driver_apps`].
pub fn apps<'t>(tools: &'t Tools, begin: &str, runtimes: Runtimes, into: &Path) -> Vec<Unit<'t>> {
    let calls_driver = |name: &str| matches!(name, DRIVER_API | LOADING);
    let here = APPS.iter().filter(|(_, source)| source.starts_with(begin));
    here.filter(|(name, _)| !calls_driver(name))
        .map(|(name, source)| app(tools, name, source, None, runtimes, into))
        .collect()
}

/// Applications that call the driver by symbols; the soft GPU's library, in `soft`, says which
/// there are.
pub fn driver_apps<'t>(
    tools: &'t Tools,
    soft: &Path,
    runtimes: Runtimes,
    into: &Path,
) -> Vec<Unit<'t>> {
    let named = APPS
        .iter()
        .filter(|(name, _)| matches!(*name, DRIVER_API | LOADING));
    named
        .map(|(name, source)| app(tools, name, source, Some(soft), runtimes, into))
        .collect()
}

fn app<'t>(
    tools: &'t Tools,
    name: &'static str,
    source: &str,
    soft: Option<&Path>,
    runtimes: Runtimes,
    into: &Path,
) -> Unit<'t> {
    let source = root().join(source);
    let headers = ["check.h", "nvtx.h", "adds.h", "driver.h"];
    let mut sources: Vec<PathBuf> = headers
        .map(|header| root().join("tests/apps").join(header))
        .into();
    sources.push(source.clone());
    let decider = root().join(DECIDER);
    match name {
        CONDITIONAL => sources.push(decider.clone()),
        // Other headers are another program; all of them come at once, and this one says their
        // version.
        CUTLASS => sources.push(setup::cutlass_headers().join("cutlass/version.h")),
        _ => {}
    }
    let programs = programs(name, runtimes, into);
    let made: Vec<PathBuf> = programs
        .iter()
        .map(|(_, program)| program.clone())
        .collect();
    let (into, driver) = (into.to_owned(), soft.map(|soft| soft.join("libcuda.so.1")));
    let cubins = cubins(&into);
    Unit::new(made, sources, move |log| {
        let mut compile = nvcc(tools, &["-std=c++17"]);
        match name {
            NAMED => compile.arg("-G"),
            MACHINE_INSTRUCTIONS => &mut compile,
            name if MACHINE_CODE.contains(&name) => &mut compile,
            _ => compile.arg("-lineinfo"),
        };
        if name != UNOPTIMISED {
            compile.arg("-O2");
        }
        for code in codes(name) {
            compile.arg("-gencode").arg(format!("arch={code}"));
        }
        if name == CUTLASS {
            // Its headers call functions of the host's library in the device's code.
            compile.arg("--expt-relaxed-constexpr");
            compile.arg("-isystem").arg(setup::cutlass_headers());
        }
        let object = into.join(format!("{name}.app.o"));
        let kept = Kept::by(&mut compile, &into, name)?;
        log.run(compile.arg("-c").arg(&source).arg("-o").arg(&object))?;
        kept.machine_code(&cubins)?;
        let mut with: Vec<PathBuf> = vec![object.clone()];
        if name == CONDITIONAL {
            with.extend(linked_on_device(tools, &decider, &into, log)?);
        }
        for (runtime, program) in &programs {
            let mut link = link(tools, runtime, &with, program);
            if let Some(driver) = &driver {
                link.arg("-Xlinker").arg(driver).arg("-ldl");
            }
            if name == CONDITIONAL {
                link.arg("-lcudadevrt");
            }
            log.run(&mut link)?;
        }
        remove(&object)
    })
}

/// Where the machine code of applications and kernels is, `NAME.sm_NN.cubin`: the tests of the
/// crate `sass` read it.
fn cubins(programs: &Path) -> PathBuf {
    programs.with_file_name("cubins")
}

/// What nvcc makes on the way to an object.
struct Kept {
    folder: PathBuf,
    name: &'static str,
}

impl Kept {
    /// Tells a compiler to keep it.
    fn by(compile: &mut Command, into: &Path, name: &'static str) -> Result<Kept, Failure> {
        let folder = into.join(format!("kept-{name}"));
        make_dir(&folder)?;
        compile.args(["-keep", "-keep-dir"]).arg(&folder);
        Ok(Kept { folder, name })
    }

    /// Takes the machine code out of it, and removes the rest.
    fn machine_code(self, into: &Path) -> Result<(), Failure> {
        make_dir(into)?;
        let failed = |e: std::io::Error| Failure(format!("`{}`: {e}", self.folder.display()));
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // `SOURCE.compute_80.cubin`, `SOURCE.compute_90.sm_90.cubin`, `SOURCE.sm_90.cubin`.
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let whole = file.strip_suffix(".cubin");
            if let Some((_, number)) = whole.and_then(|whole| whole.rsplit_once('_')) {
                let cubin = into.join(format!("{}.sm_{number}.cubin", self.name));
                std::fs::rename(&path, cubin).map_err(failed)?;
            }
        }
        std::fs::remove_dir_all(&self.folder).map_err(failed)
    }
}

/// `-gencode` of an application.
fn codes(name: &str) -> &'static [&'static str] {
    match name {
        EMBEDDED_PTX => &["compute_80,code=sm_80", "compute_90,code=sm_90"],
        name if MACHINE_CODE.contains(&name) => &["compute_80,code=sm_80", "compute_90,code=sm_90"],
        INSTRUCTIONS => &["compute_90a,code=[sm_90a,compute_90a]"],
        MACHINE_INSTRUCTIONS => &["compute_90a,code=sm_90a"],
        name if FOR_OLDER.contains(&name) => &[
            "compute_75,code=compute_75",
            "compute_90,code=[sm_90,compute_90]",
        ],
        _ => &["compute_90,code=[sm_90,compute_90]"],
    }
}

/// The programs of a name, each with its runtime.
fn programs(name: &str, runtimes: Runtimes, into: &Path) -> Vec<(&'static str, PathBuf)> {
    let each = runtimes.each().iter();
    each.map(|(runtime, suffix)| (*runtime, into.join(format!("{name}{suffix}"))))
        .collect()
}

/// Links objects to a program. They have all their machine code, so the architecture is of no
/// account.
fn link(tools: &Tools, runtime: &str, objects: &[PathBuf], program: &Path) -> Command {
    let mut link = nvcc(tools, &["-cudart", runtime, "-arch", "sm_90", "-L"]);
    link.arg(tools.cuda.join("lib")).args(objects);
    link.arg("-o").arg(program);
    link
}

fn remove(object: &Path) -> Result<(), Failure> {
    std::fs::remove_file(object)
        .map_err(|e| Failure(format!("cannot remove `{}`: {e}", object.display())))
}

/// Objects of a source that calls CUDA's functions for devices, for an application whose own
/// kernels are not linked on the device and have their PTX.
fn linked_on_device(
    tools: &Tools,
    source: &Path,
    into: &Path,
    log: &crate::log::Log,
) -> Result<[PathBuf; 2], Failure> {
    let objects = ["o", "link.o"]
        .map(|kind| into.join(source.with_extension(kind).file_name().unwrap_or_default()));
    let [object, link] = &objects;
    let flags = ["-O2", "-std=c++17", "-arch=sm_90"];
    let mut compile = nvcc(tools, &flags);
    log.run(compile.arg("-dc").arg(source).arg("-o").arg(object))?;
    let mut linking = nvcc(tools, &flags);
    linking.arg("-dlink").arg("-L").arg(tools.cuda.join("lib"));
    log.run(linking.arg(object).arg("-lcudadevrt").arg("-o").arg(link))?;
    Ok(objects)
}

/// The library that stands for an extension of PyTorch's, `libtorch_squash.so`, and once more for
/// the soft GPU, with the shared runtime.
pub fn squash<'t>(tools: &'t Tools, runtimes: Runtimes, into: &Path) -> Vec<Unit<'t>> {
    let each = runtimes.each().iter();
    each.map(|(runtime, suffix)| {
        let source = root().join("tests/gpu/squash.cu");
        let library = into.join(format!("libtorch_squash{suffix}.so"));
        Unit::by(library, [source.clone()], move || {
            let mut nvcc = nvcc(tools, &["-shared", "-Xcompiler", "-fPIC", "-O2"]);
            nvcc.args(["-std=c++17", "-cudart", runtime, "-gencode"]);
            nvcc.args(["arch=compute_90,code=[sm_90,compute_90]", "-L"]);
            nvcc.arg(tools.cuda.join("lib")).arg(&source);
            nvcc
        })
    })
    .collect()
}

/// The corpus. Its PTX is kept.
pub fn kernels<'t>(tools: &'t Tools, runtimes: Runtimes, into: &Path) -> Vec<Unit<'t>> {
    let unit = |(name, code): &(&'static str, Code)| kernel(tools, name, *code, runtimes, into);
    KERNELS.iter().map(unit).collect()
}

fn kernel<'t>(
    tools: &'t Tools,
    name: &'static str,
    code: Code,
    runtimes: Runtimes,
    into: &Path,
) -> Unit<'t> {
    let sources = root().join("tests/kernels/sources");
    let source = sources.join(format!("{name}.cu"));
    let programs = programs(name, runtimes, into);
    let mut made: Vec<PathBuf> = programs
        .iter()
        .map(|(_, program)| program.clone())
        .collect();
    let text = (code != Code::Relocatable).then(|| into.join(format!("{name}.ptx")));
    made.extend(text.clone());
    let all = [
        source.clone(),
        sources.join("corpus.h"),
        sources.join("barriers.h"),
    ];
    let into = into.to_owned();
    Unit::new(made, all, move |log| {
        let arch = match code {
            Code::Plain | Code::Relocatable => "90",
            Code::Specific => "90a",
        };
        let object = into.join(format!("{name}.o"));
        let mut compile = nvcc(tools, &["-c", "-O2", "-std=c++17", "-lineinfo", "-gencode"]);
        compile.arg(format!(
            "arch=compute_{arch},code=[compute_{arch},sm_{arch}]"
        ));
        if code == Code::Relocatable {
            compile.arg("-rdc=true");
        }
        let kept = Kept::by(&mut compile, &into, name)?;
        log.run(compile.arg("-o").arg(&object).arg(&source))?;
        if let Some(text) = &text {
            std::fs::rename(kept.folder.join(format!("{name}.ptx")), text)
                .map_err(|e| Failure(format!("nvcc kept no `{name}.ptx`: {e}")))?;
        }
        kept.machine_code(&cubins(&into))?;
        for (runtime, program) in &programs {
            let mut link = nvcc(tools, &["-cudart", runtime, "-arch"]);
            link.arg(format!("sm_{arch}"));
            link.arg("-L").arg(tools.cuda.join("lib"));
            link.arg(&object).arg("-o").arg(program);
            if code == Code::Relocatable {
                link.arg("-lcudadevrt");
            }
            log.run(&mut link)?;
        }
        remove(&object)
    })
}

/// PTX that other compilers made, as it is.
pub fn captured(into: &Path) -> Result<(), Failure> {
    let from = root().join("tests/kernels/triton");
    make_dir(into)?;
    let entries = std::fs::read_dir(&from)
        .map_err(|e| Failure(format!("cannot list `{}`: {e}", from.display())))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path
            .extension()
            .is_some_and(|e| e == "ptx" || e == "launch")
        {
            let to = into.join(path.file_name().unwrap_or_default());
            std::fs::copy(&path, &to)
                .map_err(|e| Failure(format!("cannot copy to `{}`: {e}", to.display())))?;
        }
    }
    Ok(())
}

/// The counter of accesses, for the GPU that `tests/gpu` runs on. It finds NVIDIA's library on that
/// machine.
pub fn sanitizer<'t>(tools: &'t Tools, into: &Path) -> Vec<Unit<'t>> {
    let sources = root().join("tests/gpu/sanitizer");
    let counters = sources.join("counters.h");
    let patches = sources.join("memcount_patches.cu");
    let counter = sources.join("memcount.cpp");
    vec![
        Unit::by(
            into.join("memcount.fatbin"),
            [patches.clone(), counters.clone()],
            move || {
                let mut nvcc = nvcc(tools, &["-std=c++17", "-fatbin"]);
                nvcc.args(["--compile-as-tools-patch", "-gencode"]);
                nvcc.arg("arch=compute_90,code=sm_90").arg(&patches);
                nvcc
            },
        ),
        Unit::by(
            into.join("libmemcount.so"),
            [counter.clone(), counters],
            move || {
                let mut cxx = Command::new("g++");
                cxx.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]);
                cxx.args(["-shared", "-fPIC", "-fvisibility=hidden", "-isystem"]);
                cxx.arg(tools.cuda.join("include")).arg(&counter).arg("-L");
                cxx.arg(tools.cuda.join("lib")).arg("-lsanitizer-public");
                cxx
            },
        ),
    ]
}

/// Kernels as machine code alone, and probes for them, at their ends and at their accesses.
pub fn splice<'t>(tools: &'t Tools, into: &Path) -> Vec<Unit<'t>> {
    let sources = root().join("tests/splice");
    const BOTH: [&str; 2] = ["sm_80", "sm_90"];
    let pairs: [(&str, &str, &[&'static str]); 2] = [
        ("kernels", "probes", &BOTH),
        ("accesses", "access_probes", &BOTH[1..]),
    ];
    let mut units = Vec::new();
    for (kernels, probes, archs) in pairs {
        let source = sources.join(kernels).with_extension("cu");
        let text = sources.join(probes).with_extension("ptx");
        for arch in archs {
            let cubin = into.join(format!("{kernels}.{arch}.cubin"));
            let from = source.clone();
            units.push(Unit::by(cubin, [source.clone()], move || {
                let mut nvcc = nvcc(tools, &["-O2", "-std=c++17", "-cubin", "-arch", arch]);
                nvcc.arg(&from);
                nvcc
            }));
            let cubin = into.join(format!("{probes}.{arch}.cubin"));
            let headed = into.join(format!("{probes}.{arch}.ptx"));
            let text = text.clone();
            units.push(Unit::new([cubin.clone()], [text.clone()], move |log| {
                let head = format!(".version 8.0\n.target {arch}\n.address_size 64\n");
                write(&headed, head + &read(&text)?)?;
                let mut ptxas = Command::new(tools.cuda.join("bin/ptxas"));
                ptxas.args(["--compile-as-tools-patch", "-arch", arch, "-o"]);
                log.run(ptxas.arg(&cubin).arg(&headed))
            }));
        }
    }
    units
}

/// A kernel as Triton keeps it, in two versions, and as text and without it.
pub fn cached<'t>(tools: &'t Tools, into: &Path) -> Vec<Unit<'t>> {
    let all: [(&str, &[&'static str]); 5] = [
        ("cached.cubin", &["-cubin", "-lineinfo"]),
        ("cached.other.cubin", &["-cubin", "-lineinfo", "-DSTEP=5"]),
        ("cached.other.ptx", &["-ptx", "-DSTEP=5"]),
        ("cached.bare.cubin", &["-cubin"]),
        ("cached.ptx", &["-ptx"]),
    ];
    let unit = |(name, flags): (&str, &'static [&'static str])| {
        let source = root().join("tests/splice/cached.cu");
        Unit::by(into.join(name), [source.clone()], move || {
            let mut nvcc = nvcc(tools, &["-O2", "-arch", "sm_90"]);
            nvcc.args(flags).arg(&source);
            nvcc
        })
    };
    all.map(unit).into()
}

/// Libraries that come into applications beside the agent, and one that comes into tools.
pub fn preloaded(into: &Path) -> Vec<Unit<'static>> {
    let unit = |name: &str| {
        let source = root().join("tests/apps").join(format!("{name}.c"));
        Unit::by(
            into.join(format!("lib{name}.so")),
            [source.clone()],
            move || {
                let mut cc = cc(&["-shared", "-fPIC"]);
                cc.arg(&source);
                cc
            },
        )
    };
    ["othertool", "allocator", "killer"].map(unit).into()
}
