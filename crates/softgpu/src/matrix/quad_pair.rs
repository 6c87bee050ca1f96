//! `mma.m8n8k4` of f16: four products at once, each of a pair of quads, lanes `4p..4p + 4` and
//! `16 + 4p..20 + 4p`. It is the form of the first tensor cores and its fragments are like no
//! others (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type").

use super::multiply::add_products;
use crate::op::element::{Accumulator, Element};
use crate::op::matrix::{Arithmetic, QuadPairs, Shape};
use crate::op::operand::{NOWHERE, Row};
use crate::position::Position;
use crate::warp::{Lanes, Warp};

pub(crate) const SHAPE: Shape = Shape { m: 8, n: 8, k: 4 };
/// Registers of a lane's four elements of `a` or `b`.
pub(crate) const FACTOR_REGISTERS: usize = 2;

/// Registers of a lane's eight elements of an accumulator.
pub(crate) fn sum_registers(c: Accumulator) -> usize {
    8 / c.per_register()
}

/// Row and column of element `i` of `a`; those of `b` are the same with the roles exchanged.
fn place_of_factor(lane: usize, i: usize, along_k: bool) -> (usize, usize) {
    let half = 4 * (lane / 16);
    if along_k {
        (half + lane % 4, i)
    } else {
        (half + i, lane % 4)
    }
}

fn place_of_sum(lane: usize, i: usize, c: Accumulator) -> (usize, usize) {
    let half = 4 * (lane / 16);
    if c == Accumulator::F16 {
        (half + lane % 4, i)
    } else {
        (half + (lane & 1) + (i & 2), (i & 4) + (lane & 2) + (i & 1))
    }
}

/// A lane's element `i`.
fn bits(rows: &[&Lanes], lane: usize, i: usize, width: usize) -> u64 {
    let per = 32 / width;
    rows[i / per][lane].get() >> (i % per * width)
}

pub(super) fn execute(multiply: &QuadPairs, warp: &Warp, at: Position) {
    let Arithmetic { c, d, .. } = multiply.arithmetic;
    let rows =
        |rows: &[Row]| -> Vec<&Lanes> { rows.iter().map(|&r| warp.row(at.base, r)).collect() };
    let (in_a, in_b, in_c) = (rows(&multiply.a), rows(&multiply.b), rows(&multiply.c));
    // All four are computed before the first result is written: registers may be the same.
    let sums: Vec<[f64; 64]> = (0..4)
        .map(|pair| {
            let (mut a, mut b, mut sums) = ([0.0; 32], [0.0; 32], [0.0; 64]);
            for lane in lanes_of(pair) {
                for i in 0..4 {
                    let number = |rows: &[&Lanes]| Element::F16.number(bits(rows, lane, i, 16));
                    let (row, k) = place_of_factor(lane, i, !multiply.by_column[0]);
                    a[row * 4 + k] = number(&in_a);
                    let (column, k) = place_of_factor(lane, i, multiply.by_column[1]);
                    b[k * 8 + column] = number(&in_b);
                }
                for i in 0..8 {
                    let (row, column) = place_of_sum(lane, i, c);
                    sums[row * 8 + column] = c.number(bits(&in_c, lane, i, c.bits()));
                }
            }
            add_products(SHAPE, &a, &b, &mut sums, multiply.arithmetic);
            sums
        })
        .collect();
    let per = d.per_register();
    for (pair, sums) in sums.iter().enumerate() {
        for lane in lanes_of(pair) {
            for (register, &out) in multiply.d.iter().enumerate() {
                if out == NOWHERE {
                    continue;
                }
                let mut word = 0;
                for i in 0..per {
                    let (row, column) = place_of_sum(lane, register * per + i, d);
                    word |= d.bits_of(sums[row * 8 + column], false) << (i * d.bits());
                }
                warp.row(at.base, out)[lane].set(word);
            }
        }
    }
}

fn lanes_of(pair: usize) -> impl Iterator<Item = usize> {
    (4 * pair..4 * pair + 4).chain(16 + 4 * pair..20 + 4 * pair)
}
