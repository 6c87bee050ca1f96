//! Flags that say how programs are put into kernels, and what those can be told while they run.

use clap::{Args, ValueEnum};
use warpbpf_tool::Options;

use super::cache::KeepFlags;

/// How far programs go into kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Kernels that have PTX, and as `splice` the others, if `ptxas` is there
    Auto,
    /// Kernels that have PTX
    Ptx,
    /// Those, and of others (sm_80, sm_90) the entry and the exits, in their machine code; needs
    /// `ptxas`. NVIDIA's own libraries are left alone
    Splice,
    /// Those, and of others the entry, the exits, the accesses of memory, the barriers and the
    /// calls, by Compute Sanitizer; needs its library and `ptxas`. NVIDIA's own libraries, too
    Sanitizer,
    /// For each kernel `splice`, or `sanitizer` where a program is at accesses of memory, barriers
    /// or functions, if what they need is there; the report says which, and why
    All,
}

/// Which kernel answers are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Occupancy {
    /// The application's own
    Original,
    /// The one with programs
    Instrumented,
}

/// How programs are put into kernels.
#[derive(Debug, Clone, Args)]
pub struct CodeFlags {
    /// Which kernels get programs
    #[arg(long, value_enum, default_value = "ptx")]
    pub backend: Backend,
    /// With `--backend splice`, programs in kernels, too, that use variables of their module: the
    /// copy that runs gets the addresses of those. An H200 has loaded and run one application so
    #[arg(long)]
    pub splice_variables: bool,
    /// With `--backend splice`, programs at loads and stores of global memory in kernels for sm_90:
    /// an experiment, whose limits are in docs/attach.md
    #[arg(long, hide = true)]
    pub splice_memory: bool,
    /// Registers per thread that instrumented kernels may have; what does not fit goes to local
    /// memory. For a kernel whose probes leave room for fewer blocks at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=255))]
    pub max_registers: Option<u32>,
    /// Put each program into a kernel once, as a function that its sites call, instead of inline at
    /// each site: slower to run, but less code and fewer registers
    #[arg(long)]
    pub out_of_line: bool,
    /// Add to counters at each pass of a place in the middle of a kernel, so that they can be
    /// watched while it runs, instead of when a thread leaves it: slower
    #[arg(long)]
    pub live_sums: bool,
    /// Put a gate in front of each program, so that `warpbpf gate off` stops programs in kernels
    /// that run and perhaps never end, and so does `warpbpf remove`. A site reads one word more;
    /// counters are added to at each pass, as with `--live-sums`
    #[arg(long)]
    pub gate: bool,
    /// Put a slot beside each program, so that `warpbpf slots load` brings other programs to the
    /// same places of kernels that run and perhaps never end; they are interpreted there. A site
    /// reads what it does with `--gate`, which this is too. Threads get about 2 KiB of local memory
    #[arg(long)]
    pub slots: bool,
    /// With `warpbpf attach`, look for kernels that were loaded before, and are in no file that is
    /// mapped, in Triton's cache on disk. One that has its name, PTX, the same parameters and as
    /// many registers is taken for it, if it is the only one; was it changed since, its programs'
    /// launches may compute what the new one does
    #[arg(long)]
    pub caches: bool,
    /// What an application is told that asks about its kernels, their attributes and how many
    /// blocks or clusters of them fit: what holds for its own kernel, or for that with programs,
    /// where this has less room, so that a grid that is sized by the answers has programs
    #[arg(long, value_enum, value_name = "WHICH", default_value = "original")]
    pub occupancy: Occupancy,
    #[command(flatten)]
    pub keep: KeepFlags,
}

impl CodeFlags {
    /// `options` with what they choose. Where programs are assembled for machine code depends on
    /// the machine, too, and is chosen with the back end.
    pub fn chosen(&self, options: Options) -> Options {
        Options {
            max_registers: self.max_registers,
            out_of_line: self.out_of_line,
            live_sums: self.live_sums,
            gate: self.gate,
            slots: self.slots,
            caches: self.caches,
            splice_variables: self.splice_variables,
            splice_memory: self.splice_memory,
            occupancy_instrumented: self.occupancy == Occupancy::Instrumented,
            ..options
        }
    }
}
