//! Proves a program safe: per lane first, and in a shape that takes the warp half later.
//!
//! What is proved, for every input and every interleaving with other threads:
//! - every register and stack byte that is read was written; `r10` is not;
//! - every access is inside its region, aligned to its size, and of an allowed kind: context fields are read whole,
//!   `.rodata` is not written, a value or record that may be null is not touched before it was compared with null;
//! - pointers stay in registers and stack; they are not compared, returned, or stored where others could read them;
//! - helpers exist, get what the table asks for, and change the application only if that was allowed;
//! - a reserved record is submitted or discarded exactly once on every path;
//! - the program ends within its budget of instructions, 8 call frames and 512 bytes of stack.
//!
//! How: every path is followed (`explore`), with sets of values in place of values (`domain`); a path is dropped where
//! an earlier one covers it, and states are joined where too many meet. What must hold (`assert`), whether it holds (`check`, `call`) and what an instruction does (`transfer`) are three things in three
//! files. Not proved yet: anything about the lanes of a warp together (uniformity, convergence), so no helper that
//! needs it is offered.
//!
//! [`verify`] is the only way to a [`Verified`], and the code generator takes nothing else.
#![forbid(unsafe_code)]

mod assert;
mod call;
mod check;
mod domain;
mod env;
mod explore;
pub mod facts;
mod gather;
mod liveness;
mod path;
pub mod platform;
pub mod report;
pub mod rule;
pub mod subject;
mod transfer;
pub mod warn;

pub use facts::*;
pub use platform::Platform;
pub use report::{Rejection, Step};
pub use rule::Rule;
pub use subject::{SourceLine, Subject};
pub use warn::Warning;

use warpbpf_ebpf::{Code, Insn, Pc};
use warpbpf_object::{MapDef, Program};

use crate::env::Env;
use crate::explore::Broken;

/// A program that was proved safe. Only [`verify`] makes one, and the code generator takes nothing else.
#[derive(Debug, Clone)]
pub struct Verified<P = Program> {
    program: P,
    facts: Facts,
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
    match prove(&program, maps, platform) {
        Ok((facts, warnings)) => Ok(Verified {
            program,
            facts,
            warnings,
        }),
        Err(broken) => Err(Box::new(Rejection::new(&program, *broken))),
    }
}

fn prove<S: Subject>(
    program: &S,
    maps: &[MapDef],
    platform: &Platform,
) -> Result<(Facts, Vec<Warning>), Box<Broken>> {
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
    let facts = explore::explore(&env, &functions)?;
    let warnings = warn::warnings(&env, program, &facts);
    Ok((facts, warnings))
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
