//! CUDA's code containers, read without external tools: the fatbin (a list of PTX texts and cubins,
//! some compressed), the cubin (an ELF with the machine code of one architecture), and the rule by
//! which a driver picks from them.
//!
//! Pure: bytes in, borrowed views out. Following a pointer found in a wrapper is the caller's
//! (unsafe) business; what a hook needs for it ([`fatbin_len`], [`cubin_len`]) is here.
//!
//! # Layout of a fatbin
//!
//! Measured on the output of `nvcc` 13.0 with `--compress-mode=none|speed|balance|size` for sm_75 …
//! sm_120f. All numbers are little-endian. A fatbin is a 16-byte header and entries, one behind the
//! other:
//!
//! | at | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `0xba55ed50` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | size of this header, 16 |
//! | 8 | 8 | bytes that follow the header |
//!
//! An entry, at an offset divisible by 8:
//!
//! | at | size | meaning |
//! |---|---|---|
//! | 0 | 2 | kind: 1 PTX text, 2 ELF (cubin); others exist and are passed through |
//! | 2 | 2 | version, `0x101` |
//! | 4 | 4 | header size: 64, or more with options, a name or the copy of `.nv.compat` behind it |
//! | 8 | 8 | bytes stored behind the header, padded to 8 |
//! | 16 | 4 | stored bytes without padding if compressed, else 0 |
//! | 20 | 4 | where the options begin in the header, 0 without |
//! | 24 | 2 + 2 | minor and major version: of the PTX ISA (0, 9 = 9.0), or of the cubin (8, 1) |
//! | 28 | 4 | architecture, e.g. 90 |
//! | 32 | 4 + 4 | where the source's name begins in the header and its length, 0 without (`-g`, `-lineinfo`) |
//! | 40 | 8 | flags, see [`flags`] |
//! | 48 | 8 | zero in all samples |
//! | 56 | 8 | length when decompressed, 0 if not compressed |
//!
//! An architecture's suffix is in the flags only: `sm_90a` is 90 with [`flags::ARCH_SPECIFIC`],
//! `sm_120f` is 120 with [`flags::FAMILY_SPECIFIC`]. A PTX text ends in one NUL; an uncompressed
//! one has the padding's behind it. LZ4 is the bare block format, zstd one frame.

mod choose;
mod container;
mod cubin;
mod error;
mod join;
mod sniff;
mod wrapper;

#[cfg(test)]
mod fuzz;

pub use choose::{Choice, choose, choose_unpacked, machine_code};
pub use container::{
    Compression, Entry, EntryKind, FATBIN_HEADER_BYTES, FATBIN_MAGIC, entries, fatbin_len, flags,
};
pub use cubin::{CUBIN_HEADER_BYTES, Cubin, Kernel, Param, cubin_len, embedded_ptx};
pub use error::{CubinError, FatbinError};
pub use join::{JoinError, join};
pub use sniff::{ImageKind, sniff};
pub use wrapper::{FatbinWrapper, WRAPPER_MAGIC};
