//! Formats of `printf`: read when the script is checked, filled in when a record comes.

use crate::error::Problem;
use crate::types::{Type, text};

/// A format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    /// Its parts, in order.
    pub pieces: Vec<Piece>,
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Printed as it is.
    Text(String),
    /// A value.
    Conversion(Conversion),
}

/// How a value is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// As it was written.
    pub text: String,
    /// Left in its width (`-`).
    pub left: bool,
    /// Zeros in front (`0`).
    pub zeros: bool,
    /// A sign in any case (`+`).
    pub plus: bool,
    /// `0x` in front of `%x` (`#`).
    pub prefix: bool,
    /// Characters at least.
    pub width: usize,
    /// The letter.
    pub letter: char,
    /// What the value is.
    pub ty: Type,
}

const LETTERS: &str = "diuxXopcs";
/// Words of C that say how large a value is; all values have 64 bits here.
const SIZES: [&str; 6] = ["hh", "h", "ll", "l", "z", "j"];

impl Format {
    /// Reads a format for values of these types.
    ///
    /// # Errors
    /// A conversion that there is not, one that does not fit its value, and another number of
    /// values.
    pub fn parse(text: &str, types: &[Type]) -> Result<Format, Problem> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut conversions = 0;
        let mut rest = text;
        let mut plain = String::new();
        while let Some(at) = rest.find('%') {
            plain.push_str(&rest[..at]);
            let from = &rest[at..];
            if from[1..].starts_with('%') {
                plain.push('%');
                rest = &from[2..];
                continue;
            }
            let (mut conversion, behind) = conversion(from)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            if let Some(ty) = types.get(conversions) {
                conversion.ty = *ty;
                conversion.check()?;
            }
            conversions += 1;
            pieces.push(Piece::Conversion(conversion));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        let counted = |count: usize, what: &str| match count {
            1 => format!("one {what}"),
            count => format!("{count} {what}s"),
        };
        if conversions != types.len() {
            return Err(Problem::FormatCount {
                expected: counted(conversions, "conversion"),
                found: counted(types.len(), "value"),
            });
        }
        Ok(Format { pieces })
    }

    /// The text for these values. `name` says what a value is called that is no number.
    pub fn fill(&self, values: &[u64], name: &dyn Fn(Type, u64) -> String) -> String {
        let mut out = String::new();
        let mut values = values;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Conversion(conversion) => {
                    let words = conversion.ty.words().min(values.len());
                    let (own, behind) = values.split_at(words);
                    let value = own.first().copied().unwrap_or(0);
                    let read = |ty, value| match ty {
                        Type::Str(_) => {
                            let bytes: Vec<u8> = own.iter().flat_map(|w| w.to_le_bytes()).collect();
                            text(&bytes)
                        }
                        ty => name(ty, value),
                    };
                    conversion.fill(value, &read, &mut out);
                    values = behind;
                }
            }
        }
        out
    }
}

/// Reads one conversion, and what stands behind it.
fn conversion(text: &str) -> Result<(Conversion, &str), Problem> {
    let mut found = Conversion {
        text: String::new(),
        left: false,
        zeros: false,
        plus: false,
        prefix: false,
        width: 0,
        letter: 'd',
        ty: Type::Number,
    };
    let mut rest = &text[1..];
    while let Some(c) = rest.chars().next() {
        match c {
            '-' => found.left = true,
            '0' => found.zeros = true,
            '+' => found.plus = true,
            '#' => found.prefix = true,
            ' ' => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    found.width = rest[..digits].parse().unwrap_or(0).min(1000);
    rest = &rest[digits..];
    if let Some(size) = SIZES.iter().find(|size| rest.starts_with(**size)) {
        rest = &rest[size.len()..];
    }
    let letter = rest.chars().next();
    let shown = text.len() - rest.len() + letter.map_or(0, char::len_utf8);
    found.text = text[..shown].to_owned();
    match letter.filter(|letter| LETTERS.contains(*letter)) {
        Some(letter) => {
            found.letter = letter;
            Ok((found, &rest[1..]))
        }
        None => Err(Problem::Conversion {
            conversion: found.text,
        }),
    }
}

impl Conversion {
    fn check(&self) -> Result<(), Problem> {
        let is_number = self.ty == Type::Number;
        let fits = match self.letter {
            's' => !is_number,
            // Everything else prints numbers, and what is not one has one, too.
            _ => !matches!(
                self.ty,
                Type::Text | Type::File | Type::Device | Type::Str(_)
            ),
        };
        match fits {
            true => Ok(()),
            false => Err(Problem::Type {
                what: format!("what `{}` prints", self.text),
                expected: match self.letter {
                    's' => "something with a name, such as `kernel` or a string".into(),
                    _ => "a number".into(),
                },
                found: self.ty.name().into(),
            }),
        }
    }

    fn fill(&self, value: u64, name: &dyn Fn(Type, u64) -> String, out: &mut String) {
        let signed = value as i64;
        let (sign, digits) = match self.letter {
            's' => ("", name(self.ty, value)),
            'c' => ("", char::from(value as u8).to_string()),
            'u' => ("", value.to_string()),
            'x' if self.prefix => ("0x", format!("{value:x}")),
            'x' => ("", format!("{value:x}")),
            'X' if self.prefix => ("0X", format!("{value:X}")),
            'X' => ("", format!("{value:X}")),
            'o' => ("", format!("{value:o}")),
            'p' => ("0x", format!("{value:x}")),
            _ if signed < 0 => ("-", signed.unsigned_abs().to_string()),
            _ if self.plus => ("+", signed.to_string()),
            _ => ("", signed.to_string()),
        };
        let width = sign.len() + digits.chars().count();
        let fill = self.width.saturating_sub(width);
        let zeros = self.zeros && !self.left && !matches!(self.letter, 's' | 'c');
        match (self.left, zeros) {
            (true, _) => {
                out.push_str(sign);
                out.push_str(&digits);
                out.extend(std::iter::repeat_n(' ', fill));
            }
            (false, true) => {
                out.push_str(sign);
                out.extend(std::iter::repeat_n('0', fill));
                out.push_str(&digits);
            }
            (false, false) => {
                out.extend(std::iter::repeat_n(' ', fill));
                out.push_str(sign);
                out.push_str(&digits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, values: &[(Type, u64)]) -> String {
        let types: Vec<Type> = values.iter().map(|(ty, _)| *ty).collect();
        let values: Vec<u64> = values.iter().map(|(_, value)| *value).collect();
        let format = Format::parse(text, &types).unwrap();
        format.fill(&values, &|_, value| format!("name{value}"))
    }

    #[test]
    fn values_are_printed_as_c_does() {
        let n = |value: i64| (Type::Number, value as u64);
        assert_eq!(
            filled("a %d%% %5d|%-5d|%05d\n", &[n(-1), n(2), n(3), n(-4)]),
            "a -1%     2|3    |-0004\n"
        );
        assert_eq!(
            filled("%x %#X %p %o %u", &[n(255), n(255), n(16), n(8), n(-1)]),
            "ff 0XFF 0x10 10 18446744073709551615"
        );
        assert_eq!(filled("%lld %+d %c", &[n(7), n(7), n(65)]), "7 +7 A");
        assert_eq!(filled("<%8s>", &[(Type::Kernel, 3)]), "<   name3>");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let refused =
            |text: &str, types: &[Type]| Format::parse(text, types).unwrap_err().to_string();
        assert_eq!(
            refused("%d %d", &[Type::Number]),
            "the format has 2 conversions, and one value to print"
        );
        assert_eq!(
            refused("%f", &[Type::Number]),
            "`%f` is no conversion of `printf`"
        );
        assert_eq!(refused("100%", &[]), "`%` is no conversion of `printf`");
        assert_eq!(
            refused("%s", &[Type::Number]),
            "what `%s` prints is a number, and must be something with a name, such as `kernel` or a string"
        );
    }
}
