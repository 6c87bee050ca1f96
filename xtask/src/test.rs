//! Everything that must pass, on whatever this machine has: formatting, lints, tidy, generated
//! files, and every test.

use std::process::Command;
use std::sync::OnceLock;

use crate::artifacts::{self, Artifacts, BUILT, Extent, Profile};
use crate::bare;
use crate::book;
use crate::conformance;
use crate::generated;
use crate::jobs::{Plan, StepResult};
use crate::log::Log;
use crate::setup::{self, Tools};
use crate::shell::{Failure, cargo, failure, root, succeeds};
use crate::{features, fuzz, tidy, units};

/// How much is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What a change is tried with: formatting, lints, unit and file tests, a dozen end-to-end
    /// cases.
    Quick,
    /// The gate.
    Gate,
    /// The gate, with random searches in full length, everything of ours made to fail, and both
    /// commands on a bare machine.
    Deep,
}

/// The random cases of every run, so that a change is what breaks a build. Set `PROPTEST_RNG_SEED`
/// to explore others.
const SEED: &str = "20261120";
/// Tells tests that searches by chance are to be as long as they can be of use.
const DEEP: &str = "WARPBPF_DEEP";

/// Sets up, builds and runs all checks side by side.
pub fn run(depth: Depth) -> Result<(), Failure> {
    let (tools, made) = (OnceLock::new(), Artifacts::of(Profile::Dev));
    let suite = made.folder.join("warpbpf-suite");
    let mut plan = Plan::new();
    plan.step("tidy", &[], |_| {
        tidy::run()?;
        done(generated::check())
    });
    plan.cargo("format", &[], |log| {
        done(log.run(cargo().args(["fmt", "--all", "--check"])))
    });
    artifacts::add_steps(&mut plan, &tools, Profile::Dev, Extent::Tests);
    plan.step("unit", BUILT, |log| {
        unit(log, artifacts::found(&tools)?, depth)
    });
    plan.cargo("lints", &["cargo"], |log| {
        let clippy = ["clippy", "--workspace", "--all-targets", "--quiet"];
        done(log.cargo(cargo().args(clippy).args(["--", "-D", "warnings"])))
    });
    plan.step("features", &["cargo"], |_| features::check());
    plan.step("suite", BUILT, |log| {
        let mut command = Command::new(&suite);
        command.arg("soft").arg(&made.folder);
        match depth {
            Depth::Quick => command.arg("--quick"),
            Depth::Gate => &mut command,
            Depth::Deep => command.env(DEEP, "1"),
        };
        log.run(&mut command)?;
        counted(log)
    });
    if depth != Depth::Quick {
        add_slow(&mut plan, &tools, &made, depth);
    }
    if depth == Depth::Deep {
        plan.step("faults", BUILT, |log| {
            let mut command = Command::new(&suite);
            command.args(["faults", "soft"]).arg(&made.folder);
            log.run(&mut command)?;
            line_with(log, "faults at")
        });
        plan.cargo("other", &["cargo"], other_processor);
        plan.cargo("fuzz", BUILT, |log| fuzz::all(log, fuzz::SECONDS));
        plan.cargo("bare machine", BUILT, bare::run);
    }
    plan.run()?;
    if succeeds(Command::new("nvidia-smi").arg("-L")) {
        say!("a GPU is here: tests/gpu/run.sh runs the GPU suite from `cargo xtask gpu-bundle`");
    } else {
        say!("skipped: no GPU (tests/gpu)");
    }
    Ok(())
}

/// What the gate has and a quick look has not.
fn add_slow<'p>(
    plan: &mut Plan<'p>,
    tools: &'p OnceLock<Tools>,
    made: &'p Artifacts,
    depth: Depth,
) {
    let kernels = |words: &[&str]| {
        let mut command = Command::new(made.folder.join("warpbpf-kernels"));
        command.args(words).arg(&made.folder);
        command
    };
    let ptxas = || artifacts::found(tools).map(|tools| tools.cuda.join("bin/ptxas"));
    plan.step("kernels", BUILT, move |log| {
        log.run(&mut kernels(&["soft"]))?;
        line_with(log, "kernels ran")
    });
    plan.step("mutants", BUILT, move |log| {
        let mut command = kernels(&["mutants", "soft"]);
        command.args(match depth {
            Depth::Deep => ["--seconds", "600", "--count", "1000000"],
            _ => ["--seconds", "3600", "--count", "12"],
        });
        log.run(command.arg("--ptxas").arg(ptxas()?))?;
        line_with(log, "mutants made=")
    });
    plan.step("text", BUILT, move |log| {
        log.run(kernels(&["text"]).arg(ptxas()?))?;
        line_with(log, "instrumented texts")
    });
    plan.step("conformance", BUILT, |log| {
        conformance::suite(log, &made.folder)?;
        line_with(log, "passed")
    });
    plan.cargo("documents", &["cargo"], |log| {
        let mut command = cargo();
        log.cargo(command.args(["test", "--doc", "--workspace", "--quiet"]))?;
        units::passed(&log.text())
    });
    plan.step("book", &[], book::build);
    // What the parts of tests/gpu/run.sh make of reports, without a GPU.
    plan.step("scripts", &[], |log| {
        let script = root().join("tests/gpu/test_backends.py");
        done(log.run(Command::new("python3").arg("-B").arg(script)))
    });
}

/// Variables that tests of crates are run with.
fn variables(tools: &Tools, depth: Depth) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("WARPBPF_CLANG", tools.clang.clone()),
        ("WARPBPF_CUDA_HOME", tools.cuda.display().to_string()),
        ("WARPBPF_CACHE", "off".to_owned()),
    ];
    if depth == Depth::Deep {
        variables.push((DEEP, "1".to_owned()));
    }
    if depth != Depth::Deep && std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        variables.push(("PROPTEST_RNG_SEED", SEED.to_owned()));
    }
    variables
}

/// Unit and file tests of all crates.
fn unit(log: &Log, tools: &Tools, depth: Depth) -> StepResult {
    let variables = variables(tools, depth);
    let variables: Vec<_> = variables.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let arguments: &[&str] = match depth {
        Depth::Deep => &["--include-ignored"],
        Depth::Quick | Depth::Gate => &[],
    };
    units::run(log, arguments, &variables, depth != Depth::Quick)
}

/// What is for the other processor that the agent is written for is at least compiled.
fn other_processor(log: &Log) -> StepResult {
    if !setup::other_target() {
        let target = setup::OTHER_TARGET;
        return Ok(format!(
            "skipped: no Rust library for {target} (`rustup target add`)"
        ));
    }
    let mut command = cargo();
    command.args(["check", "--quiet", "--target", setup::OTHER_TARGET]);
    for name in ["warpbpf-agent", "warpbpf-inject", "warpbpf"] {
        command.args(["-p", name]);
    }
    // Where a target is named, these are for what is compiled for it alone.
    done(log.cargo(command.env("RUSTFLAGS", "-D warnings")))
}

fn done(result: Result<(), Failure>) -> StepResult {
    result.map(|()| String::new())
}

/// The last line of a log with these words, in which a program of ours says what came of a run.
fn line_with(log: &Log, words: &str) -> StepResult {
    let text = log.text();
    let line = text.lines().rfind(|line| line.contains(words));
    line.map_or_else(
        || failure(format!("nothing says how many `{words}`")),
        |line| Ok(line.split_whitespace().collect::<Vec<_>>().join(" ")),
    )
}

/// The same of the suite, alone on a line, too, as those who look for the numbers of tests expect
/// them.
fn counted(log: &Log) -> StepResult {
    let line = line_with(log, "passed, ")?;
    say!("suite: {line}");
    Ok(line)
}

/// The end-to-end cases with this in their names, on the soft GPU, with all that they print.
pub fn case(name: &str) -> Result<(), Failure> {
    let tools = OnceLock::new();
    let mut plan = Plan::new();
    artifacts::add_steps(&mut plan, &tools, Profile::Dev, Extent::Suite);
    plan.run()?;
    let folder = Profile::Dev.folder();
    let mut suite = Command::new(folder.join("warpbpf-suite"));
    suite.arg("soft").arg(&folder).arg(name).arg("--show");
    crate::shell::run(&mut suite)
}

/// Writes what text tests expect, as it is now, and files that are made of tables.
pub fn bless() -> Result<(), Failure> {
    generated::write()?;
    let tools = OnceLock::new();
    let mut plan = Plan::new();
    plan.step("setup", &[], |log| {
        let there = setup::run(log)?;
        setup::for_tests(log)?;
        let _ = tools.set(there);
        Ok(String::new())
    });
    plan.cargo("bless", &["setup"], |log| {
        let tools = artifacts::found(&tools)?;
        let mut tests = cargo();
        tests.args(["test", "--workspace", "--quiet", "--tests"]);
        tests
            .env("WARPBPF_BLESS", "1")
            .envs(variables(tools, Depth::Gate));
        log.cargo(&mut tests)?;
        units::passed(&log.text())
    });
    plan.run()?;
    say!("look at what changed: git diff");
    Ok(())
}
