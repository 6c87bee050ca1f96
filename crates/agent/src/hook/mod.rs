//! Inline hooks at functions that we cannot rebuild, without touching their first byte.
//!
//! The first instruction stays, so that a kernel uprobe may sit on it; a jump replaces what follows. (An entry of a procedure
//! linkage table is hardly more than a jump, so there ours takes its place.) The jump leads to an *entry stub* that undoes the first instruction and goes on to our function. A *trampoline* holds the
//! displaced instructions and jumps back behind them: calling it is calling the original.
//!
//! Three steps: [`plan`](machine::plan) reads and judges, [`stage`] builds stubs in fresh memory within reach, [`Staged::commit`]
//! writes the jumps. Between the last two the caller publishes the trampolines, because a hooked function may be called at once.
//!
//! What instructions look like is in a module for each kind of processor, with the same functions.

mod beneath;
mod memory;
mod stub;

// Words in, words out: tests run it anywhere.
#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

pub(crate) use stub::{Link, link, stubs};

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpbpf_wire::late;

use crate::maps::Unread;
use memory::Region;

/// Most bytes of one stub and trampoline; displaced instructions grow when they are relocated.
const ROOM: usize = 256;

/// Why a function is not hooked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HookError {
    #[error("its code at {address:#x} cannot be decoded")]
    Undecodable { address: u64 },
    #[error(
        "that is no entry of a procedure linkage table that jumps to a function, but `{text}`; where there is a `.plt.sec`, take the entry there"
    )]
    Entry { text: String },
    #[error("its first instruction `{text}` cannot be undone")]
    First { text: String },
    #[error(
        "a breakpoint of a debugger or a uprobe is its first instruction, and what it stands on is not known: {why}"
    )]
    Breakpoint { why: String },
    #[error("a breakpoint of a debugger or a uprobe stands where the jump would")]
    Covered,
    #[error("it is hooked already by somebody else (`{text}`)")]
    Taken { text: String },
    #[error("it ends {bytes} bytes behind its first instruction, a jump needs {needs}")]
    Short { bytes: usize, needs: usize },
    #[error("the branch at {from:#x} leads into its first instructions")]
    BranchedInto { from: u64 },
    #[error("its first instructions cannot be moved: {reason}")]
    Relocate { reason: String },
    #[error(
        "its first instructions hold the call `{text}`, and an exception from there would not find its way back"
    )]
    Calls { text: String },
    #[error("there is no free memory within 1 GiB of it")]
    NoRoom,
    #[error("it is not known where memory is free: {0}")]
    Unread(Unread),
    #[error("its code cannot be changed: {reason}")]
    Write { reason: String },
}

/// A function to hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Where it is.
    pub(crate) address: usize,
    /// Its bytes, at least those of the prologue; all of them where its size is known.
    pub(crate) code: Vec<u8>,
    /// What runs in its place.
    pub(crate) replacement: usize,
    pub(crate) kind: Kind,
}

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function of a driver, where nothing throws.
    Driver,
    /// Any function. What it calls may throw: then no call is moved, because there is nothing to unwind by where it would stand.
    Function,
    /// A function of the C library that takes so many arguments, none of them on the stack, and
    /// throws nothing: registers of further ones may be changed.
    Of { arguments: usize },
    /// An entry of a procedure linkage table.
    Entry,
}

/// Hooks that are built but not in force.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Per target, in order: the trampoline's address.
    pub(crate) originals: Vec<Result<usize, HookError>>,
    patches: Vec<Option<Patch>>,
}

#[derive(Debug, Clone)]
struct Patch {
    at: usize,
    expected: Vec<u8>,
    jump: Vec<u8>,
}

/// Changes of code that were made, for whoever takes them back.
static IN_FORCE: Mutex<Vec<late::Patch>> = Mutex::new(Vec::new());

/// The changes that are in force.
pub(crate) fn in_force() -> MutexGuard<'static, Vec<late::Patch>> {
    IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was built for a target. It stays, as threads may be in it, and serves again when the same
/// function is hooked again.
#[derive(Debug)]
struct Built {
    target: Target,
    original: usize,
    patch: Patch,
}

static BUILT: Mutex<Vec<Built>> = Mutex::new(Vec::new());

/// Builds stubs and trampolines for targets of one library, or takes those that were built for them before.
pub(crate) fn stage(targets: &[Target]) -> Staged {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let before = |target: &Target| {
        let found = built.iter().find(|built| built.target == *target)?;
        Some((found.original, found.patch.clone()))
    };
    let known: Vec<_> = targets.iter().map(before).collect();
    let missing = targets
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let missing: Vec<Target> = missing.map(|(target, _)| target.clone()).collect();
    let mut made = match missing.is_empty() {
        true => Vec::new(),
        false => build(&missing),
    }
    .into_iter();
    let mut staged = Staged {
        originals: Vec::new(),
        patches: Vec::new(),
    };
    for (target, known) in targets.iter().zip(known) {
        let done = match known {
            Some(known) => Ok(known),
            None => made
                .next()
                .unwrap_or(Err(HookError::NoRoom))
                .inspect(|(original, patch)| {
                    built.push(Built {
                        target: target.clone(),
                        original: *original,
                        patch: patch.clone(),
                    });
                }),
        };
        let (original, patch) = done.map_or_else(
            |error| (Err(error), None),
            |(original, patch)| (Ok(original), Some(patch)),
        );
        staged.originals.push(original);
        staged.patches.push(patch);
    }
    staged
}

/// Builds them: for each the trampoline, and the jump.
fn build(targets: &[Target]) -> Vec<Result<(usize, Patch), HookError>> {
    let plans: Vec<_> = targets
        .iter()
        .map(|t| {
            // Nothing but a way out, where no jump fits.
            let code: &[u8] = if warpbpf_faults::strikes("hook/plan") {
                &[0xc3]
            } else {
                &t.code
            };
            let code =
                beneath::code(t.address, code).map_err(|why| HookError::Breakpoint { why })?;
            let plan = match t.kind {
                Kind::Entry => machine::plan_entry(t.address as u64, &code)?,
                Kind::Driver | Kind::Function => machine::plan(t.address as u64, &code)?,
                Kind::Of { arguments } => machine::plan_few(t.address as u64, &code, arguments)?,
            };
            if plan.replaces_start() && matches!(code, Cow::Owned(_)) {
                return Err(HookError::Covered);
            }
            match plan.call().filter(|_| t.kind == Kind::Function) {
                Some(text) => Err(HookError::Calls { text }),
                None => Ok((plan, code)),
            }
        })
        .collect();
    let addresses = targets.iter().zip(&plans).filter(|(_, p)| p.is_ok());
    let addresses: Vec<usize> = addresses.map(|(t, _)| t.address).collect();
    let region = match (addresses.iter().min(), addresses.iter().max()) {
        (Some(low), Some(high)) => {
            let bytes = targets.len() * ROOM;
            Region::near(*low, *high, bytes, machine::REACHES)
        }
        // Nothing is built then.
        _ => Err(HookError::NoRoom),
    };
    let mut all = Vec::new();
    let mut code = Vec::new();
    for (target, plan) in targets.iter().zip(plans) {
        let built = plan.and_then(|(plan, own)| {
            let base = region.as_ref().map_err(HookError::clone)?.base() + code.len();
            machine::build(&plan, base as u64, &own, target.replacement)
        });
        all.push(built.map(|(bytes, original, patch)| {
            code.extend(bytes);
            code.resize(code.len().next_multiple_of(16), machine::FILL);
            (original, patch)
        }));
    }
    if let Ok(Err(reason)) = region.map(|region| region.finish(&code)) {
        for built in &mut all {
            if built.is_ok() {
                let reason = reason.clone();
                *built = Err(HookError::Write { reason });
            }
        }
    }
    all
}

impl Staged {
    /// The jumps, to be written by somebody else.
    pub(crate) fn patches(&self) -> Vec<late::Patch> {
        let patches = self.patches.iter().flatten();
        patches.filter_map(Patch::told).collect()
    }

    /// Leaves out the jump of the target with this number: it has a trampoline, and is not hooked.
    pub(crate) fn leave_out(&mut self, target: usize) {
        self.patches[target] = None;
    }

    /// Writes the jumps. A target that fails here is as it was; the result says so in its place.
    ///
    /// # Safety
    /// No thread executes the displaced instructions of a target at this moment, and the replacements have the signatures
    /// of the functions that they replace.
    pub(crate) unsafe fn commit(self) -> Vec<Result<usize, HookError>> {
        let patch_one = |(original, patch): (Result<usize, HookError>, Option<Patch>)| {
            let original = original?;
            if let Some(patch) = patch {
                // SAFETY: the caller's promise; `at` was read as code of the target when it was planned.
                unsafe { memory::patch(patch.at, &patch.expected, &patch.jump) }
                    .map_err(|reason| HookError::Write { reason })?;
                in_force().extend(patch.told());
            }
            Ok(original)
        };
        self.originals
            .into_iter()
            .zip(self.patches)
            .map(patch_one)
            .collect()
    }
}

impl Patch {
    fn told(&self) -> Option<late::Patch> {
        late::Patch::new(self.at as u64, &self.expected, &self.jump)
    }
}
