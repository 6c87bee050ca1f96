//! Mutexes whose data hold whatever became of who had them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it; a panic of another thread is told elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
