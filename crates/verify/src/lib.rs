//! Proves a program safe: each lane by itself first, then the lanes of a warp together.
//!
//! What is proved, for every input and every interleaving with other threads:
//! - every register and stack byte that is read was written; `r10` is not;
//! - every access is inside its region, aligned to its size, and of an allowed kind: context fields are read whole,
//!   `.rodata` is not written, a value or record that may be null is not touched before it was compared with null;
//! - pointers stay in registers and stack; they are not compared, returned, or stored where others could read them;
//! - helpers exist, get what the table asks for, and change the application only if that was allowed;
//! - a reserved record is submitted or discarded exactly once on every path;
//! - an iterator is made once, used with its own functions only, and destroyed on every path;
//! - the program ends within its budget of instructions, 8 call frames and 512 bytes of stack. Loops end by their own
//!   counters, or by what counts their rounds: an iterator, a helper that calls back, `may_goto`. Others can be given one of
//!   these ([`bounded`]).
//!
//! How: every path is followed (`explore`), with sets of values in place of values (`domain`); a path is dropped where
//! an earlier one covers it, and states are joined where too many meet.
//! What must hold (`assert`), whether it holds (`check`, `call`) and what an instruction does (`transfer`) are three
//! things in three files.
//!
//! The warp half ([`warp`]) then says for every instruction whether all lanes that arrived together reach it and see
//! the same value or go the same way, refuses helpers that need more of a warp than is there, and names loops that wait
//! for another thread (`wait`). Varying branches are allowed: no generated code needs lanes to be together. Updates of
//! shared values that can be lost are no fault but a [`Warning`].
//!
//! [`verify`] (or [`verify_logged`], which tells every step) is the only way to a [`Verified`], and the code generator takes nothing else.
#![forbid(unsafe_code)]

mod apart;
mod assert;
mod atomic;
mod bound;
pub mod bounded;
pub mod budget;
mod call;
mod check;
mod domain;
mod effect;
mod env;
mod execute;
mod explore;
pub mod facts;
mod flows;
mod gather;
mod graph;
mod liveness;
pub mod log;
mod loops;
mod once;
mod padded;
mod path;
pub mod platform;
pub mod report;
pub mod rule;
mod shared;
pub mod subject;
mod transfer;
mod wait;
pub mod warn;
pub mod warp;

#[cfg(test)]
mod fuzz;

pub use apart::prove_apart;
pub use bounded::{Bounded, prove_bounded};
pub use budget::{HelperUse, helpers_used};
pub use facts::*;
pub use log::LogStep;
pub use padded::prove_padded;
pub use platform::{ContextField, Platform};
pub use report::{Rejection, Step};
pub use rule::Rule;
pub use subject::{SourceLine, Subject};
pub use wait::note_locks;
pub use warn::{Related, Warning};
pub use warp::{WarpFact, WarpFacts};

use warpbpf_ebpf::{Code, Insn, Pc};
use warpbpf_object::{MapDef, Program};

use crate::env::Env;
use crate::explore::Broken;

/// A program that was proved safe. Only [`verify`] makes one, and the code generator takes nothing else.
#[derive(Debug, Clone)]
pub struct Verified<P = Program> {
    program: P,
    facts: Facts,
    warp: WarpFacts,
    warnings: Vec<Warning>,
}

impl<P> Verified<P> {
    /// The program.
    pub fn program(&self) -> &P {
        &self.program
    }
    /// What the proof learned.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
    /// What is the same in all lanes of a warp that arrived together.
    pub fn warp(&self) -> &WarpFacts {
        &self.warp
    }
    /// What is safe but probably wrong.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// Proves a program safe on a platform. `maps` are those that the code refers to by index: [`warpbpf_object::Object::maps`].
///
/// The program may be a [`Program`], bare [`Code`], or a reference to one.
///
/// # Errors
/// The first rule that the program breaks, with the path on which it does. No program makes this panic.
pub fn verify<S: Subject>(
    program: S,
    maps: &[MapDef],
    platform: &Platform,
) -> Result<Verified<S>, Box<Rejection>> {
    judge(program, maps, platform, None)
}

/// As [`verify`], and tells `log` the state before each instruction that the proof looks at, on every path that it
/// follows: for `verify --log`.
///
/// # Errors
/// As [`verify`].
pub fn verify_logged<S: Subject>(
    program: S,
    maps: &[MapDef],
    platform: &Platform,
    log: &mut dyn FnMut(&LogStep),
) -> Result<Verified<S>, Box<Rejection>> {
    judge(program, maps, platform, Some(log))
}

fn judge<S: Subject>(
    program: S,
    maps: &[MapDef],
    platform: &Platform,
    log: Option<log::Logger<'_>>,
) -> Result<Verified<S>, Box<Rejection>> {
    match prove(&program, maps, platform, log) {
        Ok((facts, warp, warnings)) => Ok(Verified {
            program,
            facts,
            warp,
            warnings,
        }),
        Err(broken) => Err(Box::new(Rejection::new(&program, *broken))),
    }
}

fn prove<S: Subject>(
    program: &S,
    maps: &[MapDef],
    platform: &Platform,
    log: Option<log::Logger<'_>>,
) -> Result<(Facts, WarpFacts, Vec<Warning>), Box<Broken>> {
    let code = program.code();
    if code.insns().is_empty() {
        return Err(broken(Rule::FallsOff, Pc(0)));
    }
    let functions = subject::functions(code);
    for function in &functions {
        for pc in function.clone().map(Pc) {
            well_placed(code, function, pc)?;
        }
    }
    let env = Env {
        code,
        maps,
        platform,
    };
    let facts = explore::explore(&env, &functions, log)
        .map_err(|broken| wait::named(&env, &functions, broken))?;
    let graph = graph::Graph::new(&env, &facts);
    once::check(&graph)?;
    let warp = warp::analyse(&graph)?;
    let warnings = warn::warnings(&graph, program);
    Ok((facts, warp, warnings))
}

/// Jumps stay inside their function, dead ones too: analyses that look at all code rely on it.
fn well_placed(code: &Code, function: &std::ops::Range<u32>, pc: Pc) -> Result<(), Box<Broken>> {
    match code.at(pc) {
        Insn::Jump { target, .. } | Insn::Goto { target, .. } | Insn::MayGoto { target }
            if !function.contains(&target.0) =>
        {
            let slot = if target.index() < code.insns().len() {
                code.slot(*target)
            } else {
                target.0
            };
            Err(broken(Rule::JumpsOut { target: slot }, pc))
        }
        _ => Ok(()),
    }
}

fn broken(rule: Rule, pc: Pc) -> Box<Broken> {
    Box::new(Broken {
        rule,
        pc,
        path: Vec::new(),
        values: Vec::new(),
    })
}
