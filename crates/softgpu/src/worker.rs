//! A launch as it runs: what is the same for all of its threads, and what each host thread has of
//! its own.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use crate::children::Children;
use crate::memory::{Memory, View};
use crate::module::Kernel;
use crate::position::Position;
use crate::program::Program;
use crate::rng::Rng;
use crate::trap::{Fault, Trap};
use crate::warp::Warp;

/// What is the same for all threads of a launch.
pub(crate) struct Run<'l> {
    pub program: &'l Program,
    pub module_id: u32,
    pub kernel: &'l Kernel,
    pub children: Children,
    pub memory: &'l Memory,
    pub heap: &'l Mutex<HashSet<u64>>,
    pub images: &'l crate::image::object::Registry,
    pub clock: fn() -> u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared: u32,
    pub grid_id: u64,
    /// Workspace of `cooperative_groups::this_grid`, 0 if there is none.
    pub workspace: u64,
    pub params: Vec<u64>,
    pub params_len: usize,
    pub sms: u32,
    pub host_threads: u32,
    pub blocks_per_sm: u32,
    pub seed: Option<u64>,
    pub step_limit: Option<u64>,
    /// The lowest block that trapped, 0 when the launch is given up: higher blocks need not go on,
    /// but lower ones might trap too, and the lowest is the one that is reported.
    pub stop: AtomicU64,
}

impl Run<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn clusters(&self) -> u64 {
        (0..3)
            .map(|i| u64::from(self.grid[i] / self.cluster[i]))
            .product()
    }

    pub(crate) fn param_pointer(&self, offset: u64, bytes: u32) -> Option<*mut u8> {
        let fits =
            offset <= self.params_len as u64 && u64::from(bytes) <= self.params_len as u64 - offset;
        fits.then(|| {
            self.params
                .as_ptr()
                .cast::<u8>()
                .cast_mut()
                .wrapping_add(offset as usize)
        })
    }
}

/// What a worker brought home.
#[derive(Default)]
pub(crate) struct Harvest {
    pub steps: u64,
    /// The first trap, with its block's number.
    pub trap: Option<(u64, Trap)>,
    /// The step limit was reached.
    pub exhausted: bool,
    /// What blocks printed, by block number.
    pub printed: Vec<(u64, Vec<u8>)>,
}

/// One host thread's part of a launch.
pub(crate) struct Worker<'l> {
    pub run: &'l Run<'l>,
    pub view: View<'l>,
    pub images: crate::image::object::Lookup<'l>,
    /// Warp instructions issued.
    pub steps: u64,
    pub rng: Option<Rng>,
    pub(crate) idle_warps: Vec<Warp>,
    pub(crate) harvest: Harvest,
}

impl<'l> Worker<'l> {
    pub(crate) fn new(run: &'l Run<'l>, number: u32) -> Worker<'l> {
        Worker {
            run,
            view: View::new(run.memory),
            images: crate::image::object::Lookup::new(run.images),
            steps: 0,
            rng: run
                .seed
                .map(|seed| Rng::new(seed.wrapping_add(u64::from(number)))),
            idle_warps: Vec::new(),
            harvest: Harvest::default(),
        }
    }
}

/// A fault and where it happened.
pub(crate) struct Stopped {
    pub fault: Box<Fault>,
    pub at: Position,
}

/// What became of a warp's time slice.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    /// Any instruction was executed.
    pub ran: bool,
    /// It ended at a `nanosleep`.
    pub slept: bool,
}

/// What a control instruction means for the running group.
pub(crate) enum Flow {
    /// Go on at this instruction of the same frame.
    Go(u32),
    /// The groups changed: choose again.
    Choose,
    /// The groups changed and the slice is over.
    Yield,
}
