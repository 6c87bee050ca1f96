//! What this command inherited and the application is to inherit from it: Rust's start changes some
//! of it before `main`, and this command changes some more for itself.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that a program can have handlers for, from 1.
pub const SIGNALS: usize = 64;

/// SIGPIPE was ignored. Rust's start ignores it in any case.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Standard streams that were closed. Rust's start opens `/dev/null` there.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Notes what Rust's start is about to change.
extern "C" fn look() {
    // SAFETY: all zeros are a valid `sigaction`; only asks.
    let ignored = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    };
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
    for (stream, closed) in (0..).zip(&CLOSED) {
        // SAFETY: only asks about a descriptor.
        let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
        closed.store(flags < 0, Ordering::Relaxed);
    }
}

// SAFETY: functions listed here are called by the C library before Rust's start; this one needs
// nothing that Rust sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// One of the standard streams was closed when this command was started.
pub fn is_closed(stream: i32) -> bool {
    let closed = usize::try_from(stream).ok().and_then(|at| CLOSED.get(at));
    closed.is_some_and(|closed| closed.load(Ordering::Relaxed))
}

/// What a new process must be given back before it becomes the application.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: libc::sigset_t,
    /// By signal.
    ignored: [bool; SIGNALS + 1],
    files: Option<libc::rlimit>,
}

impl Inherited {
    /// As it is now: called before anything of it is changed.
    pub fn look() -> Inherited {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: the set is emptied first, then filled with the thread's mask.
        let mask = unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        let mut ignored = [false; SIGNALS + 1];
        for (signal, ignored) in (0..).zip(&mut ignored).skip(1) {
            // SAFETY: all zeros are a valid `sigaction`; only asks.
            *ignored = unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0
                    && now.sa_sigaction == libc::SIG_IGN
            };
        }
        ignored[libc::SIGPIPE as usize] = PIPE_IGNORED.load(Ordering::Relaxed);
        let mut files = MaybeUninit::uninit();
        // SAFETY: fills the structure if it succeeds.
        let files = unsafe {
            (libc::getrlimit(libc::RLIMIT_NOFILE, files.as_mut_ptr()) == 0)
                .then(|| files.assume_init())
        };
        Inherited {
            mask,
            ignored,
            files,
        }
    }

    /// The signal was ignored.
    pub fn ignores(&self, signal: i32) -> bool {
        let ignored = usize::try_from(signal)
            .ok()
            .and_then(|at| self.ignored.get(at));
        ignored.copied().unwrap_or(false)
    }

    /// In a new process, before it becomes another program: system calls alone.
    pub fn give(&self) {
        for (signal, ignored) in (0..).zip(&self.ignored).skip(1) {
            if *ignored {
                // SAFETY: ignores a signal in a process that has one thread and ends its code here
                // soon.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        // SAFETY: both structures are whole and outlive the calls.
        unsafe {
            if let Some(files) = &self.files {
                libc::setrlimit(libc::RLIMIT_NOFILE, files);
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            );
        }
    }
}

/// Has this process open as many files as it may: it has some for each application that is in it.
pub fn raise_file_limit() {
    let mut files = MaybeUninit::uninit();
    // SAFETY: the structure is filled if the first call succeeds, and only then used.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, files.as_mut_ptr()) == 0 {
            let mut files: libc::rlimit = files.assume_init();
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        }
    }
}
