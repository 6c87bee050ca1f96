//! What an image is, by its first bytes.

use crate::container::FATBIN_MAGIC;
use crate::wrapper::WRAPPER_MAGIC;

/// What a driver is given by a pointer without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A [`FatbinWrapper`](crate::FatbinWrapper).
    FatbinWrapper,
    /// A fatbin.
    Fatbin,
    /// An ELF file; that it is a cubin is seen by [`Cubin::parse`](crate::Cubin::parse).
    Cubin,
    /// PTX text.
    PtxText,
    /// None of these.
    Unknown,
}

/// What `bytes` begins with. Four bytes are enough for the binary kinds; PTX is recognised if
/// `.version` stands in `bytes` behind white space and comments.
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
