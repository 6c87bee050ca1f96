//! Project chores: one place that sets a machine up, builds, tests, runs the demo and packs the GPU
//! bundle.
//!
//! It depends on the `abi` tables only, so that it builds in seconds on a fresh machine.

#[macro_use]
mod say;

mod artifacts;
mod bare;
mod book;
mod bundle;
mod circles;
mod compile;
mod conformance;
mod cuda;
mod cuda_header;
mod demo;
mod features;
mod fuzz;
mod generated;
mod header;
mod helpers;
mod jobs;
mod layers;
mod libbpf;
mod links;
mod log;
mod measurements;
mod names;
mod readmes;
mod samples;
mod selftests;
mod setup;
mod shell;
mod soft;
mod sources;
mod test;
mod tidy;
mod units;

use std::process::ExitCode;
use std::sync::OnceLock;

use artifacts::{Extent, Profile};
use jobs::Plan;
use shell::Failure;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup         install what is missing: clang, libbpf headers, the CUDA 13.0 compiler (into .toolchain)
  build         everything the examples need: the tools, the soft GPU, the example programs and applications
  build tests   the same without optimisation, and all that the end-to-end suite runs; prints how to run it
  demo          run the main job on the GPU if there is one, else on the soft GPU
  test          set up, then run every check and test
  test --quick  formatting, lints, unit and file tests, a dozen end-to-end cases
  test --deep   every check and test, random searches in full length, every site of faults, a bare machine
  case NAME     the end-to-end cases with NAME in their names, on the soft GPU, with all that they print
  bless         write what text tests expect, as it is now, and generated files
  codegen       write generated files (include/*.h, docs/helpers.md); `codegen --check` fails if they are out of date
  book          the documents as a book, in target/book (installs mdbook into .toolchain)
  measurements  write docs/measurements.md from benches/results
  tidy          check the rules that no compiler checks
  selftests     Linux's own verifier tests against our verifier (downloads 150 MB of kernel sources once)
  conformance   every case of bpf_conformance on the interpreter, the soft GPU and the GPU, as one table
  fuzz          generated programs on interpreter and GPU; `cargo xtask fuzz --help` tells the options
  fuzz TARGET   any bytes to what reads bytes of others, for a minute or `--seconds N`; `fuzz list` tells the targets, `fuzz all` runs each
  bare          `demo` and `test` from a clone of what is committed, in a bare Debian root (as root, on Debian)
  gpu-bundle    pack all that tests/gpu/run.sh needs into target/gpu-bundle; `gpu-bundle dev` the same as `build tests` makes it, where nothing is timed
";

fn main() -> ExitCode {
    say::status(work())
}

fn work() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["setup"] => set_up(),
        ["build"] => build(Profile::Release, Extent::Examples)
            .and_then(|()| samples::make(&artifacts::Artifacts::of(Profile::Release))),
        ["build", "tests"] => build(Profile::Dev, Extent::Suite).map(|()| {
            let folder = Profile::Dev.folder();
            let suite = folder.join("warpbpf-suite");
            say!("{} soft {} [CASE]", suite.display(), folder.display());
        }),
        ["demo"] => demo::run(),
        ["test"] => test::run(test::Depth::Gate),
        ["test", "--quick"] => test::run(test::Depth::Quick),
        ["test", "--deep"] => test::run(test::Depth::Deep),
        ["case", name] => test::case(name),
        ["bless"] => test::bless(),
        ["book"] => plan_of("book", book::build),
        ["codegen"] => generated::write(),
        ["codegen", "--check"] => generated::check(),
        ["measurements"] => measurements::write(),
        ["tidy"] => tidy::run(),
        ["conformance"] => conformance::run(),
        ["fuzz", target, options @ ..] if !target.starts_with('-') => {
            let words: Vec<&str> = std::iter::once(*target)
                .chain(options.iter().copied())
                .collect();
            fuzz::command(&words)
        }
        ["fuzz", options @ ..] => conformance::fuzz(options),
        ["bare"] => bare::alone(),
        ["gpu-bundle"] => bundle::run(Profile::Release),
        ["gpu-bundle", "dev"] => bundle::run(Profile::Dev),
        ["selftests"] => selftests::run(),
        _ => {
            crate::say::write(2, format_args!("{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(message)) => {
            crate::say::write(2, format_args!("xtask: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

fn set_up() -> Result<(), Failure> {
    let mut plan = Plan::new();
    plan.step("setup", &[], |log| {
        let tools = setup::run(log)?;
        setup::for_tests(log)?;
        Ok(tools.to_string())
    });
    plan.run()
}

/// One step by itself.
fn plan_of(name: &'static str, run: fn(&log::Log) -> jobs::StepResult) -> Result<(), Failure> {
    let mut plan = Plan::new();
    plan.step(name, &[], run);
    plan.run()
}

fn build(profile: Profile, extent: Extent) -> Result<(), Failure> {
    let tools = OnceLock::new();
    let mut plan = Plan::new();
    artifacts::add_steps(&mut plan, &tools, profile, extent);
    plan.run()
}
