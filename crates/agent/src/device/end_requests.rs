//! What an end of the process asks of the thread that speaks with the tool, and what that has done
//! for it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use warpbpf_hook::{Target, in_force};

use crate::sys::descriptors::FileThread;

/// How long an end is kept waiting.
const PATIENCE: Duration = Duration::from_millis(200);

/// What an end asks for, and what has been done for it.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// What is hooked when there is a session. Looked for before, as that asks the dynamic linker.
    pub(crate) targets: Mutex<Vec<Target>>,
    /// The code of `_exit`.
    exit: Range<u64>,
    /// The thread on which the process ends by its handlers, where the session ends in `_exit`,
    /// which comes behind them; 0 if none. Other threads leave by `_exit` as ever.
    pub(crate) put_off_to: AtomicU32,
    pub(crate) asked: AtomicU32,
    pub(crate) done: AtomicU32,
    /// Nothing comes behind it.
    is_last: AtomicBool,
}

impl Ends {
    /// What is to be hooked, of which the first is `_exit`.
    pub(crate) fn new(targets: Vec<Target>) -> Ends {
        Ends {
            exit: targets.first().map(code).unwrap_or_default(),
            targets: Mutex::new(targets),
            ..Ends::default()
        }
    }

    /// `_exit` is hooked.
    pub(crate) fn has_exit(&self) -> bool {
        in_force().iter().any(|patch| self.exit.contains(&patch.at))
    }

    /// An end waits for what is there. For the thread that speaks with the tool; it answers by
    /// [`Ends::answer`].
    pub(crate) fn asked(&self) -> Option<u32> {
        let asked = self.asked.load(Ordering::Acquire);
        (asked != self.done.load(Ordering::Acquire)).then_some(asked)
    }

    /// The process ends in any case. A program may turn out not to be there that was to take the
    /// place of this one.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// What was asked for with this number is done.
    pub(crate) fn answer(&self, asked: u32) {
        self.done.store(asked, Ordering::Release);
        let _ = futex::wake(&self.done, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// The process is about to end, or, if it is not the last that it does, to become another
    /// program: everything is brought home.
    pub(crate) fn before(&self, files: &FileThread, is_last: bool) {
        self.is_last.store(is_last, Ordering::Release);
        self.bring_home(files);
    }

    /// Has everything brought home. Nothing but atomics and system calls: the caller may be in a
    /// signal handler.
    fn bring_home(&self, files: &FileThread) {
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        files.ring();
        let end = Instant::now() + PATIENCE;
        loop {
            let done = self.done.load(Ordering::Acquire);
            let left = end.saturating_duration_since(Instant::now());
            if done.wrapping_sub(number).cast_signed() >= 0 || left.is_zero() {
                return;
            }
            let limit = futex::Timespec {
                tv_sec: 0,
                tv_nsec: left.as_nanos() as _,
            };
            // Whatever it says, the number is looked at next.
            let _ = futex::wait(&self.done, futex::Flags::PRIVATE, done, Some(&limit));
        }
    }
}

pub(crate) fn code(target: &Target) -> Range<u64> {
    target.address as u64..(target.address + target.code.len()) as u64
}
