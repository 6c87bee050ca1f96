//! Video instructions: parts of registers and second operations.

use warpbpf_ptx::ast::{Instruction, Operand};

use super::decoder::{Decoded, FunctionDecoder, invalid, unsupported};
use super::operand::operand;
use crate::op::Op;
use crate::op::operand::{NOWHERE, Row};
use crate::op::video::{Element, Field, First, MultiplyAdd, Second, Video};

/// A register, the part that is chosen, and its sign.
struct Chosen<'t> {
    name: Option<&'t str>,
    part: Option<&'t str>,
    negated: bool,
}

fn chosen<'t>(operand: &Operand<'t>) -> Chosen<'t> {
    let (text, negated) = match operand {
        Operand::Name(text) => (*text, false),
        Operand::Other(text) => match text.trim().strip_prefix('-') {
            Some(text) => (text.trim(), true),
            None => (*text, false),
        },
        _ => {
            return Chosen {
                name: None,
                part: None,
                negated: false,
            };
        }
    };
    // A special register has a component, and no part is called like one.
    let part = text
        .rsplit_once('.')
        .filter(|(_, part)| part.starts_with(['b', 'h']) && part.len() > 1);
    Chosen {
        name: Some(part.map_or(text, |(name, _)| name)),
        part: part.map(|(_, part)| part),
        negated,
    }
}

/// `b0` to `b3`, `h0`, `h1`
fn field(part: &str) -> Decoded<Field> {
    let digit = |bits: u32| {
        let number = part[1..].parse::<u32>().ok().filter(|&n| n < 32 / bits);
        number.map(|n| Field {
            shift: n * bits,
            bits,
        })
    };
    let found = if part.starts_with('b') {
        digit(8)
    } else {
        digit(16)
    };
    found.map_or_else(|| invalid(format!("part `.{part}`")), Ok)
}

/// The numbers of the elements in a selector such as `b7654`, that of element 0 first.
fn selector(part: &str, letter: char) -> Decoded<Vec<u32>> {
    let digits = part
        .strip_prefix(letter)
        .map(|digits| digits.chars().rev().map(|c| c.to_digit(8)));
    match digits.and_then(|digits| digits.collect::<Option<Vec<u32>>>()) {
        Some(numbers) => Ok(numbers),
        None => invalid(format!("selection `.{part}`")),
    }
}

fn signed(ty: &str) -> Decoded<bool> {
    match ty {
        "u32" => Ok(false),
        "s32" => Ok(true),
        other => unsupported(format!("type `.{other}`")),
    }
}

fn comparison(name: &str) -> Option<First> {
    Some(match name {
        "eq" => First::Equal,
        "ne" => First::NotEqual,
        "lt" => First::Less,
        "le" => First::LessEqual,
        "gt" => First::Greater,
        "ge" => First::GreaterEqual,
        _ => return None,
    })
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    /// `None` if the opcode is of another family.
    pub(super) fn video(&mut self, i: &Instruction<'a>) -> Option<Decoded<Op>> {
        if i.opcode == "vmad" {
            return Some(self.multiply_add(i));
        }
        let (base, count) = match i.opcode.strip_suffix('2').map(|base| (base, 2)) {
            Some(found) => found,
            None => match i.opcode.strip_suffix('4') {
                Some(base) => (base, 4),
                None => (i.opcode, 1),
            },
        };
        let scalar = count == 1;
        let first = match base {
            "vadd" => First::Add,
            "vsub" => First::Subtract,
            "vabsdiff" => First::AbsoluteDifference,
            "vmin" => First::Min,
            "vmax" => First::Max,
            "vavrg" if !scalar => First::Average,
            "vset" => First::Equal,
            "vshl" if scalar => First::ShiftLeft { wrap: true },
            "vshr" if scalar => First::ShiftRight { wrap: true },
            _ => return None,
        };
        Some(self.elementwise(i, first, count))
    }

    fn elementwise(&mut self, i: &Instruction<'a>, first: First, count: usize) -> Decoded<Op> {
        let mut first = first;
        let sets = first == First::Equal;
        let types = if sets { 2 } else { 3 };
        let Some((types, rest)) = i.modifiers.split_at_checked(types) else {
            return invalid("types are missing");
        };
        let types = types
            .iter()
            .map(|ty| signed(ty))
            .collect::<Decoded<Vec<bool>>>()?;
        let (mut second, mut saturate, mut compared) = (None, false, false);
        for modifier in rest {
            match *modifier {
                "sat" if !sets => saturate = true,
                "add" => second = Some(Second::Add),
                "min" if count == 1 => second = Some(Second::Min),
                "max" if count == 1 => second = Some(Second::Max),
                "clamp" | "wrap" => {
                    let wrap = *modifier == "wrap";
                    first = match first {
                        First::ShiftLeft { .. } => First::ShiftLeft { wrap },
                        First::ShiftRight { .. } => First::ShiftRight { wrap },
                        _ => return unsupported(format!("modifier `.{modifier}`")),
                    };
                }
                other => match comparison(other).filter(|_| sets) {
                    Some(comparison) => {
                        first = comparison;
                        compared = true;
                    }
                    None => return unsupported(format!("modifier `.{other}`")),
                },
            }
        }
        if sets && !compared {
            return invalid("the comparison is missing");
        }
        // A comparison names no type of its result: the hardware takes that of the first source.
        let (d_signed, a_signed, b_signed) = match types[..] {
            [a, b] => (a, a, b),
            [d, a, b] => (d, a, b),
            _ => return invalid("types are missing"),
        };
        let (to, a, b) = (operand(i, 0)?, operand(i, 1)?, operand(i, 2)?);
        let parts = [chosen(to).part, chosen(a).part, chosen(b).part];
        let elements = if count == 1 {
            let [d, a, b] = parts.map(|part| part.map_or(Ok(Field::WHOLE), field));
            vec![Element {
                a: a?,
                b: b?,
                d: d?,
            }]
        } else {
            elements(count, parts)?
        };
        let d = self.part_of(to, true)?;
        let s = [
            self.part_of(a, false)?,
            self.part_of(b, false)?,
            match i.operands.get(3) {
                Some(c) => self.source(c, None)?,
                None => NOWHERE,
            },
        ];
        Ok(Op::Video(Box::new(Video {
            first,
            second,
            d_signed,
            a_signed,
            b_signed,
            saturate,
            elements: elements.into(),
            simd: count > 1,
            d,
            s,
        })))
    }

    /// The register of an operand that may choose a part of it.
    fn part_of(&mut self, operand: &Operand<'a>, destination: bool) -> Decoded<Row> {
        let name = chosen(operand).name;
        let whole = name.map(Operand::Name);
        let operand = whole.as_ref().unwrap_or(operand);
        if destination {
            self.destination(operand)
        } else {
            self.source(operand, None)
        }
    }

    fn multiply_add(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let [_, a, b, rest @ ..] = &i.modifiers[..] else {
            return invalid("types are missing");
        };
        let types = [signed(a)?, signed(b)?];
        let (mut saturate, mut plus_one, mut shift) = (false, false, 0);
        for modifier in rest {
            match *modifier {
                "sat" => saturate = true,
                "po" => plus_one = true,
                "shr7" => shift = 7,
                "shr15" => shift = 15,
                other => return unsupported(format!("modifier `.{other}`")),
            }
        }
        let d = self.destination(operand(i, 0)?)?;
        let operands = [operand(i, 1)?, operand(i, 2)?, operand(i, 3)?];
        let [a, b, c] = operands.map(chosen);
        let part = |part: Option<&str>| part.map_or(Ok(Field::WHOLE), field);
        let fields = [part(a.part)?, part(b.part)?];
        let [x, y, z] = operands.map(|operand| self.part_of(operand, false));
        Ok(Op::MultiplyAddVideo(Box::new(MultiplyAdd {
            signed: types,
            fields,
            negate_product: a.negated != b.negated,
            negate_c: c.negated,
            plus_one,
            shift,
            saturate,
            d,
            s: [x?, y?, z?],
        })))
    }
}

/// The elements of a SIMD form: `b:a` is one word whose elements selectors number.
fn elements(count: usize, [mask, a, b]: [Option<&str>; 3]) -> Decoded<Vec<Element>> {
    let (letter, bits) = if count == 4 { ('b', 8) } else { ('h', 16) };
    let chosen = |part: Option<&str>, first: u32| -> Decoded<Vec<u32>> {
        let found = match part {
            Some(part) => selector(part, letter)?,
            None => (first..first + count as u32).collect(),
        };
        match found.len() == count && found.iter().all(|&n| n < 2 * count as u32) {
            true => Ok(found),
            false => invalid(format!("a selection of {} elements", found.len())),
        }
    };
    let (a, b) = (chosen(a, 0)?, chosen(b, count as u32)?);
    let masked = match mask {
        Some(part) => selector(part, letter)?,
        None => (0..count as u32).collect(),
    };
    let at = |n: u32| Field {
        shift: n * bits,
        bits,
    };
    masked
        .into_iter()
        .map(|n| match (a.get(n as usize), b.get(n as usize)) {
            (Some(&a), Some(&b)) => Ok(Element {
                a: at(a),
                b: at(b),
                d: at(n),
            }),
            _ => invalid(format!("element {n} of {count}")),
        })
        .collect()
}
