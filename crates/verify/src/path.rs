//! The tree of paths followed so far: for the bound on executed instructions, and to tell a rejection's path.
//!
//! A node is where a path forked or met a point at which states are compared. It is complete when every path through
//! it has ended; then it knows the most instructions that can follow, and a path that it covers can take that over.

use std::collections::BTreeMap;

use warpbpf_ebpf::Pc;
use warpbpf_flow::EntityMap;

warpbpf_flow::entity! {
    /// A node of the tree.
    pub struct Node, "node"
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
    /// A point where paths meet, in an instance.
    Meet(usize, Pc),
}

#[derive(Clone, Debug)]
struct Record {
    parent: Option<Node>,
    event: Event,
    /// Instructions executed before.
    cost: u64,
    /// The most that can follow, so far.
    follows: u64,
    /// Paths through here that have not ended.
    open: u32,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: EntityMap<Node, Record>,
}

impl Paths {
    /// A tree with its root, through which one path goes.
    pub fn new() -> (Paths, Node) {
        let mut nodes = EntityMap::new();
        let root = nodes.push(Record {
            parent: None,
            event: Event::Root,
            cost: 0,
            follows: 0,
            open: 1,
        });
        (Paths { nodes }, root)
    }

    /// The path at `node` goes on through a new node.
    pub fn extend(&mut self, node: Node, event: Event, cost: u64) -> Node {
        self.nodes.push(Record {
            parent: Some(node),
            event,
            cost,
            follows: 0,
            open: 1,
        })
    }

    /// The path at `node` becomes two.
    pub fn fork(&mut self, node: Node, pc: Pc, cost: u64) -> (Node, Node) {
        self.nodes[node].open += 1;
        let taken = self.extend(node, Event::Branch { pc, taken: true }, cost);
        let falls = self.extend(node, Event::Branch { pc, taken: false }, cost);
        (taken, falls)
    }

    /// The path at `node` ends after `cost` instructions in all.
    pub fn end(&mut self, node: Node, cost: u64) {
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

    /// The most instructions that can follow, if every path through the node has ended.
    pub fn follows(&self, node: Node) -> Option<u64> {
        (self.nodes[node].open == 0).then_some(self.nodes[node].follows)
    }

    /// The events that lead to `node`, the last first.
    pub fn back(&self, node: Node) -> impl Iterator<Item = Event> + '_ {
        let mut at = Some(node);
        std::iter::from_fn(move || {
            let record = &self.nodes[at?];
            at = record.parent;
            Some(record.event)
        })
    }

    /// How often the path to `node` met this point.
    pub fn rounds(&self, node: Node, instance: usize, pc: Pc) -> usize {
        self.back(node)
            .filter(|event| *event == Event::Meet(instance, pc))
            .count()
    }

    /// The point that the path to `node` met most often, and how often; the nearest of those met equally often.
    pub fn most_met(&self, node: Node) -> Option<(Pc, u64)> {
        let mut met: BTreeMap<(usize, Pc), u64> = BTreeMap::new();
        let mut order = Vec::new();
        for event in self.back(node) {
            if let Event::Meet(instance, pc) = event {
                let count = met.entry((instance, pc)).or_insert(0);
                if *count == 0 {
                    order.push((instance, pc));
                }
                *count += 1;
            }
        }
        let mut best: Option<(Pc, u64)> = None;
        for key in order {
            let count = met[&key];
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((key.1, count));
            }
        }
        best
    }
}
