//! Flags of the verbs that exchange programs of an application that runs under another `warpbpf`.

use clap::Args;

use crate::flags::ObjectFlags;

/// Which application, and how long it may take.
#[derive(Debug, Clone, Args)]
pub struct ToFlags {
    /// Only the application with this process id, or those of the `warpbpf run` or `attach` with it
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Seconds that it may take; then the old programs stay
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub limit: u64,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf replace` and `warpbpf add`
#[derive(Debug, Args)]
pub struct ExchangeFlags {
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
