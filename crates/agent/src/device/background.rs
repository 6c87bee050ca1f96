//! What there is in a context, for a thread that makes something there: an application's never
//! waits for one of ours.
//!
//! A background thread loads code when no launch is under way (see `launch_barrier`), and may try
//! for long. A launch that waited for that thread would be what the thread waits for. So the launch
//! goes on without programs, and the background thread does later what was not done for the launch.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

thread_local! {
    /// See [`is_background`].
    static BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread works beside the application.
pub(crate) fn is_background() -> bool {
    BACKGROUND.get()
}

/// The calling thread does, or does not any more.
pub(crate) fn set_background(is: bool) {
    BACKGROUND.set(is);
}

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
    /// Runs `work`, which makes something; then `after`, if it was on a thread of ours and others
    /// were turned away meanwhile.
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
