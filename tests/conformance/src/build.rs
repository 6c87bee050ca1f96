//! From a program to PTX, the way that user programs go: verified for a platform that hands it
//! memory, then compiled.

use std::panic::{AssertUnwindSafe, catch_unwind};

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::slot;
use warpbpf_codegen::interpreter::{Form, Interpreter, NotInterpreted, translate};
use warpbpf_codegen::{Env, Fragment, Input, MapBinding, SlotSpace, Target, compile};
use warpbpf_maps::MapPlan;
use warpbpf_object::MapDef;
use warpbpf_verify::{Platform, verify};

use crate::test::Test;

/// Slot of the table with the address of the threads' memory. Maps follow.
pub const MEMORY_SLOT: u32 = slot::FIRST_MAP;
/// Slot of the table with the address of what the interpreter on the device runs.
pub const CODE_SLOT: u32 = MEMORY_SLOT + 1;
/// First slot of the maps.
pub const MAP_SLOTS: u32 = CODE_SLOT + 1;

/// How a device comes to run a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As code of its own.
    Compiled,
    /// By the interpreter on the device.
    Interpreted,
}

/// A program that passed the verifier and the code generator.
#[derive(Debug, Clone)]
pub struct Built {
    /// Its code.
    pub fragment: Fragment,
    /// What it was compiled for.
    pub env: Env,
    /// How its maps lie in device memory.
    pub maps: Vec<MapPlan>,
    /// Bytes of memory per thread.
    pub memory: u32,
    /// Bytes from one thread's memory to the next one's.
    pub stride: u32,
    /// How often `may_goto` falls through.
    pub rounds: u32,
    /// What the interpreter on the device runs, if it does.
    pub form: Option<Form>,
}

impl Built {
    /// Where in a thread's memory `r0` is written.
    pub fn result_at(&self) -> u32 {
        self.memory.next_multiple_of(8)
    }
}

/// How much a program may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// [`Platform::budget`].
    pub budget: u64,
    /// [`Platform::effort`].
    pub effort: u64,
}

impl Effort {
    /// For the cases of a suite, which are known to end.
    pub const SUITE: Effort = Effort {
        budget: 1 << 24,
        effort: 1 << 24,
    };
    /// For generated programs: of those that take long, others take their place.
    pub const FUZZ: Effort = Effort {
        budget: 1 << 13,
        effort: 20_000,
    };
}

/// Why a program does not come to run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The verifier's word.
    #[error("refused: {reason}")]
    Refused {
        /// Name of the rule.
        rule: &'static str,
        /// The message.
        reason: String,
    },
    /// The verifier accepts what the code generator cannot do: a gap of ours.
    #[error("no code: {reason}")]
    Codegen {
        /// The message.
        reason: String,
    },
    /// A panic: a fault of ours.
    #[error("{part} panicked: {reason}")]
    Panic {
        /// Verifier or code generator.
        part: &'static str,
        /// What it said.
        reason: String,
    },
    /// The interpreter on the device does not run it.
    #[error("{0}")]
    NotInterpreted(NotInterpreted),
    /// A map that cannot be made.
    #[error("map: {reason}")]
    Map {
        /// The message.
        reason: String,
    },
}

/// Verifies and compiles.
///
/// # Errors
/// [`BuildError`] says who refused it and why.
pub fn build(test: &Test, target: Target, effort: Effort) -> Result<Built, BuildError> {
    build_for(test, target, effort, Way::Compiled)
}

/// Verifies, and compiles or translates.
///
/// # Errors
/// As [`build`].
pub fn build_for(
    test: &Test,
    target: Target,
    effort: Effort,
    way: Way,
) -> Result<Built, BuildError> {
    let definitions: Vec<MapDef> = test
        .maps
        .iter()
        .enumerate()
        .map(|(index, map)| map.definition(index))
        .collect();
    let maps = definitions
        .iter()
        .map(|def| warpbpf_maps::plan(def, 1, &[]))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| BuildError::Map {
            reason: error.to_string(),
        })?;
    let mut platform = Platform::new(Site::Entry)
        .with_memory(test.memory)
        .with_budget(effort.budget);
    platform.effort = effort.effort;
    let verified = caught("the verifier", || {
        verify(&test.code, &definitions, &platform)
    })?;
    let verified = verified.map_err(|rejection| BuildError::Refused {
        rule: rejection.rule.name(),
        reason: rejection.to_string(),
    })?;
    // The result stands behind the memory.
    let stride = (test.memory.next_multiple_of(8) + 8).next_multiple_of(16);
    let bindings = (0..).zip(&maps).map(|(index, plan)| MapBinding {
        slot: MAP_SLOTS + index,
        session_index: index,
        layout: plan.layout,
        inner: None,
    });
    let env = Env {
        target,
        site: Site::Entry,
        scope: Scope::Thread,
        kernel_id: 0,
        maps: bindings.collect(),
        printk: None,
        slots: SlotSpace::Const,
        input: Input::Memory {
            slot: MEMORY_SLOT,
            size: test.memory,
            stride,
        },
        keep_sums: false,
        meets: true,
        args: Vec::new(),
    };
    let codegen = |reason: String| BuildError::Codegen { reason };
    let (fragment, form) = match way {
        Way::Compiled => {
            let fragment = caught("the code generator", || compile(&verified, &env))?;
            (fragment.map_err(|error| codegen(error.to_string()))?, None)
        }
        Way::Interpreted => {
            let layouts: Vec<_> = maps.iter().map(|plan| plan.layout).collect();
            let interpreter = Interpreter::new(&layouts, target);
            let form = caught("the translator", || {
                translate(&verified, &env.maps, &interpreter)
            })?;
            let form = form.map_err(BuildError::NotInterpreted)?;
            let fragment = interpreter.fragment(&env, CODE_SLOT);
            let fragment = fragment.ok_or_else(|| codegen("it has no memory".to_owned()))?;
            (fragment, Some(form))
        }
    };
    Ok(Built {
        fragment,
        env,
        maps,
        memory: test.memory,
        stride,
        rounds: verified.facts().may_goto_rounds,
        form,
    })
}

fn caught<T>(part: &'static str, work: impl FnOnce() -> T) -> Result<T, BuildError> {
    // What a panic leaves half done is dropped with it: all arguments are borrowed immutably.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| BuildError::Panic {
        part,
        reason: panic_text(&*panic),
    })
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}
