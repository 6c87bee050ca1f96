//! Matrix instructions: a warp's lanes hold a matrix together (`ldmatrix`, `stmatrix`, `movmatrix`, `mma`, `wmma`), or
//! four warps do (`wgmma`). All lanes must execute them together, so unlike other instructions they are executed for the
//! warp and not for its lanes.
//!
//! # What is exact and what is not
//! Elements are read exactly, products are exact, and the products of one element of the result are added to the
//! accumulator one by one in the order of ascending `k`: rounded to f32 each time if the accumulator is f32 or f16 (the
//! latter is rounded to f16 in the end), fused if it is f64, without any rounding if it is s32, which wraps or, with
//! `.satfinite`, saturates in the end. Tensor cores add several products at once with rounding of their own, which is not
//! imitated: results agree wherever the sums are exact.
//!
//! `wgmma` is executed when it is issued, each warp for its 16 rows, which is one of the orders that the ISA allows: the
//! accumulator may not be looked at, nor shared operands changed, before the group is waited for.

mod element;
pub(crate) mod fragment;
mod multiply;
pub(crate) mod quad_pair;
mod tile;
mod wgmma;
mod wmma;

pub(crate) use element::{Accumulator, Element};
pub(crate) use multiply::{Arithmetic, Combine};

use crate::block::Block;
use crate::op::{Address, Row, Space};
use crate::sched::Worker;
use crate::step::Flow;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{State, Warp};

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
    QuadPairs(quad_pair::QuadPairs),
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
    fn name(&self) -> &'static str {
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

impl Worker<'_> {
    /// Executes a matrix instruction once all lanes of the warp have come to it.
    pub(crate) fn matrix(
        &mut self,
        block: &Block,
        warp: &mut Warp,
        running: usize,
        matrix: &Matrix,
    ) -> Exec<Flow> {
        let group = warp.groups[running];
        if group.mask != warp.live {
            warp.groups[running].state = State::Converge;
            return Ok(Flow::Choose);
        }
        if group.mask != u32::MAX {
            let message = format!(
                "`{}` is executed by the lanes {:#010x} only: it takes all 32 lanes of the warp",
                matrix.name(),
                group.mask
            );
            let lane = group.mask.trailing_zeros();
            return Err(Fault::new(lane, TrapKind::InvalidSync, message));
        }
        let (env, at) = (&block.env, group.at);
        match matrix {
            Matrix::Load(tiles) => self.load_tiles(env, warp, at, tiles)?,
            Matrix::Store(tiles) => self.store_tiles(env, warp, at, tiles)?,
            Matrix::Transpose { d, s } => tile::transpose(warp, at, *d, *s),
            Matrix::Multiply(multiply) => multiply::execute(multiply, warp, at),
            Matrix::QuadPairs(multiply) => quad_pair::execute(multiply, warp, at),
            Matrix::LoadFragment(fragment) => self.load_fragment(env, warp, at, fragment)?,
            Matrix::StoreFragment(fragment) => self.store_fragment(env, warp, at, fragment)?,
            Matrix::Group(multiply) => self.group_multiply(env, warp, at, multiply)?,
        }
        Ok(Flow::Go(at.pc + 1))
    }
}
