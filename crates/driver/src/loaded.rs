//! The files that the dynamic linker has loaded, as it lists them.

use std::ffi::{c_int, c_void};

/// Calls `each` with the linker's entries until that says that it is enough. The linker's lock is held meanwhile: `each` neither loads nor
/// unloads anything.
pub fn list_loaded(mut each: impl FnMut(&libc::dl_phdr_info) -> bool) {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker gives a valid info; `each` is the function below.
        c_int::from(unsafe { (*each.cast::<F>())(&*info) })
    }
    fn caller<F: FnMut(&libc::dl_phdr_info) -> bool>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        call::<F>
    }
    let call = caller(&each);
    // SAFETY: the callback gets the function, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(call), std::ptr::from_mut(&mut each).cast()) };
}
