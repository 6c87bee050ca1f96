//! The three ways in: the driver calls us (`CUDA_INJECTION64_PATH`), the loader runs our
//! constructor (`LD_PRELOAD`), or the program loads the driver later, through the `dlopen` that we
//! then stand in front of.
//!
//! None of them loads CUDA into a program that does not use it.

use std::ffi::{CStr, c_char, c_int};

use warpbpf_driver::front::{Dlopen, is_driver_name, next_dlopen};

use crate::hooks::hook_rows::Moment;
use crate::startup::install::install;
use crate::sys::guard::quietly;
use crate::sys::wanted::{is_named_by, is_wanted};

/// Called by the CUDA driver inside `cuInit`, when `CUDA_INJECTION64_PATH` names this library. 1 is
/// success.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    quietly(|| install(Moment::InsideInit));
    1
}

/// Programs that link the driver have it loaded when our constructor runs.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        warpbpf_faults::arm();
        if is_wanted() && !is_called_by_driver() {
            quietly(|| install(Moment::BeforeInit));
        }
    }
    construct
};

/// The driver will call [`InitializeInjection`]. Until then threads may be anywhere in it: NVTX
/// loads us whenever the application first calls it.
fn is_called_by_driver() -> bool {
    is_named_by("CUDA_INJECTION64_PATH")
}

#[cfg(not(test))]
warpbpf_driver::in_front_of_dlopen!(before_dlopen);

/// Runs before each `dlopen` of the program and returns the function that does it.
///
/// # Safety
/// `path` is null or NUL-terminated.
#[cfg_attr(test, expect(dead_code, reason = "called by the naked function only"))]
unsafe extern "C" fn before_dlopen(path: *const c_char, flags: c_int) -> usize {
    let next = next_dlopen();
    if next != 0 {
        quietly(|| {
            if is_wanted() {
                // SAFETY: the caller's promise.
                unsafe { look_for_driver(next, path, flags) };
            }
        });
    }
    next
}

/// Installs the agent if the driver is loaded, or about to be.
///
/// # Safety
/// `next` is a `dlopen`, `path` null or NUL-terminated.
unsafe fn look_for_driver(next: usize, path: *const c_char, flags: c_int) {
    if !path.is_null() {
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(path) };
        if is_driver_name(name) {
            // SAFETY: the same call that the program makes. The handle is kept: hooks must not
            // outlive the driver.
            unsafe {
                let dlopen: Dlopen = std::mem::transmute(next);
                dlopen(path, flags);
            }
        }
    }
    install(Moment::BeforeInit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_socket_nothing_happens() {
        assert!(!is_wanted());
        assert_eq!(InitializeInjection(), 1);
        assert!(crate::runtime::published::agent().is_none());
    }
}
