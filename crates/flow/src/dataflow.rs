//! One worklist solver for every dataflow analysis: an analysis says what a block does to a fact
//! and how facts meet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cfg::Cfg;
use crate::entity::Entity;

/// Which way facts flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the entry along the edges.
    Forward,
    /// From the exits against the edges.
    Backward,
}

/// An analysis. `Fact` is a lattice of finite height (or [`join`](Self::join) widens), `join` goes
/// up, and [`transfer`](Self::transfer) is monotone; then [`solve`] ends with the least solution.
pub trait Analysis<B> {
    /// What is known at a point.
    type Fact: Clone;
    /// Which way facts flow.
    const DIRECTION: Direction;

    /// What is known where nothing has flowed yet.
    fn bottom(&self) -> Self::Fact;
    /// What is known where facts start: at the entry, or (backward) at the end of a block without
    /// successors.
    fn boundary(&self) -> Self::Fact;
    /// Adds `from` to `into`; true if `into` changed.
    fn join(&self, into: &mut Self::Fact, from: &Self::Fact) -> bool;
    /// Takes `fact` through the block, in the direction of flow.
    fn transfer(&self, block: B, fact: &mut Self::Fact);
}

/// What holds before and after each block, by number, in **program order** whatever the direction
/// of flow. A block that the entry does not reach keeps [`Analysis::bottom`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution<F> {
    /// At the start of each block.
    pub before: Vec<F>,
    /// At its end.
    pub after: Vec<F>,
}

/// Solves an analysis over the blocks that the entry reaches.
pub fn solve<B: Entity, A: Analysis<B>>(cfg: &Cfg<B>, analysis: &A) -> Solution<A::Fact> {
    let order = match A::DIRECTION {
        Direction::Forward => cfg.reverse_post_order(),
        Direction::Backward => cfg.post_order(),
    };
    let mut position = vec![usize::MAX; cfg.len()];
    for (i, b) in order.iter().enumerate() {
        position[b.index()] = i;
    }
    // `inputs` is where the transfer starts, `outputs` where it ends.
    let mut inputs = vec![analysis.bottom(); cfg.len()];
    let mut outputs = inputs.clone();
    for &b in &order {
        let starts = match A::DIRECTION {
            Direction::Forward => b == cfg.entry(),
            Direction::Backward => cfg.succs(b).is_empty(),
        };
        if starts {
            analysis.join(&mut inputs[b.index()], &analysis.boundary());
        }
    }
    // Smallest position first: a block is visited after what flows into it, except around a loop.
    let mut work: BinaryHeap<Reverse<usize>> = (0..order.len()).map(Reverse).collect();
    let mut queued = vec![true; order.len()];
    while let Some(Reverse(i)) = work.pop() {
        queued[i] = false;
        let block = order[i];
        let mut fact = inputs[block.index()].clone();
        analysis.transfer(block, &mut fact);
        let next = match A::DIRECTION {
            Direction::Forward => cfg.succs(block),
            Direction::Backward => cfg.preds(block),
        };
        for &to in next {
            let at = position[to.index()];
            if at != usize::MAX && analysis.join(&mut inputs[to.index()], &fact) && !queued[at] {
                queued[at] = true;
                work.push(Reverse(at));
            }
        }
        outputs[block.index()] = fact;
    }
    match A::DIRECTION {
        Direction::Forward => Solution {
            before: inputs,
            after: outputs,
        },
        Direction::Backward => Solution {
            before: outputs,
            after: inputs,
        },
    }
}
