//! Flags that several verbs have: which program, which application, and what is shown.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use warpbpf_tool::Options;

use super::choice::ChoiceFlags;
use super::code::CodeFlags;
use super::output::OutputFlags;
use super::program::{DeviceChoice, Inject, ProgramFlags};

/// Which program, and what is filled into it.
#[derive(Debug, Clone, Args)]
pub struct ObjectFlags {
    /// BPF object files; several are linked into one
    #[arg(value_name = "PROG.bpf.o", required = true)]
    pub objects: Vec<PathBuf>,
    #[command(flatten)]
    pub values: ValueFlags,
}

/// What is put into objects before they are loaded.
#[derive(Debug, Clone, Args)]
pub struct ValueFlags {
    /// Give a global variable (`const volatile` or not) this value before loading: `limit=3`,
    /// `config.size[0]=0x40`
    #[arg(long, value_name = "VAR=VALUE")]
    pub set: Vec<String>,
    /// Types of the target for CO-RE relocations: raw BTF or an ELF file with it; else the
    /// program's own
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

/// How an application is started.
#[derive(Debug, Clone, Args)]
pub struct TargetFlags {
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    /// The application and its arguments
    #[arg(last = true, required = true, value_name = "APP")]
    pub command: Vec<OsString>,
}

/// How programs are put into kernels, and what is shown of them.
#[derive(Debug, Args)]
pub struct WorkFlags {
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub code: CodeFlags,
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// Let `warpbpf maps` change hashes, queues and the like while kernels run; arrays and
    /// variables it always can
    #[arg(long)]
    pub host_ops: bool,
    /// Leave out the programs that are for Linux (`tracepoint/`, `fentry/`, …), and say so
    #[arg(long)]
    pub skip_linux: bool,
    /// End with exit status 123 instead of 0 if no launch had programs; the report says why first
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Events of each ring that the report has; all are counted. If not said, 20 in tables and a
    /// million in JSON, which says how many are left out; with `--json=lines` each is written as it
    /// comes
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Rows to print per map; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where the application uses several GPUs, show what each has; the JSON has both
    #[arg(long)]
    pub per_device: bool,
    /// Seconds between live summaries on a terminal, where events are shown as they come; 0 for
    /// neither
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub interval: f64,
}

impl WorkFlags {
    /// All that they choose.
    pub fn options(&self) -> Options {
        let options = self.choice.chosen(self.code.chosen(self.program.options()));
        Options {
            host_ops: self.host_ops,
            ..options
        }
    }
}
