//! Links that got another program while they were on. Only the thread whose call did that carries it out, and its call returns when it is done.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The call that this thread makes did so.
    static MINE: Cell<bool> = const { Cell::new(false) };
}
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A link that is on gets another program.
pub fn note() {
    MINE.set(true);
    COUNT.fetch_add(1, Ordering::SeqCst);
}

/// Did a call of this thread do so since this was asked?
#[cfg_attr(test, expect(dead_code, reason = "who asks is not compiled for tests"))]
pub fn take() -> bool {
    MINE.take()
}

/// How often that happened.
#[cfg_attr(test, expect(dead_code, reason = "as above"))]
pub fn count() -> u64 {
    COUNT.load(Ordering::SeqCst)
}
