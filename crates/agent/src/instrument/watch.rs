//! Contexts that something only watches the host for: they get their maps though no program wants a
//! kernel there.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUresult};
use warpbpf_session::Session;

use crate::device::context_registry::{ContextState, Shard};
use crate::instrument::modules;
use crate::runtime::agent::Agent;

/// What only watches the host, programs on the CPU and timelines, needs a context's maps before
/// anything is launched there, and the runtime may have made its context live by calls that nobody
/// sees: so the first allocations and launches there are an occasion, too.
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

/// A context is there that we did not see come. If it is its device's primary one, the application
/// holds it at least once.
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

/// The device's primary context exists. If the driver cannot say, it is taken for ended: then
/// nothing of ours touches it.
pub(crate) fn is_active(agent: &Agent, device: CUdevice) -> bool {
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
