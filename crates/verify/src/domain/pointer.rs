//! Values: a number, a pointer into a region, or nothing that may be read.

use warpbpf_ebpf::Pc;

use super::scalar::Scalar;

/// Ties copies of one value together, so that what a branch teaches of one is known of all. 0 ties
/// nothing.
pub type Id = u32;

/// What a register or a spilled stack slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Nothing that may be read.
    Nothing(Why),
    /// A number; two with the same `id` (not 0) are the same number, each plus its `plus`.
    Number {
        /// What is known of it.
        scalar: Scalar,
        /// Ties copies.
        id: Id,
        /// What was added since it was tied; 0 where `id` is 0.
        plus: i64,
    },
    /// A pointer.
    Pointer(Pointer),
}

/// Why a register holds nothing; only for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nothing was written to it.
    NeverWritten,
    /// The call at this instruction overwrote it.
    Call(Pc),
    /// The record that it pointed to was given back at this instruction.
    Released(Pc),
    /// The dynptr whose bytes it pointed to is no more.
    DynptrGone,
    /// It pointed into the stack of a function that has returned, or to the sample that it was
    /// called for.
    FrameGone,
    /// The iterator that it pointed into was destroyed at this instruction.
    Destroyed(Pc),
    /// No instruction from here on reads it.
    Unread,
}

/// A pointer: `offset` bytes from the start of what it points to. For a stack that is the end (the
/// frame pointer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// What it points to.
    pub target: Target,
    /// Distance from there, as a signed number; wraps like the machine's.
    pub offset: Scalar,
    /// It may be null instead; then the offset is 0.
    pub nullable: bool,
    /// Ties copies of a nullable pointer; for a record also names the record, so it is never 0
    /// there.
    pub id: Id,
}

/// What a pointer points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The stack of the function at this call depth.
    Stack(u32),
    /// The context.
    Context,
    /// A map itself; only helpers take it.
    Map(u32),
    /// A value of this map.
    MapValue(u32),
    /// The key of this map that a callback is given; read only.
    MapKey(u32),
    /// The memory in `r1` of a program that runs by itself, with its bytes.
    Memory(u32),
    /// The number that an iterator gave, inside the iterator at this place of the stack; read only.
    Number {
        /// Call depth.
        frame: u32,
        /// From the frame pointer.
        slot: i16,
    },
    /// A local function, by its first instruction; only helpers that call back take it.
    Function(Pc),
    /// What tells the callback of `bpf_user_ringbuf_drain` its sample; only helpers take it.
    Dynptr {
        /// The ring buffer.
        map: u32,
        /// Call depth of the callback.
        frame: u32,
    },
    /// Bytes of such a sample.
    Sample {
        /// The ring buffer.
        map: u32,
        /// Call depth of the callback, after which it is gone.
        frame: u32,
        /// How many.
        size: u32,
    },
    /// Bytes of what the dynptr at this place of the stack stands for.
    Slice {
        /// Call depth.
        frame: u32,
        /// From the frame pointer.
        slot: i16,
        /// What it stands for.
        memory: Memory,
        /// How many bytes.
        size: u32,
        /// The first one is at a multiple of this: 1, 2, 4 or 8.
        align: u8,
    },
    /// A reserved record.
    Record {
        /// Its ring buffer.
        map: u32,
        /// Its bytes.
        size: u32,
    },
}

/// What a dynptr on the stack stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// A part of a value of this map.
    Value(u32),
    /// A record of this ring buffer.
    Record(u32),
}

impl Memory {
    /// The map.
    pub fn map(self) -> u32 {
        match self {
            Memory::Value(map) | Memory::Record(map) => map,
        }
    }
}

impl Value {
    /// A number that nothing is tied to.
    pub const fn number(scalar: Scalar) -> Value {
        Value::Number {
            scalar,
            id: 0,
            plus: 0,
        }
    }

    /// One number.
    pub const fn constant(x: u64) -> Value {
        Value::number(Scalar::constant(x))
    }

    /// A pointer to the start of `target`.
    pub const fn pointer(target: Target) -> Value {
        Value::Pointer(Pointer {
            target,
            offset: Scalar::constant(0),
            nullable: false,
            id: 0,
        })
    }

    /// The number, if it is one.
    pub const fn scalar(&self) -> Option<&Scalar> {
        match self {
            Value::Number { scalar, .. } => Some(scalar),
            Value::Nothing(_) | Value::Pointer(_) => None,
        }
    }
}

impl Pointer {
    /// The offset, if it is the same on every path to here.
    pub fn fixed(&self) -> Option<i64> {
        self.offset.known().map(|x| x as i64)
    }

    /// Both point into memory of the same kind that lies in one piece, or into values of one map:
    /// their order and distance mean something, and tell nothing of where that memory is.
    pub fn is_beside(&self, other: &Pointer) -> bool {
        let same = match (self.target, other.target) {
            (Target::Record { .. }, Target::Record { .. }) => self.id == other.id,
            (Target::Stack(_) | Target::Memory(_) | Target::MapValue(_), _) => true,
            _ => false,
        };
        same && self.target == other.target && !self.nullable && !other.nullable
    }

    /// The largest of 1, 2, 4 and 8 that divides the address on every path. All regions start at a
    /// multiple of 8, but what a dynptr gives.
    pub fn align(&self) -> u32 {
        let start = match self.target {
            Target::Slice { align, .. } => align.into(),
            _ => 8,
        };
        align_of(&self.offset).min(start)
    }
}

/// The largest of 1, 2, 4 and 8 that divides a number.
pub fn align_of(number: &Scalar) -> u32 {
    1 << (number.bits.value | number.bits.mask)
        .trailing_zeros()
        .min(3)
}
