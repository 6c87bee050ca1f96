//! What there is in a context, for a thread that makes something there: an application's never waits for one of ours.
//!
//! Ours loads code beside the application when no launch is under way (see `door`), for which it may try for long. A launch that waited for it until then would
//! be what it waits for. So the launch goes on without, and ours makes up for what was not made for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::door::is_beside;
use crate::lives::{LiveState, Shard, tried};

/// Between two looks whether another thread is done.
const LOOK: Duration = Duration::from_micros(50);

/// Threads of ours that make something in a context.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    here: AtomicUsize,
    turned_away: AtomicBool,
}

impl Ours {
    /// Another thread is not to wait for one that is here now.
    fn turns_away(&self) -> bool {
        // In one order with who leaves: they see this, or this sees that they have left.
        self.turned_away.store(true, Ordering::SeqCst);
        !is_beside() && self.here.load(Ordering::SeqCst) > 0
    }
}

impl Shard {
    /// Runs `work`, which makes something here; then `after`, if it was on a thread of ours and others were turned away meanwhile.
    pub(crate) fn make<T>(&self, work: impl FnOnce() -> T, after: impl FnOnce()) -> T {
        if !is_beside() {
            return work();
        }
        self.ours.here.fetch_add(1, Ordering::SeqCst);
        let done = work();
        self.ours.here.fetch_sub(1, Ordering::SeqCst);
        if self.ours.turned_away.swap(false, Ordering::SeqCst) {
            after();
        }
        done
    }

    /// What is there. None where that would be to wait for a thread of ours.
    pub(crate) fn look(&self) -> Option<RwLockReadGuard<'_, LiveState>> {
        loop {
            if let Some(state) = tried(self.state.try_read()) {
                return Some(state);
            }
            if self.ours.turns_away() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The same, to put something there. None where there is something by now, too.
    pub(crate) fn look_to_make(&self) -> Option<RwLockWriteGuard<'_, LiveState>> {
        loop {
            let state = tried(self.state.try_write());
            if let Some(state) = state {
                return matches!(*state, LiveState::NotYet).then_some(state);
            }
            // Whoever uses what is there may do so for long.
            if let Some(state) = tried(self.state.try_read())
                && !matches!(*state, LiveState::NotYet)
            {
                return None;
            }
            if self.ours.turns_away() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}
