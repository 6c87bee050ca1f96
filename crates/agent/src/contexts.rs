//! Contexts come and go: images that waited for one are instrumented, and nothing of ours outlives one.

use std::ffi::{c_int, c_uint};
use std::ptr;

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUresult};

use crate::agent::Agent;
use crate::exports::original;
use crate::guard::Outcome;
use crate::modules;

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn set_current(
    agent: &'static Agent,
    outcome: &Outcome,
    context: CUcontext,
) -> CUresult {
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::ctx_set_current(context) });
    if code == sys::SUCCESS && !context.is_null() {
        modules::settle_pending(agent);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn push_current(
    agent: &'static Agent,
    outcome: &Outcome,
    context: CUcontext,
) -> CUresult {
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::ctx_push_current(context) });
    if code == sys::SUCCESS {
        modules::settle_pending(agent);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn destroy(agent: &Agent, outcome: &Outcome, context: CUcontext) -> CUresult {
    // SAFETY: the application's own argument.
    let end = || outcome.keep(unsafe { original::ctx_destroy(context) });
    agent.context_ends(Context(context), end, |code| *code == sys::SUCCESS)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn primary_reset(agent: &Agent, outcome: &Outcome, device: CUdevice) -> CUresult {
    // SAFETY: the application's own argument.
    let end = || outcome.keep(unsafe { original::primary_reset(device) });
    match ours_on(agent, device) {
        Some(context) => agent.context_ends(context, end, |code| *code == sys::SUCCESS),
        None => end(),
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn primary_release(
    agent: &Agent,
    outcome: &Outcome,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own argument.
    let end = || outcome.keep(unsafe { original::primary_release(device) });
    match ours_on(agent, device) {
        Some(context) => {
            // Only the last release ends the context, and only the driver knows which one is the last.
            agent.context_ends(context, end, |code| {
                *code == sys::SUCCESS && !is_active(agent, device)
            })
        }
        None => end(),
    }
}

/// The context of the maps, if it is on this device.
fn ours_on(agent: &Agent, device: CUdevice) -> Option<Context> {
    let context = agent.live_context()?;
    let mut there = -1;
    let mut popped = ptr::null_mut();
    let api = &agent.driver.api;
    // SAFETY: a live context, pushed and popped again, and writable locals.
    unsafe {
        if (api.ctx_push)(context.0) != sys::SUCCESS {
            return None;
        }
        (api.ctx_get_device)(&mut there);
        (api.ctx_pop)(&mut popped);
    }
    (there == device).then_some(context)
}

/// The device's primary context exists. If the driver cannot say, it is taken for ended: then nothing of ours touches it.
fn is_active(agent: &Agent, device: CUdevice) -> bool {
    type GetState = unsafe extern "C" fn(CUdevice, *mut c_uint, *mut c_int) -> CUresult;
    let Some(address) = agent.symbol("cuDevicePrimaryCtxGetState") else {
        return false;
    };
    // SAFETY: the driver's function of this name has this signature.
    let get_state: GetState = unsafe { std::mem::transmute(address) };
    let (mut flags, mut active) = (0, 0);
    // SAFETY: writable locals.
    let code = unsafe { get_state(device, &mut flags, &mut active) };
    code == sys::SUCCESS && active != 0
}
