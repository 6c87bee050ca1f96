//! The tests' tools that use libbpf: their programs, skeletons by `bpftool`, and each tool with libbpf linked both ways.

use std::path::Path;
use std::process::Command;

use crate::artifacts::is_newer;
use crate::setup::Tools;
use crate::shell::{Failure, root, run, succeeds, write};

/// Tools: `tests/libbpf/NAME.bpf.c` and `tests/libbpf/NAME.c`.
const TOOLS: &[&str] = &[
    "counter",
    "retsnoop",
    "perthread",
    "globals",
    "gpuprobe",
    "sharedmap",
    "perfbuf",
    "refused",
    "mixed",
    "directly",
    "memtrace",
    "kerneltrace",
    "hostmap",
    "cudagraph",
    "scheduling",
    "mapping",
    "atomizer",
    "templates",
    "launchlate",
    "links",
    "kernelshared",
    "faulty",
    "userring",
    "linuxside",
    "hostside",
    "walk",
    "cudacounter",
    "kernelretsnoop",
    "gpusharedmap",
    "update",
    "stubtrace",
    "launchshared",
    "launchplt",
    "cutlass",
    "manymaps",
    "inranges",
    "context",
];

/// What several of them include.
const HEADERS: &[&str] = &[
    "tests/libbpf/tool.h",
    "tests/libbpf/retsnoop.h",
    "tests/libbpf/kernelretsnoop.h",
    "tests/libbpf/kerneltrace.h",
    "tests/libbpf/launchlate.h",
    "tests/libbpf/launchplt.h",
    "tests/libbpf/stubtrace.h",
    "tests/libbpf/scheduling.h",
    "tests/libbpf/cutlass.bpf.h",
    "tests/libbpf/scheduling.bpf.h",
    "tests/libbpf/scheduling.tool.h",
    "tests/programs/userring.bpf.c",
    "include/warpbpf.h",
    "include/warpbpf_loader.h",
];

/// The command: Debian has it where only root looks.
pub fn bpftool() -> Option<&'static str> {
    ["bpftool", "/usr/sbin/bpftool"]
        .into_iter()
        .find(|path| succeeds(Command::new(path).arg("version")))
}

/// Builds them into `into`: `NAME` with libbpf in it, `NAME-shared` without, and `NAME.bpf.o`. Without `bpftool` nothing is
/// built, and the suite says so.
pub fn tools(tools: &Tools, into: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(into)
        .map_err(|e| Failure(format!("cannot make `{}`: {e}", into.display())))?;
    let Some(bpftool) = bpftool() else {
        println!("tests/libbpf is left out: `bpftool` is not installed");
        return Ok(());
    };
    for name in TOOLS {
        tool(tools, bpftool, name, into)?;
    }
    refused(into)?;
    of_driver(into)
}

fn tool(tools: &Tools, bpftool: &str, name: &str, into: &Path) -> Result<(), Failure> {
    let source = |end: &str| root().join(format!("tests/libbpf/{name}{end}"));
    let made = |end: &str| into.join(format!("{name}{end}"));
    let mut sources = vec![source(".bpf.c"), source(".c")];
    sources.extend(HEADERS.iter().map(|header| root().join(header)));
    let sources: Vec<&Path> = sources.iter().map(std::path::PathBuf::as_path).collect();
    // The one that is made last.
    if is_newer(&made(""), &sources) {
        return Ok(());
    }
    let object = made(".bpf.o");
    let mut clang = Command::new(&tools.clang);
    clang.args([
        "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-I",
    ]);
    clang.arg(root().join("include")).arg(format!(
        "-I/usr/include/{}-linux-gnu",
        std::env::consts::ARCH
    ));
    run(clang.arg("-c").arg(source(".bpf.c")).arg("-o").arg(&object))?;
    let skeleton = Command::new(bpftool)
        .args(["gen", "skeleton"])
        .arg(&object)
        .args(["name", &format!("{name}_bpf")])
        .output()
        .map_err(|e| Failure(format!("bpftool: {e}")))?;
    if !skeleton.status.success() {
        let said = String::from_utf8_lossy(&skeleton.stderr).into_owned();
        return Err(Failure(format!("bpftool gen skeleton of `{name}`: {said}")));
    }
    let text = String::from_utf8_lossy(&skeleton.stdout).into_owned();
    write(&made(".skel.h"), text)?;
    // The static one last. A machine that only runs it needs neither libbpf nor libelf.
    for (end, libraries) in [
        ("-shared", &["-lbpf"][..]),
        (
            "",
            &["-Wl,-Bstatic", "-lbpf", "-lelf", "-lz", "-Wl,-Bdynamic"],
        ),
    ] {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(root().join("include"));
        cc.arg("-I").arg(into).arg(source(".c"));
        run(cc.arg("-o").arg(made(end)).args(libraries))?;
    }
    Ok(())
}

/// What a tool loads in place of a driver.
fn of_driver(into: &Path) -> Result<(), Failure> {
    let source = root().join("tests/libbpf/waits.c");
    let library = into.join("libcuda.so.waits");
    if is_newer(&library, &[&source]) {
        return Ok(());
    }
    let mut cc = Command::new("cc");
    cc.args([
        "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread",
    ]);
    run(cc.arg("-o").arg(&library).arg(&source))
}

/// A program that is its own libc.
fn refused(into: &Path) -> Result<(), Failure> {
    let source = root().join("tests/libbpf/static.c");
    let program = into.join("static");
    if is_newer(&program, &[&source]) {
        return Ok(());
    }
    run(Command::new("cc")
        .args(["-static", "-o"])
        .arg(&program)
        .arg(&source))
}
