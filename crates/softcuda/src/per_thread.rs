//! What each thread has of its own. Nothing of it has a destructor: programs call CUDA from exit
//! handlers, from destructors of their own thread-local objects and from those of pthread keys,
//! when Rust's thread-local values with a destructor are gone already.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stack whose first `NEAR` values need no memory from elsewhere. What a thread leaves in the
/// rest when it ends is lost.
pub(crate) struct Stack<T, const NEAR: usize> {
    near: [Option<T>; NEAR],
    far: ManuallyDrop<Vec<T>>,
    len: usize,
}

impl<T: Copy, const NEAR: usize> Stack<T, NEAR> {
    pub(crate) const fn new() -> Self {
        Stack {
            near: [None; NEAR],
            far: ManuallyDrop::new(Vec::new()),
            len: 0,
        }
    }

    pub(crate) fn last(&self) -> Option<T> {
        let at = self.len.checked_sub(1)?;
        match self.near.get(at) {
            Some(value) => *value,
            None => self.far.last().copied(),
        }
    }

    pub(crate) fn push(&mut self, value: T) {
        match self.near.get_mut(self.len) {
            Some(place) => *place = Some(value),
            None => self.far.push(value),
        }
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        if let Some(place) = self.near.get_mut(self.len) {
            return place.take();
        }
        let last = self.far.pop();
        if self.far.is_empty() {
            *self.far = Vec::new();
        }
        last
    }
}

/// A number of the calling thread that no other thread of the process has or had.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_any_depth() {
        let mut stack = Stack::<usize, 2>::new();
        assert_eq!((stack.last(), stack.pop()), (None, None));
        for value in 0..5 {
            stack.push(value);
            assert_eq!(stack.last(), Some(value));
        }
        for value in (0..5).rev() {
            assert_eq!((stack.last(), stack.pop()), (Some(value), Some(value)));
        }
        assert_eq!((stack.pop(), stack.far.capacity()), (None, 0));
    }

    #[test]
    fn nothing_of_a_thread_needs_a_destructor() {
        assert!(!std::mem::needs_drop::<Stack<usize, 8>>());
        let other = std::thread::spawn(|| (thread_number(), thread_number()));
        let (first, second) = other.join().expect("joined");
        assert_eq!(first, second);
        assert_ne!(first, thread_number());
    }
}
