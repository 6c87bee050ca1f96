//! Follows every path, depth first. Where paths meet, a state that an earlier, finished one covers is not followed
//! again; loops are unrolled until they end or the budget does. So the bound on executed instructions is exact over
//! the paths that exist in the abstract, and a loop is accepted exactly if it provably ends within the budget.

use std::collections::HashMap;
use std::ops::Range;

use warpbpf_abi::helpers::Effect;
use warpbpf_ebpf::{Callee, Insn, Pc, Reg};

use crate::assert::{assertions, registers};
use crate::call::{apply_call, check_call, clobber};
use crate::check::check;
use crate::domain::pointer::{Target, Value, Why};
use crate::domain::scalar::Scalar;
use crate::domain::state::{Frame, State};
use crate::domain::widen::{Step, widen};
use crate::env::{Env, place_of};
use crate::facts::Facts;
use crate::gather::Gather;
use crate::liveness::{FunctionFlow, Needed, analyse};
use crate::path::{Event, Node, Paths};
use crate::rule::Rule;
use crate::transfer::{branch, compared, transfer};

/// Call frames, the entry function's included, as in Linux.
const MAX_FRAMES: usize = 8;
/// States that are kept to compare others with, in all: beyond it nothing is lost but time.
const MAX_VISITS: usize = 1 << 14;
/// How many of the states kept at one point are looked at, the newest first.
const MAX_COMPARED: usize = 64;
/// With [`Method::Joining`], this many states of a round are followed before the next ones are joined,
const JOINED_AFTER: usize = 3;
/// and this many before joining goes in leaps.
const LEAPS_AFTER: usize = 16;

/// A rule that was broken, and where.
#[derive(Debug)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The instruction.
    pub pc: Pc,
    /// The path there, last event first.
    pub path: Vec<Event>,
    /// Registers that the instruction names, with what they hold.
    pub values: Vec<(Reg, String)>,
}

/// Follows all paths of the code in `env`, whose functions are `functions`.
///
/// First exactly, for a while. Where that does not come to an end, joining states that meet in the same round of
/// their loops: that proves less, so only its yes counts. Then exactly again, for the rest of the effort.
///
/// # Errors
/// The first rule that a path breaks.
pub fn explore(env: &Env<'_>, functions: &[Range<u32>]) -> Result<Facts, Box<Broken>> {
    let effort = env.platform.effort;
    let (short, long) = (effort / 16, effort / 2);
    let first = explore_by(env, functions, Method::Exact, short);
    if !gave_up(&first) {
        return first;
    }
    match explore_by(env, functions, Method::Joining, long - short) {
        Ok(facts) => Ok(facts),
        Err(_) => explore_by(env, functions, Method::Exact, effort - long),
    }
}

fn gave_up(outcome: &Result<Facts, Box<Broken>>) -> bool {
    matches!(outcome, Err(broken) if matches!(broken.rule, Rule::TooComplex { .. }))
}

/// What happens where very many states meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// Each is followed.
    Exact,
    /// They are joined.
    Joining,
}

fn explore_by(
    env: &Env<'_>,
    functions: &[Range<u32>],
    method: Method,
    effort: u64,
) -> Result<Facts, Box<Broken>> {
    let flows = functions
        .iter()
        .enumerate()
        .map(|(i, range)| analyse(env.code, range, i == 0, env.platform))
        .collect();
    let (paths, root) = Paths::new();
    let mut explorer = Explorer {
        env,
        functions,
        flows,
        method,
        effort,
        gather: Gather::default(),
        paths,
        visits: HashMap::new(),
        kept: 0,
        pending: Vec::new(),
        steps: 0,
    };
    let start = Path {
        state: State::entry(),
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
    let cost = explorer.paths.follows(root).unwrap_or(0);
    explorer
        .gather
        .finish(env.code, functions, cost)
        .map_err(|(rule, pc)| {
            Box::new(Broken {
                rule,
                pc,
                path: Vec::new(),
                values: Vec::new(),
            })
        })
}

/// A path being followed.
#[derive(Debug)]
struct Path {
    state: State,
    pc: Pc,
    /// Instructions executed.
    cost: u64,
    node: Node,
}

/// A state from which everything was, or is being, followed.
#[derive(Debug)]
struct Visit {
    state: State,
    node: Node,
    /// How often its path had been there before.
    round: usize,
}

struct Explorer<'e, 'a> {
    env: &'e Env<'a>,
    functions: &'e [Range<u32>],
    flows: Vec<FunctionFlow>,
    method: Method,
    /// Steps that may be taken.
    effort: u64,
    gather: Gather,
    paths: Paths,
    visits: HashMap<(usize, Pc), Vec<Visit>>,
    kept: usize,
    pending: Vec<Path>,
    steps: u64,
}

/// What becomes of a path after one instruction.
enum Next {
    Goes(Path),
    Ends(Path),
}

impl Explorer<'_, '_> {
    fn run(&mut self, start: Path) -> Result<(), Box<(Rule, Path)>> {
        self.pending.push(start);
        while let Some(mut path) = self.pending.pop() {
            loop {
                match self.step(path)? {
                    Next::Goes(next) => path = next,
                    Next::Ends(last) => {
                        self.paths.end(last.node, last.cost);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// One instruction, or the end of the path where an earlier one covers it.
    fn step(&mut self, mut path: Path) -> Result<Next, Box<(Rule, Path)>> {
        self.steps += 1;
        if self.steps > self.effort {
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
        match self.meet(&mut path, instance) {
            Ok(false) => {}
            Ok(true) => return Ok(Next::Ends(path)),
            Err(rule) => return Err(Box::new((rule, path))),
        }
        match self.execute(&mut path, instance) {
            Ok(true) => Ok(Next::Goes(path)),
            Ok(false) => Ok(Next::Ends(path)),
            Err(rule) => Err(Box::new((rule, path))),
        }
    }

    fn needed(&self, instance: usize, pc: Pc) -> Needed {
        let range = self.gather.range(instance);
        let function = self.functions.partition_point(|f| f.start < range.start);
        self.flows[function].needed[(pc.0 - range.start) as usize]
    }

    fn is_join(&self, instance: usize, pc: Pc) -> bool {
        let range = self.gather.range(instance);
        let function = self.functions.partition_point(|f| f.start < range.start);
        self.flows[function].joins[(pc.0 - range.start) as usize]
    }

    /// Where paths meet: true if an earlier one covers this one, which then is as long as that one at most.
    fn meet(&mut self, path: &mut Path, instance: usize) -> Result<bool, Rule> {
        if !self.is_join(instance, path.pc) {
            return Ok(false);
        }
        forget_unneeded(path.state.top_mut(), self.needed(instance, path.pc));
        path.state.drop_lone_ids();
        if self.is_covered(path, instance)? {
            return Ok(true);
        }
        let round = self.paths.rounds(path.node, instance, path.pc);
        if self.join(path, instance, round) && self.is_covered(path, instance)? {
            return Ok(true);
        }
        path.node = self
            .paths
            .extend(path.node, Event::Meet(instance, path.pc), path.cost);
        if self.kept < MAX_VISITS {
            self.kept += 1;
            let visit = Visit {
                state: path.state.clone(),
                node: path.node,
                round,
            };
            self.visits
                .entry((instance, path.pc))
                .or_default()
                .push(visit);
        }
        Ok(false)
    }

    /// An earlier path, followed to its end, covers this one; its length is added.
    fn is_covered(&self, path: &mut Path, instance: usize) -> Result<bool, Rule> {
        let budget = self.env.platform.budget;
        let visits = self
            .visits
            .get(&(instance, path.pc))
            .map_or(&[][..], Vec::as_slice);
        for visit in visits.iter().rev().take(MAX_COMPARED) {
            if !visit.state.covers(&path.state) {
                continue;
            }
            match self.paths.follows(visit.node) {
                Some(follows) => {
                    path.cost += follows;
                    if path.cost > budget {
                        return Err(Rule::Budget {
                            cost: path.cost,
                            budget,
                        });
                    }
                    return Ok(true);
                }
                // The earlier one is this path's own past.
                None if path.state.covers(&visit.state) => return Err(Rule::MayNotEnd),
                None => {}
            }
        }
        Ok(false)
    }

    /// Joins the state with the last one that met here in the same round, if there were many; true if it did. Rounds
    /// are kept apart because they tell loop counters apart, without which no loop would end.
    fn join(&self, path: &mut Path, instance: usize, round: usize) -> bool {
        if self.method == Method::Exact {
            return false;
        }
        let visits = self
            .visits
            .get(&(instance, path.pc))
            .map_or(&[][..], Vec::as_slice);
        let mut same = visits.iter().rev().filter(|visit| visit.round == round);
        let Some(last) = same.next() else {
            return false;
        };
        let step = match same.count() {
            0..JOINED_AFTER => return false,
            JOINED_AFTER..LEAPS_AFTER => Step::Hull,
            _ => Step::Leap,
        };
        widen(&mut path.state, &last.state, step);
        path.state.drop_lone_ids();
        true
    }

    fn spend(&self, path: &mut Path, cost: u64) -> Result<(), Rule> {
        path.cost += cost;
        let budget = self.env.platform.budget;
        if path.cost <= budget {
            return Ok(());
        }
        match self.paths.most_met(path.node) {
            Some((_, rounds)) if rounds > 1 => Err(Rule::LoopBudget { rounds, budget }),
            _ => Err(Rule::Budget {
                cost: path.cost,
                budget,
            }),
        }
    }

    /// Executes the instruction at `path.pc`; false if the path ends there.
    fn execute(&mut self, path: &mut Path, instance: usize) -> Result<bool, Rule> {
        let (env, pc) = (self.env, path.pc);
        let insn = *env.code.at(pc);
        self.gather.reached(instance, pc);
        let mut accessed = None;
        for assertion in assertions(&insn) {
            if let Some(pointer) = check(env, &path.state, &assertion)? {
                accessed = Some(pointer);
            }
        }
        if let Some(pointer) = &accessed {
            if let Some(place) = place_of(pointer) {
                self.gather.access(env, instance, pc, place)?;
            }
            self.gather.touched(pointer, |frame| {
                path.state.frames.get(frame).map(|f| f.instance)
            });
        }
        match insn {
            Insn::Call {
                callee: Callee::Helper(id),
            } => return self.call_helper(path, instance, id),
            Insn::Call {
                callee: Callee::Local(start),
            } => return self.call_local(path, instance, start),
            Insn::Exit => {
                self.spend(path, 1)?;
                return self.exit(path);
            }
            Insn::Goto { target, .. } => {
                self.spend(path, 1)?;
                path.pc = target;
                return Ok(true);
            }
            Insn::Jump {
                wide,
                op,
                dst,
                src,
                target,
            } => {
                self.spend(path, 1)?;
                let sees = compared(&path.state, dst, src);
                let taken = branch(&path.state, wide, op, dst, src, true);
                let falls = branch(&path.state, wide, op, dst, src, false);
                self.gather
                    .branch(instance, pc, taken.is_some(), falls.is_some(), sees)?;
                return Ok(self.follow(path, taken, falls, target));
            }
            Insn::Alu { .. }
            | Insn::MovSx { .. }
            | Insn::Neg { .. }
            | Insn::End { .. }
            | Insn::LoadImm64 { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. } => {}
            // Their assertions never hold.
            Insn::MayGoto { .. }
            | Insn::Call { .. }
            | Insn::CallReg { .. }
            | Insn::LegacyPacket { .. } => {}
        }
        self.spend(path, 1)?;
        transfer(env, &mut path.state, &insn, accessed.as_ref());
        path.pc = pc.next();
        Ok(true)
    }

    /// Goes on with the sides of a branch that can be taken; false if none can, so that the path is impossible.
    fn follow(
        &mut self,
        path: &mut Path,
        taken: Option<State>,
        falls: Option<State>,
        target: Pc,
    ) -> bool {
        let next = path.pc.next();
        match (taken, falls) {
            (Some(taken), Some(falls)) => {
                let (jump, fall) = self.paths.fork(path.node, path.pc, path.cost);
                self.pending.push(Path {
                    state: taken,
                    pc: target,
                    cost: path.cost,
                    node: jump,
                });
                (path.state, path.pc, path.node) = (falls, next, fall);
            }
            (Some(taken), None) => (path.state, path.pc) = (taken, target),
            (None, Some(falls)) => (path.state, path.pc) = (falls, next),
            (None, None) => return false,
        }
        true
    }

    fn call_helper(&mut self, path: &mut Path, instance: usize, id: u32) -> Result<bool, Rule> {
        let (helper, fact, touched) = check_call(self.env, &path.state, id)?;
        self.gather.call(self.env, instance, path.pc, &fact)?;
        for pointer in &touched {
            self.gather.touched(pointer, |frame| {
                path.state.frames.get(frame).map(|f| f.instance)
            });
        }
        if helper.effect == Effect::Modify {
            self.gather.modifies();
        }
        self.spend(path, u64::from(helper.cost.max(1)))?;
        if !apply_call(&mut path.state, path.pc, helper, &fact) {
            self.nothing_held(path, "before the thread ends")?;
            return Ok(false);
        }
        path.pc = path.pc.next();
        Ok(true)
    }

    fn call_local(&mut self, path: &mut Path, instance: usize, start: Pc) -> Result<bool, Rule> {
        self.spend(path, 1)?;
        let pc = path.pc;
        let Some(range) = self.functions.iter().find(|f| f.start == start.0) else {
            return Err(Rule::CallsNowhere { target: start.0 });
        };
        if path
            .state
            .frames
            .iter()
            .any(|f| self.gather.range(f.instance).start == start.0)
        {
            return Err(Rule::Recursion {
                function: format!("the function at instruction {}", self.env.code.slot(start)),
            });
        }
        let depth = path.state.frames.len();
        if depth >= MAX_FRAMES {
            return Err(Rule::TooManyFrames { depth: depth + 1 });
        }
        let callee = match self.gather.callee(instance, pc) {
            Some(callee) => callee,
            None => self
                .gather
                .instance(range, depth as u32, Some((instance, pc)))?,
        };
        let mut frame = Frame::new(callee, depth as u32, pc.next());
        for reg in Reg::all().skip(1).take(5) {
            frame.regs[reg.index()] = *path.state.reg(reg);
        }
        clobber(&mut path.state, pc);
        if self.gather.range(instance).contains(&pc.next().0) {
            let needed = self.needed(instance, pc.next());
            forget_unneeded(path.state.top_mut(), needed);
        }
        path.state.frames.push(frame);
        path.node = self.paths.extend(path.node, Event::Call(pc), path.cost);
        path.pc = start;
        Ok(true)
    }

    fn exit(&mut self, path: &mut Path) -> Result<bool, Rule> {
        let result = *path.state.reg(Reg::R0);
        if path.state.frames.len() == 1 {
            match result {
                Value::Number { .. } => {}
                Value::Pointer(p) => {
                    return Err(Rule::PointerReturned {
                        pointer: self.env.pointer(&p),
                    });
                }
                Value::Nothing(why) => {
                    return Err(Rule::Uninitialised {
                        reg: Reg::R0.to_string(),
                        why: self.env.why(why),
                    });
                }
            }
            self.nothing_held(path, "on this path")?;
            return Ok(false);
        }
        if matches!(result, Value::Pointer(p) if p.target == Target::Stack(path.state.depth())) {
            return Err(Rule::StackReturned);
        }
        if let Some(frame) = path.state.pop() {
            path.state.set(Reg::R0, result);
            path.pc = frame.return_to;
        }
        Ok(true)
    }

    fn nothing_held(&self, path: &Path, how: &'static str) -> Result<(), Rule> {
        match path.state.held.first() {
            None => Ok(()),
            Some(held) => Err(Rule::RecordHeld {
                slot: self.env.code.slot(held.reserved_at),
                map: self.env.map_name(held.map).to_owned(),
                how,
            }),
        }
    }

    fn broken(&self, rule: Rule, path: &Path) -> Box<Broken> {
        let mut pc = path.pc;
        // A loop is better named by its head than by the instruction that happened to be one too many.
        if let (Rule::LoopBudget { .. }, Some((head, _))) = (&rule, self.paths.most_met(path.node))
        {
            pc = head;
        }
        // Where it is about cost, no value is at fault.
        let about_cost = matches!(
            rule,
            Rule::LoopBudget { .. }
                | Rule::Budget { .. }
                | Rule::MayNotEnd
                | Rule::TooComplex { .. }
                | Rule::TooLarge { .. }
        );
        let insn = self.env.code.insns().get(path.pc.index());
        let registers = insn
            .filter(|_| !about_cost)
            .map(registers)
            .unwrap_or_default();
        let holds = |reg: &Reg| !matches!(path.state.reg(*reg), Value::Nothing(_));
        let values = registers
            .into_iter()
            .filter(holds)
            .map(|reg| (reg, self.env.value(path.state.reg(reg))))
            .collect();
        Box::new(Broken {
            rule,
            pc,
            path: self.paths.back(path.node).collect(),
            values,
        })
    }
}

/// Drops what nobody reads and forgets numbers that steer nothing: see [`crate::liveness`].
fn forget_unneeded(frame: &mut Frame, needed: Needed) {
    for reg in Reg::all() {
        if reg == Reg::FP {
            continue;
        }
        let value = &mut frame.regs[reg.index()];
        match value {
            Value::Nothing(_) => {}
            _ if !needed.is_live(reg) => *value = Value::Nothing(Why::Unread),
            Value::Number { .. } if !needed.is_steering(reg) => {
                *value = Value::number(Scalar::UNKNOWN)
            }
            Value::Number { .. } | Value::Pointer(_) => {}
        }
    }
}
