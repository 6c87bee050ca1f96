//! Builds what the examples need: the tools, the soft GPU's libraries, BPF objects and CUDA applications.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, Tools};
use crate::shell::{Failure, cargo, read, root, run, write};
use crate::sources::{
    APPS, CONDITIONAL, Code, DECIDER, DRIVER_API, INSTRUCTIONS, KERNELS, LOADING, MACHINE_CODE,
    MACHINE_INSTRUCTIONS, NAMED, PROGRAMS, RECOVERED, UNOPTIMISED,
};
use crate::{cutlass, libbpf, soft};

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
    /// Folder of the tests' tools that use libbpf; empty without `bpftool`.
    pub libbpf: PathBuf,
    /// Folder of the corpus: programs as above, their PTX `NAME.ptx`, and `triton/`.
    pub kernels: PathBuf,
    /// Folder of the counter of accesses by Compute Sanitizer: `libmemcount.so` and its patches, `memcount.fatbin`.
    pub sanitizer: PathBuf,
    /// Folder of cubins for `warpbpf-splice`: kernels and probes, `NAME.sm_NN.cubin`; and of those of a compiler's cache, `cached.*`.
    pub splice: PathBuf,
}

/// Builds the tools, the soft GPU, and the example programs and applications.
pub fn build(tools: &Tools, profile: Profile) -> Result<Artifacts, Failure> {
    packages(
        &[
            "warpbpf-cli",
            "warpbpf-agent",
            "warpbpf-loader",
            "warpbpf-softcuda",
        ],
        profile,
    )?;
    let binaries = target_dir().join(profile.folder());
    let artifacts = Artifacts {
        warpbpf: binaries.join("warpbpf"),
        soft: binaries.join("soft"),
        objects: binaries.join("objects"),
        apps: binaries.join("apps"),
        libbpf: binaries.join("libbpf"),
        kernels: binaries.join("kernels"),
        sanitizer: binaries.join("sanitizer"),
        splice: binaries.join("splice"),
    };
    soft::assemble(&binaries, &artifacts.soft)?;
    objects(tools, &artifacts.objects)?;
    apps(tools, &artifacts.soft, &artifacts.apps)?;
    Ok(artifacts)
}

fn packages(names: &[&str], profile: Profile) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["build", "--quiet"]);
    for name in names {
        command.args(["-p", name]);
    }
    if profile == Profile::Release {
        command.arg("--release");
    }
    run(&mut command)
}

/// The agent once more, with sites that can be made to fail, in a folder of its own: `faults/`. All that it needs from outside is
/// shared with the other one, so that this is four packages more.
fn agent_with_faults(profile: Profile) -> Result<(), Failure> {
    let mut command = cargo();
    command.args([
        "build",
        "--quiet",
        "-p",
        "warpbpf-agent",
        "--lib",
        "--features",
        "faults",
    ]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    run(&mut command)?;
    let binaries = target_dir().join(profile.folder());
    let name = "libwarpbpf_agent.so";
    make_dir(&binaries.join("faults"))?;
    std::fs::copy(binaries.join(name), binaries.join("faults").join(name))
        .map(|_| ())
        .map_err(|e| Failure(format!("cannot copy the agent with faults: {e}")))
}

/// The library's examples, into the folder `examples`.
fn examples(profile: Profile) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["build", "--quiet", "-p", "warpbpf", "--examples"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    run(&mut command)
}

/// What [`build`] does, the tests' own programs, and the corpus of kernels, which takes longer than all else.
pub fn build_all(tools: &Tools, profile: Profile) -> Result<Artifacts, Failure> {
    setup::for_tests()?;
    // Before the agent that everything else uses, whose place it takes meanwhile.
    agent_with_faults(profile)?;
    let artifacts = build(tools, profile)?;
    packages(
        &[
            "warpbpf-suite",
            "warpbpf-conformance",
            "warpbpf-kernels",
            "warpbpf-splice",
        ],
        profile,
    )?;
    examples(profile)?;
    libbpf::tools(tools, &artifacts.libbpf)?;
    cutlass::app(tools, &artifacts.apps)?;
    squash(tools, &artifacts.apps)?;
    kernels(tools, &artifacts.kernels)?;
    sanitizer(tools, &artifacts.sanitizer)?;
    splice(tools, &artifacts.splice)?;
    cached(tools, &artifacts.splice)?;
    jit_folder(&artifacts.apps.with_file_name("jit"))?;
    torch(&artifacts.apps.with_file_name("examples").join("torch"))?;
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
        let mut sources = headers_beside(&source)?;
        sources.extend([source.clone(), root().join("include/warpbpf.h")]);
        let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        if is_newer(&object, &sources) {
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

/// Headers in a source's folder, which it may include.
fn headers_beside(source: &Path) -> Result<Vec<PathBuf>, Failure> {
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

/// What the example of PyTorch is besides its programs.
const TORCH: &[&str] = &[
    "profile",
    "report.py",
    "test_report.py",
    "test_hook.py",
    "model.py",
    "hook/sitecustomize.py",
];

/// Copies the scripts of the example of PyTorch into a folder, from where they find what stands two folders above: `warpbpf`, `objects/`.
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

/// Compiles the applications, with the static and the shared CUDA runtime.
pub fn apps(tools: &Tools, soft: &Path, into: &Path) -> Result<(), Failure> {
    make_dir(into)?;
    let headers = ["check.h", "nvtx.h", "adds.h", "driver.h"];
    let headers = headers.map(|name| root().join("tests/apps").join(name));
    for (name, source) in APPS {
        let source = root().join(source);
        for (runtime, suffix) in [("shared", "-shared"), ("static", "")] {
            let program = into.join(format!("{name}{suffix}"));
            let mut sources: Vec<&Path> = headers.iter().map(PathBuf::as_path).collect();
            sources.push(&source);
            let decider = root().join(DECIDER);
            if *name == CONDITIONAL {
                sources.push(&decider);
            }
            if is_newer(&program, &sources) {
                continue;
            }
            let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
            match *name {
                NAMED => nvcc.arg("-G"),
                MACHINE_INSTRUCTIONS => &mut nvcc,
                name if MACHINE_CODE.contains(&name) => &mut nvcc,
                _ => nvcc.arg("-lineinfo"),
            };
            if *name != UNOPTIMISED {
                nvcc.arg("-O2");
            }
            nvcc.args(["-std=c++17", "-cudart", runtime]);
            if matches!(*name, DRIVER_API | LOADING) {
                nvcc.arg("-Xlinker")
                    .arg(soft.join("libcuda.so.1"))
                    .arg("-ldl");
            }
            let both: &[&str] = &["compute_80,code=sm_80", "compute_90,code=sm_90"];
            let codes: &[&str] = match *name {
                RECOVERED => both,
                name if MACHINE_CODE.contains(&name) => both,
                INSTRUCTIONS => &["compute_90a,code=[sm_90a,compute_90a]"],
                MACHINE_INSTRUCTIONS => &["compute_90a,code=sm_90a"],
                _ => &[
                    "compute_75,code=compute_75",
                    "compute_90,code=[sm_90,compute_90]",
                ],
            };
            for code in codes {
                nvcc.arg("-gencode").arg(format!("arch={code}"));
            }
            if *name == CONDITIONAL {
                nvcc.args(linked_on_device(tools, &decider, into)?);
                nvcc.arg("-lcudadevrt");
            }
            nvcc.arg("-L")
                .arg(tools.cuda.join("lib"))
                .arg("-o")
                .arg(&program);
            run(nvcc.arg(&source))?;
        }
    }
    preloaded(into)
}

/// Objects of a source that calls CUDA's functions for devices, for an application whose own kernels are not linked on the device and have their PTX.
fn linked_on_device(tools: &Tools, source: &Path, into: &Path) -> Result<[PathBuf; 2], Failure> {
    let objects = ["o", "link.o"]
        .map(|kind| into.join(source.with_extension(kind).file_name().unwrap_or_default()));
    let [object, link] = &objects;
    let nvcc = || {
        let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
        nvcc.args(["-O2", "-std=c++17", "-arch=sm_90"]);
        nvcc
    };
    run(nvcc().arg("-dc").arg(source).arg("-o").arg(object))?;
    let mut linking = nvcc();
    linking.arg("-dlink").arg("-L").arg(tools.cuda.join("lib"));
    run(linking.arg(object).arg("-lcudadevrt").arg("-o").arg(link))?;
    Ok(objects)
}

/// Compiles the library that stands for an extension of PyTorch's, `libtorch_squash.so`, and once more for the soft GPU, with the shared runtime.
fn squash(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let source = root().join("tests/gpu/squash.cu");
    for (runtime, suffix) in [("shared", "-shared"), ("static", "")] {
        let library = into.join(format!("libtorch_squash{suffix}.so"));
        if is_newer(&library, &[&source]) {
            continue;
        }
        let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
        nvcc.args(["-shared", "-Xcompiler", "-fPIC", "-O2", "-std=c++17"]);
        nvcc.args(["-cudart", runtime, "-gencode"]);
        nvcc.args(["arch=compute_90,code=[sm_90,compute_90]", "-L"]);
        nvcc.arg(tools.cuda.join("lib")).arg("-o").arg(&library);
        run(nvcc.arg(&source))?;
    }
    Ok(())
}

/// Says where what `jit` compiles with is. A bundle has none of it: the machine that it runs on has its own.
fn jit_folder(link: &Path) -> Result<(), Failure> {
    let folder = setup::jit_folder();
    if std::fs::read_link(link).is_ok_and(|there| there == folder) {
        return Ok(());
    }
    // What stands there may be a link of another checkout.
    let _ = std::fs::remove_file(link);
    std::os::unix::fs::symlink(&folder, link)
        .map_err(|e| Failure(format!("cannot link `{}`: {e}", link.display())))
}

/// Compiles the corpus. Device code is compiled once, its PTX is kept, and both runtimes are linked to it.
pub fn kernels(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let sources = root().join("tests/kernels/sources");
    make_dir(into)?;
    for (name, code) in KERNELS {
        let source = sources.join(format!("{name}.cu"));
        let object = into.join(format!("{name}.o"));
        let linked = into.join(name);
        let headers = [sources.join("corpus.h"), sources.join("barriers.h")];
        if is_newer(&linked, &[&source, &headers[0], &headers[1]]) {
            continue;
        }
        let arch = match code {
            Code::Plain | Code::Relocatable => "90",
            Code::Specific => "90a",
        };
        let kept = into.join(format!("kept-{name}"));
        make_dir(&kept)?;
        let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
        nvcc.args(["-c", "-O2", "-std=c++17", "-lineinfo", "-gencode"]);
        nvcc.arg(format!(
            "arch=compute_{arch},code=[compute_{arch},sm_{arch}]"
        ));
        if *code == Code::Relocatable {
            nvcc.arg("-rdc=true");
        }
        nvcc.args(["-keep", "-keep-dir"]).arg(&kept);
        run(nvcc.arg("-o").arg(&object).arg(&source))?;
        if *code != Code::Relocatable {
            let ptx = format!("{name}.ptx");
            std::fs::rename(kept.join(&ptx), into.join(&ptx))
                .map_err(|e| Failure(format!("nvcc kept no `{ptx}`: {e}")))?;
        }
        std::fs::remove_dir_all(&kept)
            .map_err(|e| Failure(format!("cannot remove `{}`: {e}", kept.display())))?;
        // The one that is looked at above comes last.
        for (runtime, suffix) in [("shared", "-shared"), ("static", "")] {
            let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
            nvcc.args(["-cudart", runtime, "-arch"])
                .arg(format!("sm_{arch}"));
            nvcc.arg("-L").arg(tools.cuda.join("lib"));
            nvcc.arg(&object)
                .arg("-o")
                .arg(into.join(format!("{name}{suffix}")));
            if *code == Code::Relocatable {
                nvcc.arg("-lcudadevrt");
            }
            run(&mut nvcc)?;
        }
        std::fs::remove_file(&object)
            .map_err(|e| Failure(format!("cannot remove `{}`: {e}", object.display())))?;
    }
    captured(&into.join("triton"))
}

/// PTX that other compilers made, as it is.
fn captured(into: &Path) -> Result<(), Failure> {
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

/// Compiles the counter of accesses, for the GPU that `tests/gpu` runs on. It finds NVIDIA's library on that machine.
fn sanitizer(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let sources = root().join("tests/gpu/sanitizer");
    let counters = sources.join("counters.h");
    make_dir(into)?;
    let (source, patches) = (
        sources.join("memcount_patches.cu"),
        into.join("memcount.fatbin"),
    );
    if !is_newer(&patches, &[&source, &counters]) {
        let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
        nvcc.args(["-std=c++17", "-fatbin", "--compile-as-tools-patch"]);
        nvcc.args(["-gencode", "arch=compute_90,code=sm_90", "-o"]);
        run(nvcc.arg(&patches).arg(&source))?;
    }
    let (source, library) = (sources.join("memcount.cpp"), into.join("libmemcount.so"));
    if is_newer(&library, &[&source, &counters]) {
        return Ok(());
    }
    let mut cxx = Command::new("g++");
    cxx.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]);
    cxx.args(["-shared", "-fPIC", "-fvisibility=hidden", "-isystem"]);
    cxx.arg(tools.cuda.join("include")).arg(&source).arg("-L");
    cxx.arg(tools.cuda.join("lib")).arg("-lsanitizer-public");
    run(cxx.arg("-o").arg(&library))
}

/// Compiles kernels to machine code alone, and probes for them.
fn splice(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let sources = root().join("tests/splice");
    make_dir(into)?;
    // Kernels and probes, at their ends and at their accesses.
    let both = ["sm_80", "sm_90"];
    let pairs: [(&str, &str, &[&str]); 2] = [
        ("kernels", "probes", &both),
        ("accesses", "access_probes", &both[1..]),
    ];
    for (kernels, probes, archs) in pairs {
        let source = sources.join(kernels).with_extension("cu");
        let text = sources.join(probes).with_extension("ptx");
        for arch in archs {
            let cubin = into.join(format!("{kernels}.{arch}.cubin"));
            if !is_newer(&cubin, &[&source]) {
                let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
                nvcc.args(["-O2", "-std=c++17", "-cubin", "-arch", arch, "-o"]);
                run(nvcc.arg(&cubin).arg(&source))?;
            }
            let cubin = into.join(format!("{probes}.{arch}.cubin"));
            if is_newer(&cubin, &[&text]) {
                continue;
            }
            let headed = into.join(format!("{probes}.{arch}.ptx"));
            let head = format!(".version 8.0\n.target {arch}\n.address_size 64\n");
            write(&headed, head + &read(&text)?)?;
            let mut ptxas = Command::new(tools.cuda.join("bin/ptxas"));
            ptxas.args(["--compile-as-tools-patch", "-arch", arch, "-o"]);
            run(ptxas.arg(&cubin).arg(&headed))?;
        }
    }
    Ok(())
}

/// Compiles a kernel as Triton keeps it, in two versions, and as text and without it.
fn cached(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let source = root().join("tests/splice/cached.cu");
    let all: [(&str, &[&str]); 5] = [
        ("cached.cubin", &["-cubin", "-lineinfo"]),
        ("cached.other.cubin", &["-cubin", "-lineinfo", "-DSTEP=5"]),
        ("cached.other.ptx", &["-ptx", "-DSTEP=5"]),
        ("cached.bare.cubin", &["-cubin"]),
        ("cached.ptx", &["-ptx"]),
    ];
    for (name, flags) in all {
        let made = into.join(name);
        if !is_newer(&made, &[&source]) {
            let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
            nvcc.args(["-O2", "-arch", "sm_90"]).args(flags);
            run(nvcc.arg("-o").arg(&made).arg(&source))?;
        }
    }
    Ok(())
}

/// Compiles libraries that come into applications beside the agent.
fn preloaded(into: &Path) -> Result<(), Failure> {
    for name in ["othertool", "allocator"] {
        let source = root().join("tests/apps").join(format!("{name}.c"));
        let library = into.join(format!("lib{name}.so"));
        if is_newer(&library, &[&source]) {
            continue;
        }
        run(Command::new("cc")
            .args([
                "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
            ])
            .arg(&library)
            .arg(&source))?;
    }
    Ok(())
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
