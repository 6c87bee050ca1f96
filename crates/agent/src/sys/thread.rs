//! Threads of ours in the application's process: none of its signals is delivered to them, and no
//! panic leaves them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::guard::{Guard, caught};
use crate::sys::stack;

/// Stack of most threads, and of those that prove and compile programs.
const STACK: usize = 512 << 10;
const LARGE_STACK: usize = 8 << 20;

/// Threads that may have an agent.
static WITH_AN_AGENT: AtomicUsize = AtomicUsize::new(0);

/// Threads of ours that run, but for those that only work with descriptors.
pub(crate) fn with_an_agent() -> usize {
    WITH_AN_AGENT.load(Ordering::SeqCst)
}

/// Starts one that knows no agent.
pub(crate) fn start_without_agent(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    start_with(name, STACK, None, run)
}

/// A thread counts while this lives.
struct Counted;

impl Counted {
    fn new() -> Counted {
        WITH_AN_AGENT.fetch_add(1, Ordering::SeqCst);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        WITH_AN_AGENT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts one; what it calls of the driver passes through the hooks.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_with(name, STACK, Some(Counted::new()), run)
}

/// The same with as much stack as an application's thread has.
pub(crate) fn start_large(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_with(name, LARGE_STACK, Some(Counted::new()), run)
}

fn start_with(
    name: &str,
    stack: usize,
    counted: Option<Counted>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    warpbpf_faults::check("agent/thread", || {
        std::io::Error::from_raw_os_error(libc::EAGAIN)
    })?;
    // SAFETY: both sets are initialised by the calls; the mask is restored before anyone else sees
    // it.
    let (all, mut before) = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        (all, std::mem::zeroed::<libc::sigset_t>())
    };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    let whose = format!("its thread `{name}`");
    let thread = std::thread::Builder::new()
        .name(name.into())
        .stack_size(stack)
        .spawn(move || {
            let _counted = counted;
            let _guard = Guard::enter();
            stack::is_large_here();
            let work = || {
                warpbpf_faults::bug("agent/thread-panics");
                run();
            };
            let _ = caught(&whose, work);
        });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    thread.map(drop)
}
