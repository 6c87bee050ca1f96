//! A list that only grows, and that launches read without a lock, the newest first.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Owns its values, which live as long as the list.
#[derive(Debug)]
pub(crate) struct List<T>(AtomicPtr<Link<T>>);

#[derive(Debug)]
struct Link<T> {
    value: T,
    next: *mut Link<T>,
}

// SAFETY: it owns its values and hands out shared references to them.
unsafe impl<T: Send + Sync> Send for List<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for List<T> {}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T: 'static> List<T> {
    /// All values, the newest first.
    ///
    /// # Safety
    /// The list is a part of an agent, or of what an agent owns, or is itself leaked: so it is
    /// dropped when nobody can have the references any more.
    pub(crate) unsafe fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        let mut next = self.0.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a link that `push` made, which lives as long as the list.
            let link = unsafe { next.as_ref() }?;
            next = link.next;
            Some(&link.value)
        })
    }

    /// Puts a value in front.
    ///
    /// # Safety
    /// As of [`List::iter`].
    pub(crate) unsafe fn push(&self, value: T) -> &'static T {
        let mut first = self.0.load(Ordering::Relaxed);
        let link = Box::into_raw(Box::new(Link { value, next: first }));
        while let Err(now) =
            (self.0).compare_exchange(first, link, Ordering::Release, Ordering::Relaxed)
        {
            first = now;
            // SAFETY: nobody else sees it yet.
            unsafe { (*link).next = first };
        }
        // SAFETY: just made; it lives as long as the list.
        unsafe { &(*link).value }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let mut next = *self.0.get_mut();
        while !next.is_null() {
            // SAFETY: `push` made it of a box, and nobody has a reference to it any more.
            let link = unsafe { Box::from_raw(next) };
            next = link.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_of_many_threads_are_there_once_and_go_with_the_list() {
        let (list, value) = (List::default(), Arc::new(()));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (list, value) = (&list, &value);
                scope.spawn(move || {
                    for number in 0..250 {
                        // SAFETY: the reference is not kept.
                        unsafe { list.push((thread * 250 + number, Arc::clone(value))) };
                    }
                });
            }
        });
        // SAFETY: the references are gone when the list is dropped.
        let mut all: Vec<i32> = unsafe { list.iter() }.map(|(number, _)| *number).collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_eq!(Arc::strong_count(&value), 1001);
        drop(list);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
