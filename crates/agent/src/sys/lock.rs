//! How a lock is taken here: a panic that was caught elsewhere must not end in a second one in a
//! hook.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What is in it, whoever panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a lock that is only tried gives.
pub(crate) fn tried<T>(result: Result<T, TryLockError<T>>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
