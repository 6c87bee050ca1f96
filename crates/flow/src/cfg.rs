//! A control-flow graph: numbered blocks, an entry, and edges both ways.

use crate::bitset::BitSet;
use crate::entity::Entity;

/// A control-flow graph over block ids `0..len`. Two edges between the same blocks count twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cfg<B = usize> {
    entry: B,
    succs: Vec<Vec<B>>,
    preds: Vec<Vec<B>>,
}

impl<B: Entity> Cfg<B> {
    /// A graph with `len` blocks; every edge's ends and `entry` are below `len`.
    ///
    /// # Panics
    /// If they are not: the caller numbered the blocks itself.
    pub fn new(len: usize, entry: B, edges: impl IntoIterator<Item = (B, B)>) -> Self {
        assert!(
            entry.index() < len,
            "the entry {entry:?} is not one of {len} blocks"
        );
        let mut cfg = Cfg {
            entry,
            succs: vec![Vec::new(); len],
            preds: vec![Vec::new(); len],
        };
        for (from, to) in edges {
            cfg.succs[from.index()].push(to);
            cfg.preds[to.index()].push(from);
        }
        cfg
    }
    /// How many blocks there are, reachable or not.
    pub fn len(&self) -> usize {
        self.succs.len()
    }
    /// Never true: there is an entry.
    pub fn is_empty(&self) -> bool {
        self.succs.is_empty()
    }
    /// Where control starts.
    pub fn entry(&self) -> B {
        self.entry
    }
    /// All blocks in number order.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = B> + ExactSizeIterator + use<B> {
        (0..self.succs.len()).map(B::new)
    }
    /// Where control can go from `b`, in the order the edges were given.
    pub fn succs(&self, b: B) -> &[B] {
        &self.succs[b.index()]
    }
    /// Where control can come from.
    pub fn preds(&self, b: B) -> &[B] {
        &self.preds[b.index()]
    }
    /// The blocks that the entry reaches, each after its successors (except along back edges).
    pub fn post_order(&self) -> Vec<B> {
        let mut order = Vec::with_capacity(self.len());
        let mut seen = BitSet::with_capacity(self.len());
        let mut stack = vec![(self.entry, 0)];
        seen.insert(self.entry);
        while let Some((block, next)) = stack.last_mut() {
            match self.succs[block.index()].get(*next) {
                Some(&succ) => {
                    *next += 1;
                    if seen.insert(succ) {
                        stack.push((succ, 0));
                    }
                }
                None => {
                    order.push(*block);
                    stack.pop();
                }
            }
        }
        order
    }
    /// The blocks that the entry reaches, each before its successors (except along back edges).
    /// Starts with the entry.
    pub fn reverse_post_order(&self) -> Vec<B> {
        let mut order = self.post_order();
        order.reverse();
        order
    }
    /// The blocks that the entry reaches, as a set.
    pub fn reachable(&self) -> BitSet<B> {
        self.post_order().into_iter().collect()
    }
}
