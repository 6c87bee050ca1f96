//! The CUDA context that tools of bpftime's count on. There, maps of its GPU types lie in a context
//! of the tool's process, which is current on the thread that made them, and tools launch kernels
//! of their own in it. Here maps lie in the application's, so a tool is given a context when it is
//! seen to use the driver itself, once on each thread that is. One that does not costs the GPU
//! nothing.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::RawFd;
use std::sync::Once;

use warpbpf_driver::front::{is_driver_name, next_dlopen};
use warpbpf_driver::{Driver, DriverError, LoadError};

use super::global;
use super::guard::inside;
use super::tell::tell;
use crate::spec::Spec;
use crate::uapi::LAST_MAP_TYPE;

warpbpf_driver::in_front_of_dlopen!(before_dlopen);

/// What `cuInit` is asked for by default.
const DRIVER: &CStr = c"libcuda.so.1";

thread_local! {
    /// This thread was given its context, or had one.
    static GIVEN: Cell<bool> = const { Cell::new(false) };
}

/// The tool was told why there is none.
static TOLD: Once = Once::new();

/// Runs before each `dlopen` of the tool and returns the function that does it.
///
/// # Safety
/// `path` is null or NUL-terminated.
unsafe extern "C" fn before_dlopen(path: *const c_char, flags: c_int) -> usize {
    // Who asks whether it is there does not use it.
    if !path.is_null() && flags & libc::RTLD_NOLOAD == 0 {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        if is_driver_name(path) {
            inside(|| {
                if has_gpu_maps() {
                    give(path);
                }
            });
        }
    }
    next_dlopen()
}

/// The tool has made a map. If that is of a GPU type, and the tool has loaded the driver before, it
/// has a context from now on.
pub fn map_was_made(fd: RawFd) {
    let made = {
        let kernel = global::kernel();
        let map = kernel.map_at(fd).ok().and_then(|at| kernel.maps.get(at));
        map.is_some_and(|map| is_of_gpu(&map.spec))
    };
    if made && is_loaded() {
        give(DRIVER);
    }
}

fn has_gpu_maps() -> bool {
    global::existing().is_some_and(|kernel| kernel.maps.iter().any(|(_, map)| is_of_gpu(&map.spec)))
}

/// It is of one of bpftime's types.
fn is_of_gpu(spec: &Spec) -> bool {
    spec.map_type > LAST_MAP_TYPE
}

fn is_loaded() -> bool {
    // SAFETY: RTLD_NOLOAD opens only what is loaded, so no initialiser runs.
    let handle = unsafe { libc::dlopen(DRIVER.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    !handle.is_null()
}

/// Makes the first device's primary context current on this thread, if it has none. Once: a thread
/// that has put its context away, or uses several, is not interfered with.
fn give(driver: &CStr) {
    if GIVEN.get() {
        return;
    }
    let opened = match warpbpf_driver::open(&driver.to_string_lossy()) {
        // The tool's own call is about to say so, and it may try another name then. Where only the
        // tool's `RUNPATH` leads to the driver that call finds it, and this thread's next map does.
        Err(LoadError::Open { .. }) => return,
        opened => opened,
    };
    let given = |driver: Driver| -> Result<(), DriverError> {
        driver.init()?;
        if driver.current().is_none() {
            driver.set_current(driver.retain_primary(0)?)?;
        }
        Ok(())
    };
    let done = match opened {
        Ok(driver) => given(driver).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match done {
        Ok(()) => GIVEN.set(true),
        // It may have better luck with another driver.
        Err(error) => TOLD.call_once(|| {
            tell(&format!(
                "the tool uses the CUDA driver itself, and there is no context for it: {error}"
            ));
        }),
    }
}
