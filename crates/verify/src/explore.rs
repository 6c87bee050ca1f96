//! Follows every path, depth first. Where paths meet, a state that an earlier, finished one covers
//! is not followed again; loops are unrolled until they end or the budget does. So the bound on
//! executed instructions is exact over the paths that exist in the abstract, and a loop is accepted
//! exactly if it provably ends within the budget.
//!
//! Where something else counts the rounds of a loop (a helper that calls back, an iterator,
//! `may_goto`), its states may repeat: they are widened until they do, and [`crate::bound`]
//! multiplies.

use std::ops::Range;

use warpbpf_ebpf::{Insn, Pc};

use crate::broken::Broken;
use crate::domain::state::State;
use crate::env::Env;
use crate::event::Point;
use crate::explorer::{Explorer, Log, Method, Onward, Path, is_about_cost};
use crate::facts::Facts;
use crate::log::Logger;
use crate::rule::Rule;

/// Follows all paths of the code in `env`, whose functions are `functions`.
///
/// First exactly, for a while. Where that does not come to an end, joining states that meet in the
/// same round of their loops: that proves less. Then exactly again, for the rest of the effort.
///
/// Where `may_goto` counts rounds, exactly may be too many of them while fewer fit. Then only the
/// joining pass comes to what stands behind the loop, so what it says counts, though it may miss
/// how two values hang together. Where the budget is used up before its states repeat, a last pass
/// lets them repeat sooner; only its yes counts.
///
/// # Errors
/// The first rule that a path breaks, of the pass that came furthest.
pub fn explore(
    env: &Env<'_>,
    functions: &[Range<u32>],
    log: Option<Logger<'_>>,
) -> Result<Facts, Box<Broken>> {
    let log = &mut Log { pass: 0, to: log };
    let effort = env.platform.effort;
    let (short, long) = (effort / 16, effort / 2);
    let first = explore_by(env, functions, Method::Exact, short, log);
    let Err(broken) = &first else {
        return first;
    };
    let may_goto = |insn: &Insn| matches!(insn, Insn::MayGoto { .. });
    let counted = env.code.insns().iter().any(may_goto);
    match broken.rule {
        Rule::TooComplex { .. } => {
            let second = match explore_by(env, functions, Method::Joining, long - short, log) {
                Err(second) => second,
                proved => return proved,
            };
            match explore_by(env, functions, Method::Exact, effort - long, log) {
                // It stopped in a loop that is counted, the second in one behind it.
                Err(third)
                    if counted
                        && matches!(third.rule, Rule::TooComplex { .. })
                        && second.rule.is_about_a_loop() =>
                {
                    Err(second)
                }
                third => third,
            }
        }
        // Fewer rounds may fit.
        Rule::Budget { .. } | Rule::WalkBudget { .. } | Rule::LoopBudget { .. } if counted => {
            match explore_by(env, functions, Method::Joining, long - short, log) {
                // The rounds until states repeat may have been what did not fit.
                Err(second) if second.rule.is_about_a_loop() => {
                    let third = explore_by(env, functions, Method::Leaping, effort - long, log);
                    third.map_err(|_| second)
                }
                // Else it is about something that the first did not come to.
                Err(second) if is_about_cost(&second.rule) => first,
                second => second,
            }
        }
        _ => first,
    }
}

fn explore_by(
    env: &Env<'_>,
    functions: &[Range<u32>],
    method: Method,
    effort: u64,
    log: &mut Log<'_>,
) -> Result<Facts, Box<Broken>> {
    log.pass += 1;
    let (mut explorer, root) = Explorer::new(env, functions, method, effort, log);
    let start = Path {
        state: State::entry(env.platform.memory),
        pc: Pc(0),
        cost: 0,
        node: root,
    };
    let outcome = match explorer.gather.instance(&functions[0], 0, None) {
        Ok(_) => explorer.run(start),
        Err(rule) => Err(Box::new((rule, start))),
    };
    if let Err(broken) = outcome {
        let (rule, path) = *broken;
        return Err(explorer.broken(rule, &path));
    }
    explorer
        .bound(root)
        .and_then(|(cost, rounds)| explorer.gather.finish(env, functions, cost, rounds))
        .map_err(|(rule, pc)| {
            Box::new(Broken {
                rule,
                pc,
                path: Vec::new(),
                values: Vec::new(),
            })
        })
}

/// What becomes of a path after one instruction.
pub(crate) enum Next {
    /// It goes on.
    Goes(Path),
    /// It ends.
    Ends(Path),
    /// It was covered, which has ended it.
    Covered,
}

impl Explorer<'_, '_, '_> {
    fn run(&mut self, start: Path) -> Result<(), Box<(Rule, Path)>> {
        self.wait(start);
        while let Some(mut path) = self.pending.pop() {
            self.pending_values -= path.state.size();
            loop {
                match self.step(path)? {
                    Next::Goes(next) => path = next,
                    Next::Ends(last) => {
                        self.paths.end(last.node, last.cost);
                        break;
                    }
                    Next::Covered => break,
                }
            }
        }
        Ok(())
    }

    /// One instruction, or the end of the path where an earlier one covers it.
    fn step(&mut self, mut path: Path) -> Result<Next, Box<(Rule, Path)>> {
        self.steps += 1;
        if self.is_exhausted() {
            return Err(Box::new((
                Rule::TooComplex {
                    limit: self.env.platform.effort,
                },
                path,
            )));
        }
        let instance = path.state.top().instance;
        if !self.gather.range(instance).contains(&path.pc.0) {
            // Point at the last instruction, which is there: control came from it.
            path.pc = Pc(path.pc.0 - 1);
            return Err(Box::new((Rule::FallsOff, path)));
        }
        self.tell(&path);
        if self.is_join(instance, path.pc) {
            let point = Point {
                instance,
                pc: path.pc,
                inside: false,
                head: self.is_head(instance, path.pc),
            };
            self.forget(&mut path, instance, point.pc);
            match self.meet(&mut path, point) {
                Ok(false) => {}
                Ok(true) => return Ok(Next::Covered),
                Err(rule) => return Err(Box::new((rule, path))),
            }
        }
        match self.execute(&mut path, instance) {
            Ok(Onward::Goes) => Ok(Next::Goes(path)),
            Ok(Onward::Ends) => Ok(Next::Ends(path)),
            Ok(Onward::Covered) => Ok(Next::Covered),
            Err(rule) => Err(Box::new((rule, path))),
        }
    }
}
