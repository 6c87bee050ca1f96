//! The tests' tools that use libbpf: their programs, skeletons by `bpftool`, and each tool with the
//! system's libbpf, which is shared, and with the newest one linked into it, whose source comes in
//! a crate.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::{Unit, cc, clang};
use crate::setup::Tools;
use crate::shell::{Failure, cargo, failure, make_link, output, root, succeeds, write};

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

/// The newest libbpf.
pub struct Newest {
    /// With the sources in `src` and headers in `include`.
    folder: PathBuf,
    /// Where it is compiled.
    into: PathBuf,
}

impl Newest {
    /// Asks cargo for the source, which it downloads where it has not.
    pub fn fetched(into: &Path) -> Result<Newest, Failure> {
        let mut metadata = cargo();
        metadata.args(["metadata", "--format-version", "1", "--locked"]);
        metadata.arg("--manifest-path");
        metadata.arg(root().join("tests/libbpf/newest/Cargo.toml"));
        let said: serde_json::Value = serde_json::from_slice(&output(&mut metadata)?)
            .map_err(|e| Failure(format!("cargo metadata: {e}")))?;
        let packages = said["packages"].as_array().into_iter().flatten();
        let mut manifests = packages
            .filter(|package| package["name"] == "libbpf-sys")
            .filter_map(|package| package["manifest_path"].as_str());
        let Some(manifest) = manifests.next() else {
            return failure("cargo has no package `libbpf-sys`");
        };
        let folder = Path::new(manifest).with_file_name("libbpf");
        let into = into.to_owned();
        // Tools say `#include <bpf/libbpf.h>`.
        make_link(&folder.join("src"), &into.join("include/bpf"))?;
        Ok(Newest { folder, into })
    }

    fn sources(&self) -> Result<Vec<PathBuf>, Failure> {
        let folder = self.folder.join("src");
        let failed = |e: std::io::Error| Failure(format!("`{}`: {e}", folder.display()));
        let mut sources = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|kind| kind == "c") {
                sources.push(path);
            }
        }
        sources.sort();
        Ok(sources)
    }

    fn object(&self, source: &Path) -> PathBuf {
        let name = source.with_extension("o");
        self.into.join(name.file_name().unwrap_or_default())
    }

    /// What makes its objects.
    pub fn units(&self) -> Result<Vec<Unit<'_>>, Failure> {
        let sources = self.sources()?.into_iter();
        let units = sources.map(|source| {
            Unit::by(self.object(&source), [source.clone()], move || {
                let mut cc = Command::new("cc");
                cc.args([
                    "-O1",
                    "-w",
                    "-D_LARGEFILE64_SOURCE",
                    "-D_FILE_OFFSET_BITS=64",
                ]);
                for folder in ["include", "include/uapi"] {
                    cc.arg("-I").arg(self.folder.join(folder));
                }
                cc.arg("-c").arg(&source);
                cc
            })
        });
        Ok(units.collect())
    }
}

/// What makes them: `NAME` with the newest libbpf in it, `NAME-shared` for the system's, and
/// `NAME.bpf.o`. Without `bpftool` nothing is built, and the suite says so.
pub fn tools<'t>(tools: &'t Tools, newest: &Newest, into: &Path) -> Result<Vec<Unit<'t>>, Failure> {
    let Some(bpftool) = bpftool() else {
        return Ok(Vec::new());
    };
    let sources = newest.sources()?;
    let objects: Vec<PathBuf> = sources.iter().map(|s| newest.object(s)).collect();
    let of = |name: &&'static str| tool(tools, bpftool, name, (&newest.into, &objects), into);
    let units = TOOLS.iter().map(of);
    let alone = [refused(into), of_driver(into), numbers(into)];
    Ok(units.chain(alone).collect())
}

fn tool<'t>(
    tools: &'t Tools,
    bpftool: &'static str,
    name: &'static str,
    (newest, objects): (&Path, &[PathBuf]),
    into: &Path,
) -> Unit<'t> {
    let (headers, objects) = (newest.join("include"), objects.to_vec());
    let source = move |end: &str| root().join(format!("tests/libbpf/{name}{end}"));
    let into = into.to_owned();
    let made = move |end: &str| into.join(format!("{name}{end}"));
    let mut sources = vec![source(".bpf.c"), source(".c")];
    sources.extend(HEADERS.iter().map(|header| root().join(header)));
    sources.extend(objects.iter().cloned());
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
        let compile = |end: &str| {
            let mut cc = cc(&["-o"]);
            cc.arg(made(end)).arg("-I").arg(root().join("include"));
            cc.arg("-I").arg(object.with_file_name(""));
            cc
        };
        log.run(compile("-shared").arg(source(".c")).arg("-lbpf"))?;
        // That with the newest one last. A machine that only runs it needs neither libbpf nor
        // libelf.
        let mut newest = compile("");
        newest
            .arg("-I")
            .arg(&headers)
            .arg(source(".c"))
            .args(&objects);
        newest.args(["-Wl,-Bstatic", "-lelf", "-lz", "-Wl,-Bdynamic"]);
        log.run(&mut newest)
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

/// A tool that calls the kernel itself.
fn numbers(into: &Path) -> Unit<'static> {
    let source = root().join("tests/libbpf/numbers.c");
    Unit::by(into.join("numbers"), [source.clone()], move || {
        let mut cc = cc(&[]);
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
