//! Why a launch runs the original although the kernel may have a variant.

use warpbpf_driver::sys::CUresult;
use warpbpf_session::{LoadedVariant, Room};

/// Why the original runs.
pub(crate) enum FallbackReason {
    /// There is no variant; the user knows.
    None,
    /// No program wants it.
    Unwanted,
    /// Nothing was instrumented in this context.
    Context(Option<usize>),
    /// The grid is resident as a whole and the variant's would not be: blocks that wait for each
    /// other would hang.
    Residency(Residency, &'static LoadedVariant),
    /// The variant cannot have more threads than so many in a block.
    Threads(u32),
    /// Launches of one stream overlap, so they cannot share a launch record.
    Overlap,
    /// A map is being made anew just now.
    Compaction,
    /// No launch record was free.
    Record,
    /// The parameters cannot be extended.
    Params,
    /// The driver refused the variant and took the original.
    Refused(CUresult),
    /// The driver does not say whether its stream is captured.
    Captured(CUresult),
    /// Its graph may be launched by kernels.
    DeviceLaunch,
    /// The launch is a node of a graph: nodes of one kernel would get each other's launch
    /// arguments.
    Graph,
    /// The user wants no probes in it.
    Skipped,
}

/// A grid that is on the device as a whole without probes, but would not be with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Residency {
    pub(crate) blocks: u64,
    pub(crate) threads: u32,
    pub(crate) sms: u32,
    pub(crate) room: Room,
}

impl Residency {
    /// Why the original runs then, for the user.
    pub(crate) fn message(&self, kernel: &str, variant: &LoadedVariant) -> String {
        let Residency {
            blocks,
            threads,
            sms,
            room,
        } = self;
        if room.before == u32::MAX {
            return format!(
                "kernel `{kernel}`: the driver does not say how many of its blocks run at once; blocks that wait for each other could hang with probes, so those launches run without them"
            );
        }
        let (before, after) = (variant.resources.before, variant.resources.after);
        format!(
            "kernel `{kernel}` was launched with {blocks} blocks of {threads} threads: all of them run at once without probes ({} per SM on {sms} SMs), but not with them ({} per SM; registers {} → {}, shared memory {} → {} bytes). Blocks that wait for each other would hang, so such launches run without probes. Programs with fewer live values or of `.warp` or `.block` scope need fewer registers; larger grids and smaller ones are instrumented",
            room.before, room.after, before.registers, after.registers, before.shared, after.shared
        )
    }
}
