//! `wgmma.mma_async`: the product of a warpgroup, with one or both operands in shared memory where
//! a descriptor says. Warp `i` of the group computes rows `16i..16i + 16` when it comes to the
//! instruction.
//!
//! # Layouts in shared memory (PTX ISA, "Shared Memory Matrix Layout")
//! The unit is 16 bytes. A matrix lies K-major (units go along `k`) or, transposed, MN-major (units
//! go along `m` or `n`). With a width of `w` units (1 without swizzle; 2, 4 and 8 for 32, 64 and
//! 128 bytes), 8 lines of `w` units are an atom.
//!
//! | | line in the atom | unit in the line | atoms along units | atoms along lines |
//! |---|---|---|---|---|
//! | K-major | `mn % 8` | along `k` | leading offset (no swizzle), else in the line | stride offset |
//! | MN-major | `k % 8` | along `mn` | stride offset (no swizzle), else leading offset | leading offset (no swizzle), else stride offset |
//!
//! Swizzling then exchanges units within a line: the unit's bits of the address are xor-ed with
//! those of the line, bits 7 to 9, counted from where the descriptor's base offset says that the
//! pattern starts.

use super::multiply::{add_products, gather_elements, scatter};
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::element::Element;
use crate::op::matrix::{GroupMultiply, Left, Part, Shape};
use crate::op::operand::Space;
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::Warp;
use crate::worker::Worker;

/// Warps of a warpgroup.
const WARPS: u32 = 4;
/// Rows that a warp computes.
const WARP_ROWS: usize = 16;

/// A matrix descriptor, offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    base_offset: u32,
    /// Units of 16 bytes in a line: 1, 2, 4 or 8.
    width: u32,
}

impl Descriptor {
    fn from_word(word: u64) -> Descriptor {
        let field = |shift: u32| (word >> shift & 0x3fff) as u32 * 16;
        Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base_offset: (word >> 49 & 7) as u32,
            width: match word >> 62 {
                0 => 1,
                1 => 8,
                2 => 4,
                _ => 2,
            },
        }
    }

    /// Address of the byte at `along` bytes of line `line`; K-major lines are rows or columns,
    /// MN-major ones are `k`.
    fn address(self, line: u32, along: u32, mn_major: bool) -> u32 {
        let width = self.width;
        let (unit, byte) = (along / 16, along % 16);
        let (inside, next) = (unit % width, unit / width);
        let (along_units, along_lines) = match (mn_major, width) {
            (false, _) => (self.leading, self.stride),
            (true, 1) => (self.stride, self.leading),
            (true, _) => (self.leading, self.stride),
        };
        let address = self
            .start
            .wrapping_add(next.wrapping_mul(along_units))
            .wrapping_add((line / 8).wrapping_mul(along_lines))
            .wrapping_add(line % 8 * width * 16 + inside * 16 + byte);
        let pattern = (address >> 7).wrapping_sub(self.base_offset) & (width - 1);
        address ^ pattern << 4
    }
}

impl Worker<'_> {
    pub(super) fn group_multiply(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        multiply: &GroupMultiply,
    ) -> Exec<()> {
        let warps = self.run.threads().div_ceil(32);
        if (warp.index / WARPS + 1) * WARPS > warps {
            let message = format!(
                "`wgmma.mma_async` takes a warpgroup of {WARPS} warps: warp {} is one of {} that follow the last whole group",
                warp.index,
                warps % WARPS
            );
            return Err(Fault::new(0, TrapKind::InvalidSync, message));
        }
        let GroupMultiply {
            elements: [element_a, element_b],
            arithmetic,
            ..
        } = *multiply;
        let Shape { n, k, .. } = multiply.shape;
        let shape = Shape { m: WARP_ROWS, n, k };
        let mut a = match &multiply.a {
            Left::Registers(rows) => gather_elements(warp, at, rows, shape, Part::A(element_a)),
            Left::Descriptor {
                descriptor,
                transposed,
            } => {
                let word = warp.row(at.base, *descriptor)[0].get();
                let first = (warp.index % WARPS) as usize * WARP_ROWS;
                let mut a = vec![0.0; WARP_ROWS * k];
                let lines = (first..first + WARP_ROWS, k, *transposed);
                let put = |row: usize, column: usize, x| a[(row - first) * k + column] = x;
                self.read_shared(env, warp, (word, element_a), lines, put)?;
                a
            }
        };
        if multiply.sign < 0.0 {
            a.iter_mut().for_each(|x| *x = -*x);
        }
        let mut b = vec![0.0; k * n];
        let word = warp.row(at.base, multiply.b)[0].get();
        let put = |column: usize, row: usize, x| b[row * n + column] = x;
        let lines = (0..n, k, multiply.b_transposed);
        self.read_shared(env, warp, (word, element_b), lines, put)?;
        let keep = warp.row(at.base, multiply.scale_d)[0].get() & 1 == 1;
        let mut sums = if keep {
            gather_elements(warp, at, &multiply.d, shape, Part::C(arithmetic.c))
        } else {
            vec![0.0; WARP_ROWS * n]
        };
        add_products(shape, &a, &b, &mut sums, arithmetic);
        scatter(warp, at, &multiply.d, shape, &sums, arithmetic);
        Ok(())
    }

    /// Reads rows (or columns) `mn` of a matrix of `k` elements each.
    fn read_shared(
        &mut self,
        env: &Env,
        warp: &Warp,
        (word, element): (u64, Element),
        (lines, k, mn_major): (std::ops::Range<usize>, usize, bool),
        mut put: impl FnMut(usize, usize, f64),
    ) -> Exec<()> {
        let descriptor = Descriptor::from_word(word);
        // What is smaller than a byte is taken from the word it is in.
        let bits = element.bits() as u32;
        let bytes = if bits < 8 { 4 } else { bits / 8 };
        for mn in lines {
            for inner in 0..k {
                let (line, along) = if mn_major {
                    (inner as u32, mn as u32 * bits / 8)
                } else {
                    (mn as u32, inner as u32 * bits / 8)
                };
                let address = descriptor.address(line, along & !(bytes - 1), mn_major);
                let reach = Reach {
                    space: Space::Shared,
                    address: u64::from(address),
                    bytes,
                    access: "load",
                };
                let pointer = self.pointer(env, warp, 0, reach)?;
                // SAFETY: `pointer` checked bounds and alignment of these bytes.
                let value = unsafe { memory::load(pointer, bytes) };
                let shift = if bits < 8 {
                    inner as u32 * bits % 32
                } else {
                    0
                };
                put(mn, inner, element.number(value >> shift));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(start: u64, leading: u64, stride: u64, mode: u64) -> Descriptor {
        Descriptor::from_word(start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62)
    }

    #[test]
    fn fields() {
        assert_eq!(
            Descriptor::from_word(0x40 | 8 << 16 | 64 << 32 | 5 << 49 | 1 << 62),
            Descriptor {
                start: 0x400,
                leading: 128,
                stride: 1024,
                base_offset: 5,
                width: 8
            }
        );
        assert_eq!(
            [0, 1, 2, 3].map(|m| descriptor(0, 0, 0, m).width),
            [1, 8, 4, 2]
        );
    }

    #[test]
    fn without_swizzle_units_are_core_matrices() {
        let d = descriptor(0x400, 0x80, 0x100, 0);
        assert_eq!(d.address(3, 4, false), 0x400 + 3 * 16 + 4);
        assert_eq!(d.address(3, 20, false), 0x400 + 0x80 + 3 * 16 + 4);
        assert_eq!(d.address(11, 20, false), 0x400 + 0x100 + 0x80 + 3 * 16 + 4);
        // Transposed, the stride is along the rows and the leading offset along `k`.
        assert_eq!(d.address(11, 20, true), 0x400 + 0x80 + 0x100 + 3 * 16 + 4);
        assert_eq!(d.address(3, 20, true), 0x400 + 0x100 + 3 * 16 + 4);
    }

    #[test]
    fn swizzles_exchange_units_of_a_line() {
        let d = descriptor(0x400, 0, 0x400, 1);
        assert_eq!(d.address(0, 0, false), 0x400);
        assert_eq!(
            d.address(3, 18, false),
            0x400 + 3 * 128 + ((1 ^ 3) << 4) + 2
        );
        assert_eq!(d.address(8, 0, false), 0x800);
        // 64 bytes: two lines share bit 7.
        let d = descriptor(0x400, 0, 0x200, 2);
        assert_eq!(d.address(1, 16, false), 0x400 + 64 + 16);
        assert_eq!(d.address(2, 16, false), 0x400 + 128);
        // 32 bytes: four lines do.
        let d = descriptor(0x400, 0, 0x100, 3);
        assert_eq!(d.address(3, 16, false), 0x400 + 96 + 16);
        assert_eq!(d.address(4, 16, false), 0x400 + 128);
        // Transposed, lines are `k` and the leading offset goes on along the rows.
        let d = descriptor(0x400, 0x1000, 0x400, 1);
        assert_eq!(d.address(9, 128 + 16, true), 0x400 + 0x1000 + 0x400 + 128);
        // The pattern may start elsewhere.
        let d = Descriptor {
            base_offset: 1,
            ..descriptor(0x80, 0, 0x400, 1)
        };
        assert_eq!(d.address(0, 16, false), 0x80 + 16);
        assert_eq!(d.address(1, 16, false), 0x100);
    }
}
