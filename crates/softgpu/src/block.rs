//! A block in flight: its warps, shared memory and barriers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::op::operand::NOWHERE;
use crate::op::{BarrierKind, Op};
use crate::program::Program;
use crate::warp::{State, Warp, lanes};

/// Shared memory of one block. A cluster runs on one host thread, so nothing here needs to be an
/// atomic.
pub(crate) struct Shared {
    words: Vec<Cell<u64>>,
    bytes: u32,
}

impl Shared {
    pub(crate) fn new(bytes: u32) -> Shared {
        Shared {
            words: vec![Cell::new(0); bytes.div_ceil(8) as usize],
            bytes,
        }
    }

    /// Pointer to `bytes` at `offset`, if they are inside.
    #[inline]
    pub(crate) fn get(&self, offset: u64, bytes: u32) -> Option<*mut u8> {
        let fits =
            offset <= u64::from(self.bytes) && u64::from(bytes) <= u64::from(self.bytes) - offset;
        fits.then(|| {
            self.words
                .as_ptr()
                .cast::<u8>()
                .cast_mut()
                .wrapping_add(offset as usize)
        })
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// What instructions see of their block.
pub(crate) struct Env {
    pub ctaid: [u32; 3],
    /// Number of the block in the grid, x fastest.
    pub linear: u64,
    /// Rank in the cluster.
    pub rank: u32,
    pub sm: u32,
    /// Shared memory of every block of the cluster, by rank.
    pub cluster: Rc<[Shared]>,
    /// `barrier.cluster`: shared by the cluster's blocks.
    pub cluster_barrier: Rc<RefCell<ClusterBarrier>>,
    /// What the block printed.
    pub printed: RefCell<Vec<u8>>,
}

impl Env {
    pub(crate) fn shared(&self) -> &Shared {
        &self.cluster[self.rank as usize]
    }
}

/// Arrivals at `barrier.cluster`.
#[derive(Default)]
pub(crate) struct ClusterBarrier {
    pub arrived: u32,
    pub phase: u32,
    /// Threads of the cluster that have not exited.
    pub live: u32,
}

impl ClusterBarrier {
    /// Ends the phase if every live thread has arrived.
    pub(crate) fn settle(&mut self) {
        if self.arrived >= self.live && self.arrived > 0 {
            self.arrived = 0;
            self.phase = self.phase.wrapping_add(1);
        }
    }
}

/// One of the block's 16 barriers.
#[derive(Clone, Copy, Default)]
struct BarrierState {
    arrived: u32,
    /// Threads that take part; 0 for all that live.
    expected: u32,
    ones: u32,
    zeroes: u32,
    in_use: bool,
}

/// The block barriers; separate from the warps so that a warp taken out for running can arrive.
#[derive(Default)]
pub(crate) struct Barriers {
    states: [BarrierState; 16],
    /// Live threads of the block.
    pub live: u32,
}

/// Threads of a block do not agree how many of them a barrier is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "threads meet at barrier {id} with different thread counts, {first} and {other} (0: the whole block)"
)]
pub(crate) struct Mismatch {
    id: u32,
    first: u32,
    other: u32,
}

impl Barriers {
    pub(crate) fn new(live: u32) -> Barriers {
        Barriers {
            live,
            ..Barriers::default()
        }
    }

    /// Notes an arrival of `threads`, of which so many had a false and a true predicate; true if
    /// the barrier is complete now.
    pub(crate) fn arrive(
        &mut self,
        id: u32,
        threads: u32,
        [zeroes, ones]: [u32; 2],
        expected: u32,
    ) -> Result<bool, Mismatch> {
        let state = &mut self.states[id as usize];
        if state.in_use && state.expected != expected {
            return Err(Mismatch {
                id,
                first: state.expected,
                other: expected,
            });
        }
        state.in_use = true;
        state.expected = expected;
        state.arrived = state.arrived.saturating_add(threads);
        state.ones += ones;
        state.zeroes += zeroes;
        Ok(self.complete(id))
    }

    pub(crate) fn complete(&self, id: u32) -> bool {
        let state = &self.states[id as usize];
        state.in_use
            && state.arrived
                >= if state.expected == 0 {
                    self.live
                } else {
                    state.expected
                }
    }

    /// Barriers that are complete because threads exited.
    pub(crate) fn completed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..16).filter(|&id| self.complete(id))
    }

    /// Lets the waiting groups of `warps` go on and resets the barrier.
    pub(crate) fn release<'w>(
        &mut self,
        id: u32,
        warps: impl Iterator<Item = &'w mut Warp>,
        program: &Program,
    ) {
        let state = std::mem::take(&mut self.states[id as usize]);
        for warp in warps {
            for i in 0..warp.groups.len() {
                let group = warp.groups[i];
                if group.state != State::Barrier(id) {
                    continue;
                }
                let inst =
                    &program.functions[group.at.function as usize].code[group.at.pc as usize];
                if let Op::Barrier(barrier) = &inst.op {
                    let (d, value) = match barrier.kind {
                        BarrierKind::Popc { d, .. } => (d, state.ones),
                        BarrierKind::And { d, .. } => (d, u32::from(state.zeroes == 0)),
                        BarrierKind::Or { d, .. } => (d, u32::from(state.ones > 0)),
                        BarrierKind::Sync | BarrierKind::Arrive => (NOWHERE, 0),
                    };
                    if d != NOWHERE {
                        let row = warp.row(group.at.base, d);
                        lanes(group.mask).for_each(|lane| row[lane].set(u64::from(value)));
                    }
                }
                let group = &mut warp.groups[i];
                group.state = State::Ready;
                group.at.pc += 1;
            }
        }
    }
}

/// A resident block.
pub(crate) struct Block {
    pub env: Env,
    pub warps: Vec<Warp>,
    pub barriers: Barriers,
}
