//! Where lanes that went different ways meet again: the places that every way to a function's end
//! comes by. A GPU's lanes wait there for those that are still on their way, and so do ours: else a
//! kernel would seem to diverge where it does not.

use warpbpf_flow::{Cfg, DomTree};

use crate::op::operand::NOWHERE;
use crate::op::{Inst, Op};

/// The places of one function.
#[derive(Debug)]
pub(crate) struct Joins {
    /// Straight piece of code by instruction.
    pieces: Box<[u32]>,
    /// Of the reversed graph: a piece dominates those from which every way to the end comes by.
    tree: DomTree,
}

impl Joins {
    pub(crate) fn new(code: &[Inst]) -> Joins {
        let mut starts = vec![false; code.len()];
        let mut mark = |at: usize| {
            if let Some(start) = starts.get_mut(at) {
                *start = true;
            }
        };
        mark(0);
        for (at, inst) in code.iter().enumerate() {
            let targets = targets(&inst.op);
            targets.iter().for_each(|&target| mark(target as usize));
            if !targets.is_empty() || ends(inst) {
                mark(at + 1);
            }
        }
        let mut piece = 0;
        let number = |(at, &start): (usize, &bool)| {
            piece += u32::from(start && at > 0);
            piece
        };
        let pieces: Box<[u32]> = starts.iter().enumerate().map(number).collect();
        let end = pieces.last().map_or(0, |&last| last as usize + 1);
        let mut edges = Vec::new();
        for (at, inst) in code.iter().enumerate() {
            let last = pieces.get(at + 1) != Some(&pieces[at]);
            if !last {
                continue;
            }
            let from = pieces[at] as usize;
            for &target in targets(&inst.op) {
                let to = pieces.get(target as usize).map_or(end, |&to| to as usize);
                edges.push((to, from));
            }
            let jumps = inst.guard == NOWHERE && !targets(&inst.op).is_empty();
            match pieces.get(at + 1) {
                Some(&next) if !jumps && !ends(inst) => edges.push((next as usize, from)),
                _ if jumps => {}
                _ => edges.push((end, from)),
            }
        }
        let tree = DomTree::new(&Cfg::new(end + 1, end, edges));
        Joins { pieces, tree }
    }

    /// Whoever is at `there` comes by `here` later, unless it exits, traps or never ends.
    pub(crate) fn comes_by(&self, here: u32, there: u32) -> bool {
        let piece = |at: u32| self.pieces.get(at as usize).map(|&piece| piece as usize);
        match (piece(here), piece(there)) {
            (Some(a), Some(b)) if a == b => here > there,
            (Some(a), Some(b)) => self.tree.dominates(a, b),
            _ => false,
        }
    }
}

fn targets(op: &Op) -> &[u32] {
    match op {
        Op::Branch { target } => std::slice::from_ref(target),
        Op::BranchIndex { targets, .. } => targets,
        _ => &[],
    }
}

/// Nothing of the function follows for whoever executes it. Lanes that a guard lets leave are
/// waited for by nobody.
fn ends(inst: &Inst) -> bool {
    inst.guard == NOWHERE && matches!(inst.op, Op::Return | Op::Exit | Op::Trap)
}
