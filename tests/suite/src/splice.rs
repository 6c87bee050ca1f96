//! Kernels without PTX: probes in their machine code, which only a GPU runs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("probes in machine code", machine_code),
        case("machine code: an application", application),
        case("machine code: ptxas", assembler),
    ]
}

/// Threads of each launch.
const THREADS: u64 = 400 * 256;
const LAUNCHES: u64 = 20;

/// An application without PTX: what its kernels compute is the same, and each thread was seen once at its entry and once at its end.
fn application(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and the soft one runs no machine code".to_owned());
    }
    let launches = LAUNCHES.to_string();
    let flags = ["--backend", "splice"];
    let run = bench.both_with(&flags, "machine", "machine", &[&launches])?;
    let mut threads = 0;
    for (name, launched, blocks) in [("halve", LAUNCHES, 0), ("sums", LAUNCHES * 2, 400)] {
        let kernel = run.kernel(name)?;
        same("way", &kernel["way"], &"splice".into())?;
        let counted = [&kernel["launches"], &kernel["missed"]];
        same(
            "launches and missed ones",
            counted,
            [&launched.into(), &0.into()],
        )?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        for which in [0, 1] {
            let seen = run.value("counts", id * 4 + which)?;
            same("threads", seen, launched * THREADS)?;
            threads += seen;
        }
        same(
            "blocks",
            run.value("counts", id * 4 + 2)?,
            launched * blocks,
        )?;
    }
    let entries = run.entries("blocks")?;
    same("keys of blocks", entries.len(), 400)?;
    for (_, value) in entries {
        same("launches of a block", value.as_u64(), Some(LAUNCHES * 2))?;
    }
    // It shares a constant with its module.
    let kernel = run.kernel("scale")?;
    let way = kernel["way"].as_str().unwrap_or_default();
    says(way, "it reads `__constant__` variables")?;
    same("missed", &kernel["missed"], &1.into())?;
    Ok(format!(
        "{threads} threads at entries and exits, outputs the same"
    ))
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

/// Without `ptxas` nothing is started. One that refuses everything costs kernels with PTX nothing.
fn assembler(bench: &Bench) -> Told {
    let file = bench.scratch("ptxas");
    std::fs::write(
        &file,
        "#!/bin/sh\necho nothing is good enough >&2\nexit 1\n",
    )
    .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)))
    .map_err(|e| format!("{}: {e}", file.display()))?;
    let refusing = bench.with(&[("WARPBPF_PTXAS", &file.display().to_string())]);
    let run = refusing.both_with(&["--backend", "splice"], "machine", "variants", &[])?;
    let kernel = run.kernel("templated<int, 5>")?;
    let id = kernel["id"].as_u64().ok_or("no number")?;
    for which in [0, 1] {
        same("threads", run.value("counts", id * 4 + which)?, 50)?;
    }
    let nothing = bench.with(&[("WARPBPF_PTXAS", "/nowhere/ptxas")]);
    let object = bench.object("machine");
    let run = nothing.probed(
        &["--backend", "splice"],
        &object,
        &bench.app("variants"),
        &[],
    )?;
    same("exit status", run.output.status.code(), Some(125))?;
    same("output", run.output.stdout.len(), 0)?;
    says(
        &run.errors(),
        "WARPBPF_PTXAS names `/nowhere/ptxas`, where no file is",
    )?;
    Ok("one that refuses, and none".to_owned())
}
