//! The cursor both readers share: byte classes, blanks and comments, words and numbers. It borrows,
//! never copies, and computes lines only for an error.

use crate::ast::{Operand, Span};
use crate::error::PtxError;

const IDENT_START: u8 = 1;
const IDENT: u8 = 2;
const BLANK: u8 = 4;

/// Class bits per byte. NUL counts as blank: images handed to a driver end with one.
static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = if b.is_ascii_alphabetic() || b == b'_' || b == b'$' {
            IDENT_START | IDENT
        } else if b == b'%' {
            IDENT_START
        } else if b.is_ascii_digit() {
            IDENT
        } else if b.is_ascii_whitespace() || b == 0x0b || b == 0 {
            BLANK
        } else {
            0
        };
        byte += 1;
    }
    table
};

fn is(byte: u8, class: u8) -> bool {
    CLASS[usize::from(byte)] & class != 0
}

/// Line and column, both from 1, the column in bytes, of a byte offset. An offset past the end
/// means the end.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
    (line, column)
}

/// A reading position in a text.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    /// The text up to where this cursor may read.
    bytes: &'a [u8],
    pub(crate) pos: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor over `span` of `text`. The ends are clamped to the text, so that no span can make
    /// it panic.
    pub(crate) fn new(text: &'a str, span: Span) -> Self {
        let end = span.end.min(text.len());
        Cursor {
            text,
            bytes: &text.as_bytes()[..end],
            pos: span.start.min(end),
        }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.pos + ahead).copied()
    }

    /// The text from `start` to the current position.
    ///
    /// Positions only ever stand on ASCII bytes, on the first byte of a character or at an end, so
    /// the slice exists; the fallback is for a caller's span that splits a character.
    pub(crate) fn since(&self, start: usize) -> &'a str {
        self.slice(start..self.pos)
    }

    pub(crate) fn slice(&self, span: Span) -> &'a str {
        self.text.get(span).unwrap_or("")
    }

    /// Skips blanks and comments.
    pub(crate) fn skip_blank(&mut self) -> Result<(), PtxError> {
        loop {
            while self.peek().is_some_and(|b| is(b, BLANK)) {
                self.pos += 1;
            }
            if self.peek() != Some(b'/') || !self.skip_comment()? {
                return Ok(());
            }
        }
    }

    /// At a `/`: skips the comment, if it begins one.
    fn skip_comment(&mut self) -> Result<bool, PtxError> {
        match self.peek_at(1) {
            Some(b'/') => self.skip_line(),
            Some(b'*') => {
                let inner = self.pos + 2;
                let Some(length) = memchr::memmem::find(&self.bytes[inner..], b"*/") else {
                    return Err(self.unclosed(self.pos, "`/*`"));
                };
                self.pos = inner + length + 2;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Moves to the end of the line, its newline excluded.
    pub(crate) fn skip_line(&mut self) {
        let rest = &self.bytes[self.pos..];
        self.pos += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    }

    /// Skips blanks, then takes `byte` if it stands there.
    pub(crate) fn eat(&mut self, byte: u8) -> Result<bool, PtxError> {
        self.skip_blank()?;
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        Ok(found)
    }

    /// Skips blanks, then takes `byte` or fails.
    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), PtxError> {
        if self.eat(byte)? {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    /// An identifier at the current position: `[A-Za-z_$%][A-Za-z0-9_$]*`.
    pub(crate) fn identifier(&mut self) -> Option<&'a str> {
        let start = self.pos;
        if !self.peek().is_some_and(|b| is(b, IDENT_START)) {
            return None;
        }
        self.pos += 1;
        self.skip_identifier_rest();
        Some(self.since(start))
    }

    fn skip_identifier_rest(&mut self) {
        while self.peek().is_some_and(|b| is(b, IDENT)) {
            self.pos += 1;
        }
    }

    /// Skips blanks, then takes an identifier or fails.
    pub(crate) fn expect_identifier(
        &mut self,
        expected: &'static str,
    ) -> Result<&'a str, PtxError> {
        self.skip_blank()?;
        self.identifier().ok_or_else(|| self.unexpected(expected))
    }

    /// An identifier with its component selectors: `%tid.x`, `%v.y`.
    pub(crate) fn dotted_name(&mut self) -> Option<&'a str> {
        let start = self.pos;
        self.identifier()?;
        while self.peek() == Some(b'.') && self.peek_at(1).is_some_and(|b| is(b, IDENT_START)) {
            self.pos += 1;
            self.skip_identifier_rest();
        }
        Some(self.since(start))
    }

    /// At a `.`: takes the directive and gives its name without the dot. Digits may follow the dot
    /// (`.1d`).
    pub(crate) fn directive(&mut self) -> Result<&'a str, PtxError> {
        let start = self.pos;
        if self.peek() == Some(b'.') && self.peek_at(1).is_some_and(|b| is(b, IDENT)) {
            self.pos += 1;
            self.skip_identifier_rest();
            return Ok(self.slice(start + 1..self.pos));
        }
        Err(self.unexpected("a directive"))
    }

    /// True where a directive or modifier begins.
    pub(crate) fn at_directive(&self) -> bool {
        self.peek() == Some(b'.') && self.peek_at(1).is_some_and(|b| is(b, IDENT_START))
    }

    /// True where an identifier begins.
    pub(crate) fn at_identifier(&self) -> bool {
        self.peek().is_some_and(|b| is(b, IDENT_START))
    }

    /// The bytes of a modifier: identifier bytes and `::`.
    pub(crate) fn modifier(&mut self) -> &'a str {
        let start = self.pos;
        loop {
            self.skip_identifier_rest();
            if self.peek() == Some(b':') && self.peek_at(1) == Some(b':') {
                self.pos += 2;
            } else {
                return self.since(start);
            }
        }
    }

    /// A `"…"` string; its text without the quotes.
    pub(crate) fn string(&mut self) -> Result<&'a str, PtxError> {
        self.skip_blank()?;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a string"));
        }
        let start = self.pos;
        self.skip_string()?;
        Ok(self.slice(start + 1..self.pos - 1))
    }

    /// At a `"`: skips the string, `\"` inside it included.
    fn skip_string(&mut self) -> Result<(), PtxError> {
        let start = self.pos;
        let mut from = start + 1;
        while let Some(at) =
            memchr::memchr3(b'"', b'\\', b'\n', self.bytes.get(from..).unwrap_or(&[]))
        {
            match self.bytes[from + at] {
                b'"' => {
                    self.pos = from + at + 1;
                    return Ok(());
                }
                b'\\' => from += at + 2,
                _ => break,
            }
        }
        Err(self.unclosed(start, "`\"`"))
    }

    /// At a `{`: skips to the `}` that closes it, past comments and strings. The bytes between the
    /// two.
    pub(crate) fn skip_braces(&mut self) -> Result<Span, PtxError> {
        let start = self.pos;
        let mut depth = 1usize;
        let mut at = start + 1;
        'chunks: while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let mut found = match rest.first_chunk() {
                Some(chunk) => structural(chunk),
                None => {
                    let mut chunk = [0; CHUNK];
                    chunk[..rest.len()].copy_from_slice(rest);
                    structural(&chunk)
                }
            };
            while found != 0 {
                let here = at + found.trailing_zeros() as usize;
                found &= found - 1;
                match self.bytes[here] {
                    b'{' => depth += 1,
                    b'}' => {
                        depth -= 1;
                        if depth == 0 {
                            self.pos = here + 1;
                            return Ok(start + 1..here);
                        }
                    }
                    // What a string or comment hides in this chunk must not count.
                    byte => {
                        self.pos = here;
                        if byte == b'"' {
                            self.skip_string()?;
                        } else if !self.skip_comment()? {
                            self.pos += 1;
                        }
                        at = self.pos;
                        continue 'chunks;
                    }
                }
            }
            at += CHUNK;
        }
        Err(self.unclosed(start, "`{`"))
    }

    /// Skips a constant expression or other raw text up to a top-level `,`, `;` or closing bracket,
    /// and gives it without the blanks and comments at its end.
    pub(crate) fn raw(&mut self, expected: &'static str) -> Result<&'a str, PtxError> {
        self.skip_blank()?;
        let start = self.pos;
        let mut end = start;
        let mut open: Vec<(u8, usize)> = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b',' | b';' | b')' | b']' | b'}' if open.is_empty() => break,
                b';' => break,
                // Behind a blank it is of the next declaration: a `;` is missing.
                b'.' if open.is_empty() && self.pos > end && self.at_directive() => break,
                b'{' => {
                    self.skip_braces()?;
                }
                b'(' | b'[' => {
                    open.push((if byte == b'(' { b')' } else { b']' }, self.pos));
                    self.pos += 1;
                }
                b')' | b']' | b'}' => {
                    if open.pop().is_none_or(|(close, _)| close != byte) {
                        return Err(self.unexpected("a matching bracket"));
                    }
                    self.pos += 1;
                }
                b'"' => self.skip_string()?,
                // One character, not one byte: a position never stands inside a character.
                0x80.. => {
                    self.pos += self.text[self.pos..]
                        .chars()
                        .next()
                        .map_or(1, char::len_utf8)
                }
                _ => self.pos += 1,
            }
            end = self.pos;
            self.skip_blank()?;
        }
        if let Some(&(close, at)) = open.last() {
            return Err(self.unclosed(at, if close == b')' { "`(`" } else { "`[`" }));
        }
        if end == start {
            return Err(self.unexpected(expected));
        }
        Ok(self.slice(start..end))
    }

    /// An unsigned decimal, hexadecimal, octal or binary integer.
    pub(crate) fn integer(&mut self, expected: &'static str) -> Result<u64, PtxError> {
        self.skip_blank()?;
        let start = self.pos;
        match self.number(expected)? {
            Operand::Int(value) => Ok(value.cast_unsigned()),
            _ => Err(self.bad_number(start, "an integer is needed here")),
        }
    }

    /// An integer that must fit 32 bits.
    pub(crate) fn integer32(&mut self, expected: &'static str) -> Result<u32, PtxError> {
        self.skip_blank()?;
        let start = self.pos;
        u32::try_from(self.integer(expected)?)
            .map_err(|_| self.bad_number(start, "it does not fit in 32 bits"))
    }

    /// An unsigned number of any form, PTX ISA "Constants".
    pub(crate) fn number(&mut self, expected: &'static str) -> Result<Operand<'a>, PtxError> {
        let start = self.pos;
        let leading_dot = self.peek() == Some(b'.');
        let first = if leading_dot {
            self.peek_at(1)
        } else {
            self.peek()
        };
        if !first.is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.unexpected(expected));
        }
        self.skip_identifier_rest();
        if leading_dot || self.peek() == Some(b'.') {
            return self.decimal_float(start);
        }
        let word = self.since(start);
        let (_, tail) = word.split_at(1);
        match (word.as_bytes()[0], tail.as_bytes().first()) {
            (b'0', Some(b'f' | b'F')) => match (tail.len(), u32::from_str_radix(&tail[1..], 16)) {
                (9, Ok(bits)) => Ok(Operand::F32(bits)),
                _ => Err(self.bad_number(start, "`0f` wants exactly 8 hexadecimal digits")),
            },
            (b'0', Some(b'd' | b'D')) => match (tail.len(), u64::from_str_radix(&tail[1..], 16)) {
                (17, Ok(bits)) => Ok(Operand::F64(bits)),
                _ => Err(self.bad_number(start, "`0d` wants exactly 16 hexadecimal digits")),
            },
            (b'0', Some(b'x' | b'X')) => self.digits(start, &tail[1..], 16),
            (b'0', Some(b'b' | b'B')) => self.digits(start, &tail[1..], 2),
            (b'0', Some(b'0'..=b'9')) => self.digits(start, tail, 8),
            _ if word.bytes().any(|b| matches!(b, b'e' | b'E')) => self.decimal_float(start),
            _ => self.digits(start, word, 10),
        }
    }

    fn digits(&self, start: usize, digits: &str, radix: u32) -> Result<Operand<'a>, PtxError> {
        let digits = digits.strip_suffix('U').unwrap_or(digits);
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Err(self.bad_number(start, "a digit does not belong to its base"));
        }
        match u64::from_str_radix(digits, radix) {
            Ok(value) => Ok(Operand::Int(value.cast_signed())),
            Err(_) => Err(self.bad_number(start, "it does not fit in 64 bits")),
        }
    }

    /// The rest of `1.5`, `1.e-3` or `.5`, of which the part before the dot or sign is read.
    fn decimal_float(&mut self, start: usize) -> Result<Operand<'a>, PtxError> {
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.skip_identifier_rest();
        }
        let exponent = matches!(self.bytes[self.pos - 1], b'e' | b'E');
        if exponent && matches!(self.peek(), Some(b'+' | b'-')) {
            self.pos += 1;
            self.skip_identifier_rest();
        }
        match self.since(start).parse::<f64>() {
            Ok(value) => Ok(Operand::F64(value.to_bits())),
            Err(_) => Err(self.bad_number(start, "not a decimal floating point number")),
        }
    }

    /// The error for the token at the current position.
    pub(crate) fn unexpected(&self, expected: &'static str) -> PtxError {
        let (line, column) = line_column(self.text, self.pos);
        PtxError::Unexpected {
            line,
            column,
            offset: self.pos,
            expected,
            found: self.token(),
        }
    }

    fn unclosed(&self, offset: usize, what: &'static str) -> PtxError {
        let (line, column) = line_column(self.text, offset);
        PtxError::Unclosed {
            line,
            column,
            offset,
            what,
        }
    }

    /// The error for the number from `start` to the current position.
    pub(crate) fn bad_number(&self, start: usize, reason: &'static str) -> PtxError {
        let (line, column) = line_column(self.text, start);
        PtxError::BadNumber {
            line,
            column,
            offset: start,
            number: self.since(start).to_owned(),
            reason,
        }
    }

    /// The token at the current position as an error shows it.
    fn token(&self) -> String {
        // Long enough for any opcode, short enough for one line.
        const LONGEST: usize = 60;
        let Some(first) = self.peek() else {
            return String::from(if self.bytes.len() < self.text.len() {
                "the end of the body"
            } else {
                "end of text"
            });
        };
        let mut end = self.pos + 1;
        if is(first, IDENT | IDENT_START) || first == b'.' {
            while self
                .bytes
                .get(end)
                .is_some_and(|&b| is(b, IDENT) || b == b'.')
                && end - self.pos < LONGEST
            {
                end += 1;
            }
        } else if !first.is_ascii() {
            end = self.pos
                + self.text[self.pos..]
                    .chars()
                    .next()
                    .map_or(1, char::len_utf8);
        }
        let mut shown = String::from("`");
        for character in self.slice(self.pos..end).chars() {
            if character.is_control() {
                shown.extend(character.escape_debug());
            } else {
                shown.push(character);
            }
        }
        shown.push('`');
        shown
    }
}

/// Bytes of a body that are looked at together.
const CHUNK: usize = 64;

/// A bit for each byte of the chunk that can open, close or hide a brace. Bodies are most of a
/// module, so this is where the time goes; no step has a branch per byte, which lets the compiler
/// use vector compares.
fn structural(chunk: &[u8; CHUNK]) -> u64 {
    let hits = chunk.map(|b| u8::from((b == b'{') | (b == b'}') | (b == b'/') | (b == b'"')));
    // Gathers the lowest bits of eight bytes in the product's highest byte, that of the first byte
    // lowest.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let (eights, _) = hits.as_chunks();
    eights.iter().rev().fold(0, |mask, &eight| {
        mask << 8 | u64::from_le_bytes(eight).wrapping_mul(GATHER) >> 56
    })
}
