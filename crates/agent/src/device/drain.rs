//! What a drain has to know: who asked for one, and which launches it is for
//! ([`crate::contexts::drain_wait`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use warpbpf_driver::DriverError;
use warpbpf_driver::sys::CUcontext;

use crate::kernels::generation::Generation;
use crate::sys::lock::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Requests that are to be answered.
    answers: Mutex<Vec<u64>>,
    /// There was a launch with a second tool's programs.
    used: AtomicBool,
    /// Programs that are in force no more, of which launches may be under way: those are in no
    /// stream yet.
    left: Mutex<Vec<&'static Generation>>,
}

impl Drain {
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.answers))
    }

    pub(crate) fn answer(&self, token: u64) {
        lock(&self.answers).push(token);
    }

    /// There was such a launch.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Others are in force now.
    pub(crate) fn leave(&self, generation: &'static Generation) {
        let mut left = lock(&self.left);
        left.retain(|generation| !generation.is_left());
        left.push(generation);
    }

    /// No launch with programs that are in force no more is under way.
    pub(crate) fn all_left(&self) -> bool {
        let mut left = lock(&self.left);
        left.retain(|generation| !generation.is_left());
        left.is_empty()
    }

    /// A launch with a second tool's programs is about to be made.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// Why it is not known that kernels have ended.
#[derive(Debug, PartialEq)]
pub(crate) enum NotDrained {
    /// The application captured all the while.
    Captures,
    /// Some have not.
    Running,
    /// The driver does not say.
    Driver(DriverError),
}

impl fmt::Display for NotDrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDrained::Captures => f.write_str(
                "the application was capturing a graph all the while, which that would have spoiled",
            ),
            NotDrained::Running => f.write_str("some were still running"),
            NotDrained::Driver(error) => error.fmt(f),
        }
    }
}

/// How the wait for each context ended.
pub(crate) type Ends = HashMap<CUcontext, Result<(), NotDrained>>;

/// Whether some had not ended then; `None`: that is not known.
pub(crate) fn kernels_ran(end: &Result<(), NotDrained>) -> Option<bool> {
    match end {
        Ok(()) => Some(false),
        Err(NotDrained::Running) => Some(true),
        Err(NotDrained::Captures | NotDrained::Driver(_)) => None,
    }
}

/// The first that says why.
pub(crate) fn all(ends: Ends) -> Result<(), NotDrained> {
    ends.into_values().collect()
}
