//! An operation of the host on a map that several contexts have. It is begun in all of them and
//! waited for together, and it is not one step: a kernel may see one device changed and another not
//! yet.
//!
//! What is given to a key is given to it everywhere; where values are added up, one context gets it
//! and the others nothing. A lookup puts together what all have. What only one may do (take a value
//! out, put one in) is tried in one context after the other. What contexts that have ended left is
//! read as theirs, gives way to what is written, and can be taken out.

use std::sync::Arc;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EIO, ENOENT};
use warpbpf_maps::{MapPlan, merge, words};
use warpbpf_session::{Action, Answer, HostOp, Live, Progress, Session};

use crate::device::context_registry::ContextRegistry;
use crate::device::left::Left;
use crate::device::pump::Pump;

/// Does something with the maps of a context, which is current meanwhile; the first argument is
/// their number.
pub(crate) type Work<'w> = dyn FnMut(u32, &mut Pump, &Live) + 'w;
/// Has something done in each context that has maps, in the order of their numbers.
pub(crate) type Each<'e> = dyn FnMut(&mut Work<'_>) + 'e;

/// A batch of operations on its way.
#[derive(Debug)]
pub(crate) struct Spread {
    session: Arc<Session>,
    map: usize,
    ops: Vec<HostOp>,
    /// Of the operations that are done.
    answers: Vec<Answer>,
    round: Option<Round>,
}

/// Some operations that follow each other, done in some contexts.
#[derive(Debug)]
struct Round {
    kind: Kind,
    /// How many operations.
    count: usize,
    parts: Vec<Part>,
    /// The context that is given the sums of a value.
    first: Option<u32>,
}

#[derive(Debug)]
struct Part {
    number: u32,
    ops: Vec<HostOp>,
    begun: bool,
    answers: Option<Vec<Answer>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Everywhere, and the answers are put together.
    Together,
    /// Is the key there? Only if not, it is put in.
    Look,
    /// In one context; if that cannot, in the next.
    InTurn,
}

impl Spread {
    pub(crate) fn new(session: Arc<Session>, map: usize, ops: Vec<HostOp>) -> Spread {
        Spread {
            session,
            map,
            ops,
            answers: Vec::new(),
            round: None,
        }
    }

    /// Goes on until something is waited for; `None` if no context has maps any more. `held`: the
    /// caller has [`ContextRegistry::operate`], where there is anything to have it for.
    pub(crate) fn turn(
        &mut self,
        each: &mut Each<'_>,
        context_registry: &ContextRegistry,
        held: bool,
    ) -> Option<Progress> {
        let session = Arc::clone(&self.session);
        let (plan, map) = (&session.maps()[self.map], self.map);
        // Made anew behind each look at the contexts: one that was waited for may have ended
        // meanwhile, and is in one of the two.
        let left = || Left::new(context_registry, plan, map, held);
        loop {
            let mut numbers = Vec::new();
            each(&mut |number, _, live| {
                // One that gets the maps of a replacement later has none of them yet.
                if live.adopted().map_count() > map {
                    numbers.push(number);
                }
            });
            if numbers.is_empty() {
                return None;
            }
            let Some(round) = &mut self.round else {
                if self.answers.len() == self.ops.len() {
                    return Some(Progress::Done(std::mem::take(&mut self.answers)));
                }
                let Some(mut left) = left() else {
                    return Some(Progress::Waiting);
                };
                let (ops, ended) = (&self.ops[self.answers.len()..], left.numbers());
                self.round = match in_turn_next(plan, &ops[0], &numbers, &ended) {
                    true => self.try_next(None, &numbers, &mut left),
                    false => Some(next_round(plan, ops, &numbers, &ended)),
                };
                continue;
            };
            // A context that has ended has no part any more.
            round
                .parts
                .retain(|part| part.answers.is_some() || numbers.contains(&part.number));
            each(&mut |number, _, live| {
                let part = round.parts.iter_mut().find(|part| part.number == number);
                if let Some(part) = part {
                    part.go_on(map, live);
                }
            });
            if round.parts.iter().any(|part| part.answers.is_none()) {
                return Some(Progress::Waiting);
            }
            let Some(mut left) = left() else {
                return Some(Progress::Waiting);
            };
            if let Some(round) = self.round.take() {
                self.round = self.finish(plan, round, &numbers, &mut left);
            }
        }
    }

    /// Takes in the answers of a round; the next one if that is clear already.
    fn finish(
        &mut self,
        plan: &MapPlan,
        mut round: Round,
        numbers: &[u32],
        left: &mut Left<'_>,
    ) -> Option<Round> {
        let first = self.answers.len();
        let op = &self.ops[first];
        match round.kind {
            Kind::Together => {
                for at in 0..round.count {
                    let op = &self.ops[first + at];
                    let answer = answer_of(plan, op, at, &round, left);
                    if answer.is_ok() {
                        let count = parts_of(plan, numbers, &left.numbers());
                        // One that has done it and ended since holds what was written.
                        let did: Vec<u32> = round.parts.iter().map(|p| p.number).collect();
                        left.gives_way(op, count, &did);
                    }
                    self.answers.push(answer);
                }
                None
            }
            Kind::Look => {
                let there = round.parts.iter().any(|part| part.answer(0).is_ok())
                    || !left.lookup(&op.key).is_empty();
                let mut answers = round.parts.iter().map(|part| part.answer(0));
                let failed = answers.find(|a| matches!(a, Err(e) if *e != ENOENT));
                match (there, op.flags) {
                    (false, _) if failed.is_some() => {
                        self.answers.extend(failed);
                        None
                    }
                    (true, BPF_NOEXIST) => {
                        self.answers.push(Err(EEXIST));
                        None
                    }
                    (false, BPF_EXIST) => {
                        self.answers.push(Err(ENOENT));
                        None
                    }
                    (_, flags) => {
                        let flags = if flags == BPF_EXIST { BPF_ANY } else { flags };
                        let op = HostOp {
                            flags,
                            ..op.clone()
                        };
                        Some(together(plan, &[op], numbers, &left.numbers()))
                    }
                }
            }
            Kind::InTurn => {
                let Some(tried) = round.parts.pop() else {
                    self.answers.push(Err(EIO));
                    return None;
                };
                let answer = tried.answer(0);
                if matches!(answer, Err(ENOENT | E2BIG)) {
                    self.try_next(Some((tried.number, answer)), numbers, left)
                } else {
                    self.answers.push(answer);
                    None
                }
            }
        }
    }

    /// The next context for what only one may do, behind one that has said no. One that has ended
    /// is done with here, and gives what it has, but takes nothing.
    fn try_next(
        &mut self,
        tried: Option<(u32, Answer)>,
        numbers: &[u32],
        left: &mut Left<'_>,
    ) -> Option<Round> {
        let op = &self.ops[self.answers.len()];
        let (after, mut answer) = match tried {
            Some((number, answer)) => (Some(number), answer),
            None => (None, Err(ENOENT)),
        };
        let mut ended = left.numbers();
        ended.retain(|_| matches!(op.action, Action::Pop | Action::Peek));
        let mut all: Vec<u32> = numbers.iter().chain(&ended).copied().collect();
        all.sort_unstable();
        for number in all.into_iter().filter(|n| after.is_none_or(|a| *n > a)) {
            if numbers.contains(&number) {
                return Some(in_turn(op, number));
            }
            if let Some(value) = left.take(number, op.action) {
                answer = Ok(value);
                break;
            }
        }
        self.answers.push(answer);
        None
    }
}

impl Part {
    fn new(number: u32, ops: Vec<HostOp>) -> Part {
        Part {
            number,
            ops,
            begun: false,
            answers: None,
        }
    }

    fn go_on(&mut self, map: usize, live: &Live) {
        if self.answers.is_some() {
            return;
        }
        let progress = match self.begun {
            true => live.host_progress(),
            false => live.host_ops(map, std::mem::take(&mut self.ops)),
        };
        self.begun = true;
        if let Progress::Done(answers) = progress {
            self.answers = Some(answers);
        }
    }

    fn answer(&self, at: usize) -> Answer {
        let answers = self.answers.as_ref();
        answers.and_then(|a| a.get(at).cloned()).unwrap_or(Err(EIO))
    }
}

/// How an operation is done where there are, or were, several contexts.
fn kind(plan: &MapPlan, op: &HostOp, ended: &[u32]) -> Kind {
    match (&plan.layout, op.action) {
        (MapLayout::Queue(_), _) => Kind::InTurn,
        (MapLayout::Hash(_) | MapLayout::Lru(_) | MapLayout::Hosted(_), Action::Update)
            // A key that only one has left that has ended is there.
            if op.flags == BPF_NOEXIST || op.flags == BPF_EXIST && !ended.is_empty() =>
        {
            Kind::Look
        }
        _ => Kind::Together,
    }
}

/// The next operation is for one context after the other.
fn in_turn_next(plan: &MapPlan, op: &HostOp, numbers: &[u32], ended: &[u32]) -> bool {
    numbers.len() + ended.len() > 1 && kind(plan, op, ended) == Kind::InTurn
}

fn next_round(plan: &MapPlan, ops: &[HostOp], numbers: &[u32], ended: &[u32]) -> Round {
    if numbers.len() == 1 && ended.is_empty() {
        return together(plan, ops, numbers, ended);
    }
    if kind(plan, &ops[0], ended) == Kind::Look {
        let look = HostOp {
            action: Action::Lookup,
            flags: BPF_ANY,
            value: Vec::new(),
            ..ops[0].clone()
        };
        return Round {
            kind: Kind::Look,
            ..together(plan, &[look], numbers, ended)
        };
    }
    let same = |op: &&HostOp| kind(plan, op, ended) == Kind::Together;
    let count = ops.iter().take_while(same).count();
    together(plan, &ops[..count], numbers, ended)
}

fn in_turn(op: &HostOp, number: u32) -> Round {
    Round {
        kind: Kind::InTurn,
        count: 1,
        parts: vec![Part::new(number, vec![op.clone()])],
        first: Some(number),
    }
}

/// How many parts a value has. Values that stand side by side have a place for contexts that have
/// ended, too.
fn parts_of(plan: &MapPlan, numbers: &[u32], ended: &[u32]) -> usize {
    match merge::is_side_by_side(plan) {
        true => numbers
            .iter()
            .chain(ended)
            .max()
            .map_or(0, |last| *last as usize + 1),
        false => numbers.len(),
    }
}

fn together(plan: &MapPlan, ops: &[HostOp], numbers: &[u32], ended: &[u32]) -> Round {
    let mut parts: Vec<Part> = numbers.iter().map(|n| Part::new(*n, Vec::new())).collect();
    let numbered = merge::is_side_by_side(plan);
    let count = parts_of(plan, numbers, ended);
    for op in ops {
        let values = match op.action {
            Action::Update if count > 1 => merge::split(plan, &op.value, count),
            Action::Words if count > 1 => words::split(plan, &op.value, count),
            _ => vec![op.value.clone(); count],
        };
        for (at, part) in parts.iter_mut().enumerate() {
            let at = if numbered { part.number as usize } else { at };
            part.ops.push(HostOp {
                value: values[at].clone(),
                ..op.clone()
            });
        }
    }
    Round {
        kind: Kind::Together,
        count: ops.len(),
        parts,
        first: numbers.first().copied(),
    }
}

/// The answer to one operation that was done everywhere.
fn answer_of(plan: &MapPlan, op: &HostOp, at: usize, round: &Round, left: &mut Left<'_>) -> Answer {
    let parts = round.parts.iter();
    let mut answers: Vec<(u32, Answer)> =
        parts.map(|part| (part.number, part.answer(at))).collect();
    // Who was to have the sums of a value has ended without.
    let first = answers.first().map(|(number, _)| *number);
    let gives = matches!(op.action, Action::Update | Action::Words);
    if gives && !plan.added.is_empty() && first != round.first {
        return Err(EIO);
    }
    // What could not be done where kernels may go on is not done by what is left.
    if answers
        .iter()
        .all(|(_, a)| matches!(a, Ok(_) | Err(ENOENT)))
    {
        match op.action {
            Action::Lookup | Action::LookupAndDelete => {
                // One that has answered may have ended since.
                let mut there = left.lookup(&op.key);
                there.retain(|(number, _)| answers.iter().all(|(n, _)| n != number));
                answers.extend(there);
            }
            Action::Delete => {
                let there = left.lookup(&op.key).into_iter();
                answers.extend(there.map(|(number, _)| (number, Ok(Vec::new()))));
            }
            Action::Peek if left.contains(&op.value) => answers.push((0, Ok(Vec::new()))),
            _ => {}
        }
    }
    answers.sort_by_key(|(number, _)| *number);
    merged(plan, op, answers)
}

/// One answer of those of all contexts.
fn merged(plan: &MapPlan, op: &HostOp, answers: Vec<(u32, Answer)>) -> Answer {
    if let [(0, answer)] = answers.as_slice() {
        return answer.clone();
    }
    let mut parts: Vec<Option<Vec<u8>>> = Vec::new();
    for (number, answer) in &answers {
        parts.resize(*number as usize, None);
        parts.push(answer.clone().ok());
    }
    let mut answers: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    if answers.is_empty() {
        answers.push(Err(EIO));
    }
    let failed = answers.iter().find(|answer| answer.is_err()).cloned();
    let failed = failed.unwrap_or_else(|| Ok(Vec::new()));
    match op.action {
        Action::Lookup | Action::LookupAndDelete => merge::flat(plan, &parts).map_or(failed, Ok),
        // There, it is there; one context that does it is enough.
        Action::Delete | Action::Peek | Action::Pop => {
            answers.into_iter().find(Result::is_ok).unwrap_or(failed)
        }
        Action::Update if op.flags == BPF_EXIST => {
            answers.into_iter().find(Result::is_ok).unwrap_or(failed)
        }
        Action::Update | Action::Push | Action::Words => failed,
    }
}
