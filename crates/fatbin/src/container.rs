//! The fatbin itself: walking entries and undoing their compression. The layout is in the crate's
//! documentation.

use std::borrow::Cow;
use std::io::Read;

use crate::error::FatbinError;

/// First four bytes of a fatbin.
pub const FATBIN_MAGIC: u32 = 0xba55_ed50;
/// Bytes of a fatbin's header: what [`fatbin_len`] needs.
pub const FATBIN_HEADER_BYTES: usize = 16;
/// The fixed part of an entry's header.
const ENTRY_HEADER_BYTES: usize = 64;
/// LZ4 encodes at most 255 bytes per byte, behind a short start.
const LZ4_MAX_RATIO: u64 = 255;
/// No image comes near it; a damaged length must not make us allocate without bound.
const MAX_PAYLOAD: u64 = 4 << 30;

/// Bits of an entry's flags.
pub mod flags {
    /// 64-bit addresses; in every sample.
    pub const ADDRESS_64: u64 = 0x1;
    /// Made on Linux.
    pub const HOST_LINUX: u64 = 0x10;
    /// The payload is an LZ4 block.
    pub const LZ4: u64 = 0x2000;
    /// The payload is a zstd frame.
    pub const ZSTD: u64 = 0x8000;
    /// The architecture's suffix is `a`: exactly this compute capability.
    pub const ARCH_SPECIFIC: u64 = 0x10_0000;
    /// The architecture's suffix is `f`: this compute capability's family.
    pub const FAMILY_SPECIFIC: u64 = 0x20_0000;
    /// The header ends in a copy of the cubin's `.nv.compat`.
    pub const COMPAT_COPY: u64 = 0x100_0000;
}

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// PTX text.
    Ptx,
    /// Machine code, an ELF.
    Elf,
    /// A number this crate does not know (the device linker has some); its bytes are available all
    /// the same.
    Other(u16),
}

/// How an entry's payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// One LZ4 block (`--compress-mode=speed`).
    Lz4,
    /// One zstd frame (`--compress-mode=balance`, the default, and `size`).
    Zstd,
}

/// One entry, borrowed from the fatbin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number in the fatbin, from 0.
    pub index: usize,
    /// Where its header begins, from the fatbin's first byte.
    pub offset: usize,
    /// What it holds.
    pub kind: EntryKind,
    /// Architecture number: 90 for `sm_90a` and for `compute_90`.
    pub arch: u32,
    /// `a` or `f`, if the architecture has one.
    pub suffix: Option<char>,
    /// All flags, see [`flags`].
    pub flags: u64,
    /// Version of the PTX ISA (9, 0), or of the cubin.
    pub version: (u16, u16),
    /// How the payload is stored.
    pub compression: Compression,
    /// Length that decompression must give; 0 if not compressed.
    pub uncompressed_bytes: u64,
    /// Name of the source file, where the compiler put it in.
    pub name: Option<&'a str>,
    /// The payload as stored, without the padding where the length without is known.
    pub stored: &'a [u8],
}

impl<'a> Entry<'a> {
    /// `sm_90a`, `compute_80`: the architecture as `nvcc` writes it.
    pub fn arch_name(&self) -> String {
        let prefix = match self.kind {
            EntryKind::Ptx => "compute",
            EntryKind::Elf | EntryKind::Other(_) => "sm",
        };
        let suffix = self.suffix.map(String::from).unwrap_or_default();
        format!("{prefix}_{}{suffix}", self.arch)
    }

    /// The payload, decompressed if need be. PTX text comes without the NULs behind it.
    ///
    /// # Errors
    /// [`FatbinError::Length`] and [`FatbinError::Damaged`] for a payload that does not decompress
    /// to what it promises.
    pub fn payload(&self) -> Result<Cow<'a, [u8]>, FatbinError> {
        let whole = match self.compression {
            Compression::None => Cow::Borrowed(self.stored),
            Compression::Lz4 => Cow::Owned(self.lz4()?),
            Compression::Zstd => Cow::Owned(self.zstd()?),
        };
        if self.kind != EntryKind::Ptx {
            return Ok(whole);
        }
        let end = whole
            .iter()
            .rposition(|&b| b != 0)
            .map_or(0, |last| last + 1);
        Ok(match whole {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(end);
                Cow::Owned(bytes)
            }
        })
    }

    fn lz4(&self) -> Result<Vec<u8>, FatbinError> {
        let length =
            self.checked_length((self.stored.len() as u64 + 16).saturating_mul(LZ4_MAX_RATIO))?;
        let out = lz4_flex::block::decompress(self.stored, length)
            .map_err(|reason| self.damaged("LZ4", reason.to_string()))?;
        self.exactly("LZ4", out)
    }

    fn zstd(&self) -> Result<Vec<u8>, FatbinError> {
        let length = self.checked_length(MAX_PAYLOAD)?;
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(self.stored)
            .map_err(|reason| self.damaged("zstd", reason.to_string()))?;
        let mut out = Vec::new();
        // One byte more than promised is enough to see that the promise is wrong.
        (&mut decoder)
            .take(length as u64 + 1)
            .read_to_end(&mut out)
            .map_err(|reason| self.damaged("zstd", reason.to_string()))?;
        self.exactly("zstd", out)
    }

    fn checked_length(&self, most: u64) -> Result<usize, FatbinError> {
        let announced = self.uncompressed_bytes;
        match usize::try_from(announced) {
            Ok(length) if announced <= most.min(MAX_PAYLOAD) => Ok(length),
            _ => Err(FatbinError::Length {
                index: self.index,
                offset: self.offset,
                stored: self.stored.len(),
                announced,
            }),
        }
    }

    fn exactly(&self, method: &'static str, out: Vec<u8>) -> Result<Vec<u8>, FatbinError> {
        if out.len() as u64 == self.uncompressed_bytes {
            return Ok(out);
        }
        let promised = self.uncompressed_bytes;
        let found = if out.len() as u64 > promised {
            "more".to_owned()
        } else {
            format!("`{}`", out.len())
        };
        Err(self.damaged(
            method,
            format!("it holds {found} bytes instead of `{promised}`"),
        ))
    }

    fn damaged(&self, method: &'static str, reason: String) -> FatbinError {
        FatbinError::Damaged {
            index: self.index,
            offset: self.offset,
            method,
            reason,
        }
    }
}

/// Whole length in bytes of the fatbin that begins with `header`, its own header included.
/// [`FATBIN_HEADER_BYTES`] of it are enough: with only a pointer in hand, read those, then this
/// many.
///
/// # Errors
/// [`FatbinError::ShortHeader`], [`FatbinError::Magic`], [`FatbinError::Version`];
/// [`FatbinError::Truncated`] for a length that no address space holds.
pub fn fatbin_len(header: &[u8]) -> Result<usize, FatbinError> {
    let Some(header) = header.get(..FATBIN_HEADER_BYTES) else {
        return Err(FatbinError::ShortHeader {
            available: header.len(),
        });
    };
    let magic = u32_at(header, 0);
    if magic != FATBIN_MAGIC {
        return Err(FatbinError::Magic { found: magic });
    }
    let (version, header_bytes) = (u16_at(header, 4), u16_at(header, 6));
    if version != 1 || usize::from(header_bytes) != FATBIN_HEADER_BYTES {
        return Err(FatbinError::Version {
            version,
            header_bytes,
        });
    }
    let announced = u64_at(header, 8);
    announced
        .checked_add(FATBIN_HEADER_BYTES as u64)
        .filter(|&whole| whole <= isize::MAX as u64)
        .and_then(|whole| usize::try_from(whole).ok())
        .ok_or(FatbinError::Truncated {
            announced,
            available: 0,
        })
}

/// The entries of a fatbin, in file order. Bytes behind the fatbin are ignored.
///
/// # Errors
/// The first thing that does not fit, with the entry's number and offset. Payloads are not
/// decompressed here.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let whole = fatbin_len(bytes)?;
    let Some(fatbin) = bytes.get(..whole) else {
        return Err(FatbinError::Truncated {
            announced: (whole - FATBIN_HEADER_BYTES) as u64,
            available: bytes.len() - FATBIN_HEADER_BYTES,
        });
    };
    let mut found = Vec::new();
    let mut offset = FATBIN_HEADER_BYTES;
    while offset < fatbin.len() {
        let (entry, next) = entry(fatbin, found.len(), offset)?;
        found.push(entry);
        offset = next;
    }
    Ok(found)
}

fn entry(fatbin: &[u8], index: usize, offset: usize) -> Result<(Entry<'_>, usize), FatbinError> {
    let rest = &fatbin[offset..];
    let short = |header_bytes| FatbinError::EntryHeader {
        index,
        offset,
        header_bytes,
        available: rest.len(),
    };
    let fixed = rest
        .get(..ENTRY_HEADER_BYTES)
        .ok_or_else(|| short(ENTRY_HEADER_BYTES as u64))?;
    let header_bytes = u32_at(fixed, 4);
    let header = usize::try_from(header_bytes)
        .ok()
        .filter(|&n| n >= ENTRY_HEADER_BYTES)
        .and_then(|n| rest.get(..n))
        .ok_or_else(|| short(u64::from(header_bytes)))?;
    let behind = &rest[header.len()..];
    let payload_bytes = u64_at(header, 8);
    let payload_error = |payload_bytes| FatbinError::EntryPayload {
        index,
        offset,
        payload_bytes,
        available: behind.len(),
    };
    let padded = usize::try_from(payload_bytes)
        .ok()
        .and_then(|n| behind.get(..n))
        .ok_or_else(|| payload_error(payload_bytes))?;

    let entry_flags = u64_at(header, 40);
    let compression = match (
        entry_flags & flags::LZ4 != 0,
        entry_flags & flags::ZSTD != 0,
    ) {
        (false, false) => Compression::None,
        (true, false) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (true, true) => {
            return Err(FatbinError::Compression {
                index,
                offset,
                flags: entry_flags,
            });
        }
    };
    let compressed_bytes = u32_at(header, 16);
    let stored = match compression {
        Compression::None => padded,
        Compression::Lz4 | Compression::Zstd => padded
            .get(..compressed_bytes as usize)
            .ok_or_else(|| payload_error(u64::from(compressed_bytes)))?,
    };
    let kind = match u16_at(header, 0) {
        1 => EntryKind::Ptx,
        2 => EntryKind::Elf,
        other => EntryKind::Other(other),
    };
    let suffix = if entry_flags & flags::ARCH_SPECIFIC != 0 {
        Some('a')
    } else if entry_flags & flags::FAMILY_SPECIFIC != 0 {
        Some('f')
    } else {
        None
    };
    let name_at = u32_at(header, 32) as usize;
    let name = match u32_at(header, 36) as usize {
        0 => None,
        length => name_at
            .checked_add(length)
            .and_then(|end| header.get(name_at..end))
            .and_then(|name| std::str::from_utf8(name).ok()),
    };
    let entry = Entry {
        index,
        offset,
        kind,
        arch: u32_at(header, 28),
        suffix,
        flags: entry_flags,
        version: (u16_at(header, 26), u16_at(header, 24)),
        compression,
        uncompressed_bytes: u64_at(header, 56),
        name,
        stored,
    };
    Ok((entry, offset + header.len() + padded.len()))
}

/// The callers have checked that the field lies in `bytes`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
