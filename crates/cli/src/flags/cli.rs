//! The whole command line: its verbs, each with a struct of flags.

use clap::{Parser, Subcommand};

use super::attach::{AttachFlags, DetachFlags, ServeFlags};
use super::cache::CacheFlags;
use super::compile::{CompileFlags, LinkFlags, SitesFlags, VerifyFlags};
use super::launch::{LaunchFlags, LaunchInsideFlags};
use super::loader::LoaderFlags;
use super::manual::{CompletionsFlags, ManFlags, NewFlags};
use super::maps::MapsFlags;
use super::replace::{GateFlags, ProgramsFlags, RemoveFlags, ReplaceFlags, SlotsFlags};
use super::run::{DoctorFlags, KernelsFlags, PsFlags, ReportFlags, RunFlags};
use super::tool::ToolCommand;
use super::trace::TraceFlags;
use crate::term::error::STATUSES;

/// eBPF programs inside GPU kernels.
#[derive(Debug, Parser)]
#[command(name = "warpbpf", version, about, max_term_width = 100, after_help = STATUSES)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}

/// Verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an application with a program inside its kernels
    Run(RunFlags),
    /// Run or attach to an application with a script of one line or some in its kernels, and print
    /// what it found
    Trace(TraceFlags),
    #[command(flatten)]
    Tool(ToolCommand),
    /// Put a program into the kernels of applications that others start with some variables in
    /// their environment, until Ctrl-C
    Serve(ServeFlags),
    /// Put a program into the kernels of an application that runs, until Ctrl-C or its end
    Attach(AttachFlags),
    /// Take programs out of an application that runs, whoever put them in
    Detach(DetachFlags),
    /// List the processes that have loaded the CUDA driver, and who has programs in them
    Ps(PsFlags),
    /// Run an application and list its kernels: where their code comes from, whether they can be
    /// instrumented
    Kernels(KernelsFlags),
    /// List what can be probed in a file: kernels, and in them accesses, barriers, lines,
    /// instructions
    Sites(SitesFlags),
    /// Run a tool that uses libbpf, with its GPU programs inside an application's kernels
    Loader(LoaderFlags),
    /// List, read, change and watch maps of applications that run under `warpbpf run`
    Maps(MapsFlags),
    /// List the programs in applications that run under `warpbpf run`
    Programs(ProgramsFlags),
    /// Put other programs in place of those in an application that runs, at one moment for all its
    /// launches
    Replace(ReplaceFlags),
    /// Put more programs into an application that runs
    Add(ReplaceFlags),
    /// Take some programs out of an application that runs
    Remove(RemoveFlags),
    /// Stop the programs in kernels that run, or let them go on, in an application under `warpbpf
    /// run --gate`
    Gate(GateFlags),
    /// Put programs into slots of kernels that run, without loading code, in an application under
    /// `warpbpf run --slots`
    Slots(SlotsFlags),
    /// Run programs that are kernels themselves (`gpu/run`, bpftime's `__directly_run`)
    Launch(LaunchFlags),
    /// Launch a program of a tool that runs under `warpbpf loader` as a kernel, with that tool's
    /// maps
    LaunchInside(LaunchInsideFlags),
    /// Make a folder to begin a program in: an example in C, the headers, a Makefile
    New(NewFlags),
    /// Prove a program safe, or say why it is not
    Verify(VerifyFlags),
    /// Show what a program becomes
    Compile(CompileFlags),
    /// Make one object file of several
    Link(LinkFlags),
    /// List, check and take away compiled code that is kept from one run to the next
    Cache(CacheFlags),
    /// Explain this machine: driver, soft GPU, injection, tools, and which back ends each device
    /// can have
    Doctor(DoctorFlags),
    /// Show a report saved by `run --json -o FILE`
    Report(ReportFlags),
    /// Write what a shell needs to complete this command line
    Completions(CompletionsFlags),
    /// Write manual pages, one for each verb
    Man(ManFlags),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;
    use crate::term::error::STATUSES;

    /// `docs/cli.md` is what `--help` prints; `WARPBPF_BLESS=1` rewrites it.
    #[test]
    fn the_reference_is_the_help() {
        let mut cli = Cli::command();
        cli.build();
        let mut text = String::from(
            "# Command line\n\nWhat `warpbpf VERB --help` prints. Written by the tests of `warpbpf-cli`.\n\n",
        );
        let plain = cli.clone().styles(clap::builder::Styles::plain());
        let verbs = crate::flags::groups::list(&plain);
        text += &format!("```\n{}\n```\n", verbs.trim());
        text += &format!("\n```\n{STATUSES}\n```\n");
        for verb in cli.get_subcommands_mut() {
            if verb.get_name() != "help" {
                let help = verb
                    .clone()
                    .bin_name(format!("warpbpf {}", verb.get_name()))
                    .render_long_help()
                    .to_string();
                let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
                let lines = lines.join("\n");
                let (name, help) = (verb.get_name(), lines.trim_end());
                text += &format!("\n## warpbpf {name}\n\n```\n{help}\n```\n");
            }
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        if std::env::var_os("WARPBPF_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            found, text,
            "docs/cli.md is out of date: run the tests of warpbpf-cli with WARPBPF_BLESS=1"
        );
    }
}
