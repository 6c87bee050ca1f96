//! What serves operations in one context: kernels, copies, and what was launched and not answered
//! yet.

use std::time::{Duration, Instant};

use warpbpf_abi::layout::MapLayout;
use warpbpf_driver::{DriverError, Stream};
use warpbpf_maps::MapPlan;

use super::copies::Copies;
use super::error::HostOpsError;
use crate::runtime::host_ops::op::{Answer, HostOp, Loaded, Memory};

/// How long the operations of one launch may take.
pub(super) const LIMIT: Duration = Duration::from_secs(2);
/// What operations of the host need on a device.
#[derive(Debug)]
pub(crate) struct HostOps {
    /// Of copies that need no kernel: not the kernels' own, which one that does not come to run
    /// blocks.
    pub(super) copies: Stream,
    /// Of the kernels.
    pub(super) stream: Stream,
    /// For values of arrays.
    pub(super) values: Memory,
    pub(super) device: Option<OnDevice>,
    /// Why there is no `device`, although there was to be one.
    pub(super) failed: Option<DriverError>,
}

/// The kernels and their records.
#[derive(Debug)]
pub(super) struct OnDevice {
    /// By map.
    pub(super) kernels: Vec<Result<Loaded, HostOpsError>>,
    pub(super) batch: Option<Batch>,
    /// A launch that was given up and has not ended.
    pub(super) late: bool,
    pub(super) limit: Duration,
}

impl Default for OnDevice {
    fn default() -> OnDevice {
        OnDevice {
            kernels: Vec::new(),
            batch: None,
            late: false,
            limit: LIMIT,
        }
    }
}

/// A batch that is being done on the device.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) map: usize,
    pub(super) ops: Vec<HostOp>,
    pub(super) answers: Vec<Answer>,
    /// Operations in flight: indices of `ops`, by record.
    pub(super) flying: Vec<usize>,
    /// The first operation that was not launched yet.
    pub(super) next: usize,
    pub(super) since: Instant,
    pub(super) copies: Option<Copies>,
}

/// A map of the same type with room for one key, to read and write single values of a large one by
/// the same code.
#[derive(Debug)]
pub(super) struct Reduced {
    pub(super) layout: MapLayout,
    pub(super) plan: MapPlan,
}
