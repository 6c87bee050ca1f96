//! Numbers of the application's streams, by which people can name them: a handle is another one in each run, and the driver gives it
//! to another stream when its own is gone.
//!
//! A stream has its number from when it is made, counted in the process from 1; one that was made before we came, or by a function that
//! is not hooked, when it is used first. The default stream and those of threads have none.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use warpbpf_driver::sys::{self, CUresult, CUstream};
use warpbpf_session::names::is_like;
use warpbpf_wire::StreamPick;

use crate::agent::Agent;
use crate::arena::Arena;
use crate::exports::original;
use crate::guard::Outcome;
use crate::launch::{LEGACY_STREAM, PER_THREAD_STREAM, StreamName};
use crate::nvtx;
use crate::table::Table;

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
    fn made(&self, handle: usize) {
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

    /// One of these is the stream.
    pub(crate) fn are_picked(&self, picks: &[StreamPick], name: StreamName) -> bool {
        let handle = name.handle() as usize;
        let is_named =
            |glob: &str| nvtx::stream_name(handle).is_some_and(|name| is_like(glob, &name));
        picks.iter().any(|pick| match pick {
            StreamPick::Default => handle <= LEGACY_STREAM,
            StreamPick::PerThread => handle == PER_THREAD_STREAM,
            StreamPick::Other => handle > PER_THREAD_STREAM,
            StreamPick::Number(number) => self.number(handle) == *number,
            StreamPick::Named(glob) => is_named(glob),
        })
    }
}

/// A stream was made, and its name is that of nobody yet.
///
/// # Safety
/// `to` is where the driver has written the stream's handle, if it succeeded.
unsafe fn note(agent: &Agent, code: CUresult, to: *const CUstream) -> CUresult {
    if code == sys::SUCCESS {
        // SAFETY: the caller's promise.
        let handle = unsafe { to.read() } as usize;
        nvtx::forget_stream(handle);
        agent.streams.made(handle);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn create(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut CUstream,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    unsafe { note(agent, outcome.keep(original::stream_create(to, flags)), to) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn create_with_priority(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    let code = unsafe { original::stream_create_with_priority(to, flags, priority) };
    // SAFETY: as above.
    unsafe { note(agent, outcome.keep(code), to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(handle: usize, null_is_per_thread: bool) -> StreamName {
        StreamName {
            stream: handle as CUstream,
            null_is_per_thread,
        }
    }

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

    #[test]
    fn streams_are_picked_by_kind_and_number() {
        let streams = Streams::default();
        streams.made(0x40);
        let all = [
            name(0, false),
            name(0, true),
            name(1, true),
            name(2, false),
            name(0x40, false),
            name(0x80, true),
        ];
        let picked = |pick: StreamPick| {
            all.map(|name| u8::from(streams.are_picked(std::slice::from_ref(&pick), name)))
        };
        assert_eq!(picked(StreamPick::Default), [1, 0, 1, 0, 0, 0]);
        assert_eq!(picked(StreamPick::PerThread), [0, 1, 0, 1, 0, 0]);
        assert_eq!(picked(StreamPick::Other), [0, 0, 0, 0, 1, 1]);
        assert_eq!(picked(StreamPick::Number(1)), [0, 0, 0, 0, 1, 0]);
        assert_eq!(picked(StreamPick::Number(2)), [0, 0, 0, 0, 0, 1]);
        assert_eq!(
            picked(StreamPick::Named("*".into())),
            [0; 6],
            "none has a name"
        );
        assert!(!streams.are_picked(&[], all[0]));
    }
}
