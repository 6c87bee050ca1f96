//! Which launches of kernels get probes: a wish of the user that travels to the agent.

use serde::{Deserialize, Serialize};

/// Which launches get probes, of kernels that programs match; by default all. Others run the original and are counted as skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// One launch of so many of each kernel; 0 and 1 for each one.
    pub every: u64,
    /// None of the first so many launches of each kernel.
    pub after: u64,
    /// At most so many launches of each kernel.
    pub at_most: Option<u64>,
    /// Ordinals of devices; empty for all.
    pub gpus: Vec<u32>,
    /// Grids of at least so many blocks.
    pub min_blocks: u64,
    /// Grids of at most so many blocks.
    pub max_blocks: Option<u64>,
    /// Globs over paths of NVTX ranges, in one of which the launch must be made; empty for anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvtx: Vec<String>,
    /// Streams; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamPick>,
}

/// Streams that a user names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamPick {
    /// The default stream, that of the whole context.
    Default,
    /// The default streams of threads.
    PerThread,
    /// Those that were made.
    Other,
    /// The one with this number ([`Operation::stream_number`](crate::Operation)).
    Number(u64),
    /// Those with a name, given by NVTX, that this glob stands for.
    Named(String),
}

impl Choice {
    pub(crate) fn is_all(&self) -> bool {
        *self == Choice::default()
    }

    /// Only NVTX can say which launches are meant.
    pub fn needs_nvtx(&self) -> bool {
        let by_name = |pick: &StreamPick| matches!(pick, StreamPick::Named(_));
        !self.nvtx.is_empty() || self.streams.iter().any(by_name)
    }
}
