//! `cuInit` with its injected library, versions, error texts.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{self, CuError, CuResult};
use crate::state::{initialize, put};

/// The CUDA version that this driver speaks.
pub(crate) const DRIVER_VERSION: c_int = 13_000;

pub(crate) unsafe fn init(flags: u32) -> CuResult {
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    initialize()?;
    inject()
}

/// Loads the library that `CUDA_INJECTION64_PATH` names and calls its `InitializeInjection`, once,
/// inside the first `cuInit`, as NVIDIA's driver does. One that cannot be loaded is an error of
/// `cuInit`.
fn inject() -> CuResult {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        // Also the way out when the injected library itself calls `cuInit`.
        return Ok(());
    }
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty())
    else {
        return Ok(());
    };
    let shown = path.to_string_lossy().into_owned();
    let Ok(path) = CString::new(path.into_encoded_bytes()) else {
        return Err(CuError::INVALID_VALUE);
    };
    // SAFETY: opens the library that the user named; its initialisers are the user's
    // responsibility.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        crate::say::say(&format!(
            "CUDA_INJECTION64_PATH=`{shown}` cannot be loaded: {}",
            last_dl_error()
        ));
        return Err(CuError::SHARED_OBJECT_INIT_FAILED);
    }
    // SAFETY: `library` is open.
    let entry = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if entry.is_null() {
        crate::say::say(&format!(
            "CUDA_INJECTION64_PATH=`{shown}` has no `InitializeInjection`"
        ));
        return Err(CuError::SHARED_OBJECT_INIT_FAILED);
    }
    // SAFETY: that symbol is `int InitializeInjection(void)` by CUDA's convention.
    let entry: extern "C" fn() -> c_int = unsafe { std::mem::transmute(entry) };
    entry();
    Ok(())
}

pub(crate) fn last_dl_error() -> String {
    // SAFETY: dlerror returns null or a C string that lives until the next call on this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown reason".to_owned()
        } else {
            std::ffi::CStr::from_ptr(text)
                .to_string_lossy()
                .into_owned()
        }
    }
}

pub(crate) unsafe fn driver_version(version: *mut c_int) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe {
        put(
            version,
            crate::config::said_version().unwrap_or(DRIVER_VERSION),
        )
    }
}

pub(crate) unsafe fn error_name(code: u32, text: *mut *const c_char) -> CuResult {
    let found = error::driver_name(code);
    // SAFETY: the caller's pointer.
    unsafe { put(text, found.map_or(std::ptr::null(), |text| text.as_ptr())) }?;
    found.map(|_| ()).ok_or(CuError::INVALID_VALUE)
}

pub(crate) unsafe fn error_string(code: u32, text: *mut *const c_char) -> CuResult {
    let found = error::driver_name(code).and_then(|_| error::text(code));
    // SAFETY: the caller's pointer.
    unsafe { put(text, found.map_or(std::ptr::null(), |text| text.as_ptr())) }?;
    found.map(|_| ()).ok_or(CuError::INVALID_VALUE)
}

/// NVIDIA's private tables are not imitated: who asks for one is told that it is not there.
pub(crate) unsafe fn export_table(table: *mut *const c_void, _id: *const c_void) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { put(table, std::ptr::null()) }?;
    Err(CuError::NOT_FOUND)
}

pub(crate) unsafe fn profiler() -> CuResult {
    crate::state::soft().map(|_| ())
}
