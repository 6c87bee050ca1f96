//! `cp.async`, `mbarrier` and addresses in other blocks of the cluster. Copies are done at once, so
//! that waiting for them is never needed, which is one of the orders the ISA allows.
//!
//! An mbarrier object is a 64-bit word of our own layout (the ISA leaves it opaque): bits 0–19
//! pending arrivals, 20–39 expected arrivals, 40–61 pending transaction bytes (offset by 2²¹), 63
//! the phase's parity.

use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::operand::{NOWHERE, Row, Space};
use crate::op::{CopyAsync, Mbarrier, MbarrierKind};
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Warp, for_lanes, lanes};
use crate::windows;
use crate::worker::Worker;

const COUNT: u64 = (1 << 20) - 1;
const TX_BIAS: i64 = 1 << 21;
const TX_MASK: u64 = (1 << 22) - 1;

#[derive(Clone, Copy)]
struct Object {
    pending: u64,
    expected: u64,
    transaction: i64,
    phase: bool,
}

impl Object {
    fn from_word(word: u64) -> Object {
        Object {
            pending: word & COUNT,
            expected: word >> 20 & COUNT,
            transaction: (word >> 40 & TX_MASK) as i64 - TX_BIAS,
            phase: word >> 63 == 1,
        }
    }

    fn word(self) -> u64 {
        let transaction = (self.transaction + TX_BIAS) as u64 & TX_MASK;
        self.pending & COUNT
            | (self.expected & COUNT) << 20
            | transaction << 40
            | u64::from(self.phase) << 63
    }

    /// The phase ends when nothing is pending.
    fn settle(mut self) -> Object {
        if self.pending == 0 && self.transaction == 0 {
            self.phase = !self.phase;
            self.pending = self.expected;
        }
        self
    }
}

/// Takes arrived bytes off what the mbarrier waits for.
///
/// # Safety
/// `object` must be valid for reads and writes of 8 bytes and a multiple of 8.
pub(crate) unsafe fn complete_tx(object: *mut u8, bytes: u32) {
    // SAFETY: the caller's promise.
    let mut state = Object::from_word(unsafe { memory::load(object, 8) });
    state.transaction -= i64::from(bytes);
    // SAFETY: as above.
    unsafe { memory::store(object, 8, state.settle().word()) };
}

impl Worker<'_> {
    pub(crate) fn copy_async(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        c: &CopyAsync,
    ) -> Exec<()> {
        self.view.refresh();
        for lane in lanes(active) {
            let limit = |row: Row| {
                if row == NOWHERE {
                    c.bytes
                } else {
                    warp.row(at.base, row)[lane].get() as u32
                }
            };
            let ignored = c.ignore != NOWHERE && warp.row(at.base, c.ignore)[lane].get() & 1 == 1;
            let from_bytes = if ignored {
                0
            } else {
                limit(c.source_bytes).min(c.bytes)
            };
            let (to, from) = (c.to.of(warp, at, lane), c.from.of(warp, at, lane));
            let reach = |space, address, access| Reach {
                space,
                address,
                bytes: c.bytes,
                access,
            };
            let to = self.pointer(env, warp, lane, reach(Space::Shared, to, "store"))?;
            let from = if from_bytes > 0 {
                Some(self.pointer(env, warp, lane, reach(Space::Global, from, "load"))?)
            } else {
                None
            };
            for i in 0..c.bytes {
                let byte = match from.filter(|_| i < from_bytes) {
                    // SAFETY: `pointer` checked `c.bytes` bytes of each.
                    Some(from) => unsafe { memory::load(from.wrapping_add(i as usize), 1) },
                    None => 0,
                };
                // SAFETY: as above.
                unsafe { memory::store(to.wrapping_add(i as usize), 1, byte) };
            }
        }
        Ok(())
    }

    pub(crate) fn mbarrier(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        b: &Mbarrier,
    ) -> Exec<()> {
        for lane in lanes(active) {
            let put = |value: u64| {
                if b.d != NOWHERE {
                    warp.row(at.base, b.d)[lane].set(value);
                }
            };
            let operand = if b.s == NOWHERE {
                1
            } else {
                warp.row(at.base, b.s)[lane].get()
            };
            if b.kind == MbarrierKind::PendingCount {
                put(Object::from_word(operand).pending);
                continue;
            }
            let address = b.address.of(warp, at, lane);
            let reach = Reach {
                space: b.space,
                address,
                bytes: 8,
                access: "atomic",
            };
            let pointer = self.pointer(env, warp, lane, reach)?;
            // SAFETY: `pointer` checked bounds and alignment.
            let old = unsafe { memory::load(pointer, 8) };
            let mut object = Object::from_word(old);
            match b.kind {
                MbarrierKind::Init => {
                    let count = operand & COUNT;
                    object = Object {
                        pending: count,
                        expected: count,
                        transaction: 0,
                        phase: false,
                    };
                }
                MbarrierKind::Invalidate | MbarrierKind::PendingCount => {}
                MbarrierKind::Arrive { drop, expect } => {
                    let count = if expect { 1 } else { operand & 0xffff_ffff };
                    if count > object.pending {
                        let message = format!(
                            "{count} arrivals at an mbarrier that expects {} more",
                            object.pending
                        );
                        return Err(Fault::new(lane as u32, TrapKind::InvalidSync, message));
                    }
                    if expect {
                        object.transaction += i64::from(operand as u32);
                    }
                    object.pending -= count;
                    if drop {
                        object.expected = object.expected.saturating_sub(count);
                    }
                    object = object.settle();
                    put(old);
                }
                MbarrierKind::ExpectTx => object.transaction += i64::from(operand as u32),
                MbarrierKind::CompleteTx => {
                    object.transaction -= i64::from(operand as u32);
                    object = object.settle();
                }
                MbarrierKind::TestState => {
                    put(u64::from(Object::from_word(operand).phase != object.phase))
                }
                MbarrierKind::TestParity => put(u64::from((operand & 1 == 1) != object.phase)),
                MbarrierKind::CopyArrive { noinc } => {
                    // The copies are done: the arrive they would trigger happens now, against a
                    // count that was raised for it unless `.noinc` says that it was expected all
                    // along.
                    if noinc {
                        object.pending = object.pending.saturating_sub(1);
                        object = object.settle();
                    }
                }
            }
            // SAFETY: as above.
            unsafe { memory::store(pointer, 8, object.word()) };
        }
        Ok(())
    }

    pub(crate) fn map_rank(
        &self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        [d, s, rank]: [Row; 3],
        generic: bool,
    ) -> Exec<()> {
        for lane in lanes(active) {
            let number = warp.row(at.base, rank)[lane].get() as u32;
            if number as usize >= env.cluster.len() {
                let message = format!(
                    "`mapa` to rank {number} of a cluster of {} blocks",
                    env.cluster.len()
                );
                return Err(Fault::new(lane as u32, TrapKind::InvalidSync, message));
            }
            let address = warp.row(at.base, s)[lane].get();
            let offset = address & ((1 << windows::RANK_SHIFT) - 1);
            let mapped = (u64::from(number) + 1) << windows::RANK_SHIFT | offset;
            warp.row(at.base, d)[lane].set(if generic {
                windows::SHARED | mapped
            } else {
                mapped
            });
        }
        Ok(())
    }

    pub(crate) fn get_rank(
        &self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        [d, s]: [Row; 2],
        generic: bool,
    ) {
        let (d, s) = (warp.row(at.base, d), warp.row(at.base, s));
        for_lanes(active, |lane| {
            let address = s[lane].get();
            let offset = if generic {
                windows::resolve(address).1
            } else {
                address
            };
            let holder = (offset >> windows::RANK_SHIFT) as u32 & 0xff;
            d[lane].set(u64::from(holder.checked_sub(1).unwrap_or(env.rank)));
        });
    }
}
