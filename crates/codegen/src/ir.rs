//! The code generator's own language: closed, small, SSA with block parameters.
//!
//! A value has one of three types ([`Ty`]) and is defined once, as a parameter of a block or as the result of an
//! instruction; its definition dominates its uses. Arithmetic is eBPF's (RFC 9669) until the pass `lower`, which
//! leaves only operations that mean in PTX what they mean here. Operations that ask which lanes run together
//! ([`Op::RingReserve`], shared atomics) stand where the program put them: no pass moves, copies or merges them.

use warpbpf_abi::layout::{HashLayout, RingLayout};
use warpbpf_ebpf::Width;
use warpbpf_flow::{Entity, entity};

entity! {
    /// A value, printed `v7`.
    pub struct Value, "v"
}

entity! {
    /// A block, printed `b3`.
    pub struct Block, "b"
}

impl Block {
    /// The block where the fragment begins; nothing jumps to it.
    pub const ENTRY: Block = Block(0);
}

/// Type of a value: which PTX register holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ty {
    /// 32 bits.
    B32,
    /// 64 bits: every eBPF register and every address.
    B64,
    /// A predicate.
    Pred,
}

impl Ty {
    /// Bits of an integer type; 1 for a predicate.
    pub const fn bits(self) -> u32 {
        match self {
            Ty::B32 => 32,
            Ty::B64 => 64,
            Ty::Pred => 1,
        }
    }
    /// The bits that a value of this type has.
    pub const fn mask(self) -> u64 {
        match self {
            Ty::B32 => 0xffff_ffff,
            Ty::B64 => u64::MAX,
            Ty::Pred => 1,
        }
    }
}

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
        matches!(self, BinOp::Add | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor | BinOp::UMin)
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

/// Special registers whose value does not change while a fragment runs (PTX ISA, "Special Registers"). `%smid` may
/// change when a thread is preempted; it only chooses a copy, so one read per fragment serves.
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
    /// `%smid`
    Sm,
    /// `%warpid`
    WarpSlot,
    /// `%gridid`, the only one of 64 bits.
    GridId,
}

impl Special {
    /// The same in all lanes of a warp that run together.
    pub const fn is_uniform(self) -> bool {
        match self {
            Special::Ctaid(_)
            | Special::Ntid(_)
            | Special::Nctaid(_)
            | Special::Sm
            | Special::WarpSlot
            | Special::GridId => true,
            Special::Tid(_) | Special::Lane => false,
        }
    }
    /// Its type.
    pub const fn ty(self) -> Ty {
        match self {
            Special::GridId => Ty::B64,
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
    /// A ring record that this lane has reserved and not yet given back: plain.
    Record,
    /// A field of the environment block that never changes while a kernel runs.
    Env,
    /// A field of the environment block that the host rewrites: relaxed at system scope.
    Clock,
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

/// Payload size of a ring record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// Known.
    Const(u32),
    /// A `b64`.
    Value(Value),
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
    /// Address of a byte of the fragment's local array.
    StackAddr(u32),
    /// `%globaltimer`: different at each read.
    Timer,
    /// Loads `width`; narrower than 64 bits gives a `b32`, extended as `signed` says.
    Load { mem: Mem, width: Width, signed: bool, addr: Value, off: i32 },
    /// Stores the low `width` of `value`, a `b64` for 64 bits and else a `b32`.
    Store { mem: Mem, width: Width, addr: Value, off: i32, value: Value },
    /// An atomic on global memory. Without a result it becomes `red`. `guard` skips it where it is false.
    /// `shared`: address and addend are the same in all lanes that run together, so one lane adds for all.
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
        shared: bool,
    },
    /// `membar.sys`
    Membar,
    /// Room for a record in this SM's ring: its payload's address or 0. The header is written. `shared`: lanes that
    /// run together share one reservation.
    RingReserve { ring: RingLayout, base: Value, size: Size, shared: bool },
    /// Publishes (or discards) the record at `record`. `size` if it is known; else the header tells.
    RingCommit { ring: RingLayout, base: Value, record: Value, size: Option<u32>, discard: bool, shared: bool },
    /// Copies `size` bytes (a `b64`) from `from` to a record, byte by byte: for sizes known only at run time.
    CopyBytes { mem: Mem, from: Value, off: i32, to: Value, size: Value },
    /// A call into the prelude.
    Hash { op: HashOp, layout: HashLayout, args: Vec<Value> },
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
            | Op::StackAddr(_)
            | Op::Load { mem: Mem::Env, .. } => Effect::Pure,
            Op::Timer | Op::Load { mem: Mem::Local | Mem::Map(_) | Mem::Record | Mem::Clock, .. } => Effect::Reads,
            Op::Load { mem: Mem::MapSync(_), .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Membar
            | Op::RingReserve { .. }
            | Op::RingCommit { .. }
            | Op::CopyBytes { .. } => Effect::Writes,
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
            | Op::Membar => {}
            Op::Bin(_, a, b) | Op::Cmp(_, a, b) => {
                f(a);
                f(b);
            }
            Op::Un(_, a) => f(a),
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
            Op::Atomic { addr, value, compare, guard, .. } => {
                f(addr);
                f(value);
                compare.iter_mut().for_each(&mut f);
                guard.iter_mut().for_each(&mut f);
            }
            Op::RingReserve { base, size, .. } => {
                f(base);
                if let Size::Value(v) = size {
                    f(v);
                }
            }
            Op::RingCommit { base, record, .. } => {
                f(base);
                f(record);
            }
            Op::CopyBytes { from, to, size, .. } => {
                f(from);
                f(to);
                f(size);
            }
            Op::Hash { args, .. } => args.iter_mut().for_each(f),
        }
    }

    /// Calls `f` with each operand.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        // One list of operands, not two: a clone of an operation is a few words.
        self.clone().for_each_operand_mut(|v| f(*v));
    }
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inst {
    /// What it defines.
    pub result: Option<Value>,
    /// What it does.
    pub op: Op,
}

/// A jump with the values of the target's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Target.
    pub to: Block,
    /// One per parameter.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// Always there.
    Jump(Edge),
    /// `yes` if `cond` holds, else `no`.
    Branch {
        /// A predicate.
        cond: Value,
        /// Where it holds.
        yes: Edge,
        /// Where it does not.
        no: Edge,
    },
    /// Falls out of the fragment.
    Ret,
    /// Ends the thread.
    Exit,
}

impl Term {
    /// The edges.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        let (a, b) = match self {
            Term::Jump(e) => (Some(e), None),
            Term::Branch { yes, no, .. } => (Some(yes), Some(no)),
            Term::Ret | Term::Exit => (None, None),
        };
        a.into_iter().chain(b)
    }
    /// The edges, to change.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let (a, b) = match self {
            Term::Jump(e) => (Some(e), None),
            Term::Branch { yes, no, .. } => (Some(yes), Some(no)),
            Term::Ret | Term::Exit => (None, None),
        };
        a.into_iter().chain(b)
    }
    /// Calls `f` with each value it uses.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        if let Term::Branch { cond, .. } = self {
            f(*cond);
        }
        for edge in self.edges() {
            edge.args.iter().copied().for_each(&mut f);
        }
    }
    /// Calls `f` with each value it uses, to replace it.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        if let Term::Branch { cond, .. } = self {
            f(cond);
        }
        for edge in self.edges_mut() {
            edge.args.iter_mut().for_each(&mut f);
        }
    }
}

/// A basic block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockData {
    /// Values that each edge to it provides.
    pub params: Vec<Value>,
    /// In order.
    pub insts: Vec<Inst>,
    /// Its end.
    pub term: Term,
}

/// A fragment in this language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Func {
    /// Type of each value.
    pub types: Vec<Ty>,
    /// The blocks; the first is the entry.
    pub blocks: Vec<BlockData>,
    /// Bytes of the local array, if any [`Op::StackAddr`] is left.
    pub stack_bytes: u32,
}

impl Func {
    /// An empty one with its entry block.
    pub fn new() -> Func {
        let mut func = Func { types: Vec::new(), blocks: Vec::new(), stack_bytes: 0 };
        func.add_block();
        func
    }
    /// A new value.
    pub fn add_value(&mut self, ty: Ty) -> Value {
        self.types.push(ty);
        Value::new(self.types.len() - 1)
    }
    /// A new block, which falls out until it gets another end.
    pub fn add_block(&mut self) -> Block {
        self.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), term: Term::Ret });
        Block::new(self.blocks.len() - 1)
    }
    /// Adds a parameter to a block.
    pub fn add_param(&mut self, block: Block, ty: Ty) -> Value {
        let value = self.add_value(ty);
        self.blocks[block.index()].params.push(value);
        value
    }
    /// Type of a value.
    pub fn ty(&self, value: Value) -> Ty {
        self.types[value.index()]
    }
    /// Replaces each use of `v` by `to[v]`, following chains.
    pub fn substitute(&mut self, to: &[Value]) {
        let resolve = |v: &mut Value| {
            while to[v.index()] != *v {
                *v = to[v.index()];
            }
        };
        for block in &mut self.blocks {
            for inst in &mut block.insts {
                inst.op.for_each_operand_mut(resolve);
            }
            block.term.for_each_operand_mut(resolve);
        }
    }
    /// The operation that defines each value; `None` for parameters.
    pub fn definitions(&self) -> Vec<Option<Op>> {
        let mut defs = vec![None; self.types.len()];
        for block in &self.blocks {
            for inst in &block.insts {
                if let Some(result) = inst.result {
                    defs[result.index()] = Some(inst.op.clone());
                }
            }
        }
        defs
    }
    /// How often each value is used.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut uses = vec![0; self.types.len()];
        for block in &self.blocks {
            for inst in &block.insts {
                inst.op.for_each_operand(|v| uses[v.index()] += 1);
            }
            block.term.for_each_operand(|v| uses[v.index()] += 1);
        }
        uses
    }
}

impl Default for Func {
    fn default() -> Func {
        Func::new()
    }
}
