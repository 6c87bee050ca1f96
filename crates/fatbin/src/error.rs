//! What can be wrong with a container. Every variant says where, so that a broken file can be
//! looked at.

/// A fatbin that cannot be read. The file is at fault (truncated, damaged, or newer than this
/// crate), never the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FatbinError {
    /// Fewer bytes than the 16 of the header.
    #[error("fatbin header needs `16` bytes, only `{available}` are there")]
    ShortHeader {
        /// Bytes given.
        available: usize,
    },
    /// The first four bytes are not the magic.
    #[error("not a fatbin: begins with `{found:#010x}` instead of `0xba55ed50`")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A version or header size that this crate does not know.
    #[error(
        "fatbin version `{version}` with a `{header_bytes}`-byte header is unknown (known: `1`, `16`)"
    )]
    Version {
        /// Version field.
        version: u16,
        /// Header size field.
        header_bytes: u16,
    },
    /// The header announces more bytes than are there.
    #[error("fatbin announces `{announced}` bytes behind its header, only `{available}` are there")]
    Truncated {
        /// Bytes announced.
        announced: u64,
        /// Bytes present.
        available: usize,
    },
    /// An entry's header does not fit.
    #[error(
        "fatbin entry `{index}` at offset `{offset:#x}`: its header of `{header_bytes}` bytes does not fit (`{available}` left)"
    )]
    EntryHeader {
        /// Number of the entry, from 0.
        index: usize,
        /// Offset from the fatbin's first byte.
        offset: usize,
        /// Header size found, or the least possible.
        header_bytes: u64,
        /// Bytes left in the fatbin.
        available: usize,
    },
    /// An entry's payload does not fit.
    #[error(
        "fatbin entry `{index}` at offset `{offset:#x}`: its payload of `{payload_bytes}` bytes does not fit (`{available}` left)"
    )]
    EntryPayload {
        /// Number of the entry, from 0.
        index: usize,
        /// Offset from the fatbin's first byte.
        offset: usize,
        /// Payload size found.
        payload_bytes: u64,
        /// Bytes left behind the entry's header.
        available: usize,
    },
    /// Both compressions are flagged.
    #[error(
        "fatbin entry `{index}` at offset `{offset:#x}`: flags `{flags:#x}` name LZ4 and zstd at once"
    )]
    Compression {
        /// Number of the entry, from 0.
        index: usize,
        /// Offset from the fatbin's first byte.
        offset: usize,
        /// The flags.
        flags: u64,
    },
    /// A length that no compressed payload of this size can have.
    #[error(
        "fatbin entry `{index}` at offset `{offset:#x}`: `{stored}` stored bytes cannot hold `{announced}` bytes"
    )]
    Length {
        /// Number of the entry, from 0.
        index: usize,
        /// Offset from the fatbin's first byte.
        offset: usize,
        /// Bytes stored.
        stored: usize,
        /// Bytes announced after decompression.
        announced: u64,
    },
    /// The decompressor gave up.
    #[error("fatbin entry `{index}` at offset `{offset:#x}`: {method} data is damaged: {reason}")]
    Damaged {
        /// Number of the entry, from 0.
        index: usize,
        /// Offset from the fatbin's first byte.
        offset: usize,
        /// `LZ4` or `zstd`.
        method: &'static str,
        /// The decompressor's words.
        reason: String,
    },
}

/// A cubin that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// Not a 64-bit little-endian ELF, or a damaged one.
    #[error("not a readable ELF: {reason}")]
    Elf {
        /// The ELF reader's words.
        reason: String,
    },
    /// An ELF for another machine.
    #[error("ELF machine `{machine}` is not CUDA (`190`)")]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// An attribute list that ends inside an attribute.
    #[error(
        "section `{section}`: attribute `{attribute:#04x}` at offset `{offset:#x}` does not fit"
    )]
    Attribute {
        /// Section name.
        section: String,
        /// Attribute number.
        attribute: u8,
        /// Offset in the section.
        offset: usize,
    },
}
