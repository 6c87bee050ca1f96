//! The product itself, and fragments in registers as matrices of numbers.

use super::fragment::{Place, place};
use crate::op::element::Accumulator;
use crate::op::matrix::{Arithmetic, Combine, Multiply, Part, Shape};
use crate::op::operand::{NOWHERE, Row};
use crate::position::Position;
use crate::warp::Warp;

/// `mma` and `wmma.mma` on the registers of a whole warp.
pub(super) fn execute(multiply: &Multiply, warp: &Warp, at: Position) {
    let Multiply {
        shape, arithmetic, ..
    } = *multiply;
    let Shape { m, n, k } = shape;
    let [element_a, element_b] = multiply.elements;
    let a = gather_elements(warp, at, &multiply.a, shape, Part::A(element_a));
    let b = gather_elements(warp, at, &multiply.b, shape, Part::B(element_b));
    debug_assert!(a.len() == m * k && b.len() == k * n, "whole matrices");
    let mut sums = gather_elements(warp, at, &multiply.c, shape, Part::C(arithmetic.c));
    add_products(shape, &a, &b, &mut sums, arithmetic);
    scatter(warp, at, &multiply.d, shape, &sums, arithmetic);
}

/// The matrix in a fragment, row by row.
pub(super) fn gather_elements(
    warp: &Warp,
    at: Position,
    rows: &[Row],
    shape: Shape,
    part: Part,
) -> Vec<f64> {
    let Shape { m, n, k } = shape;
    let (size, width) = match part {
        Part::A(_) => (m * k, k),
        Part::B(_) => (k * n, n),
        Part::C(_) => (m * n, n),
    };
    let mut matrix = vec![0.0; size];
    let (bits, number): (usize, &dyn Fn(u64) -> f64) = match part {
        Part::A(element) | Part::B(element) => (element.bits(), &move |x| element.number(x)),
        Part::C(accumulator) => (accumulator.bits(), &move |x| accumulator.number(x)),
    };
    for (register, &row) in rows.iter().enumerate() {
        let row = warp.row(at.base, row);
        for (lane, cell) in row.iter().enumerate() {
            let word = cell.get();
            for i in 0..(32 / bits).max(1) {
                let Place { row, column } = place(shape, part, lane, register, i);
                matrix[row * width + column] = number(word >> (i * bits));
            }
        }
    }
    matrix
}

/// Puts sums into the registers of an accumulator.
pub(super) fn scatter(
    warp: &Warp,
    at: Position,
    rows: &[Row],
    shape: Shape,
    sums: &[f64],
    arithmetic: Arithmetic,
) {
    let Arithmetic { d, saturate, .. } = arithmetic;
    let per = d.per_register();
    for (register, &row) in rows.iter().enumerate() {
        if row == NOWHERE {
            continue;
        }
        for (lane, cell) in warp.row(at.base, row).iter().enumerate() {
            let mut word = 0;
            for i in 0..per {
                let Place { row, column } = place(shape, Part::C(d), lane, register, i);
                word |= d.bits_of(sums[row * shape.n + column], saturate) << (i * d.bits());
            }
            cell.set(word);
        }
    }
}

/// `sums += a · b`, matrices row by row, with the roundings that the module of matrices describes.
pub(super) fn add_products(
    shape: Shape,
    a: &[f64],
    b: &[f64],
    sums: &mut [f64],
    arithmetic: Arithmetic,
) {
    match (arithmetic.d, arithmetic.combine) {
        (Accumulator::F16 | Accumulator::F32, _) => {
            each(shape, a, b, sums, |x, y, sum| {
                f64::from((sum + x * y) as f32)
            });
        }
        (Accumulator::F64, _) => each(shape, a, b, sums, f64::mul_add),
        (Accumulator::S32, Combine::Product) => each(shape, a, b, sums, |x, y, sum| sum + x * y),
        (Accumulator::S32, Combine::Xor) => {
            each(shape, a, b, sums, |x, y, sum| sum + (x - y).abs());
        }
    }
}

fn each(shape: Shape, a: &[f64], b: &[f64], sums: &mut [f64], add: impl Fn(f64, f64, f64) -> f64) {
    let Shape { n, k, .. } = shape;
    for (sums, a) in sums.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        for (&x, b) in a.iter().zip(b.chunks_exact(n)) {
            for (sum, &y) in sums.iter_mut().zip(b) {
                *sum = add(x, y, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::matrix::{Arithmetic, Combine};

    fn arithmetic(d: Accumulator, combine: Combine) -> Arithmetic {
        Arithmetic {
            c: d,
            d,
            combine,
            saturate: false,
        }
    }

    #[test]
    fn sums_are_rounded_one_by_one() {
        let shape = Shape { m: 1, n: 1, k: 3 };
        let (a, b) = ([1.0, 1.0, 1.0], [1.0, 1.0, -16_777_216.0]);
        let big = 16_777_216.0;
        let sum = |d| {
            let mut sums = [big];
            add_products(shape, &a, &b, &mut sums, arithmetic(d, Combine::Product));
            sums[0]
        };
        assert_eq!(sum(Accumulator::F32), 0.0);
        assert_eq!(sum(Accumulator::S32), 2.0);
        assert_eq!(sum(Accumulator::F64), 2.0);
    }

    #[test]
    fn bits_differ() {
        let shape = Shape { m: 1, n: 2, k: 2 };
        let mut sums = [5.0, 0.0];
        let xor = arithmetic(Accumulator::S32, Combine::Xor);
        add_products(shape, &[1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &mut sums, xor);
        assert_eq!(sums, [7.0, 0.0]);
    }
}
