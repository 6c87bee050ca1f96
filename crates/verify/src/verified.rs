//! The proof as a whole, and the type that says that it was made.

use warpbpf_ebpf::{Code, Insn, Pc};
use warpbpf_object::{MapDef, Program};

use crate::broken::Broken;
use crate::env::Env;
use crate::facts::Facts;
use crate::log::{LogStep, Logger};
use crate::platform::Platform;
use crate::report::Rejection;
use crate::rule::Rule;
use crate::subject::Subject;
use crate::warn::Warning;
use crate::warp::WarpFacts;
use crate::{explore, graph, once, subject, wait, warn, warp};

/// A program that was proved safe. Only [`verify`] makes one, and the code generator takes nothing
/// else.
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
    /// There is more of that.
    pub(crate) fn also_warn(&mut self, more: impl IntoIterator<Item = Warning>) {
        self.warnings.extend(more);
    }
}

/// Proves a program safe on a platform. `maps` are those that the code refers to by index:
/// [`warpbpf_object::Object::maps`].
///
/// The program may be a [`Program`], bare [`Code`], or a reference to one.
///
/// # Errors
/// The first rule that the program breaks, with the path on which it does. No program makes this
/// panic.
pub fn verify<S: Subject>(
    program: S,
    maps: &[MapDef],
    platform: &Platform,
) -> Result<Verified<S>, Box<Rejection>> {
    judge(program, maps, platform, None)
}

/// As [`verify`], and tells `log` the state before each instruction that the proof looks at, on
/// every path that it follows: for `verify --log`.
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
    log: Option<Logger<'_>>,
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
    log: Option<Logger<'_>>,
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
