//! Values, their types, and blocks.

use warpbpf_flow::entity;

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
