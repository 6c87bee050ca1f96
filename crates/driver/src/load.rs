//! Finding and opening a driver library.

use std::ffi::{CStr, CString, c_void};

use crate::safe::Driver;
use crate::sys::Api;

/// Why no driver could be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum LoadError {
    #[error("cannot open the CUDA driver `{library}`: {reason}")]
    Open { library: String, reason: String },
    #[error(
        "the CUDA driver `{library}` has no `{symbol}`: it is older than CUDA 12; update the driver or use `--device soft`"
    )]
    Symbol {
        library: String,
        symbol: &'static str,
    },
}

/// Opens a driver library (`libcuda.so.1`, or a path) and fills the table. Does not call `cuInit`.
pub fn open(library: &str) -> Result<Driver, LoadError> {
    let name = CString::new(library).unwrap_or_default();
    // SAFETY: a plain dlopen of a path; running its initialisers is what the caller asked for.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: after a failed dlopen, dlerror returns null or a string that lives until the next
        // call.
        let reason = unsafe {
            let text = libc::dlerror();
            if text.is_null() {
                String::from("unknown reason")
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        return Err(LoadError::Open {
            library: library.into(),
            reason,
        });
    }
    let find = |symbol: &'static str| {
        let symbol = CString::new(symbol).unwrap_or_default();
        // SAFETY: `handle` is open, and never closed: the table's pointers stay valid.
        unsafe { libc::dlsym(handle, symbol.as_ptr()) as *const c_void }
    };
    // SAFETY: the library says that it is a CUDA driver, so its symbols have the CUDA signatures.
    let api = unsafe { Api::resolve(find) }.map_err(|symbol| LoadError::Symbol {
        library: library.into(),
        symbol,
    })?;
    Ok(Driver::new(api))
}
