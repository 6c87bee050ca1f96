//! Instructions on matrices that a warp, or four, hold together.

use super::element::{Accumulator, Element};
use super::operand::{Address, Row, Space};

/// Rows, columns and inner dimension of a product: `m`×`k` times `k`×`n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// A matrix instruction.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// `ldmatrix`
    Load(Tiles),
    /// `stmatrix`
    Store(Tiles),
    /// `movmatrix`
    Transpose { d: Row, s: Row },
    /// `mma` and `wmma.mma`
    Multiply(Multiply),
    /// `mma.m8n8k4` of f16
    QuadPairs(QuadPairs),
    /// `wmma.load`
    LoadFragment(Fragment),
    /// `wmma.store`
    StoreFragment(Fragment),
    /// `wgmma.mma_async`
    Group(GroupMultiply),
}

/// `ldmatrix` and `stmatrix`: 8×8 tiles of 16-bit elements, one register each.
#[derive(Debug)]
pub(crate) struct Tiles {
    pub space: Space,
    /// Lane `8i + r` gives the address of row `r` of tile `i`.
    pub address: Address,
    pub rows: Box<[Row]>,
    pub transposed: bool,
}

/// A product of fragments.
#[derive(Debug)]
pub(crate) struct Multiply {
    /// `mma` or `wmma.mma`.
    pub name: &'static str,
    pub shape: Shape,
    /// Elements of `a` and `b`.
    pub elements: [Element; 2],
    pub arithmetic: Arithmetic,
    pub a: Box<[Row]>,
    pub b: Box<[Row]>,
    pub c: Box<[Row]>,
    pub d: Box<[Row]>,
}

/// Which matrix of a product a fragment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    A(Element),
    B(Element),
    C(Accumulator),
}

/// `wmma.load` and `wmma.store`: a whole matrix between memory and fragments.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub shape: Shape,
    pub part: Part,
    pub column_major: bool,
    pub space: Space,
    pub address: Address,
    /// Elements from one row (or column) to the next.
    pub stride: Row,
    pub rows: Box<[Row]>,
}

/// The left matrix of a warpgroup's product.
#[derive(Debug)]
pub(crate) enum Left {
    Registers(Box<[Row]>),
    Descriptor { descriptor: Row, transposed: bool },
}

/// `wgmma.mma_async`
#[derive(Debug)]
pub(crate) struct GroupMultiply {
    /// `m` is 64, 16 for each warp.
    pub shape: Shape,
    pub elements: [Element; 2],
    pub arithmetic: Arithmetic,
    /// Accumulator, read if the predicate `scale_d` holds.
    pub d: Box<[Row]>,
    pub a: Left,
    pub b: Row,
    pub b_transposed: bool,
    pub scale_d: Row,
    /// The product of `imm-scale-a` and `imm-scale-b`: 1 or -1.
    pub sign: f64,
}

impl Matrix {
    /// The instruction, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Matrix::Load(_) => "ldmatrix",
            Matrix::Store(_) => "stmatrix",
            Matrix::Transpose { .. } => "movmatrix",
            Matrix::Multiply(multiply) => multiply.name,
            Matrix::QuadPairs(_) => "mma",
            Matrix::LoadFragment(_) => "wmma.load",
            Matrix::StoreFragment(_) => "wmma.store",
            Matrix::Group(_) => "wgmma.mma_async",
        }
    }
}

/// How two elements meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    /// Times. For single bits also `.and.popc`.
    Product,
    /// `.xor.popc`
    Xor,
}

/// Types of the accumulators and what is done with elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arithmetic {
    pub c: Accumulator,
    pub d: Accumulator,
    pub combine: Combine,
    /// `.satfinite`
    pub saturate: bool,
}

/// The four products.
#[derive(Debug)]
pub(crate) struct QuadPairs {
    /// Whether `a` and `b` are held column by column.
    pub by_column: [bool; 2],
    pub arithmetic: Arithmetic,
    pub a: Box<[Row]>,
    pub b: Box<[Row]>,
    pub c: Box<[Row]>,
    pub d: Box<[Row]>,
}
