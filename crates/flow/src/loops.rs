//! Natural loops: a header, the edges that jump back to it, and the blocks between.

use crate::bitset::BitSet;
use crate::cfg::Cfg;
use crate::dom::DomTree;
use crate::entity::{Entity, EntityMap};

crate::entity! {
    /// A natural loop.
    pub struct LoopId, "loop"
}

/// A natural loop; loops that share a header are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop<B: Entity = usize> {
    /// The block that dominates the others.
    pub header: B,
    /// Blocks inside with an edge to the header, in number order.
    pub latches: Vec<B>,
    /// All blocks, the header included.
    pub blocks: BitSet<B>,
    /// The smallest loop around this one.
    pub parent: Option<LoopId>,
    /// 1 for an outermost loop.
    pub depth: u32,
}

/// All natural loops of a graph.
#[derive(Clone, Debug)]
pub struct Loops<B: Entity = usize> {
    loops: EntityMap<LoopId, Loop<B>>,
    innermost: Vec<Option<LoopId>>,
    irreducible: Vec<(B, B)>,
}

impl<B: Entity> Loops<B> {
    /// Finds them.
    pub fn new(cfg: &Cfg<B>, dom: &DomTree<B>) -> Self {
        let order = cfg.reverse_post_order();
        let mut position = vec![0; cfg.len()];
        for (i, b) in order.iter().enumerate() {
            position[b.index()] = i;
        }
        let mut found: Vec<Loop<B>> = Vec::new();
        let mut irreducible = Vec::new();
        for &header in &order {
            let mut latches = Vec::new();
            for &pred in cfg.preds(header) {
                if !dom.is_reachable(pred) {
                    continue;
                }
                if dom.dominates(header, pred) {
                    latches.push(pred);
                } else if position[pred.index()] >= position[header.index()] {
                    irreducible.push((pred, header));
                }
            }
            if latches.is_empty() {
                continue;
            }
            latches.sort_unstable();
            latches.dedup();
            let blocks = body(cfg, dom, header, &latches);
            found.push(Loop {
                header,
                latches,
                blocks,
                parent: None,
                depth: 0,
            });
        }
        // Outer before inner: an inner loop has fewer blocks. The sort is stable, so the order is
        // the same every run.
        found.sort_by_key(|l| std::cmp::Reverse(l.blocks.len()));
        let mut innermost = vec![None; cfg.len()];
        let mut loops: EntityMap<LoopId, Loop<B>> = EntityMap::new();
        for mut l in found {
            l.parent = innermost[l.header.index()];
            l.depth = l.parent.map_or(1, |p| loops[p].depth + 1);
            let blocks = l.blocks.clone();
            let id = loops.push(l);
            for b in blocks.iter() {
                innermost[b.index()] = Some(id);
            }
        }
        Loops {
            loops,
            innermost,
            irreducible,
        }
    }
    /// The loops, an outer one before those inside it.
    pub fn iter(&self) -> impl Iterator<Item = (LoopId, &Loop<B>)> {
        self.loops.iter()
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.loops.len()
    }
    /// No loops.
    pub fn is_empty(&self) -> bool {
        self.loops.is_empty()
    }
    /// A loop by id.
    pub fn get(&self, id: LoopId) -> &Loop<B> {
        &self.loops[id]
    }
    /// The smallest loop that `b` is in.
    pub fn innermost(&self, b: B) -> Option<LoopId> {
        self.innermost[b.index()]
    }
    /// How many loops `b` is in.
    pub fn depth(&self, b: B) -> u32 {
        self.innermost(b).map_or(0, |l| self.loops[l].depth)
    }
    /// Edges that jump back to a block that does not dominate their start: cycles that are not
    /// natural loops.
    pub fn irreducible_edges(&self) -> &[(B, B)] {
        &self.irreducible
    }
}

fn body<B: Entity>(cfg: &Cfg<B>, dom: &DomTree<B>, header: B, latches: &[B]) -> BitSet<B> {
    let mut blocks = BitSet::with_capacity(cfg.len());
    blocks.insert(header);
    let mut work = latches.to_vec();
    while let Some(b) = work.pop() {
        if blocks.insert(b) {
            work.extend(
                cfg.preds(b)
                    .iter()
                    .copied()
                    .filter(|&p| dom.is_reachable(p)),
            );
        }
    }
    blocks
}
