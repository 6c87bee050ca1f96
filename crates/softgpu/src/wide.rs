//! 128-bit atomics: the host has one instruction for them, which no atomic type of Rust's makes.

use crate::block::Env;
use crate::exec_mem::Reach;
use crate::op::WideAtomic;
use crate::op::operand::{AtomicOp, NOWHERE, Row};
use crate::position::Position;
use crate::trap::Exec;
use crate::warp::{Warp, lanes};
use crate::worker::Worker;

/// The host has the instruction.
pub(crate) fn possible() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Bytes of such an access.
const BYTES: u32 = 16;

impl Worker<'_> {
    pub(crate) fn wide_atomic(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &WideAtomic,
    ) -> Exec<()> {
        self.view.refresh();
        for lane in lanes(active) {
            let reach = Reach {
                space: a.space,
                address: a.address.of(warp, at, lane),
                bytes: BYTES,
                access: "atomic",
            };
            let pointer = self.pointer(env, warp, lane, reach)?;
            let read = |rows: [Row; 2]| {
                let [low, high] = rows.map(|row| warp.row(at.base, row)[lane].get());
                u128::from(high) << 64 | u128::from(low)
            };
            let old = match a.op {
                AtomicOp::CompareAndSwap => {
                    // SAFETY: `pointer` checked bounds and alignment of these bytes, and decoding
                    // that the host can.
                    unsafe { swap(pointer, read(a.b), read(a.c)) }
                }
                _ => {
                    let mut expected = 0;
                    loop {
                        // SAFETY: as above.
                        let found = unsafe { swap(pointer, expected, read(a.b)) };
                        if found == expected {
                            break found;
                        }
                        expected = found;
                    }
                }
            };
            for (d, half) in a.d.into_iter().zip([old as u64, (old >> 64) as u64]) {
                if d != NOWHERE {
                    warp.row(at.base, d)[lane].set(half);
                }
            }
        }
        Ok(())
    }
}

/// Puts `new` at `at` if `expected` is there, in one step; what was there.
///
/// # Safety
/// `at` must be valid for reads and writes of 16 bytes and [`possible`] true. If it is no multiple
/// of 16, no other thread uses these bytes: shared and local memory, whose words lie as the
/// allocator put them and belong to one host thread.
unsafe fn swap(at: *mut u8, expected: u128, new: u128) -> u128 {
    if !at.addr().is_multiple_of(BYTES as usize) {
        // SAFETY: validity is the caller's promise.
        return unsafe {
            let old = at.cast::<u128>().read_unaligned();
            if old == expected {
                at.cast::<u128>().write_unaligned(new);
            }
            old
        };
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: aligned, valid, and the instruction is there by the caller's promise. What other
    // threads do to these bytes goes through atomics too, whose mixing the processor defines.
    return unsafe { exchange(at.cast(), expected, new) };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("decoding refuses what `possible` denies")
}

/// The instruction itself: what the library has for it becomes a call of a function that is nowhere
/// once it is inlined into code for processors without it.
///
/// # Safety
/// `at` must be valid for atomic reads and writes and a multiple of 16, and the processor must have
/// the instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange(at: *mut u128, expected: u128, new: u128) -> u128 {
    let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
    // SAFETY: the caller's promise; `rbx`, which belongs to the compiler, is put back.
    unsafe {
        std::arch::asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") at,
            inout("rsi") new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            options(nostack)
        );
    }
    u128::from(high) << 64 | u128::from(low)
}
