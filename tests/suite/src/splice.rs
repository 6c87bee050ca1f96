//! Kernels without PTX: probes in their machine code, which only a GPU runs.

use std::process::Command;

use crate::run::{Bench, Case, Told};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![case("probes in machine code", machine_code)]
}

fn machine_code(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and the soft one runs no machine code".to_owned());
    }
    let mut command = Command::new(bench.folder.join("warpbpf-splice"));
    command.arg(bench.folder.join("splice"));
    let output = command
        .output()
        .map_err(|e| format!("warpbpf-splice: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(format!("{}: {said}", output.status))
    }
}
