//! CUDA's code containers, read without external tools: the fatbin (a list of PTX texts and cubins, some compressed),
//! the cubin (an ELF with the machine code of one architecture), and the rule by which a driver picks from them.
//!
//! Pure: bytes in, borrowed views out. Following a pointer found in a wrapper is the caller's (unsafe) business; what
//! a hook needs for it ([`fatbin_len`], [`cubin_len`]) is here.
//!
//! # Layout of a fatbin
//!
//! Measured on the output of `nvcc` 13.0 with `--compress-mode=none|speed|balance|size` for sm_75 … sm_120f. All
//! numbers are little-endian. A fatbin is a 16-byte header and entries, one behind the other:
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
//! An architecture's suffix is in the flags only: `sm_90a` is 90 with [`flags::ARCH_SPECIFIC`], `sm_120f` is 120 with
//! [`flags::FAMILY_SPECIFIC`]. A PTX text ends in one NUL; an uncompressed one has the padding's
//! behind it. LZ4 is the bare block format, zstd one frame.

mod choose;
mod container;
mod cubin;
mod error;
mod join;

#[cfg(test)]
mod fuzz;

pub use choose::{Choice, choose, choose_unpacked, machine_code};
pub use container::{
    Compression, Entry, EntryKind, FATBIN_HEADER_BYTES, entries, fatbin_len, flags,
};
pub use cubin::{CUBIN_HEADER_BYTES, Cubin, Kernel, Param, cubin_len, embedded_ptx};
pub use error::{CubinError, FatbinError};
pub use join::{JoinError, join};

/// First four bytes of a fatbin.
pub const FATBIN_MAGIC: u32 = 0xba55_ed50;
/// First four bytes of a wrapper, the structure that `nvcc` gives to `__cudaRegisterFatBinary` and the runtime to
/// `cuLibraryLoadData`.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// The structure in section `.nvFatBinSegment` of a program built by `nvcc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FatbinWrapper {
    /// [`WRAPPER_MAGIC`].
    pub magic: u32,
    /// 1: `filename_or_fatbins` is unused. 2: it is a NULL-terminated list of fatbins that the device linker made.
    pub version: u32,
    /// The fatbin.
    pub data: *const u64,
    /// See `version`.
    pub filename_or_fatbins: *const core::ffi::c_void,
}

impl FatbinWrapper {
    /// The fatbins that [`FatbinWrapper::filename_or_fatbins`] lists; none of version 1.
    ///
    /// # Safety
    /// It is a wrapper as the device linker makes them.
    pub unsafe fn parts(&self) -> Vec<*const u8> {
        /// More than any program has.
        const MOST: usize = 1 << 16;
        let list = self.filename_or_fatbins.cast::<*const u8>();
        if self.version != 2 || list.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller's promise: a null pointer ends the list.
        let parts = (0..MOST).map(|at| unsafe { list.add(at).read_unaligned() });
        parts.take_while(|part| !part.is_null()).collect()
    }
}

/// What a driver is given by a pointer without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A [`FatbinWrapper`].
    FatbinWrapper,
    /// A fatbin.
    Fatbin,
    /// An ELF file; that it is a cubin is seen by [`Cubin::parse`].
    Cubin,
    /// PTX text.
    PtxText,
    /// None of these.
    Unknown,
}

/// What `bytes` begins with. Four bytes are enough for the binary kinds; PTX is recognised if `.version` stands in
/// `bytes` behind white space and comments.
pub fn sniff(bytes: &[u8]) -> ImageKind {
    if let Some(&[a, b, c, d]) = bytes.first_chunk::<4>() {
        match u32::from_le_bytes([a, b, c, d]) {
            WRAPPER_MAGIC => return ImageKind::FatbinWrapper,
            FATBIN_MAGIC => return ImageKind::Fatbin,
            0x464c_457f => return ImageKind::Cubin,
            _ => {}
        }
    }
    if starts_like_ptx(bytes) {
        ImageKind::PtxText
    } else {
        ImageKind::Unknown
    }
}

/// A PTX module opens with `.version`; only white space and comments may stand before it.
/// <https://docs.nvidia.com/cuda/parallel-thread-execution/#ptx-module-directives-version>
fn starts_like_ptx(mut rest: &[u8]) -> bool {
    loop {
        rest = rest.trim_ascii_start();
        if let Some(line) = rest.strip_prefix(b"//") {
            let Some(end) = line.iter().position(|&b| b == b'\n') else {
                return false;
            };
            rest = &line[end..];
        } else if let Some(block) = rest.strip_prefix(b"/*") {
            let Some(end) = block.windows(2).position(|pair| pair == b"*/") else {
                return false;
            };
            rest = &block[end + 2..];
        } else {
            return rest.starts_with(b".version");
        }
    }
}
