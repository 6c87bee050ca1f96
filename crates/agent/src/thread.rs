//! Threads of ours in the application's process: none of its signals is delivered to them, and no panic leaves them.

use crate::guard::Guard;

/// Starts one; what it calls of the driver passes through the hooks.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: both sets are initialised by the calls; the mask is restored before anyone else sees it.
    let (all, mut before) = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        (all, std::mem::zeroed::<libc::sigset_t>())
    };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    let thread = std::thread::Builder::new()
        .name(name.into())
        .stack_size(512 << 10)
        .spawn(move || {
            let _guard = Guard::enter();
            if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                std::mem::forget(payload);
            }
        });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    thread.map(drop)
}
