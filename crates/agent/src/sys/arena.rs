//! Values that live as long as the agent of a session. Launches read them without a lock, so none
//! is freed before every thread has left the agent's code ([`crate::startup::retired`]).

use std::ptr::NonNull;
use std::sync::Mutex;

use crate::sys::lock::lock;

/// Owns what it was given.
#[derive(Debug)]
pub(crate) struct Arena<T>(Mutex<Vec<NonNull<T>>>);

// SAFETY: it owns its values, hands out shared references to them, and touches none.
unsafe impl<T: Send + Sync> Send for Arena<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena(Mutex::default())
    }
}

impl<T: 'static> Arena<T> {
    /// Takes a value.
    ///
    /// # Safety
    /// The arena is a part of an agent, or of what an agent owns, or is itself leaked: so it is
    /// dropped when nobody can have the reference any more.
    pub(crate) unsafe fn keep(&self, value: T) -> &'static T {
        let kept = NonNull::from(Box::leak(Box::new(value)));
        lock(&self.0).push(kept);
        // SAFETY: just made; it lives until the arena is dropped, by when nobody has this, as the
        // caller promises.
        unsafe { kept.as_ref() }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *lock(&self.0));
        for value in all {
            // SAFETY: `keep` made it of a box, and nobody has a reference to it any more.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_live_as_long_as_the_arena() {
        let (arena, value) = (Arena::default(), Arc::new(7));
        // SAFETY: the references are gone when the arena is dropped.
        let kept: Vec<&Arc<i32>> = (0..100)
            .map(|_| unsafe { arena.keep(Arc::clone(&value)) })
            .collect();
        assert!(kept.iter().all(|kept| ***kept == 7));
        assert_eq!(Arc::strong_count(&value), 101);
        drop(arena);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
