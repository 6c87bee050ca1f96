//! Flags that several verbs have: where kernels run, how the agent gets in, and what programs may
//! do.

use clap::{Args, ValueEnum};
use warpbpf_tool::{Options, Placement};

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// The GPU if there is one, else the soft GPU
    Auto,
    /// The GPU; fail if there is none
    Gpu,
    /// The built-in soft GPU
    Soft,
}

/// How the agent gets into the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Inject {
    /// CUDA_INJECTION64_PATH, or LD_PRELOAD if that slot is taken
    Auto,
    /// CUDA_INJECTION64_PATH
    Env,
    /// LD_PRELOAD
    Preload,
}

/// What a program may do.
#[derive(Debug, Clone, Args)]
pub struct ProgramFlags {
    /// Accept programs that can change what the application computes
    #[arg(long)]
    pub allow_modify: bool,
    /// Instructions that one invocation may execute, instead of the attach point's default
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
    /// Accept loops that nothing bounds: one that uses up the budget ends its program, which is
    /// counted and told
    #[arg(long)]
    pub bound_loops: bool,
    /// Refuse programs whose lanes go different ways: branches, map keys and addresses of atomics
    /// that differ inside a warp
    #[arg(long)]
    pub strict_uniform: bool,
    /// Threads of per-thread arrays that do not say `map_extra`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub threads: Option<u64>,
    /// Whose memory a map lies in: `counts=host`, `counts=device`. A hash on the host is asked for
    /// by programs, one key at a time
    #[arg(long, value_name = "MAP=WHERE", value_parser = map_memory)]
    pub map_memory: Vec<(String, Placement)>,
    /// Milliseconds that a program waits for the host when it asks for a key of such a hash
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10000))]
    pub hostcall_timeout: u64,
}

fn map_memory(text: &str) -> Result<(String, Placement), String> {
    match text.rsplit_once('=') {
        Some((map, "host")) if !map.is_empty() => Ok((map.to_owned(), Placement::Host)),
        Some((map, "device")) if !map.is_empty() => Ok((map.to_owned(), Placement::Device)),
        Some((_, "managed")) => Err(
            "managed memory moves under kernels that use it: choose `host` or `device`".to_owned(),
        ),
        _ => Err("write `MAP=host` or `MAP=device`".to_owned()),
    }
}

impl ProgramFlags {
    /// What they choose; nothing else is chosen.
    pub fn options(&self) -> Options {
        Options {
            allow_modify: self.allow_modify,
            budget: self.budget,
            bound_loops: self.bound_loops,
            strict_uniform: self.strict_uniform,
            threads: self.threads,
            map_memory: self.map_memory.clone(),
            hostcall_timeout_us: Some(self.hostcall_timeout * 1000),
            ..Options::default()
        }
    }
}
