//! What is wrong with a script: the culprit, where it stands, what was expected there, and what was
//! probably meant.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::span::{Position, Span, position};

/// Something that is wrong. The script is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ScriptError {
    /// Where.
    pub span: Span,
    /// What.
    pub problem: Problem,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum Problem {
    #[error("`{found}` begins nothing in this language")]
    Character { found: char },
    #[error("{what} has no end")]
    Unended { what: &'static str },
    #[error("`{text}` is no number: {why}")]
    Number { text: String, why: &'static str },
    #[error("`\\{escape}` is no escape in a string")]
    Escape { escape: char },
    #[error("expected {expected}, found {found}")]
    Expected { expected: String, found: String },
    #[error("there is no probe `{word}`")]
    Probe { word: String, meant: Option<String> },
    #[error("there is no place `{word}` in a kernel")]
    Place { word: String, meant: Option<String> },
    #[error("there is no scope `{word}`")]
    Scope { word: String, meant: Option<String> },
    #[error("the probe `{probe}` is not whole")]
    ProbeShape { probe: String, shape: &'static str },
    #[error("there is no program in this script")]
    NoProgram,
    #[error("there is no built-in `{name}`")]
    Builtin { name: String, meant: Option<String> },
    #[error("`{name}` is not known at `{place}`")]
    NotHere {
        name: String,
        place: String,
        instead: String,
    },
    #[error("there is no function `{name}`")]
    Function { name: String, meant: Option<String> },
    #[error("`{function}` takes {expected}, found {found}")]
    Arguments {
        function: String,
        expected: &'static str,
        found: usize,
    },
    #[error("`{function}` gives no value")]
    NoValue {
        function: String,
        instead: &'static str,
    },
    #[error("`{map}` is {now}, and was {before} on line {line}")]
    MapKind {
        map: String,
        now: String,
        before: String,
        line: u32,
    },
    #[error("`{map}` has {now} here, and {before} on line {line}")]
    MapKey {
        map: String,
        now: String,
        before: String,
        line: u32,
    },
    #[error("`{map}` is never written")]
    NeverWritten { map: String, meant: Option<String> },
    #[error("there is no variable `{name}` here")]
    Variable { name: String, meant: Option<String> },
    #[error("`{name}` is {before}, and here it becomes {now}")]
    VariableType {
        name: String,
        before: String,
        now: String,
    },
    #[error("{what} is {found}, and must be {expected}")]
    Type {
        what: String,
        expected: String,
        found: String,
    },
    #[error("there is no {of} named `{word}`")]
    Word {
        of: &'static str,
        word: String,
        known: String,
    },
    #[error("the format has {expected}, and {found} to print")]
    FormatCount { expected: String, found: String },
    #[error("`{conversion}` is no conversion of `printf`")]
    Conversion { conversion: String },
    #[error("{what} must be a number that is known before the script runs")]
    NotConstant { what: &'static str },
    #[error("{what} is {found}, and must be {allowed}")]
    Range {
        what: &'static str,
        found: i64,
        allowed: &'static str,
    },
    #[error("{what} is not possible")]
    Unserved { what: String, instead: String },
    #[error("more than {most} expressions or blocks stand in each other")]
    TooDeep { most: usize },
    #[error("the program for `{probe}` has more than {most} instructions")]
    TooLarge { probe: String, most: usize },
    #[error("this block needs {bytes} bytes of stack, and there are 512")]
    Stack { bytes: usize },
    #[error("the program for `{probe}` cannot be made: {why}")]
    Made { probe: String, why: String },
}

fn meant(meant: &Option<String>) -> Option<String> {
    meant.as_ref().map(|name| format!("did you mean `{name}`?"))
}

impl Problem {
    /// At this place.
    pub fn at(self, span: Span) -> ScriptError {
        ScriptError {
            span,
            problem: self,
        }
    }

    /// What stands under the text: what may be there instead.
    pub fn label(&self) -> Option<String> {
        match self {
            Problem::Probe { meant: m, .. } => meant(m).or_else(|| {
                Some("a probe is `gpu:WHERE:KERNEL`, `cuda:FUNCTION`, `cudaret:FUNCTION`, `BEGIN`, `END` or `interval:s:N`".into())
            }),
            Problem::Place { meant: m, .. }
            | Problem::Builtin { meant: m, .. }
            | Problem::Function { meant: m, .. }
            | Problem::Variable { meant: m, .. } => meant(m),
            Problem::Scope { meant: m, .. } => {
                meant(m).or_else(|| Some("a scope is `thread`, `warp` or `block`".into()))
            }
            Problem::NeverWritten { meant: m, .. } => {
                meant(m).or_else(|| Some("so there is nothing to read".into()))
            }
            Problem::ProbeShape { shape, .. } => Some(format!("write `{shape}`")),
            Problem::NotHere { instead, .. } | Problem::Unserved { instead, .. } => {
                Some(instead.clone())
            }
            Problem::NoValue { instead, .. } => Some((*instead).into()),
            Problem::Word { known, .. } => Some(format!("there are {known}")),
            Problem::NoProgram => Some("write `PROBE { … }`, such as `gpu:entry:* { @ = count() }`".into()),
            Problem::TooDeep { .. } => Some("give a part of it to a variable".into()),
            Problem::TooLarge { .. } => Some("write a loop instead of `unroll`".into()),
            Problem::Stack { .. } => Some("use fewer variables and shorter keys".into()),
            Problem::Conversion { .. } => {
                Some("there are `%d`, `%u`, `%x`, `%X`, `%o`, `%p`, `%c`, `%s` and `%%`, with flags and a width".into())
            }
            Problem::Escape { .. } => Some("there are `\\n`, `\\t`, `\\r`, `\\\"`, `\\\\` and `\\0`".into()),
            _ => None,
        }
    }
}

impl ScriptError {
    /// Where it begins.
    pub fn position(&self, source: &str) -> Position {
        position(source, self.span.start)
    }

    /// As a person reads it: the message, the line, and a mark under the culprit. `name` is what
    /// the script is called.
    pub fn render(&self, name: &str, source: &str, colour: bool) -> String {
        let title = self.problem.to_string();
        let label = self.problem.label();
        // A mark needs a character to stand under.
        let start = self.span.start.min(source.len());
        let end = self.span.end.clamp(start, source.len());
        let mut mark = AnnotationKind::Primary.span(start..end);
        if let Some(label) = &label {
            mark = mark.label(label.as_str());
        }
        let snippet = Snippet::source(source).path(name).annotation(mark);
        let group = Level::ERROR.primary_title(title.as_str()).element(snippet);
        let renderer = match colour {
            true => Renderer::styled(),
            false => Renderer::plain(),
        };
        renderer.render(&[group])
    }
}
