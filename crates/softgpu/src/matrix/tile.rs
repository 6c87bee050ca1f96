//! `ldmatrix`, `stmatrix`, `movmatrix`: tiles of 8×8 elements of 16 bits between shared memory and
//! registers. Lane `l` holds elements `2(l % 4)` and the next of row `l / 4`.

use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::matrix::Tiles;
use crate::op::operand::{NOWHERE, Row, Space};
use crate::position::Position;
use crate::trap::Exec;
use crate::warp::Warp;
use crate::windows;
use crate::worker::Worker;

/// Bytes of a tile's row.
const ROW_BYTES: u32 = 16;

/// One tile.
type Tile = [[u16; 8]; 8];

fn from_lanes(word: impl Fn(usize) -> u64) -> Tile {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| (word(4 * row + column / 2) >> (16 * (column % 2))) as u16)
    })
}

fn lane_word(tile: &Tile, lane: usize) -> u64 {
    let (row, column) = (&tile[lane / 4], lane % 4 * 2);
    u64::from(row[column]) | u64::from(row[column + 1]) << 16
}

fn flip(tile: &Tile) -> Tile {
    std::array::from_fn(|row| std::array::from_fn(|column| tile[column][row]))
}

/// `movmatrix`
pub(super) fn transpose(warp: &Warp, at: Position, d: Row, s: Row) {
    let source = warp.row(at.base, s);
    let tile = flip(&from_lanes(|lane| source[lane].get()));
    if d != NOWHERE {
        for (lane, cell) in warp.row(at.base, d).iter().enumerate() {
            cell.set(lane_word(&tile, lane));
        }
    }
}

impl Worker<'_> {
    /// Host pointer of one row of a tile, by the lane that gives its address.
    fn tile_row(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        tiles: &Tiles,
        (lane, access): (usize, &'static str),
    ) -> Exec<*mut u8> {
        let given = tiles.address.of(warp, at, lane);
        let address = match (tiles.space, windows::resolve(given)) {
            (Space::Generic, (Space::Shared | Space::SharedCluster, offset)) => offset,
            // A generic address elsewhere is out of the bounds of shared memory.
            _ => given,
        };
        let reach = Reach {
            space: Space::Shared,
            address,
            bytes: ROW_BYTES,
            access,
        };
        self.pointer(env, warp, lane, reach)
    }

    pub(super) fn load_tiles(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        tiles: &Tiles,
    ) -> Exec<()> {
        let mut loaded = Vec::with_capacity(tiles.rows.len());
        for first in (0..tiles.rows.len()).map(|i| 8 * i) {
            let mut tile = Tile::default();
            for (row, elements) in tile.iter_mut().enumerate() {
                let pointer = self.tile_row(env, warp, at, tiles, (first + row, "load"))?;
                for (i, element) in elements.iter_mut().enumerate() {
                    // SAFETY: `pointer` checked bounds and alignment of the 16 bytes of the row.
                    *element = unsafe { memory::load(pointer.wrapping_add(2 * i), 2) } as u16;
                }
            }
            loaded.push(if tiles.transposed { flip(&tile) } else { tile });
        }
        // Addresses are read before any result is written: they may share registers.
        for (tile, &row) in loaded.iter().zip(&tiles.rows) {
            if row != NOWHERE {
                for (lane, cell) in warp.row(at.base, row).iter().enumerate() {
                    cell.set(lane_word(tile, lane));
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_tiles(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        tiles: &Tiles,
    ) -> Exec<()> {
        for (i, &source) in tiles.rows.iter().enumerate() {
            let source = warp.row(at.base, source);
            let tile = from_lanes(|lane| source[lane].get());
            let tile = if tiles.transposed { flip(&tile) } else { tile };
            for (row, elements) in tile.iter().enumerate() {
                let pointer = self.tile_row(env, warp, at, tiles, (8 * i + row, "store"))?;
                for (i, &element) in elements.iter().enumerate() {
                    // SAFETY: `pointer` checked bounds and alignment of the 16 bytes of the row.
                    unsafe { memory::store(pointer.wrapping_add(2 * i), 2, u64::from(element)) };
                }
            }
        }
        Ok(())
    }
}
