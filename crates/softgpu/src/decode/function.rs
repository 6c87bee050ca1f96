//! One function: its statements in order, then what could only be known behind them.

use std::sync::OnceLock;

use warpbpf_ptx::ast::{self, StatementKind};

use super::decoder::{Builder, FunctionDecoder, Reject, sane_align};
use super::scope::{Scope, Sym};
use crate::decode::decoder::{Fixup, ROW_LIMIT};
use crate::load_error::LoadError;
use crate::op::operand::NOWHERE;
use crate::op::{Op, Place};
use crate::params::param_layout;
use crate::program::Function;
use crate::variables;

impl<'b, 'm, 'a> FunctionDecoder<'b, 'm, 'a> {
    pub(super) fn run(mut self) -> Result<Function, LoadError> {
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
        if self.frame_most > crate::limits::MAX_LOCAL {
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

    /// Declares parameters and return values; for functions, where callers find them.
    fn signature(&mut self) -> Result<(Vec<Place>, Vec<Place>), LoadError> {
        if self.is_entry {
            for (param, info) in self.function.params.iter().zip(param_layout(self.function)) {
                if info.offset.saturating_add(info.size) > crate::limits::MAX_PARAM_BYTES {
                    let limit = crate::limits::MAX_PARAM_BYTES;
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
