//! Follows every path, depth first. Where paths meet, a state that an earlier, finished one covers is not followed
//! again; loops are unrolled until they end or the budget does. So the bound on executed instructions is exact over
//! the paths that exist in the abstract, and a loop is accepted exactly if it provably ends within the budget.
//!
//! Where something else counts the rounds of a loop (a helper that calls back, an iterator, `may_goto`), its states may
//! repeat: they are widened until they do, and [`crate::bound`] multiplies.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use warpbpf_abi::kfuncs::MAX_LOOPS;
use warpbpf_ebpf::{Insn, Pc, Reg};

use crate::assert::registers;
use crate::domain::pointer::{Value, Why};
use crate::domain::scalar::Scalar;
use crate::domain::stack::Stack;
use crate::domain::state::{Frame, State};
use crate::domain::widen::{self, widen};
use crate::env::Env;
use crate::execute::Onward;
use crate::facts::Facts;
use crate::gather::Gather;
use crate::liveness::{FunctionFlow, Needed, analyse};
use crate::log::{LogStep, Logger};
use crate::path::{Again, Event, Node, Paths, Point, Token};
use crate::rule::Rule;

/// States that are kept to compare others with, in all: beyond it nothing is lost but time.
const MAX_VISITS: usize = 1 << 14;
/// Paths that may wait: beyond it their states are too large together.
const MAX_PENDING: usize = 1 << 16;
/// Registers and stored values ([`State::size`], about 100 bytes each) of all states that are kept,
const KEPT_VALUES: usize = 1 << 19;
/// and of all paths that wait: enough for [`MAX_PENDING`] of them that use no stack.
const PENDING_VALUES: usize = 1 << 20;
/// How many of the states kept at one point are looked at, the newest first.
const MAX_COMPARED: usize = 64;
/// With [`Method::Joining`], this many states of a round are followed before the next ones are joined,
const JOINED_AFTER: usize = 3;
/// and this many before joining goes in leaps.
const LEAPS_AFTER: usize = 16;
/// So many rounds of a loop that `may_goto` counts are followed as they are: often it ends by itself,
const EXACT_ROUNDS: u32 = 2048;
/// and so many of one that a helper or an iterator counts.
const FEW_ROUNDS: u32 = 2;
/// After these, up to so many rounds are joined exactly,
const HULL_ROUNDS: u32 = 2;
/// and up to so many in small leaps.
const LEAP_ROUNDS: u32 = 16;

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
/// their loops: that proves less. Then exactly again, for the rest of the effort.
///
/// Where `may_goto` counts rounds, exactly may be too many of them while fewer fit. Then only the joining pass comes to
/// what stands behind the loop, so what it says counts, though it may miss how two values hang together. Where the budget is used
/// up before its states repeat, a last pass lets them repeat sooner; only its yes counts.
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

/// Where steps are told, if anybody listens.
pub(crate) struct Log<'l> {
    pass: u32,
    to: Option<Logger<'l>>,
}

/// What happens where very many states meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// Each is followed.
    Exact,
    /// They are joined.
    Joining,
    /// The same, and rounds that are counted are joined in few steps.
    Leaping,
}

fn explore_by(
    env: &Env<'_>,
    functions: &[Range<u32>],
    method: Method,
    effort: u64,
    log: &mut Log<'_>,
) -> Result<Facts, Box<Broken>> {
    // Only functions that are reached are analysed.
    let flows = vec![OnceCell::new(); functions.len()];
    log.pass += 1;
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
        met: HashMap::new(),
        kept: 0,
        kept_values: 0,
        pending: Vec::new(),
        pending_values: 0,
        steps: 0,
        trips: BTreeMap::new(),
        stops: widen::stops(env.code),
        log,
        logged: Stack::default(),
    };
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

/// A path being followed.
#[derive(Debug)]
pub(crate) struct Path {
    pub state: State,
    pub pc: Pc,
    /// Instructions executed.
    pub cost: u64,
    pub node: Node,
}

/// A state from which everything was, or is being, followed.
#[derive(Debug)]
struct Visit {
    state: State,
    node: Node,
}

pub(crate) struct Explorer<'e, 'a, 'l> {
    pub env: &'e Env<'a>,
    pub functions: &'e [Range<u32>],
    flows: Vec<OnceCell<FunctionFlow>>,
    pub method: Method,
    /// Steps that may be taken.
    effort: u64,
    pub gather: Gather,
    pub paths: Paths,
    visits: HashMap<Point, Vec<Visit>>,
    /// For each point and round, how many visits there were and the place of the last.
    met: HashMap<(Point, u32), (usize, usize)>,
    kept: usize,
    kept_values: usize,
    pending: Vec<Path>,
    pending_values: usize,
    steps: u64,
    /// How often each token is taken at most; for `may_goto` that is chosen in the end.
    pub trips: BTreeMap<Token, u64>,
    /// Bounds to widen to.
    stops: Vec<u64>,
    log: &'e mut Log<'l>,
    /// The stack that was told last.
    logged: Stack,
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

    /// A path that is followed later.
    pub(crate) fn wait(&mut self, path: Path) {
        self.pending_values += path.state.size();
        self.pending.push(path);
    }

    /// The proof has taken too many steps, or too many or too large paths wait.
    fn is_exhausted(&self) -> bool {
        self.steps > self.effort
            || self.pending.len() > MAX_PENDING
            || self.pending_values > PENDING_VALUES
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

    /// Tells the state before an instruction, if anybody listens.
    fn tell(&mut self, path: &Path) {
        let Some(to) = &mut self.log.to else {
            return;
        };
        let step = LogStep::new(
            self.env,
            &path.state,
            path.pc,
            path.cost,
            self.log.pass,
            &self.logged,
        );
        to(&step);
        self.logged.clone_from(&path.state.top().stack);
    }

    /// Drops what is not needed from `pc` on, in the running frame.
    pub fn forget(&self, path: &mut Path, instance: usize, pc: Pc) {
        if self.gather.range(instance).contains(&pc.0) {
            forget_unneeded(path.state.top_mut(), self.needed(instance, pc));
        }
    }

    /// The flow of an instance's function, and the place of an instruction in it.
    fn flow(&self, instance: usize, pc: Pc) -> (&FunctionFlow, usize) {
        let start = self.gather.range(instance).start;
        let function = self.functions.partition_point(|f| f.start < start);
        let analysed = || {
            let range = &self.functions[function];
            analyse(self.env.code, range, function == 0, self.env.platform)
        };
        let flow = self.flows[function].get_or_init(analysed);
        (flow, (pc.0 - start) as usize)
    }

    fn needed(&self, instance: usize, pc: Pc) -> Needed {
        let (flow, at) = self.flow(instance, pc);
        flow.needed[at]
    }

    fn is_head(&self, instance: usize, pc: Pc) -> bool {
        let (flow, at) = self.flow(instance, pc);
        flow.heads[at]
    }

    fn is_join(&self, instance: usize, pc: Pc) -> bool {
        let (flow, at) = self.flow(instance, pc);
        flow.joins[at]
    }

    /// Where paths meet: true if an earlier one covers this one, which has ended then.
    pub(crate) fn meet(&mut self, path: &mut Path, point: Point) -> Result<bool, Rule> {
        path.state.drop_lone_ids();
        if self.is_covered(path, point)? {
            return Ok(true);
        }
        let again = if point.head {
            self.paths.again(path.node, point)
        } else {
            None
        };
        if self.join(path, point, again) && self.is_covered(path, point)? {
            return Ok(true);
        }
        let round = self.round(path, point, again);
        path.node = self.paths.meet(path.node, point, again, path.cost);
        let values = path.state.size();
        if self.kept < MAX_VISITS && self.kept_values + values <= KEPT_VALUES {
            self.kept += 1;
            self.kept_values += values;
            let visit = Visit {
                state: path.state.clone(),
                node: path.node,
            };
            let visits = self.visits.entry(point).or_default();
            let round = self.met.entry((point, round)).or_default();
            *round = (round.0 + 1, visits.len());
            visits.push(visit);
        }
        Ok(false)
    }

    /// Which round of its loops a path is in.
    fn round(&self, path: &Path, point: Point, again: Option<Again>) -> u32 {
        if point.head {
            again.map_or(0, |again| again.round)
        } else {
            self.paths.heads(path.node)
        }
    }

    fn visits(&self, point: Point) -> &[Visit] {
        self.visits.get(&point).map_or(&[][..], Vec::as_slice)
    }

    /// An earlier path, followed to its end, covers this one: then it ends, and its length is added.
    fn is_covered(&mut self, path: &mut Path, point: Point) -> Result<bool, Rule> {
        let mut by = None;
        for visit in self.visits(point).iter().rev().take(MAX_COMPARED) {
            if !visit.state.covers(&path.state) {
                continue;
            }
            let ended = self.paths.follows(visit.node).is_some();
            // Else the earlier one is this path's own past.
            if ended || self.paths.is_counted(path.node, visit.node) {
                by = Some(visit.node);
                break;
            }
            if path.state.covers(&visit.state) {
                return Err(Rule::MayNotEnd);
            }
        }
        let Some(by) = by else {
            return Ok(false);
        };
        path.cost = self.paths.covered(path.node, path.cost, by);
        self.within_budget(path)?;
        Ok(true)
    }

    /// Makes the state larger where too many meet; true if it did.
    ///
    /// In a loop that a token counts, toward the state of the round before: nothing else lets it repeat, unless the state
    /// itself counts, when it ends by that. Else, joined
    /// with the last state that met here in the same round. Rounds are kept apart because they tell loop counters
    /// apart, without which no loop would end.
    fn join(&self, path: &mut Path, point: Point, again: Option<Again>) -> bool {
        if let Some(Again {
            node,
            counted,
            token: Some(token),
            ..
        }) = again
        {
            if path.state.counts_exactly(token) {
                return false;
            }
            let exact = match (self.method, token) {
                (Method::Exact, Token::MayGoto(_)) => EXACT_ROUNDS,
                (Method::Exact, Token::Callback(..) | Token::Iterator(..)) => FEW_ROUNDS,
                (Method::Joining | Method::Leaping, _) => 0,
            };
            let before = self.visits(point).iter().rev().find(|v| v.node == node);
            let Some(before) = before.filter(|_| counted > exact) else {
                return false;
            };
            let rounds = counted - exact;
            let step = if rounds <= HULL_ROUNDS {
                widen::Step::Hull
            } else if rounds <= LEAP_ROUNDS && self.method != Method::Leaping {
                widen::Step::Leap
            } else {
                widen::Step::Far
            };
            widen(&mut path.state, &before.state, step, &self.stops);
            path.state.drop_lone_ids();
            return true;
        }
        if self.method == Method::Exact {
            return false;
        }
        let round = self.round(path, point, again);
        let Some((count, last)) = self.met.get(&(point, round)) else {
            return false;
        };
        let last = &self.visits(point)[*last];
        if *count <= JOINED_AFTER {
            return false;
        }
        let step = if *count <= LEAPS_AFTER {
            widen::Step::Hull
        } else {
            widen::Step::Leap
        };
        widen(&mut path.state, &last.state, step, &self.stops);
        path.state.drop_lone_ids();
        true
    }

    pub fn spend(&self, path: &mut Path, cost: u64) -> Result<(), Rule> {
        path.cost = path.cost.saturating_add(cost);
        self.within_budget(path)
    }

    fn within_budget(&self, path: &Path) -> Result<(), Rule> {
        let budget = self.env.platform.budget;
        if self.env.platform.affords(path.cost) {
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

    /// The most instructions that are executed, and the rounds of `may_goto` for which that holds: as many as the budget
    /// allows.
    fn bound(&self, root: Node) -> Result<(u64, u32), (Rule, Pc)> {
        let may_goto = |insn: &Insn| matches!(insn, Insn::MayGoto { .. });
        let counted = self.env.code.insns().iter().any(may_goto);
        let most = if counted { MAX_LOOPS } else { 0 };
        if !self.paths.is_cyclic() {
            return Ok((self.paths.follows(root).unwrap_or(0), most));
        }
        let graph = self.paths.graph();
        let budget = self.env.platform.budget;
        let cost = |rounds: u32| {
            let trips = |token: Token| match token {
                Token::MayGoto(_) => u64::from(rounds),
                Token::Callback(..) | Token::Iterator(..) => {
                    self.trips.get(&token).copied().unwrap_or(u64::MAX)
                }
            };
            graph.longest(&trips).map_err(|node| {
                let pc = self.paths.point_of(node.0).unwrap_or(Pc(0));
                (Rule::MayNotEnd, pc)
            })
        };
        let all = cost(most)?;
        if self.env.platform.affords(all) {
            return Ok((all, most));
        }
        let least = cost(0)?;
        if !self.env.platform.affords(least) {
            return Err((
                Rule::Budget {
                    cost: least,
                    budget,
                },
                Pc(0),
            ));
        }
        // `fits` does, `over` does not.
        let (mut fits, mut over) = ((0, least), most);
        while over - fits.0 > 1 {
            let middle = fits.0 + (over - fits.0) / 2;
            let cost = cost(middle)?;
            if self.env.platform.affords(cost) {
                fits = (middle, cost);
            } else {
                over = middle;
            }
        }
        Ok((fits.1, fits.0))
    }

    fn broken(&self, rule: Rule, path: &Path) -> Box<Broken> {
        let mut pc = path.pc;
        // A loop is better named by its head than by the instruction that happened to be one too many.
        if let (Rule::LoopBudget { .. } | Rule::TooComplex { .. }, Some((head, 2..))) =
            (&rule, self.paths.most_met(path.node))
        {
            pc = head;
        }
        // And a stack that is too deep by the call at which it becomes so.
        if let (Rule::StackTooDeep { .. }, Some((deep, _))) =
            (&rule, self.gather.too_deep(&path.state.frames))
            && deep > 0
        {
            pc = Pc(path.state.frames[deep].return_to.0 - 1);
        }
        // Where it is about cost or room, no value is at fault.
        let insn = self.env.code.insns().get(path.pc.index());
        let registers = insn
            .filter(|_| !is_about_cost(&rule))
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

/// The rule is about cost or room.
fn is_about_cost(rule: &Rule) -> bool {
    matches!(
        rule,
        Rule::LoopBudget { .. }
            | Rule::Budget { .. }
            | Rule::WalkBudget { .. }
            | Rule::StackTooDeep { .. }
            | Rule::MayNotEnd
            | Rule::TooComplex { .. }
            | Rule::TooLarge { .. }
    )
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
