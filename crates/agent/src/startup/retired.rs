//! Agents of sessions that are over. What an agent holds is freed when no thread can be in its code
//! any more: hooks are out, new calls find no agent, the agent's own threads have ended, and the
//! tool has looked at all threads while they stood still.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::contexts::launch_memory;
use crate::runtime::agent::Agent;
use crate::runtime::published::unpublish;
use crate::sys::lock::lock;

/// Those that wait for a moment at which no thread is in their code.
static RETIRED: Mutex<Vec<&'static Agent>> = Mutex::new(Vec::new());

/// How long threads of an agent may take to end.
const LAST: Duration = Duration::from_secs(1);
/// Between two looks at them.
const TICK: Duration = Duration::from_millis(1);

/// Retires an agent whose hooks are out and which has given back what it had of the driver, and
/// frees all that were retired, once `have_ended` says that no thread of ours has an agent, if
/// `is_quiet` says then that no thread is in our code. The caller has no reference to `agent` that
/// it uses afterwards.
pub(crate) fn retire(
    agent: &'static Agent,
    have_ended: impl Fn() -> bool,
    is_quiet: impl FnOnce() -> bool,
) {
    // Who comes from now on finds none.
    unpublish(agent);
    lock(&RETIRED).push(agent);
    let end = Instant::now() + LAST;
    while !have_ended() {
        if Instant::now() >= end {
            return;
        }
        std::thread::sleep(TICK);
    }
    if !is_quiet() {
        return;
    }
    for agent in std::mem::take(&mut *lock(&RETIRED)) {
        launch_memory::forget(agent);
        // SAFETY: nobody could get it since it was unpublished, which was before all threads stood
        // still with none in our code, and its own threads have ended.
        unsafe { agent.free() };
    }
}

impl Agent {
    /// Frees it, and all that it keeps.
    ///
    /// # Safety
    /// It is off and has been [given back](Agent::give_back), and nobody has a reference to it or
    /// to what it keeps.
    unsafe fn free(&'static self) {
        let agent = std::ptr::from_ref(self).cast_mut();
        // SAFETY: `leak` made it of a box; the caller's promise.
        drop(unsafe { Box::from_raw(agent) });
    }
}
