//! Lane-local operations: their meaning is `ptx::eval`'s, here are only the rows.

use std::cell::Cell;

use warpbpf_ptx::eval;

use crate::op::Alu;
use crate::op::operand::{NOWHERE, Row};
use crate::warp::{Lanes, Warp, for_lanes};

static ZEROES: [u64; 32] = [0; 32];

/// The row as plain numbers.
///
/// # Safety
/// No cell of the row may be set while the result lives.
unsafe fn numbers(row: &Lanes) -> &[u64; 32] {
    // SAFETY: `Cell<u64>` has the layout of `u64`, and the caller promises that nothing writes
    // meanwhile; rows never leave their thread.
    unsafe { &*std::ptr::from_ref::<[Cell<u64>; 32]>(row).cast::<[u64; 32]>() }
}

pub(crate) fn execute(alu: &Alu, warp: &Warp, base: u32, active: u32) {
    let source = |row: Row| match row {
        NOWHERE => &ZEROES,
        // SAFETY: results go to `first` and `second`, which are copied to rows when the evaluation
        // is over.
        row => unsafe { numbers(warp.row(base, row)) },
    };
    let [a, b, c, x, y] = alu.s;
    let mut first = [0u64; 32];
    let put = |row: Row, values: &[u64; 32]| {
        let row = warp.row(base, row);
        for_lanes(active, |lane| row[lane].set(values[lane]));
    };
    if alu.d[1] == NOWHERE && x == NOWHERE {
        eval::eval_lanes(alu.op, &mut first, source(a), source(b), source(c), active);
    } else {
        let mut second = [0u64; 32];
        let sources = [source(a), source(b), source(c), source(x), source(y)];
        eval::eval_warp(alu.op, &mut first, &mut second, sources, active);
        if alu.d[1] != NOWHERE {
            put(alu.d[1], &second);
        }
    }
    if alu.d[0] != NOWHERE {
        put(alu.d[0], &first);
    }
}
