//! The selftests' C files as BPF objects, compiled with the flags of the kernel's own Makefile.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One source file.
#[derive(Debug)]
pub struct Unit {
    /// `verifier_and.c`
    pub name: String,
    /// The object's bytes, or why there is none.
    pub object: Result<Vec<u8>, String>,
}

/// Where things are.
#[derive(Debug)]
pub struct Tools {
    /// The unpacked `linux-source` tree.
    pub linux: PathBuf,
    /// The compiler.
    pub clang: String,
    /// Folder for what is built.
    pub out: PathBuf,
}

/// The selftests in the tree.
pub const SELFTESTS: &str = "tools/testing/selftests/bpf";

/// Compiles every `progs/verifier_*.c`, on all processors.
///
/// # Errors
/// What is missing of the tree, or cannot be written.
pub fn compile(tools: &Tools) -> Result<Vec<Unit>, String> {
    let folder = tools.linux.join(SELFTESTS).join("progs");
    let names = sources(&folder, "verifier_")?;
    headers(tools)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let chunk = names.len().div_ceil(threads).max(1);
    let units = std::thread::scope(|scope| {
        let workers: Vec<_> = names
            .chunks(chunk)
            .map(|names| {
                scope.spawn(move || {
                    names
                        .iter()
                        .map(|name| Unit {
                            name: name.clone(),
                            object: compile_one(tools, name),
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_default())
            .collect()
    });
    Ok(units)
}

/// The C files of a folder whose names start so, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn sources(folder: &Path, prefix: &str) -> Result<Vec<String>, String> {
    let list = std::fs::read_dir(folder)
        .map_err(|e| format!("cannot read `{}`: {e}", folder.display()))?;
    let mut names: Vec<String> = list
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix) && name.ends_with(".c"))
        .collect();
    names.sort();
    Ok(names)
}

/// Our own `vmlinux.h` in front, then the tree's libbpf with the helper list that is made from
/// `linux/bpf.h`.
fn headers(tools: &Tools) -> Result<(), String> {
    let folder = tools.out.join("include/bpf");
    let io = |what: &Path, e: std::io::Error| format!("cannot write `{}`: {e}", what.display());
    std::fs::create_dir_all(&folder).map_err(|e| io(&folder, e))?;
    let bpf = tools.linux.join("tools/lib/bpf");
    for name in [
        "bpf_helpers.h",
        "bpf_tracing.h",
        "bpf_core_read.h",
        "bpf_endian.h",
        "bpf.h",
        "btf.h",
        "libbpf.h",
        "libbpf_common.h",
        "libbpf_legacy.h",
        "libbpf_version.h",
    ] {
        let to = folder.join(name);
        std::fs::copy(bpf.join(name), &to).map_err(|e| io(&to, e))?;
    }
    let vmlinux = tools.out.join("include/vmlinux.h");
    std::fs::write(&vmlinux, include_str!("../include/vmlinux.h")).map_err(|e| io(&vmlinux, e))?;
    let defs = folder.join("bpf_helper_defs.h");
    let made = Command::new("python3")
        .arg(tools.linux.join("scripts/bpf_doc.py"))
        .args(["--header", "--file"])
        .arg(tools.linux.join("tools/include/uapi/linux/bpf.h"))
        .output()
        .map_err(|e| format!("cannot run python3: {e}"))?;
    if !made.status.success() {
        return Err(format!(
            "`bpf_doc.py` fails: {}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    std::fs::write(&defs, made.stdout).map_err(|e| io(&defs, e))
}

/// One file of `progs`, with the headers in place.
///
/// # Errors
/// What the compiler says.
pub fn compile_one(tools: &Tools, name: &str) -> Result<Vec<u8>, String> {
    let selftests = tools.linux.join(SELFTESTS);
    let object = tools.out.join(name).with_extension("o");
    let done = Command::new(&tools.clang)
        .args(["--target=bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
        .args(["-fno-strict-aliasing", "-mlittle-endian", "-w"])
        .args(["-D__TARGET_ARCH_x86", "-DENABLE_ATOMICS_TESTS"])
        .arg("-I")
        .arg(tools.out.join("include"))
        .arg("-I")
        .arg(&selftests)
        .arg("-I")
        .arg(tools.linux.join("tools/include/uapi"))
        .arg("-I")
        .arg(tools.linux.join("tools/include"))
        .args(["-idirafter", "/usr/include/x86_64-linux-gnu"])
        .args(["-idirafter", "/usr/include", "-c"])
        .arg(selftests.join("progs").join(name))
        .arg("-o")
        .arg(&object)
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", tools.clang))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let first = text.lines().find_map(|line| line.split_once("error: "));
        return Err(first.map_or("clang fails", |(_, what)| what).to_owned());
    }
    std::fs::read(&object).map_err(|e| format!("cannot read `{}`: {e}", object.display()))
}
