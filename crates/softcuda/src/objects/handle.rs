//! Handles as programs see them, and tables by them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Every handle is a number that looks like a pointer, is never null and never used twice: a stale
/// one is told from a live one, and nothing is ever dereferenced because a program says so.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x5c00_0000_0000);

/// A handle as it crosses the API (`CUcontext`, `CUmodule`, …).
pub type Handle = usize;

pub(crate) fn new_handle() -> Handle {
    NEXT_HANDLE.fetch_add(0x40, Ordering::Relaxed)
}

/// Poisoning says that a panic was caught at the boundary; the tables behind these locks are never
/// left half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Live objects of one kind.
pub(crate) struct Handles<T> {
    live: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles {
            live: RwLock::new(HashMap::new()),
        }
    }

    pub(crate) fn add(&self, handle: Handle, object: Arc<T>) {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, object);
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<T>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle)
            .cloned()
    }

    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, object| keep(object));
    }
}
