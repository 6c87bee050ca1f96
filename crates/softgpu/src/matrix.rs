//! Matrix instructions: a warp's lanes hold a matrix together (`ldmatrix`, `stmatrix`, `movmatrix`,
//! `mma`, `wmma`), or four warps do (`wgmma`). All lanes must execute them together, so unlike
//! other instructions they are executed for the warp and not for its lanes.
//!
//! # What is exact and what is not
//! Elements are read exactly, products are exact, and the products of one element of the result are
//! added to the accumulator one by one in the order of ascending `k`: rounded to f32 each time if
//! the accumulator is f32 or f16 (the latter is rounded to f16 in the end), fused if it is f64,
//! without any rounding if it is s32, which wraps or, with `.satfinite`, saturates in the end.
//! Tensor cores add several products at once with rounding of their own, which is not imitated:
//! results agree wherever the sums are exact.
//!
//! `wgmma` is executed when it is issued, each warp for its 16 rows, which is one of the orders
//! that the ISA allows: the accumulator may not be looked at, nor shared operands changed, before
//! the group is waited for.

pub(crate) mod fragment;
mod multiply;
pub(crate) mod quad_pair;
mod tile;
mod wgmma;
mod wmma;

use crate::block::Block;
use crate::op::matrix::Matrix;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{State, Warp};
use crate::worker::{Flow, Worker};

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
