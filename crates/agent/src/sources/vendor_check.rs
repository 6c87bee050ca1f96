//! The vendor check: does an image belong to one of NVIDIA's own libraries? Those are neither
//! edited nor disassembled, whatever the user wants.
//!
//! An image lies in the library that brings it, or in memory to which somebody copied or unpacked
//! it. Of the second kind only the kernels' names are known.

use std::borrow::Cow;
use std::path::Path;

use warpbpf_hook::maps::{Mapping, mappings};
use warpbpf_session::ImageInfo;

/// Beginnings of the file names of NVIDIA's libraries that bring kernels.
const LIBRARIES: &[&str] = &[
    "libcu",
    "libnpp",
    "libnv",
    "libcudnn",
    "libcublas",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
];
/// Those of libraries that begin so and are somebody else's.
const OTHERS: &[&str] = &["libcupy", "libcutlass", "libcustom"];
/// Words in names of kernels that those libraries bring.
const KERNELS: &[&str] = &[
    "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvjet", "xmma_",
];

/// Why the machine code of an image at `address` is left alone. `maps` is what `/proc/self/maps`
/// says.
pub(crate) fn untouchable(address: usize, maps: &[u8], info: &ImageInfo) -> Option<String> {
    if let Some(path) = file_at(address, maps) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let begins = |all: &[&str]| all.iter().any(|start| name.starts_with(start));
        if begins(LIBRARIES) && !begins(OTHERS) {
            return Some(format!(
                "it is part of NVIDIA's `{name}`, whose machine code is left alone"
            ));
        }
        return None;
    }
    let theirs = info.kernels.iter().find(|kernel| {
        let named = |word: &&str| kernel.demangled.contains(*word);
        KERNELS.iter().any(named)
    });
    theirs.map(|kernel| {
        format!(
            "it holds `{}`, so it may be part of a library of NVIDIA's, whose machine code is left alone",
            kernel.demangled
        )
    })
}

/// The file that is mapped at an address.
fn file_at(address: usize, maps: &[u8]) -> Option<Cow<'_, Path>> {
    let here = |mapping: &Mapping<'_>| mapping.range.contains(&address);
    let mapping = mappings(maps).find(here)?;
    mapping.is_file().then(|| mapping.path())
}

#[cfg(test)]
mod tests {
    use warpbpf_session::KernelSummary;

    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 08:01 11 /opt/lib/libcublasLt.so.13
7f0000001000-7f0000002000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 r--p 00000000 08:01 12 /opt/torch/lib/libtorch_cuda.so
7f0000003000-7f0000004000 r--p 00000000 08:01 13 /opt/my libs/libcupy_kernels.so
7f0000004000-7f0000005000 r--p 00000000 08:01 14 /opt/my libs/libcustom_ops.so
";

    fn of(kernel: &str) -> ImageInfo {
        ImageInfo {
            kernels: vec![KernelSummary {
                mangled: kernel.into(),
                demangled: kernel.into(),
                source: String::new(),
                registers: None,
            }],
            ..ImageInfo::default()
        }
    }

    #[test]
    fn libraries_are_known_by_their_files_and_else_by_their_kernels() {
        let why = |address, kernel| untouchable(address, MAPS.as_bytes(), &of(kernel));
        assert_eq!(
            why(0x7f00_0000_0800, "k").as_deref(),
            Some("it is part of NVIDIA's `libcublasLt.so.13`, whose machine code is left alone")
        );
        assert_eq!(why(0x7f00_0000_2000, "cublas_like"), None);
        assert_eq!(why(0x7f00_0000_3fff, "k"), None);
        assert_eq!(why(0x7f00_0000_4000, "k"), None);
        // Copied somewhere.
        assert!(why(0x7f00_0000_1000, "sm80_xmma_wgrad_f32").is_some());
        assert_eq!(why(0x7f00_0000_1000, "triton_mm"), None);
        assert_eq!(
            why(0x7f00_0000_1000, "nvjet_hsh").as_deref(),
            Some(
                "it holds `nvjet_hsh`, so it may be part of a library of NVIDIA's, whose machine code is left alone"
            )
        );
        assert_eq!(why(0x10, "k"), None);
    }
}
