//! What goes wrong must be said, and must cost the application nothing.

use std::path::Path;

use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("a truncated object", truncated),
        case("random bytes as an object", random),
        case("a program that is refused", refused),
        case("a glob that matches nothing", no_match),
        case("a program that does not use CUDA", not_cuda),
        case("a program that does not exist", absent),
        case("the exit status is the application's", status),
        case("an application that is killed", killed),
        case("an application that crashes", crashed),
        case("an injection slot that is taken", slot_taken),
        case("two at once on one process", two_at_once),
        case("no driver", no_driver),
        case("a driver too old for the PTX", old_driver),
        case("a program that ends threads", ends_threads),
    ]
}

const ARGUMENTS: &[&str] = &["1000", "2"];

fn fails(bench: &Bench, object: &Path, parts: &[&str]) -> Told {
    let run = bench.probed(&[], object, &bench.app("vectoradd"), ARGUMENTS)?;
    same("exit status", run.output.status.code(), Some(1))?;
    same("application's output", run.output.stdout.len(), 0)?;
    for part in parts {
        says(&run.errors(), part)?;
    }
    Ok(run.errors().lines().next().unwrap_or_default().to_string())
}

fn truncated(bench: &Bench) -> Told {
    let whole = std::fs::read(bench.object("threadhist")).map_err(|e| e.to_string())?;
    let file = bench.scratch("truncated.bpf.o");
    std::fs::write(&file, &whole[..whole.len() / 2]).map_err(|e| e.to_string())?;
    fails(bench, &file, &["truncated.bpf.o"])
}

fn random(bench: &Bench) -> Told {
    let file = bench.scratch("random.bpf.o");
    let bytes: Vec<u8> = (0u32..4096)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
    fails(bench, &file, &["random.bpf.o", "ELF"])
}

fn refused(bench: &Bench) -> Told {
    fails(
        bench,
        &bench.object("refused"),
        &["forgets", "refused.bpf.c:", "*n += 1", "null"],
    )
}

fn no_match(bench: &Bench) -> Told {
    let run = bench.both("nomatch", "vectoradd", ARGUMENTS)?;
    says(
        &run.notes(),
        "`noSuchKernel` matched no kernel; kernels seen: vectorAdd",
    )?;
    Ok(run.notes())
}

fn not_cuda(bench: &Bench) -> Told {
    let run = bench.probed(
        &[],
        &bench.object("threadhist"),
        Path::new("/bin/echo"),
        &["hello"],
    )?;
    same(
        "output",
        String::from_utf8_lossy(&run.output.stdout).as_ref(),
        "hello\n",
    )?;
    same("exit status", run.output.status.code(), Some(0))?;
    says(&run.notes(), "loaded no CUDA code")?;
    Ok(run.notes())
}

fn absent(bench: &Bench) -> Told {
    let run = bench.probed(
        &[],
        &bench.object("threadhist"),
        Path::new("/no/such/program"),
        &[],
    )?;
    same("exit status", run.output.status.code(), Some(127))?;
    says(&run.errors(), "`/no/such/program` was not found")?;
    Ok(run.errors().trim_end().to_string())
}

fn status(bench: &Bench) -> Told {
    let run = bench.probed(
        &[],
        &bench.object("threadhist"),
        Path::new("/bin/sh"),
        &["-c", "exit 7"],
    )?;
    same("exit status", run.output.status.code(), Some(7))?;
    Ok("7".into())
}

fn killed(bench: &Bench) -> Told {
    let script = "\"$0\" 100000 2 & pid=$!; wait $pid; kill -KILL $$";
    let app = bench.app("vectoradd");
    let app = app.to_str().ok_or("a strange path")?;
    let run = bench.probed(
        &[],
        &bench.object("threadhist"),
        Path::new("/bin/sh"),
        &["-c", script, app],
    )?;
    same("exit status", run.output.status.code(), Some(137))?;
    says(&run.notes(), "killed by signal 9")?;
    same(
        "threads counted before",
        run.map("threads")?["sum"].as_u64(),
        Some(391 * 256 * 2),
    )?;
    Ok(run.notes())
}

fn crashed(bench: &Bench) -> Told {
    let run = bench.probed(&[], &bench.object("threadhist"), &bench.app("crash"), &[])?;
    same("exit status", run.output.status.code(), Some(134))?;
    same(
        "application's output",
        String::from_utf8_lossy(&run.output.stdout).as_ref(),
        "crash: 40 blocks of 128 threads done\n",
    )?;
    says(&run.notes(), "killed by signal 6")?;
    same("complete", run.process()["complete"].as_bool(), Some(false))?;
    same(
        "threads counted before",
        run.map("threads")?["sum"].as_u64(),
        Some(40 * 128),
    )?;
    Ok(run.notes())
}

fn slot_taken(bench: &Bench) -> Told {
    let expected = bench.plain("vectoradd", ARGUMENTS)?;
    let saved = bench.scratch("slot.json");
    let mut command = bench.warpbpf("run");
    command
        .env(
            "CUDA_INJECTION64_PATH",
            bench.folder.join("apps/libothertool.so"),
        )
        .arg("--json")
        .arg("-o")
        .arg(&saved);
    command
        .arg(bench.object("threadhist"))
        .arg("--")
        .arg(bench.app("vectoradd"))
        .args(ARGUMENTS);
    let output = command.output().map_err(|e| e.to_string())?;
    same("application's output", output.stdout == expected, true)?;
    let text = std::fs::read_to_string(&saved).map_err(|e| e.to_string())?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    says(
        &text,
        "the agent came in by LD_PRELOAD: CUDA_INJECTION64_PATH is already taken by another tool",
    )?;
    let maps = report["processes"][0]["maps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let sum = maps
        .iter()
        .find(|m| m["name"] == "threads")
        .and_then(|m| m["sum"].as_u64());
    same("threads", sum, Some(4 * 256 * 2))?;
    Ok("came in by LD_PRELOAD".into())
}

fn two_at_once(bench: &Bench) -> Told {
    let expected = bench.plain("vectoradd", ARGUMENTS)?;
    let inner = bench.scratch("inner.json");
    let device = if bench.soft { "soft" } else { "gpu" };
    let app = bench.app("vectoradd");
    let object = bench.object("launchcount");
    let words = [
        "run".as_ref(),
        "--device".as_ref(),
        device.as_ref(),
        "--json".as_ref(),
        "-o".as_ref(),
        inner.as_os_str(),
        object.as_os_str(),
        "--".as_ref(),
        app.as_os_str(),
    ];
    let mut arguments: Vec<&str> = words
        .iter()
        .filter_map(|w: &&std::ffi::OsStr| w.to_str())
        .collect();
    arguments.extend(ARGUMENTS);
    let run = bench.probed(
        &[],
        &bench.object("threadhist"),
        &bench.folder.join("warpbpf"),
        &arguments,
    )?;
    same("application's output", run.output.stdout == expected, true)?;
    let text = std::fs::read_to_string(&inner).map_err(|e| format!("no inner report: {e}"))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let notes = run.notes() + &report["notes"].to_string();
    says(&notes, "another warpbpf surrounds this one")?;
    Ok(notes.lines().next().unwrap_or_default().to_string())
}

fn no_driver(bench: &Bench) -> Told {
    let mut command = bench.warpbpf("doctor");
    if bench.soft
        && command
            .output()
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("✓ GPU"))
    {
        return Ok("skipped: this machine has a driver".into());
    }
    let mut command = std::process::Command::new(bench.folder.join("warpbpf"));
    command
        .args(["run", "--device", "gpu"])
        .arg(bench.object("threadhist"))
        .arg("--")
        .arg("/bin/true");
    if !bench.soft {
        // A machine with a GPU has a driver: the soft GPU's must not count as one.
        command.env("LD_LIBRARY_PATH", bench.folder.join("soft"));
    }
    let output = command.output().map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    same("exit status", output.status.code(), Some(125))?;
    says(&errors, "no GPU: ")?;
    says(&errors, "--device soft")?;
    Ok(errors.trim_end().to_string())
}

/// Only the soft GPU can play an old driver.
fn old_driver(bench: &Bench) -> Told {
    if !bench.soft {
        return Ok("skipped: the driver here is what it is".into());
    }
    let expected = bench.plain("vectoradd", ARGUMENTS)?;
    let saved = bench.scratch("old.json");
    let mut command = bench.warpbpf("run");
    command
        .env("WARPBPF_SOFT_PTX", "6.0")
        .arg("--json")
        .arg("-o")
        .arg(&saved);
    command
        .arg(bench.object("threadhist"))
        .arg("--")
        .arg(bench.app("vectoradd"))
        .args(ARGUMENTS);
    let output = command.output().map_err(|e| e.to_string())?;
    same("application's output", output.stdout == expected, true)?;
    let text = std::fs::read_to_string(&saved).map_err(|e| e.to_string())?;
    says(&text, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let kernel = &report["processes"][0]["kernels"][0];
    same("launches with probes", kernel["launches"].as_u64(), Some(0))?;
    Ok(kernel["method"].as_str().unwrap_or_default().to_string())
}

/// Helper 507 changes what the application computes: only with a flag, and then it does.
fn ends_threads(bench: &Bench) -> Told {
    fails(
        bench,
        &bench.object("atomizer"),
        &["atomizer", "--allow-modify"],
    )?;
    let expected = bench.plain("vectoradd", ARGUMENTS)?;
    let run = bench.probed(
        &["--allow-modify"],
        &bench.object("atomizer"),
        &bench.app("vectoradd"),
        ARGUMENTS,
    )?;
    same("exit status", run.output.status.code(), Some(0))?;
    same(
        "application's output is its own",
        run.output.stdout == expected,
        false,
    )?;
    same("threads ended", run.value("ended", 0)?, 256 * 2)?;
    Ok("block 1 ended, in both launches".into())
}
