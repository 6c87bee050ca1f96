//! `cp.async.bulk` and `cp.reduce.async.bulk`: copies of ranges and of boxes of a tensor, between global and shared
//! memory and among the shared memories of a cluster. Like all copies here they are done when they are issued, and so
//! is what they tell their mbarrier; waiting for a bulk group is nothing.

mod tensor;

pub(crate) use tensor::{Direction, TensorCopy};

use crate::async_copy;
use crate::atomics::combine;
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::{Address, AtomicOp, NOWHERE, Row, Space, Type};
use crate::sched::Worker;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Position, Warp, lanes};
use crate::windows;

/// A bulk copy.
#[derive(Debug)]
pub(crate) enum Bulk {
    Range(RangeCopy),
    Tensor(TensorCopy),
}

/// A place in memory, and how its address counts.
pub(crate) type Place = (Space, Address);

/// A copy of, or reduction by, bytes in a row.
#[derive(Debug)]
pub(crate) struct RangeCopy {
    pub to: Place,
    pub from: Place,
    pub bytes: Row,
    pub barrier: Option<Place>,
    /// Blocks of the cluster that get the bytes, [`NOWHERE`] if it is the one of the address.
    pub multicast: Row,
    pub reduce: Option<Reduction>,
}

/// What becomes of what is there already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub op: AtomicOp,
    pub ty: Type,
    /// f32 subnormals count as zeroes.
    pub flush: bool,
}

/// Bytes in a row have to be this much aligned and a multiple of this.
const GRAIN: u32 = 16;

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

    /// Tells the mbarrier of a target that the bytes are there.
    #[expect(
        clippy::too_many_arguments,
        reason = "four say which lane, as everywhere; three say what"
    )]
    fn complete(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        lane: usize,
        (space, address): Place,
        target: Target,
        bytes: u32,
    ) -> Exec<()> {
        let reach = Reach {
            space,
            address: target.address(address.of(warp, at, lane)),
            bytes: 8,
            access: "atomic",
        };
        let pointer = self.pointer(env, warp, lane, reach)?;
        // SAFETY: `pointer` checked bounds and alignment.
        unsafe { async_copy::complete_tx(pointer, bytes) };
        Ok(())
    }
}

/// Writes or reduces one element.
///
/// # Safety
/// `to` must be valid for reads and writes of `bytes` and a multiple of it.
unsafe fn put(to: *mut u8, bytes: u32, value: u64, reduce: Option<Reduction>) {
    match reduce {
        // SAFETY: the caller's promise.
        None => unsafe { memory::store(to, bytes, value) },
        Some(reduction) => {
            // SAFETY: the caller's promise.
            unsafe { memory::update(to, bytes, |old| reduced(reduction, old, value)) };
        }
    }
}

/// The new value. Where the shared arithmetic leaves a choice, it is the H200's: sums of 16 bits have one NaN, and of
/// two zeroes the negative one is less.
fn reduced(Reduction { op, ty, flush }: Reduction, old: u64, value: u64) -> u64 {
    let found = combine(op, ty, old, value, 0, flush);
    let infinity = match ty {
        Type::F16 => 0x7c00,
        Type::Bf16 => 0x7f80,
        _ => return found,
    };
    let zeroes = (old | value) & 0x7fff == 0;
    match op {
        AtomicOp::Add if found & 0x7fff > infinity => 0x7fff,
        AtomicOp::Min if zeroes => old | value,
        AtomicOp::Max if zeroes => old & value,
        _ => found,
    }
}

/// Whose shared memory is written.
#[derive(Clone, Copy)]
enum Target {
    /// The address says.
    Addressed,
    /// That of the block of this rank, at the address's place in it.
    Rank(u64),
}

impl Target {
    fn address(self, address: u64) -> u64 {
        match self {
            Target::Addressed => address,
            Target::Rank(rank) => {
                let offset = address & ((1 << windows::RANK_SHIFT) - 1);
                (rank + 1) << windows::RANK_SHIFT | offset
            }
        }
    }
}

fn targets(env: &Env, warp: &Warp, at: Position, lane: usize, multicast: Row) -> Exec<Vec<Target>> {
    if multicast == NOWHERE {
        return Ok(vec![Target::Addressed]);
    }
    let mask = warp.row(at.base, multicast)[lane].get() & 0xffff;
    let blocks = env.cluster.len();
    if mask >> blocks != 0 {
        let message =
            format!("a bulk copy to the blocks {mask:#06x} of a cluster of {blocks} blocks");
        return Err(Fault::new(lane as u32, TrapKind::InvalidSync, message));
    }
    Ok((0..16)
        .filter(|rank| mask >> rank & 1 == 1)
        .map(Target::Rank)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_extremes_of_16_bits() {
        let go = |op, old, value| {
            let reduction = Reduction {
                op,
                ty: Type::F16,
                flush: false,
            };
            reduced(reduction, old, value)
        };
        assert_eq!(go(AtomicOp::Add, 0x3c00, 0x7e00), 0x7fff);
        assert_eq!(go(AtomicOp::Add, 0x3c00, 0xbc00), 0);
        assert_eq!(go(AtomicOp::Add, 1, 3), 4);
        assert_eq!(go(AtomicOp::Min, 0x7e00, 0x3c00), 0x3c00);
        assert_eq!(go(AtomicOp::Min, 0, 0x8000), 0x8000);
        assert_eq!(go(AtomicOp::Max, 0, 0x8000), 0);
    }
}
