//! Operands, PTX ISA "Instruction Operands": what an instruction says of its values, without
//! knowing the instruction.

use crate::ast::{Operand, Span};
use crate::error::PtxError;
use crate::lex::Cursor;

/// Brackets inside brackets beyond this are nobody's PTX, and recursion must end before the stack
/// does.
const DEEPEST: usize = 16;

/// Operands separated by commas up to `close`, which is taken; and the bytes of each.
pub(crate) fn list<'a>(
    c: &mut Cursor<'a>,
    close: u8,
    expected: &'static str,
    depth: usize,
) -> Result<(Vec<Operand<'a>>, Vec<Span>), PtxError> {
    let mut operands = Vec::new();
    let mut spans = Vec::new();
    if c.eat(close)? {
        return Ok((operands, spans));
    }
    loop {
        c.skip_blank()?;
        let start = c.pos;
        let (operand, end) = operand(c, depth)?;
        operands.push(operand);
        spans.push(start..end);
        if c.eat(close)? {
            return Ok((operands, spans));
        }
        if !c.eat(b',')? {
            return Err(c.unexpected(expected));
        }
    }
}

/// One operand at the current position, and where it ends. Blanks behind it may have been skipped.
fn operand<'a>(c: &mut Cursor<'a>, depth: usize) -> Result<(Operand<'a>, usize), PtxError> {
    if depth == DEEPEST {
        return Err(c.unexpected("an operand nested at most 16 deep"));
    }
    let start = c.pos;
    let mut operand = primary(c, depth)?;
    let mut end = c.pos;
    c.skip_blank()?;
    // `[a].unified`: it belongs to the operand's bytes, and says nothing that we need.
    while matches!(operand, Operand::Address { .. } | Operand::Other(_)) && c.at_directive() {
        c.directive()?;
        end = c.pos;
        c.skip_blank()?;
    }
    if c.peek() == Some(b'|') && c.peek_at(1) != Some(b'|') {
        c.pos += 1;
        c.skip_blank()?;
        let second = primary(c, depth)?;
        end = c.pos;
        operand = Operand::Pair(Box::new(operand), Box::new(second));
        c.skip_blank()?;
    }
    // An operator behind a value makes a constant expression, which nobody here computes.
    let is_value = !matches!(operand, Operand::Address { .. } | Operand::Vector(_));
    if is_value
        && matches!(
            c.peek(),
            Some(
                b'+' | b'-'
                    | b'*'
                    | b'/'
                    | b'%'
                    | b'<'
                    | b'>'
                    | b'&'
                    | b'^'
                    | b'|'
                    | b'?'
                    | b'='
                    | b'!'
                    | b'['
            )
        )
    {
        c.pos = start;
        let text = c.raw("an operand")?;
        return Ok((Operand::Other(text), start + text.len()));
    }
    Ok((operand, end))
}

fn primary<'a>(c: &mut Cursor<'a>, depth: usize) -> Result<Operand<'a>, PtxError> {
    let start = c.pos;
    match c.peek() {
        Some(b'[') => address(c, depth),
        Some(b'{') => {
            c.pos += 1;
            Ok(Operand::Vector(list(c, b'}', "`,` or `}`", depth + 1)?.0))
        }
        Some(b'(') => {
            c.pos += 1;
            c.skip_blank()?;
            // A cast, `(.s64)`.
            if c.at_directive() {
                return expression(c, start);
            }
            Ok(Operand::List(list(c, b')', "`,` or `)`", depth + 1)?.0))
        }
        Some(b'!') => {
            c.pos += 1;
            c.skip_blank()?;
            match c.dotted_name() {
                Some(name) => Ok(Operand::Not(name)),
                None => expression(c, start),
            }
        }
        Some(b'-' | b'+') => match signed_number(c)? {
            Some(number) => Ok(number),
            None => expression(c, start),
        },
        Some(b'~') => expression(c, start),
        Some(b'0'..=b'9' | b'.') => c.number("an operand"),
        Some(b'"') => {
            c.string()?;
            Ok(Operand::Other(c.since(start)))
        }
        _ => {
            let Some(name) = c.dotted_name() else {
                return Err(c.unexpected("an operand"));
            };
            let end = c.pos;
            c.skip_blank()?;
            if matches!(c.peek(), Some(b'+' | b'-'))
                && let Some(offset) = offsets(c)?
            {
                return Ok(Operand::Offset(name, offset));
            }
            c.pos = end;
            Ok(Operand::Name(name))
        }
    }
}

fn expression<'a>(c: &mut Cursor<'a>, start: usize) -> Result<Operand<'a>, PtxError> {
    c.pos = start;
    Ok(Operand::Other(c.raw("an operand")?))
}

/// `-5`, `+5`, `-0f3F800000`: a number behind its sign. `None`, with the cursor anywhere, where no
/// number follows.
fn signed_number<'a>(c: &mut Cursor<'a>) -> Result<Option<Operand<'a>>, PtxError> {
    let negative = c.peek() == Some(b'-');
    c.pos += 1;
    c.skip_blank()?;
    if !c.peek().is_some_and(|b| b.is_ascii_digit() || b == b'.') {
        return Ok(None);
    }
    let number = c.number("a number")?;
    Ok(Some(match number {
        Operand::Int(value) if negative => Operand::Int(value.wrapping_neg()),
        Operand::F32(bits) if negative => Operand::F32(bits ^ 1 << 31),
        Operand::F64(bits) if negative => Operand::F64(bits ^ 1 << 63),
        positive => positive,
    }))
}

/// `+8`, `-8`, `+-8`, `+8+4` behind a base: their sum, modulo 2^64. `None`, with the cursor
/// anywhere, where something that is no integer is added.
fn offsets(c: &mut Cursor<'_>) -> Result<Option<i64>, PtxError> {
    let mut sum = 0i64;
    loop {
        c.skip_blank()?;
        let negative = match c.peek() {
            Some(b'+') => false,
            Some(b'-') => true,
            _ => return Ok(Some(sum)),
        };
        c.pos += 1;
        c.skip_blank()?;
        let number = match c.peek() {
            Some(b'+' | b'-') => signed_number(c)?,
            Some(b'0'..=b'9') => Some(c.number("an offset")?),
            _ => None,
        };
        let Some(Operand::Int(value)) = number else {
            return Ok(None);
        };
        sum = if negative {
            sum.wrapping_sub(value)
        } else {
            sum.wrapping_add(value)
        };
    }
}

/// `[base + offset, rest…]`, PTX ISA "Addresses as Operands". A form whose base is neither a name
/// nor a number, or whose offset is no constant, is kept verbatim.
fn address<'a>(c: &mut Cursor<'a>, depth: usize) -> Result<Operand<'a>, PtxError> {
    let start = c.pos;
    c.pos += 1;
    c.skip_blank()?;
    let (base, first) = match c.peek() {
        Some(b'0'..=b'9') => (None, c.number("an address")?),
        Some(b'+' | b'-') => (None, signed_number(c)?.unwrap_or(Operand::Other(""))),
        _ => match c.dotted_name() {
            Some(name) => (Some(name), Operand::Int(0)),
            None => return Err(c.unexpected("an address")),
        },
    };
    let (Operand::Int(first), Some(offset)) = (first, offsets(c)?) else {
        return bracketed(c, start);
    };
    let offset = first.wrapping_add(offset);
    if c.eat(b']')? {
        return Ok(Operand::Address {
            base,
            offset,
            rest: Vec::new(),
        });
    }
    match c.peek() {
        Some(b',') => {
            c.pos += 1;
            let (rest, _) = list(c, b']', "`,` or `]`", depth + 1)?;
            Ok(Operand::Address { base, offset, rest })
        }
        Some(b'[' | b'*' | b'/' | b'%' | b'<' | b'>' | b'&' | b'^' | b'|') => bracketed(c, start),
        _ => Err(c.unexpected("`+`, `,` or `]` in an address")),
    }
}

/// The whole of `[…]`, as it stands.
fn bracketed<'a>(c: &mut Cursor<'a>, start: usize) -> Result<Operand<'a>, PtxError> {
    c.pos = start + 1;
    loop {
        c.raw("an address")?;
        if c.eat(b']')? {
            return Ok(Operand::Other(c.since(start)));
        }
        c.expect(b',', "`,` or `]` in an address")?;
    }
}
