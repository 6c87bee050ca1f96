//! Instructions that move groups: branches, exits, barriers and the meeting of lanes for
//! warp-synchronous work.

use crate::block::Block;
use crate::collective::{self, truths};
use crate::op::operand::{NOWHERE, Row};
use crate::op::{Barrier, BarrierKind, Collective, Inst, Op};
use crate::position::Position;
use crate::stack;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Group, State, Warp, lanes};
use crate::worker::{Flow, Worker};

impl Worker<'_> {
    /// Executes a control instruction for the lanes `active` (not empty) of the group.
    pub(crate) fn control(
        &mut self,
        block: &mut Block,
        warp: &mut Warp,
        running: usize,
        active: u32,
        inst: &Inst,
    ) -> Exec<Flow> {
        let group = warp.groups[running];
        let at = group.at;
        if let Op::Branch { target } = inst.op {
            if active == group.mask {
                return Ok(Flow::Go(target));
            }
            warp.groups[running] = Group {
                mask: group.mask & !active,
                at: Position {
                    pc: at.pc + 1,
                    ..at
                },
                ..group
            };
            warp.groups.push(Group {
                mask: active,
                at: Position { pc: target, ..at },
                ..group
            });
            return Ok(Flow::Choose);
        }
        let partly = active != group.mask;
        if partly {
            // The others pass by; whoever stays executes the instruction with a guard that holds
            // for all.
            let next = Position {
                pc: at.pc + 1,
                ..at
            };
            warp.groups.push(Group {
                mask: group.mask & !active,
                at: next,
                state: State::Ready,
            });
            warp.groups[running].mask = active;
        }
        let flow = match &inst.op {
            Op::BranchIndex { index, targets } => branch_index(warp, running, *index, targets),
            Op::Call(call) => self.call(block, warp, running, call),
            Op::Return => self.ret(block, warp, running),
            Op::Exit => {
                self.exit_lanes(block, warp, running);
                Ok(Flow::Choose)
            }
            Op::Barrier(barrier) => self.barrier(block, warp, running, barrier),
            Op::ClusterBarrier { wait, arrive } => {
                Ok(cluster_barrier(block, warp, running, *arrive, *wait))
            }
            Op::WarpSync { mask } => warp_sync(warp, running, *mask),
            Op::Collective(collective) => meet(warp, running, collective),
            Op::Matrix(matrix) => self.matrix(block, warp, running, matrix),
            Op::Allocate { d, size, align } => {
                stack::allocate(warp, at, active, [*d, *size], *align)?;
                Ok(Flow::Go(at.pc + 1))
            }
            Op::SaveStack { d } => {
                stack::save(warp, at, active, *d);
                Ok(Flow::Go(at.pc + 1))
            }
            Op::RestoreStack { s } => {
                stack::restore(warp, at, active, *s)?;
                Ok(Flow::Go(at.pc + 1))
            }
            Op::Sleep => {
                warp.groups[running].at.pc += 1;
                Ok(Flow::Yield)
            }
            Op::Branch { .. }
            | Op::Alu(_)
            | Op::Mov { .. }
            | Op::Not { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::Special { .. }
            | Op::FrameAddress { .. }
            | Op::Cvta { .. }
            | Op::IsSpace { .. }
            | Op::MapRank { .. }
            | Op::GetRank { .. }
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::WideAtomic(_)
            | Op::CopyAsync(_)
            | Op::AsyncStore(_)
            | Op::Image(_)
            | Op::Mbarrier(_)
            | Op::Bulk(_)
            | Op::Video(_)
            | Op::MultiplyAddVideo(_)
            | Op::ActiveMask { .. }
            | Op::Fence
            | Op::Nothing
            | Op::Trap
            | Op::Breakpoint
            | Op::Unsupported(_) => Ok(Flow::Go(at.pc + 1)),
        }?;
        Ok(match flow {
            // The group is not what the dispatch loop took it for.
            Flow::Go(pc) if partly => {
                warp.groups[running].at.pc = pc;
                Flow::Choose
            }
            flow => flow,
        })
    }

    /// The lanes of the group are done.
    pub(crate) fn exit_lanes(&mut self, block: &mut Block, warp: &mut Warp, running: usize) {
        let mask = warp.groups[running].mask;
        warp.groups.swap_remove(running);
        warp.live &= !mask;
        warp.wake_waiting();
        block.barriers.live -= mask.count_ones();
        {
            let mut cluster = block.env.cluster_barrier.borrow_mut();
            cluster.live -= mask.count_ones();
            cluster.settle();
        }
        if block.barriers.live > 0 {
            let completed: Vec<u32> = block.barriers.completed().collect();
            for id in completed {
                let all = block.warps.iter_mut().chain(std::iter::once(&mut *warp));
                block.barriers.release(id, all, self.run.program);
            }
        }
    }

    fn barrier(
        &mut self,
        block: &mut Block,
        warp: &mut Warp,
        running: usize,
        barrier: &Barrier,
    ) -> Exec<Flow> {
        let Group { mask, at, .. } = warp.groups[running];
        let lane = mask.trailing_zeros() as usize;
        let bad = |message: String| Err(Fault::new(lane as u32, TrapKind::InvalidSync, message));
        let id = warp.row(at.base, barrier.id)[lane].get() as u32;
        if id >= 16 {
            return bad(format!("barrier {id} does not exist: there are 16"));
        }
        let expected = match barrier.count {
            NOWHERE => 0,
            row => warp.row(at.base, row)[lane].get() as u32,
        };
        if barrier.count != NOWHERE && (expected == 0 || !expected.is_multiple_of(32)) {
            return bad(format!(
                "barrier {id} for {expected} threads: the count must be a positive multiple of 32"
            ));
        }
        let ones = match barrier.kind {
            BarrierKind::Popc { p, negated, .. }
            | BarrierKind::And { p, negated, .. }
            | BarrierKind::Or { p, negated, .. } => {
                truths(warp.row(at.base, p), mask, negated).count_ones()
            }
            BarrierKind::Sync | BarrierKind::Arrive => 0,
        };
        // With a count, lanes that never existed or exited count with the last of their warp.
        let waiting = warp.groups.iter().filter(|g| g.state == State::Barrier(id));
        let whole = waiting.fold(mask, |lanes, g| lanes | g.mask) == warp.live;
        let absent = if expected != 0 && whole {
            warp.live.count_zeros()
        } else {
            0
        };
        let threads = mask.count_ones() + absent;
        match block
            .barriers
            .arrive(id, threads, [mask.count_ones() - ones, ones], expected)
        {
            Ok(complete) => {
                if barrier.kind == BarrierKind::Arrive {
                    warp.groups[running].at.pc += 1;
                } else {
                    warp.groups[running].state = State::Barrier(id);
                }
                if complete {
                    let all = block.warps.iter_mut().chain(std::iter::once(&mut *warp));
                    block.barriers.release(id, all, self.run.program);
                }
                Ok(Flow::Choose)
            }
            Err(error) => bad(error.to_string()),
        }
    }
}

fn branch_index(warp: &mut Warp, running: usize, index: Row, targets: &[u32]) -> Exec<Flow> {
    let group = warp.groups[running];
    let row = warp.row(group.at.base, index);
    let first = row[group.mask.trailing_zeros() as usize & 31].get() as u32;
    let same = lanes(group.mask)
        .filter(|&l| row[l].get() as u32 == first)
        .fold(0u32, |bits, l| bits | 1 << l);
    let Some(&target) = targets.get(first as usize) else {
        let message = format!(
            "`brx.idx` with index {first}, but there are {} targets",
            targets.len()
        );
        return Err(Fault::new(
            group.mask.trailing_zeros(),
            TrapKind::InvalidCall,
            message,
        ));
    };
    if same == group.mask {
        return Ok(Flow::Go(target));
    }
    warp.groups[running].mask = group.mask & !same;
    warp.groups.push(Group {
        mask: same,
        at: Position {
            pc: target,
            ..group.at
        },
        ..group
    });
    Ok(Flow::Choose)
}

/// Executes a warp-synchronous instruction for every set of lanes that is complete and parks the
/// others.
fn meet(warp: &mut Warp, running: usize, op: &Collective) -> Exec<Flow> {
    let group = warp.groups[running];
    let at = group.at;
    if op.mask == NOWHERE {
        collective::execute(&op.what, warp, at, group.mask);
        return Ok(Flow::Go(at.pc + 1));
    }
    let mut rest = group.mask;
    let mut done = 0;
    while rest != 0 {
        let (member, same) = same_members(warp, at, op.mask, rest)?;
        if member & warp.live & !same == 0 {
            collective::execute(&op.what, warp, at, same);
            done |= same;
        }
        rest &= !same;
    }
    if done == group.mask {
        return Ok(Flow::Go(at.pc + 1));
    }
    warp.groups[running].mask = group.mask & !done;
    warp.groups[running].state = State::Converge;
    if done != 0 {
        warp.groups.push(Group {
            mask: done,
            at: Position {
                pc: at.pc + 1,
                ..at
            },
            state: State::Ready,
        });
    }
    Ok(Flow::Choose)
}

/// The member mask of the lowest lane of `set` and the lanes that give the same one.
fn same_members(warp: &Warp, at: Position, mask_row: Row, set: u32) -> Exec<(u32, u32)> {
    let row = warp.row(at.base, mask_row);
    let first = set.trailing_zeros();
    let member = row[first as usize & 31].get() as u32;
    if member >> (first & 31) & 1 == 0 {
        let message = format!(
            "lane {first} executes a warp-synchronous instruction with member mask {member:#010x}"
        );
        return Err(Fault::new(
            first,
            TrapKind::InvalidSync,
            message + ", which does not hold it",
        ));
    }
    let same = lanes(set)
        .filter(|&lane| row[lane].get() as u32 == member)
        .fold(0u32, |bits, lane| bits | 1 << lane);
    Ok((member, same))
}

/// `bar.warp.sync`: lanes may come from different places.
fn warp_sync(warp: &mut Warp, running: usize, mask_row: Row) -> Exec<Flow> {
    let group = warp.groups[running];
    let (member, same) = same_members(warp, group.at, mask_row, group.mask)?;
    if same != group.mask {
        warp.groups.push(Group {
            mask: group.mask & !same,
            ..group
        });
        warp.groups[running].mask = same;
    }
    warp.groups[running].state = State::WarpSync(member);
    let here = |g: &Group| g.state == State::WarpSync(member);
    let met = warp
        .groups
        .iter()
        .filter(|g| here(g))
        .fold(0u32, |bits, g| bits | g.mask);
    if member & warp.live & !met == 0 {
        for group in warp.groups.iter_mut().filter(|g| here(g)) {
            group.state = State::Ready;
            group.at.pc += 1;
        }
    }
    Ok(Flow::Choose)
}

/// `barrier.cluster`: a waiting group looks at the phase each time its block gets its turn.
fn cluster_barrier(
    block: &Block,
    warp: &mut Warp,
    running: usize,
    arrive: bool,
    wait: bool,
) -> Flow {
    let group = &mut warp.groups[running];
    let mut cluster = block.env.cluster_barrier.borrow_mut();
    if arrive {
        cluster.arrived += group.mask.count_ones();
        for lane in lanes(group.mask) {
            warp.cluster_phase[lane] = cluster.phase;
        }
        cluster.settle();
    }
    if wait && still_in(&warp.cluster_phase, group.mask, cluster.phase) {
        group.state = State::Cluster;
        return Flow::Choose;
    }
    group.at.pc += 1;
    Flow::Choose
}

/// A lane of `mask` arrived in `phase`, which has not ended. Each lane has its own: one part of a
/// warp may wait for the end of a phase that another part has left behind.
fn still_in(phases: &[u32; 32], mask: u32, phase: u32) -> bool {
    lanes(mask).any(|lane| phases[lane] == phase)
}

impl Block {
    /// Lets groups go on whose cluster phase has ended.
    pub(crate) fn wake_cluster(&mut self) {
        let phase = self.env.cluster_barrier.borrow().phase;
        for warp in &mut self.warps {
            let phases = &warp.cluster_phase;
            for group in warp.groups.iter_mut().filter(|g| g.state == State::Cluster) {
                if !still_in(phases, group.mask, phase) {
                    group.state = State::Ready;
                    group.at.pc += 1;
                }
            }
        }
    }
}
