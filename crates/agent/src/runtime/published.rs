//! The agent of this process, for hooks and handlers that nobody gives one.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::runtime::agent::Agent;
use crate::sys::guard;

/// The agent of this process, null before it is installed.
static AGENT: AtomicPtr<Agent> = AtomicPtr::new(std::ptr::null_mut());

/// The agent of this process.
#[inline]
pub(crate) fn agent() -> Option<&'static Agent> {
    // SAFETY: null, or the agent that `publish` was given, which lives until no thread is in our
    // code.
    unsafe { AGENT.load(Ordering::Acquire).as_ref() }
}

/// Hides the agent, if it is still the one of this process.
pub(crate) fn unpublish(agent: &'static Agent) {
    let agent = std::ptr::from_ref(agent).cast_mut();
    let _ = AGENT.compare_exchange(
        agent,
        std::ptr::null_mut(),
        Ordering::SeqCst,
        Ordering::Relaxed,
    );
}

/// Makes the agent visible to hooks.
pub(crate) fn publish(agent: &'static Agent) {
    guard::tell_failures_by(|part, said| {
        if let Some(agent) = self::agent() {
            agent.failed(part, said);
        }
    });
    AGENT.store(std::ptr::from_ref(agent).cast_mut(), Ordering::Release);
}
