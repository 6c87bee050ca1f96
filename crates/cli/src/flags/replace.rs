//! Flags of the verbs that replace programs of an application that runs under another `warpbpf`.

use clap::{Args, Subcommand, ValueEnum};

use super::work::ObjectFlags;

/// Which application, and how long it may take.
#[derive(Debug, Clone, Args)]
pub struct ToFlags {
    /// Only the application with this process id, or those of the `warpbpf run` or `attach` with it
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Seconds that it may take; a replacement that takes longer is given up, and the old programs
    /// stay
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub limit: u64,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf replace` and `warpbpf add`
#[derive(Debug, Args)]
pub struct ReplaceFlags {
    /// Where.
    #[command(flatten)]
    pub to: ToFlags,
    /// What.
    #[command(flatten)]
    pub object: ObjectFlags,
}

/// `warpbpf remove`
#[derive(Debug, Args)]
pub struct RemoveFlags {
    /// Where.
    #[command(flatten)]
    pub to: ToFlags,
    /// Names of their C functions
    #[arg(value_name = "PROGRAM", required = true)]
    pub programs: Vec<String>,
}

/// `warpbpf gate`
#[derive(Debug, Args)]
pub struct GateFlags {
    /// Where.
    #[command(flatten)]
    pub to: ToFlags,
    /// What becomes of programs in kernels
    #[arg(value_enum, value_name = "on|off")]
    pub to_be: GateState,
    /// Names of their C functions; all if there is none
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<String>,
}

/// What a gate can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GateState {
    /// Programs run
    On,
    /// No program runs, and a site costs one load
    Off,
}

/// `warpbpf slots`
#[derive(Debug, Args)]
pub struct SlotsFlags {
    /// What becomes of slots
    #[command(subcommand)]
    pub verb: SlotsVerb,
}

/// What `slots` does.
#[derive(Debug, Subcommand)]
pub enum SlotsVerb {
    /// Programs of an object, in place of what is in slots: at sites of programs with the same
    /// section
    Load(ReplaceFlags),
    /// Nothing is in slots
    Clear(ToFlags),
}

impl SlotsVerb {
    /// Which application.
    pub fn to(&self) -> &ToFlags {
        match self {
            SlotsVerb::Load(flags) => &flags.to,
            SlotsVerb::Clear(to) => to,
        }
    }
}

/// `warpbpf programs`
#[derive(Debug, Args)]
pub struct ProgramsFlags {
    /// Only the application with this process id, or those of the `warpbpf run` or `attach` with it
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}
