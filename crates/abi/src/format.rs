//! Formats of `bpf_trace_printk`, `bpf_trace_vprintk` and `bpf_snprintf`: one parser for the
//! verifier, which refuses what is not served, the code generator, which formats on the device, and
//! the host, which formats messages.
//!
//! The conversions are those that Linux allows its programs (`bpf_bprintf_prepare`), with its
//! meaning of each, and a few of `printf` beyond them: `%d %i %u %x %X %o` take 32 bits of the
//! value, with `l`, `ll` or `z` 64, with `h` 16, with `hh` 8; `%p` is sixteen hexadecimal digits,
//! `%c` a byte, `%s` a string in memory. The flags are `0 - + #` and space; there is a width and no
//! precision.

use alloc::vec::Vec;

/// Most values that a format takes, as in Linux.
pub const MAX_VALUES: usize = 12;
/// Widths beyond this count as this.
pub const MAX_WIDTH: u32 = 1024;
/// Digits of `%p`.
pub const POINTER_DIGITS: u32 = 16;

/// What a conversion does with its value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Conversion {
    /// `%c`
    Char,
    /// `%p`
    Pointer,
    /// `%d`, `%i`
    Signed,
    /// `%u`
    Unsigned,
    /// `%o`
    Octal,
    /// `%x`
    Hex,
    /// `%X`
    HexUpper,
    /// `%s`
    String,
}

/// One conversion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// What it does.
    pub conversion: Conversion,
    /// Bits of the value that it looks at: 8, 16, 32 or 64.
    pub bits: u32,
    /// Least number of characters.
    pub width: u32,
    /// Zeros fill the width.
    pub zero: bool,
    /// What fills the width stands behind.
    pub left: bool,
    /// A number that is not negative has a `+`.
    pub plus: bool,
    /// It has a space.
    pub space: bool,
    /// `0x` or `0` stands before.
    pub alternate: bool,
}

/// A part of a format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Piece<'a> {
    /// These bytes.
    Text(&'a [u8]),
    /// A value.
    Value {
        /// What to make of it.
        spec: Spec,
        /// As it stands in the format.
        text: &'a [u8],
    },
    /// A conversion that is not served. It takes a value, as `printf` would see it, or is no
    /// conversion at all.
    Refused {
        /// As it stands in the format.
        text: &'a [u8],
        /// It takes a value.
        takes_value: bool,
    },
}

/// The parts of a format, up to its NUL if it has one.
pub fn pieces(format: &[u8]) -> Pieces<'_> {
    let end = format.iter().position(|&b| b == 0).unwrap_or(format.len());
    Pieces {
        rest: format.get(..end).unwrap_or_default(),
    }
}

/// See [`pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Pieces<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        match self.rest {
            [] => None,
            [b'%', b'%', ..] => {
                self.take(1);
                Some(Piece::Text(self.take(1)))
            }
            [b'%', ..] => {
                let (parsed, bytes) = parse(self.rest);
                let text = self.take(bytes);
                Some(match parsed {
                    Ok(spec) => Piece::Value { spec, text },
                    Err(takes_value) => Piece::Refused { text, takes_value },
                })
            }
            rest => {
                let end = rest.iter().position(|&b| b == b'%').unwrap_or(rest.len());
                Some(Piece::Text(self.take(end)))
            }
        }
    }
}

/// The conversion that `format` begins with, or whether it takes a value, and its bytes.
fn parse(format: &[u8]) -> (Result<Spec, bool>, usize) {
    let mut spec = Spec {
        conversion: Conversion::Unsigned,
        bits: 32,
        width: 0,
        zero: false,
        left: false,
        plus: false,
        space: false,
        alternate: false,
    };
    let mut at = 1;
    while let Some(flag) = format.get(at) {
        match flag {
            b'0' => spec.zero = true,
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alternate = true,
            _ => break,
        }
        at += 1;
    }
    while let Some(digit) = format.get(at).filter(|byte| byte.is_ascii_digit()) {
        spec.width = (spec.width * 10 + u32::from(digit - b'0')).min(MAX_WIDTH);
        at += 1;
    }
    let mut served = true;
    if format.get(at) == Some(&b'.') {
        served = false;
        at += 1;
        while format.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
    }
    let length_at = at;
    while matches!(format.get(at), Some(b'l' | b'h' | b'z')) {
        at += 1;
    }
    let length = format.get(length_at..at).unwrap_or_default();
    spec.bits = match length {
        b"" => 32,
        b"l" | b"ll" | b"z" => 64,
        b"h" => 16,
        b"hh" => 8,
        _ => {
            served = false;
            32
        }
    };
    let number = |conversion| Some((conversion, true));
    let other = |conversion| Some((conversion, length.is_empty()));
    let Some(&letter) = format.get(at) else {
        return (Err(false), 1);
    };
    let found = match letter {
        b'd' | b'i' => number(Conversion::Signed),
        b'u' => number(Conversion::Unsigned),
        b'o' => number(Conversion::Octal),
        b'x' => number(Conversion::Hex),
        b'X' => number(Conversion::HexUpper),
        b'c' => other(Conversion::Char),
        b'p' => other(Conversion::Pointer),
        b's' => other(Conversion::String),
        _ => None,
    };
    let mut end = at + 1;
    let Some((conversion, length_fits)) = found else {
        return match letter.is_ascii_alphabetic() {
            true => (Err(true), end),
            false => (Err(false), 1),
        };
    };
    spec.conversion = conversion;
    served &= length_fits;
    if conversion == Conversion::Pointer {
        spec.bits = 64;
        // `%px` is the plain value; other letters ask for symbols, addresses or strings of the
        // kernel.
        let suffix = format.get(end..).unwrap_or_default();
        let suffix = suffix
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        match format.get(end..end + suffix).unwrap_or_default() {
            b"" => {}
            b"x" => end += 1,
            _ => {
                served = false;
                end += suffix;
            }
        }
    }
    if conversion == Conversion::String {
        spec.bits = 64;
    }
    (if served { Ok(spec) } else { Err(true) }, end)
}

impl Spec {
    /// The value as it is printed: of the bits that it looks at, the magnitude, and what stands
    /// before the digits.
    fn parts(&self, value: u64) -> (u64, &'static [u8]) {
        let unused = 64 - self.bits;
        let sign = |negative| -> &'static [u8] {
            match (negative, self.plus, self.space) {
                (true, _, _) => b"-",
                (false, true, _) => b"+",
                (false, false, true) => b" ",
                (false, false, false) => b"",
            }
        };
        let plain = value << unused >> unused;
        match self.conversion {
            Conversion::Signed => {
                let value = (value << unused) as i64 >> unused;
                (value.unsigned_abs(), sign(value < 0))
            }
            Conversion::Hex if self.alternate => (plain, b"0x"),
            Conversion::HexUpper if self.alternate => (plain, b"0X"),
            Conversion::Octal if self.alternate && plain != 0 => (plain, b"0"),
            Conversion::Char
            | Conversion::Pointer
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::HexUpper
            | Conversion::String => (plain, b""),
        }
    }

    /// Zeros fill the width, if something has to.
    pub const fn fills_zeros(&self) -> bool {
        self.zero
            && !self.left
            && !matches!(
                self.conversion,
                Conversion::Char | Conversion::String | Conversion::Pointer
            )
    }

    /// Appends what it makes of a value; of `%s` nothing but what fills its width, see
    /// [`Spec::print_text`].
    pub fn print(&self, value: u64, out: &mut Vec<u8>) {
        let (magnitude, before) = self.parts(value);
        let digits = match self.conversion {
            Conversion::Char => return self.print_text(&[value as u8], out),
            Conversion::String => return self.print_text(b"", out),
            Conversion::Pointer => alloc::format!("{magnitude:016x}"),
            Conversion::Signed | Conversion::Unsigned => alloc::format!("{magnitude}"),
            Conversion::Octal => alloc::format!("{magnitude:o}"),
            Conversion::Hex => alloc::format!("{magnitude:x}"),
            Conversion::HexUpper => alloc::format!("{magnitude:X}"),
        };
        self.pad(before, digits.as_bytes(), out);
    }

    /// Appends a text at the width.
    pub fn print_text(&self, text: &[u8], out: &mut Vec<u8>) {
        self.pad(b"", text, out);
    }

    fn pad(&self, before: &[u8], text: &[u8], out: &mut Vec<u8>) {
        let fill = (self.width as usize).saturating_sub(before.len() + text.len());
        let (spaces, zeros) = match (self.left, self.fills_zeros()) {
            (true, _) => (0, 0),
            (false, true) => (0, fill),
            (false, false) => (fill, 0),
        };
        out.extend(core::iter::repeat_n(b' ', spaces));
        out.extend_from_slice(before);
        out.extend(core::iter::repeat_n(b'0', zeros));
        out.extend_from_slice(text);
        if self.left {
            out.extend(core::iter::repeat_n(b' ', fill));
        }
    }

    /// Most digits of a number.
    const fn digits(&self) -> u64 {
        match self.conversion {
            Conversion::Octal => self.bits.div_ceil(3) as u64,
            Conversion::Hex | Conversion::HexUpper | Conversion::Pointer => {
                self.bits.div_ceil(4) as u64
            }
            Conversion::Signed | Conversion::Unsigned => match self.bits {
                8 => 3,
                16 => 5,
                32 => 10,
                _ => 20,
            },
            Conversion::Char => 1,
            Conversion::String => 0,
        }
    }

    /// PTX instructions that it takes on the device at most; of `%s` without those for its bytes,
    /// and for its look-up.
    pub const fn cost(&self) -> u64 {
        60 + 34 * self.digits() + 8 * self.width as u64
    }
}

/// PTX instructions on the device for each byte of a format's text,
const TEXT_BYTE_COST: u64 = 10;
/// and for each 8 of them.
const TEXT_WORD_COST: u64 = 26;

/// PTX instructions that formatting takes on the device at most, without those for strings.
pub fn cost(format: &[u8]) -> u64 {
    pieces(format)
        .map(|piece| match piece {
            Piece::Text(text) => {
                let bytes = text.len() as u64;
                TEXT_WORD_COST * bytes.div_ceil(8) + TEXT_BYTE_COST * bytes
            }
            Piece::Value { spec, .. } => spec.cost(),
            Piece::Refused { .. } => 0,
        })
        .sum()
}

/// How many `%s` it has.
pub fn strings(format: &[u8]) -> usize {
    let is_string = |piece: &Piece<'_>| matches!(piece, Piece::Value { spec, .. } if spec.conversion == Conversion::String);
    pieces(format).filter(is_string).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    fn print(format: &str, value: u64) -> String {
        let mut out = Vec::new();
        for piece in pieces(format.as_bytes()) {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Value { spec, .. } if spec.conversion == Conversion::String => {
                    spec.print_text(b"text", &mut out);
                }
                Piece::Value { spec, .. } => spec.print(value, &mut out),
                Piece::Refused { .. } => out.push(b'?'),
            }
        }
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers() {
        let minus = -5i64 as u64;
        for (format, value, expected) in [
            ("%d", minus, "-5"),
            ("%hhd %hd", 0xff80, "-128 -128"),
            ("%hhu", 0x1ff, "255"),
            ("%lld", minus, "-5"),
            ("%u", minus, "4294967291"),
            ("%zu", minus, "18446744073709551611"),
            ("%o %#o", 8, "10 010"),
            ("%#o", 0, "0"),
            ("%#x %#X", 255, "0xff 0XFF"),
            ("[%#8x|%#08x|%-#8x]", 255, "[    0xff|0x0000ff|0xff    ]"),
            ("[%+d|% d|%+5d|%05d]", 42, "[+42| 42|  +42|00042]"),
            ("[%+05d]", minus, "[-0005]"),
            ("[%3c|%-3c]", 97, "[  a|a  ]"),
            ("[%20p]", 0x10, "[    0000000000000010]"),
            ("[%6s|%-6s|%2s]", 0, "[  text|text  |text]"),
            ("100%%", 0, "100%"),
        ] {
            assert_eq!(print(format, value), expected, "{format}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (format, text, takes_value) in [
            ("%f", "%f", true),
            ("%.2d", "%.2d", true),
            ("%llld", "%llld", true),
            ("%lc", "%lc", true),
            ("%pI4", "%pI4", true),
            ("%5", "%", false),
            ("%", "%", false),
            ("%!", "%", false),
        ] {
            assert_eq!(
                pieces(format.as_bytes()).next(),
                Some(Piece::Refused {
                    text: text.as_bytes(),
                    takes_value
                }),
                "{format}"
            );
        }
    }

    #[test]
    fn texts_end_at_the_nul() {
        let all: Vec<Piece<'_>> = pieces(b"a%%b\0%d").collect();
        let texts = vec![Piece::Text(b"a"), Piece::Text(b"%"), Piece::Text(b"b")];
        assert_eq!(all, texts);
        assert_eq!(strings(b"%s%d%5s"), 2);
        assert_eq!(cost(b"ab"), 46);
        assert_eq!(cost(b"nine byte"), 142);
        assert!(cost(b"%llu") > cost(b"%u"));
    }
}
