//! The code of programs that are compiled in parts (`nvcc -rdc=true`): the device linker puts
//! machine code into the program's fatbin, and keeps the fatbins of the parts, with their PTX, in a
//! list beside it. Linked, their PTX is what that machine code was made from.

use std::collections::BTreeMap;

use warpbpf_ptx::link::{LinkError, link};

use crate::container::{Entry, EntryKind, FATBIN_HEADER_BYTES, entries, fatbin_len, flags};
use crate::cubin::Cubin;
use crate::error::FatbinError;

/// Why the parts of a program cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// One of the fatbins cannot be read.
    #[error(transparent)]
    Fatbin(#[from] FatbinError),
    /// A text is no text.
    #[error("the PTX of part `{part}` is not UTF-8")]
    NotUtf8 {
        /// Which, from 0.
        part: usize,
    },
    /// The texts do not go together.
    #[error("the PTX of the program's parts for `{arch}` cannot be linked: {error}")]
    Link {
        /// `compute_90`
        arch: String,
        /// Why.
        error: LinkError,
    },
}

/// An entry and its text.
type Text<'a> = (Entry<'a>, String);

/// A fatbin with what `fatbin` has, and with the PTX of all parts as one text for each architecture
/// that its machine code was made from. A part without such PTX, as NVIDIA's device runtime is one,
/// is left out. `None` if no part has any, or `fatbin` has PTX itself.
///
/// # Errors
/// [`JoinError`]
pub fn join(fatbin: &[u8], parts: &[&[u8]]) -> Result<Option<Vec<u8>>, JoinError> {
    let whole = fatbin_len(fatbin)?;
    let own = entries(fatbin)?;
    if own.iter().any(|entry| entry.kind == EntryKind::Ptx) {
        return Ok(None);
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let mut texts: BTreeMap<(u32, Option<char>), Vec<Text<'_>>> = BTreeMap::new();
    for entry in own.iter().filter(|entry| entry.kind == EntryKind::Elf) {
        let cubin = entry.payload()?;
        let made_from = Cubin::parse(&cubin)
            .ok()
            .and_then(|cubin| cubin.virtual_arch);
        texts.insert((made_from.unwrap_or(entry.arch), entry.suffix), Vec::new());
    }
    for (part, bytes) in parts.iter().enumerate() {
        for entry in entries(bytes)? {
            let of_arch = texts.get_mut(&(entry.arch, entry.suffix));
            let (Some(of_arch), EntryKind::Ptx) = (of_arch, entry.kind) else {
                continue;
            };
            let payload = entry.payload()?.into_owned();
            let text = String::from_utf8(payload).map_err(|_| JoinError::NotUtf8 { part })?;
            of_arch.push((entry, text));
        }
    }
    texts.retain(|_, texts| !texts.is_empty());
    if texts.is_empty() {
        return Ok(None);
    }
    let mut joined = fatbin[..whole].to_vec();
    for texts in texts.values() {
        let all: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        let entry = &texts[0].0;
        let linked = link(&all).map_err(|error| JoinError::Link {
            arch: entry.arch_name(),
            error,
        })?;
        append(&mut joined, entry, &linked);
    }
    let bytes = (joined.len() - FATBIN_HEADER_BYTES) as u64;
    joined[8..16].copy_from_slice(&bytes.to_le_bytes());
    Ok(Some(joined))
}

/// Appends an uncompressed text like `entry`; the layout is in the crate's documentation.
fn append(fatbin: &mut Vec<u8>, entry: &Entry<'_>, text: &str) {
    fatbin.resize(fatbin.len().next_multiple_of(8), 0);
    let stored = (text.len() + 1).next_multiple_of(8);
    let mut header = [0u8; 64];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &1u16.to_le_bytes());
    put(2, &0x101u16.to_le_bytes());
    put(4, &64u32.to_le_bytes());
    put(8, &(stored as u64).to_le_bytes());
    put(24, &entry.version.1.to_le_bytes());
    put(26, &entry.version.0.to_le_bytes());
    put(28, &entry.arch.to_le_bytes());
    let kept =
        flags::ADDRESS_64 | flags::HOST_LINUX | flags::ARCH_SPECIFIC | flags::FAMILY_SPECIFIC;
    put(40, &(entry.flags & kept).to_le_bytes());
    fatbin.extend_from_slice(&header);
    fatbin.extend_from_slice(text.as_bytes());
    fatbin.resize(fatbin.len() + stored - text.len(), 0);
}
