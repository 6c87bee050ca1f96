//! Flags of the verbs that look into programs and run none.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::program::ProgramFlags;
use super::work::ObjectFlags;

/// `warpbpf sites`
#[derive(Debug, Args)]
pub struct SitesFlags {
    /// An executable, a shared library, PTX text, a fatbin or a cubin
    #[arg(value_name = "APP|FILE.ptx")]
    pub file: PathBuf,
    /// Only kernels that this glob names, mangled or not
    #[arg(long, value_name = "GLOB", default_value = "*")]
    pub kernel: String,
    /// Source lines that have code, as `|at=FILE:LINE` takes them, with the places on each
    #[arg(long)]
    pub lines: bool,
    /// Opcodes with how many instructions have them, as `|op=GLOB` takes them
    #[arg(long)]
    pub insns: bool,
    /// Of a file with code for several architectures: what runs on this one
    #[arg(long, value_name = "sm_NN", default_value = "sm_90")]
    pub target: String,
    /// JSON with everything instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf verify`
#[derive(Debug, Args)]
pub struct VerifyFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    #[command(flatten)]
    pub program: ProgramFlags,
    /// Print what the proof knows before each instruction, on each path that it follows
    #[arg(long)]
    pub log: bool,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// What `compile` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// eBPF assembly
    Ebpf,
    /// The code generator's intermediate representation
    Ir,
    /// PTX
    Ptx,
    /// PTX of a function for kernels that have none (`ptxas --compile-as-tools-patch`)
    Probe,
}

/// `warpbpf compile`
#[derive(Debug, Args)]
pub struct CompileFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    /// What to print
    #[arg(long, value_enum, default_value = "ptx")]
    pub emit: Emit,
    /// Only this program
    #[arg(long, value_name = "NAME")]
    pub program_name: Option<String>,
    /// With `--emit ir`: print it as it is after this pass instead of the last one; `all` for every
    /// pass
    #[arg(long, value_name = "PASS")]
    pub after: Option<String>,
    /// With `--emit probe`: addresses of the environment block and the maps, in the order of the
    /// object, as hexadecimal numbers
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub slots: Vec<String>,
    /// Show this kernel of this file (PTX, or anything that `warpbpf sites` reads) before and
    /// after, as a unified diff
    #[arg(long, num_args = 2, value_names = ["KERNEL", "FILE.ptx"], conflicts_with_all = ["emit", "after", "program_name"])]
    pub show_splice: Option<Vec<OsString>>,
    /// With `--show-splice`: each program once, as a function that its sites call
    #[arg(long, requires = "show_splice")]
    pub out_of_line: bool,
    /// Target architecture; of a file with code for several, what runs on it
    #[arg(long, value_name = "sm_NN", default_value = "sm_90")]
    pub target: String,
    #[command(flatten)]
    pub program: ProgramFlags,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf link`
#[derive(Debug, Args)]
pub struct LinkFlags {
    /// BPF object files
    #[arg(value_name = "PROG.bpf.o", required = true)]
    pub objects: Vec<PathBuf>,
    /// File to write
    #[arg(short, long, value_name = "OUT.bpf.o")]
    pub output: PathBuf,
    /// JSON on standard output: what was written, or why nothing was
    #[arg(long)]
    pub json: bool,
}
