//! Dominators: which blocks every path to a block goes through. SSA construction and loop finding
//! ask.
//!
//! Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001): probe programs are
//! small, and the simple algorithm wins there.

use crate::bitset::BitSet;
use crate::cfg::Cfg;
use crate::entity::Entity;

const UNREACHED: u32 = u32::MAX;

/// The dominator tree of the blocks that the entry reaches.
#[derive(Clone, Debug)]
pub struct DomTree<B = usize> {
    /// Immediate dominator by block; the entry's is itself.
    idom: Vec<Option<B>>,
    children: Vec<Vec<B>>,
    /// Pre-order interval in the tree: a block dominates those whose number lies in its interval.
    enter: Vec<u32>,
    leave: Vec<u32>,
    pre_order: Vec<B>,
}

impl<B: Entity> DomTree<B> {
    /// Computes the tree.
    pub fn new(cfg: &Cfg<B>) -> Self {
        let order = cfg.reverse_post_order();
        let mut number = vec![UNREACHED; cfg.len()];
        for (i, b) in order.iter().enumerate() {
            number[b.index()] = i as u32;
        }
        // In RPO numbers; the entry has number 0 and is its own dominator while the search runs.
        let mut doms = vec![UNREACHED; order.len()];
        doms[0] = 0;
        let mut changed = true;
        while changed {
            changed = false;
            for (i, &b) in order.iter().enumerate().skip(1) {
                let mut new = UNREACHED;
                for &pred in cfg.preds(b) {
                    let p = number[pred.index()];
                    if p == UNREACHED || doms[p as usize] == UNREACHED {
                        continue;
                    }
                    new = if new == UNREACHED {
                        p
                    } else {
                        meet(&doms, new, p)
                    };
                }
                if doms[i] != new {
                    doms[i] = new;
                    changed = true;
                }
            }
        }
        let mut tree = DomTree {
            idom: vec![None; cfg.len()],
            children: vec![Vec::new(); cfg.len()],
            enter: vec![UNREACHED; cfg.len()],
            leave: vec![0; cfg.len()],
            pre_order: Vec::with_capacity(order.len()),
        };
        for (i, &b) in order.iter().enumerate().skip(1) {
            let parent = order[doms[i] as usize];
            tree.idom[b.index()] = Some(parent);
            tree.children[parent.index()].push(b);
        }
        tree.number(cfg.entry());
        tree
    }

    fn number(&mut self, root: B) {
        let mut stack = vec![(root, 0)];
        self.open(root);
        while let Some((block, next)) = stack.last_mut() {
            match self.children[block.index()].get(*next) {
                Some(&child) => {
                    *next += 1;
                    stack.push((child, 0));
                    self.open(child);
                }
                None => {
                    self.leave[block.index()] = self.pre_order.len() as u32;
                    stack.pop();
                }
            }
        }
    }

    fn open(&mut self, b: B) {
        self.enter[b.index()] = self.pre_order.len() as u32;
        self.pre_order.push(b);
    }

    /// The closest strict dominator; `None` for the entry and for blocks that it does not reach.
    pub fn idom(&self, b: B) -> Option<B> {
        self.idom[b.index()]
    }
    /// The blocks whose immediate dominator is `b`.
    pub fn children(&self, b: B) -> &[B] {
        &self.children[b.index()]
    }
    /// The entry reaches the block.
    pub fn is_reachable(&self, b: B) -> bool {
        self.enter[b.index()] != UNREACHED
    }
    /// Every path from the entry to `b` goes through `a`; a block dominates itself. False if either
    /// is unreachable.
    pub fn dominates(&self, a: B, b: B) -> bool {
        let at = self.enter[b.index()];
        self.is_reachable(a)
            && at != UNREACHED
            && self.enter[a.index()] <= at
            && at < self.leave[a.index()]
    }
    /// Reachable blocks, each after its dominators.
    pub fn pre_order(&self) -> &[B] {
        &self.pre_order
    }
    /// Dominance frontier of each block by its number: the blocks where its dominance ends, where
    /// SSA needs phis.
    pub fn frontiers(&self, cfg: &Cfg<B>) -> Vec<BitSet<B>> {
        let mut frontiers = vec![BitSet::new(); cfg.len()];
        for &b in &self.pre_order {
            for &pred in cfg.preds(b) {
                if !self.is_reachable(pred) {
                    continue;
                }
                let mut runner = Some(pred);
                while let Some(r) = runner {
                    if Some(r) == self.idom(b) {
                        break;
                    }
                    frontiers[r.index()].insert(b);
                    runner = self.idom(r);
                }
            }
        }
        frontiers
    }
}

/// The closest common dominator of two blocks, in RPO numbers: a dominator's number is smaller.
fn meet(doms: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while a > b {
            a = doms[a as usize];
        }
        while b > a {
            b = doms[b as usize];
        }
    }
    a
}
