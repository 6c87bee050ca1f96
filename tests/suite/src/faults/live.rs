//! Scenarios in which the tool does something while the application runs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::judge::Facts;
use super::scenario::Scenario;
use super::trial::{Files, PATIENCE, TICK, within};
use crate::attach::Application;
use crate::process::{self, Owned, Signal};
use crate::run::Bench;

/// `warpbpf attach` waits 70 s for the last words of an agent that does not hear it.
const LEAVING: Duration = Duration::from_secs(90);
/// Launches of each kernel while programs come, are there, and are gone.
const BEFORE: u64 = 3;
const MEANWHILE: u64 = 15;
const AFTER: u64 = 5;

/// Starts an application, attaches to it, launches, detaches, launches. Its results are checked at
/// each step.
pub fn attach(
    bench: &Bench,
    scenario: &Scenario,
    files: &Files,
    environment: &dyn Fn(&mut Command),
) -> Result<Facts, String> {
    let mut command = Command::new(bench.app(scenario.app));
    if bench.soft {
        command.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
    }
    environment(&mut command);
    let mut application = Application::start(command)?;
    let _watch = application.watch(PATIENCE + LEAVING);
    application.launch(BEFORE)?;
    let mut command = bench.warpbpf("attach");
    command
        .args(["-p", &application.pid(), "--json", "-o"])
        .arg(&files.report);
    command.arg(bench.object(scenario.object));
    command
        .stdout(Stdio::null())
        .stderr(files.make(&files.errors)?);
    let mut tool = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
    let end = Instant::now() + PATIENCE;
    let said = || std::fs::read_to_string(&files.errors).unwrap_or_default();
    let attached = loop {
        if tool.try_wait().map_err(|e| e.to_string())?.is_some() {
            break false;
        }
        if said().contains("attached to process") {
            break true;
        }
        if Instant::now() > end {
            return Err(format!("`warpbpf attach` hangs; it said `{}`", said()));
        }
        std::thread::sleep(TICK);
    };
    if !attached && said().contains("may not be traced") {
        return Err("skipped: ptrace is not permitted".into());
    }
    for _ in 0..MEANWHILE {
        application.launch(1)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    if attached {
        process::signal(tool.id(), Signal::Interrupt)?;
    }
    let status = within(&mut tool, "`warpbpf attach`", LEAVING)?;
    application.launch(AFTER)?;
    application.end()?;
    Ok(Facts {
        status,
        attached,
        ..Facts::default()
    })
}

/// Programs put into slots of a session, and taken out, as [`operate`] has it.
pub fn fill(bench: &Bench, tool: u32) {
    let object = bench.object("slots_spin");
    for verb in ["load", "load", "clear", "load", "load"] {
        let mut command = bench.warpbpf("slots");
        command.args([verb, "--json", "--pid", &tool.to_string()]);
        command.args((verb == "load").then_some(&object));
        unheard(command, "`warpbpf slots`");
    }
}

/// Programs replaced in a session, as [`operate`] has it. What is taken out is only what came
/// besides, so that every launch has a version.
pub fn replace(bench: &Bench, tool: u32) {
    let objects = ["replace", "replace_other", "replace_brings"];
    let [versions, other, brings] = objects.map(|name| bench.object(name).display().to_string());
    let steps: [(&str, &[&str]); 6] = [
        ("replace", &[&versions, "--set", "version=2"]),
        ("add", &[&brings]),
        ("add", &[&other]),
        ("remove", &["other"]),
        ("replace", &[&versions, "--set", "version=3"]),
        ("replace", &[&versions, "--set", "version=4"]),
    ];
    for (verb, words) in steps {
        let mut command = bench.warpbpf(verb);
        command.args(words);
        command.args(["--json", "--limit", "10", "--pid", &tool.to_string()]);
        unheard(command, "`warpbpf` with a replacement");
    }
}

/// Operations on maps of a session, whose answers are nobody's business: that they come is.
pub fn operate(bench: &Bench, tool: u32) {
    let words: [&[&str]; 5] = [
        &["lookup", "rounds", "0"],
        &["update", "orders", "7", "value=9", "times=1"],
        &["lookup", "orders", "7"],
        &["delete", "orders", "7"],
        &["dump", "orders"],
    ];
    for words in words {
        let mut command = Command::new(bench.folder().join("warpbpf"));
        command
            .arg("maps")
            .args(words)
            .args(["--json", "--pid", &tool.to_string()]);
        unheard(command, "`warpbpf maps`");
    }
}

fn unheard(mut command: Command, name: &str) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Ok(mut child) = Owned::spawn(&mut command) {
        // One that hangs is ended; that the run hangs with it is seen there.
        let _ = within(&mut child, name, PATIENCE);
    }
    std::thread::sleep(Duration::from_millis(30));
}
