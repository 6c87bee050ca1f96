//! Contexts: made, made current, asked about, destroyed.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::driver::{arrays, capture, device, images, memory, peers};
use crate::error::{CuError, CuResult};
use crate::objects::context::{Allocation, Context};
use crate::objects::handle::{Handle, lock};
use crate::state::{
    Soft, context, current, current_any, current_handle, new_context, put, put_if, soft, with_stack,
};

pub(crate) unsafe fn create_v2(to: *mut Handle, flags: u32, ordinal: c_int) -> CuResult {
    let soft = device::check(ordinal)?;
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let context = new_context(soft, ordinal as usize, flags);
    with_stack(|stack| stack.push(context.handle));
    // SAFETY: the caller's pointer.
    unsafe { put(to, context.handle) }
}

pub(crate) unsafe fn create_v4(
    to: *mut Handle,
    _params: *const c_void,
    flags: u32,
    ordinal: c_int,
) -> CuResult {
    // SAFETY: as the caller promises. The parameters ask for affinities, which change nothing here.
    unsafe { create_v2(to, flags, ordinal) }
}

pub(crate) unsafe fn create_v3(
    to: *mut Handle,
    _affinities: *const c_void,
    _n_affinities: c_int,
    flags: u32,
    ordinal: c_int,
) -> CuResult {
    // SAFETY: as above.
    unsafe { create_v2(to, flags, ordinal) }
}

pub(crate) unsafe fn destroy(handle: Handle) -> CuResult {
    let soft = soft()?;
    let context = context(soft, handle)?;
    if context.primary {
        return Err(CuError::INVALID_CONTEXT);
    }
    clear_context(soft, &context);
    context.null_stream.close();
    context.uses.store(0, Ordering::Release);
    soft.contexts.remove(handle);
    with_stack(|stack| {
        if stack.last() == Some(handle) {
            stack.pop();
        }
    });
    Ok(())
}

pub(crate) unsafe fn get_current(to: *mut Handle) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, current_handle()) }
}

pub(crate) unsafe fn set_current(handle: Handle) -> CuResult {
    let soft = soft()?;
    // A primary context may be made current before it is retained, as with NVIDIA's driver.
    let primary = soft.contexts.get(handle).is_some_and(|c| c.primary);
    if handle != 0 && !primary {
        context(soft, handle)?;
    }
    with_stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
    Ok(())
}

pub(crate) unsafe fn push(handle: Handle) -> CuResult {
    context(soft()?, handle).map_err(|_| CuError::INVALID_CONTEXT)?;
    with_stack(|stack| stack.push(handle));
    Ok(())
}

pub(crate) unsafe fn pop(to: *mut Handle) -> CuResult {
    soft()?;
    let popped = with_stack(|stack| stack.pop()).ok_or(CuError::INVALID_CONTEXT)?;
    // SAFETY: the caller's pointer.
    unsafe { put_if(to, popped) };
    Ok(())
}

pub(crate) unsafe fn get_device(to: *mut c_int) -> CuResult {
    // A primary context that is not retained is of a device, too.
    let context = soft()?.contexts.get(current_handle());
    let device = context.ok_or(CuError::INVALID_CONTEXT)?.device;
    // SAFETY: the caller's pointer.
    unsafe { put(to, device as c_int) }
}

pub(crate) unsafe fn get_device_v2(to: *mut c_int, handle: Handle) -> CuResult {
    let context = match handle {
        0 => current_any()?,
        handle => context(soft()?, handle)?,
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, context.device as c_int) }
}

pub(crate) unsafe fn synchronize() -> CuResult {
    capture::unsafe_call(soft()?)?;
    let context = current_any()?;
    capture::refuse_context(soft()?, &context)?;
    context.synchronize()
}

pub(crate) unsafe fn synchronize_v2(handle: Handle) -> CuResult {
    capture::unsafe_call(soft()?)?;
    let context = match handle {
        0 => current_any()?,
        handle => context(soft()?, handle)?,
    };
    capture::refuse_context(soft()?, &context)?;
    context.synchronize()
}

pub(crate) unsafe fn flags(to: *mut u32) -> CuResult {
    let flags = current_any()?.flags.load(Ordering::Acquire);
    // SAFETY: the caller's pointer.
    unsafe { put(to, flags) }
}

pub(crate) unsafe fn set_flags(flags: u32) -> CuResult {
    current_any()?.flags.store(flags, Ordering::Release);
    Ok(())
}

pub(crate) unsafe fn id(handle: Handle, to: *mut u64) -> CuResult {
    let context = if handle == 0 {
        current_any()?
    } else {
        context(soft()?, handle)?
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, context.id) }
}

pub(crate) unsafe fn api_version(handle: Handle, to: *mut u32) -> CuResult {
    if handle == 0 {
        current_any()?;
    } else {
        context(soft()?, handle)?;
    }
    // SAFETY: the caller's pointer. The number is that of `cuCtxCreate_v2`, which NVIDIA's driver
    // also gives.
    unsafe { put(to, 3020) }
}

/// Defaults of `CU_LIMIT_…` by number: stack size, printf FIFO, heap, sync depth, pending launches,
/// L2 fetch, L2 set-aside.
const LIMITS: [(u32, usize); 7] = [
    (0, 1024),
    (1, 1 << 20),
    (2, 8 << 20),
    (3, 2),
    (4, 2048),
    (5, 64),
    (6, 0),
];

pub(crate) unsafe fn get_limit(to: *mut usize, limit: u32) -> CuResult {
    let context = current()?;
    let default = LIMITS
        .iter()
        .find(|(number, _)| *number == limit)
        .ok_or(CuError::UNSUPPORTED_LIMIT)?
        .1;
    let value = lock(&context.limits)
        .get(&limit)
        .copied()
        .unwrap_or(default);
    // SAFETY: the caller's pointer.
    unsafe { put(to, value) }
}

/// Remembered for [`get_limit`]; nothing here runs out of what the limits are about.
pub(crate) unsafe fn set_limit(limit: u32, value: usize) -> CuResult {
    let context = current()?;
    if !LIMITS.iter().any(|(number, _)| *number == limit) {
        return Err(CuError::UNSUPPORTED_LIMIT);
    }
    lock(&context.limits).insert(limit, value);
    Ok(())
}

pub(crate) unsafe fn get_cache_config(to: *mut u32) -> CuResult {
    let config = current()?.cache_config.load(Ordering::Acquire);
    // SAFETY: the caller's pointer.
    unsafe { put(to, config) }
}

pub(crate) unsafe fn set_cache_config(config: u32) -> CuResult {
    current()?.cache_config.store(config, Ordering::Release);
    Ok(())
}

pub(crate) unsafe fn get_shared_config(to: *mut u32) -> CuResult {
    current()?;
    // SAFETY: the caller's pointer. Four-byte banks, the only size since sm_50.
    unsafe { put(to, 1) }
}

pub(crate) unsafe fn set_shared_config(_config: u32) -> CuResult {
    current().map(|_| ())
}

pub(crate) unsafe fn priority_range(least: *mut c_int, greatest: *mut c_int) -> CuResult {
    current()?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(least, 0);
        put_if(greatest, crate::driver::streams::GREATEST_PRIORITY);
    }
    Ok(())
}

pub(crate) unsafe fn reset_persisting_l2() -> CuResult {
    current().map(|_| ())
}

pub(crate) unsafe fn primary_release(device: c_int) -> CuResult {
    let (soft, device) = device::find(device)?;
    let released = device
        .primary
        .uses
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
            uses.checked_sub(1)
        });
    match released {
        Err(_) => Err(CuError::INVALID_CONTEXT),
        Ok(1) => {
            clear_context(soft, &device.primary);
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

pub(crate) unsafe fn primary_reset(device: c_int) -> CuResult {
    let (soft, device) = device::find(device)?;
    clear_context(soft, &device.primary);
    Ok(())
}

/// Ends all that belongs to a context: work, modules, memory, streams, events.
fn clear_context(soft: &Soft, context: &Context) {
    let _ = context.synchronize();
    let own = context.handle;
    soft.functions
        .retain(|function| function.module.context != own);
    for library in soft.libraries.all() {
        library.forget_context(own);
    }
    soft.modules.retain(|module| module.context != own);
    for stream in soft
        .streams
        .all()
        .iter()
        .filter(|stream| stream.context == own)
    {
        stream.close();
    }
    soft.streams.retain(|stream| stream.context != own);
    capture::forget_context(soft, own);
    soft.events.retain(|event| event.context != own);
    peers::forget_context(soft, context);
    images::forget_context(soft, own);
    arrays::forget_context(soft, own);
    let allocations: Vec<Allocation> = lock(&soft.allocations)
        .values()
        .filter(|allocation| allocation.context == own)
        .copied()
        .collect();
    for allocation in allocations {
        memory::release(soft, &allocation);
    }
    lock(&context.limits).clear();
    context.sticky.store(0, Ordering::Release);
}
