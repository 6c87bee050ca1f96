//! Whether an agent that is to say its last words is at it: one that is stuck, or never was an
//! agent, is not waited for as long as one whose kernels run or whose maps are large.

use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// It has said that nothing will be heard of it for a while.
    pub(crate) announced: bool,
    /// Messages that came.
    pub(crate) messages: u64,
    /// What there was at the last look at which there was something new, and when that was.
    pub(crate) last: Option<([u64; 2], Instant)>,
}

impl Silence {
    /// How long nothing has come of it: no message, and nothing in the memory that it shares, of
    /// which this is the progress.
    pub(crate) fn lasts(&mut self, progress: u64, now: Instant) -> Duration {
        let is = [self.messages, progress];
        let (_, since) = match self.last {
            Some(last) if last.0 == is => last,
            _ => *self.last.insert((is, now)),
        };
        match self.announced {
            true => Duration::ZERO,
            false => now.saturating_duration_since(since),
        }
    }
}
