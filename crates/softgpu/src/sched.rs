//! From a grid to warps: blocks are dealt to SMs, SMs to host threads, and every resident block and
//! warp gets its turn, so that threads that wait for each other across warps and co-resident blocks
//! make progress.
//!
//! Block `b` always runs on SM `b mod SMs` and an SM on one host thread, so a launch on one host
//! thread is wholly reproducible, and on several it is for programs whose blocks do not race.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::block::{Barriers, Block, ClusterBarrier, Env, Shared};
use crate::position::Position;
use crate::trap::{Fault, Trap, TrapKind};
use crate::warp::{Group, State, Warp, lanes};
use crate::worker::{Harvest, Run, Stopped, Worker};

/// Instructions a warp runs before the next one gets its turn.
const WARP_SLICE: u32 = 256;
/// Instructions a block runs before another resident block gets its turn, once round all its warps
/// at least. A change costs cache misses, but a chain of blocks that wait for each other needs one
/// per link.
const BLOCK_SLICE: u64 = 2048;

/// Instructions that blocks below a trapped one may still run: they might wait for it.
const GRACE: u64 = 1 << 20;

/// How a block's turn ended.
enum Turn {
    Done,
    /// The slice is over; the flag tells whether anything ran.
    More(bool),
}

/// The blocks of a cluster; a block without a cluster is a cluster of one.
struct Cluster {
    sm: u32,
    blocks: Vec<Block>,
}

impl<'l> Worker<'l> {
    /// Runs the clusters of the SMs that belong to worker `number`.
    pub(crate) fn work(mut self, number: u32) -> Harvest {
        let sms: Vec<u32> = (0..self.run.sms)
            .filter(|sm| sm % self.run.host_threads == number)
            .collect();
        let clusters = self.run.clusters();
        let per_cluster = self.run.cluster.iter().product::<u32>();
        let capacity = (self.run.blocks_per_sm / per_cluster).max(1);
        let mut next: Vec<u64> = sms.iter().map(|&sm| u64::from(sm)).collect();
        let mut resident: Vec<Cluster> = Vec::new();
        let mut turn = 0;
        let mut grace = None;
        loop {
            let stop = self.run.stop.load(Ordering::Relaxed);
            if stop != u64::MAX {
                let end = *grace.get_or_insert(self.steps + GRACE);
                let (go_on, given_up) = resident
                    .drain(..)
                    .partition(|c: &Cluster| c.blocks[0].env.linear < stop && self.steps < end);
                resident = go_on;
                given_up
                    .into_iter()
                    .for_each(|cluster| self.retire(cluster));
            }
            let idle = resident.is_empty();
            let admitted = if idle || turn >= resident.len() {
                let room =
                    |sm: u32| resident.iter().filter(|c| c.sm == sm).count() < capacity as usize;
                let candidate = (0..sms.len())
                    .filter(|&i| next[i] < clusters.min(stop) && room(sms[i]))
                    .min_by_key(|&i| next[i]);
                candidate.map(|i| {
                    let number = next[i];
                    next[i] += u64::from(self.run.sms);
                    self.admit(number, sms[i])
                })
            } else {
                None
            };
            if let Some(cluster) = admitted {
                turn = resident.len();
                resident.push(cluster);
            } else if idle {
                break;
            } else if turn >= resident.len() {
                turn = 0;
            }
            if let Some(rng) = &mut self.rng {
                turn = rng.below(resident.len() as u32) as usize;
            }
            match self.turn(&mut resident[turn]) {
                Ok(Turn::Done) => {
                    let cluster = resident.remove(turn);
                    self.retire(cluster);
                }
                Ok(Turn::More(_)) => turn += 1,
                Err((block, trap)) => {
                    if self
                        .harvest
                        .trap
                        .as_ref()
                        .is_none_or(|&(other, _)| block < other)
                    {
                        self.harvest.trap = Some((block, *trap));
                    }
                    self.run.stop.fetch_min(block, Ordering::Relaxed);
                }
            }
            if self.run.step_limit.is_some_and(|limit| self.steps > limit) {
                self.harvest.exhausted = true;
                self.run.stop.store(0, Ordering::Relaxed);
            }
        }
        self.harvest.steps = self.steps;
        self.harvest
    }

    fn admit(&mut self, number: u64, sm: u32) -> Cluster {
        let run = self.run;
        let per_cluster = run.cluster.iter().product::<u32>();
        let across: [u64; 3] = std::array::from_fn(|i| u64::from(run.grid[i] / run.cluster[i]));
        let place = [
            number % across[0],
            number / across[0] % across[1],
            number / across[0] / across[1],
        ];
        let bytes = run.program.dynamic_shared_base + run.dynamic_shared;
        let shared: Rc<[Shared]> = (0..per_cluster).map(|_| Shared::new(bytes)).collect();
        let barrier = Rc::new(RefCell::new(ClusterBarrier {
            live: per_cluster * run.threads(),
            ..Default::default()
        }));
        let blocks = (0..per_cluster)
            .map(|rank| {
                let [cx, cy, _] = run.cluster;
                let inside = [rank % cx, rank / cx % cy, rank / cx / cy];
                let ctaid: [u32; 3] =
                    std::array::from_fn(|i| place[i] as u32 * run.cluster[i] + inside[i]);
                let [gx, gy, _] = run.grid.map(u64::from);
                let linear =
                    u64::from(ctaid[0]) + gx * (u64::from(ctaid[1]) + gy * u64::from(ctaid[2]));
                let env = Env {
                    ctaid,
                    linear,
                    rank,
                    sm,
                    cluster: Rc::clone(&shared),
                    cluster_barrier: Rc::clone(&barrier),
                    printed: RefCell::new(Vec::new()),
                };
                let warps = (0..run.threads().div_ceil(32))
                    .map(|index| self.warp(index))
                    .collect();
                Block {
                    env,
                    warps,
                    barriers: Barriers::new(run.threads()),
                }
            })
            .collect();
        Cluster { sm, blocks }
    }

    /// A warp at the kernel's first instruction.
    fn warp(&mut self, index: u32) -> Warp {
        let run = self.run;
        let constants = &run.program.constants;
        let mut warp = self.idle_warps.pop().unwrap_or_else(|| {
            let mut warp = Warp::default();
            warp.rows.extend(
                constants
                    .iter()
                    .map(|&value| std::array::from_fn(|_| Cell::new(value))),
            );
            warp
        });
        warp.stacks.iter_mut().for_each(Vec::clear);
        warp.local.iter_mut().for_each(Vec::clear);
        warp.dynamic.iter_mut().for_each(Vec::clear);
        warp.groups.clear();
        warp.owes_turn = false;
        warp.patience = crate::patience::Patience::default();
        warp.cluster_phase = [0; 32];
        warp.index = index;
        let first = index * 32;
        let count = (run.threads() - first).min(32);
        warp.live = u32::MAX >> (32 - count);
        for lane in 0..count {
            let linear = first + lane;
            warp.tid[0][lane as usize] = linear % run.block[0];
            warp.tid[1][lane as usize] = linear / run.block[0] % run.block[1];
            warp.tid[2][lane as usize] = linear / run.block[0] / run.block[1];
        }
        let entry = &run.program.functions[0];
        let at = Position {
            base: constants.len() as u32,
            local: 0,
            function: 0,
            pc: 0,
        };
        warp.open_frame(at.base, entry.rows, 0, entry.frame, u32::MAX);
        warp.groups.push(Group {
            mask: warp.live,
            at,
            state: State::Ready,
        });
        warp
    }

    fn retire(&mut self, cluster: Cluster) {
        for mut block in cluster.blocks {
            self.idle_warps.append(&mut block.warps);
            let printed = block.env.printed.take();
            if !printed.is_empty() {
                self.harvest.printed.push((block.env.linear, printed));
            }
        }
    }

    fn turn(&mut self, cluster: &mut Cluster) -> Result<Turn, (u64, Box<Trap>)> {
        let mut ran = false;
        let mut done = true;
        for block in &mut cluster.blocks {
            let linear = block.env.linear;
            match self.run_block(block) {
                Ok(Turn::Done) => {}
                Ok(Turn::More(some)) => {
                    ran |= some;
                    done = false;
                }
                Err(trap) => return Err((linear, trap)),
            }
        }
        if done {
            return Ok(Turn::Done);
        }
        if !ran {
            for block in &mut cluster.blocks {
                block.wake_cluster();
            }
            let ready = |b: &Block| {
                b.warps
                    .iter()
                    .any(|w| w.groups.iter().any(|g| g.state == State::Ready))
            };
            if !cluster.blocks.iter().any(ready)
                && let Some(block) = cluster.blocks.iter().find(|b| b.barriers.live > 0)
            {
                return Err((block.env.linear, Box::new(self.deadlock(block))));
            }
        }
        Ok(Turn::More(ran))
    }

    fn run_block(&mut self, block: &mut Block) -> Result<Turn, Box<Trap>> {
        let end = self.steps + BLOCK_SLICE;
        let warps = block.warps.len();
        let mut ran = false;
        block.wake_cluster();
        loop {
            let (mut progress, mut awake) = (false, false);
            let rotate = self
                .rng
                .as_mut()
                .map_or(0, |rng| rng.below(warps as u32) as usize);
            for i in 0..warps {
                let i = (i + rotate) % warps;
                let mut warp = std::mem::take(&mut block.warps[i]);
                let slice = self
                    .rng
                    .as_mut()
                    .map_or(WARP_SLICE, |rng| rng.below(64) + 1);
                let outcome = self.run_warp(block, &mut warp, slice);
                let trap = outcome
                    .as_ref()
                    .err()
                    .map(|stopped| self.trap(block, &warp, stopped));
                block.warps[i] = warp;
                if let Some(trap) = trap {
                    return Err(Box::new(trap));
                }
                if let Ok(slice) = outcome {
                    progress |= slice.ran;
                    awake |= slice.ran && !slice.slept;
                }
            }
            ran |= progress;
            if block.barriers.live == 0 {
                return Ok(Turn::Done);
            }
            if !awake || self.steps >= end || self.run.stop.load(Ordering::Relaxed) != u64::MAX {
                return Ok(Turn::More(ran));
            }
        }
    }

    fn trap(&self, block: &Block, warp: &Warp, stopped: &Stopped) -> Trap {
        let Fault {
            lane,
            kind,
            message,
        } = &*stopped.fault;
        let function = &self.run.program.functions[stopped.at.function as usize];
        let lane = *lane as usize & 31;
        Trap {
            kernel: self.run.kernel.name().to_owned(),
            block: block.env.ctaid,
            thread: [0, 1, 2].map(|i| warp.tid[i][lane]),
            function: function.name.clone(),
            ptx_line: function.code[stopped.at.pc as usize].line,
            source: self.run.program.source(stopped.at.function, stopped.at.pc),
            kind: kind.clone(),
            message: message.clone(),
        }
    }

    /// The trap of a block in which nothing can run: says who waits where.
    fn deadlock(&self, block: &Block) -> Trap {
        let mut waits: Vec<(u32, String, u32)> = Vec::new();
        let mut first = None;
        for warp in &block.warps {
            for group in &warp.groups {
                let line = self.run.program.functions[group.at.function as usize].code
                    [group.at.pc as usize]
                    .line;
                let what = match group.state {
                    State::Ready => "nothing".to_owned(),
                    State::Converge => "other lanes of its member mask".to_owned(),
                    State::WarpSync(mask) => format!("the lanes {mask:#010x} at `bar.warp.sync`"),
                    State::Barrier(id) => format!("barrier {id}"),
                    State::Cluster => "the cluster".to_owned(),
                };
                let lane = lanes(group.mask).next().unwrap_or(0);
                first.get_or_insert((warp, group, lane));
                let threads = group.mask.count_ones();
                match waits.iter_mut().find(|(l, w, _)| *l == line && *w == what) {
                    Some((_, _, n)) => *n += threads,
                    None => waits.push((line, what, threads)),
                }
            }
        }
        let said: Vec<String> = waits
            .iter()
            .map(|(line, what, n)| format!("{n} threads wait for {what} at PTX line {line}"))
            .collect();
        let fallback = Warp::default();
        let (warp, at, lane) = first.map_or((&fallback, Position::default(), 0), |(w, g, l)| {
            (w, g.at, l)
        });
        let message = format!(
            "deadlock: no thread of the block can go on: {}",
            said.join(", ")
        );
        let fault = Fault::new(lane as u32, TrapKind::Deadlock, message);
        self.trap(block, warp, &Stopped { fault, at })
    }
}

/// Runs the whole grid.
pub(crate) fn run_grid(run: &Run<'_>) -> Vec<Harvest> {
    let workers = u64::from(run.host_threads).min(run.clusters()).max(1) as u32;
    if workers == 1 {
        return vec![Worker::new(run, 0).work(0)];
    }
    std::thread::scope(|scope| {
        let handles: Vec<_> = (1..workers)
            .map(|n| scope.spawn(move || Worker::new(run, n).work(n)))
            .collect();
        let mut all = vec![Worker::new(run, 0).work(0)];
        for handle in handles {
            match handle.join() {
                Ok(harvest) => all.push(harvest),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
