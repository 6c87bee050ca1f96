//! What instructions work on: register rows, addresses, types.

/// A register row: the 32 lanes' values of one virtual register. With the top bit set it is a row
/// of the program's constants, else it is relative to the frame.
pub(crate) type Row = u32;
/// Marks a constant row.
pub(crate) const CONSTANT: Row = 1 << 31;
/// A result that is not wanted (`_`).
pub(crate) const NOWHERE: Row = u32::MAX;

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
