//! Calls that change what is attached. The thread that made one waits until applications that run
//! have it.

use std::cell::Cell;

/// What a call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It only took programs away.
    Ended,
    /// It brought one.
    Began,
}

thread_local! {
    /// The call that this thread makes did so.
    static MINE: Cell<Option<Change>> = const { Cell::new(None) };
}

/// What is attached has changed.
pub fn note(change: Change) {
    MINE.set(MINE.get().max(Some(change)));
}

/// What calls of this thread did since this was asked.
pub fn take() -> Option<Change> {
    MINE.take()
}
