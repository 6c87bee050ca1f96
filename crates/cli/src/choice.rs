//! Flags by which a user leaves launches out.

use clap::Args;
use warpbpf::Choice;

/// Which launches get probes. Others run as they are, and are counted as skipped.
#[derive(Debug, Clone, Args)]
pub struct ChoiceFlags {
    /// Probes in one launch of N of each kernel: the first, and each Nth after it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,
    /// No probes in the first N launches of each kernel
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Probes in at most N launches of each kernel
    #[arg(long, value_name = "N")]
    pub at_most: Option<u64>,
    /// Probes only in launches on these GPUs, by their numbers in the application
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub gpus: Vec<u32>,
    /// Probes only in grids of at least N blocks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_blocks: u64,
    /// Probes only in grids of at most N blocks
    #[arg(long, value_name = "N")]
    pub max_blocks: Option<u64>,
}

impl ChoiceFlags {
    /// As the agent takes them.
    pub fn choice(&self) -> Choice {
        Choice {
            // One of one is all.
            every: if self.every == 1 { 0 } else { self.every },
            after: self.after,
            at_most: self.at_most,
            gpus: self.gpus.clone(),
            min_blocks: self.min_blocks,
            max_blocks: self.max_blocks,
        }
    }
}
