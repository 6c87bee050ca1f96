//! The table of the API's functions, and how it is filled from the library.

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::declared::{CallbackFunc, SanitizerResult};
use crate::result::SanitizerError;

macro_rules! table {
    ($($field:ident $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The library's functions.
        #[derive(Debug, Clone, Copy)]
        pub struct Table {
            $(#[doc = concat!("`", $symbol, "`")] pub $field: unsafe extern "C" fn($($arg),*) -> SanitizerResult,)*
            /// The library is of CUDA 12.2 or newer. It takes any number of an instruction, and
            /// never tells of those that it does not know.
            pub later: bool,
        }

        impl Table {
            /// Fills the table.
            ///
            /// # Errors
            /// [`SanitizerError::Symbol`]: one is missing.
            ///
            /// # Safety
            /// What `find` gives are functions of these names with the API's signatures, which
            /// stay.
            pub unsafe fn resolve(find: impl Fn(&CStr) -> *const c_void) -> Result<Table, SanitizerError> {
                $(
                    const _: () = assert!($symbol.len() < 64);
                    let name = concat!($symbol, "\0");
                    // The macro ends it so.
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"");
                    let address = find(name);
                    if address.is_null() {
                        return Err(SanitizerError::Symbol { symbol: $symbol });
                    }
                    // SAFETY: the caller's promise.
                    let $field = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) -> SanitizerResult>(address) };
                )*
                // The only function that came with such a version.
                let later = !find(c"sanitizerSetDeviceGraphData").is_null();
                Ok(Table { $($field,)* later })
            }
        }
    };
}

table! {
    subscribe "sanitizerSubscribe": fn(*mut *mut c_void, CallbackFunc, *mut c_void);
    unsubscribe "sanitizerUnsubscribe": fn(*mut c_void);
    enable_callback "sanitizerEnableCallback": fn(u32, *mut c_void, u32, u32);
    add_patches "sanitizerAddPatches": fn(*const c_void, *mut c_void);
    patch_instructions "sanitizerPatchInstructions": fn(u32, *mut c_void, *const c_char);
    patch_module "sanitizerPatchModule": fn(*mut c_void);
    set_callback_data "sanitizerSetCallbackData": fn(*mut c_void, *const c_void);
    set_launch_callback_data "sanitizerSetLaunchCallbackData": fn(*mut c_void, *mut c_void, *mut c_void, *const c_void);
}

impl Table {
    /// Loads the library, for good.
    ///
    /// # Errors
    /// [`SanitizerError`]: it cannot be loaded, or lacks a function.
    pub fn open(path: &Path) -> Result<Table, SanitizerError> {
        let why = |why: String| SanitizerError::Library {
            path: path.to_owned(),
            why,
        };
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|_| why("its path holds a NUL byte".into()))?;
        // SAFETY: a NUL-terminated path; the library's constructors are NVIDIA's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure the loader has a NUL-terminated text of this thread, or none.
            let said = unsafe {
                let said = libc::dlerror();
                (!said.is_null()).then(|| CStr::from_ptr(said).to_string_lossy().into_owned())
            };
            return Err(why(
                said.unwrap_or_else(|| "the loader does not say why".into())
            ));
        }
        // SAFETY: a live handle that is never closed, and the API's own names.
        unsafe { Table::resolve(|name| libc::dlsym(handle, name.as_ptr())) }
    }
}
