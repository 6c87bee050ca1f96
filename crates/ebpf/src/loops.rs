//! `bpf_loop`, for machines that offer it.

use warpbpf_abi::kfuncs::MAX_LOOPS;
use warpbpf_abi::maps::{E2BIG, EINVAL};

use crate::interp::{Callback, Machine};
use crate::trap::TrapKind;

/// `bpf_loop`: calls `function` with 0, 1, … and `context` until it returns 1, at most `args[0]`
/// times (32 bits), for machines that offer it. `args` are those of the helper: number, function,
/// context, flags.
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
