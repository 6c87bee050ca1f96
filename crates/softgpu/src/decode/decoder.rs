//! What there is of a program, and of one of its functions, while it is decoded.

use std::collections::HashMap;

use warpbpf_ptx::ast;

use super::scope::{Scope, Sym};
use crate::load_error::LoadError;
use crate::loaded::{Inner, Placed};
use crate::op::operand::{NOWHERE, Row};
use crate::op::{Inst, Op};
use crate::variables::Symbol;

/// Why an instruction was not decoded.
pub(crate) enum Reject {
    /// We do not have it.
    Unsupported(String),
    /// It is wrong.
    Invalid(String),
}

pub(crate) type Decoded<T> = Result<T, Reject>;

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Decoded<T> {
    Err(Reject::Unsupported(what.into()))
}

pub(crate) fn invalid<T>(what: impl Into<String>) -> Decoded<T> {
    Err(Reject::Invalid(what.into()))
}

/// Offset of a new shared variable. A sum too large is kept at the end of the range, where it is
/// refused.
pub(super) fn place(end: &mut u64, size: u64, align: u64) -> u32 {
    let offset = end.next_multiple_of(sane_align(align));
    *end = offset.saturating_add(size).min(u64::from(u32::MAX) + 1);
    offset as u32
}

/// Constant row 0 holds the start of dynamic shared memory, known when all is decoded.
pub(crate) const DYNAMIC_SHARED: Row = crate::op::operand::CONSTANT;

/// What the functions of a program share.
pub(crate) struct Builder<'m, 'a> {
    pub inner: &'m Inner,
    pub module: &'m ast::Module<'a>,
    pub(super) constants: Vec<u64>,
    pub(super) constant_rows: HashMap<u64, Row>,
    /// Module-scope shared variables by name.
    pub(super) shared: HashMap<String, u32>,
    /// Where shared memory ends so far; more than a block can have is refused in the end.
    pub(super) shared_end: u64,
    pub(super) placed: Vec<Placed>,
    pub(super) dynamic_align: u64,
    /// Program number by module function number.
    pub(super) numbers: HashMap<u32, u32>,
    /// Module function numbers in program order.
    pub(super) order: Vec<u32>,
    pub(super) registers: u32,
}

impl<'m, 'a> Builder<'m, 'a> {
    pub(super) fn new(inner: &'m Inner, module: &'m ast::Module<'a>) -> Self {
        Builder {
            inner,
            module,
            constants: vec![0],
            constant_rows: HashMap::new(),
            shared: HashMap::new(),
            shared_end: u64::from(crate::limits::RESERVED_SHARED),
            placed: Vec::new(),
            dynamic_align: 16,
            numbers: HashMap::new(),
            order: Vec::new(),
            registers: 0,
        }
    }

    pub fn constant(&mut self, value: u64) -> Row {
        let constants = &mut self.constants;
        *self.constant_rows.entry(value).or_insert_with(|| {
            constants.push(value);
            crate::op::operand::CONSTANT | (constants.len() - 1) as u32
        })
    }

    /// The program number of a function, which is decoded too.
    pub(super) fn reach(&mut self, index: u32) -> Option<u32> {
        self.module.functions.get(index as usize)?.body.as_ref()?;
        let next = self.order.len() as u32;
        let number = *self.numbers.entry(index).or_insert(next);
        if number == next {
            self.order.push(index);
        }
        Some(number)
    }

    pub(super) fn place_shared(&mut self, name: Option<&str>, size: u64, align: u64) -> u32 {
        let name = name.map(str::to_owned);
        self.placed.push(Placed { name, size, align });
        place(&mut self.shared_end, size, align)
    }

    /// What a module-scope name means here.
    pub(super) fn global_name(&mut self, name: &str) -> Option<Sym> {
        match self.inner.variables.symbol(name) {
            Some(Symbol::Memory { address, .. }) => Some(Sym::Memory(address)),
            Some(Symbol::Shared {
                align,
                external: true,
                ..
            }) => {
                self.dynamic_align = self.dynamic_align.max(sane_align(align));
                Some(Sym::DynamicShared)
            }
            Some(Symbol::Shared {
                size,
                align,
                external: false,
            }) => {
                if let Some(&offset) = self.shared.get(name) {
                    return Some(Sym::Shared(offset));
                }
                let offset = self.place_shared(Some(name), size, align);
                self.shared.insert(name.to_owned(), offset);
                Some(Sym::Shared(offset))
            }
            Some(Symbol::Opaque) => Some(Sym::Opaque),
            None => self
                .inner
                .functions
                .get(name)
                .map(|&index| Sym::Function(index)),
        }
    }
}

/// An alignment as the ISA allows it; nothing here needs more.
pub(super) fn sane_align(align: u64) -> u64 {
    align.clamp(1, 4096)
}

/// A branch whose target label is not decoded yet.
pub(super) enum Fixup<'a> {
    Label {
        inst: usize,
        name: &'a str,
        scope: usize,
    },
    Table {
        inst: usize,
        name: &'a str,
        scope: usize,
    },
}

/// Decodes one function.
pub(crate) struct FunctionDecoder<'b, 'm, 'a> {
    pub b: &'b mut Builder<'m, 'a>,
    pub(super) function: &'m ast::Function<'a>,
    pub(super) is_entry: bool,
    pub(super) scopes: Vec<Scope<'a>>,
    /// Parents of all scopes ever opened, for labels.
    pub(super) parents: Vec<usize>,
    pub(super) labels: HashMap<(usize, &'a str), u32>,
    pub(super) tables: HashMap<(usize, &'a str), Vec<&'a str>>,
    pub(super) fixups: Vec<Fixup<'a>>,
    pub(super) code: Vec<Inst>,
    pub(super) locations: Vec<(u32, u32, u32)>,
    pub(super) rows: u32,
    pub(super) frame: u32,
    pub(super) frame_most: u32,
    pub(super) line: u32,
    pub(super) line_at: usize,
    /// First and last instruction that mentions a row, and its width in 32-bit registers.
    pub(super) ranges: Vec<(u32, u32, u32)>,
    pub(super) carry: Option<Row>,
    /// Of the instruction that is being decoded.
    pub(super) guard: (Row, bool),
    /// Bytes between the elements of the variables that the body declares, for each dimension.
    pub(super) strides: HashMap<&'a str, Vec<u64>>,
}

impl<'b, 'm, 'a> FunctionDecoder<'b, 'm, 'a> {
    pub(super) fn new(b: &'b mut Builder<'m, 'a>, index: u32) -> Self {
        let function = &b.module.functions[index as usize];
        let line = b.inner.line_of(function.span.start);
        FunctionDecoder {
            b,
            function,
            is_entry: function.is_entry,
            scopes: vec![Scope::default()],
            parents: vec![0],
            labels: HashMap::new(),
            tables: HashMap::new(),
            fixups: Vec::new(),
            code: Vec::new(),
            locations: Vec::new(),
            rows: 0,
            frame: 0,
            frame_most: 0,
            line,
            line_at: function.span.start,
            ranges: Vec::new(),
            carry: None,
            guard: (NOWHERE, false),
            strides: HashMap::new(),
        }
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Body {
            function: self.function.name.to_owned(),
            line: self.line as usize,
            reason: reason.into(),
        }
    }

    /// A new variable in the frame. A sum too large is kept at the end of the range, where it is
    /// refused.
    pub(super) fn new_frame(&mut self, size: u32, align: u64) -> u32 {
        let offset = u64::from(self.frame).next_multiple_of(sane_align(align));
        self.frame = (offset + u64::from(size)).min(FRAME_LIMIT) as u32;
        self.frame_most = self.frame_most.max(self.frame);
        offset as u32
    }

    pub(super) fn push(&mut self, guard: Row, negated: bool, op: Op) {
        self.code.push(Inst {
            guard,
            negated,
            line: self.line,
            op,
        });
    }

    /// An instruction that computes an operand, before the instruction that is being decoded.
    pub(super) fn emit(&mut self, op: Op) {
        self.push(NOWHERE, false, op);
    }

    /// A part of the instruction that is being decoded: it happens where the instruction does.
    pub(super) fn emit_guarded(&mut self, op: Op) {
        if !matches!(op, Op::Nothing) {
            let (guard, negated) = self.guard;
            self.push(guard, negated, op);
        }
    }
}

/// Larger frames are all refused alike.
pub(super) const FRAME_LIMIT: u64 = 1 << 30;

/// Virtual registers of a function: what compilers make of the largest kernels is a tenth of it.
pub(crate) const ROW_LIMIT: u32 = 1 << 18;

/// Bits of a register type.
pub(crate) fn bits_of(ty: &str) -> u32 {
    match ty {
        "pred" => 1,
        ty => warpbpf_ptx::type_size(ty).map_or(32, |bytes| bytes as u32 * 8),
    }
}
