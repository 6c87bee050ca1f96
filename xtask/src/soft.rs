//! Puts the soft GPU together as the two libraries that programs look for. Linked by a script and
//! not by cargo, because programs ask for versioned symbols of `libcudart.so.13`, and rustc's own
//! script for a `cdylib` cannot name versions.

use std::path::Path;
use std::process::Command;

use crate::compile::is_newer;
use crate::log::Log;
use crate::shell::{Failure, root};

/// Fills `folder` with `libcuda.so.1` and `libcudart.so.13` from what cargo built, if that is
/// newer.
pub fn assemble(log: &Log, binaries: &Path, folder: &Path) -> Result<(), Failure> {
    let archive = binaries.join("libwarpbpf_softcuda.a");
    let script = root().join("crates/softcuda/link/assemble.sh");
    let made = folder.join("libcudart.so.13");
    if is_newer(&made, &[&archive, &script]) {
        return Ok(());
    }
    log.run(Command::new(script).arg(archive).arg(folder))
}
