//! Video instructions: fields of registers, and what is done with them.

use super::operand::Row;

/// What is done with two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Add,
    Subtract,
    AbsoluteDifference,
    Min,
    Max,
    Average,
    ShiftLeft { wrap: bool },
    ShiftRight { wrap: bool },
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// What is done with the result and the third source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    Add,
    Min,
    Max,
}

/// Bits of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub shift: u32,
    pub bits: u32,
}

impl Field {
    pub(crate) const WHOLE: Field = Field { shift: 0, bits: 32 };

    pub(crate) fn get(self, word: u64, signed: bool) -> i64 {
        let up = 64 - self.bits;
        let value = word >> self.shift << up;
        if signed {
            value as i64 >> up
        } else {
            (value >> up) as i64
        }
    }

    pub(crate) fn put(self, word: u64, value: i64) -> u64 {
        let mask = (1u64 << self.bits) - 1;
        word & !(mask << self.shift) | (value as u64 & mask) << self.shift
    }
}

/// One elementwise operation: where its numbers are, counted over both sources for the SIMD forms,
/// and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element {
    pub a: Field,
    pub b: Field,
    pub d: Field,
}

/// All but `vmad`.
#[derive(Debug)]
pub(crate) struct Video {
    pub first: First,
    pub second: Option<Second>,
    pub d_signed: bool,
    pub a_signed: bool,
    pub b_signed: bool,
    pub saturate: bool,
    /// One for the scalar forms.
    pub elements: Box<[Element]>,
    /// The sources of an element are parts of `b:a` as one word of 64 bits.
    pub simd: bool,
    pub d: Row,
    pub s: [Row; 3],
}

/// `vmad`
#[derive(Debug)]
pub(crate) struct MultiplyAdd {
    pub signed: [bool; 2],
    pub fields: [Field; 2],
    /// One of the factors is negative.
    pub negate_product: bool,
    pub negate_c: bool,
    /// `.po`
    pub plus_one: bool,
    pub shift: u32,
    pub saturate: bool,
    pub d: Row,
    pub s: [Row; 3],
}
