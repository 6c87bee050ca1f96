//! What stands between the tool's calls and our code: a guard against hearing ourselves, and a net for panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Our code runs on this thread. No destructor, so it can be read while the thread ends.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Inside(bool);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.0));
    }
}

/// Our code runs on this thread now.
pub fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// Runs `body`, during which calls of this thread are not the tool's. `None` if it runs already, or panicked.
pub fn inside<T>(body: impl FnOnce() -> T) -> Option<T> {
    if is_inside() {
        return None;
    }
    let _inside = INSIDE.with(|inside| Inside(inside.replace(true)));
    let errno = crate::real::errno();
    let result = catch_unwind(AssertUnwindSafe(body));
    crate::real::set_errno(errno);
    // Dropping a panic's payload may panic again.
    result.map_err(std::mem::forget).ok()
}

/// All of this thread is ours.
pub fn own_thread() {
    INSIDE.with(|inside| inside.set(true));
}
