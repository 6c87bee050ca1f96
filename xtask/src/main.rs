//! Project chores: one place that sets a machine up, builds, tests, runs the demo and packs the GPU bundle.
//!
//! It depends on the `abi` tables only, so that it builds in seconds on a fresh machine.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]

mod artifacts;
mod bundle;
mod conformance;
mod cuda_header;
mod cutlass;
mod demo;
mod generated;
mod header;
mod helpers;
mod libbpf;
mod selftests;
mod setup;
mod shell;
mod soft;
mod sources;
mod test;
mod tidy;

use shell::Failure;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup       install what is missing: clang, libbpf headers, the CUDA 13.0 compiler (into .toolchain)
  build       everything the examples need: the tools, the soft GPU, the example programs and applications
  build tests the same without optimisation, and all that the end-to-end suite runs; prints how to run it
  demo        run the main job on the GPU if there is one, else on the soft GPU
  test        set up, then run every check and test
  codegen     write generated files (include/*.h, docs/helpers.md); `codegen --check` fails if they are out of date
  tidy        check the rules that no compiler checks
  selftests   Linux's own verifier tests against our verifier (downloads 150 MB of kernel sources once)
  conformance every case of bpf_conformance on the interpreter, the soft GPU and the GPU, as one table
  fuzz        generated programs on interpreter and GPU; `cargo xtask fuzz --help` tells the options
  gpu-bundle  pack all that tests/gpu/run.sh needs into target/gpu-bundle; `gpu-bundle dev` the same as `build tests` makes it, where nothing is timed
";

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["setup"] => setup::run().and_then(|_| setup::for_tests()),
        ["build"] => setup::run()
            .and_then(|tools| artifacts::build(&tools, artifacts::Profile::Release))
            .map(|_| ()),
        ["build", "tests"] => setup::run()
            .and_then(|tools| artifacts::build_all(&tools, artifacts::Profile::Dev))
            .map(|made| {
                let folder = made.warpbpf.with_file_name("");
                let suite = folder.join("warpbpf-suite");
                println!("{} soft {} [CASE]", suite.display(), folder.display());
            }),
        ["demo"] => demo::run(),
        ["test"] => test::run(),
        ["codegen"] => generated::write(),
        ["codegen", "--check"] => generated::check(),
        ["tidy"] => tidy::run(),
        ["conformance"] => conformance::run(),
        ["fuzz", options @ ..] => conformance::fuzz(options),
        ["gpu-bundle"] => bundle::run(artifacts::Profile::Release),
        ["gpu-bundle", "dev"] => bundle::run(artifacts::Profile::Dev),
        ["selftests"] => selftests::run(),
        _ => {
            eprint!("{USAGE}");
            return std::process::ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(Failure(message)) => {
            eprintln!("xtask: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}
