//! Loops that the interpreter runs for a program: the iterator functions, and `bpf_loop` for machines that offer it.

use warpbpf_abi::kfuncs::{KfuncId, MAX_LOOPS};
use warpbpf_abi::maps::{E2BIG, EINVAL};

use crate::insn::Width;
use crate::interp::{Callback, Machine, TrapKind};

/// The functions of the number iterator (`warpbpf_abi::kfuncs`). Its 8 bytes are, as in Linux, the current number and
/// the end; both are 0 in one that gives no more.
pub(crate) fn kfunc<M: Machine + ?Sized>(
    machine: &mut M,
    id: u32,
    args: [u64; 5],
) -> Result<u64, TrapKind> {
    let Some(kfunc) = KfuncId::from_number(id) else {
        return Err(TrapKind::NoKfunc { id });
    };
    let at = args[0];
    let behind = at.wrapping_add(4);
    let mut set = |current: i32, end: i32| {
        machine.store(at, Width::W32, current as u64)?;
        machine.store(behind, Width::W32, end as u64)
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
            let current = machine.load(at, Width::W32)? as i32;
            let end = machine.load(behind, Width::W32)? as i32;
            let next = current.wrapping_add(1);
            if next >= end {
                machine.store(at, Width::W32, 0)?;
                machine.store(behind, Width::W32, 0)?;
                return Ok(0);
            }
            machine.store(at, Width::W32, next as u64)?;
            Ok(at)
        }
        KfuncId::IterNumDestroy => {
            set(0, 0)?;
            Ok(0)
        }
    }
}

/// `bpf_loop`: calls `function` with 0, 1, … and `context` until it returns 1, at most `args[0]` times (32 bits), for
/// machines that offer it. `args` are those of the helper: number, function, context, flags.
///
/// # Errors
/// The trap that ended a call.
pub fn bpf_loop<M: Machine + ?Sized>(
    machine: &mut M,
    args: [u64; 5],
    callback: &mut Callback<'_>,
) -> Result<u64, TrapKind> {
    let [count, function, context, flags, _] = args;
    let count = count as u32;
    if flags != 0 {
        return Ok(EINVAL as u64);
    }
    if count > MAX_LOOPS {
        return Ok(E2BIG as u64);
    }
    for index in 0..count {
        if callback.call(machine, function, [u64::from(index), context, 0, 0, 0])? != 0 {
            return Ok(u64::from(index) + 1);
        }
    }
    Ok(u64::from(count))
}
