//! What the environment offers, as a value: the verifier asks this table and knows nothing of GPUs
//! otherwise.

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::{self, Capture, Context, FieldSource};
use warpbpf_abi::helpers::{self, Helper, HelperId};

use crate::domain::scalar::Scalar;

/// What an access of `size` bytes at `offset` of the context, a write if the third argument says
/// so, gives.
pub type ForeignContext = fn(offset: u32, size: u32, writes: bool) -> ContextField;

/// What is at a place of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextField {
    /// Any number can be read, or written.
    Number,
    /// The access is not allowed.
    Absent,
    /// It is allowed there, but this verifier has no notion of what it gives; the text names it.
    Unserved(&'static str),
}

/// Where a program is to run and what it may do there.
#[derive(Clone, Debug)]
pub struct Platform {
    /// The kind of site, for messages.
    pub site: Site,
    /// How often it fires: whether it runs in one lane or in all.
    pub scope: Scope,
    /// The struct in `r1`.
    pub context: &'static Context,
    /// In place of the context: `r1` points to so many readable and writable bytes and `r2` holds
    /// their number. For programs that run by themselves. Whoever runs one must see to it that `r1`
    /// is a multiple of 8: accesses are proved aligned on that ground.
    pub memory: Option<u32>,
    /// Somebody looks at what the program returns, so it must be a number. At a site of a kernel
    /// nobody does.
    pub result_kept: bool,
    /// In place of the table of fields: what an access of the context gives. For environments that
    /// are no GPU, whose rules do not fit a table; nothing is compiled for them.
    pub foreign_context: Option<ForeignContext>,
    /// Helpers that exist.
    pub helpers: &'static [Helper],
    /// The user allowed programs that change what the application computes (`--allow-modify`).
    pub allow_modify: bool,
    /// Refuse what makes lanes of a warp go different ways or work on different keys or places
    /// (`--strict-uniform`): varying branches, keys that differ between lanes, atomics at addresses
    /// that do. The generated code needs none of this.
    pub strict_uniform: bool,
    /// Instructions that one invocation may execute, helpers counted at their table cost.
    pub budget: u64,
    /// Instructions that the proof may look at, all paths together, before it gives up.
    pub effort: u64,
}

impl Platform {
    /// [`Platform::effort`] unless somebody asks for more.
    pub const DEFAULT_EFFORT: u64 = 1_000_000;

    /// A site with its default budget, for programs that only observe.
    pub fn new(site: Site) -> Platform {
        Platform {
            site,
            scope: Scope::Thread,
            context: context::of(site),
            memory: None,
            result_kept: false,
            foreign_context: None,
            helpers: helpers::HELPERS,
            allow_modify: false,
            strict_uniform: false,
            budget: site.default_budget(),
            effort: Platform::DEFAULT_EFFORT,
        }
    }

    /// Lets the program change what the application computes.
    pub fn with_allow_modify(self, allow_modify: bool) -> Platform {
        Platform {
            allow_modify,
            ..self
        }
    }

    /// Refuses programs whose lanes go different ways.
    pub fn with_strict_uniform(self, strict_uniform: bool) -> Platform {
        Platform {
            strict_uniform,
            ..self
        }
    }

    /// Fires once per thread, warp or block.
    pub fn with_scope(self, scope: Scope) -> Platform {
        Platform { scope, ..self }
    }

    /// Another budget.
    pub fn with_budget(self, budget: u64) -> Platform {
        Platform { budget, ..self }
    }

    /// `r1` points to `bytes` of memory, `r2` holds their number.
    pub fn with_memory(self, bytes: u32) -> Platform {
        Platform {
            memory: Some(bytes),
            result_kept: true,
            ..self
        }
    }

    /// A cost fits the budget. The largest number stands for all costs from there on, so it fits
    /// none.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        cost <= self.budget && cost < u64::MAX
    }

    /// The helper with this number, if it is offered.
    pub fn helper(&self, id: u32) -> Option<&'static Helper> {
        self.helpers.iter().find(|h| h.id == id)
    }
}

/// Threads of a block, on every architecture that we know (CUDA C++ Programming Guide, "Compute
/// Capabilities").
const BLOCK_THREADS: u64 = 1024;
/// Largest `blockDim.z`.
const BLOCK_DEPTH: u64 = 64;
/// Lanes of a warp.
const LANES: u64 = 32;

/// What a context field can hold.
pub(crate) fn field_range(source: FieldSource, size: u32) -> Scalar {
    match source {
        FieldSource::ThreadIdx(2) => Scalar::range(0, BLOCK_DEPTH - 1),
        FieldSource::ThreadIdx(_) => Scalar::range(0, BLOCK_THREADS - 1),
        FieldSource::BlockDim(2) => Scalar::range(1, BLOCK_DEPTH),
        FieldSource::BlockDim(_) => Scalar::range(1, BLOCK_THREADS),
        FieldSource::Lane => Scalar::range(0, LANES - 1),
        FieldSource::Warp => Scalar::range(0, BLOCK_THREADS / LANES - 1),
        // At least the lane that runs this is active.
        FieldSource::ActiveMask => Scalar::range(1, u64::from(u32::MAX)),
        FieldSource::BlockIdx(_)
        | FieldSource::GridDim(_)
        | FieldSource::Sm
        | FieldSource::KernelId
        | FieldSource::GridId
        | FieldSource::DynamicShared
        | FieldSource::ClusterRank
        | FieldSource::ClusterDim(_) => Scalar::loaded(size * 8, false),
        FieldSource::Captured(capture) => captured_range(capture, size),
    }
}

fn captured_range(capture: Capture, size: u32) -> Scalar {
    match capture {
        // Bytes of an access of one lane are bounded only where no register holds them.
        Capture::Kind => Scalar::range(0, 31),
        Capture::Space | Capture::TargetSpace | Capture::Cache | Capture::BarrierKind => {
            Scalar::range(0, 15)
        }
        Capture::ValueBytes => Scalar::range(0, 32),
        Capture::Taken => Scalar::range(0, 1),
        Capture::ArgCount
        | Capture::Arg(_)
        | Capture::Launch
        | Capture::Node
        | Capture::Site
        | Capture::Line
        | Capture::Address
        | Capture::Bytes
        | Capture::Value(_)
        | Capture::Target
        | Capture::BarrierId
        | Capture::BarrierThreads
        | Capture::Waited
        | Capture::Operand(_)
        | Capture::OperandCount
        | Capture::TakenMask => Scalar::loaded(size * 8, false),
    }
}

/// What a helper that returns a number can return.
pub(crate) fn result_range(helper: HelperId) -> Scalar {
    match helper {
        HelperId::GpuLaneId | HelperId::GpuWarpRank => Scalar::range(0, LANES - 1),
        HelperId::GpuWarpLanes => Scalar::range(1, LANES),
        HelperId::GpuWarpSize => Scalar::constant(LANES),
        HelperId::GpuWarpLeader
        | HelperId::GpuBlockSum
        | HelperId::GpuBlockMin
        | HelperId::GpuBlockMax
        | HelperId::GpuBlockAnd
        | HelperId::GpuBlockOr => Scalar::range(0, 1),
        HelperId::GetNumaNodeId | HelperId::GetCurrentComm => Scalar::constant(0),
        HelperId::Strncmp => Scalar::signed_range(-1, 1),
        // At least this lane is there.
        HelperId::GpuActiveMask | HelperId::GpuWarpMatch => Scalar::range(1, u64::from(u32::MAX)),
        HelperId::GpuWarpConflicts => Scalar::range(0, LANES),
        HelperId::GetPrandomU32
        | HelperId::GpuWarpSectors
        | HelperId::GpuWarpBallot
        | HelperId::GpuClusterRank
        | HelperId::GpuSmCount => Scalar::loaded(32, false),
        HelperId::GetSmpProcessorId | HelperId::GpuSmId | HelperId::GpuWarpId => {
            Scalar::loaded(32, false)
        }
        // 0 or an error number.
        HelperId::MapUpdateElem
        | HelperId::MapDeleteElem
        | HelperId::MapPushElem
        | HelperId::MapPopElem
        | HelperId::MapPeekElem
        | HelperId::PerfEventOutput
        | HelperId::RingbufOutput
        | HelperId::DynptrFromMem
        | HelperId::RingbufReserveDynptr
        | HelperId::DynptrRead
        | HelperId::DynptrWrite
        | HelperId::ProbeRead
        | HelperId::ProbeReadUser
        | HelperId::ProbeReadKernel
        | HelperId::GpuPrefetchL2
        | HelperId::GpuRead => Scalar::signed_range(-4095, 0),
        HelperId::Foreign
        | HelperId::MapLookupElem
        | HelperId::KtimeGetNs
        | HelperId::TracePrintk
        | HelperId::GetCurrentPidTgid
        | HelperId::RingbufReserve
        | HelperId::RingbufSubmit
        | HelperId::RingbufDiscard
        | HelperId::RingbufQuery
        | HelperId::RingbufSubmitDynptr
        | HelperId::RingbufDiscardDynptr
        | HelperId::GpuPuts
        | HelperId::GpuGlobaltimer
        | HelperId::GpuBlockIdx
        | HelperId::GpuBlockDim
        | HelperId::GpuThreadIdx
        | HelperId::ForEachMapElem
        | HelperId::UserRingbufDrain
        | HelperId::DynptrData
        | HelperId::Loop
        | HelperId::GpuMembar
        | HelperId::GpuExit
        | HelperId::GpuGridDim
        | HelperId::GetCurrentUidGid
        | HelperId::ProbeReadStr
        | HelperId::ProbeReadUserStr
        | HelperId::ProbeReadKernelStr
        | HelperId::KtimeGetBootNs
        | HelperId::KtimeGetCoarseNs
        | HelperId::KtimeGetTaiNs
        | HelperId::Snprintf
        | HelperId::TraceVprintk
        | HelperId::MapLookupPercpuElem
        | HelperId::GpuWarpFirst
        | HelperId::GpuWarpSum
        | HelperId::GpuWarpMin
        | HelperId::GpuWarpMax
        | HelperId::GpuWarpAnd
        | HelperId::GpuWarpOr
        | HelperId::GpuClusterIdx
        | HelperId::GpuClusterCount
        | HelperId::GpuClusterBlock
        | HelperId::GpuClusterDim
        | HelperId::GpuBlockId
        | HelperId::GpuThreadId
        | HelperId::GpuKernelId
        | HelperId::GpuGridId
        | HelperId::GpuGraphNode
        | HelperId::GpuClock => Scalar::UNKNOWN,
    }
}
