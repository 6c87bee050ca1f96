//! What there is in a context, for a thread that makes something there: an application's never waits for one of ours.
//!
//! Ours loads code beside the application when no launch is under way (see `door`), for which it may try for long. A launch that waited for it until then would
//! be what it waits for. So the launch goes on without, and ours makes up for what was not made for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
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
        if !is_beside() {
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

    /// A lock that others hold for as long as they make something. None where that would be to wait for one of ours.
    pub(crate) fn lock<'l, T>(&self, lock: &'l Mutex<T>) -> Option<MutexGuard<'l, T>> {
        loop {
            if let Some(guard) = tried(lock.try_lock()) {
                return Some(guard);
            }
            if self.turns_away() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Another thread is not to wait for one that is here now.
    fn turns_away(&self) -> bool {
        if is_beside() || !self.is_here() {
            return false;
        }
        // In one order with who leaves: they see this, or this sees that they have left.
        self.turned_away.store(true, Ordering::SeqCst);
        self.is_here()
    }
}

impl Shard {
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
