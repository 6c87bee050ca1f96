//! The dispatch loop: runs a warp for a time slice, one group of lanes at a time.

use crate::block::Block;
use crate::op::operand::NOWHERE;
use crate::op::{Inst, Op};
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Group, State, Warp, for_lanes};
use crate::worker::{Flow, Slice, Stopped, Worker};

/// The group that begins a slice: that of a lane, and whether it runs although others will come by.
#[derive(Clone, Copy)]
struct Favourite {
    lane: u32,
    held: bool,
}

/// Lanes of `mask` whose guard holds.
#[inline]
fn guarded(warp: &Warp, base: u32, inst: &Inst, mask: u32) -> u32 {
    if inst.guard == NOWHERE {
        return mask;
    }
    let row = warp.row(base, inst.guard);
    let mut bits = 0u32;
    for (lane, cell) in row.iter().enumerate() {
        bits |= ((cell.get() & 1) as u32) << lane;
    }
    mask & if inst.negated { !bits } else { bits }
}

impl Worker<'_> {
    /// Runs `warp` until nothing in it is ready or the slice is used up.
    pub(crate) fn run_warp(
        &mut self,
        block: &mut Block,
        warp: &mut Warp,
        slice: u32,
    ) -> Result<Slice, Stopped> {
        let before = self.steps;
        let mut left = slice;
        let mut slept = false;
        // A slice that ended early among diverged groups owes the others a turn.
        let mut favourite: Option<Favourite> = None;
        if warp.owes_turn {
            warp.owes_turn = false;
            favourite = warp
                .pick_other(self.run.program)
                .map(|(i, held)| Favourite {
                    lane: warp.groups[i].mask.trailing_zeros(),
                    held,
                });
            left = slice / 4 + 1;
        }
        while left > 0 {
            let picked = match (&mut self.rng, favourite) {
                (Some(rng), _) => warp.pick_random(rng),
                (None, Some(Favourite { lane, held })) => {
                    warp.merge();
                    let of_lane = |g: &Group| g.mask >> lane & 1 == 1 && g.state == State::Ready;
                    let found = warp.groups.iter().position(of_lane);
                    // It may have come to where others will come by.
                    let found = found.filter(|&i| held || !warp.is_held(self.run.program, i));
                    favourite = found.and(favourite);
                    found.or_else(|| warp.pick(self.run.program))
                }
                (None, None) => warp.pick(self.run.program),
            };
            let Some(running) = picked else { break };
            if let Some(rng) = &mut self.rng {
                split_at_random(warp, running, rng);
            }
            match self.run_group(block, warp, running, &mut left) {
                Ok(Flow::Yield) => {
                    warp.owes_turn = true;
                    slept = true;
                    break;
                }
                Ok(Flow::Choose | Flow::Go(_)) => {}
                Err(stopped) => return Err(stopped),
            }
        }
        if left == 0 && warp.groups.len() > 1 && favourite.is_none() {
            warp.owes_turn = true;
        }
        Ok(Slice {
            ran: self.steps != before,
            slept,
        })
    }

    fn run_group(
        &mut self,
        block: &mut Block,
        warp: &mut Warp,
        running: usize,
        left: &mut u32,
    ) -> Result<Flow, Stopped> {
        let Group { mask, mut at, .. } = warp.groups[running];
        let alone = warp.groups.len() == 1;
        let limit = if alone {
            u32::MAX
        } else {
            warp.meeting(running)
        };
        let code = &self.run.program.functions[at.function as usize].code[..];
        let budget = match &mut self.rng {
            Some(rng) => rng.below(12) + 1,
            None => u32::MAX,
        };
        let slice = (*left).min(budget);
        for used in 1..=slice {
            let inst = &code[at.pc as usize];
            self.steps += 1;
            let active = guarded(warp, at.base, inst, mask);
            let flow = match self.lane_local(&block.env, warp, at, active, inst) {
                Ok(true) => Flow::Go(at.pc + 1),
                Ok(false) if active == 0 => Flow::Go(at.pc + 1),
                Ok(false) => {
                    warp.groups[running].at = at;
                    match self.control(block, warp, running, active, inst) {
                        Ok(flow) => flow,
                        Err(fault) => return Err(Stopped { fault, at }),
                    }
                }
                Err(fault) => return Err(Stopped { fault, at }),
            };
            match flow {
                Flow::Go(pc) => {
                    let jumped = pc <= at.pc;
                    at.pc = pc;
                    if pc >= limit || (jumped && !alone) {
                        warp.groups[running].at = at;
                        if jumped {
                            warp.went_back(self.run.program, running);
                        }
                        *left -= used;
                        return Ok(Flow::Choose);
                    }
                }
                Flow::Choose | Flow::Yield => {
                    *left -= used;
                    return Ok(flow);
                }
            }
        }
        warp.groups[running].at = at;
        *left -= slice;
        Ok(Flow::Choose)
    }

    /// Executes what changes nothing but rows and memory; `false` if the instruction is of another
    /// kind.
    #[inline]
    fn lane_local(
        &mut self,
        env: &crate::block::Env,
        warp: &Warp,
        at: Position,
        active: u32,
        inst: &Inst,
    ) -> Exec<bool> {
        match &inst.op {
            Op::Alu(alu) => crate::alu::execute(alu, warp, at.base, active),
            Op::Mov { d, s } => {
                let (d, s) = (warp.row(at.base, *d), warp.row(at.base, *s));
                for_lanes(active, |lane| d[lane].set(s[lane].get()));
            }
            Op::Not { d, s } => {
                let (d, s) = (warp.row(at.base, *d), warp.row(at.base, *s));
                for_lanes(active, |lane| d[lane].set(s[lane].get() ^ 1));
            }
            Op::Load(access) => self.load(env, warp, at, active, access)?,
            Op::Store(access) => self.store(env, warp, at, active, access)?,
            Op::Atomic(atomic) => self.atomic(env, warp, at, active, atomic)?,
            Op::WideAtomic(atomic) => self.wide_atomic(env, warp, at, active, atomic)?,
            Op::Special { d, which } => {
                self.special(env, warp, warp.row(at.base, *d), active, *which)
            }
            Op::Cvta { d, s, space, to } => {
                let (d, s) = (warp.row(at.base, *d), warp.row(at.base, *s));
                for_lanes(active, |lane| {
                    d[lane].set(crate::windows::convert(s[lane].get(), *space, *to))
                });
            }
            Op::IsSpace { d, s, space } => {
                let (d, s) = (warp.row(at.base, *d), warp.row(at.base, *s));
                for_lanes(active, |lane| {
                    d[lane].set(u64::from(crate::windows::is_space(
                        s[lane].get(),
                        *space,
                        env.rank,
                    )));
                });
            }
            Op::FrameAddress { d, offset } => {
                let d = warp.row(at.base, *d);
                for_lanes(active, |lane| {
                    d[lane].set(u64::from(at.local.wrapping_add(*offset)))
                });
            }
            Op::Pack { d, parts, bits } => {
                for_lanes(active, |lane| {
                    let mut value = 0u64;
                    for (i, part) in parts.iter().enumerate() {
                        let part = warp.row(at.base, *part)[lane].get() & low_bits(*bits);
                        value |= part << (*bits * i as u32);
                    }
                    warp.row(at.base, *d)[lane].set(value);
                });
            }
            Op::Unpack { parts, s, bits } => {
                for_lanes(active, |lane| {
                    let value = warp.row(at.base, *s)[lane].get();
                    for (i, &part) in parts.iter().enumerate() {
                        if part != NOWHERE {
                            let part_value = value >> (*bits * i as u32) & low_bits(*bits);
                            warp.row(at.base, part)[lane].set(part_value);
                        }
                    }
                });
            }
            Op::MapRank {
                d,
                s,
                rank,
                generic,
            } => self.map_rank(env, warp, at, active, [*d, *s, *rank], *generic)?,
            Op::GetRank { d, s, generic } => {
                self.get_rank(env, warp, at, active, [*d, *s], *generic)
            }
            Op::CopyAsync(copy) => self.copy_async(env, warp, at, active, copy)?,
            Op::Video(video) => video.execute(warp, at, active),
            Op::MultiplyAddVideo(video) => video.execute(warp, at, active),
            Op::AsyncStore(store) => self.store_async(env, warp, at, active, store)?,
            Op::Bulk(bulk) => self.bulk(env, warp, at, active, bulk)?,
            Op::Image(image) => self.image(env, warp, at, active, image)?,
            Op::Mbarrier(barrier) => self.mbarrier(env, warp, at, active, barrier)?,
            Op::ActiveMask { d } => {
                let d = warp.row(at.base, *d);
                for_lanes(active, |lane| d[lane].set(u64::from(active)));
            }
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Nothing => {}
            Op::Trap if active != 0 => {
                let lane = active.trailing_zeros();
                return Err(Fault::new(
                    lane,
                    TrapKind::TrapInstruction,
                    "`trap` was executed",
                ));
            }
            Op::Breakpoint if active != 0 => {
                let lane = active.trailing_zeros();
                return Err(Fault::new(
                    lane,
                    TrapKind::Breakpoint,
                    "`brkpt` was executed without a debugger",
                ));
            }
            Op::Unsupported(message) if active != 0 => {
                return Err(Fault::new(
                    active.trailing_zeros(),
                    TrapKind::Unsupported,
                    &**message,
                ));
            }
            Op::Trap | Op::Breakpoint | Op::Unsupported(_) => {}
            Op::Branch { .. }
            | Op::BranchIndex { .. }
            | Op::Call(_)
            | Op::Return
            | Op::Exit
            | Op::Barrier(_)
            | Op::ClusterBarrier { .. }
            | Op::Collective(_)
            | Op::Matrix(_)
            | Op::WarpSync { .. }
            | Op::Allocate { .. }
            | Op::SaveStack { .. }
            | Op::RestoreStack { .. }
            | Op::Sleep => return Ok(false),
        }
        Ok(true)
    }
}

fn low_bits(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// Schedule stress: now and then some lanes of a group are left behind for a while.
fn split_at_random(warp: &mut Warp, running: usize, rng: &mut crate::rng::Rng) {
    let group = warp.groups[running];
    if group.mask.count_ones() > 1 && rng.below(8) == 0 {
        let left = group.mask & rng.next() as u32;
        if left != 0 && left != group.mask {
            warp.groups[running].mask = group.mask & !left;
            warp.groups.push(Group {
                mask: left,
                ..group
            });
        }
    }
}
