//! `cp.async.bulk` and `cp.reduce.async.bulk`: copies of ranges and of boxes of a tensor, between
//! global and shared memory and among the shared memories of a cluster. Like all copies here they
//! are done when they are issued, and so is what they tell their mbarrier; waiting for a bulk group
//! is nothing.

mod target;
mod tensor;

use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::bulk::{Bulk, RangeCopy};
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Warp, lanes};
use crate::worker::Worker;
use target::{GRAIN, put, targets};

impl Worker<'_> {
    pub(crate) fn bulk(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        bulk: &Bulk,
    ) -> Exec<()> {
        self.view.refresh();
        for lane in lanes(active) {
            match bulk {
                Bulk::Range(copy) => self.range_copy(env, warp, at, lane, copy)?,
                Bulk::Tensor(copy) => self.tensor_copy(env, warp, at, lane, copy)?,
            }
        }
        Ok(())
    }

    fn range_copy(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        lane: usize,
        copy: &RangeCopy,
    ) -> Exec<()> {
        let bytes = warp.row(at.base, copy.bytes)[lane].get() as u32;
        if !bytes.is_multiple_of(GRAIN) {
            let message =
                format!("a bulk copy of {bytes} bytes: the size must be a multiple of {GRAIN}");
            return Err(Fault::new(
                lane as u32,
                TrapKind::InvalidDescriptor,
                message,
            ));
        }
        let (to, from) = (copy.to.1.of(warp, at, lane), copy.from.1.of(warp, at, lane));
        for target in targets(env, warp, at, lane, copy.multicast)? {
            let mut done = 0;
            while done < bytes {
                let reach = |space, start: u64, access| Reach {
                    space,
                    address: start.wrapping_add(u64::from(done)),
                    bytes: GRAIN,
                    access,
                };
                let from = reach(copy.from.0, from, "load");
                let from = self.pointer(env, warp, lane, from)?;
                let access = if copy.reduce.is_some() {
                    "atomic"
                } else {
                    "store"
                };
                let to = reach(copy.to.0, target.address(to), access);
                let to = self.pointer(env, warp, lane, to)?;
                let width = copy.reduce.map_or(8, |reduction| reduction.ty.bytes());
                for i in (0..GRAIN).step_by(width as usize) {
                    let (to, from) = (to.wrapping_add(i as usize), from.wrapping_add(i as usize));
                    // SAFETY: `pointer` checked bounds and alignment of 16 bytes of each.
                    unsafe {
                        let value = memory::load(from, width);
                        put(to, width, value, copy.reduce);
                    }
                }
                done += GRAIN;
            }
            if let Some(barrier) = copy.barrier {
                self.complete(env, warp, at, lane, barrier, target, bytes)?;
            }
        }
        Ok(())
    }
}
