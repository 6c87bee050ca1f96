//! Kernels without PTX: probes in their machine code, put there by us or by Compute Sanitizer,
//! which only a GPU runs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("probes in machine code", machine_code),
        case("machine code: an application", application),
        case("machine code: what a launch tells", told),
        case("sanitizer: what a launch tells", told_by_sanitizer),
        case("machine code: variables of the module", variables),
        case("machine code: loads and stores", loads_and_stores),
        case("machine code: which back ends", listed),
        case("machine code: ptxas", assembler),
        case(
            "machine code: the PTX in its line information",
            embedded_ptx,
        ),
        case("machine code: Triton's kernels", triton),
        case("machine code: the back end is chosen", chosen),
        case("sanitizer: an application", patched),
        case("sanitizer: accesses", accesses),
        case("sanitizer: the library", library),
    ]
}

/// Threads of each launch.
pub(crate) const THREADS: u64 = 400 * 256;
pub(crate) const LAUNCHES: u64 = 20;

/// An application without PTX: what its kernels compute is the same, and each thread was seen once
/// at its entry and once at its end.
fn application(bench: &Bench) -> Told {
    of_application(bench, "splice", &[])
}

/// The same with the kernel that counts in a variable of its module: what it counts is the same,
/// too.
fn variables(bench: &Bench) -> Told {
    of_application(bench, "splice", &["--splice-variables"])
}

/// The same by Compute Sanitizer, but in a graph.
fn patched(bench: &Bench) -> Told {
    of_application(bench, "sanitizer", &[])
}

/// As `machine.bpf.c` counts them, at entries and at exits; both together.
fn threads_of(run: &Run, kernel: u64, expected: u64) -> Result<u64, String> {
    for (which, what) in [(0, "threads that begin"), (1, "threads that end")] {
        same(what, run.value("counts", kernel * 4 + which)?, expected)?;
    }
    Ok(2 * expected)
}

fn launches_of(kernel: &Value, launched: u64, uninstrumented: u64) -> Result<(), String> {
    let counted = [&kernel["launches"], &kernel["uninstrumented"]];
    same(
        "launches and uninstrumented ones",
        counted,
        [&launched.into(), &uninstrumented.into()],
    )
}

pub(crate) const NO_GPU: &str = "skipped: no GPU, and the soft one runs no machine code";

fn of_application(bench: &Bench, backend: &str, more: &[&str]) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let launches = LAUNCHES.to_string();
    let flags = [&["--backend", backend], more].concat();
    let run = bench.both_with(&flags, "machine", "machine", &[&launches])?;
    let mut threads = 0;
    // Compute Sanitizer takes nodes of graphs for each other, so there the originals run.
    let in_graph = match backend {
        "sanitizer" => 0,
        _ => LAUNCHES,
    };
    for (name, launched, uninstrumented, blocks) in [
        ("halve", LAUNCHES, 0, 0),
        ("sums", LAUNCHES + in_graph, LAUNCHES - in_graph, 400),
        // Its strings are in the copy, too.
        ("says", 1, 0, 0),
        ("tally", 2, 0, 0),
    ] {
        let kernel = run.kernel(name)?;
        if name == "tally" && more.is_empty() {
            let method = kernel["method"].as_str().unwrap_or_default();
            says(method, "it uses variables of its module")?;
            launches_of(kernel, 0, 2)?;
            continue;
        }
        same("method", &kernel["method"], &backend.into())?;
        launches_of(kernel, launched, uninstrumented)?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        threads += threads_of(&run, id, launched * THREADS)?;
        same(
            "blocks",
            run.value("counts", id * 4 + 2)?,
            launched * blocks,
        )?;
    }
    let entries = run.entries("blocks")?;
    same("keys of blocks", entries.len(), 400)?;
    for (_, value) in entries {
        same(
            "launches of a block",
            value.as_u64(),
            Some(LAUNCHES + in_graph),
        )?;
    }
    // It shares a constant with its module.
    let kernel = run.kernel("scale")?;
    let method = kernel["method"].as_str().unwrap_or_default();
    says(method, "it reads `__constant__` variables")?;
    same("uninstrumented", &kernel["uninstrumented"], &1.into())?;
    Ok(format!(
        "{threads} threads at entries and exits, outputs the same"
    ))
}

/// The same application with line information: what is machine code for a GPU gets programs by the
/// PTX that is in it, as all of Triton's kernels do.
fn embedded_ptx(bench: &Bench) -> Told {
    let launches = LAUNCHES.to_string();
    let run = bench.both("machine", "lineinfo", &[&launches])?;
    let mut threads = 0;
    let all = [
        ("halve", LAUNCHES, "slice"),
        ("sums", LAUNCHES * 2, "slice"),
        ("scale", 1, "clone"),
        ("says", 1, "slice"),
        ("tally", 2, "slice"),
    ];
    for (name, launched, method) in all {
        let kernel = run.kernel(name)?;
        let there = kernel["method"].as_str().unwrap_or_default();
        let first = there.split(':').next().unwrap_or_default();
        same("method", first, method)?;
        let source = kernel["source"].as_str().unwrap_or_default();
        says(
            source,
            "line information, PTX 9.0 sm_90; fatbin, SASS sm_90",
        )?;
        launches_of(kernel, launched, 0)?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        threads += threads_of(&run, id, launched * THREADS)?;
    }
    Ok(format!(
        "{threads} threads at entries and exits of machine code"
    ))
}

/// Every scope at both ends, the launch's number, and programs of every tenth launch: each counts
/// what there is, and nothing else.
fn told(bench: &Bench) -> Told {
    told_by(bench, "splice")
}

/// The same by Compute Sanitizer, but in a graph.
fn told_by_sanitizer(bench: &Bench) -> Told {
    told_by(bench, "sanitizer")
}

fn told_by(bench: &Bench, backend: &str) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let launches = LAUNCHES.to_string();
    let flags = ["--backend", backend];
    let graphs = match backend {
        "sanitizer" => 0,
        _ => LAUNCHES,
    };
    let run = bench.both_with(&flags, "machine_scopes", "machine", &[&launches])?;
    let (blocks, warps) = (400, 400 * 8);
    let mut fired = 0;
    for (name, alone, graph) in [
        ("halve", LAUNCHES, false),
        ("sums", LAUNCHES, true),
        ("says", 1, false),
    ] {
        let kernel = run.kernel(name)?;
        same("method", &kernel["method"], &backend.into())?;
        let in_graph = if graph { graphs } else { 0 };
        let all = alone + in_graph;
        launches_of(kernel, all, if graph { LAUNCHES - graphs } else { 0 })?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        // The first launch is one of every ten. What goes by numbers is in no graph.
        let tenth = alone.div_ceil(10);
        let numbers = alone * (alone + 1) / 2;
        for (which, what, expected) in [
            (0, "threads that begin", all * THREADS),
            (1, "warps that begin", all * warps),
            (2, "blocks that begin", all * blocks),
            (3, "threads that end", all * THREADS),
            (4, "warps that end", all * warps),
            (5, "blocks that end", all * blocks),
            (8, "threads of every tenth launch", tenth * THREADS),
            (9, "warps that end in every tenth launch", tenth * warps),
        ] {
            let counted = run.value("counts", id * 16 + which)?;
            same(&format!("{name}: {what}"), counted, expected)?;
            fired += expected;
        }
        // What number a graph's launches have is another case's.
        if !graph {
            for (which, what) in [(6, "numbers at entries"), (7, "numbers at exits")] {
                let counted = run.value("counts", id * 16 + which)?;
                same(&format!("{name}: {what}"), counted, numbers * blocks)?;
            }
        }
    }
    Ok(format!("{fired} times, outputs the same"))
}

/// Without a program it is told which back ends would take a kernel: also where the device cannot
/// run it.
fn listed(bench: &Bench) -> Told {
    let file = bench.scratch("machine-kernels.json");
    let mut command = bench.warpbpf("kernels");
    command.args(["--json", "-o"]).arg(&file);
    command.arg("--").arg(bench.app("machine"));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let read = std::fs::read_to_string(&file).map_err(|e| {
        format!(
            "{}: {e}; {}",
            file.display(),
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    let report: Value = serde_json::from_str(&read).map_err(|e| e.to_string())?;
    let kernels = report["processes"][0]["kernels"].as_array();
    let kernels = kernels.ok_or_else(|| format!("no kernels: {report}"))?;
    let both = "`--backend splice` takes it at `entry` and `exit`; `--backend sanitizer` takes it at `entry`, `exit`, `mem`, `barrier`, `func` and `funcret`";
    for (name, told) in [
        ("halve", both),
        ("sums", both),
        ("says", both),
        (
            "tally",
            "`--backend splice` takes it at `entry` and `exit`, with `--splice-variables`; `--backend sanitizer` does not: it uses variables of its module, or functions by their address",
        ),
        (
            "scale",
            "neither `--backend splice` nor `sanitizer` takes it: it reads `__constant__` variables",
        ),
    ] {
        let kernel = kernels.iter().find(|kernel| kernel["name"] == name);
        let kernel = kernel.ok_or_else(|| format!("no kernel `{name}`: {report}"))?;
        let method = kernel["method"].as_str().unwrap_or_default();
        same(
            name,
            method.split_once("; ").map(|(_, told)| told),
            Some(told),
        )?;
    }
    // What the doctor says of the device stands below.
    let notes = report["notes"].to_string();
    for backend in ["splice", "sanitizer"] {
        let missing = format!(
            "`--backend {backend}` is not to be had on the soft GPU: the soft GPU runs PTX only"
        );
        same(&missing, notes.contains(&missing), bench.soft)?;
    }
    Ok(format!("{} kernels", kernels.len()))
}

/// Kernels that Triton compiles are machine code with line information.
fn triton(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and Triton compiles for no other device".to_owned());
    }
    let script = (
        "triton_kernels.py",
        include_str!("../../apps/triton_kernels.py"),
    );
    let needs = ("torch, triton", "TRITON_CACHE_DIR");
    let run = bench.both_in_python(needs, "machine", script, &[&LAUNCHES.to_string()])?;
    let Some(run) = run else {
        return Ok("skipped: no Triton".to_owned());
    };
    let mut threads = 0;
    for (name, blocks) in [("add", 97), ("softmax", 64)] {
        let kernel = run.kernel(name)?;
        same("method", &kernel["method"], &"slice".into())?;
        launches_of(kernel, LAUNCHES, 0)?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        threads += threads_of(&run, id, LAUNCHES * blocks * 128)?;
    }
    // How many threads it has, Triton chooses: as many begin as end.
    let matmul = run.kernel("matmul")?;
    launches_of(matmul, LAUNCHES, 0)?;
    let id = matmul["id"].as_u64().ok_or("no number")?;
    let begun = run.value("counts", id * 4)?;
    same("whether it has threads", begun > 0, true)?;
    threads += threads_of(&run, id, begun)?;
    Ok(format!("{threads} threads at entries and exits"))
}

/// Each access to global and shared memory of one kernel, with its kind, its bytes and its warps.
fn accesses(bench: &Bench) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let launches = LAUNCHES.to_string();
    let flags = ["--backend", "sanitizer"];
    let run = bench.both_with(&flags, "machine_access", "machine", &[&launches])?;
    let kernel = run.kernel("sums")?;
    same("method", &kernel["method"], &"sanitizer".into())?;
    let id = kernel["id"].as_u64().ok_or("no number")?;
    let launched = LAUNCHES;
    for (which, what, times) in [
        (0, "loads", THREADS),
        (1, "stores", 400),
        (2, "bytes stored", 400 * 4),
        (3, "warps that load", THREADS / 32),
        // 255 sums of two, one by one put there first, and the last one read.
        (4, "loads of shared memory", 400 * 511),
        (5, "stores to shared memory", 400 * 511),
    ] {
        let seen = run.value("counts", id * 8 + which)?;
        same(what, seen, launched * times)?;
    }
    Ok(format!("{} loads", launched * THREADS))
}

/// Each load and store of global memory, by our own splice.
fn loads_and_stores(bench: &Bench) -> Told {
    let flags = ["--backend", "splice", "--splice-memory"];
    if bench.soft {
        // Kernels with PTX get the program there, and tell the same: whatever `ptxas` says.
        let bench = bench.with(&[("WARPBPF_PTXAS", &refusing_ptxas(bench)?)]);
        let run = bench.both_with(&flags, "splice_memory", "vectoradd", &[])?;
        let kernel = run.kernel("vectorAdd")?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        let loads = run.value("counts", id * 8)?;
        for (which, what, expected) in [
            (1, "stores", loads / 2),
            (2, "bytes loaded", loads * 4),
            (3, "bytes stored", loads * 2),
            (5, "addresses that are not aligned", 0),
        ] {
            same(what, run.value("counts", id * 8 + which)?, expected)?;
        }
        return Ok(format!("{loads} loads, in PTX"));
    }
    let launches = LAUNCHES.to_string();
    let run = bench.both_with(&flags, "splice_memory", "machine", &[&launches])?;
    let mut loads = 0;
    // The last threads have nothing to halve, and what is below zero in the end is not stored.
    let halved = THREADS - 100;
    let stored = (0..halved).filter(|thread| {
        let first = (thread % 1000) as f32 - 10.0;
        (0..thread & 7).fold(first, |value, _| value * 0.5 + 1.0) >= 0.0
    });
    let stored = stored.count() as u64;
    // The sums are in a graph, too; one lane of a block stores one.
    for (name, launched, loaded, stored) in [
        ("halve", LAUNCHES, halved, stored),
        ("sums", 2 * LAUNCHES, THREADS, 400),
    ] {
        let kernel = run.kernel(name)?;
        same("method", &kernel["method"], &"splice".into())?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        for (which, what, times) in [
            (0, "loads", loaded),
            (1, "stores", stored),
            (2, "bytes loaded", 4 * loaded),
            (3, "bytes stored", 4 * stored),
            (4, "warps that load", loaded.div_ceil(32)),
            (5, "addresses that are not aligned", 0),
        ] {
            let seen = run.value("counts", id * 8 + which)?;
            same(what, seen, launched * times)?;
        }
        loads += launched * loaded;
    }
    let kernel = run.kernel("says")?;
    let method = kernel["method"].as_str().unwrap_or_default();
    says(method, "the kernel calls code in other sections")?;
    Ok(format!("{loads} loads, outputs the same"))
}

/// Without the library nothing is started. The soft GPU has none, which costs kernels with PTX
/// nothing.
fn library(bench: &Bench) -> Told {
    let ptxas = refusing_ptxas(bench)?;
    let ptxas = ("WARPBPF_PTXAS", ptxas.as_str());
    let nothing = bench.with(&[ptxas, ("WARPBPF_SANITIZER", "/nowhere")]);
    let object = bench.object("machine");
    let flags = ["--backend", "sanitizer"];
    let run = nothing.probed(&flags, &object, &bench.app("variants"), &[])?;
    same("exit status", run.output.status.code(), Some(125))?;
    same("output", run.output.stdout.len(), 0)?;
    says(
        &run.errors(),
        "WARPBPF_SANITIZER names `/nowhere`, which is neither a file nor a folder with `libsanitizer-public.so`",
    )?;
    for backend in ["sanitizer", "splice"] {
        for flag in ["--gate", "--slots"] {
            let gated = ["--backend", backend, flag];
            let run = bench.probed(&gated, &object, &bench.app("variants"), &[])?;
            same("exit status", run.output.status.code(), Some(125))?;
            let why = format!(
                "`{flag}` does not go with `--backend {backend}`: gates and slots stand in a kernel's PTX"
            );
            says(&run.errors(), &why)?;
        }
    }
    // One that is none: on a GPU the agent cannot load it, on the soft one nobody tries.
    let file = bench.scratch("libsanitizer-public.so");
    std::fs::write(&file, b"no library").map_err(|e| format!("{}: {e}", file.display()))?;
    let other = bench.with(&[ptxas, ("WARPBPF_SANITIZER", &file.display().to_string())]);
    let run = other.both_with(&flags, "machine", "variants", &[])?;
    let kernel = run.kernel("templated<int, 5>")?;
    let id = kernel["id"].as_u64().ok_or("no number")?;
    for which in [0, 1] {
        same("threads", run.value("counts", id * 4 + which)?, 50)?;
    }
    let notes = run.report["notes"].to_string();
    let said = match bench.soft {
        true => "Compute Sanitizer is not in the application",
        false => "Compute Sanitizer cannot be used: `",
    };
    says(&notes, said)?;
    Ok("none, one that is none, and a gate".to_owned())
}

/// Who leaves the choice to us is told what it was; what is missing costs kernels with PTX nothing.
fn chosen(bench: &Bench) -> Told {
    let ptxas = refusing_ptxas(bench)?;
    let ptxas = ("WARPBPF_PTXAS", ptxas.as_str());
    let auto = ["--backend", "all"];
    let by = |bench: &Bench, flags: &[&str], object: &str, said: &str| -> Result<(), String> {
        let run = bench.both_with(flags, object, "variants", &[])?;
        same(
            "launches",
            &run.kernel("templated<int, 5>")?["uninstrumented"],
            &0.into(),
        )?;
        says(&run.report["notes"].to_string(), said)
    };
    let splices = "kernels without PTX get programs by `splice`";
    by(&bench.with(&[ptxas]), &auto, "machine", splices)?;
    let library = ("WARPBPF_SANITIZER", "/nowhere");
    let without = format!(
        "no programs: program `access` needs `sanitizer`: {}",
        "WARPBPF_SANITIZER names"
    );
    by(
        &bench.with(&[ptxas, library]),
        &auto,
        "machine_access",
        &without,
    )?;
    let nothing = bench.with(&[("WARPBPF_PTXAS", "/nowhere/ptxas")]);
    by(
        &nothing,
        &auto,
        "machine",
        "get no programs: WARPBPF_PTXAS names `/nowhere/ptxas`",
    )?;
    let gated = ["--backend", "all", "--gate"];
    by(
        bench,
        &gated,
        "machine",
        "get no programs: `--gate` puts gates and slots into PTX only",
    )?;
    Ok("splice, and why not others".to_owned())
}

/// A `ptxas` that refuses everything.
fn refusing_ptxas(bench: &Bench) -> Result<String, String> {
    let file = bench.scratch("ptxas");
    std::fs::write(
        &file,
        "#!/bin/sh\necho nothing is good enough >&2\nexit 1\n",
    )
    .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)))
    .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file.display().to_string())
}

fn machine_code(bench: &Bench) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let mut all = Vec::new();
    for at in [&[][..], &["memory"]] {
        let mut command = Command::new(bench.folder.join("warpbpf-splice"));
        command.args(at).arg(bench.folder.join("splice"));
        let output = command
            .output()
            .map_err(|e| format!("warpbpf-splice: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.trim_end();
        if !output.status.success() {
            return Err(format!("{}: {said}", output.status));
        }
        // The last line tells of all.
        all.push(said.lines().next_back().unwrap_or_default().to_owned());
    }
    Ok(all.join("; "))
}

/// Without `ptxas` nothing is started. One that refuses everything costs kernels with PTX nothing.
fn assembler(bench: &Bench) -> Told {
    let refusing = bench.with(&[("WARPBPF_PTXAS", &refusing_ptxas(bench)?)]);
    let flags = ["--backend", "splice", "--splice-variables"];
    let run = refusing.both_with(&flags, "machine", "variants", &[])?;
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
    for backend in ["ptx", "sanitizer"] {
        let flags = ["--backend", backend, "--splice-variables"];
        let run = bench.probed(&flags, &object, &bench.app("variants"), &[])?;
        same("exit status", run.output.status.code(), Some(125))?;
        same("output", run.output.stdout.len(), 0)?;
        says(
            &run.errors(),
            "`--splice-variables` is for `--backend splice`",
        )?;
    }
    for backend in ["ptx", "sanitizer", "auto", "all"] {
        let flags = ["--backend", backend, "--splice-memory"];
        let run = bench.probed(&flags, &object, &bench.app("variants"), &[])?;
        same("exit status", run.output.status.code(), Some(125))?;
        says(&run.errors(), "`--splice-memory` is for `--backend splice`")?;
    }
    Ok("one that refuses, none, and flags for another back end".to_owned())
}
