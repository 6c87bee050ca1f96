//! What a person should know of an application.

use warpbpf_wire::NoteLevel;

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// How bad.
    pub level: NoteLevel,
    /// One or more lines.
    pub text: String,
}
