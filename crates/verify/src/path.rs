//! The tree of paths followed so far: for the bound on executed instructions, and to tell a
//! rejection's path.
//!
//! A node is where a path forked or met a point at which states are compared. It is complete when
//! every path through it has ended; then it knows the most instructions that can follow, and a path
//! that it covers can take that over.
//!
//! A path may also be covered by its own past: a loop whose rounds something else counts
//! ([`Token`]). Then the tree and its covers are a graph with cycles, and [`crate::bound`] finds
//! the longest way through it.

use std::collections::HashSet;

use warpbpf_ebpf::Pc;
use warpbpf_flow::{Entity, EntityMap};

use crate::bound::{Edge, Graph};
use crate::event::{Event, Point, Token};

warpbpf_flow::entity! {
    /// A node of the tree.
    pub struct Node, "node"
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
    /// For a meeting: how often the path had met there before, and how often in a row with a token
    /// between.
    round: u32,
    counted: u32,
    /// How often the path had met heads of loops before.
    heads: u32,
    /// The heads of loops that the path to here has met, and the tokens that it has taken and made,
    /// each where that was last, the latest first: others need not be looked at to find rounds.
    heads_met: List,
    tokens_seen: List,
}

/// A list of nodes in a [`Latest`]: where its first one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct List(u32);

impl List {
    const EMPTY: List = List(u32::MAX);
}

/// Lists of nodes with different events, the latest first, which share their ends. A path of many
/// rounds has few different events, so the time of a proof does not grow with the square of its
/// rounds.
#[derive(Clone, Debug, Default)]
struct Latest {
    cells: Vec<(Node, Event, List)>,
}

impl Latest {
    fn walk(&self, list: List) -> impl Iterator<Item = (Node, Event)> + '_ {
        let mut at = list;
        std::iter::from_fn(move || {
            let &(node, event, next) = self.cells.get(at.0 as usize)?;
            at = next;
            Some((node, event))
        })
    }

    /// The list with `node` as the latest of its event.
    fn with(&mut self, list: List, node: Node, event: Event) -> List {
        let mut kept = Vec::new();
        let mut rest = list;
        loop {
            let Some(&(before, other, next)) = self.cells.get(rest.0 as usize) else {
                // It is new: all that is there stays behind it.
                (kept, rest) = (Vec::new(), list);
                break;
            };
            rest = next;
            if other == event {
                break;
            }
            kept.push((before, other));
        }
        for (before, other) in kept.into_iter().rev() {
            rest = self.push(before, other, rest);
        }
        self.push(node, event, rest)
    }

    fn push(&mut self, node: Node, event: Event, next: List) -> List {
        self.cells.push((node, event, next));
        List(self.cells.len() as u32 - 1)
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
    latest: Latest,
}

impl Paths {
    /// A tree with its root, through which one path goes.
    pub fn new() -> (Paths, Node) {
        let mut paths = Paths {
            nodes: EntityMap::new(),
            covers: Vec::new(),
            cyclic: false,
            met: HashSet::new(),
            latest: Latest::default(),
        };
        let root = paths.push(None, Event::Root, 0);
        (paths, root)
    }

    fn push(&mut self, parent: Option<Node>, event: Event, cost: u64) -> Node {
        let is_head = |event: Event| matches!(event, Event::Meet(point) if point.head);
        let (mut heads, mut heads_met, mut tokens_seen) = (0, List::EMPTY, List::EMPTY);
        if let Some(parent) = parent {
            let before = &self.nodes[parent];
            heads = before.heads + u32::from(is_head(before.event));
            (heads_met, tokens_seen) = (before.heads_met, before.tokens_seen);
        }
        let node = self.nodes.push(Record {
            parent,
            event,
            cost,
            follows: 0,
            last: 0,
            open: 1,
            round: 0,
            counted: 0,
            heads,
            heads_met,
            tokens_seen,
        });
        match event {
            Event::Meet(_) if is_head(event) => {
                self.nodes[node].heads_met = self.latest.with(heads_met, node, event);
            }
            Event::Took(_) | Event::Fresh(_) => {
                self.nodes[node].tokens_seen = self.latest.with(tokens_seen, node, event);
            }
            Event::Meet(_) | Event::Root | Event::Branch { .. } | Event::Call(_) | Event::Way => {}
        }
        node
    }

    /// What was taken and made behind `past` on the path to `node`.
    fn tokens_since(&self, node: Node, past: Node) -> Tokens {
        let mut tokens = Tokens::default();
        let all = self.latest.walk(self.nodes[node].tokens_seen);
        // Later nodes of a path have larger numbers.
        for (_, event) in all.take_while(|(at, _)| *at > past) {
            tokens.see(event);
        }
        tokens
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

    /// The path at `node` ends after `cost` instructions because the states that followed `by`
    /// cover what follows. Gives its length, or as much of it as is known.
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

    /// The most instructions that can follow, if every path through the node has ended. Where a
    /// path was covered by its own past it is less than that, and only [`graph`](Self::graph)
    /// tells.
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
        let mut all = self.latest.walk(self.nodes[node].heads_met);
        let (last, _) = all.find(|(_, event)| *event == Event::Meet(point))?;
        let record = &self.nodes[last];
        let token = self.tokens_since(node, last).counting();
        Some(Again {
            node: last,
            round: record.round + 1,
            counted: if token.is_some() {
                record.counted + 1
            } else {
                0
            },
            token,
        })
    }

    /// Something counts the rounds between `past` and `node`, which it leads to.
    pub fn is_counted(&self, node: Node, past: Node) -> bool {
        self.tokens_since(node, past).counting().is_some()
    }

    /// The point that the path to `node` met most often, and how often; the nearest of those met
    /// equally often.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn point(pc: u32) -> Point {
        Point {
            instance: 0,
            pc: Pc(pc),
            inside: false,
            head: true,
        }
    }

    #[test]
    fn a_path_knows_where_it_met_each_head_last_and_what_counted_since() {
        let (mut paths, root) = Paths::new();
        let token = Token::MayGoto(0);
        let (outer, inner, never) = (point(1), point(2), point(3));
        let mut node = root;
        let meet = |paths: &mut Paths, node, point| {
            let again = paths.again(node, point);
            (paths.meet(node, point, again, 0), again)
        };
        let mut last_outer = None;
        for round in 0..5 {
            let again;
            (node, again) = meet(&mut paths, node, outer);
            assert_eq!(
                again.map(|a| (a.node, a.round)),
                last_outer.map(|n| (n, round))
            );
            // It was counted by what the inner loop took.
            assert_eq!(again.and_then(|a| a.token), (round > 0).then_some(token));
            last_outer = Some(node);
            for turn in 0..4 {
                let again;
                (node, again) = meet(&mut paths, node, inner);
                let counted = again.and_then(|a| a.token);
                assert_eq!(
                    counted,
                    (round + turn > 0).then_some(token),
                    "{round} {turn}"
                );
                node = paths.extend(node, Event::Took(token), 0);
            }
            // Made anew: it counts nothing across that.
            assert!(paths.is_counted(node, last_outer.expect("it was met")));
            let fresh = paths.extend(node, Event::Fresh(token), 0);
            assert!(!paths.is_counted(fresh, last_outer.expect("it was met")));
            assert!(paths.again(node, never).is_none());
        }
    }
}
