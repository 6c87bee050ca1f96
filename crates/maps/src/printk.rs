//! `bpf_trace_printk` on the host: the device queues format and arguments, and the text is made here.
//!
//! The conversions are those that Linux allows (`bpf_bprintf_prepare`), with its meaning of each: `%d %i %u %x %X` take
//! 32 bits of the argument, `l` and `ll` 64, `%p` sixteen hexadecimal digits. Linux refuses a bad format when the program
//! calls the helper; here the text says what was wrong in its place, because the kernel has long gone on.

use warpbpf_abi::layout::printk as layout;

use crate::bytes::{u32_at, u64_at};

pub use layout::VERBATIM;

/// A queued message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Session index of the map that holds the format.
    pub format_map: u32,
    /// Byte offset of the format in that map's value.
    pub format_offset: u32,
    /// Bytes of the format with its NUL.
    pub format_size: u32,
    /// Number of arguments.
    pub args: u32,
    /// Arguments; those beyond `args` are meaningless.
    pub arg: [u64; 3],
    /// `%globaltimer` in nanoseconds.
    pub time: u64,
    /// blockIdx.
    pub block: [u32; 3],
    /// threadIdx.
    pub thread: [u32; 3],
}

impl Message {
    /// Reads the payload of a ring record; `None` if it has another size.
    pub fn read(record: &[u8]) -> Option<Message> {
        if record.len() as u64 != layout::SIZE {
            return None;
        }
        let word = |at| u32_at(record, at);
        let triple = |at| [word(at), word(at + 4), word(at + 8)];
        let arg = |i: u64| u64_at(record, layout::ARG + i * 8);
        Some(Message {
            format_map: word(layout::FORMAT_MAP),
            format_offset: word(layout::FORMAT_OFFSET),
            format_size: word(layout::FORMAT_SIZE),
            args: word(layout::ARGS),
            arg: [arg(0), arg(1), arg(2)],
            time: u64_at(record, layout::TIME),
            block: triple(layout::BLOCK),
            thread: triple(layout::THREAD),
        })
    }

    /// The arguments that were given.
    pub fn args(&self) -> &[u64] {
        match self.args {
            VERBATIM => &[],
            n => &self.arg[..(n as usize).min(3)],
        }
    }

    /// The text; `format` is the bytes that the record points to.
    pub fn text(&self, format_bytes: &[u8]) -> String {
        if self.args == VERBATIM {
            return String::from_utf8_lossy(until_nul(format_bytes)).into_owned();
        }
        format(self.args(), format_bytes)
    }
}

/// The text that Linux would print for `format_bytes`, read up to its NUL, and `args`.
pub fn format(args: &[u64], format_bytes: &[u8]) -> String {
    let format = until_nul(format_bytes);
    let mut out = Vec::with_capacity(format.len() + 32);
    let mut args = args.iter().copied();
    let mut at = 0;
    while at < format.len() {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        let spec = Spec::parse(&format[at..]);
        spec.print(&mut args, &mut out);
        at += spec.text.len();
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    Percent,
    Char,
    Pointer,
    Signed,
    Unsigned,
    Hex,
    HexUpper,
    /// Known to printf, but not served: takes an argument and shows itself.
    Refused,
    /// No conversion at all: shows itself.
    Text,
}

/// Widths beyond this are not printed: a line of a terminal is a tenth of it.
const MAX_WIDTH: usize = 1024;

struct Spec<'a> {
    text: &'a [u8],
    zero: bool,
    left: bool,
    plus: bool,
    space: bool,
    width: usize,
    long: bool,
    conversion: Conversion,
}

impl<'a> Spec<'a> {
    /// `format` starts with `%`.
    fn parse(format: &'a [u8]) -> Spec<'a> {
        let mut spec = Spec {
            text: format,
            zero: false,
            left: false,
            plus: false,
            space: false,
            width: 0,
            long: false,
            conversion: Conversion::Text,
        };
        let mut at = 1;
        while let Some(flag) = format.get(at) {
            match flag {
                b'0' => spec.zero = true,
                b'-' => spec.left = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                _ => break,
            }
            at += 1;
        }
        while let Some(digit) = format.get(at).filter(|byte| byte.is_ascii_digit()) {
            spec.width = (spec.width * 10 + usize::from(digit - b'0')).min(MAX_WIDTH);
            at += 1;
        }
        let longs = format[at..]
            .iter()
            .take_while(|byte| **byte == b'l')
            .count();
        spec.long = longs > 0;
        at += longs;
        let letter = format.get(at).copied();
        spec.conversion = match letter {
            Some(b'%') if at == 1 => Conversion::Percent,
            Some(b'd' | b'i') if longs <= 2 => Conversion::Signed,
            Some(b'u') if longs <= 2 => Conversion::Unsigned,
            Some(b'x') if longs <= 2 => Conversion::Hex,
            Some(b'X') if longs <= 2 => Conversion::HexUpper,
            Some(b'c') if longs == 0 => Conversion::Char,
            Some(b'p') if longs == 0 => Conversion::Pointer,
            Some(letter) if letter.is_ascii_alphabetic() => Conversion::Refused,
            _ => Conversion::Text,
        };
        let mut end = match spec.conversion {
            Conversion::Text => 1,
            _ => at + 1,
        };
        if spec.conversion == Conversion::Pointer {
            // `%px` is the plain value; other letters ask for symbols, addresses or strings of the kernel.
            let suffix = format[end..]
                .iter()
                .take_while(|byte| byte.is_ascii_alphanumeric())
                .count();
            match &format[end..end + suffix] {
                b"" => {}
                b"x" => end += 1,
                _ => {
                    spec.conversion = Conversion::Refused;
                    end += suffix;
                }
            }
        }
        spec.text = &format[..end];
        spec
    }

    fn print(&self, args: &mut impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        match self.conversion {
            Conversion::Text => return out.extend_from_slice(self.text),
            Conversion::Percent => return out.push(b'%'),
            _ => {}
        }
        let Some(arg) = args.next() else {
            return self.note(" has no argument", out);
        };
        let bits = if self.long { arg } else { arg & 0xffff_ffff };
        match self.conversion {
            Conversion::Text | Conversion::Percent => {}
            Conversion::Refused => self.note(" not supported", out),
            Conversion::Char => self.pad(b"", &[arg as u8], false, out),
            Conversion::Pointer => self.pad(b"", format!("{arg:016x}").as_bytes(), false, out),
            Conversion::Unsigned => self.number(b"", bits.to_string(), out),
            Conversion::Hex => self.number(b"", format!("{bits:x}"), out),
            Conversion::HexUpper => self.number(b"", format!("{bits:X}"), out),
            Conversion::Signed => {
                let value = if self.long {
                    arg as i64
                } else {
                    i64::from(arg as i32)
                };
                let sign: &[u8] = match (value < 0, self.plus, self.space) {
                    (true, _, _) => b"-",
                    (false, true, _) => b"+",
                    (false, false, true) => b" ",
                    (false, false, false) => b"",
                };
                self.number(sign, value.unsigned_abs().to_string(), out);
            }
        }
    }

    fn number(&self, sign: &[u8], digits: String, out: &mut Vec<u8>) {
        self.pad(sign, digits.as_bytes(), self.zero && !self.left, out);
    }

    fn pad(&self, sign: &[u8], text: &[u8], zeros: bool, out: &mut Vec<u8>) {
        let fill = self.width.saturating_sub(sign.len() + text.len());
        if !zeros && !self.left {
            out.extend(std::iter::repeat_n(b' ', fill));
        }
        out.extend_from_slice(sign);
        if zeros {
            out.extend(std::iter::repeat_n(b'0', fill));
        }
        out.extend_from_slice(text);
        if self.left {
            out.extend(std::iter::repeat_n(b' ', fill));
        }
    }

    fn note(&self, what: &str, out: &mut Vec<u8>) {
        out.push(b'<');
        out.extend_from_slice(self.text);
        out.extend_from_slice(what.as_bytes());
        out.push(b'>');
    }
}
