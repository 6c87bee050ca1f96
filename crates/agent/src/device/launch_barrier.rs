//! Where launches wait while a thread of ours loads ([`crate::contexts::exclusive`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::sys::lock::lock;

/// How often a launch looks whether somebody forgot it.
const LOOK: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LaunchBarrier {
    pub(crate) closed: AtomicBool,
    /// All launches pass here, those of kernels that nobody wants, too.
    pub(crate) used: AtomicBool,
    /// One exclusive section at a time; how long the launch barrier was closed for the last one.
    pub(crate) sections: Mutex<Duration>,
    pub(crate) waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Who waits at the launch barrier.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// How often those were let in who stood there.
    turn: u64,
    here: usize,
    /// Let in, and not counted as under way yet.
    pub(crate) let_in: usize,
}

/// The launch barrier is closed while this lives.
pub(crate) struct Closed<'d>(&'d LaunchBarrier);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.store(false, Ordering::SeqCst);
        // Whoever looked before that is in the wait by now.
        drop(lock(&self.0.waiting));
        self.0.changed.notify_all();
    }
}

impl LaunchBarrier {
    /// Launches of every kernel are to be seen.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Closes it, until the result is dropped.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.closed.store(true, Ordering::SeqCst);
        Closed(self)
    }

    /// Waits at the closed launch barrier. True if this launch was let in; else it is open.
    #[cold]
    pub(crate) fn is_let_in(&self, is_on: impl Fn() -> bool) -> bool {
        let mut waiting = lock(&self.waiting);
        let turn = waiting.turn;
        waiting.here += 1;
        while self.closed.load(Ordering::SeqCst) && is_on() && waiting.turn == turn {
            let woken = self.changed.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if waiting.turn == turn {
            waiting.here -= 1;
        }
        waiting.turn != turn
    }

    /// Whoever waits at the launch barrier goes on.
    pub(crate) fn let_in(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.turn += 1;
        waiting.let_in += std::mem::take(&mut waiting.here);
        drop(waiting);
        self.changed.notify_all();
    }

    /// No launch is on its way to the device. Who was let in counts as under way before it does not
    /// as let in any more.
    pub(crate) fn is_empty(&self, no_launch_is_under_way: impl FnOnce() -> bool) -> bool {
        lock(&self.waiting).let_in == 0 && no_launch_is_under_way()
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.used.store(false, Ordering::Relaxed);
    }
}
