//! The order of blocks of a [`Func`], as passes ask for it.

use warpbpf_flow::{Cfg, DomTree, Entity};

use crate::ir::{Block, Func};

/// Predecessors, order and dominators. Stale as soon as an edge changes.
pub struct Flow {
    /// The graph. A branch with both sides to one block has two edges.
    pub graph: Cfg<Block>,
    /// Reachable blocks, each before those it dominates.
    pub order: Vec<Block>,
    /// Dominators.
    pub dominators: DomTree<Block>,
}

impl Flow {
    /// Looks at `func`.
    pub fn new(func: &Func) -> Flow {
        let edges = func.blocks.iter().enumerate().flat_map(|(from, block)| {
            block
                .term
                .edges()
                .map(move |edge| (Block::new(from), edge.to))
        });
        let graph = Cfg::new(func.blocks.len(), Block::ENTRY, edges);
        let order = graph.reverse_post_order();
        let dominators = DomTree::new(&graph);
        Flow {
            graph,
            order,
            dominators,
        }
    }

    /// The reachable predecessors of `block`, one per edge.
    pub fn preds(&self, block: Block) -> impl Iterator<Item = Block> {
        self.graph
            .preds(block)
            .iter()
            .copied()
            .filter(|b| self.dominators.is_reachable(*b))
    }

    /// By block: a way leads back to it, be it into a loop of several entries.
    pub fn loop_heads(&self) -> Vec<bool> {
        let mut place = vec![usize::MAX; self.graph.len()];
        for (i, block) in self.order.iter().enumerate() {
            place[block.index()] = i;
        }
        let mut heads = vec![false; place.len()];
        for &block in &self.order {
            let own = place[block.index()];
            heads[block.index()] = self.preds(block).any(|pred| place[pred.index()] >= own);
        }
        heads
    }
}
