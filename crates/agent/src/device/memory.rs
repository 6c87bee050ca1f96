//! The application's memory, for programs that read it: what lives is in a table on the device, and
//! what goes is taken out, and out of every reader's hands, before the driver hears of it.
//!
//! Until the tool has said what it wants, what lives is only noted. If no program reads memory,
//! nothing is done at all.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpbpf_session::{Allocations, Session};

/// Not asked yet: memory is noted.
const UNKNOWN: u8 = 0;
/// A program reads memory.
const WATCHING: u8 = 1;
/// None does, or none can any more.
const OFF: u8 = 2;

/// What is known of memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    mode: AtomicU8,
    known: Mutex<Known>,
    /// How often somebody was still reading when memory was given back.
    pub(crate) late: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) set: Allocations,
    /// What the table in each context says, where that is known.
    pub(crate) published: HashMap<usize, Vec<Range<u64>>>,
    /// The primary context of each device.
    pub(crate) primaries: HashMap<i32, usize>,
    /// Handles of memory that the application made. Others may be of multicast objects, which
    /// cannot be read.
    pub(crate) made: HashSet<u64>,
    /// The library that a module belongs to, and the module's context.
    pub(crate) libraries: HashMap<usize, (usize, usize)>,
}

impl Known {
    /// What a variable of a module goes with.
    pub(crate) fn owner(&self, module: usize) -> usize {
        let library = self.libraries.get(&module);
        library.map_or(module, |(library, _)| *library)
    }
}

impl Memory {
    /// Hooks have work to do. That goes on after the tool is gone: a kernel that it left behind may
    /// still read.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != OFF
    }

    /// What the tool wants is known.
    pub(crate) fn decide(&self, session: Option<&Session>) {
        match session {
            Some(session) if session.reads_application() => {
                self.mode.store(WATCHING, Ordering::Relaxed);
            }
            _ => self.forget_all(),
        }
    }

    /// Nothing will be read that is not read already.
    pub(crate) fn forget_if_unused(&self) {
        // It fails if a program reads memory: then its kernels may still run.
        let changed =
            self.mode
                .compare_exchange(UNKNOWN, OFF, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            *self.lock() = Known::default();
        }
    }

    /// Nothing is read: no program does.
    pub(crate) fn forget_all(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
        *self.lock() = Known::default();
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary context of a device is this one.
    pub(crate) fn note_primary(&self, device: i32, context: usize) {
        if self.is_watched() {
            self.lock().primaries.insert(device, context);
        }
    }

    /// A module is what a library is in a context.
    pub(crate) fn note_library(&self, module: usize, library: usize, context: usize) {
        if self.is_watched() {
            let mut known = self.lock();
            known.libraries.insert(module, (library, context));
        }
    }
}
