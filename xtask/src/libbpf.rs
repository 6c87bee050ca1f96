//! The tests' tools that use libbpf: their programs, skeletons by `bpftool`, and each tool with libbpf linked both ways.

use std::path::Path;
use std::process::Command;

use crate::compile::{Unit, cc, clang};
use crate::setup::Tools;
use crate::shell::{Failure, root, succeeds, write};

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

/// What makes them: `NAME` with libbpf in it, `NAME-shared` without, and `NAME.bpf.o`. Without `bpftool` nothing is built, and the
/// suite says so.
pub fn tools<'t>(tools: &'t Tools, into: &Path) -> Vec<Unit<'t>> {
    let Some(bpftool) = bpftool() else {
        return Vec::new();
    };
    let units = TOOLS.iter().map(|name| tool(tools, bpftool, name, into));
    units.chain([refused(into), of_driver(into)]).collect()
}

fn tool<'t>(tools: &'t Tools, bpftool: &'static str, name: &'static str, into: &Path) -> Unit<'t> {
    let source = move |end: &str| root().join(format!("tests/libbpf/{name}{end}"));
    let into = into.to_owned();
    let made = move |end: &str| into.join(format!("{name}{end}"));
    let mut sources = vec![source(".bpf.c"), source(".c")];
    sources.extend(HEADERS.iter().map(|header| root().join(header)));
    let all = [".bpf.o", ".skel.h", "-shared", ""].map(&made);
    Unit::new(all, sources, move |log| {
        let object = made(".bpf.o");
        log.run(clang(tools, &source(".bpf.c")).arg("-o").arg(&object))?;
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
        let libbpf = ["-Wl,-Bstatic", "-lbpf", "-lelf", "-lz", "-Wl,-Bdynamic"];
        for (end, libraries) in [("-shared", &["-lbpf"][..]), ("", &libbpf)] {
            let mut cc = cc(&["-I"]);
            cc.arg(root().join("include"));
            cc.arg("-I")
                .arg(object.with_file_name(""))
                .arg(source(".c"));
            log.run(cc.arg("-o").arg(made(end)).args(libraries))?;
        }
        Ok(())
    })
}

/// What a tool loads in place of a driver.
fn of_driver(into: &Path) -> Unit<'static> {
    let source = root().join("tests/libbpf/waits.c");
    Unit::by(into.join("libcuda.so.waits"), [source.clone()], move || {
        let mut cc = cc(&["-shared", "-fPIC", "-pthread"]);
        cc.arg(&source);
        cc
    })
}

/// A program that is its own libc.
fn refused(into: &Path) -> Unit<'static> {
    let source = root().join("tests/libbpf/static.c");
    Unit::by(into.join("static"), [source.clone()], move || {
        let mut cc = Command::new("cc");
        cc.arg("-static").arg(&source);
        cc
    })
}
