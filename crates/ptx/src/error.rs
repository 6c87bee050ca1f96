//! What is wrong with a PTX text, and where: the reader may be looking at a compiler's output they
//! never saw before.

/// A PTX text that does not follow the PTX ISA's grammar. Lines and columns count from 1, columns
/// in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// A token other than the grammar wants here.
    #[error("PTX line {line}, column {column}: expected {expected}, found {found}")]
    Unexpected {
        /// Line of the token.
        line: usize,
        /// Column of the token.
        column: usize,
        /// Byte offset of the token in the text.
        offset: usize,
        /// What would have been right.
        expected: &'static str,
        /// The token, in backticks, or `end of text`.
        found: String,
    },
    /// A bracket, comment or string without an end.
    #[error("PTX line {line}, column {column}: {what} opened here is never closed")]
    Unclosed {
        /// Line of the opening token.
        line: usize,
        /// Column of the opening token.
        column: usize,
        /// Byte offset of the opening token in the text.
        offset: usize,
        /// The opening token, in backticks.
        what: &'static str,
    },
    /// A number that cannot be read.
    #[error("PTX line {line}, column {column}: `{number}` is no valid number: {reason}")]
    BadNumber {
        /// Line of the number.
        line: usize,
        /// Column of the number.
        column: usize,
        /// Byte offset of the number in the text.
        offset: usize,
        /// The number as written.
        number: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The module ends without a directive every module must have.
    #[error("PTX module has no `{directive}` directive: is the text truncated?")]
    MissingDirective {
        /// The directive, dot included.
        directive: &'static str,
    },
}

impl PtxError {
    /// Byte offset in the text, where the error has a place.
    pub fn offset(&self) -> Option<usize> {
        match self {
            PtxError::Unexpected { offset, .. }
            | PtxError::Unclosed { offset, .. }
            | PtxError::BadNumber { offset, .. } => Some(*offset),
            PtxError::MissingDirective { .. } => None,
        }
    }
}
