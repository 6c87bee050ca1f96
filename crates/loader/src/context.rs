//! The CUDA context that tools of bpftime's count on. There, maps of its GPU types lie in a context of the tool's process, which is current
//! on the thread that made them, and tools launch kernels of their own in it. Here maps lie in the application's, so a tool is
//! given a context when it is seen to use the driver itself. One that does not costs the GPU nothing.

use std::ffi::{CStr, c_char, c_int};

use warpbpf_driver::DriverError;
use warpbpf_driver::front::{is_driver_name, next_dlopen};

use crate::global;
use crate::guard::inside;

warpbpf_driver::in_front_of_dlopen!(before_dlopen);

/// What `cuInit` is asked for by default.
const DRIVER: &CStr = c"libcuda.so.1";

/// Runs before each `dlopen` of the tool and returns the function that does it.
///
/// # Safety
/// `path` is null or NUL-terminated.
unsafe extern "C" fn before_dlopen(path: *const c_char, _flags: c_int) -> usize {
    if !path.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        if is_driver_name(path) {
            inside(|| {
                if has_maps() {
                    give(path);
                }
            });
        }
    }
    next_dlopen()
}

/// The tool has made a map. If it has loaded the driver before, and the map is of a GPU type, it has a context from now on.
pub fn map_was_made() {
    if has_maps() && is_loaded() {
        give(DRIVER);
    }
}

fn has_maps() -> bool {
    global::existing().is_some_and(|kernel| kernel.has_gpu_maps())
}

fn is_loaded() -> bool {
    // SAFETY: RTLD_NOLOAD opens only what is loaded, so no initialiser runs.
    let handle = unsafe { libc::dlopen(DRIVER.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    !handle.is_null()
}

/// Makes the first device's primary context current on this thread, which has none.
fn give(driver: &CStr) {
    let Ok(opened) = warpbpf_driver::open(&driver.to_string_lossy()) else {
        // The tool is about to hear the same from its own call.
        return;
    };
    let given = || -> Result<(), DriverError> {
        opened.init()?;
        if opened.current().is_none() {
            opened.set_current(opened.retain_primary(0)?)?;
        }
        Ok(())
    };
    if let Err(error) = given() {
        global::tell(&format!(
            "the tool uses the CUDA driver itself, and there is no context for it: {error}"
        ));
    }
}
