//! Flags of `warpbpf trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::choice::ChoiceFlags;
use super::code::CodeFlags;
use super::program::{DeviceChoice, Inject, ProgramFlags};

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Lines and histograms for people
    Text,
    /// A JSON document on each line, in bpftrace's form
    Json,
}

/// `warpbpf trace`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  warpbpf trace -e 'gpu:entry.block:* { @blocks[kernel] = count() }' -- ./app
  warpbpf trace -e 'gpu:entry.block:*gemm* { @start[block] = nsecs } gpu:exit.block:*gemm* { @us = hist((nsecs - @start[block]) / 1000) }' -- ./app
  warpbpf trace -e 'gpu:mem:*|space=global { @bytes[kernel, kind] = sum(size) }' -- ./app
  warpbpf trace -e 'cudaret:cuMemcpy* { @us = hist(duration / 1000) }' -p PID
  warpbpf trace -e 'gpu:entry:* { @threads = count() } interval:s:1 { print(@threads); clear(@threads) }' -p PID
  warpbpf trace -l 'gpu:mem:*' -- ./app
  warpbpf trace script.wt -- ./app          a file may begin with `#!/usr/bin/env -S warpbpf trace`

docs/script.md has the language.")]
pub struct TraceFlags {
    /// A file with a script
    #[arg(
        value_name = "SCRIPT.wt",
        required_unless_present_any = ["expression", "list"],
        conflicts_with = "expression"
    )]
    pub file: Option<PathBuf>,
    /// The script itself
    #[arg(short = 'e', value_name = "SCRIPT")]
    pub expression: Option<String>,
    /// List what a probe stands for and run nothing: places in kernels of the application's file
    /// (`-l 'gpu:mem:*' -- ./app`), functions of the driver (`-l 'cuda:cuMem*'`)
    #[arg(short, long, value_name = "PROBE", conflicts_with_all = ["expression", "file", "pid"])]
    pub list: Option<String>,
    /// Attach to this process, as `warpbpf attach` does, instead of starting an application
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Seconds after which programs are taken out of the process again, instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "pid")]
    pub duration: Option<f64>,
    /// Print the eBPF that the script becomes, and run nothing
    #[arg(short, long)]
    pub dump: bool,
    /// How results are written
    #[arg(short, long, value_enum, default_value = "text")]
    pub format: TraceFormat,
    /// Write results to a file instead of standard output; what is wrong goes to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keys that each map has room for; what finds none is counted and told
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub keys: u32,
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub code: CodeFlags,
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// The application and its arguments
    #[arg(last = true, value_name = "APP")]
    pub command: Vec<OsString>,
}
