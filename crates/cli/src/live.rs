//! Flags of the verbs that go into applications which others have started, or will.

use std::path::PathBuf;

use clap::Args;

use crate::flags::{
    ChoiceFlags, CodeFlags, DeviceChoice, Inject, ObjectFlags, OutputFlags, ProgramFlags,
};

/// What is put into applications, for how long, and what is shown of it.
#[derive(Debug, Args)]
pub struct SessionFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub code: CodeFlags,
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// Let `warpbpf maps` change hashes, queues and the like while kernels run; arrays and variables it always can
    #[arg(long)]
    pub host_ops: bool,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Seconds after which programs are taken out again, instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Events to print per ring; all are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub events: u64,
    /// Rows to print per map; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where the application uses several GPUs, show what each has; the JSON has both
    #[arg(long)]
    pub per_device: bool,
    /// Seconds between live summaries on a terminal, where events are shown as they come; 0 for neither
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub interval: f64,
}

/// `warpbpf attach`
#[derive(Debug, Args)]
pub struct AttachFlags {
    #[command(flatten)]
    pub whom: WhomFlags,
    /// With `--pid`: its descendants too, those that come later among them
    #[arg(long, requires = "pid")]
    pub children: bool,
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
    /// Every process of this user, by name or number, that has loaded the CUDA driver, and those that will
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
