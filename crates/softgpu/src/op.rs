//! A function after decoding: operands are register rows, labels are instruction numbers, addresses of variables are
//! numbers. Decoding happens once; an op is then executed for all lanes of a group at a time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use warpbpf_ptx::eval;

use crate::joins::Joins;

/// A register row: the 32 lanes' values of one virtual register. With the top bit set it is a row of the program's
/// constants, else it is relative to the frame.
pub(crate) type Row = u32;
/// Marks a constant row.
pub(crate) const CONSTANT: Row = 1 << 31;
/// A result that is not wanted (`_`).
pub(crate) const NOWHERE: Row = u32::MAX;

/// Paths of source files by number.
pub(crate) type Files = HashMap<u32, String>;

/// The code of a kernel and of every function it can reach.
#[derive(Debug)]
pub(crate) struct Program {
    /// The entry is function 0.
    pub functions: Vec<Function>,
    /// Values of the constant rows.
    pub constants: Vec<u64>,
    /// Index in `functions` by the module's function number.
    pub by_module_index: HashMap<u32, u32>,
    /// Where dynamic shared memory starts, counted from the start of the block's shared memory.
    pub dynamic_shared_base: u32,
    /// `.file` paths by index.
    pub files: Arc<Files>,
    /// Reads `%envreg`: grids of cooperative groups find their workspace there.
    pub environment: bool,
    /// Estimated registers per thread.
    pub registers: u32,
}

impl Program {
    /// Bytes of shared memory that a block of the kernel needs, without what system software has.
    pub(crate) fn shared_bytes(&self, dynamic: u32) -> u32 {
        (self.dynamic_shared_base - crate::RESERVED_SHARED).saturating_add(dynamic)
    }

    /// Source file and line of an instruction.
    pub(crate) fn source(&self, function: u32, pc: u32) -> Option<(String, u32)> {
        let locations = &self.functions[function as usize].locations;
        let before = locations.partition_point(|&(from, ..)| from <= pc);
        let (_, file, line) = *locations.get(before.checked_sub(1)?)?;
        let path = self.files.get(&file)?;
        // The compiler marks what it made up itself with line 0.
        (line > 0).then(|| (path.clone(), line))
    }
}

/// One decoded function.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: String,
    pub code: Vec<Inst>,
    /// `.loc`: from this instruction on, file and line.
    pub locations: Vec<(u32, u32, u32)>,
    /// Rows a frame needs.
    pub rows: u32,
    /// Bytes of local memory a frame needs: `.local` variables and `.param` variables.
    pub frame: u32,
    pub params: Vec<Place>,
    pub returns: Vec<Place>,
    /// Known when lanes first go different ways.
    pub joins: OnceLock<Joins>,
}

impl Function {
    pub(crate) fn joins(&self) -> &Joins {
        self.joins.get_or_init(|| Joins::new(&self.code))
    }
}

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
    /// Predicate row, [`NOWHERE`] if there is none.
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
    WideAtomic(Box<crate::wide::WideAtomic>),
    CopyAsync(Box<CopyAsync>),
    /// A bulk copy, of bytes or of a box of a tensor.
    Bulk(Box<crate::bulk::Bulk>),
    /// An instruction on a texture or a surface.
    Image(Box<crate::image::ImageOp>),
    Mbarrier(Box<Mbarrier>),
    /// `st.async` or `red.async`.
    AsyncStore(Box<crate::async_store::AsyncStore>),
    /// A video instruction.
    Video(Box<crate::video::Video>),
    /// `vmad`
    MultiplyAddVideo(Box<crate::video::MultiplyAdd>),
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
    Matrix(Box<crate::matrix::Matrix>),
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
    /// Sources; [`NOWHERE`] is zero.
    pub s: [Row; eval::SOURCES],
}

/// State spaces as the addresses of an access see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    SharedCluster,
    Local,
    /// The kernel's parameters.
    Param,
}

impl Space {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Const => "const",
            Space::Shared => "shared",
            Space::SharedCluster => "shared::cluster",
            Space::Local => "local",
            Space::Param => "param",
        }
    }
}

/// The address operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub base: Base,
    pub offset: i64,
}

/// What an address counts from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Base {
    /// A register; with `narrow`, of 32 bits, whose sum with the offset wraps there.
    Row { row: Row, narrow: bool },
    /// The start of the function's frame (local space).
    Frame,
    /// Zero: the offset is the address.
    Absolute,
}

/// A load or store of `rows.len()` elements of `bytes` each.
#[derive(Debug)]
pub(crate) struct Access {
    pub space: Space,
    pub address: Address,
    pub bytes: u32,
    /// Destinations or sources.
    pub rows: Box<[Row]>,
    /// A loaded element is sign-extended: readers cut values to their operand's width, so to 64 bits is right for all.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    U32,
    S32,
    U64,
    S64,
    B16,
    B32,
    B64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

impl Type {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Type::B16 | Type::F16 | Type::Bf16 => 2,
            Type::U32 | Type::S32 | Type::B32 | Type::F16x2 | Type::Bf16x2 | Type::F32 => 4,
            Type::U64 | Type::S64 | Type::B64 | Type::F64 => 8,
        }
    }
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

/// A barrier object in shared memory: pending count, expected count and phase in one 64-bit word of our own layout.
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
    /// Threads that take part, [`NOWHERE`] for all of the block.
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
    /// The member mask, [`NOWHERE`] for the forms without `.sync`.
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
