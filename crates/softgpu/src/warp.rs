//! A warp: register rows, per-lane call stacks and local memory, and the groups its lanes have
//! split into. Lanes of a group share a program counter and run together; groups that meet at the
//! same place of the same frame merge.

use std::cell::Cell;

use crate::op::operand::{CONSTANT, Row};
use crate::patience::Patience;
use crate::position::Position;
use crate::program::Program;
use crate::rng::Rng;

/// One row: a register of all lanes.
pub(crate) type Lanes = [Cell<u64>; 32];

/// What keeps a group from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Waits at a warp-synchronous instruction for other lanes of its mask.
    Converge,
    /// Waits at `bar.warp.sync` for the lanes of the mask, wherever they stand.
    WarpSync(u32),
    /// Waits at a block barrier.
    Barrier(u32),
    /// Waits for the cluster.
    Cluster,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub mask: u32,
    pub at: Position,
    pub state: State,
}

/// A caller to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub at: Position,
    /// Caller's instruction that made the call, to copy results by.
    pub call: u32,
    /// Words of the lane's dynamic stack that the caller had.
    pub dynamic: u32,
}

/// A warp of up to 32 threads.
#[derive(Default)]
pub(crate) struct Warp {
    pub index: u32,
    /// Lanes that exist and have not exited.
    pub live: u32,
    /// Thread coordinates per lane.
    pub tid: [[u32; 32]; 3],
    pub groups: Vec<Group>,
    pub rows: Vec<Lanes>,
    pub stacks: Vec<Vec<Frame>>,
    /// Local memory per lane, in words of 8 bytes; it ends where the innermost frame ends.
    pub local: Vec<Vec<Cell<u64>>>,
    /// What `alloca` gave, per lane, in words of 8 bytes; see `stack.rs`.
    pub dynamic: Vec<Vec<Cell<u64>>>,
    /// Group that a used-up time slice passes the turn to: fairness among diverged groups.
    turn: u32,
    /// The last slice ended among diverged groups: another one starts the next.
    pub owes_turn: bool,
    /// Of groups that stand where others will come by.
    pub patience: Patience,
    /// Phase of the cluster barrier at which each lane arrived.
    pub cluster_phase: [u32; 32],
}

impl Warp {
    #[inline(always)]
    pub(crate) fn row(&self, base: u32, row: Row) -> &Lanes {
        let index = if row & CONSTANT != 0 {
            row & !CONSTANT
        } else {
            base + row
        };
        &self.rows[index as usize]
    }

    /// Makes room for a frame and clears its rows for the lanes of `mask`: a register never holds
    /// what an earlier block or call left.
    pub(crate) fn open_frame(&mut self, base: u32, rows: u32, local: u32, bytes: u32, mask: u32) {
        let end = (base + rows) as usize;
        if self.rows.len() < end {
            self.rows.resize_with(end, || [const { Cell::new(0) }; 32]);
        }
        for row in &self.rows[base as usize..end] {
            if mask == u32::MAX {
                row.iter().for_each(|cell| cell.set(0));
            } else {
                lanes(mask).for_each(|lane| row[lane].set(0));
            }
        }
        if bytes > 0 {
            if self.local.is_empty() {
                self.local.resize_with(32, Vec::new);
            }
            for lane in lanes(mask) {
                let memory = &mut self.local[lane];
                memory.truncate(local as usize / 8);
                memory.resize_with((local + bytes) as usize / 8, || const { Cell::new(0) });
            }
        }
    }

    /// Merges groups that stand at the same place. A waiting group that is joined is ready again:
    /// it looks anew.
    pub(crate) fn merge(&mut self) {
        let mut i = 0;
        while i < self.groups.len() {
            let mut j = i + 1;
            while j < self.groups.len() {
                let (a, b) = (self.groups[i], self.groups[j]);
                let mergeable = |s: State| matches!(s, State::Ready | State::Converge);
                if a.at == b.at && mergeable(a.state) && mergeable(b.state) {
                    self.groups[i].mask |= b.mask;
                    self.groups[i].state = State::Ready;
                    self.groups.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// The ready group to run: the one deepest in calls and furthest back, so that the others are
    /// caught up with, of those that no other group comes by.
    pub(crate) fn pick(&mut self, program: &Program) -> Option<usize> {
        if self.groups.len() == 1 {
            return (self.groups[0].state == State::Ready).then_some(0);
        }
        self.merge();
        let ready = |i: &usize| self.groups[*i].state == State::Ready;
        let order = |i: &usize| {
            let at = self.groups[*i].at;
            (
                std::cmp::Reverse(at.base),
                at.function,
                at.pc,
                std::cmp::Reverse(at.local),
            )
        };
        let all = || (0..self.groups.len()).filter(ready);
        let first = all().min_by_key(order)?;
        if !self.is_held(program, first) {
            return Some(first);
        }
        let free = all().filter(|&i| !self.is_held(program, i));
        free.min_by_key(order).or(Some(first))
    }

    /// Any ready group but the one that just used up its slice, in turn. Groups that others will
    /// come by have none, unless the others get nowhere without them; the flag tells that it is one
    /// of those.
    pub(crate) fn pick_other(&mut self, program: &Program) -> Option<(usize, bool)> {
        self.merge();
        let n = self.groups.len();
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn as usize;
        let in_turn = (0..n).map(|i| (turn + i) % n);
        let in_turn = in_turn.filter(|&i| self.groups[i].state == State::Ready);
        let (held, free): (Vec<usize>, Vec<usize>) =
            in_turn.partition(|&i| self.is_held(program, i));
        let their_turn = !held.is_empty() && self.patience.ends();
        if held.is_empty() || their_turn {
            self.patience = Patience::default();
        }
        let held = held.first().map(|&i| (i, true));
        let free = free.first().map(|&i| (i, false));
        if their_turn {
            held.or(free)
        } else {
            free.or(held)
        }
    }

    /// Another ready group will come by where this one stands.
    pub(crate) fn is_held(&self, program: &Program, i: usize) -> bool {
        let here = self.groups[i].at;
        let others = self.groups.iter().enumerate();
        let mut others = others.filter(|&(j, g)| j != i && g.state == State::Ready);
        others.any(|(_, other)| {
            let at = other.at;
            let there = if at.base == here.base {
                at
            } else {
                // Where it goes on when it has returned from the functions that it is in.
                let lane = other.mask.trailing_zeros() as usize & 31;
                let frames = self.stacks.get(lane).into_iter().flatten();
                match frames.rev().find(|frame| frame.at.base == here.base) {
                    Some(frame) => frame.at,
                    None => return false,
                }
            };
            let same = (there.function, there.local) == (here.function, here.local);
            let returns_here = at.base != here.base && there.pc == here.pc;
            let joins = || program.functions[here.function as usize].joins();
            same && (returns_here || joins().comes_by(here.pc, there.pc))
        })
    }

    /// A group went back to an earlier instruction, while others may be held.
    pub(crate) fn went_back(&mut self, program: &Program, running: usize) {
        if !self.patience.is_tried() {
            return;
        }
        let Group { mask, at, .. } = self.groups[running];
        let rows = program.functions[at.function as usize].rows;
        let mut patience = std::mem::take(&mut self.patience);
        let state = || {
            let rows = (0..rows).map(|row| self.row(at.base, row));
            let values = rows.flat_map(|row| lanes(mask).map(move |lane| row[lane].get()));
            // Any mixing will do: two states that look alike cost a turn.
            values.fold(0u64, |sum, value| {
                (sum ^ value)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(23)
            })
        };
        patience.look((at, mask), state);
        self.patience = patience;
    }

    /// A random ready group, without merging what has met most of the time (schedule stress).
    pub(crate) fn pick_random(&mut self, rng: &mut Rng) -> Option<usize> {
        if rng.below(4) == 0 || self.groups.iter().all(|g| g.state != State::Ready) {
            self.merge();
        }
        let n = self.groups.len();
        if n == 0 {
            return None;
        }
        let start = rng.below(n as u32) as usize;
        (0..n)
            .map(|i| (start + i) % n)
            .find(|&i| self.groups[i].state == State::Ready)
    }

    /// The next place at which another group of the same frame stands, which a group running on
    /// from `at` would meet.
    pub(crate) fn meeting(&self, running: usize) -> u32 {
        let at = self.groups[running].at;
        let others = self.groups.iter().enumerate().filter(|&(i, g)| {
            i != running
                && g.at.base == at.base
                && g.at.function == at.function
                && g.at.local == at.local
        });
        others
            .map(|(_, g)| g.at.pc)
            .filter(|&pc| pc > at.pc)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// After lanes exited: groups that waited for them look anew.
    pub(crate) fn wake_waiting(&mut self) {
        for group in &mut self.groups {
            if matches!(group.state, State::Converge | State::WarpSync(_)) {
                group.state = State::Ready;
            }
        }
    }
}

/// The lanes of a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

/// Calls `f` for each lane of the mask; the whole warp is the case worth a plain loop.
#[inline(always)]
pub(crate) fn for_lanes(mask: u32, mut f: impl FnMut(usize)) {
    if mask == u32::MAX {
        for lane in 0..32 {
            f(lane);
        }
    } else {
        for lane in lanes(mask) {
            f(lane);
        }
    }
}
