//! The small language of [`Form::text`]: printing fields into it and matching a line against it.
//!
//! One template serves both directions, so the assembler accepts what the disassembler prints by
//! construction.

use std::fmt::Write as _;

use crate::insn::Width;
use crate::raw::Slot;
use crate::table::{FORMS, Form, Shape};

/// A word of a line or template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
    /// Name, register, keyword.
    Word(&'a str),
    /// Unsigned; a sign is an operator.
    Number(u64),
    /// Operator or bracket.
    Op(&'a str),
    /// `{…}` of a template.
    Hole(&'a str),
}

/// Longest first. The signed ones start with a letter.
const OPERATORS: &[&str] = &[
    "s>>=", "s>=", "s<=", "s/=", "s%=", "s>", "s<", "<<=", ">>=", "==", "!=", ">=", "<=", "+=",
    "-=", "*=", "/=", "%=", "|=", "&=", "^=", "=", "<", ">", "&", "+", "-", "*", "(", ")", "[",
    "]", ",", ":", "%",
];

/// Splits a line. The error is the text that no token starts with.
pub(crate) fn tokens(mut rest: &str) -> Result<Vec<Token<'_>>, &str> {
    let mut out = Vec::new();
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Ok(out);
        };
        let len = if first == '{' {
            let end = rest.find('}').ok_or(rest)? + 1;
            out.push(Token::Hole(&rest[1..end - 1]));
            end
        } else if let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) {
            out.push(Token::Op(op));
            op.len()
        } else if first.is_ascii_digit() {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            out.push(Token::Number(number(&rest[..end]).ok_or(rest)?));
            end
        } else if first.is_ascii_alphabetic() || first == '_' || first == '.' {
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "_.$".contains(c)))
                .unwrap_or(rest.len());
            out.push(Token::Word(&rest[..end]));
            end
        } else {
            return Err(rest);
        };
        rest = &rest[len..];
    }
}

/// Decimal or `0x` hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Which field of a slot a jump's distance goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetField {
    Off,
    Imm,
}

/// A line that fits a form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) form: &'static Form,
    pub(crate) slot: Slot,
    pub(crate) high: Slot,
    /// A name instead of a distance.
    pub(crate) label: Option<(&'a str, TargetField)>,
}

/// The table's templates, split once.
pub(crate) struct Templates(Vec<(&'static Form, Vec<Token<'static>>)>);

impl Templates {
    pub(crate) fn new() -> Templates {
        // A template that did not split would match nothing; the tests assemble every row.
        Templates(
            FORMS
                .iter()
                .map(|form| (form, tokens(form.text).unwrap_or_default()))
                .collect(),
        )
    }

    /// The first form that `line` fits. The error says which operand of a form that fits otherwise
    /// is out of range.
    pub(crate) fn find<'a>(&self, line: &[Token<'a>]) -> Result<Option<Matched<'a>>, String> {
        let mut range = None;
        for (form, template) in &self.0 {
            let mut matcher = Matcher {
                rest: line,
                bound: Bound::default(),
                range: None,
            };
            if !matcher.run(form, template) {
                continue;
            }
            match matcher.range {
                None => return Ok(Some(matcher.bound.finish(form))),
                Some(problem) => drop(range.get_or_insert(problem)),
            }
        }
        range.map_or(Ok(None), Err)
    }
}

#[derive(Default)]
struct Bound<'a> {
    dst: Option<u8>,
    src: Option<u8>,
    off: i16,
    imm: i32,
    imm_high: i32,
    label: Option<(&'a str, TargetField)>,
}

impl<'a> Bound<'a> {
    fn finish(self, form: &'static Form) -> Matched<'a> {
        let slot = Slot {
            opcode: form.opcode,
            dst: form.dst.fill(i32::from(self.dst.unwrap_or(0))) as u8,
            src: form.src.fill(i32::from(self.src.unwrap_or(0))) as u8,
            off: form.off.fill(i32::from(self.off)) as i16,
            imm: form.imm.fill(self.imm),
        };
        let high = Slot {
            imm: self.imm_high,
            ..Slot::default()
        };
        Matched {
            form,
            slot,
            high,
            label: self.label,
        }
    }
}

struct Matcher<'l, 'a> {
    rest: &'l [Token<'a>],
    bound: Bound<'a>,
    /// An operand that has the right form but not the right size.
    range: Option<String>,
}

impl<'a> Matcher<'_, 'a> {
    fn run(&mut self, form: &Form, template: &[Token<'static>]) -> bool {
        template.iter().all(|want| self.one(form, *want)) && self.rest.is_empty()
    }

    fn one(&mut self, form: &Form, want: Token<'static>) -> bool {
        let Token::Hole(hole) = want else {
            return self.literal(want);
        };
        match hole {
            "op" => self.literal(Token::Op(form.symbol)),
            "d" | "dw" | "d?" => {
                let register = self.register(hole);
                register.is_some_and(|register| *self.bound.dst.get_or_insert(register) == register)
            }
            "s" | "sw" | "s?" | "sw?" => {
                let register = self.register(hole);
                register.is_some_and(|register| *self.bound.src.get_or_insert(register) == register)
            }
            "i" => {
                // 32 bits may be written signed or unsigned; where the operand is sign-extended to
                // 64, `0xffffffff` would mean something else than it says.
                let wide = match form.shape {
                    Shape::Alu { wide, .. } | Shape::Jump { wide, .. } => wide,
                    Shape::Store { width, .. } => width == Width::W64,
                    _ => false,
                };
                let high = if wide {
                    i64::from(i32::MAX)
                } else {
                    i64::from(u32::MAX)
                };
                self.signed(i64::from(i32::MIN)..=high)
                    .map(|n| self.bound.imm = n as i32)
                    .is_some()
            }
            "u" => self
                .signed(0..=i64::from(u32::MAX))
                .map(|n| self.bound.imm = n as i32)
                .is_some(),
            "h" => self
                .signed(0..=i64::from(u32::MAX))
                .map(|n| self.bound.imm_high = n as i32)
                .is_some(),
            "x" => {
                let negative = self.literal(Token::Op("-"));
                let Some((Token::Number(n), rest)) = self.rest.split_first() else {
                    return false;
                };
                self.rest = rest;
                let value = if negative { n.wrapping_neg() } else { *n };
                (self.bound.imm, self.bound.imm_high) = (value as i32, (value >> 32) as i32);
                true
            }
            "o" => {
                if !matches!(self.rest.first(), Some(Token::Op("+" | "-"))) {
                    return true;
                }
                self.distance(i64::from(i16::MIN)..=i64::from(i16::MAX))
                    .map(|n| self.bound.off = n as i16)
                    .is_some()
            }
            "t" => self.target(TargetField::Off, i64::from(i16::MIN)..=i64::from(i16::MAX)),
            "T" => self.target(TargetField::Imm, i64::from(i32::MIN)..=i64::from(i32::MAX)),
            _ => false,
        }
    }

    fn literal(&mut self, want: Token<'_>) -> bool {
        let Some((have, rest)) = self.rest.split_first() else {
            return false;
        };
        let same = *have == want;
        if same {
            self.rest = rest;
        }
        same
    }

    fn register(&mut self, hole: &str) -> Option<u8> {
        let Some((Token::Word(word), rest)) = self.rest.split_first() else {
            return None;
        };
        let (name, number) = word.split_at_checked(1)?;
        let fits = match name {
            "r" => !hole.ends_with('w'),
            "w" => hole.ends_with(['w', '?']),
            _ => false,
        };
        let number: u8 = number.parse().ok()?;
        if !fits {
            return None;
        }
        self.rest = rest;
        if number > 10 {
            self.range = Some(format!("register `{word}` does not exist (r0 to r10 do)"));
        }
        Some(number.min(15))
    }

    /// `-5` or `5`.
    fn signed(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let negative = self.literal(Token::Op("-"));
        self.magnitude(negative, range)
    }

    /// `+5` or `-5`.
    fn distance(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let negative = self.literal(Token::Op("-"));
        if !negative && !self.literal(Token::Op("+")) {
            return None;
        }
        self.magnitude(negative, range)
    }

    fn magnitude(&mut self, negative: bool, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let Some((Token::Number(magnitude), rest)) = self.rest.split_first() else {
            return None;
        };
        self.rest = rest;
        let sign = if negative { "-" } else { "" };
        let value = i64::try_from(*magnitude)
            .ok()
            .map(|n| if negative { -n } else { n });
        match value.filter(|value| range.contains(value)) {
            Some(value) => Some(value),
            None => {
                let (low, high) = (range.start(), range.end());
                self.range = Some(format!(
                    "`{sign}{magnitude}` does not fit, the operand goes from {low} to {high}"
                ));
                Some(0)
            }
        }
    }

    fn target(&mut self, field: TargetField, range: std::ops::RangeInclusive<i64>) -> bool {
        if let Some((Token::Word(label), rest)) = self.rest.split_first() {
            self.rest = rest;
            self.bound.label = Some((label, field));
            return true;
        }
        let Some(distance) = self.distance(range) else {
            return false;
        };
        match field {
            TargetField::Off => self.bound.off = distance as i16,
            TargetField::Imm => self.bound.imm = distance as i32,
        }
        true
    }
}

/// Prints the fields of an instruction into the template of its form.
pub(crate) fn render(form: &Form, slot: Slot, high: Slot) -> String {
    let mut out = String::with_capacity(form.text.len() + 8);
    let mut rest = form.text;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        let end = rest[start..]
            .find('}')
            .map_or(rest.len(), |end| start + end);
        let hole = &rest[start + 1..end];
        // Writing to a String cannot fail.
        let _ = match hole {
            "op" => out.write_str(form.symbol),
            "d" | "d?" => write!(out, "r{}", slot.dst),
            "dw" => write!(out, "w{}", slot.dst),
            "s" | "s?" => write!(out, "r{}", slot.src),
            "sw" | "sw?" => write!(out, "w{}", slot.src),
            "i" => write!(out, "{}", slot.imm),
            "u" => write!(out, "{}", slot.imm as u32),
            "h" => write!(out, "{}", high.imm as u32),
            "x" => write!(
                out,
                "{:#x}",
                u64::from(high.imm as u32) << 32 | u64::from(slot.imm as u32)
            ),
            "o" if slot.off < 0 => write!(out, "- {}", slot.off.unsigned_abs()),
            "o" => write!(out, "+ {}", slot.off),
            "t" => write!(out, "{:+}", slot.off),
            "T" => write!(out, "{:+}", slot.imm),
            _ => Ok(()),
        };
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}
