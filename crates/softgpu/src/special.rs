//! Special registers. `%clock` counts the instructions the SM has issued; `%globaltimer` is the
//! clock of the configuration.

use crate::block::Env;
use crate::op::Special;
use crate::warp::{Lanes, Warp, for_lanes};
use crate::worker::Worker;

impl Worker<'_> {
    pub(crate) fn special(&self, env: &Env, warp: &Warp, d: &Lanes, active: u32, which: Special) {
        let run = self.run;
        let per_lane =
            |f: &dyn Fn(usize) -> u32| for_lanes(active, |lane| d[lane].set(u64::from(f(lane))));
        let axis = |list: [u32; 3], i: u8| list.get(usize::from(i)).map_or(0, |&n| u64::from(n));
        let cluster_of = |i: usize| env.ctaid[i] / run.cluster[i];
        let value = match which {
            Special::Tid(3) => 0,
            Special::Tid(i) => {
                let tid = &warp.tid[usize::from(i)];
                return for_lanes(active, |lane| d[lane].set(u64::from(tid[lane])));
            }
            Special::LaneId => return per_lane(&|lane| lane as u32),
            Special::LanemaskEq => return per_lane(&|lane| 1 << lane),
            Special::LanemaskLt => return per_lane(&|lane| (1 << lane) - 1),
            Special::LanemaskLe => return per_lane(&|lane| u32::MAX >> (31 - lane)),
            Special::LanemaskGe => return per_lane(&|lane| u32::MAX << lane),
            Special::LanemaskGt => return per_lane(&|lane| (u32::MAX << lane) & !(1 << lane)),
            Special::Ntid(i) => axis(run.block, i),
            Special::Ctaid(i) => axis(env.ctaid, i),
            Special::Nctaid(i) => axis(run.grid, i),
            Special::WarpId => u64::from(warp.index),
            Special::NwarpId => u64::from(run.threads().div_ceil(32)),
            Special::SmId => u64::from(env.sm),
            Special::NsmId => u64::from(run.sms),
            Special::GridId => run.grid_id,
            Special::Clock => self.steps & 0xffff_ffff,
            Special::ClockHi => self.steps >> 32,
            Special::Clock64 => self.steps,
            Special::GlobalTimer => (run.clock)(),
            Special::GlobalTimerLo => (run.clock)() & 0xffff_ffff,
            Special::GlobalTimerHi => (run.clock)() >> 32,
            Special::TotalSharedSize => {
                u64::from(env.shared().bytes() - crate::limits::RESERVED_SHARED)
            }
            // With what is reserved: then it is where shared memory ends.
            Special::AggregateSharedSize => u64::from(env.shared().bytes()),
            Special::DynamicSharedSize => u64::from(run.dynamic_shared),
            Special::ReservedShared(place) => u64::from(place),
            Special::ClusterId(i @ 0..3) => u64::from(cluster_of(usize::from(i))),
            Special::NclusterId(i @ 0..3) => {
                u64::from(run.grid[usize::from(i)] / run.cluster[usize::from(i)])
            }
            Special::ClusterCtaid(i @ 0..3) => {
                u64::from(env.ctaid[usize::from(i)] % run.cluster[usize::from(i)])
            }
            Special::ClusterId(_) | Special::NclusterId(_) | Special::ClusterCtaid(_) => 0,
            Special::ClusterNctaid(i) => axis(run.cluster, i),
            Special::ClusterCtaRank => u64::from(env.rank),
            Special::ClusterNctaRank => u64::from(run.cluster.iter().product::<u32>()),
            Special::IsExplicitCluster => u64::from(run.cluster != [1, 1, 1]),
            // What the driver's ABI puts there: the address of the grid's workspace.
            Special::Environment(1) => run.workspace >> 32,
            Special::Environment(2) => run.workspace & 0xffff_ffff,
            Special::Environment(_) | Special::Absent => 0,
        };
        for_lanes(active, |lane| d[lane].set(value));
    }
}
