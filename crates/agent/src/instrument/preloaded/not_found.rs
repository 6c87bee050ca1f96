//! Why it is not known which image a preloaded kernel is of.

use std::path::PathBuf;

use crate::sources::preloaded::jobs::ADVICE;

/// Why no image of a preloaded kernel is found. `Display` is the reason in `Method::refused`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotFound {
    #[error("its device is not known")]
    Device,
    #[error(
        "it was loaded before, and no file that is mapped has it (was it made at run time?); {ADVICE}, or look for what Triton made by `--caches`"
    )]
    NoFile,
    #[error(
        "it was loaded before, and {images} images that are mapped have a kernel of this name, which differ; {ADVICE}"
    )]
    Several { images: usize },
    #[error(
        "it was loaded before, and the driver does not say what parameters it has, which one of Triton's cache could be known by; {ADVICE}"
    )]
    Parameters,
    #[error(
        "it was loaded before, and neither a file that is mapped nor Triton's cache ({}) has it; {ADVICE}",
        listed(folders)
    )]
    NotInCaches { folders: Vec<PathBuf> },
    #[error(
        "it was loaded before, and {kernels} kernels of this name in Triton's cache ({}) have its parameters and as many registers; {ADVICE}",
        listed(folders)
    )]
    SeveralInCaches {
        kernels: usize,
        folders: Vec<PathBuf>,
    },
}

fn listed(folders: &[PathBuf]) -> String {
    let all: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    match all.is_empty() {
        true => "no folder is known".to_owned(),
        false => all.join(", "),
    }
}
