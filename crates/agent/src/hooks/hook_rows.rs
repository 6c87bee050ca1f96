//! The hooks of the driver's functions: built, put in force, and told where they cannot be.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::Api;
use warpbpf_hook::{HookError, Kind, Staged, Target, in_force, stage};

use crate::device::graphs::captures;
use crate::device::quiet;
use crate::hooks::exports::{ROWS, Row};
use crate::runtime::agent::Agent;
use crate::sys::anchor::{ANCHOR, set_driver_at};
use crate::sys::symbols::{Symbols, code_of};

/// More bytes than an instruction has: a jump stands behind the first one.
const LONGEST_FIRST: u64 = 16;

/// How far the driver is when we come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nobody has initialised it yet.
    BeforeInit,
    /// It calls us: threads may be at the beginning of `cuInit`, which therefore stays as it is.
    /// Children that are forked from here cannot initialise it again, so nothing is missed.
    InsideInit,
}

/// The hooks of the driver's functions, built and not in force.
pub(crate) struct Hooks {
    pub(crate) rows: Vec<(&'static Row, usize)>,
    pub(crate) addresses: Vec<usize>,
    pub(crate) staged: Staged,
}

impl Hooks {
    /// Builds them. From then on the rows' originals are what they are with hooks, which works
    /// without, too. Those that nobody may ask for are not hooked yet, and called by their
    /// trampolines from the beginning, so that what we ask never comes to ourselves.
    pub(crate) fn stage(library: &Symbols, moment: Moment) -> Hooks {
        let free = |row: &&Row| moment == Moment::BeforeInit || row.symbol != "cuInit";
        let mut hooks = Hooks::build(library, ROWS.iter().filter(free));
        let anchor = hooks.rows.iter().find(|(row, _)| row.symbol == ANCHOR);
        set_driver_at(anchor.map_or(0, |(_, address)| *address));
        hooks.rows.retain(|(row, _)| !row.asked);
        for (target, address) in hooks.addresses.iter().enumerate() {
            if hooks.rows.iter().all(|(_, of)| of != address) {
                hooks.staged.leave_out(target);
            }
        }
        hooks
    }

    /// Builds those of these rows.
    fn build(library: &Symbols, wanted: impl Iterator<Item = &'static Row>) -> Hooks {
        let mut targets = Vec::new();
        let mut rows = Vec::new();
        for row in wanted {
            let Some(address) = library.address(row.symbol) else {
                continue;
            };
            rows.push((row, address));
            // Two names may be one function; of the versions of one, the newest row comes first.
            if !targets.iter().any(|t: &Target| t.address == address) {
                targets.push(Target {
                    address,
                    // SAFETY: the driver exports a function of this name.
                    code: unsafe { code_of(address) },
                    replacement: (row.replacement)(),
                    kind: Kind::Driver,
                });
            }
        }
        let staged = stage(&targets);
        let addresses: Vec<usize> = targets.iter().map(|t| t.address).collect();
        for (row, address) in &rows {
            let at = addresses.iter().position(|a| a == address);
            let original = at.and_then(|at| staged.originals[at].as_ref().ok());
            // A function that is not hooked is still called by us: by its own address.
            row.original
                .store(original.copied().unwrap_or(*address), Ordering::Relaxed);
        }
        Hooks {
            rows,
            addresses,
            staged,
        }
    }

    /// The driver's functions as we call them: by trampolines where they are hooked. `None` if it
    /// lacks one.
    pub(crate) fn api(&self, library: &Symbols) -> Option<Api> {
        let trampolines: HashMap<usize, usize> = self
            .addresses
            .iter()
            .zip(&self.staged.originals)
            .filter_map(|(address, original)| Some((*address, *original.as_ref().ok()?)))
            .collect();
        let resolve = |symbol: &'static str| {
            let address = library.address(symbol).unwrap_or(0);
            trampolines.get(&address).copied().unwrap_or(address) as *const c_void
        };
        // SAFETY: addresses of the driver's functions of these names, or trampolines to them.
        unsafe { Api::resolve(resolve) }.ok()
    }

    /// What stands in the way of those that are essential.
    pub(crate) fn obstacle(&self) -> Option<String> {
        obstacle(&self.rows, &self.addresses, &self.staged.originals)
    }

    /// Tells which functions will not be hooked, where all others are.
    pub(crate) fn tell_unhooked(&self, agent: &Agent) {
        let results = &self.staged.originals;
        tell_unhooked(agent, &self.rows, &self.addresses, results);
    }
}

/// Hooks what is hooked only where the user asks for it, and is not yet.
pub(crate) fn hook_asked(agent: &Agent) {
    // Another tool may have been here.
    let hooked = |row: &&Row| {
        let address = agent.symbol(row.symbol).unwrap_or(0) as u64;
        let behind = address + 1..address + LONGEST_FIRST;
        in_force().iter().any(|patch| behind.contains(&patch.at))
    };
    let rows = ROWS.iter().filter(|row| row.asked && !hooked(row));
    let Hooks {
        rows,
        addresses,
        staged,
    } = Hooks::build(&agent.symbols, rows);
    // SAFETY: replacements have the signatures of their rows' symbols. That no thread is in the
    // first instructions of these functions just now is assumed, as of functions with programs
    // (docs/attach.md).
    let results = unsafe { staged.commit() };
    tell_unhooked(agent, &rows, &addresses, &results);
}

/// Tells the user which functions are not hooked, and does without what needs them.
pub(crate) fn tell_unhooked(
    agent: &Agent,
    rows: &[(&Row, usize)],
    addresses: &[usize],
    results: &[Result<usize, HookError>],
) {
    let failed: Vec<String> = addresses
        .iter()
        .zip(results)
        .filter_map(|(address, result)| {
            let (row, _) = rows.iter().find(|(_, a)| a == address)?;
            Some(format!("`{}`: {}", row.symbol, result.as_ref().err()?))
        })
        .collect();
    let unhooked = |address: &usize| {
        let at = addresses.iter().position(|a| a == address);
        at.is_none_or(|at| results[at].is_err())
    };
    let lacks = |needs: fn(&str) -> bool| {
        rows.iter()
            .any(|(row, address)| needs(row.symbol) && unhooked(address))
    };
    if lacks(quiet::needs) {
        agent.quiet.give_up();
    }
    let mut without = "";
    if lacks(captures::needs) {
        agent.graphs.go_blind();
        without = "; kernels in graphs run without probes and are not counted";
    }
    if !failed.is_empty() {
        agent.note(
            warpbpf_wire::NoteLevel::Warning,
            format!(
                "these driver functions are not hooked: {}{without}",
                failed.join("; ")
            ),
        );
    }
}

/// What stands in the way of essential hooks.
fn obstacle(
    rows: &[(&Row, usize)],
    addresses: &[usize],
    originals: &[Result<usize, HookError>],
) -> Option<String> {
    let mut reasons = Vec::new();
    let mut taken = Vec::new();
    let mut unread = None;
    for row in ROWS.iter().filter(|row| row.essential) {
        let symbol = row.symbol;
        let Some((_, address)) = rows.iter().find(|(r, _)| r.symbol == symbol) else {
            reasons.push(format!("it has no `{symbol}`"));
            continue;
        };
        let at = addresses.iter().position(|a| a == address);
        match at.and_then(|at| originals.get(at)) {
            Some(Err(HookError::Taken { .. })) => taken.push(format!("`{symbol}`")),
            // It is the same for all.
            Some(Err(error @ HookError::Unread(_))) => unread = Some(error.to_string()),
            Some(Err(error)) => reasons.push(format!("`{symbol}`: {error}")),
            Some(Ok(_)) | None => {}
        }
    }
    reasons.extend(unread);
    if !taken.is_empty() {
        reasons.push(format!(
            "{} are hooked already; only one warpbpf, and no other tool that hooks the driver, can be in a process",
            taken.join(", ")
        ));
    }
    (!reasons.is_empty())
        .then(|| format!("the CUDA driver cannot be hooked: {}", reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_are_named() {
        let all: Vec<(&Row, usize)> = ROWS.iter().zip(1..).collect();
        let addresses: Vec<usize> = (1..=ROWS.len()).collect();
        let mut originals: Vec<Result<usize, HookError>> =
            addresses.iter().map(|a| Ok(*a)).collect();
        assert_eq!(obstacle(&all, &addresses, &originals), None);
        let at = |symbol: &str| ROWS.iter().position(|r| r.symbol == symbol).unwrap();
        // One that is not essential may fail.
        originals[at("cuModuleLoad")] = Err(HookError::NoRoom);
        assert_eq!(obstacle(&all, &addresses, &originals), None);
        for symbol in ["cuLaunchKernel", "cuLaunchKernelEx"] {
            originals[at(symbol)] = Err(HookError::Taken { text: "jmp".into() });
        }
        originals[at("cuModuleUnload")] = Err(HookError::Short { bytes: 2, needs: 5 });
        assert_eq!(
            obstacle(&all, &addresses, &originals).unwrap(),
            "the CUDA driver cannot be hooked: `cuModuleUnload`: it ends 2 bytes behind its first instruction, a jump \
             needs 5; `cuLaunchKernel`, `cuLaunchKernelEx` are hooked already; only one warpbpf, and no other tool that \
             hooks the driver, can be in a process"
        );
        let unread = warpbpf_hook::maps::read("/none/maps").unwrap_err();
        let unread = vec![Err(HookError::Unread(unread)); ROWS.len()];
        assert_eq!(
            obstacle(&all, &addresses, &unread).unwrap(),
            "the CUDA driver cannot be hooked: it is not known where memory is free: `/none/maps` cannot be read: \
             No such file or directory (os error 2)"
        );
        let fewer: Vec<_> = all
            .iter()
            .filter(|(r, _)| r.symbol != "cuLibraryUnload")
            .copied()
            .collect();
        let message = obstacle(&fewer, &addresses, &[]).unwrap();
        assert_eq!(
            message,
            "the CUDA driver cannot be hooked: it has no `cuLibraryUnload`"
        );
    }
}
