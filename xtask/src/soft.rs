//! Puts the soft GPU together as the two libraries that programs look for. Linked here and not by cargo, because programs
//! ask for versioned symbols of `libcudart.so.13`, and rustc's own script for a `cdylib` cannot name versions.

use std::path::Path;
use std::process::Command;

use crate::shell::{Failure, root, run};

/// Library and version script.
const LIBRARIES: &[(&str, &str)] = &[
    ("libcuda.so.1", "libcuda.map"),
    ("libcudart.so.13", "libcudart.map"),
];

/// Links both libraries from cargo's static library into `folder`, if it is newer.
pub fn assemble(binaries: &Path, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure(format!("cannot make `{}`: {e}", folder.display())))?;
    let archive = binaries.join("libwarpbpf_softcuda.a");
    for (library, script) in LIBRARIES {
        let made = folder.join(library);
        let script = root().join("crates/softcuda/link").join(script);
        if crate::artifacts::is_newer(&made, &[&archive, &script]) {
            continue;
        }
        let mut cc = Command::new("cc");
        cc.arg("-shared")
            .arg("-o")
            .arg(&made)
            .arg(format!("-Wl,-soname,{library}"));
        cc.arg(format!("-Wl,--version-script={}", script.display()));
        cc.args(["-Wl,--gc-sections", "-Wl,--whole-archive"])
            .arg(&archive)
            .arg("-Wl,--no-whole-archive");
        cc.args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
            "-lc",
        ]);
        run(&mut cc)?;
    }
    Ok(())
}
