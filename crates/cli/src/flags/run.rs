//! Flags of `warpbpf run`, and of verbs that have few.

use std::path::PathBuf;

use clap::Args;

use super::output::OutputFlags;
use super::request::RequestFlags;
use super::work::{TargetFlags, WorkFlags};

/// `warpbpf run`
#[derive(Debug, Args)]
pub struct RunFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    #[command(flatten)]
    pub work: WorkFlags,
    #[command(flatten)]
    pub target: TargetFlags,
}

/// `warpbpf ps`
#[derive(Debug, Args)]
pub struct PsFlags {
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf kernels`
#[derive(Debug, Args)]
pub struct KernelsFlags {
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub target: TargetFlags,
}

/// `warpbpf doctor`
#[derive(Debug, Args)]
pub struct DoctorFlags {
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf report`
#[derive(Debug, Args)]
pub struct ReportFlags {
    /// File written by `run --json -o FILE`
    pub file: PathBuf,
    /// Rows to print per map
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where the application used several GPUs, show what each had
    #[arg(long)]
    pub per_device: bool,
}
