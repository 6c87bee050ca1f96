//! Why a kernel's variant is not loaded.

use warpbpf_driver::DriverError;
use warpbpf_patch::PatchError;
use warpbpf_sanitizer::SanitizerError;
use warpbpf_sass::error::{ElfError, Refusal};

/// Why code that was made is not loaded. The original runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum LoadError {
    #[error("{0}")]
    Driver(#[from] DriverError),
    #[error("maps that its programs brought cannot be made: {0}")]
    Maps(DriverError),
    #[error("the copy of its file with calls cannot be loaded: {0}")]
    Copy(DriverError),
    #[error("no context is current")]
    NoContext,
    #[error("its image is being unloaded")]
    Unloading,
    #[error("no code was made for it")]
    NoCode,
    #[error("{0}")]
    Bake(Box<PatchError>),
    #[error("its addresses cannot be written")]
    Fault,

    #[error("{0}")]
    Elf(ElfError),
    #[error("{0}")]
    Edit(Box<Refusal>),
    #[error("Compute Sanitizer: {0}")]
    Sanitizer(SanitizerError),
    #[error("its variable `{name}` has {in_file} bytes in its file and {in_driver} for the driver")]
    Variable {
        name: String,
        in_file: u64,
        in_driver: u64,
    },
    #[error("no kernel of the file gets calls")]
    NoKernel,
    #[error("no kernel of its file gets calls; `{kernel}`: {source}")]
    NoneOf {
        kernel: String,
        source: Box<LoadError>,
    },
}
