//! The replacement of programs that is under way, if one is, and how a change is refused.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use warpbpf_session::Assembled;
use warpbpf_wire::{Changed, Refusal};

use crate::sys::lock::lock;

/// `-EINVAL`: what was asked for cannot be.
pub(crate) const EINVAL: i32 = -22;

/// `-EIO`: the driver does not do it.
pub(crate) const EIO: i32 = -5;

/// `-EAGAIN`, `-ENOMEM`, `-EBUSY`, `-ETIMEDOUT`.
pub(crate) const EAGAIN: i32 = -11;

pub(crate) const ENOMEM: i32 = -12;

pub(crate) const EBUSY: i32 = -16;

pub(crate) const ETIMEDOUT: i32 = -110;

/// Between two looks at something that ends soon.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The replacement that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    pub(crate) running: Mutex<Option<Running>>,
    /// Held by the thread that works on it, to its end.
    pub(crate) working: Mutex<()>,
    /// Held by the thread that writes a gate.
    pub(crate) writing: Mutex<()>,
    /// Functions for machine code that came for the next replacement.
    pub(crate) functions: Mutex<Assembled>,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) token: u64,
    pub(crate) limit: Duration,
    pub(crate) end: Instant,
    pub(crate) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The old programs are in force.
    Working,
    /// The new ones are.
    Done,
    /// It took too long, and the tool was told so.
    GivenUp,
}

/// The answer that nothing was changed.
pub(crate) fn refused(token: u64, generation: u64, errno: i32, message: String) -> Changed {
    Changed {
        token,
        refused: Some(Refusal { errno, message }),
        generation,
        ..Changed::default()
    }
}

impl Replacement {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.lock().as_ref().map(|running| running.phase)
    }

    /// The next replacement will need this function for machine code.
    pub(crate) fn take_function(&self, text: String, cubin: Result<Vec<u8>, String>) {
        lock(&self.functions).add(text, cubin);
    }

    /// A gate is being written, until this is dropped.
    pub(crate) fn writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody works on it, or on a gate, at most so long; nothing new is made once the
    /// agent is off.
    pub(crate) fn wait_until_idle(&self, limit: Duration) {
        let end = Instant::now() + limit;
        for busy in [&self.working, &self.writing] {
            while let Err(TryLockError::WouldBlock) = busy.try_lock() {
                if Instant::now() >= end {
                    return;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// When the control thread has to look whether it takes too long.
    pub(crate) fn due(&self) -> Option<Instant> {
        let running = self.lock();
        let working = running.as_ref().filter(|r| r.phase == Phase::Working);
        working.map(|running| running.end)
    }
}
