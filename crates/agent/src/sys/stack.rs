//! A stack of ours, for what needs more than a thread of the application's may have: a thread may
//! have been made with 16 KiB, and a coroutine has what its library gives it.
//!
//! A library for this (psm) needs a C compiler for each processor that anybody checks the code for,
//! for ten lines; so it is here.
//!
//! The work stays on the application's thread, as contexts of the driver are current on threads.
//! Stacks are kept for the next who needs one: mapping one takes longer than most of what is done
//! there.

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Mutex;

use crate::sys::lock::lock;

/// Bytes of one: the driver compiles on it, which it would do on the caller's. Pages that nobody
/// has touched are not there.
const BYTES: usize = 16 << 20;
/// Whoever has that much left on its own stack stays there.
const ENOUGH: usize = 4 << 20;
/// In front of it, where nobody may write: what outgrows a stack ends the process and changes
/// nothing of others.
const GUARD: usize = 64 << 10;
/// A launch of a kernel that is known takes far less, and so does what the driver does then, which
/// would be done there anyway.
const LAUNCH: usize = 64 << 10;
/// Of the first thread's stack, where nothing limits it.
const MOST: usize = 1 << 30;
/// As many are kept as threads load at once.
const KEPT: usize = 16;

static SPARE: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

thread_local! {
    /// What runs has a stack of ours, or one as large. No destructor, so it can be read while the
    /// thread ends.
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
    /// The thread's own stack, once that was asked: from, to.
    static OWN: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// Memory of one, with its guard.
struct Stack(*mut u8);

// SAFETY: memory, which whoever has this value uses alone.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> Option<Stack> {
        if warpbpf_faults::strikes("agent/stack") {
            return None;
        }
        // SAFETY: fresh memory, of which the guard loses its rights before anybody has it.
        unsafe {
            let memory = libc::mmap(
                ptr::null_mut(),
                GUARD + BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return None;
            }
            let stack = Stack(memory.cast());
            (libc::mprotect(memory, GUARD, libc::PROT_NONE) == 0).then_some(stack)
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody runs on it.
        unsafe { libc::munmap(self.0.cast(), GUARD + BYTES) };
    }
}

/// The calling thread was made by us, with a stack that is large enough.
pub(crate) fn is_large_here() {
    IS_LARGE.set(true);
}

/// The caller's stack has room for a launch. Not on a stack that a coroutine library made, of which
/// nobody knows where it ends.
pub(crate) fn has_room() -> bool {
    IS_LARGE.get() || has(LAUNCH)
}

/// The caller is on the stack that its thread began with, and has so many bytes of it left.
fn has(bytes: usize) -> bool {
    let here = 0u8;
    let at = ptr::from_ref(&here) as usize;
    let own = own();
    own.start.saturating_add(bytes) <= at && at < own.end
}

/// The stack that the calling thread was started with; empty if that cannot be found out, which is
/// tried once.
pub(crate) fn own() -> Range<usize> {
    let (from, to) = OWN.get().unwrap_or_else(|| {
        let found = find_own();
        OWN.set(Some((found.start, found.end)));
        (found.start, found.end)
    });
    from..to
}

fn find_own() -> Range<usize> {
    // SAFETY: plain calls.
    let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
    if thread == process {
        // glibc would read a file for it. Linux puts these bytes at the end of the first thread's
        // stack. SAFETY: as above.
        let end = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
        let bytes = limit.map_or(MOST, |bytes| usize::try_from(bytes).unwrap_or(MOST));
        return end.saturating_sub(bytes.min(MOST))..end;
    }
    // SAFETY: zeroes are room for the attributes, which are destroyed where they were made.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0..0;
        }
        let (mut low, mut bytes) = (ptr::null_mut(), 0);
        let got = libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        match got {
            0 => low as usize..low as usize + bytes,
            _ => 0..0,
        }
    }
}

/// Runs `work` where there is room for it: on a stack of ours, if the caller's own is small or not
/// known; where none is to be had, on the caller's. No panic may leave `work`.
pub(crate) fn large<T>(work: impl FnOnce() -> T) -> T {
    if IS_LARGE.get() || has(ENOUGH) {
        return work();
    }
    let spare = lock(&SPARE).pop();
    let Some(stack) = spare.or_else(Stack::new) else {
        return work();
    };
    IS_LARGE.set(true);
    let mut both: (_, Option<T>) = (Some(work), None);
    // SAFETY: the memory is there, readable and writable, and nobody else's until this returns.
    // `call` takes what it is given, and no panic leaves it.
    unsafe {
        switch(
            stack.0.add(GUARD + BYTES),
            called_by(&both),
            (&raw mut both).cast(),
        )
    };
    IS_LARGE.set(false);
    let mut spare = lock(&SPARE);
    if spare.len() < KEPT {
        spare.push(stack);
    }
    match both.1 {
        Some(done) => done,
        None => unreachable!("it was called"),
    }
}

type Call = unsafe extern "C" fn(*mut c_void);

/// [`call`] for what is there.
fn called_by<T, W: FnOnce() -> T>(_: &(Option<W>, Option<T>)) -> Call {
    call::<T, W>
}

/// Does the work at `both` and puts what comes of it beside it.
///
/// # Safety
/// `both` is work and the place for its result, and nobody else's.
unsafe extern "C" fn call<T, W: FnOnce() -> T>(both: *mut c_void) {
    // SAFETY: the caller's promise.
    let (work, done) = unsafe { &mut *both.cast::<(Option<W>, Option<T>)>() };
    *done = work.take().map(|work| work());
}

/// Calls a function with the stack that ends at `top`. Whoever walks stacks finds the caller's
/// frame by this one's.
///
/// # Safety
/// The stack is large enough and nobody else's, and nothing is unwound out of the function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut u8, function: Call, data: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        "pop rbp",
        ".cfi_def_cfa_offset 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls a function with the stack that ends at `top`. Whoever walks stacks finds the caller's
/// frame by this one's.
///
/// # Safety
/// The stack is large enough and nobody else's, and nothing is unwound out of the function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut u8, function: Call, data: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than a small stack is, with something on each level.
    fn deep(levels: u64) -> u64 {
        let here = std::hint::black_box([levels; 256]);
        match levels {
            0 => 0,
            _ => here[255] + deep(levels - 1),
        }
    }

    #[test]
    fn a_thread_with_a_small_stack_goes_deep() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let thread = small.spawn(|| {
            let nested = large(|| large(|| deep(100)) + deep(100));
            (nested, large(|| 1), IS_LARGE.get())
        });
        assert_eq!(thread.unwrap().join().unwrap(), (2 * 5050, 1, false));
    }

    #[test]
    fn room_is_seen_by_where_the_stack_ends() {
        let on = |bytes: usize| {
            let thread = std::thread::Builder::new().stack_size(bytes);
            let seen = thread.spawn(|| (has_room(), large(has_room), has_room()));
            seen.unwrap().join().unwrap()
        };
        assert_eq!(on(1 << 20), (true, true, true));
        assert_eq!(on(32 << 10), (false, true, false));
        let here = 0u8;
        let place = ptr::from_ref(&here) as usize;
        assert!(own().contains(&place));
        let elsewhere = std::thread::spawn(own).join().unwrap();
        assert!(!elsewhere.is_empty() && !elsewhere.contains(&place));
    }

    #[test]
    fn a_panic_that_is_caught_there_is_one() {
        let caught = large(|| std::panic::catch_unwind(|| panic!("so")).is_err());
        assert!(caught);
    }
}
