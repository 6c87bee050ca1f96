//! Fragments: which element of a matrix which bits of which lane's registers hold (PTX ISA, "Matrix
//! Fragments for `mma`"). The ISA has a figure for each shape; they are all of one rule. With `g =
//! lane / 4` and `t = lane % 4`:
//!
//! - A register of `a` holds `p` neighbours of a row (`p` elements fill 32 bits, or one does),
//!   those of `t = 0..4` follow each other, and `g` is the row. Registers go on with the 8 rows
//!   below, if there are, then with the next `4p` columns.
//! - `b` is the same with rows and columns exchanged.
//! - An accumulator's elements are pairs of neighbours in a row, `t` giving the pair of 8 columns,
//!   `g` the row; then come the 8 rows below, then the next 8 columns.
//!
//! The fragments of `wmma` are opaque; they are made of these the way an H200 does it: 16 rows
//! after 16 rows, and 8 columns after 8 columns. An 8×32 product is the transposed of a 32×8 one.
//! Fragments with more registers than that needs hold everything several times.

use crate::op::element::{Accumulator, Element};
use crate::op::matrix::{Part, Shape};

/// Which element, by row and column of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub row: usize,
    pub column: usize,
}

impl Place {
    fn transposed(self) -> Place {
        Place {
            row: self.column,
            column: self.row,
        }
    }
}

/// Registers of a fragment that holds everything once.
pub(crate) fn registers(shape: Shape, part: Part) -> usize {
    let Shape { m, n, k } = shape;
    let (elements, per) = match part {
        Part::A(element) => (m * k, element.per_register()),
        Part::B(element) => (k * n, element.per_register()),
        Part::C(accumulator) => (m * n, accumulator.per_register()),
    };
    elements / (32 * per)
}

/// The place of element `i` of a lane's register.
pub(crate) fn place(shape: Shape, part: Part, lane: usize, register: usize, i: usize) -> Place {
    let Shape { m, n, k } = shape;
    let flipped = m == 8 && n == 32;
    match part {
        Part::A(element) if flipped => right(element, k, lane, register, i).transposed(),
        Part::B(element) if flipped => left(element, n, k, lane, register, i).transposed(),
        Part::C(c) if flipped => sum(c, n, m, lane, register, i).transposed(),
        Part::A(element) => left(element, m, k, lane, register, i),
        Part::B(element) => right(element, k, lane, register, i),
        Part::C(c) => sum(c, m, n, lane, register, i),
    }
}

fn left(element: Element, m: usize, k: usize, lane: usize, register: usize, i: usize) -> Place {
    let per = element.per_register();
    let (g, t) = (lane / 4, lane % 4);
    let halves = (m / 8).clamp(1, 2);
    let in_block = halves * (k / (4 * per)).max(1);
    let (block, register) = (register / in_block, register % in_block);
    Place {
        row: 16 * block + 8 * (register % halves) + g,
        column: 4 * per * (register / halves) + per * t + i,
    }
}

fn right(element: Element, k: usize, lane: usize, register: usize, i: usize) -> Place {
    let per = element.per_register();
    let (g, t) = (lane / 4, lane % 4);
    let in_block = (k / (4 * per)).max(1);
    Place {
        row: 4 * per * (register % in_block) + per * t + i,
        column: 8 * (register / in_block) + g,
    }
}

fn sum(c: Accumulator, m: usize, n: usize, lane: usize, register: usize, i: usize) -> Place {
    let (g, t) = (lane / 4, lane % 4);
    let element = register * c.per_register() + i;
    let halves = (m / 8).clamp(1, 2);
    let (pair, right) = (element / 2, element % 2);
    let (half, tile) = (pair % halves, pair / halves);
    let across = (n / 8).max(1);
    Place {
        row: 16 * (tile / across) + 8 * half + g,
        column: 8 * (tile % across) + 2 * t + right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn shape(m: usize, n: usize, k: usize) -> Shape {
        Shape { m, n, k }
    }

    /// Every element is held by one lane.
    #[test]
    fn fragments_hold_every_element_once() {
        let products = [
            (shape(16, 8, 8), Element::F16),
            (shape(16, 8, 16), Element::Bf16),
            (shape(16, 8, 4), Element::Tf32),
            (shape(16, 8, 8), Element::Tf32),
            (shape(8, 8, 16), Element::S8),
            (shape(16, 8, 16), Element::U8),
            (shape(16, 8, 32), Element::E4m3),
            (shape(8, 8, 32), Element::S4),
            (shape(16, 8, 64), Element::U4),
            (shape(16, 8, 256), Element::B1),
            (shape(8, 8, 4), Element::F64),
            (shape(16, 8, 16), Element::F64),
            (shape(16, 16, 16), Element::F16),
            (shape(32, 8, 16), Element::F16),
            (shape(8, 32, 16), Element::S8),
            (shape(16, 16, 8), Element::Tf32),
        ];
        for (shape, element) in products {
            let c = [Accumulator::F16, Accumulator::F32].map(Part::C);
            for part in [Part::A(element), Part::B(element), c[0], c[1]] {
                let (rows, columns, per) = match part {
                    Part::A(e) => (shape.m, shape.k, e.per_register()),
                    Part::B(e) => (shape.k, shape.n, e.per_register()),
                    Part::C(c) => (shape.m, shape.n, c.per_register()),
                };
                let mut seen = vec![0; rows * columns];
                for register in 0..registers(shape, part) {
                    for lane in 0..32 {
                        for i in 0..per {
                            let Place { row, column } = place(shape, part, lane, register, i);
                            assert!(row < rows && column < columns, "{shape:?} {part:?}");
                            seen[row * columns + column] += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|&n| n == 1), "{shape:?} {part:?}");
            }
        }
    }

    /// The formulas as the ISA has them, shape by shape: `i` counts a lane's elements.
    #[test]
    fn the_formulas_of_the_isa() {
        type Formula = fn(usize, usize, usize) -> (usize, usize);
        let cases: [(Shape, Part, Formula); 12] = [
            (shape(16, 8, 8), Part::A(Element::F16), |g, t, i| {
                (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))
            }),
            (shape(16, 8, 16), Part::A(Element::F16), |g, t, i| {
                let upper = i < 2 || (4..6).contains(&i);
                let column = t * 2 + (i & 1);
                (
                    if upper { g } else { g + 8 },
                    if i < 4 { column } else { column + 8 },
                )
            }),
            (shape(16, 8, 16), Part::B(Element::F16), |g, t, i| {
                let row = t * 2 + (i & 1);
                (if i < 2 { row } else { row + 8 }, g)
            }),
            (shape(16, 8, 8), Part::A(Element::Tf32), |g, t, i| {
                (
                    if i % 2 == 0 { g } else { g + 8 },
                    if i < 2 { t } else { t + 4 },
                )
            }),
            (shape(16, 8, 8), Part::B(Element::Tf32), |g, t, i| {
                (if i == 0 { t } else { t + 4 }, g)
            }),
            (shape(16, 8, 32), Part::A(Element::S8), |g, t, i| {
                let upper = i < 4 || (8..12).contains(&i);
                let column = t * 4 + (i & 3);
                (
                    if upper { g } else { g + 8 },
                    if i < 8 { column } else { column + 16 },
                )
            }),
            (shape(16, 8, 32), Part::B(Element::S8), |g, t, i| {
                (t * 4 + (i & 3) + if i < 4 { 0 } else { 16 }, g)
            }),
            (shape(16, 8, 64), Part::A(Element::S4), |g, t, i| {
                let upper = i < 8 || (16..24).contains(&i);
                let column = t * 8 + (i & 7);
                (
                    if upper { g } else { g + 8 },
                    if i < 16 { column } else { column + 32 },
                )
            }),
            (shape(16, 8, 16), Part::A(Element::F64), |g, t, i| {
                (if i % 2 == 0 { g } else { g + 8 }, i / 2 * 4 + t)
            }),
            (shape(16, 8, 16), Part::B(Element::F64), |g, t, i| {
                (i * 4 + t, g)
            }),
            (shape(16, 8, 16), Part::C(Accumulator::F32), |g, t, i| {
                (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))
            }),
            (shape(8, 8, 4), Part::C(Accumulator::F64), |g, t, i| {
                (g, t * 2 + (i & 1))
            }),
        ];
        for (shape, part, formula) in cases {
            let per = match part {
                Part::A(e) | Part::B(e) => e.per_register(),
                Part::C(c) => c.per_register(),
            };
            for lane in 0..32 {
                for i in 0..registers(shape, part) * per {
                    let Place { row, column } = place(shape, part, lane, i / per, i % per);
                    let expected = formula(lane / 4, lane % 4, i);
                    assert_eq!((row, column), expected, "{shape:?} {part:?} {lane} {i}");
                }
            }
        }
    }
}
