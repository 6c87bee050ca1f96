//! Runs the targets that get any bytes (`fuzz/`): each is a test of the crate that reads such
//! bytes, built here with counters at the edges of its code, so that mutants that come to new code
//! are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::artifacts::target_dir;
use crate::jobs::{Plan, StepResult, each};
use crate::log::Log;
use crate::shell::{Failure, cargo, failure};

/// What a target is called, its package, and its test there.
const TARGETS: &[(&str, &str, &str)] = &[
    ("wire-frames", "warpbpf-wire", "fuzz::wire_frames"),
    ("wire-messages", "warpbpf-wire", "fuzz::wire_messages"),
    ("shared-memory", "warpbpf-wire", "fuzz::shared_memory"),
    ("launches", "warpbpf-wire", "fuzz::launches"),
    ("cache-entry", "warpbpf-cache", "fuzz::cache_entry"),
    ("fatbin", "warpbpf-fatbin", "fuzz::fatbins"),
    ("cubin", "warpbpf-fatbin", "fuzz::cubins"),
    ("splice", "warpbpf-sass", "fuzz::splice"),
    ("executables", "warpbpf-session", "fuzz::executables"),
    (
        "functions",
        "warpbpf-agent",
        "uprobe::extent::tests::fuzz_functions",
    ),
    ("process-elf", "warpbpf-inject", "fuzz::process_elf"),
    ("process-lists", "warpbpf-inject", "fuzz::process_lists"),
    ("reports", "warpbpf-cli", "fuzz::reports"),
    ("ptx-texts", "warpbpf-ptx", "fuzz::texts"),
    ("dwarf", "warpbpf-ptx", "fuzz::dwarf"),
    ("loader-bpf", "warpbpf-loader", "tests::fuzz::loader_bpf"),
    ("objects", "warpbpf-object", "fuzz::objects"),
    ("instructions", "warpbpf-verify", "fuzz::instructions"),
];
/// The one package without a library.
const WITHOUT_LIBRARY: &str = "warpbpf-cli";
/// Tests are built for this by name: then what runs while others are compiled has no counters.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// Where corpora and states are kept.
const KEPT: &str = "fuzz-corpus";
/// CPU seconds of a target that nobody says otherwise for.
pub const SECONDS: u64 = 60;

/// `cargo xtask fuzz TARGET|all|list [--seconds N]`.
///
/// # Errors
/// There is no such target, or an input does harm: where it is kept is said.
pub fn command(words: &[&str]) -> Result<(), Failure> {
    let (which, seconds) = match words {
        [which] => (*which, SECONDS),
        [which, "--seconds", seconds] => {
            let number = seconds.parse();
            let number =
                number.map_err(|_| Failure(format!("`{seconds}` is no number of seconds")))?;
            (*which, number)
        }
        _ => return failure("usage: cargo xtask fuzz TARGET|all|list [--seconds N]"),
    };
    if which == "list" {
        for (name, package, test) in TARGETS {
            say!("{name:<14} {package} {test}");
        }
        return Ok(());
    }
    let chosen: Vec<_> = TARGETS
        .iter()
        .filter(|(name, ..)| which == "all" || *name == which)
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
        return failure(format!(
            "there is no target `{which}`; there are {} (and `cargo xtask fuzz --help` for generated programs)",
            names.join(", ")
        ));
    }
    let mut plan = Plan::new();
    plan.cargo("fuzz", &[], |log| some(log, &chosen, seconds));
    plan.run()
}

/// Each target for so long.
///
/// # Errors
/// As [`command`].
pub fn all(log: &Log, seconds: u64) -> StepResult {
    some(log, &TARGETS.iter().collect::<Vec<_>>(), seconds)
}

fn some(log: &Log, targets: &[&(&str, &str, &str)], seconds: u64) -> StepResult {
    let programs = build(log, targets)?;
    let kept = target_dir().join(KEPT);
    each(targets, |(name, package, test)| {
        let (program, folder) = programs
            .get(*package)
            .ok_or_else(|| Failure(format!("cargo built no tests of `{package}`")))?;
        let own = Log::new(&format!("fuzz-{name}"));
        let mut command = Command::new(program);
        command
            .args(["--exact", test, "--nocapture"])
            .current_dir(folder);
        command.env("WARPBPF_FUZZ_SECONDS", seconds.to_string());
        command.env("WARPBPF_FUZZ_FOLDER", &kept);
        let done = own.run(&mut command);
        let text = own.text();
        if let Err(Failure(error)) = done {
            let said = text.lines().rfind(|line| line.contains(" harm: "));
            return failure(format!("`{name}`: {}", said.unwrap_or(&error)));
        }
        let Some(line) = text
            .lines()
            .find_map(|line| line.find("fuzz: ").map(|at| &line[at..]))
        else {
            return failure(format!(
                "`{name}`: no test is called `{test}` in `{package}`"
            ));
        };
        say!("{line}");
        log.add(line);
        Ok(())
    })?;
    Ok(format!(
        "{} targets, {seconds} s of CPU each",
        targets.len()
    ))
}

/// Test programs of packages, with the folders that they run in.
type Programs = BTreeMap<String, (PathBuf, PathBuf)>;

fn build(log: &Log, targets: &[&(&str, &str, &str)]) -> Result<Programs, Failure> {
    let counters = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters";
    let mut packages: Vec<&str> = targets.iter().map(|(_, package, _)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    let mut programs = Programs::new();
    let (libraries, others): (Vec<&str>, Vec<&str>) = packages
        .iter()
        .partition(|package| **package != WITHOUT_LIBRARY);
    for (kind, packages) in [(&["--lib"][..], libraries), (&["--bin", "warpbpf"], others)] {
        if packages.is_empty() {
            continue;
        }
        let mut command = cargo();
        command
            .args(["test", "--no-run", "--profile", "fuzz", "--target", MACHINE])
            .args(kind);
        command.arg("--target-dir").arg(target_dir().join("fuzz"));
        for package in packages {
            command.args(["-p", package]);
        }
        command.env("RUSTFLAGS", counters);
        let messages = log.cargo_messages(&mut command)?;
        for message in messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            let (Some(executable), Some(manifest)) = (
                message["executable"].as_str(),
                message["manifest_path"].as_str(),
            ) else {
                continue;
            };
            let folder = Path::new(manifest).parent().unwrap_or(Path::new("."));
            let Some(package) = packages_of(targets).find(|package| {
                folder.file_name().and_then(|name| name.to_str())
                    == Some(package.trim_start_matches("warpbpf-"))
            }) else {
                continue;
            };
            programs.insert(package.to_owned(), (executable.into(), folder.into()));
        }
    }
    Ok(programs)
}

fn packages_of<'t>(targets: &'t [&(&str, &str, &str)]) -> impl Iterator<Item = &'t str> {
    targets.iter().map(|(_, package, _)| *package)
}
