//! The assembler: clang's eBPF syntax, from the templates of the table, plus labels.
//!
//! ```text
//!     r0 = 0
//! again:
//!     r0 += 1                  ; comments start with `;`, `#` or `//`
//!     if r0 s< 10 goto again   ; or `goto +3`, in slots
//!     call square              ; a label calls a local function, a number a helper
//!     exit
//! square:
//!     r0 *= r0
//!     exit
//! ```
//! A decimal number before a colon (`12:`) is taken for the slot number of a listing and skipped.

use std::collections::BTreeMap;

use crate::decode::{DecodeError, DecodeErrorKind, decode};
use crate::insn::Code;
use crate::raw::Slot;
use crate::template::{Matched, TargetField, Templates, Token, tokens};

/// A line that cannot be assembled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct AsmError {
    /// Counted from 1; 0 for the text as a whole.
    pub line: u32,
    /// What is wrong.
    pub kind: AsmErrorKind,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AsmErrorKind {
    /// Text that no token starts with.
    #[error("cannot read `{text}`")]
    Token {
        /// From there on.
        text: String,
    },
    /// No template fits.
    #[error("`{text}` is not an instruction")]
    Unknown {
        /// The line.
        text: String,
    },
    /// An operand does not fit its field.
    #[error("{problem}")]
    Range {
        /// Which, and what would fit.
        problem: String,
    },
    /// A jump or call to a name that is not there.
    #[error("there is no label `{label}`")]
    NoLabel {
        /// The name.
        label: String,
    },
    /// A name that is there twice.
    #[error("label `{label}` is already on line {first}")]
    DuplicateLabel {
        /// The name.
        label: String,
        /// Where the first one is.
        first: u32,
    },
    /// The fields do not make an instruction, for example because a distance leaves the program.
    #[error("{0}")]
    Decode(DecodeErrorKind),
}

/// Assembles a program. All faults are reported, not only the first.
///
/// # Errors
/// One [`AsmError`] for each line at fault.
pub fn assemble(text: &str) -> Result<Code, Vec<AsmError>> {
    let templates = Templates::new();
    let mut builder = Builder::default();
    for (line, text) in (1u32..).zip(text.lines()) {
        builder.line = line;
        let mut text = strip_comment(text);
        while let Some((label, rest)) = split_label(text) {
            builder.label(label);
            text = rest;
        }
        if text.is_empty() {
            continue;
        }
        match tokens(text) {
            Err(rest) => builder.fail(AsmErrorKind::Token {
                text: rest.to_owned(),
            }),
            Ok(mut line) => {
                call_by_name(&mut line);
                match templates.find(&line) {
                    Ok(Some(matched)) => builder.push(matched),
                    Ok(None) => builder.fail(AsmErrorKind::Unknown {
                        text: text.to_owned(),
                    }),
                    Err(problem) => builder.fail(AsmErrorKind::Range { problem }),
                }
            }
        }
    }
    builder.finish()
}

fn strip_comment(text: &str) -> &str {
    let end = [";", "#", "//"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len());
    text[..end].trim()
}

/// Splits `name: rest`. A colon elsewhere in a line does not exist in this syntax.
pub(crate) fn split_label(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.split_once(':')?;
    let label = label.trim();
    let word = !label.is_empty()
        && label
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.$".contains(c));
    word.then_some((label, rest.trim()))
}

/// `call name` is `call pc+N` with the name for the distance.
fn call_by_name(line: &mut Vec<Token<'_>>) {
    if let [Token::Word("call"), Token::Word(_)] = line.as_slice() {
        line.insert(1, Token::Word("pc"));
    }
}

/// Collects slots and labels from either syntax, then resolves and decodes them.
#[derive(Default)]
pub(crate) struct Builder {
    /// Number of the line being read.
    pub(crate) line: u32,
    slots: Vec<Slot>,
    /// Line of each slot.
    lines: Vec<u32>,
    labels: BTreeMap<String, (u32, u32)>,
    fixups: Vec<Fixup>,
    errors: Vec<AsmError>,
}

struct Fixup {
    slot: usize,
    label: String,
    field: TargetField,
}

impl Builder {
    pub(crate) fn fail(&mut self, kind: AsmErrorKind) {
        self.errors.push(AsmError {
            line: self.line,
            kind,
        });
    }

    /// Names the next slot. Slot numbers of listings are no names.
    pub(crate) fn label(&mut self, label: &str) {
        if label.chars().all(|c| c.is_ascii_digit()) {
            return;
        }
        let place = (self.slots.len() as u32, self.line);
        if let Some((_, first)) = self.labels.get(label) {
            self.fail(AsmErrorKind::DuplicateLabel {
                label: label.to_owned(),
                first: *first,
            });
        } else {
            self.labels.insert(label.to_owned(), place);
        }
    }

    pub(crate) fn has_label(&self, label: &str) -> bool {
        self.labels.contains_key(label)
    }

    /// Names a slot that is already there.
    pub(crate) fn label_at(&mut self, label: &str, slot: u32) {
        self.labels.insert(label.to_owned(), (slot, self.line));
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn push(&mut self, matched: Matched<'_>) {
        if let Some((label, field)) = matched.label {
            self.fixups.push(Fixup {
                slot: self.slots.len(),
                label: label.to_owned(),
                field,
            });
        }
        self.slots.push(matched.slot);
        self.lines.push(self.line);
        if matched.slot.opcode == Slot::LDDW {
            self.slots.push(matched.high);
            self.lines.push(self.line);
        }
    }

    pub(crate) fn finish(mut self) -> Result<Code, Vec<AsmError>> {
        for Fixup { slot, label, field } in std::mem::take(&mut self.fixups) {
            self.line = self.lines[slot];
            let Some((target, _)) = self.labels.get(&label) else {
                self.fail(AsmErrorKind::NoLabel { label });
                continue;
            };
            let distance = i64::from(*target) - slot as i64 - 1;
            let fits = match field {
                TargetField::Off => i16::try_from(distance)
                    .map(|off| self.slots[slot].off = off)
                    .is_ok(),
                TargetField::Imm => i32::try_from(distance)
                    .map(|imm| self.slots[slot].imm = imm)
                    .is_ok(),
            };
            if !fits {
                let problem = format!(
                    "label `{label}` is {distance} slots away, too far for this jump (use `gotol`)"
                );
                self.fail(AsmErrorKind::Range { problem });
            }
        }
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| error.line);
            return Err(self.errors);
        }
        let bytes: Vec<u8> = self.slots.iter().flat_map(|slot| slot.to_bytes()).collect();
        decode(&bytes).map_err(|errors| {
            let line = |slot: u32| self.lines.get(slot as usize).copied().unwrap_or(0);
            let error = |error: DecodeError| AsmError {
                line: line(error.slot),
                kind: AsmErrorKind::Decode(error.kind),
            };
            errors.into_iter().map(error).collect()
        })
    }
}
