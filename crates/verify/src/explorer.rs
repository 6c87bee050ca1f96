//! What is known while paths are followed: which wait, which states were met, what their
//! instructions cost.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use warpbpf_abi::kfuncs::MAX_LOOPS;
use warpbpf_ebpf::{Insn, Pc, Reg};

use crate::assert::registers;
use crate::broken::Broken;
use crate::domain::pointer::{Target, Value, Why};
use crate::domain::scalar::Scalar;
use crate::domain::stack::Stack;
use crate::domain::state::{Frame, Held, State};
use crate::domain::widen::{self, widen};
use crate::env::Env;
use crate::event::{Event, Point, Token};
use crate::gather::Gather;
use crate::liveness::{FunctionFlow, Needed, analyse};
use crate::log::{LogStep, Logger};
use crate::path::{Again, Node, Paths};
use crate::rule::Rule;

/// Call frames, the entry function's included, as in Linux.
const MAX_FRAMES: usize = 8;

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
/// With [`Method::Joining`], this many states of a round are followed before the next ones are
/// joined,
const JOINED_AFTER: usize = 3;
/// and this many before joining goes in leaps.
const LEAPS_AFTER: usize = 16;
/// So many rounds of a loop that `may_goto` counts are followed as they are: often it ends by
/// itself,
const EXACT_ROUNDS: u32 = 2048;
/// and so many of one that a helper or an iterator counts.
const FEW_ROUNDS: u32 = 2;
/// After these, up to so many rounds are joined exactly,
const HULL_ROUNDS: u32 = 2;
/// and up to so many in small leaps.
const LEAP_ROUNDS: u32 = 16;

/// Where steps are told, if anybody listens.
pub(crate) struct Log<'l> {
    pub pass: u32,
    pub to: Option<Logger<'l>>,
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
    pub effort: u64,
    pub gather: Gather,
    pub paths: Paths,
    visits: HashMap<Point, Vec<Visit>>,
    /// For each point and round, how many visits there were and the place of the last.
    met: HashMap<(Point, u32), (usize, usize)>,
    kept: usize,
    kept_values: usize,
    pub pending: Vec<Path>,
    pub pending_values: usize,
    pub steps: u64,
    /// How often each token is taken at most; for `may_goto` that is chosen in the end.
    pub trips: BTreeMap<Token, u64>,
    /// Bounds to widen to.
    stops: Vec<u64>,
    log: &'e mut Log<'l>,
    /// The stack that was told last.
    logged: Stack,
}

/// How a path goes on after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Onward {
    /// At its `pc`.
    Goes,
    /// Not at all.
    Ends,
    /// Not at all, because another path covers it, which has ended it.
    Covered,
}

impl<'e, 'a, 'l> Explorer<'e, 'a, 'l> {
    /// Before anything was followed; and the node at which paths begin.
    pub(crate) fn new(
        env: &'e Env<'a>,
        functions: &'e [Range<u32>],
        method: Method,
        effort: u64,
        log: &'e mut Log<'l>,
    ) -> (Self, Node) {
        let (paths, root) = Paths::new();
        let explorer = Explorer {
            env,
            functions,
            // Only functions that are reached are analysed.
            flows: vec![OnceCell::new(); functions.len()],
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
        (explorer, root)
    }
}

impl Explorer<'_, '_, '_> {
    /// A path that is followed later.
    pub(crate) fn wait(&mut self, path: Path) {
        self.pending_values += path.state.size();
        self.pending.push(path);
    }

    /// The proof has taken too many steps, or too many or too large paths wait.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > self.effort
            || self.pending.len() > MAX_PENDING
            || self.pending_values > PENDING_VALUES
    }

    /// Tells the state before an instruction, if anybody listens.
    pub(crate) fn tell(&mut self, path: &Path) {
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

    pub(crate) fn is_head(&self, instance: usize, pc: Pc) -> bool {
        let (flow, at) = self.flow(instance, pc);
        flow.heads[at]
    }

    pub(crate) fn is_join(&self, instance: usize, pc: Pc) -> bool {
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

    /// An earlier path, followed to its end, covers this one: then it ends, and its length is
    /// added.
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
    /// In a loop that a token counts, toward the state of the round before: nothing else lets it
    /// repeat, unless the state itself counts, when it ends by that. Else, joined with the last
    /// state that met here in the same round. Rounds are kept apart because they tell loop counters
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

    /// The most instructions that are executed, and the rounds of `may_goto` for which that holds:
    /// as many as the budget allows.
    pub(crate) fn bound(&self, root: Node) -> Result<(u64, u32), (Rule, Pc)> {
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

    pub(crate) fn broken(&self, rule: Rule, path: &Path) -> Box<Broken> {
        let mut pc = path.pc;
        // A loop is better named by its head than by the instruction that happened to be one too
        // many.
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

    /// The instance of the function at `start` as called from the instruction at which the path is.
    pub(crate) fn callee(
        &mut self,
        path: &Path,
        instance: usize,
        start: Pc,
    ) -> Result<usize, Rule> {
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
        match self.gather.callee(instance, path.pc) {
            Some(callee) if self.gather.range(callee).start == start.0 => Ok(callee),
            Some(other) => Err(Rule::Mixed {
                first: self
                    .env
                    .target(Target::Function(Pc(self.gather.range(other).start))),
                second: self.env.target(Target::Function(start)),
            }),
            None => self
                .gather
                .instance(range, depth as u32, Some((instance, path.pc))),
        }
    }

    /// What a callback reserves it gives back.
    pub(crate) fn nothing_held_since(&self, path: &Path, before: usize) -> Result<(), Rule> {
        self.none_of(path.state.held.get(before..), "before the callback returns")
    }

    pub(crate) fn none_of(&self, held: Option<&[Held]>, how: &'static str) -> Result<(), Rule> {
        match held.and_then(<[Held]>::first) {
            None => Ok(()),
            Some(held) => Err(Rule::RecordHeld {
                slot: self.env.code.slot(held.reserved_at),
                map: self.env.map_name(held.map).to_owned(),
                how,
            }),
        }
    }

    /// A new call of `callee` begins: so does its `may_goto` counter.
    pub(crate) fn fresh_rounds(&mut self, path: &mut Path, callee: usize) {
        let range = self.gather.range(callee).clone();
        let may_goto = |pc: u32| matches!(self.env.code.at(Pc(pc)), Insn::MayGoto { .. });
        if range.clone().any(may_goto) {
            let event = Event::Fresh(Token::MayGoto(callee));
            path.node = self.paths.extend(path.node, event, path.cost);
        }
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

/// The rule is about cost or room.
pub(crate) fn is_about_cost(rule: &Rule) -> bool {
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
