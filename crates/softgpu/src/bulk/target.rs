//! Where a bulk copy writes, and how.

use crate::async_copy;
use crate::atomics::combine;
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::bulk::{Place, Reduction};
use crate::op::operand::{AtomicOp, NOWHERE, Row, Type};
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::Warp;
use crate::windows;
use crate::worker::Worker;

/// Bytes in a row have to be this much aligned and a multiple of this.
pub(super) const GRAIN: u32 = 16;

impl Worker<'_> {
    /// Tells the mbarrier of a target that the bytes are there.
    #[expect(
        clippy::too_many_arguments,
        reason = "four say which lane, as everywhere; three say what"
    )]
    pub(super) fn complete(
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
pub(super) unsafe fn put(to: *mut u8, bytes: u32, value: u64, reduce: Option<Reduction>) {
    match reduce {
        // SAFETY: the caller's promise.
        None => unsafe { memory::store(to, bytes, value) },
        Some(reduction) => {
            // SAFETY: the caller's promise.
            unsafe { memory::update(to, bytes, |old| reduced(reduction, old, value)) };
        }
    }
}

/// The new value. Where the shared arithmetic leaves a choice, it is the H200's: sums of 16 bits
/// have one NaN, and of two zeroes the negative one is less.
pub(super) fn reduced(Reduction { op, ty, flush }: Reduction, old: u64, value: u64) -> u64 {
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
pub(super) enum Target {
    /// The address says.
    Addressed,
    /// That of the block of this rank, at the address's place in it.
    Rank(u64),
}

impl Target {
    pub(super) fn address(self, address: u64) -> u64 {
        match self {
            Target::Addressed => address,
            Target::Rank(rank) => {
                let offset = address & ((1 << windows::RANK_SHIFT) - 1);
                (rank + 1) << windows::RANK_SHIFT | offset
            }
        }
    }
}

pub(super) fn targets(
    env: &Env,
    warp: &Warp,
    at: Position,
    lane: usize,
    multicast: Row,
) -> Exec<Vec<Target>> {
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
