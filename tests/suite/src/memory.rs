//! Programs that read the application's memory: every kind of it, exactly as long as it lives.

use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("fenced reads of memory that lives and is gone", fenced),
        case("fenced reads while memory goes", race),
        case("reads without a fence while memory goes", unfenced),
        case("fenced reads do not fit the budget of a load", too_dear),
    ]
}

/// Threads of the kernel, and how often it is launched with requests and without.
const THREADS: u64 = 64;
const ASKED: u64 = 2;
const IDLE: u64 = 1;

fn fenced(bench: &Bench) -> Told {
    let expected = bench.plain("fenced", &[])?;
    let flags = ["--budget", "2048"];
    let run = bench.probed(&flags, &bench.object("fenced"), &bench.app("fenced"), &[])?;
    if run.output.stdout != expected {
        return Err(format!(
            "the application's output differs: `{}` instead of `{}`; {}",
            String::from_utf8_lossy(&run.output.stdout).trim_end(),
            String::from_utf8_lossy(&expected).trim_end(),
            run.errors().trim_end(),
        ));
    }
    let told = String::from_utf8_lossy(&expected).into_owned();
    let requests: u64 = told
        .split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .ok_or_else(|| format!("no number of requests in `{told}`"))?;
    let wrong = run.entries("wrong")?;
    same("requests that disagree", format!("{wrong:?}"), "[]".into())?;
    let result = |key| run.value("results", key);
    same("disagreements", result(1)?, 0)?;
    same("requests", result(0)?, ASKED * requests)?;
    same(
        "threads without one",
        result(2)?,
        ASKED * (THREADS - requests) + IDLE * THREADS,
    )?;
    same("requests that could not be read", result(3)?, 0)?;
    same("loads that disagree", result(5)?, 0)?;
    let (loads, shared) = (result(4)?, result(6)?);
    same("loads of global memory", loads - shared, ASKED * requests)?;
    // Each sum adds 63 numbers to others.
    if shared < (ASKED + IDLE) * 63 {
        return Err(format!("only {shared} loads of shared memory"));
    }
    // Nobody was late, and the table was never too small.
    if run.notes().contains("application's memory") || run.notes().contains("ranges of memory") {
        return Err(run.notes());
    }
    Ok(format!("{requests} requests, {loads} loads"))
}

/// Memory is taken away under a kernel that reads it all the time.
fn race(bench: &Bench) -> Told {
    if bench.soft {
        // Its driver waits for kernels before it takes memory away, and this one waits for the
        // host.
        return Ok("skipped: memory does not go under a running kernel on the soft GPU".into());
    }
    let turns = 500;
    let (flags, arguments) = (["--budget", "2048"], [turns.to_string()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = bench.probed(
        &flags,
        &bench.object("fencerace"),
        &bench.app("fencerace"),
        &arguments,
    )?;
    let output = String::from_utf8_lossy(&run.output.stdout).into_owned();
    same(
        "output",
        output.trim_end(),
        format!("taken away {turns} times").as_str(),
    )?;
    let result = |key| run.value("results", key);
    same("refused and not zeroed", result(2)?, 0)?;
    same("slots that could not be read", result(3)?, 0)?;
    same("other results", result(4)?, 0)?;
    let (read, refused) = (result(0)?, result(1)?);
    if read == 0 || refused == 0 {
        return Err(format!("read {read} times, refused {refused} times"));
    }
    if run.notes().contains("application's memory") {
        return Err(run.notes());
    }
    Ok(format!("read {read} times, refused {refused} times"))
}

/// What [`race`] would see without a fence: the application follows the same address by a plain
/// load.
fn unfenced(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: memory does not go under a running kernel on the soft GPU".into());
    }
    match bench.plain("fencerace", &["500", "unfenced"]) {
        Ok(_) => {
            Err("a kernel that reads without a fence came to its end: `race` proves nothing".into())
        }
        Err(said) if said.contains("illegal memory access") || said.contains(": 700") => {
            Ok("it ends with a fault".into())
        }
        Err(said) => Err(format!("it ends, but not with a fault: {said}")),
    }
}

fn too_dear(bench: &Bench) -> Told {
    let run = bench.probed(&[], &bench.object("fenced"), &bench.app("fenced"), &[])?;
    let errors = run.errors();
    says(&errors, "program `loaded` was refused")?;
    says(&errors, "256")?;
    Ok("refused".into())
}
