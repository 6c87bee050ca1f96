//! Matrix instructions: shapes, element types and fragments.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::eval::Ty;

use super::decoder::{Decoded, FunctionDecoder, invalid, unsupported};
use super::memory::space_of;
use super::operand::operand;
use crate::matrix::{fragment, quad_pair};
use crate::op::Op;
use crate::op::element::{Accumulator, Element};
use crate::op::matrix::{
    Arithmetic, Combine, Fragment, GroupMultiply, Left, Matrix, Multiply, Part, Shape, Tiles,
};
use crate::op::operand::Row;

fn matrix(matrix: Matrix) -> Decoded<Op> {
    Ok(Op::Matrix(Box::new(matrix)))
}

/// `m16n8k16`
fn shape(modifier: &str) -> Option<Shape> {
    let (m, rest) = modifier.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    let shape = Shape {
        m: m.parse().ok()?,
        n: n.parse().ok()?,
        k: k.parse().ok()?,
    };
    ([shape.m, shape.n, shape.k]
        .iter()
        .all(|&size| (1..=256).contains(&size)))
    .then_some(shape)
}

/// Elements along `k` that a lane quad's registers hold.
fn quad(element: Element) -> usize {
    4 * element.per_register()
}

fn is_integer(element: Element) -> bool {
    match element {
        Element::S8 | Element::U8 | Element::S4 | Element::U4 | Element::B1 => true,
        Element::F16
        | Element::Bf16
        | Element::Tf32
        | Element::E4m3
        | Element::E5m2
        | Element::F64 => false,
    }
}

/// True for the accumulators that an element type goes with.
fn accumulates(element: Element, c: Accumulator) -> bool {
    match c {
        Accumulator::S32 => is_integer(element),
        Accumulator::F64 => element == Element::F64,
        Accumulator::F16 => matches!(element, Element::F16 | Element::E4m3 | Element::E5m2),
        Accumulator::F32 => !is_integer(element) && element != Element::F64,
    }
}

/// True if the two may be multiplied: the same type, or two of one width that differ in sign or
/// format.
fn compatible(a: Element, b: Element) -> bool {
    let kind = |e: Element| match e {
        Element::U8 => Element::S8,
        Element::U4 => Element::S4,
        Element::E5m2 => Element::E4m3,
        other => other,
    };
    kind(a) == kind(b)
}

/// True for the shapes of `mma.sync`; `m8n8k4` of f16 has fragments of another kind.
fn is_mma_shape(shape: Shape, element: Element) -> bool {
    let chunks = shape.k / quad(element);
    let whole = shape.k.is_multiple_of(quad(element)) && shape.n == 8;
    let most = if element == Element::F64 { 4 } else { 2 };
    let rows = match shape.m {
        8 => chunks == 1 && (is_integer(element) || element == Element::F64),
        16 => (1..=most).contains(&chunks) && chunks != 3,
        _ => false,
    };
    whole && rows
}

fn is_wmma_shape(shape: Shape, element: Element) -> bool {
    let Shape { m, n, k } = shape;
    match element {
        Element::F16 | Element::Bf16 | Element::S8 | Element::U8 => {
            matches!((m, n, k), (16, 16, 16) | (32, 8, 16) | (8, 32, 16))
        }
        Element::Tf32 => (m, n, k) == (16, 16, 8),
        Element::F64 => (m, n, k) == (8, 8, 4),
        Element::S4 | Element::U4 => (m, n, k) == (8, 8, 32),
        Element::B1 => (m, n, k) == (8, 8, 128),
        Element::E4m3 | Element::E5m2 => false,
    }
}

/// Registers of a `wmma` fragment: those of f16 multiplicands are always eight.
fn wmma_registers(shape: Shape, part: Part) -> usize {
    match part {
        Part::A(Element::F16) | Part::B(Element::F16) => 8,
        part => fragment::registers(shape, part),
    }
}

/// What the modifiers of a product say.
#[derive(Default)]
struct Modifiers<'a> {
    shape: Option<Shape>,
    types: Vec<&'a str>,
    layouts: Vec<&'a str>,
    saturate: bool,
    xor: bool,
    popc: bool,
}

impl<'a> Modifiers<'a> {
    fn read(modifiers: &[&'a str]) -> Decoded<Modifiers<'a>> {
        let mut found = Modifiers::default();
        for &modifier in modifiers {
            match modifier {
                "sync" | "aligned" | "and" | "rn" => {}
                "row" | "col" => found.layouts.push(modifier),
                "satfinite" => found.saturate = true,
                "xor" => found.xor = true,
                "popc" => found.popc = true,
                _ if Element::parse(modifier).is_some()
                    || Accumulator::parse(modifier).is_some() =>
                {
                    found.types.push(modifier);
                }
                _ => match shape(modifier) {
                    Some(shape) if found.shape.is_none() => found.shape = Some(shape),
                    _ => return unsupported(format!("modifier `.{modifier}`")),
                },
            }
        }
        Ok(found)
    }

    fn combine(&self) -> Combine {
        if self.xor {
            Combine::Xor
        } else {
            Combine::Product
        }
    }
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    /// The registers of a fragment, as many as there must be.
    fn fragment(
        &mut self,
        operand: &Operand<'a>,
        count: usize,
        ty: Option<Ty>,
        sink: bool,
    ) -> Decoded<Box<[Row]>> {
        let rows = self.rows(operand, ty, sink)?;
        if rows.len() != count {
            return invalid(format!(
                "{} registers for a fragment of {count}",
                rows.len()
            ));
        }
        Ok(rows)
    }

    /// `ldmatrix` and `stmatrix`.
    pub(super) fn tiles(&mut self, i: &Instruction<'a>, load: bool) -> Decoded<Op> {
        let (mut count, mut transposed) = (None, false);
        for modifier in &i.modifiers {
            match *modifier {
                "sync" | "aligned" | "m8n8" | "b16" | "shared" | "shared::cta" => {}
                "x1" => count = Some(1),
                "x2" => count = Some(2),
                "x4" => count = Some(4),
                "trans" => transposed = true,
                other => return unsupported(format!("modifier `.{other}`")),
            }
        }
        let Some(count) = count else {
            return invalid("the number of matrices is missing");
        };
        let (data, place) = if load { (0, 1) } else { (1, 0) };
        let rows = self.fragment(operand(i, data)?, count, None, load)?;
        let (space, address) = self.address(operand(i, place)?, space_of(&i.modifiers)?)?;
        let tiles = Tiles {
            space,
            address,
            rows,
            transposed,
        };
        matrix(if load {
            Matrix::Load(tiles)
        } else {
            Matrix::Store(tiles)
        })
    }

    pub(super) fn move_matrix(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        if i.modifiers[..] != ["sync", "aligned", "m8n8", "trans", "b16"] {
            return unsupported("");
        }
        let d = self.destination(operand(i, 0)?)?;
        let s = self.source(operand(i, 1)?, None)?;
        matrix(Matrix::Transpose { d, s })
    }

    /// `mma.sync`
    pub(super) fn mma(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let found = Modifiers::read(&i.modifiers)?;
        let Some(shape) = found.shape else {
            return invalid("the shape is missing");
        };
        let [d, a, b, c] = found.types[..] else {
            return invalid("it takes four types");
        };
        if shape == quad_pair::SHAPE && (a, b) == ("f16", "f16") {
            return self.quad_pairs(i, &found, [d, c]);
        }
        let layouts = found.layouts == ["row", "col"];
        self.product("mma", i, (shape, &found), [d, a, b, c], |shape, element| {
            layouts && is_mma_shape(shape, element)
        })
    }

    /// `mma.m8n8k4` of f16, the only form of `mma` with a choice of layouts.
    fn quad_pairs(
        &mut self,
        i: &Instruction<'a>,
        found: &Modifiers<'_>,
        types: [&str; 2],
    ) -> Decoded<Op> {
        let [Some(d), Some(c)] = types.map(Accumulator::parse) else {
            return unsupported("these types");
        };
        let [layout_a, layout_b] = found.layouts[..] else {
            return invalid("it takes two layouts");
        };
        if !accumulates(Element::F16, c) || !accumulates(Element::F16, d) {
            return unsupported("this shape with these types");
        }
        let (sums, factors) = (quad_pair::sum_registers, quad_pair::FACTOR_REGISTERS);
        let d_rows = self.fragment(operand(i, 0)?, sums(d), None, true)?;
        let a = self.fragment(operand(i, 1)?, factors, None, false)?;
        let b = self.fragment(operand(i, 2)?, factors, None, false)?;
        let c_rows = self.fragment(operand(i, 3)?, sums(c), Ty::parse(types[1]), false)?;
        matrix(Matrix::QuadPairs(crate::op::matrix::QuadPairs {
            by_column: [layout_a == "col", layout_b == "col"],
            arithmetic: Arithmetic {
                c,
                d,
                combine: Combine::Product,
                saturate: false,
            },
            a,
            b,
            c: c_rows,
            d: d_rows,
        }))
    }

    /// `mma` and `wmma.mma`, whose fragments differ in their shapes only.
    fn product(
        &mut self,
        name: &'static str,
        i: &Instruction<'a>,
        (shape, found): (Shape, &Modifiers<'_>),
        types: [&str; 4],
        has: impl Fn(Shape, Element) -> bool,
    ) -> Decoded<Op> {
        let (Some(d), Some(a), Some(b), Some(c)) = (
            Accumulator::parse(types[0]),
            Element::parse(types[1]),
            Element::parse(types[2]),
            Accumulator::parse(types[3]),
        ) else {
            return unsupported("these types");
        };
        let known = has(shape, a)
            && compatible(a, b)
            && accumulates(a, c)
            && accumulates(a, d)
            && found.popc == (a == Element::B1);
        if !known {
            return unsupported("this shape with these types");
        }
        let count = |part| match name {
            "mma" => fragment::registers(shape, part),
            _ => wmma_registers(shape, part),
        };
        let rows_d = self.fragment(operand(i, 0)?, count(Part::C(d)), None, true)?;
        let mut rows_a = self.fragment(
            operand(i, 1)?,
            count(Part::A(a)),
            Ty::parse(types[1]),
            false,
        )?;
        let mut rows_b = self.fragment(
            operand(i, 2)?,
            count(Part::B(b)),
            Ty::parse(types[2]),
            false,
        )?;
        let rows_c = self.fragment(
            operand(i, 3)?,
            count(Part::C(c)),
            Ty::parse(types[3]),
            false,
        )?;
        // Registers that repeat others are not looked at.
        for (rows, part) in [(&mut rows_a, Part::A(a)), (&mut rows_b, Part::B(b))] {
            *rows = rows[..fragment::registers(shape, part)].into();
        }
        matrix(Matrix::Multiply(Multiply {
            name,
            shape,
            elements: [a, b],
            arithmetic: Arithmetic {
                c,
                d,
                combine: found.combine(),
                saturate: found.saturate,
            },
            a: rows_a,
            b: rows_b,
            c: rows_c,
            d: rows_d,
        }))
    }

    /// `wmma.load`, `wmma.store`, `wmma.mma`
    pub(super) fn wmma(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        match &i.modifiers[..] {
            ["load", part @ ("a" | "b" | "c"), rest @ ..] => self.wmma_memory(i, part, rest),
            ["store", part @ "d", rest @ ..] => self.wmma_memory(i, part, rest),
            ["mma", rest @ ..] => {
                let found = Modifiers::read(rest)?;
                let Some(shape) = found.shape else {
                    return invalid("the shape is missing");
                };
                let types = match found.types[..] {
                    // Products of f16 do not name them.
                    [d, c] => [d, "f16", "f16", c],
                    [d, a, b, c] => [d, a, b, c],
                    _ => return invalid("it takes two or four types"),
                };
                if found.layouts.len() != 2 {
                    return invalid("it takes two layouts");
                }
                self.product("wmma.mma", i, (shape, &found), types, is_wmma_shape)
            }
            _ => unsupported(""),
        }
    }

    fn wmma_memory(
        &mut self,
        i: &Instruction<'a>,
        part: &str,
        modifiers: &[&'a str],
    ) -> Decoded<Op> {
        let space = space_of(modifiers)?;
        let rest: Vec<&str> = modifiers
            .iter()
            .copied()
            .filter(|m| !matches!(*m, "global" | "shared" | "shared::cta"))
            .collect();
        let found = Modifiers::read(&rest)?;
        let (Some(shape), [layout], [ty]) = (found.shape, &found.layouts[..], &found.types[..])
        else {
            return invalid("it takes one shape, layout and type");
        };
        let column_major = *layout == "col";
        let (known, part) = match (part, Element::parse(ty), Accumulator::parse(ty)) {
            ("a", Some(element), _) => {
                let whole = element.bits() >= 8 || !column_major;
                (is_wmma_shape(shape, element) && whole, Part::A(element))
            }
            ("b", Some(element), _) => {
                let whole = element.bits() >= 8 || column_major;
                (is_wmma_shape(shape, element) && whole, Part::B(element))
            }
            ("c" | "d", _, Some(c)) => {
                let elements = [
                    Element::F16,
                    Element::Tf32,
                    Element::F64,
                    Element::S8,
                    Element::S4,
                    Element::B1,
                ];
                let fits = |&e: &Element| is_wmma_shape(shape, e) && accumulates(e, c);
                (elements.iter().any(fits), Part::C(c))
            }
            _ => (false, Part::C(Accumulator::F32)),
        };
        if !known {
            return unsupported("this shape with this type and layout");
        }
        let load = i.modifiers.first() == Some(&"load");
        let (data, place) = if load { (0, 1) } else { (1, 0) };
        let rows = self.fragment(operand(i, data)?, wmma_registers(shape, part), None, load)?;
        let (space, address) = self.address(operand(i, place)?, space)?;
        let stride = match i.operands.get(2) {
            Some(stride) => self.source(stride, None)?,
            None => {
                let Shape { m, n, k } = shape;
                let (rows, columns) = match part {
                    Part::A(_) => (m, k),
                    Part::B(_) => (k, n),
                    Part::C(_) => (m, n),
                };
                let line = if column_major { rows } else { columns };
                self.b.constant(line as u64)
            }
        };
        let fragment = Fragment {
            shape,
            part,
            column_major,
            space,
            address,
            stride,
            rows,
        };
        matrix(if load {
            Matrix::LoadFragment(fragment)
        } else {
            Matrix::StoreFragment(fragment)
        })
    }

    /// `wgmma`: products are done when they are issued, so fences and waits are nothing.
    pub(super) fn wgmma(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        match &i.modifiers[..] {
            ["fence" | "commit_group" | "wait_group", "sync", "aligned"] => Ok(Op::Nothing),
            ["mma_async", rest @ ..] => self.group_product(i, rest),
            _ => unsupported(""),
        }
    }

    fn group_product(&mut self, i: &Instruction<'a>, modifiers: &[&'a str]) -> Decoded<Op> {
        let found = Modifiers::read(modifiers)?;
        let (Some(shape), [d, a, b]) = (found.shape, &found.types[..]) else {
            return invalid("it takes one shape and three types");
        };
        let (Some(d), Some(a), Some(b)) =
            (Accumulator::parse(d), Element::parse(a), Element::parse(b))
        else {
            return unsupported("these types");
        };
        let fits = shape.m == 64 && shape.n.is_multiple_of(8) && shape.k == 2 * quad(a);
        let known = fits
            && compatible(a, b)
            && accumulates(a, d)
            && !matches!(a, Element::F64 | Element::S4 | Element::U4)
            && found.popc == (a == Element::B1)
            && !found.xor;
        if !known {
            return unsupported("this shape with these types");
        }
        // Fragments are those of a warp's 16 rows.
        let rows = Shape { m: 16, ..shape };
        let count = fragment::registers(rows, Part::C(d));
        let rows_d = self.fragment(operand(i, 0)?, count, None, true)?;
        let floats = !is_integer(a);
        let immediate = |index: usize| match i.operands.get(index) {
            Some(Operand::Int(value)) => Ok(*value),
            Some(_) => invalid(format!("operand {} is not an immediate", index + 1)),
            None => invalid(format!("operand {} is missing", index + 1)),
        };
        let scale = |index: usize| match immediate(index)? {
            1 => Ok(1.0),
            -1 => Ok(-1.0),
            other => invalid(format!("a scale of {other}: it must be 1 or -1")),
        };
        let sign = if floats { scale(4)? * scale(5)? } else { 1.0 };
        let major = |index: usize| match immediate(index)? {
            0 => Ok(false),
            1 => Ok(true),
            other => invalid(format!("a transposition of {other}: it must be 0 or 1")),
        };
        let halves = a.bits() == 16;
        let in_registers = matches!(operand(i, 1)?, Operand::Vector(_));
        let (a_transposed, b_transposed) = match (halves, in_registers) {
            (true, true) => (false, major(6)?),
            (true, false) => (major(6)?, major(7)?),
            (false, _) => (false, false),
        };
        let left = if in_registers {
            let count = fragment::registers(rows, Part::A(a));
            Left::Registers(self.fragment(operand(i, 1)?, count, None, false)?)
        } else {
            Left::Descriptor {
                descriptor: self.source(operand(i, 1)?, None)?,
                transposed: a_transposed,
            }
        };
        let (right, scale_d) = (
            self.source(operand(i, 2)?, None)?,
            self.source(operand(i, 3)?, None)?,
        );
        matrix(Matrix::Group(GroupMultiply {
            shape,
            elements: [a, b],
            arithmetic: Arithmetic {
                c: d,
                d,
                combine: Combine::Product,
                saturate: found.saturate,
            },
            d: rows_d,
            a: left,
            b: right,
            b_transposed,
            scale_d,
            sign,
        }))
    }
}
