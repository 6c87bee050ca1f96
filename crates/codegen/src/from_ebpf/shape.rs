//! The blocks of a function.

use std::collections::BTreeMap;

use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::{Code, Insn, Pc};
use warpbpf_flow::Cfg;
use warpbpf_verify::{InsnFact, Instance};

use crate::error::CodegenError;

/// Blocks of one function: only what the proof reaches.
pub(super) struct Shape {
    /// First instruction of each block; the function's own is first.
    pub starts: Vec<Pc>,
    index: BTreeMap<Pc, usize>,
    pub graph: Cfg<usize>,
}

impl Shape {
    pub fn new(code: &Code, instance: &Instance) -> Result<Shape, CodegenError> {
        let missing = |pc, expected| CodegenError::MissingFact { pc, expected };
        // Leaders in the order of discovery: the entry first.
        let mut starts = vec![instance.start];
        let mut index = BTreeMap::from([(instance.start, 0)]);
        let mut note = |pc: Pc| {
            index.entry(pc).or_insert_with(|| {
                starts.push(pc);
                starts.len() - 1
            });
        };
        for i in instance.start.0..instance.end.0 {
            let pc = Pc(i);
            if *instance.at(pc) == InsnFact::Dead {
                continue;
            }
            for to in successors(code.at(pc), instance.at(pc), pc)
                .into_iter()
                .flatten()
            {
                if to < instance.start || to >= instance.end {
                    return Err(missing(pc, "a jump that stays in its function"));
                }
                note(to);
            }
        }
        let mut edges = Vec::new();
        for (block, &start) in starts.iter().enumerate() {
            let mut pc = start;
            loop {
                // What follows a call that never returns is dead.
                if pc >= instance.end || *instance.at(pc) == InsnFact::Dead {
                    break;
                }
                let (insn, fact) = (code.at(pc), instance.at(pc));
                let next = successors(insn, fact, pc);
                if next.iter().any(Option::is_some) {
                    for to in next.into_iter().flatten() {
                        let Some(&to) = index.get(&to) else {
                            return Err(missing(pc, "a reachable target"));
                        };
                        edges.push((block, to));
                    }
                    break;
                }
                if matches!(insn, Insn::Exit) || ends_thread(fact) || goes_nowhere(fact) {
                    break;
                }
                pc = pc.next();
                if let Some(&next) = index.get(&pc) {
                    edges.push((block, next));
                    break;
                }
            }
        }
        let graph = Cfg::new(starts.len(), 0, edges);
        Ok(Shape {
            starts,
            index,
            graph,
        })
    }

    pub fn block_at(&self, pc: Pc) -> Option<usize> {
        self.index.get(&pc).copied()
    }
}

/// A helper call that nothing comes after, even where another path reaches the next instruction.
fn ends_thread(fact: &InsnFact) -> bool {
    matches!(fact, InsnFact::Call(call) if call.helper == HelperId::GpuExit)
}

/// A branch of which neither side can be taken: no run comes there.
pub(super) fn goes_nowhere(fact: &InsnFact) -> bool {
    matches!(
        fact,
        InsnFact::Branch {
            taken: false,
            falls: false,
            ..
        }
    )
}

/// Where a jump can go; empty for what just falls through, and for exits.
pub(super) fn successors(insn: &Insn, fact: &InsnFact, pc: Pc) -> [Option<Pc>; 2] {
    match (insn, fact) {
        (Insn::Jump { target, .. }, InsnFact::Branch { taken, falls, .. }) => {
            [taken.then_some(*target), falls.then_some(pc.next())]
        }
        (Insn::Goto { target, .. }, _) => [Some(*target), None],
        (Insn::MayGoto { target }, InsnFact::Branch { taken, falls, .. }) => {
            [taken.then_some(*target), falls.then_some(pc.next())]
        }
        (Insn::MayGoto { target }, _) => [Some(*target), Some(pc.next())],
        _ => [None, None],
    }
}
