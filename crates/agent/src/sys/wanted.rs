//! Whether there is a tool that wants something of this process, by its environment.

use std::ffi::{CStr, OsStr, OsString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use warpbpf_wire::rendezvous::{SHM_NAME, places};

/// Path of the tool's control socket. Without it, and without the name of one that is there,
/// nothing of us does anything.
const SOCKET: &str = "WARPBPF_SOCKET";

/// Is there a tool that wants something?
pub(crate) fn is_wanted() -> bool {
    socket().is_some()
}

pub(crate) fn socket() -> Option<OsString> {
    match std::env::var_os(SOCKET) {
        Some(path) => Some(path).filter(|path| !path.is_empty()),
        None => {
            let name = std::env::var(SHM_NAME).ok()?;
            let mut places = places(&name)?.into_iter();
            places.find(|place| place.exists()).map(Into::into)
        }
    }
}

/// The environment variable names this library.
pub(crate) fn is_named_by(variable: &str) -> bool {
    // SAFETY: zeroes are a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = is_named_by as *const () as *const c_void;
    // SAFETY: an address in this library, and a writable local.
    if unsafe { libc::dladdr(here, &mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the loader's text, which lives as long as this library.
    let own = OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes());
    std::env::var_os(variable)
        .is_some_and(|path| Path::new(&path).file_name() == Path::new(own).file_name())
}
