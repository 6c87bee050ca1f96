//! Ordered byte edits. A foreign text is changed only where we mean to, so what is not edited is
//! the same bytes.

use std::ops::Range;

/// Edits of one text, in the byte offsets of the text before any of them.
///
/// Several inserts at one offset appear in the order they were made. An insert at the start of a
/// replaced span stands before the replacement, one at its end behind it.
///
/// # Examples
/// ```
/// let mut edits = warpbpf_ptx::Splices::new();
/// edits.replace(4..7, "exit");
/// edits.insert(0, "@p ");
/// assert_eq!(edits.apply("add ret;").unwrap(), "@p add exit;");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Splices {
    edits: Vec<Edit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    span: Range<usize>,
    text: String,
}

/// Edits that do not fit their text or each other: always a mistake of the code that made them,
/// never of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// The edit reaches past the text, or ends before it starts.
    #[error("edit of bytes `{start}..{end}` does not lie in a text of `{length}` bytes")]
    OutOfRange {
        /// First byte edited.
        start: usize,
        /// One past the last byte edited.
        end: usize,
        /// Length of the text in bytes.
        length: usize,
    },
    /// The edit would cut a UTF-8 character in two.
    #[error("edit at byte `{offset}` would split a character")]
    SplitsCharacter {
        /// The end of the edit that stands inside a character.
        offset: usize,
    },
    /// Two replaced spans overlap, or an insert stands strictly inside a replaced span.
    #[error(
        "edit of bytes `{start}..{end}` overlaps the edit of bytes `{other_start}..{other_end}`"
    )]
    Overlap {
        /// First byte of the later edit.
        start: usize,
        /// One past its last byte.
        end: usize,
        /// First byte of the earlier edit.
        other_start: usize,
        /// One past its last byte.
        other_end: usize,
    },
}

impl Splices {
    /// No edits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `text` before the byte at `offset`.
    pub fn insert(&mut self, offset: usize, text: impl Into<String>) {
        self.replace(offset..offset, text);
    }

    /// Puts `text` in place of `span`; an empty span is an insert.
    pub fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.edits.push(Edit {
            span,
            text: text.into(),
        });
    }

    /// Takes the bytes of `span` out.
    pub fn delete(&mut self, span: Range<usize>) {
        self.replace(span, "");
    }

    /// Adds the edits of `other`, as if made after these.
    pub fn append(&mut self, other: Splices) {
        self.edits.extend(other.edits);
    }

    /// True if nothing is edited.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// How many edits there are.
    pub fn len(&self) -> usize {
        self.edits.len()
    }

    /// The edited text.
    ///
    /// # Errors
    /// [`SpliceError`] if the edits do not fit the text or overlap.
    pub fn apply(&self, text: &str) -> Result<String, SpliceError> {
        self.apply_to(text, 0..text.len())
    }

    /// The edited form of one part of the text. Offsets still count from the text's start, so edits
    /// found in a whole module can be applied to the one function that is copied out of it.
    ///
    /// # Errors
    /// [`SpliceError`] if `part` is no part of the text, or an edit lies outside it, or edits
    /// overlap.
    pub fn apply_to(&self, text: &str, part: Range<usize>) -> Result<String, SpliceError> {
        let mut edits: Vec<&Edit> = self.edits.iter().collect();
        // Stable, so that inserts at one offset keep their order; inserts before a replacement that
        // starts there.
        edits.sort_by_key(|edit| (edit.span.start, !edit.span.is_empty()));
        let slice = |span: Range<usize>| {
            text.get(span.clone()).ok_or_else(|| {
                if span.start > span.end || span.end > text.len() {
                    SpliceError::OutOfRange {
                        start: span.start,
                        end: span.end,
                        length: text.len(),
                    }
                } else {
                    let offset = if text.is_char_boundary(span.start) {
                        span.end
                    } else {
                        span.start
                    };
                    SpliceError::SplitsCharacter { offset }
                }
            })
        };
        let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
        let mut out = String::with_capacity(slice(part.clone())?.len() + added);
        let mut done = part.start..part.start;
        for edit in edits {
            let Edit { span, text: new } = edit;
            slice(span.clone())?;
            if span.start < part.start || span.end > part.end {
                return Err(SpliceError::OutOfRange {
                    start: span.start,
                    end: span.end,
                    length: part.len(),
                });
            }
            if span.start < done.end {
                return Err(SpliceError::Overlap {
                    start: span.start,
                    end: span.end,
                    other_start: done.start,
                    other_end: done.end,
                });
            }
            out.push_str(slice(done.end..span.start)?);
            out.push_str(new);
            done = span.clone();
        }
        out.push_str(slice(done.end..part.end)?);
        Ok(out)
    }
}
