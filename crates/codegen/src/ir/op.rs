//! Operations of the IR: what they mean, what a pass may do with them.

use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::{HashLayout, HostedLayout, LruLayout, QueueLayout, RingLayout};
use warpbpf_ebpf::Width;

use super::value::{Ty, Value};
use crate::fragment::Tally;

/// Operations on two values of the type of the result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinOp {
    /// Wraps.
    Add,
    /// Wraps.
    Sub,
    /// Low half.
    Mul,
    /// Bitwise, predicates too.
    And,
    /// Bitwise, predicates too.
    Or,
    /// Bitwise, predicates too.
    Xor,
    /// Left shift; the amount is `b32` and counts modulo the width.
    Shl,
    /// Logical right shift; amount as for `Shl`.
    Shr,
    /// Arithmetic right shift; amount as for `Shl`.
    Sar,
    /// Unsigned minimum.
    UMin,
    /// Unsigned; x / 0 = 0. Gone after `lower`.
    UDiv,
    /// Signed; x / 0 = 0, MIN / -1 = MIN. Gone after `lower`.
    SDiv,
    /// Unsigned; x % 0 = x. Gone after `lower`.
    URem,
    /// Signed; x % 0 = x, MIN % -1 = 0. Gone after `lower`.
    SRem,
    /// PTX `div.u`: the divisor is not zero.
    MachineUDiv,
    /// PTX `div.s`: the divisor is neither 0 nor -1.
    MachineSDiv,
    /// PTX `rem.u`: the divisor is not zero.
    MachineURem,
    /// PTX `rem.s`: the divisor is neither 0 nor -1.
    MachineSRem,
}

impl BinOp {
    /// Operands may change places.
    pub const fn commutes(self) -> bool {
        matches!(
            self,
            BinOp::Add | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor | BinOp::UMin
        )
    }
    /// The second operand is a `b32` amount.
    pub const fn is_shift(self) -> bool {
        matches!(self, BinOp::Shl | BinOp::Shr | BinOp::Sar)
    }
}

/// Operations on one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// `b64` to `b32`: the low half.
    Trunc,
    /// `b32` to `b64` with zeros.
    Zext,
    /// `b32` to `b64` with the sign.
    Sext,
    /// Sign-extends the low 8 bits of a `b32`.
    Sext8,
    /// Sign-extends the low 16 bits of a `b32`.
    Sext16,
    /// Swaps the low two bytes of a `b32`, zeroes the others.
    Swap16,
    /// Reverses the bytes of a `b32`.
    Swap32,
    /// Reverses the bytes of a `b64`.
    Swap64,
    /// Of a predicate.
    Not,
}

/// Comparisons of two integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cond {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

impl Cond {
    /// The condition that says the same with operands exchanged.
    pub const fn swapped(self) -> Cond {
        match self {
            Cond::Eq => Cond::Eq,
            Cond::Ne => Cond::Ne,
            Cond::Ult => Cond::Ugt,
            Cond::Ule => Cond::Uge,
            Cond::Ugt => Cond::Ult,
            Cond::Uge => Cond::Ule,
            Cond::Slt => Cond::Sgt,
            Cond::Sle => Cond::Sge,
            Cond::Sgt => Cond::Slt,
            Cond::Sge => Cond::Sle,
        }
    }

    /// The condition that holds when this one does not.
    pub const fn negated(self) -> Cond {
        match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::Ult => Cond::Uge,
            Cond::Ule => Cond::Ugt,
            Cond::Ugt => Cond::Ule,
            Cond::Uge => Cond::Ult,
            Cond::Slt => Cond::Sge,
            Cond::Sle => Cond::Sgt,
            Cond::Sgt => Cond::Sle,
            Cond::Sge => Cond::Slt,
        }
    }
}

/// Special registers whose value does not change while a fragment runs (PTX ISA, "Special
/// Registers"). `%smid` may change when a thread is preempted; it only chooses a copy, so one read
/// per fragment serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special {
    /// `%ctaid`, component 0 to 2.
    Ctaid(u8),
    /// `%ntid`
    Ntid(u8),
    /// `%tid`
    Tid(u8),
    /// `%nctaid`
    Nctaid(u8),
    /// `%laneid`
    Lane,
    /// `%lanemask_eq`
    LanemaskEq,
    /// `%lanemask_lt`
    LanemaskLt,
    /// `%smid`
    Sm,
    /// `%warpid`
    WarpSlot,
    /// `%gridid`
    GridId,
    /// `%dynamic_smem_size`
    DynamicShared,
    /// `%cluster_ctarank`
    ClusterRank,
    /// `%cluster_nctaid`, component 0 to 2.
    ClusterDim(u8),
    /// `%clusterid`, component 0 to 2.
    ClusterIdx(u8),
    /// `%nclusterid`, component 0 to 2.
    ClusterCount(u8),
    /// `%cluster_ctaid`, component 0 to 2.
    ClusterBlock(u8),
    /// A register that the splicer sets at the site.
    Captured(Capture),
}

impl Special {
    /// Its type.
    pub const fn ty(self) -> Ty {
        match self {
            Special::GridId => Ty::B64,
            Special::Captured(capture) if capture.bits() == 64 => Ty::B64,
            _ => Ty::B32,
        }
    }
}

/// Which part of a map's values an access touches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Index of the map.
    pub map: u32,
    /// Byte offset in the value, if it is always the same.
    pub offset: Option<i64>,
}

/// Which memory, and how.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mem {
    /// The fragment's own `.local` array: seen by nobody else.
    Local,
    /// A map value: relaxed at GPU scope, because other SMs write it and L1 is not coherent.
    Map(Origin),
    /// A map value with acquire (loads) or release (stores) at GPU scope.
    MapSync(Origin),
    /// A slot of a hash, read with acquire; what is read decides what happens next, so the load is
    /// never dead.
    MapSlot(Origin),
    /// A ring record that this lane has reserved and not yet given back: plain.
    Record,
    /// The memory of a program that runs by itself: no other thread touches this thread's part, so
    /// plain.
    Memory,
    /// A key in a published node of a hash: nobody writes it any more, so plain.
    Key,
    /// A field of the environment block that never changes while a kernel runs.
    Env,
    /// A word that the host rewrites, of the environment block or of a ring: relaxed at system
    /// scope.
    Clock,
    /// A word of a layout's own that lanes of other SMs change: relaxed at GPU scope.
    Control,
}

/// Read-modify-write operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rmw {
    Add,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

/// Memory order of a read-modify-write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Atomic, orders nothing else.
    Relaxed,
    /// What Linux promises for the fetching atomics.
    AcqRel,
}

/// Layout of a map that the prelude's functions work on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Table {
    /// Keys stay until they are deleted.
    Hash(HashLayout),
    /// Keys that were not used lately are dropped.
    Lru(LruLayout),
    /// The host is asked.
    Hosted(HostedLayout),
}

/// What the hash functions of the prelude do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashOp {
    /// Arguments: base, key words. Result: address of the value or 0.
    Lookup,
    /// Arguments: base, flags, key words, value words. Result: 0 or an error.
    Update,
    /// Arguments: base, key words. Result: 0 or an error.
    Delete,
}

/// What the functions of queues and stacks do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueOp {
    /// Arguments: base, flags, value words. Result: 0 or an error.
    Push,
    /// Arguments: base, address in local memory. Result: 0 or an error; the value or zeros are
    /// there.
    Pop,
    /// As `Pop`.
    Peek,
}

/// Steps of a read of the application's memory (`abi::layout::fence`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FenceOp {
    /// Argument: the fence block's address or 0. Result: address of the counter that this lane is
    /// counted in, or 0.
    Enter,
    /// Arguments: the fence block's address or 0, address, size, number of the state space. Result:
    /// the generic address if all of that lives, else 0.
    Find,
    /// Arguments as those of `Find`. Result: how many bytes live from the address on, at most the
    /// size.
    Room,
    /// Argument: what `Find` gave. Asks for its line in L2, if there is one.
    Prefetch,
    /// Argument: what `Find` gave. Result: `bytes`, 1 to 8, of the application's memory from `off`
    /// on; zeroes if there is nothing.
    Word {
        /// From the address on.
        off: u32,
        /// How many.
        bytes: u32,
    },
    /// Arguments: what `Find` gave, an address of ours, size. Copies so many bytes there, or zeroes
    /// if there is nothing.
    Copy {
        /// Our memory.
        mem: Mem,
        /// Added to our address.
        off: i32,
    },
    /// Argument: what `Enter` gave.
    Leave,
}

/// Steps of making a text in memory of ours. A text is made from its begin on, and longer than its
/// room only in number: what does not fit is counted and not written. `b64` all: `buffer` is an
/// address, `room` its bytes, `at` the characters so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TextOp {
    /// Arguments: buffer, room, at, up to 8 characters as a little-endian word, their number.
    /// Result: the new `at`.
    Put,
    /// Arguments: buffer, room, at, the value, a number of [`crate::text::Number`]. Result: the new
    /// `at`.
    Number,
    /// Arguments: buffer, room, at, an address of the application and how many bytes live there,
    /// most bytes to look at, a number of [`crate::text::Number`]. Appends what is there up to its
    /// NUL, or nothing. Result: the new `at`.
    String,
    /// Arguments: buffer, room, at. Ends the text with a NUL where that fits, else over its last
    /// character.
    End,
    /// Arguments: buffer, an address of the application and how many bytes live there, size. Copies
    /// a string of at most so many bytes with its NUL; zeroes behind it, or all zeroes if it does
    /// not end where nothing lives. Result: its bytes with the NUL, or an error.
    Read,
}

/// Operations of the lanes of a group on values that each of them has. All lanes of the mask
/// execute them, together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LaneOp {
    /// No arguments. Result, `b32`: the lanes that are together here.
    Active,
    /// Arguments: mask, `b64`. Result, `b32`: the lanes whose value is not 0.
    Ballot,
    /// Arguments: mask, `b64`. Result, `b32`: the lanes with the same value.
    Match,
    /// Arguments: mask, `b64`. Result, `b64`: the value of the lowest lane.
    First,
    /// Arguments: mask, `b64`. Result, `b64`: the sum, which wraps.
    Sum,
    /// Arguments: mask, `b64`. Result, `b64`: unsigned.
    Min,
    /// Arguments: mask, `b64`. Result, `b64`: unsigned.
    Max,
    /// Arguments: mask, `b64`. Result, `b64`.
    And,
    /// Arguments: mask, `b64`. Result, `b64`.
    Or,
    /// Arguments: mask, and of each lane a first number and how many behind it are its own, both
    /// `b64`. Result, `b32`: how many different ones all lanes have. Of a lane the first 32 are
    /// looked at; those beyond count whole.
    Distinct,
    /// Arguments as [`LaneOp::Distinct`]. Result, `b32`: the same among those that are alike modulo
    /// 32, where it is most. Of a lane the first 32 count.
    Crowded,
}

/// How values of a block come together in its cell, so that 0 is the neutral element: who wants the
/// smallest, or the bits that all have, brings complements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Merge {
    /// The sum, which wraps.
    Sum,
    /// Unsigned.
    Max,
    /// Bits.
    Or,
}

/// Payload size of a ring record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// Known.
    Const(u32),
    /// A `b64`.
    Value(Value),
}

/// 32 bytes of a record that its commit writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chunk {
    /// Where, from the payload's address on; that is a multiple of 16.
    pub off: i32,
    /// Its `b64` words.
    pub words: [Value; 4],
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A constant of the result's type.
    Const(u64),
    /// Two operands.
    Bin(BinOp, Value, Value),
    /// One operand.
    Un(UnOp, Value),
    /// A comparison.
    Cmp(Cond, Value, Value),
    /// The second operand if the first holds, else the third.
    Select(Value, Value, Value),
    /// A special register.
    Special(Special),
    /// The lanes that arrived at the site together: a register that the splicer sets.
    GroupMask,
    /// Address in the slot table.
    Slot(u32),
    /// A `b64` of two `b32`: the low half, the high half.
    Pack(Value, Value),
    /// Address of a byte of the fragment's local array.
    StackAddr(u32),
    /// `%globaltimer`: different at each read.
    Timer,
    /// `%clock64`: different at each read.
    Clock,
    /// How many lanes a mask (a `b32`) has.
    Popc(Value),
    /// Loads `width`; narrower than 64 bits gives a `b32`, extended as `signed` says.
    Load {
        mem: Mem,
        width: Width,
        signed: bool,
        addr: Value,
        off: i32,
    },
    /// Stores the low `width` of `value`, a `b64` for 64 bits and else a `b32`.
    Store {
        mem: Mem,
        width: Width,
        addr: Value,
        off: i32,
        value: Value,
    },
    /// Stores two `b64` to a record, in one access: the address is a multiple of 16. Only from
    /// `opt_stores`.
    StorePair {
        addr: Value,
        off: i32,
        values: [Value; 2],
    },
    /// An atomic on global memory. Without a result it becomes `red`. `guard` skips it where it is
    /// false. ptxas adds for several lanes at once where it sees the same address in all of them;
    /// `opt_together` does where it cannot.
    Atomic {
        /// `None` for the control words of a layout.
        origin: Option<Origin>,
        op: Rmw,
        order: Order,
        width: Width,
        addr: Value,
        off: i32,
        value: Value,
        compare: Option<Value>,
        guard: Option<Value>,
    },
    /// `membar.sys`
    Membar,
    /// Room for a record in this SM's ring: its payload's address or 0. `shared`: lanes that run
    /// together share one reservation. `header`: writes the record's header; else stores before
    /// each commit do.
    RingReserve {
        ring: RingLayout,
        base: Value,
        size: Size,
        header: bool,
        shared: bool,
    },
    /// Publishes the record at `record`. `size` if it is known; else the header tells. `discard`:
    /// first marks the header, which is written, as that of a discarded record. `shared`: lanes may
    /// commit together. `chunks` are written before: lanes that are together write them for each
    /// other (from `opt_stores`).
    RingCommit {
        ring: RingLayout,
        base: Value,
        record: Value,
        size: Option<u32>,
        discard: bool,
        shared: bool,
        chunks: Vec<Chunk>,
    },
    /// Copies `size` bytes (a `b64`) from `from` to a record, byte by byte: for sizes known only at
    /// run time.
    CopyBytes {
        mem: Mem,
        from: Value,
        off: i32,
        to: Value,
        size: Value,
    },
    /// Adds to a sum in a register, where `guard` holds.
    Tally {
        tally: Tally,
        value: Value,
        guard: Option<Value>,
    },
    /// A call into the prelude.
    Hash {
        op: HashOp,
        table: Table,
        /// The map's place in the slot table, unless it is one in a map.
        slot: Option<u32>,
        args: Vec<Value>,
    },
    /// A call into the prelude.
    Queue {
        op: QueueOp,
        layout: QueueLayout,
        args: Vec<Value>,
    },
    /// A step of a read of the application's memory. They stay in their order.
    Fence { op: FenceOp, args: Vec<Value> },
    /// A step of making a text in memory of this kind.
    Text {
        op: TextOp,
        mem: Mem,
        args: Vec<Value>,
    },
    /// What lanes do together.
    Lanes { op: LaneOp, args: Vec<Value> },
    /// The lanes of a group (`mask`, `b32`) come to a cell of their block with what their values
    /// are together (`value`, `b64`); all execute it. Result, `b32`: 1 in the lane that completes
    /// the block, else 0.
    Arrive {
        cell: u32,
        merge: Merge,
        mask: Value,
        value: Value,
    },
    /// What came together in a cell, `b64`, where `last`, what [`Op::Arrive`] gave, is 1; the cell
    /// is as before the launch then. Else 0.
    Take { cell: u32, last: Value },
}

/// What a pass may do with an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Same operands, same result, nothing else: merge, move, drop.
    Pure,
    /// Depends on when it runs: drop when unused, nothing else.
    Reads,
    /// Stays where it is.
    Writes,
}

impl Op {
    /// What passes may do with it.
    pub fn effect(&self) -> Effect {
        match self {
            Op::Const(_)
            | Op::Bin(..)
            | Op::Un(..)
            | Op::Cmp(..)
            | Op::Select(..)
            | Op::Special(_)
            | Op::GroupMask
            | Op::Slot(_)
            | Op::Pack(..)
            | Op::Popc(_)
            | Op::StackAddr(_)
            | Op::Load { mem: Mem::Env, .. } => Effect::Pure,
            Op::Timer
            | Op::Clock
            | Op::Load {
                mem:
                    Mem::Local
                    | Mem::Map(_)
                    | Mem::Record
                    | Mem::Memory
                    | Mem::Key
                    | Mem::Clock
                    | Mem::Control,
                ..
            } => Effect::Reads,
            Op::Load {
                mem: Mem::MapSync(_) | Mem::MapSlot(_),
                ..
            }
            | Op::Store { .. }
            | Op::StorePair { .. }
            | Op::Atomic { .. }
            | Op::Tally { .. }
            | Op::Membar
            | Op::RingReserve { .. }
            | Op::RingCommit { .. }
            | Op::CopyBytes { .. }
            | Op::Queue { .. }
            | Op::Fence { .. }
            | Op::Text { .. }
            | Op::Lanes { .. }
            | Op::Arrive { .. }
            | Op::Take { .. } => Effect::Writes,
            Op::Hash { op, .. } => match op {
                HashOp::Lookup => Effect::Reads,
                HashOp::Update | HashOp::Delete => Effect::Writes,
            },
        }
    }

    /// Calls `f` with each operand, to read or replace it.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Op::Const(_)
            | Op::Special(_)
            | Op::GroupMask
            | Op::Slot(_)
            | Op::StackAddr(_)
            | Op::Timer
            | Op::Clock
            | Op::Membar => {}
            Op::Bin(_, a, b) | Op::Cmp(_, a, b) | Op::Pack(a, b) => {
                f(a);
                f(b);
            }
            Op::Un(_, a) | Op::Popc(a) | Op::Take { last: a, .. } => f(a),
            Op::Arrive { mask, value, .. } => {
                f(mask);
                f(value);
            }
            Op::Select(p, a, b) => {
                f(p);
                f(a);
                f(b);
            }
            Op::Load { addr, .. } => f(addr),
            Op::Store { addr, value, .. } => {
                f(addr);
                f(value);
            }
            Op::StorePair { addr, values, .. } => {
                f(addr);
                values.iter_mut().for_each(f);
            }
            Op::Atomic {
                addr,
                value,
                compare,
                guard,
                ..
            } => {
                f(addr);
                f(value);
                compare.iter_mut().for_each(&mut f);
                guard.iter_mut().for_each(&mut f);
            }
            Op::Tally { value, guard, .. } => {
                f(value);
                guard.iter_mut().for_each(&mut f);
            }
            Op::RingReserve { base, size, .. } => {
                f(base);
                if let Size::Value(v) = size {
                    f(v);
                }
            }
            Op::RingCommit {
                base,
                record,
                chunks,
                ..
            } => {
                f(base);
                f(record);
                chunks.iter_mut().flat_map(|c| &mut c.words).for_each(f);
            }
            Op::CopyBytes { from, to, size, .. } => {
                f(from);
                f(to);
                f(size);
            }
            Op::Hash { args, .. }
            | Op::Queue { args, .. }
            | Op::Fence { args, .. }
            | Op::Text { args, .. }
            | Op::Lanes { args, .. } => args.iter_mut().for_each(f),
        }
    }

    /// Calls `f` with each operand.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        // One list of operands, not two: a clone of an operation is a few words.
        self.clone().for_each_operand_mut(|v| f(*v));
    }
}
