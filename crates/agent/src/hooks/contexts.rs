//! Contexts come and go: images that waited for one are instrumented, and nothing of ours outlives
//! one.

use std::ffi::{c_int, c_uint, c_void};

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUresult};

use crate::contexts::memory_table;
use crate::instrument::modules;
use crate::instrument::watch::is_active;
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;

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
        modules::instrument_pending(agent);
    }
    code
}

macro_rules! becomes_current {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(agent: &'static Agent, outcome: &Outcome, $($arg: $ty),*) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$name($($arg),*) });
            if code == sys::SUCCESS {
                // It is current from now on.
                modules::instrument_pending(agent);
            }
            code
        }
    )* };
}

becomes_current! {
    ctx_push_current(context: CUcontext);
    ctx_push_current_v1(context: CUcontext);
    ctx_create_v1(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    ctx_create_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    ctx_create_v3(context: *mut CUcontext, affinities: *mut c_void, count: c_int, flags: c_uint, device: CUdevice);
    ctx_create_v4(context: *mut CUcontext, params: *mut c_void, flags: c_uint, device: CUdevice);
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
            let context = unsafe { *context } as usize;
            agent.retains.is(device, context);
            agent.memory.note_primary(device, context);
        }
        // A program whose first call is a launch: the runtime loads its code while the primary
        // context is current but not alive, and this is what brings it to life, before the launch.
        if agent.has_pending() {
            modules::instrument_pending(agent);
        }
    }
    code
}

macro_rules! ends {
    ($($name:ident = $original:ident ($arg:ident: $ty:ty) => $end:ident;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(agent: &Agent, outcome: &Outcome, $arg: $ty) -> CUresult {
            // SAFETY: the application's own argument.
            $end(agent, $arg, || outcome.keep(unsafe { original::$original($arg) }))
        }
    )* };
}

// The runtime of CUDA 13 resets a device by the first version, as programs may that were built long
// ago.
ends! {
    destroy = ctx_destroy(context: CUcontext) => end;
    destroy_v1 = ctx_destroy_v1(context: CUcontext) => end;
    primary_reset = primary_reset(device: CUdevice) => reset;
    primary_reset_v1 = primary_reset_v1(device: CUdevice) => reset;
    primary_release = primary_release(device: CUdevice) => release;
    primary_release_v1 = primary_release_v1(device: CUdevice) => release;
}

fn end(agent: &Agent, context: CUcontext, end: impl FnOnce() -> CUresult) -> CUresult {
    let code = agent.context_ends(Context(context), end, |code| *code == sys::SUCCESS);
    if code == sys::SUCCESS {
        memory_table::context_gone(agent, context as usize);
    }
    code
}

fn reset(agent: &Agent, device: CUdevice, end: impl FnOnce() -> CUresult) -> CUresult {
    let code = match agent.retains.context(device) {
        Some(context) => agent.context_ends(context, end, |code| *code == sys::SUCCESS),
        None => end(),
    };
    if code == sys::SUCCESS {
        memory_table::primary_gone(agent, device);
    }
    code
}

fn release(agent: &Agent, device: CUdevice, end: impl FnOnce() -> CUresult) -> CUresult {
    let end = || {
        let code = end();
        if code == sys::SUCCESS {
            agent.retains.add(device, -1);
        }
        code
    };
    let ended = |code: &CUresult| *code == sys::SUCCESS && !is_active(agent, device);
    let code = match agent.retains.context(device) {
        // The last release ends the context. One that is not the last must not wait for kernels:
        // the application may be about to give them what they wait for. Somebody may have released
        // it in a way that we do not see.
        Some(context) if agent.retains.of(device) > 1 => agent.context_may_end(context, end, ended),
        Some(context) => agent.context_ends(context, end, ended),
        None => end(),
    };
    if agent.memory.is_watched() && ended(&code) {
        memory_table::primary_gone(agent, device);
    }
    code
}

impl Agent {
    /// Code enters a context when it is needed there first, and not when it is loaded: so the
    /// driver is told.
    pub(crate) fn loads_lazily(&self) -> bool {
        /// `CU_MODULE_LAZY_LOADING`
        const LAZY: c_int = 2;
        type GetMode = unsafe extern "C" fn(*mut c_int) -> CUresult;
        *self.lazy.get_or_init(|| {
            let Some(address) = self.symbol("cuModuleGetLoadingMode") else {
                return false;
            };
            // SAFETY: the driver's function of this name has this signature.
            let get_mode: GetMode = unsafe { std::mem::transmute(address) };
            let mut mode = 0;
            // SAFETY: a writable local.
            let code = unsafe { get_mode(&mut mode) };
            code == sys::SUCCESS && mode == LAZY
        })
    }

    /// Contexts that the application is known to have.
    pub(crate) fn known_contexts(&self) -> Vec<Context> {
        let mut all: Vec<Context> = self
            .context_registry
            .all()
            .iter()
            .map(|shard| shard.context)
            .collect();
        for held in self.retains.held() {
            if !all.contains(&held) {
                all.push(held);
            }
        }
        all
    }

    /// A context is on this device.
    pub(crate) fn is_on_device(&self, context: Context, device: CUdevice) -> bool {
        let mut there = -1;
        // SAFETY: a writable local.
        let ask = || unsafe { (self.driver.api.ctx_get_device)(&mut there) };
        self.driver.within(context, ask) == Some(sys::SUCCESS) && there == device
    }
}
