//! The tree of paths followed so far: for the bound on executed instructions, and to tell a rejection's path.
//!
//! A node is where a path forked or met a point at which states are compared. It is complete when every path through
//! it has ended; then it knows the most instructions that can follow, and a path that it covers can take that over.
//!
//! A path may also be covered by its own past: a loop whose rounds something else counts ([`Token`]). Then the tree
//! and its covers are a graph with cycles, and [`crate::bound`] finds the longest way through it.

use std::collections::HashSet;

use warpbpf_ebpf::Pc;
use warpbpf_flow::{Entity, EntityMap};

use crate::bound::{Edge, Graph};

warpbpf_flow::entity! {
    /// A node of the tree.
    pub struct Node, "node"
}

/// What counts the rounds of a loop whose states repeat. Each is taken a bounded number of times between two points
/// at which it is made anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Token {
    /// The `may_goto` counter of a call of this instance.
    MayGoto(usize),
    /// The calls that the helper call at an instruction of an instance makes back.
    Callback(usize, Pc),
    /// The numbers of the iterator made by a call in an instance, in a slot of the stack at a call depth.
    Iterator(usize, Pc, u32, i16),
}

/// A point at which states are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Point {
    /// The instance.
    pub instance: usize,
    /// The instruction.
    pub pc: Pc,
    /// Inside the helper that this instruction calls, between two calls back.
    pub inside: bool,
    /// A loop comes back here.
    pub head: bool,
}

/// What happened at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The start.
    Root,
    /// A conditional jump of which both sides are possible.
    Branch {
        /// Where.
        pc: Pc,
        /// This path jumps.
        taken: bool,
    },
    /// A call of a local function.
    Call(Pc),
    /// A point where paths meet.
    Meet(Point),
    /// One of this was taken.
    Took(Token),
    /// This was made anew.
    Fresh(Token),
    /// One of several ways to go on that is told nowhere.
    Way,
}

/// How a path came to a point that it had met before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Again {
    /// The last time.
    pub node: Node,
    /// How often it had met the point then, and now once more.
    pub round: u32,
    /// How often in a row a token was taken between two of these.
    pub counted: u32,
    /// The token, if one was taken since and not made anew.
    pub token: Option<Token>,
}

#[derive(Clone, Debug)]
struct Record {
    parent: Option<Node>,
    event: Event,
    /// Instructions executed before.
    cost: u64,
    /// The most that can follow, so far.
    follows: u64,
    /// The most that follows a path that ends here, until its end.
    last: u64,
    /// Paths through here that have not ended.
    open: u32,
    /// For a meeting: how often the path had met there before, and how often in a row with a token between.
    round: u32,
    counted: u32,
    /// How often the path had met heads of loops before.
    heads: u32,
    /// The nearest node before at which a loop's head was met or a token taken or made: others need not be looked at
    /// to find rounds.
    link: Option<Node>,
}

impl Record {
    fn is_linked(&self) -> bool {
        match self.event {
            Event::Meet(point) => point.head,
            Event::Took(_) | Event::Fresh(_) => true,
            Event::Root | Event::Branch { .. } | Event::Call(_) | Event::Way => false,
        }
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: EntityMap<Node, Record>,
    /// A path that ended at a node because another covers it, and its instructions since the node.
    covers: Vec<(Node, Node, u64)>,
    cyclic: bool,
    /// The points that some path met.
    met: HashSet<Point>,
}

impl Paths {
    /// A tree with its root, through which one path goes.
    pub fn new() -> (Paths, Node) {
        let mut paths = Paths {
            nodes: EntityMap::new(),
            covers: Vec::new(),
            cyclic: false,
            met: HashSet::new(),
        };
        let root = paths.push(None, Event::Root, 0);
        (paths, root)
    }

    fn push(&mut self, parent: Option<Node>, event: Event, cost: u64) -> Node {
        let (mut heads, mut link) = (0, None);
        if let Some(parent) = parent {
            let before = &self.nodes[parent];
            let is_head = matches!(before.event, Event::Meet(point) if point.head);
            heads = before.heads + u32::from(is_head);
            link = if before.is_linked() {
                Some(parent)
            } else {
                before.link
            };
        }
        self.nodes.push(Record {
            parent,
            event,
            cost,
            follows: 0,
            last: 0,
            open: 1,
            round: 0,
            counted: 0,
            heads,
            link,
        })
    }

    /// The path at `node` goes on through a new node.
    pub fn extend(&mut self, node: Node, event: Event, cost: u64) -> Node {
        self.push(Some(node), event, cost)
    }

    /// The path at `node` meets a point, `again` if it had before.
    pub fn meet(&mut self, node: Node, point: Point, again: Option<Again>, cost: u64) -> Node {
        self.met.insert(point);
        let node = self.extend(node, Event::Meet(point), cost);
        if let Some(again) = again {
            self.nodes[node].round = again.round;
            self.nodes[node].counted = again.counted;
        }
        node
    }

    /// The path at `node` becomes two, with these events.
    pub fn fork(&mut self, node: Node, events: [Event; 2], cost: u64) -> [Node; 2] {
        self.nodes[node].open += 1;
        events.map(|event| self.extend(node, event, cost))
    }

    /// The path at `node` ends after `cost` instructions in all.
    pub fn end(&mut self, node: Node, cost: u64) {
        let own = cost - self.nodes[node].cost;
        self.nodes[node].last = self.nodes[node].last.max(own);
        self.ended(node, cost);
    }

    /// The path at `node` ends after `cost` instructions because the states that followed `by` cover what follows.
    /// Gives its length, or as much of it as is known.
    pub fn covered(&mut self, node: Node, cost: u64, by: Node) -> u64 {
        self.covers.push((node, by, cost - self.nodes[node].cost));
        let total = match self.follows(by) {
            Some(follows) => cost.saturating_add(follows),
            None => {
                self.cyclic = true;
                cost
            }
        };
        self.ended(node, total);
        total
    }

    fn ended(&mut self, node: Node, cost: u64) {
        let (mut at, mut total) = (Some(node), cost);
        while let Some(node) = at {
            let record = &mut self.nodes[node];
            record.follows = record.follows.max(total - record.cost);
            record.open -= 1;
            if record.open > 0 {
                return;
            }
            total = record.cost + record.follows;
            at = record.parent;
        }
    }

    /// The most instructions that can follow, if every path through the node has ended. Where a path was covered by
    /// its own past it is less than that, and only [`graph`](Self::graph) tells.
    pub fn follows(&self, node: Node) -> Option<u64> {
        (self.nodes[node].open == 0).then_some(self.nodes[node].follows)
    }

    /// Some path was covered by its own past.
    pub fn is_cyclic(&self) -> bool {
        self.cyclic
    }

    /// Everything that was followed, as a graph.
    pub fn graph(&self) -> Graph {
        let mut edges = Vec::with_capacity(self.nodes.len() + self.covers.len());
        let mut marks = Vec::with_capacity(self.nodes.len());
        let mut lasts = Vec::with_capacity(self.nodes.len());
        for (node, record) in self.nodes.iter() {
            if let Some(parent) = record.parent {
                edges.push(Edge {
                    from: parent.index() as u32,
                    to: node.index() as u32,
                    cost: record.cost - self.nodes[parent].cost,
                });
            }
            marks.push(record.event);
            lasts.push(record.last);
        }
        edges.extend(self.covers.iter().map(|(from, to, cost)| Edge {
            from: from.index() as u32,
            to: to.index() as u32,
            cost: *cost,
        }));
        Graph::new(marks, lasts, edges)
    }

    /// The point of a node of the graph or the nearest one before it.
    pub fn point_of(&self, node: u32) -> Option<Pc> {
        let (node, _) = self.nodes.iter().nth(node as usize)?;
        self.back(node).find_map(|event| match event {
            Event::Meet(point) => Some(point.pc),
            Event::Branch { pc, .. } | Event::Call(pc) => Some(pc),
            Event::Root | Event::Took(_) | Event::Fresh(_) | Event::Way => None,
        })
    }

    /// The nodes that lead to `node`, it first.
    fn ancestors(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        std::iter::successors(Some(node), |node| self.nodes[*node].parent)
    }

    /// The events that lead to `node`, the last first.
    pub fn back(&self, node: Node) -> impl Iterator<Item = Event> + '_ {
        self.ancestors(node).map(|node| self.nodes[node].event)
    }

    /// The nodes before `node`, and it, that matter for rounds.
    fn links(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let first = if self.nodes[node].is_linked() {
            Some(node)
        } else {
            self.nodes[node].link
        };
        std::iter::successors(first, |node| self.nodes[*node].link)
    }

    /// The round in which a path that goes on from `node` is: how often it met heads of loops.
    pub fn heads(&self, node: Node) -> u32 {
        self.nodes[node].heads
    }

    /// The last time that the path to `node` met this point, a loop's head.
    pub fn again(&self, node: Node, point: Point) -> Option<Again> {
        // A program of many loops in a row would go back to its start at each.
        if !self.met.contains(&point) {
            return None;
        }
        let mut tokens = Tokens::default();
        for node in self.links(node) {
            let record = &self.nodes[node];
            if record.event == Event::Meet(point) {
                let token = tokens.counting();
                return Some(Again {
                    node,
                    round: record.round + 1,
                    counted: if token.is_some() {
                        record.counted + 1
                    } else {
                        0
                    },
                    token,
                });
            }
            tokens.see(record.event);
        }
        None
    }

    /// Something counts the rounds between `past` and `node`, which it leads to.
    pub fn is_counted(&self, node: Node, past: Node) -> bool {
        let mut tokens = Tokens::default();
        // Later nodes of a path have larger numbers.
        for at in self.links(node).take_while(|at| *at > past) {
            tokens.see(self.nodes[at].event);
        }
        tokens.counting().is_some()
    }

    /// The point that the path to `node` met most often, and how often; the nearest of those met equally often.
    pub fn most_met(&self, node: Node) -> Option<(Pc, u64)> {
        let mut best: Option<(Pc, u64)> = None;
        for node in self.ancestors(node) {
            let record = &self.nodes[node];
            if let Event::Meet(point) = record.event {
                let met = u64::from(record.round) + 1;
                if best.is_none_or(|(_, most)| met > most) {
                    best = Some((point.pc, met));
                }
            }
        }
        best
    }
}

/// Tokens taken and made on a way.
#[derive(Default)]
struct Tokens {
    took: Vec<Token>,
    fresh: Vec<Token>,
}

impl Tokens {
    fn see(&mut self, event: Event) {
        match event {
            Event::Took(token) if !self.took.contains(&token) => self.took.push(token),
            Event::Fresh(token) if !self.fresh.contains(&token) => self.fresh.push(token),
            Event::Took(_)
            | Event::Fresh(_)
            | Event::Root
            | Event::Branch { .. }
            | Event::Call(_)
            | Event::Meet(_)
            | Event::Way => {}
        }
    }

    fn counting(&self) -> Option<Token> {
        let lasting = |token: &&Token| !self.fresh.contains(token);
        self.took.iter().find(lasting).copied()
    }
}
