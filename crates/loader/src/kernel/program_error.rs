//! Why programs do not become an object, or are not proved.

use warpbpf_object::{AssembleError, ObjectErrors};
use warpbpf_session::SessionError;

/// Why programs cannot be made one object.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// One of them is not there.
    #[error("a program is gone")]
    ProgramGone {
        /// Its place in the kernel's table.
        program: usize,
    },
    /// A map that one of them uses is not there.
    #[error("a map is gone")]
    MapGone {
        /// Its place in the kernel's table.
        map: usize,
    },
    /// They do not fit into one object.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

/// Why a program is not proved.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// It is not there.
    #[error("the program is gone")]
    Gone {
        /// Its place in the kernel's table.
        program: usize,
    },
    /// It cannot be made an object.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// The object that was made of it is wrong.
    #[error(transparent)]
    Load(#[from] ObjectErrors),
    /// The proof fails.
    #[error(transparent)]
    Refused(#[from] SessionError),
}

impl ProveError {
    /// The text as a verifier's log has it.
    pub(crate) fn log(&self) -> String {
        match self {
            ProveError::Refused(error) => format!("{error}\n"),
            error => error.to_string(),
        }
    }
}
