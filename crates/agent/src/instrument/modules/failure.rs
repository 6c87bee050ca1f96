//! Why a kernel has no variant in a context.

use warpbpf_session::LoadError;

/// Why a kernel that programs want runs without them in a context. `Display` is the reason in
/// `Method::Failed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Load(Box<LoadError>),
    #[error(
        "it was read for a device of sm_{}{}, and it is used on one of another kind, too",
        read_for.0, read_for.1
    )]
    OtherDevice {
        /// The compute capability that its image was read for.
        read_for: (u32, u32),
    },
    /// The context has no maps and gets none.
    #[error("{why}")]
    NoMaps { why: &'static str },
    #[error("its image was never used in a context that was alive")]
    NeverUsed,
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        Failure::Load(Box::new(error))
    }
}
