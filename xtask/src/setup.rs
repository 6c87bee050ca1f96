//! Installs what is missing and nothing else: Debian packages for clang and the libbpf headers,
//! PyPI wheels for the CUDA compiler. Wheels go into `.toolchain/`, which git ignores; packages are
//! installed as root, else the command is printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::log::Log;
use crate::shell::{Failure, failure, root, succeeds, write};

/// All of one CUDA release: a newer compiler writes PTX that a CUDA 13.0 driver refuses.
const CUDA_WHEELS: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    // For `tests/gpu/sanitizer`: headers, and a library to link with that no bundle carries.
    "nvidia-cuda-sanitizer-api==13.0.85",
];

/// Shows the tests of `crates/sass` what they made. CUDA 13.0's own is not among the wheels; this
/// is the oldest that is. It has a folder of its own, so that it can change without the compiler
/// being fetched again.
const NVDISASM_WHEEL: &str = "nvidia-cuda-nvdisasm==13.2.51";

/// What compiles while an application runs, for the tests' one that does that. 250 MB, in a folder
/// of its own as above.
const JIT_WHEELS: &[&str] = &["nvidia-cuda-nvrtc==13.0.88", "nvidia-nvjitlink==13.0.88"];
/// Headers of CUTLASS, for an application of the tests. They are not kept here, and a folder of
/// their own is changed alone.
const CUTLASS_WHEEL: &str = "nvidia-cutlass==4.2.0.0";

/// The other processor that the agent is written for: what is for it is at least compiled.
pub const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

/// Tools found or installed.
#[derive(Debug)]
pub struct Tools {
    /// A clang that knows the `bpf` target.
    pub clang: String,
    /// Folder with `bin/nvcc`, `include`, `lib`.
    pub cuda: PathBuf,
}

impl std::fmt::Display for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cuda = self.cuda.strip_prefix(root()).unwrap_or(&self.cuda);
        write!(f, "{} for BPF, CUDA 13.0 in {}", self.clang, cuda.display())
    }
}

/// Finds or installs everything.
pub fn run(log: &Log) -> Result<Tools, Failure> {
    Ok(Tools {
        clang: system_packages(log)?,
        cuda: cuda(log)?,
    })
}

/// Finds or installs what tests use besides.
pub fn for_tests(log: &Log) -> Result<(), Failure> {
    nvdisasm(log)?;
    cutlass(log)?;
    jit_compilers(log)
}

/// Rust's library for [`OTHER_TARGET`] is there, or could be had: it cannot where Rust did not come
/// by rustup, or without a network.
pub fn other_target() -> bool {
    let is_there = || {
        let asked = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", OTHER_TARGET])
            .output();
        let path = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path.is_ok_and(|path| !path.is_empty() && Path::new(&path).is_dir())
    };
    is_there()
        || succeeds(Command::new("rustup").args(["target", "add", OTHER_TARGET])) && is_there()
}

const CLANGS: &[&str] = &[
    "clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang",
];

fn find_clang() -> Option<String> {
    let knows_bpf = |name: &str| {
        succeeds(Command::new(name).args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-x",
            "c",
            "-c",
            "/dev/null",
            "-o",
            "/dev/null",
        ]))
    };
    if let Ok(named) = std::env::var("WARPBPF_CLANG") {
        return knows_bpf(&named).then_some(named);
    }
    CLANGS
        .iter()
        .find(|name| knows_bpf(name))
        .map(|name| (*name).to_string())
}

fn system_packages(log: &Log) -> Result<String, Failure> {
    let has_headers = Path::new("/usr/include/bpf/bpf_helpers.h").exists()
        && Path::new("/usr/include/linux/bpf.h").exists();
    // For the tests' tools that use libbpf: without these the suite leaves their cases out.
    let has_bpftool = crate::libbpf::bpftool().is_some()
        && Path::new("/usr/include/libelf.h").exists()
        && Path::new("/usr/include/zlib.h").exists();
    // For the test that reads with other tools what our linker made. What an older one prints is
    // not what it expects.
    let objdump = match find_clang().as_deref() {
        None | Some("clang-19") => "llvm-objdump-19",
        Some(_) => "llvm-objdump",
    };
    let has_llvm = succeeds(Command::new(objdump).arg("--version"));
    let has_cxx = succeeds(Command::new("g++").arg("--version"));
    let has_pip = succeeds(Command::new("python3").args(["-m", "pip", "--version"]));
    let needs_pip = !has_pip && find_cuda().is_none();
    // What `warpbpf new` makes is compiled by it.
    let has_make = succeeds(Command::new("make").arg("--version"));
    if let Some(clang) = find_clang()
        && has_headers
        && has_cxx
        && has_bpftool
        && has_llvm
        && has_make
        && !needs_pip
    {
        return Ok(clang);
    }
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return failure(
            "this machine has no apt-get; install clang (with the bpf target), the libbpf headers, g++, make and python3 with pip",
        );
    }
    let is_root = std::env::var("USER").is_ok_and(|u| u == "root")
        || succeeds(Command::new("test").args(["-w", "/usr/bin"]));
    if !is_root {
        return failure(
            "some Debian packages are missing; run\n  sudo apt-get update && sudo apt-get install -y clang-19 llvm-19 libbpf-dev libelf-dev zlib1g-dev bpftool linux-libc-dev g++ make python3-pip\n(or `clang` and `llvm` where there is no clang-19), then this again",
        );
    }
    log.run(Command::new("apt-get").args(["update", "-qq"]))?;
    let clang = if succeeds(Command::new("apt-cache").args(["show", "clang-19"])) {
        "clang-19"
    } else {
        "clang"
    };
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args([
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "libbpf-dev",
        "linux-libc-dev",
        "libelf-dev",
        "zlib1g-dev",
    ]);
    // Not every release has it under this name.
    if succeeds(Command::new("apt-cache").args(["show", "bpftool"])) {
        install.arg("bpftool");
    }
    if find_clang().is_none() {
        install.arg(clang);
    }
    if !has_llvm {
        install.arg(clang.replace("clang", "llvm"));
    }
    if !has_cxx {
        install.arg("g++");
    }
    if !has_make {
        install.arg("make");
    }
    if needs_pip {
        install.arg("python3-pip");
    }
    log.run(&mut install)?;
    find_clang().map_or_else(
        || failure("clang was installed but does not compile for the bpf target"),
        Ok,
    )
}

fn find_cuda() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WARPBPF_CUDA_HOME") {
        return Some(PathBuf::from(named));
    }
    let home = root().join(".toolchain/cuda/nvidia/cu13");
    let stamp =
        std::fs::read_to_string(root().join(".toolchain/cuda/installed")).unwrap_or_default();
    (stamp == CUDA_WHEELS.join("\n") && home.join("bin/nvcc").exists()).then_some(home)
}

fn cuda(log: &Log) -> Result<PathBuf, Failure> {
    if let Some(home) = find_cuda() {
        return Ok(home);
    }
    let target = root().join(".toolchain/cuda");
    let fresh = install(log, "cuda", CUDA_WHEELS)?;
    let home = fresh.join("nvidia/cu13");
    // The wheel has the run-time library only; linking `-lcudart` wants the development name.
    let link = home.join("lib/libcudart.so");
    if !link.exists() {
        std::os::unix::fs::symlink("libcudart.so.13", &link)
            .map_err(|e| Failure(format!("cannot link `{}`: {e}", link.display())))?;
    }
    put_in_place(&fresh, &target, &CUDA_WHEELS.join("\n"))?;
    Ok(target.join("nvidia/cu13"))
}

/// The folder of NVRTC and nvJitLink.
pub fn jit_folder() -> PathBuf {
    root().join(".toolchain/jit/nvidia/cu13/lib")
}

fn jit_compilers(log: &Log) -> Result<(), Failure> {
    let target = root().join(".toolchain/jit");
    let stamp = std::fs::read_to_string(target.join("installed")).unwrap_or_default();
    let wanted = JIT_WHEELS.join("\n");
    if stamp == wanted && jit_folder().is_dir() {
        return Ok(());
    }
    let fresh = install(log, "jit", JIT_WHEELS)?;
    put_in_place(&fresh, &target, &wanted)
}

fn nvdisasm(log: &Log) -> Result<(), Failure> {
    if std::env::var_os("WARPBPF_NVDISASM").is_some() {
        return Ok(());
    }
    let target = root().join(".toolchain/nvdisasm");
    let stamp = std::fs::read_to_string(target.join("installed")).unwrap_or_default();
    if stamp == NVDISASM_WHEEL && target.join("nvidia/cu13/bin/nvdisasm").exists() {
        return Ok(());
    }
    let fresh = install(log, "nvdisasm", &[NVDISASM_WHEEL])?;
    put_in_place(&fresh, &target, NVDISASM_WHEEL)
}

/// Where the headers of CUTLASS are, which only tests use: the folder with `cutlass/cutlass.h`.
pub fn cutlass_headers() -> PathBuf {
    std::env::var_os("WARPBPF_CUTLASS").map_or_else(
        || root().join(".toolchain/cutlass/cutlass_library/source/include"),
        PathBuf::from,
    )
}

fn cutlass(log: &Log) -> Result<(), Failure> {
    if std::env::var_os("WARPBPF_CUTLASS").is_some() {
        return Ok(());
    }
    let target = root().join(".toolchain/cutlass");
    let stamp = std::fs::read_to_string(target.join("installed")).unwrap_or_default();
    if stamp == CUTLASS_WHEEL && cutlass_headers().join("cutlass/cutlass.h").exists() {
        return Ok(());
    }
    let fresh = install(log, "cutlass", &[CUTLASS_WHEEL])?;
    put_in_place(&fresh, &target, CUTLASS_WHEEL)
}

/// Installs wheels beside the folder that they are for; gives where.
fn install(log: &Log, name: &str, wheels: &[&str]) -> Result<PathBuf, Failure> {
    let fresh = root().join(format!(".toolchain/{name}-{}", std::process::id()));
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "--target",
    ])
    .arg(&fresh);
    pip.args(wheels);
    log.run(&mut pip)?;
    Ok(fresh)
}

/// Whoever uses the old one meanwhile finds all of it.
fn put_in_place(fresh: &Path, target: &Path, stamp: &str) -> Result<(), Failure> {
    write(&fresh.join("installed"), stamp)?;
    let moved =
        |e: std::io::Error| Failure(format!("cannot put `{}` in place: {e}", target.display()));
    if target.exists() {
        std::fs::remove_dir_all(target).map_err(moved)?;
    }
    std::fs::rename(fresh, target).map_err(moved)
}
