//! What stands between an exported hook and our code: a guard against hearing ourselves, and a net
//! for panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use warpbpf_driver::sys::CUresult;

use crate::sys::stack;

thread_local! {
    /// Our code runs on this thread. No destructor, so it can be read while the thread ends.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, hooks on this thread pass everything through.
#[derive(Debug)]
pub(crate) struct Guard(());

impl Guard {
    /// `None` if this thread is inside already.
    pub(crate) fn enter() -> Option<Guard> {
        // Not `then_some`: that would make a guard in any case, and drop it.
        INSIDE.with(|inside| (!inside.replace(true)).then(|| Guard(())))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// The result of the application's own call, once it was made, and `errno` behind it. If we fail
/// later, this is what the application gets; whatever we do later, `errno` is as its own call left
/// it.
#[derive(Debug, Default)]
pub(crate) struct Outcome(Cell<Option<(CUresult, i32)>>);

impl Outcome {
    /// Notes and hands on what the driver answered.
    pub(crate) fn keep(&self, code: CUresult) -> CUresult {
        self.0.set(Some((code, errno())));
        code
    }
}

fn errno() -> i32 {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Runs `body` in place of `original`, on a stack of ours unless it needs little (`is_small`).
/// On a thread that runs our code already it calls `original`. If `body` panics, `broke` gets the
/// panic's message, and the application gets the driver's result if there is one by then; otherwise
/// `original` is called now.
pub(crate) fn protect(
    is_small: bool,
    original: impl Fn() -> CUresult,
    body: impl FnOnce(&Outcome) -> CUresult,
    broke: impl FnOnce(&str),
) -> CUresult {
    let Some(guard) = Guard::enter() else {
        return original();
    };
    let outcome = Outcome::default();
    let before = errno();
    let work = || {
        let result = catch_unwind(AssertUnwindSafe(|| body(&outcome)));
        result.map_err(|payload| {
            let said = said_by(&*payload);
            // Dropping a panic's payload may panic again.
            std::mem::forget(payload);
            // What is told of a panic is no reason for another one to leave.
            let _ = catch_unwind(AssertUnwindSafe(|| broke(&said))).map_err(std::mem::forget);
        })
    };
    let result = match is_small && stack::has_room() {
        true => work(),
        false => stack::large(work),
    };
    drop(guard);
    let kept = outcome.0.get();
    set_errno(kept.map_or(before, |(_, errno)| errno));
    match (result, kept) {
        (Ok(code), _) => code,
        (Err(()), kept) => kept.map_or_else(original, |(code, _)| code),
    }
}

/// Tells the tool of a failure of ours, by the part of the agent and what the panic says.
type Tell = fn(&str, &str);

static TELL: OnceLock<Tell> = OnceLock::new();

/// Has [`caught`] tell of failures so.
pub(crate) fn tell_failures_by(tell: Tell) {
    TELL.get_or_init(|| tell);
}

/// What a panic says.
pub(crate) fn said_by(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Runs `body` where there is no original to fall back to; `None` if it panicked or we are inside
/// already.
pub(crate) fn quietly<T>(body: impl FnOnce() -> T) -> Option<T> {
    let guard = Guard::enter()?;
    let before = errno();
    let result = stack::large(|| caught("a call of the application's", body));
    drop(guard);
    set_errno(before);
    result
}

/// Runs `body` and returns its result, or `None` if it panics: then the tool gets a note that names
/// the part of the agent (`part`).
pub(crate) fn caught<T>(part: &str, body: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(body));
    let tell = |payload: Box<dyn std::any::Any + Send>| {
        let said = said_by(&*payload);
        // Dropping a panic's payload may panic again.
        std::mem::forget(payload);
        // What is told of a panic is no reason for another one to leave.
        let tell = || {
            if let Some(tell) = TELL.get() {
                tell(part, &said);
            }
        };
        let _ = catch_unwind(AssertUnwindSafe(tell)).map_err(std::mem::forget);
    };
    done.map_err(tell).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unheard(said: &str) {
        panic!("nothing was to be said, and not `{said}`");
    }

    #[test]
    fn inside_ourselves_everything_passes_through() {
        let result = protect(
            false,
            || 1,
            |_| {
                protect(
                    true,
                    || 2,
                    |_| panic!("the inner body must not run"),
                    unheard,
                ) + 40
            },
            unheard,
        );
        assert_eq!(result, 42);
        assert_eq!(
            protect(true, || 1, |_| 5, unheard),
            5,
            "the guard is released"
        );
        assert_eq!(quietly(|| protect(true, || 3, |_| 4, unheard)), Some(3));
        let guard = Guard::enter().unwrap();
        assert_eq!(quietly(|| 1), None);
        assert_eq!(quietly(|| 1), None, "a refusal does not open the door");
        assert_eq!(protect(true, || 10, |_| 11, unheard), 10);
        assert_eq!(protect(true, || 10, |_| 11, unheard), 10);
        let other = std::thread::spawn(|| protect(true, || 1, |_| 6, unheard))
            .join()
            .unwrap();
        assert_eq!(other, 6, "another thread is not inside");
        drop(guard);
    }

    #[test]
    fn errno_is_what_the_applications_own_call_left() {
        let driver = || {
            set_errno(libc::EAGAIN);
            0
        };
        set_errno(libc::ENOENT);
        protect(
            true,
            driver,
            |outcome| {
                set_errno(libc::EBADF);
                let code = outcome.keep(driver());
                set_errno(libc::EINVAL);
                code
            },
            unheard,
        );
        assert_eq!(errno(), libc::EAGAIN);
        set_errno(libc::ENOENT);
        quietly(|| set_errno(libc::EINVAL));
        assert_eq!(errno(), libc::ENOENT);
        protect(
            true,
            driver,
            |_| panic!("before the driver was asked"),
            |_| {
                set_errno(libc::EINVAL);
            },
        );
        assert_eq!(errno(), libc::EAGAIN);
    }

    #[test]
    fn a_panic_becomes_the_original() {
        let heard = std::cell::RefCell::new(Vec::new());
        let hear = |said: &str| heard.borrow_mut().push(said.to_owned());
        assert_eq!(protect(true, || 7, |_| panic!("before {}", 1), hear), 7);
        let after = protect(
            true,
            || panic!("must not be called twice"),
            |outcome| {
                outcome.keep(8);
                panic!("after")
            },
            |said| {
                hear(said);
                panic!("while it is told")
            },
        );
        assert_eq!(after, 8);
        assert_eq!(*heard.borrow(), ["before 1", "after"]);
        assert_eq!(quietly(|| -> i32 { panic!("x") }), None);
        assert_eq!(
            protect(true, || 1, |_| 9, unheard),
            9,
            "the guard is released by a panic"
        );
    }
}
