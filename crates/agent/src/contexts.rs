//! Contexts come and go: images that waited for one are instrumented, and nothing of ours outlives one.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUresult};

use crate::agent::Agent;
use crate::exports::original;
use crate::guard::Outcome;
use crate::{memory, modules};

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
    let code = agent.context_ends(Context(context), end, |code| *code == sys::SUCCESS);
    if code == sys::SUCCESS {
        memory::context_gone(agent, context as usize);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn primary_retain(
    agent: &'static Agent,
    outcome: &Outcome,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::primary_retain(context, device) });
    if code == sys::SUCCESS {
        agent.retains.add(device, 1);
        if !context.is_null() {
            // SAFETY: the driver has written it.
            agent
                .memory
                .note_primary(device, unsafe { *context } as usize);
        }
        // A program whose first call is a launch: the runtime loads its code while the primary context is current but
        // not alive, and this is what brings it to life, before the launch.
        if agent.has_pending() {
            modules::settle_pending(agent);
        }
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn primary_reset(agent: &Agent, outcome: &Outcome, device: CUdevice) -> CUresult {
    // SAFETY: the application's own argument.
    let end = || outcome.keep(unsafe { original::primary_reset(device) });
    let code = match ours_on(agent, device) {
        Some(context) => agent.context_ends(context, end, |code| *code == sys::SUCCESS),
        None => end(),
    };
    if code == sys::SUCCESS {
        memory::primary_gone(agent, device);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn primary_release(
    agent: &Agent,
    outcome: &Outcome,
    device: CUdevice,
) -> CUresult {
    let end = || {
        // SAFETY: the application's own argument.
        let code = outcome.keep(unsafe { original::primary_release(device) });
        if code == sys::SUCCESS {
            agent.retains.add(device, -1);
        }
        code
    };
    let Some(context) = ours_on(agent, device) else {
        let code = end();
        if code == sys::SUCCESS && agent.memory.is_watched() && !is_active(agent, device) {
            memory::primary_gone(agent, device);
        }
        return code;
    };
    // The last release ends the context. One that is not the last must not wait for kernels: the application may be
    // about to give them what they wait for.
    if agent.retains.of(device) > 1 {
        // Somebody may have released it in a way that we do not see.
        return agent.context_may_end(context, end, |code| {
            *code == sys::SUCCESS && !is_active(agent, device)
        });
    }
    agent.context_ends(context, end, |code| {
        *code == sys::SUCCESS && !is_active(agent, device)
    })
}

/// How often the application holds the primary context of each device, as far as we saw.
#[derive(Debug)]
pub(crate) struct Retains([AtomicI32; MOST_DEVICES]);

/// More devices than a machine has; those beyond are treated as if each release were the last.
const MOST_DEVICES: usize = 64;

impl Default for Retains {
    fn default() -> Retains {
        Retains([const { AtomicI32::new(0) }; MOST_DEVICES])
    }
}

impl Retains {
    fn slot(&self, device: CUdevice) -> Option<&AtomicI32> {
        self.0.get(usize::try_from(device).ok()?)
    }

    fn add(&self, device: CUdevice, more: i32) {
        if let Some(slot) = self.slot(device) {
            slot.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn of(&self, device: CUdevice) -> i32 {
        self.slot(device).map_or(0, |s| s.load(Ordering::Relaxed))
    }
}

/// The context of the maps, if it is on this device.
fn ours_on(agent: &Agent, device: CUdevice) -> Option<Context> {
    let context = agent.live_context()?;
    let mut there = -1;
    agent.driver.within(context, || {
        // SAFETY: a writable local.
        unsafe { (agent.driver.api.ctx_get_device)(&mut there) }
    })?;
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
