//! A script as it was written, each part with its place.

use warpbpf_abi::attach::{Scope, Site};

use crate::span::Span;

/// A whole script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Script {
    /// Its blocks, in order.
    pub blocks: Vec<Block>,
}

/// `PROBE, PROBE /filter/ { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Where it runs.
    pub probes: Vec<Probe>,
    /// Only where this is not 0.
    pub filter: Option<Expr>,
    /// What it does.
    pub body: Vec<Stmt>,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// As it was written.
    pub text: String,
    /// Where that stands.
    pub span: Span,
    /// What it is.
    pub kind: ProbeKind,
}

/// What a probe is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeKind {
    /// Before the application runs, in the tool.
    Begin,
    /// When all has ended, in the tool.
    End,
    /// Each so many milliseconds, in the tool.
    Interval {
        /// How many.
        ms: u64,
    },
    /// In kernels.
    Gpu {
        /// The kind of place.
        site: Site,
        /// How often it fires there.
        scope: Scope,
    },
    /// At a function of the driver API.
    Cuda {
        /// When it returns.
        at_end: bool,
    },
    /// At a function of the application or a library.
    Function {
        /// When it returns.
        at_end: bool,
        /// The file.
        file: String,
        /// The function.
        function: String,
    },
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// Where.
    pub span: Span,
    /// What.
    pub kind: StmtKind,
}

/// What a statement is.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// `target = value`, and with an operator `target += value`.
    Assign {
        /// What gets it.
        target: Target,
        /// The operator in front of `=`.
        op: Option<BinaryOp>,
        /// The value.
        value: Expr,
    },
    /// A call, `$i++`.
    Expr(Expr),
    /// `if (…) { … } else { … }`
    If {
        /// Decides.
        cond: Expr,
        /// Where it is not 0.
        then: Vec<Stmt>,
        /// Where it is 0.
        otherwise: Vec<Stmt>,
    },
    /// `unroll (N) { … }`
    Unroll {
        /// How often.
        count: Expr,
        /// What.
        body: Vec<Stmt>,
    },
    /// `while (…) { … }`
    While {
        /// As long as it is not 0.
        cond: Expr,
        /// What.
        body: Vec<Stmt>,
    },
    /// `for ($i : from..to) { … }`
    For {
        /// The variable's name.
        variable: String,
        /// Its place.
        span: Span,
        /// The first value.
        from: Expr,
        /// One past the last.
        to: Expr,
        /// What.
        body: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return`
    Return,
}

/// What can be assigned to.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// `@name[key, …]`
    Map(MapRef),
    /// `$name`
    Variable {
        /// Without `$`.
        name: String,
        /// Where.
        span: Span,
    },
}

/// A map, or a value in it.
#[derive(Debug, Clone, PartialEq)]
pub struct MapRef {
    /// With `@`.
    pub name: String,
    /// The key; none if the map has none, or as a whole is meant.
    pub key: Vec<Expr>,
    /// Where.
    pub span: Span,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Where.
    pub span: Span,
    /// What.
    pub kind: ExprKind,
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `1e6`
    Number(i64),
    /// `"text"`
    Text(String),
    /// `nsecs`, `threadIdx.x`
    Name(String),
    /// `$name`
    Variable(String),
    /// `@name[key]`
    Map(MapRef),
    /// `f(a, b)`
    Call {
        /// Its name.
        name: String,
        /// Where that stands.
        name_span: Span,
        /// What it gets.
        args: Vec<Expr>,
    },
    /// `-x`
    Unary {
        /// Which.
        op: UnaryOp,
        /// Of what.
        value: Box<Expr>,
    },
    /// `a + b`
    Binary {
        /// Which.
        op: BinaryOp,
        /// In front.
        left: Box<Expr>,
        /// Behind.
        right: Box<Expr>,
    },
    /// `c ? a : b`
    Choice {
        /// Decides.
        cond: Box<Expr>,
        /// Where it is not 0.
        then: Box<Expr>,
        /// Where it is 0.
        otherwise: Box<Expr>,
    },
    /// `x++`, `--x`
    Step {
        /// What changes.
        target: Box<Target>,
        /// By 1 or by -1.
        by: i64,
        /// Its value is the one before.
        post: bool,
    },
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-`
    Minus,
    /// `!`
    Not,
    /// `~`
    Complement,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their signs are in `sign`")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Left,
    Right,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BothTrue,
    AnyTrue,
}

impl BinaryOp {
    /// As it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::And => "&",
            BinaryOp::Or => "|",
            BinaryOp::Xor => "^",
            BinaryOp::Left => "<<",
            BinaryOp::Right => ">>",
            BinaryOp::Equal => "==",
            BinaryOp::Unequal => "!=",
            BinaryOp::Less => "<",
            BinaryOp::LessEqual => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterEqual => ">=",
            BinaryOp::BothTrue => "&&",
            BinaryOp::AnyTrue => "||",
        }
    }

    /// Its value is 0 or 1 by a comparison of both operands.
    pub const fn compares(self) -> bool {
        matches!(
            self,
            BinaryOp::Equal
                | BinaryOp::Unequal
                | BinaryOp::Less
                | BinaryOp::LessEqual
                | BinaryOp::Greater
                | BinaryOp::GreaterEqual
        )
    }

    /// What it makes of two numbers that are known. Division by zero gives what eBPF gives: 0, and
    /// the rest is the number.
    pub fn of(self, a: i64, b: i64) -> i64 {
        match self {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div if b == 0 => 0,
            BinaryOp::Div => a.wrapping_div(b),
            BinaryOp::Mod if b == 0 => a,
            BinaryOp::Mod => a.wrapping_rem(b),
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Left => a.wrapping_shl(b as u32),
            BinaryOp::Right => a.wrapping_shr(b as u32),
            BinaryOp::Equal => i64::from(a == b),
            BinaryOp::Unequal => i64::from(a != b),
            BinaryOp::Less => i64::from(a < b),
            BinaryOp::LessEqual => i64::from(a <= b),
            BinaryOp::Greater => i64::from(a > b),
            BinaryOp::GreaterEqual => i64::from(a >= b),
            BinaryOp::BothTrue => i64::from(a != 0 && b != 0),
            BinaryOp::AnyTrue => i64::from(a != 0 || b != 0),
        }
    }
}
