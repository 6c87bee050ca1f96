//! The symbols of libc by which the tool waits, which tell what it is about: it is ready, it has
//! looked at its events, it is done.
//!
//! The CUDA driver in the tool's process waits all the time, on threads of its own and in calls of
//! the tool's, and says nothing by it. So each knows where its caller goes on: a few instructions
//! put that address behind the arguments.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::front::is_of_driver;
use warpbpf_driver::loaded::loaded;

use super::guard::inside;
use super::{global, moments};
use crate::next;

/// Around a call that waits, of who goes on at `caller`.
fn waiting<T>(caller: usize, endless: bool, wait: impl FnOnce() -> T) -> T {
    // Without a kernel nothing is counted.
    let counts = || global::exists() && !is_in_driver(caller);
    let begun = inside(|| counts().then(|| moments::before_wait(endless)));
    let result = wait();
    if let Some(counted) = begun.flatten() {
        inside(|| moments::after_wait(counted));
    }
    result
}

/// Callers that were looked up, by a few bits of their addresses: twice the address, and one more
/// for the driver's. The driver stays where it is.
static CALLERS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Code of the CUDA driver lies there.
fn is_in_driver(address: usize) -> bool {
    let slot = &CALLERS[address / 4 % CALLERS.len()];
    let known = slot.load(Ordering::Relaxed);
    if known / 2 == address {
        return known % 2 == 1;
    }
    let Some(all) = loaded() else {
        // Libraries come or go just now. It is taken for the tool's own, and is looked up again the
        // next time.
        return false;
    };
    let before = all.iter().filter(|file| file.base <= address);
    let holds = before.max_by_key(|file| file.base);
    let found = holds.is_some_and(|file| is_of_driver(&file.path));
    slot.store(address * 2 + usize::from(found), Ordering::Relaxed);
    found
}

/// Defines a symbol that calls the function with its arguments and, in the next register, the
/// address at which its caller goes on.
macro_rules! told_its_caller {
    ($($symbol:ident => $function:ident, $x86_64:literal, $aarch64:literal;)*) => {$(
        /// As libc's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $symbol() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                concat!("mov ", $x86_64, ", [rsp]"),
                "jmp {function}",
                function = sym $function,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                // `bti c`
                "hint #34",
                concat!("mov ", $aarch64, ", x30"),
                "b {function}",
                function = sym $function,
            );
        }
    )*};
}

told_its_caller! {
    epoll_wait => epoll_wait_of, "r8", "x4";
    epoll_pwait => epoll_pwait_of, "r9", "x5";
    poll => poll_of, "rcx", "x3";
    ppoll => ppoll_of, "r8", "x4";
    select => select_of, "r9", "x5";
    sleep => sleep_of, "rsi", "x1";
    usleep => usleep_of, "rsi", "x1";
    nanosleep => nanosleep_of, "rdx", "x2";
    clock_nanosleep => clock_nanosleep_of, "r8", "x4";
    pause => pause_of, "rdi", "x0";
}

extern "C" fn epoll_wait_of(
    fd: c_int,
    events: *mut c_void,
    most: c_int,
    timeout: c_int,
    caller: usize,
) -> c_int {
    waiting(caller, timeout < 0, || {
        next!(
            c"epoll_wait",
            fn(c_int, *mut c_void, c_int, c_int) -> c_int,
            (fd, events, most, timeout),
            -1
        )
    })
}

extern "C" fn epoll_pwait_of(
    fd: c_int,
    events: *mut c_void,
    most: c_int,
    timeout: c_int,
    mask: *const c_void,
    caller: usize,
) -> c_int {
    waiting(caller, timeout < 0, || {
        next!(
            c"epoll_pwait",
            fn(c_int, *mut c_void, c_int, c_int, *const c_void) -> c_int,
            (fd, events, most, timeout, mask),
            -1
        )
    })
}

extern "C" fn poll_of(fds: *mut c_void, count: u64, timeout: c_int, caller: usize) -> c_int {
    waiting(caller, timeout < 0, || {
        next!(
            c"poll",
            fn(*mut c_void, u64, c_int) -> c_int,
            (fds, count, timeout),
            -1
        )
    })
}

extern "C" fn ppoll_of(
    fds: *mut c_void,
    count: u64,
    timeout: *const c_void,
    mask: *const c_void,
    caller: usize,
) -> c_int {
    waiting(caller, timeout.is_null(), || {
        next!(
            c"ppoll",
            fn(*mut c_void, u64, *const c_void, *const c_void) -> c_int,
            (fds, count, timeout, mask),
            -1
        )
    })
}

extern "C" fn select_of(
    count: c_int,
    read: *mut c_void,
    write: *mut c_void,
    except: *mut c_void,
    timeout: *mut c_void,
    caller: usize,
) -> c_int {
    waiting(caller, timeout.is_null(), || {
        next!(
            c"select",
            fn(c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int,
            (count, read, write, except, timeout),
            -1
        )
    })
}

extern "C" fn sleep_of(seconds: c_uint, caller: usize) -> c_uint {
    waiting(caller, false, || {
        next!(c"sleep", fn(c_uint) -> c_uint, (seconds), seconds)
    })
}

extern "C" fn usleep_of(microseconds: c_uint, caller: usize) -> c_int {
    waiting(caller, false, || {
        next!(c"usleep", fn(c_uint) -> c_int, (microseconds), -1)
    })
}

extern "C" fn nanosleep_of(time: *const c_void, rest: *mut c_void, caller: usize) -> c_int {
    waiting(caller, false, || {
        next!(
            c"nanosleep",
            fn(*const c_void, *mut c_void) -> c_int,
            (time, rest),
            -1
        )
    })
}

extern "C" fn clock_nanosleep_of(
    clock: c_int,
    flags: c_int,
    time: *const c_void,
    rest: *mut c_void,
    caller: usize,
) -> c_int {
    waiting(caller, false, || {
        next!(
            c"clock_nanosleep",
            fn(c_int, c_int, *const c_void, *mut c_void) -> c_int,
            (clock, flags, time, rest),
            libc::ENOSYS
        )
    })
}

extern "C" fn pause_of(caller: usize) -> c_int {
    // To wait for nothing without end, until a signal comes.
    let (nobody, never) = (std::ptr::null_mut(), std::ptr::null());
    ppoll_of(nobody, 0, never, never, caller)
}
