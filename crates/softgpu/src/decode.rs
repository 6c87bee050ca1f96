//! PTX to ops: names become rows, offsets and addresses, labels become instruction numbers. A kernel is decoded with
//! every function it can reach, because the place of shared variables depends on the kernel.
//!
//! What is malformed is a [`LoadError`]; what is only unknown becomes [`Op::Unsupported`], a trap if it is executed,
//! so that a kernel with one exotic instruction on a path that is not taken runs.

mod async_store;
mod bulk;
mod image;
mod instruction;
mod matrix;
mod memory;
mod moves;
mod names;
mod operand;
pub(crate) mod summary;
mod sync;
mod video;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use warpbpf_ptx::ast::{self, StatementKind};

use crate::module::{Inner, LoadError, param_layout};
use crate::op::{Function, Inst, NOWHERE, Op, Place, Program, Row, Special};
use crate::variables::{self, Symbol};
use names::{Scope, Sym};
use summary::Placed;

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

/// Decodes the kernel with number `entry` and what it reaches.
pub(crate) fn program(
    inner: &Inner,
    module: &ast::Module<'_>,
    entry: u32,
) -> Result<Program, LoadError> {
    let mut builder = Builder::new(inner, module);
    builder.reach(entry);
    let mut functions = Vec::new();
    builder.decode_reached(|function| functions.push(function))?;
    declared(module, entry, builder.shared_end)?;
    let end = builder.shared_end.next_multiple_of(builder.dynamic_align);
    let dynamic_shared_base = u32::try_from(end).unwrap_or(u32::MAX);
    builder.constants[0] = u64::from(dynamic_shared_base);
    let reads = |inst: &Inst| {
        matches!(
            inst.op,
            Op::Special {
                which: Special::Environment(_),
                ..
            }
        )
    };
    let environment = functions.iter().any(|f| f.code.iter().any(reads));
    Ok(Program {
        functions,
        environment,
        constants: builder.constants,
        by_module_index: builder.numbers,
        dynamic_shared_base,
        files: Arc::clone(&inner.files),
        registers: builder.registers,
    })
}

/// Bytes of shared memory that a kernel declares, which ends at `end`.
fn declared(module: &ast::Module<'_>, entry: u32, end: u64) -> Result<u32, LoadError> {
    let declared = end - u64::from(crate::RESERVED_SHARED);
    u32::try_from(declared).map_err(|_| {
        let function = &module.functions[entry as usize];
        LoadError::Body {
            function: function.name.to_owned(),
            line: module.line_of(function.span.start),
            reason: format!("it declares {declared} bytes of shared memory"),
        }
    })
}

/// Offset of a new shared variable. A sum too large is kept at the end of the range, where it is refused.
fn place(end: &mut u64, size: u64, align: u64) -> u32 {
    let offset = end.next_multiple_of(sane_align(align));
    *end = offset.saturating_add(size).min(u64::from(u32::MAX) + 1);
    offset as u32
}

fn calls_any(inst: &Inst) -> bool {
    matches!(&inst.op, Op::Call(call) if matches!(call.callee, crate::op::Callee::Indirect(_)))
}

/// Constant row 0 holds the start of dynamic shared memory, known when all is decoded.
pub(crate) const DYNAMIC_SHARED: Row = crate::op::CONSTANT;

/// What the functions of a program share.
pub(crate) struct Builder<'m, 'a> {
    pub inner: &'m Inner,
    pub module: &'m ast::Module<'a>,
    constants: Vec<u64>,
    constant_rows: HashMap<u64, Row>,
    /// Module-scope shared variables by name.
    shared: HashMap<String, u32>,
    /// Where shared memory ends so far; more than a block can have is refused in the end.
    shared_end: u64,
    placed: Vec<Placed>,
    dynamic_align: u64,
    /// Program number by module function number.
    numbers: HashMap<u32, u32>,
    /// Module function numbers in program order.
    order: Vec<u32>,
    registers: u32,
}

impl<'m, 'a> Builder<'m, 'a> {
    fn new(inner: &'m Inner, module: &'m ast::Module<'a>) -> Self {
        Builder {
            inner,
            module,
            constants: vec![0],
            constant_rows: HashMap::new(),
            shared: HashMap::new(),
            shared_end: u64::from(crate::RESERVED_SHARED),
            placed: Vec::new(),
            dynamic_align: 16,
            numbers: HashMap::new(),
            order: Vec::new(),
            registers: 0,
        }
    }

    /// Decodes the functions that are reached, and those that they reach, in the order of their numbers.
    fn decode_reached(&mut self, mut keep: impl FnMut(Function)) -> Result<(), LoadError> {
        let mut indirect = false;
        let mut next = 0;
        while let Some(&index) = self.order.get(next) {
            next += 1;
            let decoded = FunctionDecoder::new(self, index).run()?;
            if !indirect && decoded.code.iter().any(calls_any) {
                indirect = true;
                // Any kernel of the module may have taken any function's address.
                for index in summary::with_bodies(self.module) {
                    self.reach(index);
                }
            }
            keep(decoded);
        }
        Ok(())
    }

    pub fn constant(&mut self, value: u64) -> Row {
        let constants = &mut self.constants;
        *self.constant_rows.entry(value).or_insert_with(|| {
            constants.push(value);
            crate::op::CONSTANT | (constants.len() - 1) as u32
        })
    }

    /// The program number of a function, which is decoded too.
    fn reach(&mut self, index: u32) -> Option<u32> {
        self.module.functions.get(index as usize)?.body.as_ref()?;
        let next = self.order.len() as u32;
        let number = *self.numbers.entry(index).or_insert(next);
        if number == next {
            self.order.push(index);
        }
        Some(number)
    }

    fn place_shared(&mut self, name: Option<&str>, size: u64, align: u64) -> u32 {
        let name = name.map(str::to_owned);
        self.placed.push(Placed { name, size, align });
        place(&mut self.shared_end, size, align)
    }

    /// What a module-scope name means here.
    fn global_name(&mut self, name: &str) -> Option<Sym> {
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
fn sane_align(align: u64) -> u64 {
    align.clamp(1, 4096)
}

/// A branch whose target label is not decoded yet.
enum Fixup<'a> {
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
    function: &'m ast::Function<'a>,
    is_entry: bool,
    scopes: Vec<Scope<'a>>,
    /// Parents of all scopes ever opened, for labels.
    parents: Vec<usize>,
    labels: HashMap<(usize, &'a str), u32>,
    tables: HashMap<(usize, &'a str), Vec<&'a str>>,
    fixups: Vec<Fixup<'a>>,
    code: Vec<Inst>,
    locations: Vec<(u32, u32, u32)>,
    rows: u32,
    frame: u32,
    frame_most: u32,
    line: u32,
    line_at: usize,
    /// First and last instruction that mentions a row, and its width in 32-bit registers.
    ranges: Vec<(u32, u32, u32)>,
    carry: Option<Row>,
    /// Of the instruction that is being decoded.
    guard: (Row, bool),
    /// Bytes between the elements of the variables that the body declares, for each dimension.
    strides: HashMap<&'a str, Vec<u64>>,
}

impl<'b, 'm, 'a> FunctionDecoder<'b, 'm, 'a> {
    fn new(b: &'b mut Builder<'m, 'a>, index: u32) -> Self {
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

    fn run(mut self) -> Result<Function, LoadError> {
        let module = self.b.module;
        let statements = warpbpf_ptx::parse_body(module, self.function)?;
        let (params, returns) = self.signature()?;
        for statement in &statements {
            self.advance_line(statement.span.start);
            self.statement(statement)?;
        }
        // Running off the end is a return.
        self.push(NOWHERE, false, Op::Return);
        self.fix()?;
        self.estimate_registers();
        if self.frame_most > crate::call::MAX_LOCAL {
            let reason = format!(
                "it needs {} bytes of local memory per thread",
                self.frame_most
            );
            return Err(self.error(reason));
        }
        Ok(Function {
            name: self.function.name.to_owned(),
            code: self.code,
            locations: self.locations,
            rows: self.rows.max(1),
            frame: self.frame_most.next_multiple_of(16),
            params,
            returns,
            joins: OnceLock::new(),
        })
    }

    fn advance_line(&mut self, offset: usize) {
        let between = &self.b.module.text.as_bytes()[self.line_at..offset.max(self.line_at)];
        self.line += between.iter().filter(|&&byte| byte == b'\n').count() as u32;
        self.line_at = offset.max(self.line_at);
    }

    fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Body {
            function: self.function.name.to_owned(),
            line: self.line as usize,
            reason: reason.into(),
        }
    }

    /// Declares parameters and return values; for functions, where callers find them.
    fn signature(&mut self) -> Result<(Vec<Place>, Vec<Place>), LoadError> {
        if self.is_entry {
            for (param, info) in self.function.params.iter().zip(param_layout(self.function)) {
                if info.offset.saturating_add(info.size) > crate::MAX_PARAM_BYTES {
                    let limit = crate::MAX_PARAM_BYTES;
                    return Err(self.error(format!(
                        "`{}` ends beyond {limit} bytes of parameters",
                        param.name
                    )));
                }
                self.declare(param.name, Sym::KernelParam(info.offset as u32));
            }
            return Ok((Vec::new(), Vec::new()));
        }
        let function = self.function;
        let mut place = |param: &ast::Param<'a>| -> Vec<Place> {
            if param.is_reg {
                let first = self.rows;
                let (name, ty, count) = (param.name, param.ty, None);
                self.declare_registers(&ast::RegisterDecl { ty, name, count });
                return (first..self.rows).map(Place::Row).collect();
            }
            let size = param
                .size()
                .and_then(|size| u32::try_from(size).ok())
                .unwrap_or(u32::MAX);
            let offset = self.new_frame(size, param.align);
            self.declare(param.name, Sym::Frame { offset, size });
            vec![Place::Frame { offset, size }]
        };
        let params = function.params.iter().flat_map(&mut place).collect();
        let returns = function.returns.iter().flat_map(&mut place).collect();
        Ok((params, returns))
    }

    /// A new variable in the frame. A sum too large is kept at the end of the range, where it is refused.
    fn new_frame(&mut self, size: u32, align: u64) -> u32 {
        let offset = u64::from(self.frame).next_multiple_of(sane_align(align));
        self.frame = (offset + u64::from(size)).min(FRAME_LIMIT) as u32;
        self.frame_most = self.frame_most.max(self.frame);
        offset as u32
    }

    fn statement(&mut self, statement: &ast::Statement<'a>) -> Result<(), LoadError> {
        match &statement.kind {
            StatementKind::Label(name) => {
                let scope = self.scope();
                self.labels.insert((scope, name), self.code.len() as u32);
            }
            StatementKind::Open => {
                self.parents.push(self.scope());
                let id = self.parents.len() - 1;
                self.scopes.push(Scope::new(id, self.frame));
            }
            StatementKind::Close => {
                // The variables of the scope are gone: its part of the frame is used again.
                if self.scopes.len() > 1
                    && let Some(scope) = self.scopes.pop()
                {
                    self.frame = scope.frame;
                }
            }
            StatementKind::Registers(list) => {
                if !list.iter().all(|decl| self.declare_registers(decl)) {
                    return Err(self.error(format!("more than {ROW_LIMIT} registers")));
                }
            }
            StatementKind::Variable(variable) => self.variable(variable)?,
            StatementKind::BranchTargets { name, targets } => {
                let scope = self.scope();
                self.tables.insert((scope, name), targets.clone());
            }
            StatementKind::Instruction(instruction) => self.guarded(instruction)?,
            StatementKind::Loc(loc) => {
                let here = self.code.len() as u32;
                self.locations.push((here, loc.file, loc.line));
            }
            StatementKind::Directive(text)
                if [".visible", ".extern", ".weak"]
                    .iter()
                    .any(|word| text.starts_with(word)) =>
            {
                return Err(self.error(format!("`{text}` inside of a function")));
            }
            StatementKind::Pragma(_)
            | StatementKind::CallPrototype { .. }
            | StatementKind::CallTargets { .. }
            | StatementKind::Directive(_) => {}
        }
        Ok(())
    }

    fn variable(&mut self, variable: &ast::Variable<'a>) -> Result<(), LoadError> {
        if let Some(strides) = variables::strides(variable) {
            self.strides.insert(variable.name, strides);
        }
        let (size, align) = (variable.size(), variable.align);
        let open = variable.dims.first() == Some(&0);
        let sym = match variable.space {
            "shared" if open => {
                self.b.dynamic_align = self.b.dynamic_align.max(sane_align(align));
                Sym::DynamicShared
            }
            "shared" => {
                let size = size.ok_or_else(|| {
                    self.error(format!("size of `{}` is not known", variable.name))
                })?;
                Sym::Shared(self.b.place_shared(None, size, align))
            }
            "local" | "param" => {
                let size = size.and_then(|size| u32::try_from(size).ok());
                let size = size.ok_or_else(|| {
                    self.error(format!("size of `{}` is not known", variable.name))
                })?;
                let offset = self.new_frame(size, align);
                Sym::Frame { offset, size }
            }
            "global" | "const" => {
                let Builder { inner, module, .. } = &*self.b;
                Sym::Memory(inner.variables.in_body(module, variable)?)
            }
            other => {
                let reason = format!(
                    "`.{other}` variable `{}` inside of a function is not supported",
                    variable.name
                );
                return Err(self.error(reason));
            }
        };
        self.declare(variable.name, sym);
        Ok(())
    }

    fn guarded(&mut self, instruction: &ast::Instruction<'a>) -> Result<(), LoadError> {
        let (guard, negated) = match &instruction.guard {
            None => (NOWHERE, false),
            Some(guard) => match self.lookup(guard.register) {
                Some(Sym::Register { row, .. }) => (row, guard.negated),
                _ => {
                    return Err(self.error(format!("guard `{}` is not a register", guard.register)));
                }
            },
        };
        self.guard = (guard, negated);
        let op = match self.instruction(instruction) {
            Ok(op) => op,
            Err(Reject::Invalid(reason)) => {
                return Err(self.error(format!("`{}`: {reason}", instruction.name)));
            }
            Err(Reject::Unsupported(reason)) => {
                let reason = if reason.is_empty() {
                    reason
                } else {
                    format!(": {reason}")
                };
                let text = format!(
                    "unsupported instruction `{}` at line {}{reason}",
                    instruction.name, self.line
                );
                Op::Unsupported(text.into())
            }
        };
        self.push(guard, negated, op);
        Ok(())
    }

    fn push(&mut self, guard: Row, negated: bool, op: Op) {
        self.code.push(Inst {
            guard,
            negated,
            line: self.line,
            op,
        });
    }

    /// An instruction that computes an operand, before the instruction that is being decoded.
    fn emit(&mut self, op: Op) {
        self.push(NOWHERE, false, op);
    }

    /// A part of the instruction that is being decoded: it happens where the instruction does.
    fn emit_guarded(&mut self, op: Op) {
        if !matches!(op, Op::Nothing) {
            let (guard, negated) = self.guard;
            self.push(guard, negated, op);
        }
    }

    fn find_label(&self, name: &'a str, mut scope: usize) -> Option<u32> {
        loop {
            if let Some(&target) = self.labels.get(&(scope, name)) {
                return Some(target);
            }
            if scope == 0 {
                return None;
            }
            scope = self.parents[scope];
        }
    }

    fn fix(&mut self) -> Result<(), LoadError> {
        for fixup in std::mem::take(&mut self.fixups) {
            let (inst, names, scope) = match fixup {
                Fixup::Label { inst, name, scope } => (inst, vec![name], scope),
                Fixup::Table {
                    inst,
                    name,
                    mut scope,
                } => loop {
                    if let Some(names) = self.tables.get(&(scope, name)) {
                        break (inst, names.clone(), scope);
                    }
                    if scope == 0 {
                        self.line = self.code[inst].line;
                        return Err(self.error(format!("branch targets `{name}` are not declared")));
                    }
                    scope = self.parents[scope];
                },
            };
            self.line = self.code[inst].line;
            let found: Option<Vec<u32>> = names
                .iter()
                .map(|name| self.find_label(name, scope))
                .collect();
            let Some(found) = found else {
                return Err(self.error(format!("label `{}` is not declared", names.join("`, `"))));
            };
            match &mut self.code[inst].op {
                Op::Branch { target } => *target = found[0],
                Op::BranchIndex { targets, .. } => *targets = found.into(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Live ranges in text order, stretched over the loops that use them; their greatest sum.
    fn estimate_registers(&mut self) {
        let back: Vec<(u32, u32)> = (self.code.iter().enumerate())
            .filter_map(|(pc, inst)| match inst.op {
                Op::Branch { target } if target <= pc as u32 => Some((target, pc as u32)),
                _ => None,
            })
            .collect();
        let mut change = vec![0i64; self.code.len() + 2];
        for &(first, last, weight) in &self.ranges {
            if first == u32::MAX {
                continue;
            }
            let mut end = last;
            for &(top, bottom) in &back {
                if first < top && end >= top && end < bottom {
                    end = bottom;
                }
            }
            change[first as usize] += i64::from(weight);
            change[end as usize + 1] -= i64::from(weight);
        }
        let peak = change.iter().scan(0, |sum, &step| {
            *sum += step;
            Some(*sum)
        });
        // Even an empty kernel is given a few.
        let most = peak.max().unwrap_or(0).clamp(0, 247) as u32 + 8;
        self.b.registers = self.b.registers.max(most);
    }
}

/// Larger frames are all refused alike.
const FRAME_LIMIT: u64 = 1 << 30;

/// Virtual registers of a function: what compilers make of the largest kernels is a tenth of it.
pub(crate) const ROW_LIMIT: u32 = 1 << 18;

/// Bits of a register type.
pub(crate) fn bits_of(ty: &str) -> u32 {
    match ty {
        "pred" => 1,
        ty => warpbpf_ptx::type_size(ty).map_or(32, |bytes| bytes as u32 * 8),
    }
}
