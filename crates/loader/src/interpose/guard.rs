//! What stands between the tool's calls and our code: a guard against hearing ourselves, a net for
//! panics, and a fence around processes that the tool forks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// Our code runs on this thread. No destructor, so it can be read while the thread ends.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The process whose kernel this is; 0 before there is one.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process has a kernel from now on. Its children have none: they have neither its threads
/// nor, maybe, its locks.
pub fn own_process() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// This process was forked from one with a kernel. One that was forked before the first `bpf()` may
/// have a kernel of its own.
fn is_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
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

/// Runs `body`, during which calls of this thread are not the tool's. `None` if it runs already, or
/// panicked, or in a child of the tool.
pub fn inside<T>(body: impl FnOnce() -> T) -> Option<T> {
    if is_inside() || is_forked() {
        return None;
    }
    let _inside = INSIDE.with(|inside| Inside(inside.replace(true)));
    let errno = crate::interpose::real::errno();
    let result = catch_unwind(AssertUnwindSafe(body));
    crate::interpose::real::set_errno(errno);
    // Dropping a panic's payload may panic again.
    result.map_err(std::mem::forget).ok()
}

/// All of this thread is ours.
pub fn own_thread() {
    INSIDE.with(|inside| inside.set(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_nobody_s_kernel() {
        own_process();
        assert_eq!(inside(|| 7), Some(7));
        // SAFETY: the child runs no more than what is here, which takes no lock, and ends without
        // destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(inside(|| ()).is_some());
            // SAFETY: it ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
