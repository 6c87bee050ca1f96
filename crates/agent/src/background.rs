//! What there is in a context, for a thread that makes something there: an application's never waits for one of ours.
//!
//! A background thread loads code when no launch is under way (see `launch_barrier`), and may try
//! for long. A launch that waited for that thread would be what the thread waits for. So the launch
//! goes on without programs, and the background thread does later what was not done for the launch.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use warpbpf_session::Live;

use crate::agent::Agent;
use crate::context_registry::{ContextState, Shard, tried};
use crate::launch_barrier::is_background;
use crate::modules::instrument_pending;

/// Between two looks whether another thread is done.
const LOOK: Duration = Duration::from_micros(50);

/// Threads of ours that make something in a context.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    here: AtomicUsize,
    turned_away: AtomicBool,
}

/// One is here.
struct Here<'o>(&'o Ours);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.here.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ours {
    /// Runs `work`, which makes something; then `after`, if it was on a thread of ours and others were turned away meanwhile.
    pub(crate) fn make<T>(&self, work: impl FnOnce() -> T, after: impl FnOnce()) -> T {
        if !is_background() {
            return work();
        }
        self.here.fetch_add(1, Ordering::SeqCst);
        let here = Here(self);
        let done = work();
        drop(here);
        if self.turned_away.swap(false, Ordering::SeqCst) {
            after();
        }
        done
    }

    /// One is at work.
    pub(crate) fn is_here(&self) -> bool {
        self.here.load(Ordering::SeqCst) > 0
    }

    /// Tries until it gives something. None where that would be to wait for one of ours.
    pub(crate) fn unless_here<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            let got = attempt();
            if got.is_some() || self.turns_away() {
                return got;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Another thread is not to wait for one that is here now.
    fn turns_away(&self) -> bool {
        if is_background() || !self.is_here() {
            return false;
        }
        // In one order with who leaves: they see this, or this sees that they have left.
        self.turned_away.store(true, Ordering::SeqCst);
        self.is_here()
    }
}

impl Shard {
    /// What is there. None where that would be to wait for a thread of ours.
    pub(crate) fn look(&self) -> Option<RwLockReadGuard<'_, ContextState>> {
        self.ours.unless_here(|| tried(self.state.try_read()))
    }

    /// The same, to put something there. None where there is something by now, too.
    pub(crate) fn look_to_make(&self) -> Option<RwLockWriteGuard<'_, ContextState>> {
        let look = || {
            let empty = |state: &ContextState| matches!(state, ContextState::NotYet);
            if let Some(state) = tried(self.state.try_write()) {
                return Some(empty(&state).then_some(state));
            }
            // Whoever uses what is there may do so for long.
            let there = tried(self.state.try_read())?;
            (!empty(&there)).then_some(None)
        };
        self.ours.unless_here(look).flatten()
    }
}

impl Agent {
    /// Has a thread of ours work with what is in a context, which is current meanwhile and cannot end. None where there is nothing.
    pub(crate) fn with_ours<T>(
        &'static self,
        shard: &Shard,
        work: impl FnOnce(&Live) -> T,
    ) -> Option<T> {
        let work = || match &*shard.read() {
            ContextState::Here(live) => self.driver.within(shard.context, || work(live)),
            ContextState::NotYet | ContextState::Gone(_) => None,
        };
        let after = || {
            self.driver
                .within(shard.context, || instrument_pending(self));
        };
        shard.ours.make(work, after)
    }
}
