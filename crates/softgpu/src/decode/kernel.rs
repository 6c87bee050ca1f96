//! A kernel with every function it can reach.

use std::sync::Arc;

use warpbpf_ptx::ast;

use super::decoder::{Builder, FunctionDecoder};
use crate::load_error::LoadError;
use crate::loaded::Inner;
use crate::op::{Inst, Op, Special};
use crate::program::{Function, Program};

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
pub(crate) fn declared(module: &ast::Module<'_>, entry: u32, end: u64) -> Result<u32, LoadError> {
    let declared = end - u64::from(crate::limits::RESERVED_SHARED);
    u32::try_from(declared).map_err(|_| {
        let function = &module.functions[entry as usize];
        LoadError::Body {
            function: function.name.to_owned(),
            line: module.line_of(function.span.start),
            reason: format!("it declares {declared} bytes of shared memory"),
        }
    })
}

pub(crate) fn calls_any(inst: &Inst) -> bool {
    matches!(&inst.op, Op::Call(call) if matches!(call.callee, crate::op::Callee::Indirect(_)))
}

impl<'m, 'a> Builder<'m, 'a> {
    /// Decodes the functions that are reached, and those that they reach, in the order of their
    /// numbers.
    fn decode_reached(&mut self, mut keep: impl FnMut(Function)) -> Result<(), LoadError> {
        let mut indirect = false;
        let mut next = 0;
        while let Some(&index) = self.order.get(next) {
            next += 1;
            let decoded = FunctionDecoder::new(self, index).run()?;
            if !indirect && decoded.code.iter().any(calls_any) {
                indirect = true;
                // Any kernel of the module may have taken any function's address.
                for index in with_bodies(self.module) {
                    self.reach(index);
                }
            }
            keep(decoded);
        }
        Ok(())
    }
}

/// Functions whose address a kernel of the module may have taken.
pub(crate) fn with_bodies(module: &ast::Module<'_>) -> impl Iterator<Item = u32> {
    let functions = module.functions.iter().enumerate();
    let others = functions.filter(|(_, function)| !function.is_entry && function.body.is_some());
    others.map(|(index, _)| index as u32)
}
