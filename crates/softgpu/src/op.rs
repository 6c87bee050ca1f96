//! A function after decoding: operands are register rows, labels are instruction numbers, addresses
//! of variables are numbers. Decoding happens once; an op is then executed for all lanes of a group
//! at a time.

pub(crate) mod bulk;
pub(crate) mod element;
pub(crate) mod image;
pub(crate) mod matrix;
pub(crate) mod operand;
pub(crate) mod video;

use warpbpf_ptx::eval;

use crate::op::operand::{Address, AtomicOp, Row, Space, Type};

/// Where a parameter or argument lives.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// `.param` space: bytes of the frame.
    Frame { offset: u32, size: u32 },
    /// A register or constant.
    Row(Row),
}

/// A guarded instruction.
#[derive(Debug)]
pub(crate) struct Inst {
    /// Predicate row, `NOWHERE` if there is none.
    pub guard: Row,
    pub negated: bool,
    /// Line in the module's text, from 1.
    pub line: u32,
    pub op: Op,
}

/// What an instruction does.
#[derive(Debug)]
pub(crate) enum Op {
    /// A lane-local computation: its meaning is in `ptx::eval`.
    Alu(Box<Alu>),
    Mov {
        d: Row,
        s: Row,
    },
    Not {
        d: Row,
        s: Row,
    },
    Pack {
        d: Row,
        parts: Box<[Row]>,
        bits: u32,
    },
    Unpack {
        parts: Box<[Row]>,
        s: Row,
        bits: u32,
    },
    Special {
        d: Row,
        which: Special,
    },
    /// Address of a byte of the frame, in local space.
    FrameAddress {
        d: Row,
        offset: u32,
    },
    Cvta {
        d: Row,
        s: Row,
        space: Space,
        to: bool,
    },
    IsSpace {
        d: Row,
        s: Row,
        space: Space,
    },
    /// `mapa`: the address of the same variable in another block of the cluster.
    MapRank {
        d: Row,
        s: Row,
        rank: Row,
        generic: bool,
    },
    /// `getctarank`.
    GetRank {
        d: Row,
        s: Row,
        generic: bool,
    },
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    /// A 128-bit atomic.
    WideAtomic(Box<WideAtomic>),
    CopyAsync(Box<CopyAsync>),
    /// A bulk copy, of bytes or of a box of a tensor.
    Bulk(Box<bulk::Bulk>),
    /// An instruction on a texture or a surface.
    Image(Box<image::ImageOp>),
    Mbarrier(Box<Mbarrier>),
    /// `st.async` or `red.async`.
    AsyncStore(Box<AsyncStore>),
    /// A video instruction.
    Video(Box<video::Video>),
    /// `vmad`
    MultiplyAddVideo(Box<video::MultiplyAdd>),
    /// `alloca`
    Allocate {
        d: Row,
        size: Row,
        align: u32,
    },
    /// `stacksave`
    SaveStack {
        d: Row,
    },
    /// `stackrestore`
    RestoreStack {
        s: Row,
    },
    Branch {
        target: u32,
    },
    BranchIndex {
        index: Row,
        targets: Box<[u32]>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Barrier(Box<Barrier>),
    ClusterBarrier {
        wait: bool,
        arrive: bool,
    },
    /// A warp-synchronous instruction other than the barrier.
    Collective(Box<Collective>),
    /// An instruction on a matrix that the whole warp holds.
    Matrix(Box<matrix::Matrix>),
    WarpSync {
        mask: Row,
    },
    ActiveMask {
        d: Row,
    },
    /// Ends the group's time slice.
    Sleep,
    Fence,
    Nothing,
    Trap,
    Breakpoint,
    /// Decoded as far as its name: executing it is a trap with this message.
    Unsupported(Box<str>),
}

/// A lane-local computation.
#[derive(Debug)]
pub(crate) struct Alu {
    pub op: eval::Op,
    /// Result and second result.
    pub d: [Row; 2],
    /// Sources; `NOWHERE` is zero.
    pub s: [Row; eval::SOURCES],
}

/// A load or store of `rows.len()` elements of `bytes` each.
#[derive(Debug)]
pub(crate) struct Access {
    pub space: Space,
    pub address: Address,
    pub bytes: u32,
    /// Destinations or sources.
    pub rows: Box<[Row]>,
    /// A loaded element is sign-extended: readers cut values to their operand's width, so to 64
    /// bits is right for all.
    pub signed: bool,
}

/// `atom` or `red`.
#[derive(Debug)]
pub(crate) struct Atomic {
    pub op: AtomicOp,
    pub ty: Type,
    pub space: Space,
    pub address: Address,
    /// One per vector element.
    pub d: Box<[Row]>,
    pub b: Box<[Row]>,
    /// Third operand of `cas`.
    pub c: Row,
}

/// `cp.async`, done at once.
#[derive(Debug)]
pub(crate) struct CopyAsync {
    pub to: Address,
    pub from: Address,
    pub bytes: u32,
    /// Bytes really copied, the rest are zeroes.
    pub source_bytes: Row,
    /// The predicate that makes the copy all zeroes.
    pub ignore: Row,
}

/// A barrier object in shared memory: pending count, expected count and phase in one 64-bit word of
/// our own layout.
#[derive(Debug)]
pub(crate) struct Mbarrier {
    pub kind: MbarrierKind,
    pub space: Space,
    pub address: Address,
    pub d: Row,
    /// Count, state, parity or transaction bytes, by kind.
    pub s: Row,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MbarrierKind {
    Init,
    Invalidate,
    Arrive {
        drop: bool,
        expect: bool,
    },
    ExpectTx,
    CompleteTx,
    TestState,
    TestParity,
    PendingCount,
    /// `cp.async.mbarrier.arrive`
    CopyArrive {
        noinc: bool,
    },
}

/// Whom to call.
#[derive(Debug)]
pub(crate) enum Callee {
    /// Index in the program.
    Direct(u32),
    /// A function address in a register.
    Indirect(Row),
    /// A function the emulator provides.
    Builtin(Builtin),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    Vprintf,
    Malloc,
    Free,
    AssertFail,
    /// `cudaGetParameterBufferV2`: room for the parameters of a kernel to be launched.
    ParameterBuffer,
    /// `cudaLaunchDeviceV2`
    LaunchDevice,
    /// `cudaGetLastError` and `cudaPeekAtLastError`: launches tell their errors themselves.
    LastError,
    /// `cudaGraphSetConditional`: the handle is where the value lies.
    SetConditional,
}

impl Builtin {
    /// The function of that name which a driver brings into every module.
    pub(crate) fn named(name: &str) -> Option<Builtin> {
        Some(match name {
            "vprintf" => Builtin::Vprintf,
            "malloc" => Builtin::Malloc,
            "free" => Builtin::Free,
            "__assertfail" => Builtin::AssertFail,
            // The device runtime's, as nvcc calls them and as programs of older versions do.
            "__cudaCDP2GetParameterBufferV2" | "cudaGetParameterBufferV2" => {
                Builtin::ParameterBuffer
            }
            "__cudaCDP2LaunchDeviceV2"
            | "__cudaCDP2LaunchDeviceV2_ptsz"
            | "cudaLaunchDeviceV2"
            | "cudaLaunchDeviceV2_ptsz" => Builtin::LaunchDevice,
            "cudaGraphSetConditional" => Builtin::SetConditional,
            "__cudaCDP2GetLastError" | "__cudaCDP2PeekAtLastError" => Builtin::LastError,
            _ => return None,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Call {
    pub callee: Callee,
    pub arguments: Box<[Place]>,
    pub results: Box<[Place]>,
}

#[derive(Debug)]
pub(crate) struct Barrier {
    pub id: Row,
    /// Threads that take part, `NOWHERE` for all of the block.
    pub count: Row,
    pub kind: BarrierKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Popc { d: Row, p: Row, negated: bool },
    And { d: Row, p: Row, negated: bool },
    Or { d: Row, p: Row, negated: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleKind {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What the lanes of a member mask do together.
#[derive(Debug)]
pub(crate) struct Collective {
    /// The member mask, `NOWHERE` for the forms without `.sync`.
    pub mask: Row,
    pub what: Together,
}

#[derive(Debug)]
pub(crate) enum Together {
    Shuffle(Shuffle),
    Vote {
        kind: Vote,
        d: Row,
        p: Row,
        negated: bool,
    },
    Match {
        all: bool,
        wide: bool,
        d: Row,
        p: Row,
        s: Row,
    },
    Reduce {
        op: AtomicOp,
        ty: Type,
        d: Row,
        s: Row,
    },
    Elect {
        d: Row,
        p: Row,
    },
}

#[derive(Debug)]
pub(crate) struct Shuffle {
    pub kind: ShuffleKind,
    pub d: Row,
    pub p: Row,
    pub s: Row,
    pub lane: Row,
    pub clamp: Row,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// Special registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NwarpId,
    SmId,
    NsmId,
    GridId,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHi,
    Clock64,
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    TotalSharedSize,
    AggregateSharedSize,
    DynamicSharedSize,
    /// A constant: where reserved shared memory and its parts lie.
    ReservedShared(u32),
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtaRank,
    ClusterNctaRank,
    IsExplicitCluster,
    Environment(u8),
    /// Counters and handles that are not there.
    Absent,
}

/// A store or reduction of registers.
#[derive(Debug)]
pub(crate) struct AsyncStore {
    pub to: Address,
    pub rows: Box<[Row]>,
    /// Bytes of each register.
    pub bytes: u32,
    /// Barrier object in the same block's shared memory.
    pub barrier: Address,
    pub reduce: Option<(AtomicOp, Type)>,
}

/// `atom.cas.b128` or `atom.exch.b128`; halves from the lower one.
#[derive(Debug)]
pub(crate) struct WideAtomic {
    pub op: AtomicOp,
    pub space: Space,
    pub address: Address,
    pub d: [Row; 2],
    pub b: [Row; 2],
    /// What `cas` puts there.
    pub c: [Row; 2],
}
