//! From text to tokens.
//!
//! Written by hand: a probe is raw text up to its filter or block, `/` ends a filter or divides,
//! and `#` begins a line of comment only at the start of the script. A generated lexer (`logos`)
//! would need these three cases by hand anyway.

use crate::error::{Problem, ScriptError};
use crate::span::Span;

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// `@name`, or `@`
    Map(String),
    /// `$name`, without `$`
    Variable(String),
    /// A name or a word of the language.
    Word(String),
    /// A number.
    Number(i64),
    /// A string, without its quotes.
    Text(String),
    /// A sign.
    Sign(&'static str),
    /// The `/` behind a filter: a `{` follows.
    FilterEnd,
    /// Nothing more.
    End,
}

impl Token {
    /// For messages.
    pub fn shown(&self) -> String {
        match self {
            Token::Map(name) | Token::Word(name) => format!("`{name}`"),
            Token::Variable(name) => format!("`${name}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Text(text) => format!("`{text:?}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::FilterEnd => "`/`, which ends the filter".into(),
            Token::End => "the end of the script".into(),
        }
    }
}

/// All signs, longer ones first.
const SIGNS: [&str; 39] = [
    "<<=", ">>=", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>", "<=",
    ">=", "==", "!=", "&&", "||", "..", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">",
    "=", "?", ":", ";", ",", ".",
];
const BRACKETS: [&str; 6] = ["(", ")", "[", "]", "{", "}"];

/// Reads a script from its start to its end.
#[derive(Debug, Clone)]
pub struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'s> Lexer<'s> {
    /// At the start of a script, behind its `#!` line.
    pub fn new(source: &'s str) -> Lexer<'s> {
        let mut lexer = Lexer { source, at: 0 };
        if source.starts_with("#!") {
            lexer.at = source.find('\n').unwrap_or(source.len());
        }
        lexer
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// Where it is.
    pub fn here(&self) -> Span {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        Span {
            start: self.at,
            end: self.at + length,
        }
    }

    fn since(&self, start: usize) -> Span {
        Span {
            start,
            end: self.at,
        }
    }

    /// Passes blanks and comments.
    ///
    /// # Errors
    /// A comment without an end.
    pub fn blanks(&mut self) -> Result<(), ScriptError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let start = self.at;
                let Some(end) = trimmed.find("*/") else {
                    let what = "this comment";
                    let span = Span {
                        start,
                        end: start + 2,
                    };
                    return Err(Problem::Unended { what }.at(span));
                };
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    /// Nothing but blanks and comments is left.
    ///
    /// # Errors
    /// A comment without an end.
    pub fn is_at_end(&mut self) -> Result<bool, ScriptError> {
        self.blanks()?;
        Ok(self.rest().is_empty())
    }

    /// The raw text of one probe. It ends in front of `{`, of a `/` behind a blank, of a comma with
    /// another probe behind it, or at the end. Quotes hold anything.
    ///
    /// # Errors
    /// A string without an end.
    pub fn probe(&mut self) -> Result<(String, Span), ScriptError> {
        self.blanks()?;
        let start = self.at;
        let mut text = String::new();
        let mut quoted = None;
        while let Some(c) = self.rest().chars().next() {
            match (quoted, c) {
                (None, '"') => quoted = Some(self.at),
                (Some(_), '"') => quoted = None,
                (None, '{') => break,
                (None, '/') if text.ends_with(char::is_whitespace) => break,
                (None, ',') if begins_probe(&self.rest()[1..]) => break,
                _ => text.push(c),
            }
            self.at += c.len_utf8();
        }
        if let Some(start) = quoted {
            let what = "this string";
            let span = Span {
                start,
                end: start + 1,
            };
            return Err(Problem::Unended { what }.at(span));
        }
        let whole = &self.source[start..self.at];
        let span = Span {
            start,
            end: start + whole.trim_end().len(),
        };
        Ok((text.trim().to_owned(), span))
    }

    /// Passes a comma between probes.
    pub fn comma(&mut self) -> bool {
        let found = self.rest().starts_with(',');
        self.at += usize::from(found);
        found
    }

    /// The next token and its place.
    ///
    /// # Errors
    /// What is no token.
    pub fn token(&mut self) -> Result<(Token, Span), ScriptError> {
        self.blanks()?;
        let start = self.at;
        let Some(c) = self.rest().chars().next() else {
            return Ok((Token::End, self.here()));
        };
        let token = match c {
            '@' => {
                self.at += 1;
                Token::Map(format!("@{}", self.word()))
            }
            '$' => {
                self.at += 1;
                match self.word() {
                    "" => {
                        return Err(Problem::Character { found: '$' }.at(self.since(start)));
                    }
                    name => Token::Variable(name.to_owned()),
                }
            }
            '"' => Token::Text(self.string()?),
            c if c.is_ascii_digit() => Token::Number(self.number()?),
            c if is_word(c) => Token::Word(self.word().to_owned()),
            '/' if self.rest()[1..].trim_start().starts_with('{') => {
                self.at += 1;
                Token::FilterEnd
            }
            c => {
                let rest = self.rest();
                let mut signs = SIGNS.iter().chain(&BRACKETS);
                let Some(sign) = signs.find(|sign| rest.starts_with(**sign)) else {
                    return Err(Problem::Character { found: c }.at(self.here()));
                };
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok((token, self.since(start)))
    }

    fn word(&mut self) -> &'s str {
        let rest = self.rest();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn string(&mut self) -> Result<String, ScriptError> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let mut chars = self.rest().chars();
            let at = self.at;
            let Some(c) = chars.next().filter(|c| *c != '\n') else {
                let span = Span {
                    start,
                    end: start + 1,
                };
                return Err(Problem::Unended {
                    what: "this string",
                }
                .at(span));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(text),
                '\\' => {
                    let escape = chars.next().unwrap_or(' ');
                    self.at += escape.len_utf8();
                    text.push(match escape {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        '"' => '"',
                        '\\' => '\\',
                        '0' => '\0',
                        escape => {
                            return Err(Problem::Escape { escape }.at(self.since(at)));
                        }
                    });
                }
                c => text.push(c),
            }
        }
    }

    /// `12`, `0x1f`, `1_000`, `1e6`, and with a unit `10ms`, `2s`, `5us`, `7ns`.
    fn number(&mut self) -> Result<i64, ScriptError> {
        let start = self.at;
        let text = self.word();
        let fail = |why| {
            let span = Span {
                start,
                end: start + text.len(),
            };
            let text = text.to_owned();
            Err(Problem::Number { text, why }.at(span))
        };
        let digits = text.replace('_', "");
        if text.ends_with('_') {
            return fail("a `_` stands between digits");
        }
        if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            return match u64::from_str_radix(hex, 16) {
                Ok(number) => Ok(number as i64),
                Err(_) => fail("hexadecimal digits are expected, 16 at most"),
            };
        }
        const UNITS: [(&str, i64); 7] = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
            ("d", 86_400_000_000_000),
        ];
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let (mantissa, suffix) = digits.split_at(end.unwrap_or(digits.len()));
        let Ok(mantissa) = mantissa.parse::<i64>() else {
            return fail("it has more than 63 bits");
        };
        let factor = if suffix.is_empty() {
            Some(1)
        } else if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
            match exponent.parse::<u32>() {
                Ok(exponent) => 10i64.checked_pow(exponent),
                Err(_) => return fail("digits are expected behind `e`"),
            }
        } else {
            let unit = UNITS.iter().find(|(unit, _)| *unit == suffix);
            match unit {
                Some((_, factor)) => Some(*factor),
                None => {
                    return fail(
                        "digits, `0x` with hexadecimal digits, `1e6`, or a time such as `10ms` are expected",
                    );
                }
            }
        };
        match factor.and_then(|factor| mantissa.checked_mul(factor)) {
            Some(number) => Ok(number),
            None => fail("it has more than 63 bits"),
        }
    }
}

/// Words that begin a probe.
pub const PROBES: [&str; 13] = [
    "gpu",
    "cuda",
    "cudaret",
    "uprobe",
    "uretprobe",
    "tracepoint",
    "fentry",
    "fexit",
    "kprobe",
    "kretprobe",
    "interval",
    "BEGIN",
    "END",
];

fn begins_probe(text: &str) -> bool {
    let text = text.trim_start();
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let colon = rest.starts_with(':') && !rest.starts_with("::");
    match word {
        "BEGIN" | "END" => true,
        // A misspelt one begins a probe, too: it is named then.
        word => colon || PROBES.contains(&word) && rest.is_empty(),
    }
}
