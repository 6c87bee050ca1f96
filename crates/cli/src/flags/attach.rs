//! Flags of the verbs that go into applications which others have started, or will.

use std::path::PathBuf;

use clap::Args;
use warpbpf_tool::control::TOOL_PATIENCE;

use super::program::{DeviceChoice, Inject};
use super::request::RequestFlags;
use super::work::WorkFlags;

/// What is put into applications, for how long, and what is shown of it.
#[derive(Debug, Args)]
pub struct SessionFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    #[command(flatten)]
    pub work: WorkFlags,
    /// Seconds after which programs are taken out again, instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
}

/// `warpbpf attach`
#[derive(Debug, Args)]
pub struct AttachFlags {
    #[command(flatten)]
    pub whom: WhomFlags,
    /// With `--pid`: its descendants too, those that come later among them
    #[arg(long, requires = "pid")]
    pub children: bool,
    /// Seconds that another tool may take to answer which has programs in a process, or may have
    /// some
    #[arg(long, value_name = "SECONDS", default_value_t = TOOL_PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub tool_timeout: u64,
    #[command(flatten)]
    pub session: SessionFlags,
}

/// Which processes.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct WhomFlags {
    /// The application's process
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Every process of this user, by name or number, that has loaded the CUDA driver, and those
    /// that will
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Every process that may be attached to and has loaded the CUDA driver, and those that will
    #[arg(long)]
    pub all: bool,
}

/// `warpbpf serve`
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// The file name by which applications find this, the same each time
    #[arg(long, value_name = "FILE")]
    pub socket: PathBuf,
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    #[command(flatten)]
    pub session: SessionFlags,
}

/// `warpbpf detach`
#[derive(Debug, Args)]
pub struct DetachFlags {
    /// The application's process
    #[arg(short, long, value_name = "PID")]
    pub pid: u32,
}
