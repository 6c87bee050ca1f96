//! `bpf_trace_printk` and `bpf_trace_vprintk` on the host: the device queues format and arguments,
//! and the text is made here. What each conversion means is in [`warpbpf_abi::format`].
//!
//! The verifier refuses a format with a conversion that is not served; where one comes all the
//! same, the text says what was wrong in its place, because the kernel has long gone on.

use warpbpf_abi::format::{Conversion, MAX_VALUES, Piece, pieces};
use warpbpf_abi::layout::printk as layout;

use crate::bytes::{u32_at, u64_at};

pub use layout::VERBATIM;

/// A queued message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its format.
    pub format: Format,
    /// It is no format: a `%` in it is a `%`.
    pub verbatim: bool,
    /// The arguments, at most [`MAX_VALUES`].
    pub args: Vec<u64>,
    /// `%globaltimer` in nanoseconds.
    pub time: u64,
    /// blockIdx.
    pub block: [u32; 3],
    /// threadIdx.
    pub thread: [u32; 3],
}

/// Where a message's format is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// In a map's value.
    At {
        /// Session index of the map.
        map: u32,
        /// Byte offset in the value.
        offset: u32,
        /// Bytes with its NUL, or 0.
        size: u32,
    },
    /// The message carries it, with its NUL.
    Carried(Vec<u8>),
}

impl Message {
    /// Reads the payload of a ring record; `None` if its size is not what its number of arguments
    /// and its format ask for.
    pub fn read(record: &[u8]) -> Option<Message> {
        if (record.len() as u64) < layout::size(0) {
            return None;
        }
        let word = |at| u32_at(record, at);
        let triple = |at| [word(at), word(at + 4), word(at + 8)];
        let verbatim = word(layout::ARGS) == VERBATIM;
        let args = match word(layout::ARGS) {
            VERBATIM => 0,
            n => n as usize,
        };
        if args > MAX_VALUES {
            return None;
        }
        let (at, size) = (layout::size(args), word(layout::FORMAT_SIZE));
        let is_carried = word(layout::FORMAT_MAP) == layout::CARRIED;
        let end = match is_carried {
            true => at + layout::carried(size as usize),
            false => at,
        };
        if record.len() as u64 != end {
            return None;
        }
        Some(Message {
            format: match is_carried {
                true => Format::Carried(record.get(at as usize..)?.get(..size as usize)?.to_vec()),
                false => Format::At {
                    map: word(layout::FORMAT_MAP),
                    offset: word(layout::FORMAT_OFFSET),
                    size,
                },
            },
            verbatim,
            args: (0..args as u64)
                .map(|i| u64_at(record, layout::ARG + i * 8))
                .collect(),
            time: u64_at(record, layout::TIME),
            block: triple(layout::BLOCK),
            thread: triple(layout::THREAD),
        })
    }

    /// The text; `None` if nothing is where the record says that its format is. `string` gives the
    /// bytes from an offset of a map on: for such a format, and for `%s`, whose value is `session
    /// index << 32 | offset` of a constant string.
    pub fn text<'a>(&self, string: impl Fn(u32, u32) -> Option<&'a [u8]>) -> Option<String> {
        let bytes = match &self.format {
            Format::At { map, offset, .. } => string(*map, *offset)?,
            Format::Carried(bytes) => bytes,
        };
        Some(match self.verbatim {
            true => String::from_utf8_lossy(until_nul(bytes)).into_owned(),
            false => format(&self.args, bytes, string),
        })
    }
}

/// The text for `format_bytes`, read up to its NUL, and `args`; for `string` see [`Message::text`].
pub fn format<'a>(
    args: &[u64],
    format_bytes: &[u8],
    string: impl Fn(u32, u32) -> Option<&'a [u8]>,
) -> String {
    let mut out = Vec::with_capacity(64);
    let mut args = args.iter().copied();
    for piece in pieces(format_bytes) {
        let (text, problem) = match piece {
            Piece::Text(text)
            | Piece::Refused {
                text,
                takes_value: false,
            } => {
                out.extend_from_slice(text);
                continue;
            }
            Piece::Refused {
                text,
                takes_value: true,
            } => match args.next() {
                Some(_) => (text, "not supported"),
                None => (text, "has no argument"),
            },
            Piece::Value { spec, text } => match args.next() {
                Some(value) if spec.conversion == Conversion::String => {
                    match string((value >> 32) as u32, value as u32) {
                        Some(bytes) => {
                            spec.print_text(until_nul(bytes), &mut out);
                            continue;
                        }
                        None => (text, "is no constant string"),
                    }
                }
                Some(value) => {
                    spec.print(value, &mut out);
                    continue;
                }
                None => (text, "has no argument"),
            },
        };
        out.push(b'<');
        out.extend_from_slice(text);
        out.push(b' ');
        out.extend_from_slice(problem.as_bytes());
        out.push(b'>');
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
