//! The warp half: what is the same in all lanes of a group, and which lanes reach an instruction.
//!
//! A *group* is the lanes of a warp that arrived at the site together. Two lanes of it that execute
//! an instruction in the same rounds of all loops around it see the same *uniform* value there, and
//! go the same way at a uniform branch. Nothing is said about *when* they do: the hardware may run
//! lanes of a group one after the other even where nothing diverged, which is why memory that other
//! threads write is never uniform, whatever the address.
//!
//! A branch that is not uniform *varies*. From there to where all its ways meet again (its
//! immediate postdominator) lanes go their own ways: code there is not reached *together*, and what
//! was assigned on one of the ways varies where two of them meet (the labels of LLVM's divergence
//! analysis). A loop with a varying exit has all its lanes together again only behind it, and what
//! it assigned varies there.
//!
//! Where one lane runs (scopes `warp` and `block`), everything is uniform and nobody is missed.
//!
//! Code generation needs none of this to be safe: it takes the lanes that are there. A helper that
//! the table says needs a whole group ([`Warp::Together`]) is refused where a lane of it may be
//! missing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use warpbpf_abi::attach::Scope;
use warpbpf_abi::helpers::{Arg, Warp};
use warpbpf_ebpf::{Insn, Pc};
use warpbpf_flow::{BitSet, Cfg, DomTree};

use crate::broken::Broken;
use crate::defines::defines;
use crate::event::Event;
use crate::facts::InsnFact;
use crate::graph::{FRAMES, Graph, Kind, Part};
use crate::rule::Rule;

/// Nodes that may be looked at for the regions of varying branches, before everything is taken to
/// vary.
const EFFORT: usize = 1 << 23;

/// What the warp half knows of one instruction in one instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WarpFact {
    /// Some path reaches it.
    pub reached: bool,
    /// All lanes of the group reach it, equally often.
    pub together: bool,
    /// What it defines is the same in all lanes; a branch: all lanes go the same way.
    pub uniform: bool,
    /// It is a conditional jump that can go both ways, or a call of a callback.
    pub branch: bool,
    /// Calls: the arguments that are the same in all lanes, memory behind pointers included; bit 0
    /// is `r1`.
    pub alike: u8,
}

/// What the warp half knows of a program, by instance and instruction as
/// [`Facts::instances`](crate::Facts::instances).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WarpFacts {
    starts: Vec<Pc>,
    facts: Vec<Vec<WarpFact>>,
}

impl WarpFacts {
    /// What is known of an instruction of an instance; the default, with which nothing may be done,
    /// if there is none.
    pub fn at(&self, instance: usize, pc: Pc) -> WarpFact {
        let fact = || {
            let start = self.starts.get(instance)?.index();
            let index = pc.index().checked_sub(start)?;
            self.facts.get(instance)?.get(index).copied()
        };
        fact().unwrap_or_default()
    }

    /// All lanes of the group that reach the branch go the same way, whichever call of its function
    /// they are in.
    pub fn is_uniform_branch(&self, pc: Pc) -> bool {
        let mut any = false;
        for (start, facts) in self.starts.iter().zip(&self.facts) {
            let Some(fact) = pc
                .index()
                .checked_sub(start.index())
                .and_then(|i| facts.get(i))
            else {
                continue;
            };
            if fact.reached && !fact.uniform {
                return false;
            }
            any |= fact.reached;
        }
        any
    }

    /// Branches that can go both ways, by call: (uniform, varying).
    pub fn branches(&self) -> (usize, usize) {
        let branches = || self.facts.iter().flatten().filter(|f| f.branch);
        let uniform = branches().filter(|f| f.uniform).count();
        (uniform, branches().count() - uniform)
    }
}

/// Locations that vary.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Set {
    regs: [u16; FRAMES],
    cells: [u128; FRAMES],
}

impl Set {
    const ALL: Set = Set {
        regs: [u16::MAX; FRAMES],
        cells: [u128::MAX; FRAMES],
    };

    fn meets(&self, part: &Part) -> bool {
        self.regs[part.frame] & part.regs != 0 || self.cells[part.frame] & part.cells != 0
    }

    fn add(&mut self, part: &Part) {
        self.regs[part.frame] |= part.regs;
        self.cells[part.frame] |= part.cells;
    }

    fn remove(&mut self, part: &Part) {
        self.regs[part.frame] &= !part.regs;
        self.cells[part.frame] &= !part.cells;
    }

    /// True if `self` grew.
    fn join(&mut self, other: &Set) -> bool {
        let old = *self;
        for frame in 0..FRAMES {
            self.regs[frame] |= other.regs[frame];
            self.cells[frame] |= other.cells[frame];
        }
        *self != old
    }
}

/// Analyses a proved program.
///
/// # Errors
/// [`Rule::NotTogether`] and [`Rule::NotAlike`]: a helper needs more of a group than is there.
pub fn analyse(graph: &Graph<'_>) -> Result<WarpFacts, Box<Broken>> {
    if graph.env.platform.scope != Scope::Thread {
        let alone = vec![Set::default(); graph.len()];
        return Ok(facts(graph, &alone, &BitSet::new(), &[]));
    }
    let post = postdominators(graph);
    let mut search = Search::new(graph, post);
    search.run();
    let Search {
        before,
        apart,
        varying,
        ..
    } = search;
    check(graph, &before, &apart, &varying)?;
    if graph.env.platform.strict_uniform {
        strict(graph, &before, &varying)?;
    }
    Ok(facts(graph, &before, &apart, &varying))
}

/// For each node the first one that all its ways to the end go through; `None` where that is the
/// end itself.
pub(crate) fn postdominators(graph: &Graph<'_>) -> Vec<Option<usize>> {
    let end = graph.len();
    let mut edges = Vec::new();
    for node in 0..end {
        let succs = graph.cfg.succs(node);
        if succs.is_empty() {
            edges.push((end, node));
        }
        edges.extend(succs.iter().map(|&to| (to, node)));
    }
    let tree = DomTree::new(&Cfg::new(end + 1, end, edges));
    (0..end)
        .map(|node| tree.idom(node).filter(|&to| to != end))
        .collect()
}

/// The nodes between a branch and where its ways meet, each with the number of the way that leads
/// there; the places where ways meet on the way.
pub(crate) struct Region {
    /// The nodes, in no order.
    pub nodes: Vec<usize>,
    /// Those at which two ways meet, the last one included.
    pub joins: Vec<usize>,
}

/// The region of a branch. `label` is as long as the graph and 0 everywhere, before and after.
pub(crate) fn region(
    graph: &Graph<'_>,
    branch: usize,
    meets: Option<usize>,
    label: &mut [usize],
) -> Region {
    let mut nodes = Vec::new();
    let mut joins = BitSet::new();
    // A node's label is the last place where ways met before it, plus one.
    // In order, so that a place where ways meet is known before what follows it is labelled.
    let mut work = BinaryHeap::new();
    for &way in graph.cfg.succs(branch) {
        if Some(way) == meets {
            continue;
        }
        if label[way] == 0 {
            nodes.push(way);
        }
        label[way] = way + 1;
        work.push(Reverse((graph.position[way], way)));
    }
    while let Some(Reverse((_, node))) = work.pop() {
        for &to in graph.cfg.succs(node) {
            if Some(to) == meets || label[to] == label[node] {
                continue;
            }
            match label[to] {
                0 => {
                    nodes.push(to);
                    label[to] = label[node];
                }
                own if own == to + 1 => {
                    joins.insert(to);
                    continue;
                }
                _ => {
                    joins.insert(to);
                    label[to] = to + 1;
                }
            }
            work.push(Reverse((graph.position[to], to)));
        }
    }
    for &node in &nodes {
        label[node] = 0;
    }
    let mut joins: Vec<usize> = joins.iter().collect();
    joins.extend(meets);
    Region { nodes, joins }
}

struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    post: Vec<Option<usize>>,
    before: Vec<Set>,
    /// What varies where ways of a varying branch meet.
    forced: BTreeMap<usize, Set>,
    /// Nodes that not all lanes of the group reach.
    apart: BitSet<usize>,
    /// Branches found to vary.
    varying: Vec<usize>,
}

impl<'g, 'a> Search<'g, 'a> {
    fn new(graph: &'g Graph<'a>, post: Vec<Option<usize>>) -> Self {
        Search {
            graph,
            post,
            before: vec![Set::default(); graph.len()],
            forced: BTreeMap::new(),
            apart: BitSet::with_capacity(graph.len()),
            varying: Vec::new(),
        }
    }

    /// Until nothing more varies: values make branches vary, and branches values.
    fn run(&mut self) {
        let mut seen: BitSet<usize> = BitSet::with_capacity(self.graph.len());
        let mut label = vec![0; self.graph.len()];
        let mut looked_at = 0;
        let mut dirty: Vec<usize> = (0..self.graph.order.len()).collect();
        loop {
            self.solve(&dirty);
            dirty.clear();
            let new: Vec<usize> = self
                .graph
                .order
                .iter()
                .copied()
                .filter(|&n| !seen.contains(n) && self.graph.is_branch(n) && self.varies(n))
                .collect();
            if new.is_empty() {
                return;
            }
            for branch in new {
                seen.insert(branch);
                self.varying.push(branch);
                let region = region(self.graph, branch, self.post[branch], &mut label);
                looked_at += region.nodes.len();
                if looked_at > EFFORT {
                    return self.give_up();
                }
                let mut assigned = Set::default();
                // The branch assigns too: a round of a callback, a turn of `may_goto`.
                for &node in region.nodes.iter().chain([&branch]) {
                    self.graph.flows(node, &mut |flow| assigned.add(&flow.to));
                }
                for &node in &region.nodes {
                    self.apart.insert(node);
                }
                for &join in &region.joins {
                    if self.forced.entry(join).or_default().join(&assigned)
                        && self.graph.position[join] != usize::MAX
                    {
                        dirty.push(self.graph.position[join]);
                    }
                }
            }
        }
    }

    fn give_up(&mut self) {
        self.before.fill(Set::ALL);
        self.apart = (0..self.graph.len()).collect();
        self.varying = (0..self.graph.len())
            .filter(|&n| self.graph.is_branch(n))
            .collect();
    }

    fn varies(&self, node: usize) -> bool {
        self.graph
            .decides(node)
            .iter()
            .any(|part| self.after_flows(node).meets(part))
    }

    /// What varies when the branch at `node` decides: callbacks and `may_goto` decide by what they
    /// just assigned.
    fn after_flows(&self, node: usize) -> Set {
        transfer(self.graph, node, self.before[node])
    }

    fn solve(&mut self, dirty: &[usize]) {
        let mut queued = vec![false; self.graph.order.len()];
        let mut work = BinaryHeap::new();
        for &i in dirty {
            if !std::mem::replace(&mut queued[i], true) {
                work.push(Reverse(i));
            }
        }
        while let Some(Reverse(i)) = work.pop() {
            queued[i] = false;
            let node = self.graph.order[i];
            if let Some(forced) = self.forced.get(&node) {
                self.before[node].join(forced);
            }
            let after = transfer(self.graph, node, self.before[node]);
            for &to in self.graph.cfg.succs(node) {
                let at = self.graph.position[to];
                if self.before[to].join(&after) && !queued[at] {
                    queued[at] = true;
                    work.push(Reverse(at));
                }
            }
        }
    }
}

fn transfer(graph: &Graph<'_>, node: usize, mut set: Set) -> Set {
    graph.flows(node, &mut |flow| {
        let varies = flow.varies || flow.from.iter().any(|part| set.meets(part));
        if flow.strong {
            set.remove(&flow.to);
        }
        if varies {
            set.add(&flow.to);
        }
    });
    set
}

/// The facts, from what varies before each node.
fn facts(graph: &Graph<'_>, before: &[Set], apart: &BitSet<usize>, varying: &[usize]) -> WarpFacts {
    let alone = graph.env.platform.scope != Scope::Thread;
    let mut out = WarpFacts {
        starts: graph.facts.instances.iter().map(|i| i.start).collect(),
        facts: graph
            .facts
            .instances
            .iter()
            .map(|i| vec![WarpFact::default(); i.insns.len()])
            .collect(),
    };
    let varying: BitSet<usize> = varying.iter().copied().collect();
    let mut returned = Vec::new();
    for node in 0..graph.len() {
        if !graph.lives(node) {
            continue;
        }
        let at = graph.at(node);
        let start = graph.facts.instances[at.instance].start;
        let fact = &mut out.facts[at.instance][at.pc.index() - start.index()];
        if at.kind == Kind::Again {
            // Told at the call.
            fact.branch = true;
            fact.uniform = !varying.contains(node);
            continue;
        }
        fact.reached = true;
        fact.together = !apart.contains(node);
        fact.branch = graph.is_branch(node);
        let after = if alone {
            Set::default()
        } else {
            transfer(graph, node, before[node])
        };
        fact.uniform = if fact.branch {
            !varying.contains(node)
        } else {
            defines(graph.insn(node))
                .is_none_or(|reg| !after.meets(&Part::reg(graph.frame(node), reg)))
        };
        // What a local call gives is known where it returns.
        if let (Insn::Exit, Some(call), false) = (graph.insn(node), graph.returns_to(node), alone) {
            let result = Part {
                frame: graph.frame(call),
                regs: 1,
                cells: 0,
            };
            returned.push((call, after.meets(&result)));
        }
        if matches!(graph.fact(node), InsnFact::Call(_)) {
            for i in 0..5 {
                let varies = !alone && argument_varies(graph, before, node, i);
                fact.alike |= u8::from(!varies) << i;
            }
        }
    }
    for (call, varies) in returned {
        let at = graph.at(call);
        let start = graph.facts.instances[at.instance].start;
        out.facts[at.instance][at.pc.index() - start.index()].uniform &= !varies;
    }
    out
}

fn argument_varies(graph: &Graph<'_>, before: &[Set], node: usize, i: usize) -> bool {
    graph.argument_is_shared(node, i)
        || graph
            .argument(node, i)
            .iter()
            .any(|part| before[node].meets(part))
}

/// Whether all lanes do the same: what `--strict-uniform` asks for.
fn strict(graph: &Graph<'_>, before: &[Set], varying: &[usize]) -> Result<(), Box<Broken>> {
    let varying: BitSet<usize> = varying.iter().copied().collect();
    for node in (0..graph.len()).filter(|node| graph.lives(*node)) {
        let insn = graph.insn(node);
        let key = |i: &usize| {
            graph
                .helper(node)
                .is_some_and(|h| h.args[*i] == Arg::MapKey)
        };
        let what = match insn {
            _ if varying.contains(node) => match (graph.at(node).kind, insn) {
                (Kind::Again, _) => "the number of calls of this callback",
                _ => "where this branch goes",
            },
            Insn::Call { .. }
                if (0..5)
                    .filter(key)
                    .any(|i| argument_varies(graph, before, node, i)) =>
            {
                "the key of this call"
            }
            Insn::Atomic { base, .. }
                if !graph.is_private(node)
                    && before[node].meets(&Part::reg(graph.frame(node), base)) =>
            {
                "the address of this atomic operation"
            }
            _ => continue,
        };
        return Err(Box::new(Broken {
            rule: Rule::Varies { what },
            pc: graph.at(node).pc,
            path: Vec::new(),
            values: Vec::new(),
        }));
    }
    Ok(())
}

/// Whether helpers get the lanes that they need.
fn check(
    graph: &Graph<'_>,
    before: &[Set],
    apart: &BitSet<usize>,
    varying: &[usize],
) -> Result<(), Box<Broken>> {
    for (node, helper) in graph.helper_calls() {
        if helper.warp == Warp::AnyLanes {
            continue;
        }
        let broken = |rule, path| {
            Box::new(Broken {
                rule,
                pc: graph.at(node).pc,
                path,
                values: Vec::new(),
            })
        };
        if apart.contains(node) {
            let branch = nearest(graph, node, varying);
            let slot = graph.env.code.slot(graph.at(branch).pc);
            let event = Event::Branch {
                pc: graph.at(branch).pc,
                taken: leads(graph, branch, node),
            };
            let rule = Rule::NotTogether {
                helper: helper.name,
                branch: slot,
            };
            return Err(broken(rule, vec![event]));
        }
        if helper.warp == Warp::TogetherAlike
            && let Some(i) = (0..5).find(|&i| argument_varies(graph, before, node, i))
        {
            let rule = Rule::NotAlike {
                helper: helper.name,
                index: i + 1,
                reg: format!("r{}", i + 1),
            };
            return Err(broken(rule, Vec::new()));
        }
    }
    Ok(())
}

/// The varying branch that parted the lanes last: going back from `node`, the first one that comes.
fn nearest(graph: &Graph<'_>, node: usize, varying: &[usize]) -> usize {
    let mut seen: BitSet<usize> = BitSet::with_capacity(graph.len());
    let mut work = std::collections::VecDeque::from([node]);
    while let Some(at) = work.pop_front() {
        for &from in graph.cfg.preds(at) {
            if seen.insert(from) {
                if varying.contains(&from) {
                    return from;
                }
                work.push_back(from);
            }
        }
    }
    node
}

/// Whether the jump at `branch`, taken, is the way to `node`.
fn leads(graph: &Graph<'_>, branch: usize, node: usize) -> bool {
    let next = graph.at(branch).pc.next();
    let mut seen: BitSet<usize> = BitSet::with_capacity(graph.len());
    let mut work: Vec<usize> = graph
        .cfg
        .succs(branch)
        .iter()
        .copied()
        .filter(|&to| graph.at(to).pc == next)
        .collect();
    while let Some(at) = work.pop() {
        if at == node {
            return false;
        }
        if at != branch && seen.insert(at) {
            work.extend(graph.cfg.succs(at));
        }
    }
    true
}
