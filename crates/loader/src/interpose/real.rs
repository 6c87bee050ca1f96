//! The calls that our symbols stand in front of.
//!
//! System calls without a wrapper of libc's own are made directly: that needs no look-up, which
//! could allocate, and allocators call `mmap`. The others are libc's, because they are cancellation
//! points or keep state.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

pub use warpbpf_linux::sys::raw;

/// A result of the kernel as libc's functions give it: -1 and `errno` for an error.
pub fn answer(result: i64) -> c_long {
    if (-4095..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result as c_long
}

/// Sets this thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() = value };
}

/// This thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// A function of libc behind ours, looked up once.
pub struct Next(AtomicPtr<c_void>, &'static CStr);

impl Next {
    /// The function with this name.
    pub const fn new(name: &'static CStr) -> Next {
        Next(AtomicPtr::new(std::ptr::null_mut()), name)
    }

    /// Its address; null if there is none.
    pub fn get(&self) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a valid name; the answer is an address or null.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls libc's function of a name, or fails with `ENOSYS` where there is none.
#[macro_export]
macro_rules! next {
    ($name:literal, fn($($ty:ty),*) -> $ret:ty, ($($arg:expr),*), $none:expr) => {{
        static NEXT: $crate::interpose::real::Next = $crate::interpose::real::Next::new($name);
        let address = NEXT.get();
        if address.is_null() {
            $crate::interpose::real::set_errno(libc::ENOSYS);
            $none
        } else {
            // SAFETY: libc's function of this name has this type.
            let function = unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($ty),*) -> $ret>(address)
            };
            #[expect(
                clippy::macro_metavars_in_unsafe,
                reason = "arguments are the hook's own, plain variables"
            )]
            // SAFETY: the tool's own call, with its own arguments.
            let result = unsafe { function($($arg),*) };
            result
        }
    }};
}
