//! `bpf_trace_printk` and `bpf_trace_vprintk` on the host: the device queues format and arguments, and the text is made
//! here. What each conversion means is in [`warpbpf_abi::format`].
//!
//! The verifier refuses a format with a conversion that is not served; where one comes all the same, the text says what was
//! wrong in its place, because the kernel has long gone on.

use warpbpf_abi::format::{Conversion, MAX_VALUES, Piece, pieces};
use warpbpf_abi::layout::printk as layout;

use crate::bytes::{u32_at, u64_at};

pub use layout::VERBATIM;

/// A queued message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Session index of the map that holds the format.
    pub format_map: u32,
    /// Byte offset of the format in that map's value.
    pub format_offset: u32,
    /// Bytes of the format with its NUL.
    pub format_size: u32,
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

impl Message {
    /// Reads the payload of a ring record; `None` if its size is not what its number of arguments asks for.
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
        if args > MAX_VALUES || record.len() as u64 != layout::size(args) {
            return None;
        }
        Some(Message {
            format_map: word(layout::FORMAT_MAP),
            format_offset: word(layout::FORMAT_OFFSET),
            format_size: word(layout::FORMAT_SIZE),
            verbatim,
            args: (0..args as u64)
                .map(|i| u64_at(record, layout::ARG + i * 8))
                .collect(),
            time: u64_at(record, layout::TIME),
            block: triple(layout::BLOCK),
            thread: triple(layout::THREAD),
        })
    }

    /// The text; `format` is the bytes that the record points to. `string` gives the bytes from an offset of a map on, for
    /// `%s`: its value is `session index << 32 | offset` of a constant string.
    pub fn text<'a>(
        &self,
        format_bytes: &[u8],
        string: impl Fn(u32, u32) -> Option<&'a [u8]>,
    ) -> String {
        if self.verbatim {
            return String::from_utf8_lossy(until_nul(format_bytes)).into_owned();
        }
        format(&self.args, format_bytes, string)
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
