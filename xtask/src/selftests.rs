//! Linux's verifier tests against warpbpf's verifier. The kernel's sources come from Debian's
//! package, are unpacked as far as needed into `.toolchain/linux`, and are neither installed nor
//! committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::log::Log;
use crate::setup;
use crate::shell::{Failure, cargo, failure, root, run as run_command, succeeds, write};

const PACKAGE: &str = "linux-source-6.12";

/// What is unpacked: the tests, libbpf's headers, the kernel's public headers, and the script that
/// lists the helpers.
const PARTS: &[&str] = &[
    "COPYING",
    "scripts/bpf_doc.py",
    "tools/arch/x86/include",
    "tools/include",
    "tools/lib/bpf",
    "tools/testing/selftests/bpf",
];

/// Runs all of them; fails if `tests/selftests/disagreements.txt` does not list exactly the
/// differences.
pub fn run() -> Result<(), Failure> {
    let tools = setup::run(&Log::new("setup"))?;
    let sources = sources()?;
    let mut harness = cargo();
    harness
        .args([
            "run",
            "--quiet",
            "--release",
            "-p",
            "warpbpf-selftests",
            "--",
        ])
        .arg(&sources)
        .arg(&tools.clang)
        .arg(root().join("target/selftests"));
    run_command(&mut harness)
}

/// The unpacked sources: those that `WARPBPF_LINUX_SOURCE` names, else the package's.
fn sources() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("WARPBPF_LINUX_SOURCE") {
        return Ok(PathBuf::from(named));
    }
    let folder = root().join(".toolchain/linux");
    let tree = folder.join(PACKAGE);
    let stamp = folder.join("unpacked");
    if std::fs::read_to_string(&stamp).unwrap_or_default() == PARTS.join("\n") {
        return Ok(tree);
    }
    let there = PathBuf::from("/usr/src").join(format!("{PACKAGE}.tar.xz"));
    if there.exists() {
        unpack(&there, &folder)?;
    } else {
        let package = download(&folder)?;
        run_command(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(&package)
                .arg(&folder),
        )?;
        let archive = folder.join("usr/src").join(format!("{PACKAGE}.tar.xz"));
        unpack(&archive, &folder)?;
        let removed = std::fs::remove_dir_all(folder.join("usr"));
        removed
            .and_then(|()| std::fs::remove_file(&package))
            .map_err(|e| Failure(format!("cannot tidy up `{}`: {e}", folder.display())))?;
    }
    write(&stamp, PARTS.join("\n"))?;
    Ok(tree)
}

/// Downloads the package (150 MB) without installing it, so nobody has to be root.
fn download(folder: &Path) -> Result<PathBuf, Failure> {
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return failure(format!(
            "this machine has no apt-get to download Debian's {PACKAGE} with; unpack Linux 6.12 yourself and set WARPBPF_LINUX_SOURCE to its folder"
        ));
    }
    let made = std::fs::create_dir_all(folder);
    made.map_err(|e| Failure(format!("cannot make `{}`: {e}", folder.display())))?;
    let mut apt = Command::new("apt-get");
    apt.current_dir(folder).args(["download", "-qq", PACKAGE]);
    if let Err(Failure(why)) = run_command(&mut apt) {
        return failure(format!(
            "{why}; if the package is not known, run `apt-get update` as root, or unpack Linux 6.12 yourself and set WARPBPF_LINUX_SOURCE to its folder"
        ));
    }
    let list = std::fs::read_dir(folder)
        .map_err(|e| Failure(format!("cannot read `{}`: {e}", folder.display())))?;
    list.filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .map_or_else(|| failure("`apt-get download` left no package"), Ok)
}

fn unpack(archive: &Path, folder: &Path) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|e| Failure(format!("cannot make `{}`: {e}", folder.display())))?;
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(archive).arg("-C").arg(folder);
    tar.args(PARTS.iter().map(|part| format!("{PACKAGE}/{part}")));
    run_command(&mut tar)
}
