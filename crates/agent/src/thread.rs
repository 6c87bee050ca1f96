//! Threads of ours in the application's process: none of its signals is delivered to them, and no panic leaves them.

use crate::guard::Guard;
use crate::stack;

/// Stack of most threads, and of those that prove and compile programs.
const STACK: usize = 512 << 10;
const LARGE_STACK: usize = 8 << 20;

/// Starts one; what it calls of the driver passes through the hooks.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_with(name, STACK, run)
}

/// The same with as much stack as an application's thread has.
pub(crate) fn start_large(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_with(name, LARGE_STACK, run)
}

fn start_with(
    name: &str,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    warpbpf_faults::check("agent/thread", || {
        std::io::Error::from_raw_os_error(libc::EAGAIN)
    })?;
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
        .stack_size(stack)
        .spawn(move || {
            let _guard = Guard::enter();
            stack::is_large_here();
            let work = || {
                warpbpf_faults::bug("agent/thread-panics");
                run();
            };
            if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                std::mem::forget(payload);
            }
        });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    thread.map(drop)
}
