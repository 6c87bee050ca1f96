//! What is told of kernels without keeping their code: of a module of many kernels that call the
//! same functions, each function is decoded once for all that is asked, and once more for each
//! kernel that is launched.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use warpbpf_ptx::ast::Module;

use super::decoder::{Builder, FunctionDecoder, place, sane_align};
use super::kernel::calls_any;
use crate::decode::kernel::with_bodies;
use crate::load_error::LoadError;
use crate::loaded::{Inner, Placed, Summary};

/// A kernel with all that it reaches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub static_shared: u32,
    /// Bytes of the kernel's own frame.
    pub local: u32,
    pub registers: u32,
}

/// The facts of kernel `entry`.
pub(crate) fn facts(inner: &Inner, module: &Module<'_>, entry: u32) -> Result<Facts, LoadError> {
    let mut known = HashSet::from([entry]);
    let mut order = vec![entry];
    let mut placed: HashSet<String> = HashSet::new();
    let mut end = u64::from(crate::limits::RESERVED_SHARED);
    let (mut local, mut registers, mut indirect) = (0, 0, false);
    let mut next = 0;
    while let Some(&index) = order.get(next) {
        let summary = summary(inner, module, index)?;
        if next == 0 {
            local = summary.frame;
        }
        next += 1;
        registers = registers.max(summary.registers);
        for Placed { name, size, align } in &summary.placed {
            if name.as_ref().is_none_or(|name| placed.insert(name.clone())) {
                place(&mut end, *size, *align);
            }
        }
        let callees = summary.callees.iter().copied();
        order.extend(callees.filter(|&callee| known.insert(callee)));
        if summary.calls_any && !indirect {
            indirect = true;
            let bodies = with_bodies(module).filter(|&other| known.insert(other));
            order.extend(bodies);
        }
    }
    Ok(Facts {
        static_shared: super::kernel::declared(module, entry, end)?,
        local,
        registers,
    })
}

/// Decodes all kernels and what they reach, each function once.
pub(crate) fn check_all(inner: &Inner, module: &Module<'_>) -> Result<(), LoadError> {
    let entries = module.functions.iter().enumerate();
    let entries = entries.filter(|(_, function)| function.is_entry && function.body.is_some());
    let entries: Vec<u32> = entries.map(|(index, _)| index as u32).collect();
    let mut known: HashSet<u32> = entries.iter().copied().collect();
    let mut pending = entries.clone();
    pending.reverse();
    let mut most = 0u64;
    while let Some(index) = pending.pop() {
        let summary = summary(inner, module, index)?;
        let sizes = summary.placed.iter();
        most = sizes.fold(most, |sum, placed| {
            sum.saturating_add(placed.size)
                .saturating_add(sane_align(placed.align))
        });
        let callees = summary.callees.iter().copied();
        pending.extend(callees.filter(|&callee| known.insert(callee)));
        if summary.calls_any {
            pending.extend(with_bodies(module).filter(|&other| known.insert(other)));
        }
    }
    // Of all kernels together: seldom too much, and only then each is looked at.
    if most > u64::from(u32::MAX) {
        for entry in entries {
            facts(inner, module, entry)?;
        }
    }
    Ok(())
}

fn summary(inner: &Inner, module: &Module<'_>, index: u32) -> Result<Arc<Summary>, LoadError> {
    let known = |summaries: &HashMap<u32, Arc<Summary>>| summaries.get(&index).cloned();
    let summaries = || {
        inner
            .summaries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    };
    if let Some(summary) = known(&summaries()) {
        return Ok(summary);
    }
    let mut builder = Builder::new(inner, module);
    builder.reach(index);
    let decoded = FunctionDecoder::new(&mut builder, index).run()?;
    let summary = Arc::new(Summary {
        callees: builder.order.split_off(1),
        calls_any: decoded.code.iter().any(calls_any),
        placed: builder.placed,
        frame: decoded.frame,
        registers: builder.registers,
    });
    summaries().insert(index, Arc::clone(&summary));
    Ok(summary)
}
