//! The typed view of PTX text: spans into the text, never copies, and no opcode list, so that an
//! instruction of a PTX version we have never seen is still a guard, an opcode, modifiers and
//! operands.

use std::ops::Range;

/// Byte range of the module's text.
pub type Span = Range<usize>;

/// What the index knows of a module. All `&str` borrow from the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Module<'a> {
    /// The whole text, byte for byte.
    pub text: &'a str,
    /// `.version major.minor`; the first where there are several.
    pub version: (u32, u32),
    /// `.target` words as written, the first being the architecture: `sm_90a`,
    /// `texmode_independent`, `debug`.
    pub targets: Vec<&'a str>,
    /// `.address_size`: 32 or 64 (32 when absent, as the ISA says).
    pub address_size: u32,
    /// Where a new module-scope declaration may be put: just after the header directives.
    pub header_end: usize,
    /// Entries, functions and their prototypes, in text order. A prototype has no `body`.
    pub functions: Vec<Function<'a>>,
    /// Module-scope variables in text order.
    pub variables: Vec<Variable<'a>>,
    /// `.file index "path"` directives.
    pub files: Vec<(u32, &'a str)>,
    /// `.alias` directives, which are among the others, too.
    pub aliases: Vec<Alias<'a>>,
    /// `.section`s (debug), `.alias` and other module-scope directives that we keep but do not
    /// read.
    pub others: Vec<Span>,
}

/// `.alias name, target;`: another name of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias<'a> {
    /// The other name, of which a prototype is declared.
    pub name: &'a str,
    /// The function with the body.
    pub target: &'a str,
}

/// `.visible`, `.extern`, `.weak`, `.common` or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// No linking directive: local to the module.
    Local,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// An `.entry` or `.func`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function<'a> {
    /// True for `.entry`.
    pub is_entry: bool,
    /// Linking directive.
    pub linkage: Linkage,
    /// Mangled name as written.
    pub name: &'a str,
    /// Where the name stands (to rename).
    pub name_span: Span,
    /// Return parameters of a `.func`.
    pub returns: Vec<Param<'a>>,
    /// Parameters.
    pub params: Vec<Param<'a>>,
    /// The parameter list's parentheses, the bytes between `(` and `)`; `None` where the source has
    /// no list.
    pub params_span: Option<Span>,
    /// Performance and other directives between signature and body, as written: `.maxntid 256, 1,
    /// 1`.
    pub directives: Vec<&'a str>,
    /// The bytes between the body's `{` and `}`, both excluded; `None` for a prototype.
    pub body: Option<Span>,
    /// From the linking directive to the closing `}` or `;`, inclusive.
    pub span: Span,
}

/// A parameter of a kernel or function.
#[derive(Debug, Clone, PartialEq)]
pub struct Param<'a> {
    /// Its name, or `_`.
    pub name: &'a str,
    /// Fundamental type without the dot: `u64`, `b8`, `f32`, `pred`.
    pub ty: &'a str,
    /// Elements of an array parameter (`.b8 p[32]` is 32; 0 for `p[]`), `None` for a scalar.
    pub array: Option<u64>,
    /// Alignment in bytes, explicit or the type's own.
    pub align: u64,
    /// `.reg` rather than `.param` space (functions only).
    pub is_reg: bool,
    /// The whole declaration.
    pub span: Span,
}

/// A variable: module scope, or `.shared`/`.local`/`.const`/`.param` inside a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'a> {
    /// Linking directive (module scope only).
    pub linkage: Linkage,
    /// `global`, `const`, `shared`, `local`, `param`, `tex`.
    pub space: &'a str,
    /// Type without the dot; a vector is written `v4.f32`. Opaque ones are `texref`, `samplerref`,
    /// `surfref`.
    pub ty: &'a str,
    /// Name as written.
    pub name: &'a str,
    /// Explicit `.align`, or the type's own alignment.
    pub align: u64,
    /// Array dimensions, outermost first; empty for a scalar; 0 where the source leaves one open
    /// (`[]`).
    pub dims: Vec<u64>,
    /// Text of the initialiser after `=`, if any.
    pub init: Option<&'a str>,
    /// `.attribute(...)` text, e.g. `.managed`.
    pub attribute: Option<&'a str>,
    /// The whole declaration including `;`; declarators of one list (`.global .u32 a, b;`) have it
    /// in common.
    pub span: Span,
}

/// One statement of a function body, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement<'a> {
    /// From the first byte (guard included) to the `;` inclusive; a label ends at its `:`. Spans of
    /// statements never overlap: of several variables declared at once, each ends at its `,`.
    pub span: Span,
    /// What it is.
    pub kind: StatementKind<'a>,
}

/// The kinds of statements.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind<'a> {
    /// `name:`
    Label(&'a str),
    /// `{`: opens a scope for registers, labels and variables.
    Open,
    /// `}`
    Close,
    /// An instruction.
    Instruction(Instruction<'a>),
    /// `.reg .b32 %r<7>, %x;`
    Registers(Vec<RegisterDecl<'a>>),
    /// `.shared`, `.local`, `.param`, `.const`, `.global` inside the body.
    Variable(Variable<'a>),
    /// `.loc file line column[, function_name label, inlined_at file line column]`
    Loc(Loc<'a>),
    /// `.pragma "…";` applies to the instruction or block that follows. The text between the first
    /// and last quote.
    Pragma(&'a str),
    /// `label: .callprototype … ;` (the label is the name)
    CallPrototype {
        /// Its label.
        name: &'a str,
        /// Return parameters.
        returns: Vec<Param<'a>>,
        /// Parameters.
        params: Vec<Param<'a>>,
    },
    /// `label: .branchtargets a, b, c;`
    BranchTargets {
        /// Its label.
        name: &'a str,
        /// The labels.
        targets: Vec<&'a str>,
    },
    /// `label: .calltargets f, g;`
    CallTargets {
        /// Its label.
        name: &'a str,
        /// The functions.
        targets: Vec<&'a str>,
    },
    /// Any other directive, kept and passed through.
    Directive(&'a str),
}

/// One declarator of a `.reg` statement.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisterDecl<'a> {
    /// Type without the dot: `pred`, `b32`, `f64`, `b128`; vectors as `v4.b32`.
    pub ty: &'a str,
    /// Name, or name prefix when counted.
    pub name: &'a str,
    /// `%r<7>` declares `%r0` … `%r6`: `Some(7)`.
    pub count: Option<u32>,
}

/// A `.loc` directive.
#[derive(Debug, Clone, PartialEq)]
pub struct Loc<'a> {
    /// Index of the `.file`.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column.
    pub column: u32,
    /// `function_name` label and the call site `(file, line, column)` for inlined code. The label
    /// is as written, with its offset but without the dot of a section: `$L__info_string0`,
    /// `debug_str+16`. See [`crate::lines`].
    pub inlined: Option<(&'a str, u32, u32, u32)>,
}

/// `@guard opcode.modifiers operands`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction<'a> {
    /// `@p` or `@!p`.
    pub guard: Option<Guard<'a>>,
    /// First word without modifiers: `ld`, `mad`, `bar`, `wgmma`.
    pub opcode: &'a str,
    /// The rest as written, split at dots: `ld.global.v4.f32` gives `["global", "v4", "f32"]`;
    /// `::` stays inside a modifier: `L1::evict_last`.
    pub modifiers: Vec<&'a str>,
    /// Opcode with its modifiers as written.
    pub name: &'a str,
    /// Operands in order.
    pub operands: Vec<Operand<'a>>,
    /// The bytes of each operand, parallel to `operands`.
    pub operand_spans: Vec<Span>,
}

/// A guard predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The predicate register.
    pub register: &'a str,
    /// `@!p`
    pub negated: bool,
}

/// One operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand<'a> {
    /// A register, special register or any other name: `%r1`, `%tid.x`, `$L__BB0_2`, `_Z3fooPf`,
    /// `_`. Which it is depends on declarations, so the parser does not guess. Component selectors
    /// stay in the name (`%v.x`).
    Name(&'a str),
    /// `!p` where an instruction takes a negated predicate operand.
    Not(&'a str),
    /// An integer literal, as its 64-bit two's complement value.
    Int(i64),
    /// `0fXXXXXXXX`: bits of an f32.
    F32(u32),
    /// `0dXXXXXXXXXXXXXXXX` or a decimal literal: bits of an f64.
    F64(u64),
    /// `[base + offset]`; `base` is a name or `None` for an immediate address; the brackets' inner
    /// text is kept in `rest` for forms with several parts (`[tensor, {x, y}]`, `[addr], mbar`
    /// stays two operands). What follows the brackets (`[a].unified`) is in the operand's bytes
    /// only.
    Address {
        /// Register or symbol.
        base: Option<&'a str>,
        /// Constant byte offset.
        offset: i64,
        /// Further parts after a comma inside the brackets (tensor coordinates), parsed as
        /// operands.
        rest: Vec<Operand<'a>>,
    },
    /// `{a, b, c, d}`
    Vector(Vec<Operand<'a>>),
    /// `d|p` (setp with two results, shfl with a predicate)
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `(a, b)`: argument and result lists of `call`.
    List(Vec<Operand<'a>>),
    /// `name + offset` outside brackets: `mov` of an address. `name[index]` is
    /// [`Other`](Operand::Other), because the index counts elements, whose size only the
    /// declaration knows.
    Offset(&'a str, i64),
    /// Anything else, verbatim: constant expressions, addresses with a computed offset (see
    /// [`crate::constant`]), strings.
    Other(&'a str),
}
