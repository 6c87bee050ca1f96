//! Writes to files of ours that must not end in a signal of the application.

/// Does something that a limit on the size of files may answer with a signal, on a thread that may
/// be the application's: the signal does not come there.
pub fn without_xfsz<T>(work: impl FnOnce() -> T) -> T {
    let _held = Held::back();
    work()
}

/// SIGXFSZ is held back on this thread until this is dropped, and is gone then if it came
/// meanwhile.
struct Held {
    one: libc::sigset_t,
    before: libc::sigset_t,
    /// One had come before, which is the application's.
    waited: bool,
}

impl Held {
    fn back() -> Held {
        // SAFETY: all sets are initialised by the calls.
        unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&raw mut pending);
            let (mut one, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigemptyset(&raw mut one);
            libc::sigaddset(&raw mut one, libc::SIGXFSZ);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const one, &raw mut before);
            let waited = libc::sigismember(&raw const pending, libc::SIGXFSZ) == 1;
            Held {
                one,
                before,
                waited,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the sets are whole; the time is none. The system sends the signal to the thread
        // that writes.
        unsafe {
            let none: libc::timespec = std::mem::zeroed();
            if !self.waited {
                libc::sigtimedwait(&raw const self.one, std::ptr::null_mut(), &raw const none);
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
