//! The number iterator, which the interpreter runs for a program.

use warpbpf_abi::kfuncs::{KfuncId, MAX_LOOPS};
use warpbpf_abi::maps::{E2BIG, EINVAL};

use crate::insn::Width;
use crate::memory::Memory;
use crate::trap::TrapKind;

/// The functions of the number iterator (`warpbpf_abi::kfuncs`). Its 8 bytes are, as in Linux, the
/// current number and the end; both are 0 in one that gives no more.
pub(crate) fn kfunc<M: Memory + ?Sized>(
    memory: &mut M,
    id: u32,
    args: [u64; 5],
) -> Result<u64, TrapKind> {
    let Some(kfunc) = KfuncId::from_number(id) else {
        return Err(TrapKind::NoKfunc { id });
    };
    let at = args[0];
    let behind = at.wrapping_add(4);
    let mut set = |current: i32, end: i32| {
        memory.store(at, Width::W32, current as u64)?;
        memory.store(behind, Width::W32, end as u64)
    };
    match kfunc {
        KfuncId::IterNumNew => {
            let (start, end) = (args[1] as i32, args[2] as i32);
            let count = i64::from(end) - i64::from(start);
            if count < 0 || count > i64::from(MAX_LOOPS) {
                set(0, 0)?;
                return Ok(if count < 0 { EINVAL } else { E2BIG } as u64);
            }
            // The first `next` adds one.
            set(start.wrapping_sub(1), end)?;
            Ok(0)
        }
        KfuncId::IterNumNext => {
            let current = memory.load(at, Width::W32)? as i32;
            let end = memory.load(behind, Width::W32)? as i32;
            let next = current.wrapping_add(1);
            if next >= end {
                memory.store(at, Width::W32, 0)?;
                memory.store(behind, Width::W32, 0)?;
                return Ok(0);
            }
            memory.store(at, Width::W32, next as u64)?;
            Ok(at)
        }
        KfuncId::IterNumDestroy => {
            set(0, 0)?;
            Ok(0)
        }
    }
}
