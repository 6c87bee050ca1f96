//! Numbers of the application's streams, by which people can name them: a handle is another one in
//! each run, and the driver gives it to another stream when its own is gone.
//!
//! A stream has its number from when it is made, counted in the process from 1; one that was made
//! before we came, or by a function that is not hooked, when it is used first. The default stream
//! and those of threads have none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernels::stream_name::PER_THREAD_STREAM;
use crate::sys::arena::Arena;
use crate::sys::table::Table;

/// See the module.
#[derive(Debug)]
pub(crate) struct Streams {
    numbers: Table<AtomicU64>,
    kept: Arena<AtomicU64>,
    last: Mutex<u64>,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            numbers: Table::new(),
            kept: Arena::default(),
            last: Mutex::new(0),
        }
    }
}

impl Streams {
    /// A stream was made. Its handle may have been another one's.
    pub(crate) fn made(&self, handle: usize) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        match self.numbers.get(handle) {
            Some(number) => number.store(*last, Ordering::Relaxed),
            None => self.give(handle, *last),
        }
    }

    fn give(&self, handle: usize, number: u64) {
        // SAFETY: streams are a part of an agent.
        let number = unsafe { self.kept.keep(AtomicU64::new(number)) };
        self.numbers.insert(handle, number);
    }

    /// The number of a stream; 0 for the default one and those of threads.
    pub(crate) fn number(&self, handle: usize) -> u64 {
        if handle <= PER_THREAD_STREAM {
            return 0;
        }
        if let Some(number) = self.numbers.get(handle) {
            return number.load(Ordering::Relaxed);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        if let Some(number) = self.numbers.get(handle) {
            return number.load(Ordering::Relaxed);
        }
        *last += 1;
        self.give(handle, *last);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_as_they_are_made_or_met() {
        let streams = Streams::default();
        assert_eq!([0, 1, 2].map(|handle| streams.number(handle)), [0; 3]);
        streams.made(0x40);
        streams.made(0x80);
        assert_eq!((streams.number(0x80), streams.number(0x40)), (2, 1));
        assert_eq!((streams.number(0xc0), streams.number(0xc0)), (3, 3));
        streams.made(0x40);
        assert_eq!(streams.number(0x40), 4, "another stream by an old handle");
    }
}
