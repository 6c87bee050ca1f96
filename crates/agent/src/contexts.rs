//! Contexts come and go: images that waited for one are instrumented, and nothing of ours outlives one.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUresult};
use warpbpf_session::Session;

use crate::agent::Agent;
use crate::context_registry::{ContextState, Shard};
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
        // A program whose first call is a launch: the runtime loads its code while the primary context is current but
        // not alive, and this is what brings it to life, before the launch.
        if agent.has_pending() {
            modules::instrument_pending(agent);
        }
    }
    code
}

/// What only watches the host, programs on the CPU and timelines, needs a context's maps before anything is launched there, and the runtime may have made
/// its context live by calls that nobody sees: so the first allocations and launches there are an occasion, too.
#[inline]
pub(crate) fn look_for_life(agent: &'static Agent) {
    if agent.has_pending() {
        make_live_for_host(agent);
    }
}

/// The session in force, if it needs contexts' maps though no program wants a kernel there.
fn watching(agent: &Agent) -> Option<&Arc<Session>> {
    let session = agent.generations.now().session.get();
    session.filter(|session| !session.host_programs().is_empty() || session.timeline())
}

/// Primary contexts that were there before this agent get their maps now, if something only watches
/// the host: nothing may ever be loaded there by which they would. On a thread of ours.
pub(crate) fn watch_those_there(agent: &'static Agent) {
    if watching(agent).is_none() {
        return;
    }
    let devices = agent.driver.device_count().unwrap_or(0) as CUdevice;
    for device in (0..devices).filter(|device| is_active(agent, *device)) {
        agent.driver.within_primary(device, || {
            if let Some(context) = agent.driver.current() {
                was_there(agent, context);
                watch_here(agent);
            }
        });
    }
}

/// The current context gets its maps, if something only watches the host. On a thread of ours.
pub(crate) fn watch_here(agent: &'static Agent) {
    if let Some(session) = watching(agent) {
        // Where there can be none, the report says so.
        let _ = agent.with_live(session, |_| ());
    }
}

/// Something watches the host, and this context has no maps yet.
pub(crate) fn is_to_be_watched(agent: &Agent, context: Context) -> bool {
    let not_yet = |shard: Arc<Shard>| matches!(shard.look().as_deref(), Some(ContextState::NotYet));
    watching(agent).is_some() && agent.context_registry.of(context).is_none_or(not_yet)
}

#[cold]
fn make_live_for_host(agent: &'static Agent) {
    if watching(agent).is_none() {
        return;
    }
    let Some(context) = agent.driver.current() else {
        return;
    };
    let shard = agent.context_registry.of(context);
    let sleeps = |shard: Arc<Shard>| matches!(shard.look().as_deref(), Some(ContextState::NotYet));
    let asleep = shard.is_none_or(sleeps);
    if asleep {
        modules::instrument_pending(agent);
    }
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

// The runtime of CUDA 13 resets a device by the first version, as programs may that were built long ago.
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
        memory::context_gone(agent, context as usize);
    }
    code
}

fn reset(agent: &Agent, device: CUdevice, end: impl FnOnce() -> CUresult) -> CUresult {
    let code = match agent.retains.context(device) {
        Some(context) => agent.context_ends(context, end, |code| *code == sys::SUCCESS),
        None => end(),
    };
    if code == sys::SUCCESS {
        memory::primary_gone(agent, device);
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
        // The last release ends the context. One that is not the last must not wait for kernels: the application may be
        // about to give them what they wait for. Somebody may have released it in a way that we do not see.
        Some(context) if agent.retains.of(device) > 1 => agent.context_may_end(context, end, ended),
        Some(context) => agent.context_ends(context, end, ended),
        None => end(),
    };
    if agent.memory.is_watched() && ended(&code) {
        memory::primary_gone(agent, device);
    }
    code
}

/// A context is there that we did not see come. If it is its device's primary one, the application holds it at least once.
pub(crate) fn was_there(agent: &Agent, context: Context) {
    let Ok(device) = agent.driver.current_device() else {
        return;
    };
    if agent.retains.context(device).is_some() || !is_active(agent, device) {
        return;
    }
    let mut primary: CUcontext = std::ptr::null_mut();
    let api = &agent.driver.api;
    // SAFETY: a writable local.
    if unsafe { (api.primary_retain)(&mut primary, device) } != sys::SUCCESS {
        return;
    }
    // SAFETY: gives back what was just taken; others hold it.
    unsafe { (api.primary_release)(device) };
    if primary == context.0 {
        agent.retains.is(device, primary as usize);
        if agent.retains.of(device) == 0 {
            agent.retains.add(device, 1);
        }
        agent.memory.note_primary(device, primary as usize);
    }
}

/// How often the application holds the primary context of each device, as far as we saw, and which one that is.
#[derive(Debug)]
pub(crate) struct Retains([(AtomicI32, AtomicUsize); MOST_DEVICES]);

/// More devices than a machine has; those beyond are treated as if each release were the last.
const MOST_DEVICES: usize = 64;

impl Default for Retains {
    fn default() -> Retains {
        Retains([const { (AtomicI32::new(0), AtomicUsize::new(0)) }; MOST_DEVICES])
    }
}

impl Retains {
    fn slot(&self, device: CUdevice) -> Option<&(AtomicI32, AtomicUsize)> {
        self.0.get(usize::try_from(device).ok()?)
    }

    fn add(&self, device: CUdevice, more: i32) {
        if let Some(slot) = self.slot(device) {
            slot.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn is(&self, device: CUdevice, context: usize) {
        if let Some(slot) = self.slot(device) {
            slot.1.store(context, Ordering::Relaxed);
        }
    }

    fn context(&self, device: CUdevice) -> Option<Context> {
        let context = self.slot(device)?.1.load(Ordering::Relaxed);
        (context != 0).then_some(Context(context as CUcontext))
    }

    /// Primary contexts that the application holds.
    fn held(&self) -> impl Iterator<Item = Context> {
        let held = self
            .0
            .iter()
            .filter(|slot| slot.0.load(Ordering::Relaxed) > 0);
        held.map(|slot| Context(slot.1.load(Ordering::Relaxed) as CUcontext))
            .filter(|context| !context.0.is_null())
    }

    fn of(&self, device: CUdevice) -> i32 {
        self.slot(device).map_or(0, |s| s.0.load(Ordering::Relaxed))
    }
}

impl Agent {
    /// Code enters a context when it is needed there first, and not when it is loaded: so the driver is told.
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
