//! A script whose names are resolved and whose types are known: what code is made of, and what the
//! tool executes itself.

use crate::ast::BinaryOp;
use crate::format::Format;
use crate::span::Span;

pub use crate::types::Type;

/// What a map keeps for each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was assigned.
    Value(Type),
    /// How often.
    Count,
    /// A sum.
    Sum,
    /// Count and sum, of which the average is shown.
    Avg,
    /// Count and sum, shown with the average.
    Stats,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// Counts by powers of two.
    Hist,
    /// Counts in steps of one size.
    Lhist {
        /// Below it there is one bucket.
        min: i64,
        /// From it on there is one bucket.
        max: i64,
        /// Size of a bucket.
        step: i64,
    },
}

/// Buckets of [`Kind::Hist`]: negative numbers, 0, and one for each power of two.
pub const HIST_BUCKETS: u32 = 66;

impl Kind {
    /// For messages.
    pub fn name(self) -> String {
        match self {
            Kind::Value(ty) => ty.name().into(),
            Kind::Count => "a count".into(),
            Kind::Sum => "a sum".into(),
            Kind::Avg => "an average".into(),
            Kind::Stats => "statistics".into(),
            Kind::Min => "a minimum".into(),
            Kind::Max => "a maximum".into(),
            Kind::Hist => "a histogram".into(),
            Kind::Lhist { min, max, step } => format!("a histogram from {min} to {max} by {step}"),
        }
    }

    /// Buckets, if it has some.
    pub const fn buckets(self) -> Option<u32> {
        match self {
            Kind::Hist => Some(HIST_BUCKETS),
            Kind::Lhist { min, max, step } => Some(((max - min) / step) as u32 + 2),
            _ => None,
        }
    }
}

/// A map of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// With `@`.
    pub name: String,
    /// What it keeps.
    pub kind: Kind,
    /// What its keys are; empty if it has none.
    pub key: Vec<Type>,
    /// It is changed by additions only, so what several devices have is summed.
    pub only_added: bool,
}

/// Where a built-in's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A field of the context.
    Field {
        /// Its offset.
        offset: i16,
        /// Its bytes.
        size: u32,
        /// It has a sign.
        signed: bool,
    },
    /// What a helper without arguments gives.
    Helper(u32),
    /// The upper half of that.
    UpperHalf(u32),
    /// The lower half of that.
    LowerHalf(u32),
    /// How many lanes are in a mask of 32 bits at this offset of the context.
    Lanes(i16),
    /// What a helper says of the addresses of all lanes that came together, if the access is of one
    /// of these spaces. All of them must ask, so it is read before anything else.
    Touched {
        /// The helper.
        helper: u32,
        /// The spaces.
        spaces: [u32; 2],
    },
    /// Nanoseconds of the host's clock.
    Clock,
    /// The same since the script began.
    Elapsed,
    /// The name of the thread, in 16 bytes.
    Comm,
    /// The probe, as it was written.
    Probe,
    /// Filled in by the tool.
    Nothing,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the names are those of the tree as it was written"
)]
pub enum Value {
    Number(i64),
    Read(Read),
    Variable(usize),
    /// Text in so many bytes, its NUL among them: of the application's memory, or without an
    /// address the thread's name.
    Str {
        at: Option<Box<Value>>,
        size: u8,
    },
    /// Whether text is this one.
    Is {
        text: Box<Value>,
        word: String,
        wanted: bool,
    },
    /// What a map has for a key; 0 if nothing.
    Map {
        map: usize,
        key: Vec<Value>,
    },
    Minus(Box<Value>),
    Not(Box<Value>),
    Complement(Box<Value>),
    Binary(BinaryOp, Box<Value>, Box<Value>),
    Choice(Box<Value>, Box<Value>, Box<Value>),
    StepVariable {
        variable: usize,
        by: i64,
        post: bool,
    },
    StepMap {
        map: usize,
        key: Vec<Value>,
        by: i64,
        post: bool,
    },
}

impl Value {
    /// Words of 8 bytes that it has.
    pub fn words(&self) -> usize {
        match self {
            Value::Str { size, .. } => usize::from(*size).div_ceil(8),
            _ => 1,
        }
    }
}

/// What is done to a map's value in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Change {
    Add,
    And,
    Or,
    Xor,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Where it stands.
    pub span: Span,
    /// What it does.
    pub what: What,
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the names are those of the tree as it was written"
)]
pub enum What {
    SetVariable {
        variable: usize,
        value: Value,
    },
    SetMap {
        map: usize,
        key: Vec<Value>,
        value: Value,
    },
    ChangeMap {
        map: usize,
        key: Vec<Value>,
        change: Change,
        value: Value,
    },
    /// `@m = sum(value)` and its like.
    Aggregate {
        map: usize,
        key: Vec<Value>,
        value: Value,
    },
    Delete {
        map: usize,
        key: Vec<Value>,
    },
    /// Asks the tool for something.
    Send {
        request: usize,
        args: Vec<Value>,
    },
    Evaluate(Value),
    If {
        cond: Value,
        then: Vec<Action>,
        otherwise: Vec<Action>,
    },
    Unroll {
        count: u32,
        body: Vec<Action>,
    },
    While {
        cond: Value,
        body: Vec<Action>,
    },
    For {
        variable: usize,
        from: Value,
        to: Value,
        end: usize,
        body: Vec<Action>,
    },
    Break,
    Continue,
    Return,
}

/// What a program can ask the tool for, and what the tool's own blocks do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Print these values.
    Print(Format),
    /// Show a map, or its largest entries.
    Show {
        /// Which.
        map: usize,
        /// How many.
        top: Option<u64>,
    },
    /// Begin anew, without any key.
    Clear(usize),
    /// Begin anew, with the keys that there are.
    Zero(usize),
    /// End tracing.
    Exit,
}

/// Code of one block at one probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    /// What is read before the filter, into variables.
    pub first: Vec<(usize, Read)>,
    /// Only where this is not 0.
    pub filter: Option<Value>,
    /// What it does.
    pub body: Vec<Action>,
    /// How many variables it has.
    pub variables: usize,
}

/// A program for an application.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its probe, as it was written.
    pub probe: String,
    /// Where that stands.
    pub span: Span,
    /// All lanes begin it, and the lowest one that came goes on behind what is read first.
    pub elects: bool,
    /// The section that says the same.
    pub section: String,
    /// The file and the function, if it is at a function of the application or a library.
    pub function: Option<(String, String)>,
    /// What it does.
    pub code: Code,
}

/// When the tool executes a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the application runs.
    Begin,
    /// When all has ended.
    End,
    /// Again and again.
    Every {
        /// Milliseconds.
        ms: u64,
    },
}

/// A block that the tool executes.
#[derive(Debug, Clone, PartialEq)]
pub struct HostBlock {
    /// When.
    pub when: Moment,
    /// What it does.
    pub code: Code,
}

/// A checked script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checked {
    /// Its maps.
    pub maps: Vec<Map>,
    /// What it asks the tool for.
    pub requests: Vec<Request>,
    /// Its strings.
    pub texts: Vec<String>,
    /// Programs for applications.
    pub programs: Vec<Program>,
    /// Blocks that the tool executes.
    pub blocks: Vec<HostBlock>,
}
