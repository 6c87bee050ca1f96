//! Hooks in three steps: `plan` reads and judges, [`stage`] builds stubs in fresh memory within
//! reach, [`Staged::commit`] writes the jumps. Between the last two the caller publishes the
//! trampolines, because a hooked function may be called at once.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use warpbpf_wire::late;

use crate::error::HookError;
use crate::memory::{self, Region};
use crate::patch::{Patch, ROOM, in_force};
use crate::target::{Kind, Target};
use crate::{beneath, machine};

/// Hooks that are built but not in force.
#[derive(Debug)]
pub struct Staged {
    /// Per target, in order: the trampoline's address.
    pub originals: Vec<Result<usize, HookError>>,
    patches: Vec<Option<Patch>>,
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

/// Builds stubs and trampolines for targets of one library, or takes those that were built for them
/// before.
pub fn stage(targets: &[Target]) -> Staged {
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
            let code = beneath::code(t.address, code)
                .map_err(|source| HookError::Breakpoint { source })?;
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
    if let Ok(Err(source)) = region.map(|region| region.finish(&code)) {
        for built in &mut all {
            if built.is_ok() {
                let source = source.clone();
                *built = Err(HookError::Write { source });
            }
        }
    }
    all
}

impl Staged {
    /// The jumps, to be written by somebody else.
    pub fn patches(&self) -> Vec<late::Patch> {
        let patches = self.patches.iter().flatten();
        patches.filter_map(Patch::told).collect()
    }

    /// Leaves out the jump of the target with this number: it has a trampoline, and is not hooked.
    pub fn leave_out(&mut self, target: usize) {
        self.patches[target] = None;
    }

    /// Writes the jumps. A target that fails here is as it was; the result says so in its place.
    ///
    /// # Safety
    /// No thread executes the displaced instructions of a target at this moment, and the
    /// replacements have the signatures of the functions that they replace.
    pub unsafe fn commit(self) -> Vec<Result<usize, HookError>> {
        let patch_one = |(original, patch): (Result<usize, HookError>, Option<Patch>)| {
            let original = original?;
            if let Some(patch) = patch {
                // SAFETY: the caller's promise; `at` was read as code of the target when it was
                // planned.
                unsafe { memory::patch(patch.at, &patch.expected, &patch.jump) }
                    .map_err(|source| HookError::Write { source })?;
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
