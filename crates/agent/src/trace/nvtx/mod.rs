//! Ranges that the application marks by NVTX: which of them a launch is made in, and when they
//! began and ended.
//!
//! NVTX has no library of its own in an application: the first call of each of its users loads what
//! `NVTX_INJECTION64_PATH` names, and has it fill in a table of functions. That may be long before
//! the driver is initialised, and in a process that never uses it, so nothing here needs an agent;
//! what the tool wants of it is known only when it is asked (`decide`). Until then everything is
//! kept, as far as there is room.
//!
//! The application is answered what it is answered without a tool, where that is possible: depths
//! of ranges are not told.

mod asked;
mod callbacks;
mod ranges;
mod stack;
mod texts;

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::Ordering;

use crate::sys::guard::quietly;
use crate::sys::wanted::is_wanted;
use ranges::{CAME, forked};

pub(crate) use ranges::{
    comes_to_us, decide, forget_stream, is_inside, path, report, stream_name, turn,
};
/// Called by NVTX for each of its users in the process, with a function that knows that user's
/// tables. 1 is success. Without a tool no function is filled in, and calls of NVTX do nothing.
///
/// # Safety
/// As NVTX calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(find: Option<callbacks::FindTable>) -> c_int {
    quietly(|| {
        if !is_wanted() {
            return;
        }
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // Nothing is printed in the application, not even by a panic.
            std::panic::set_hook(Box::new(|_| {}));
            // SAFETY: the function lives as long as the process: NVTX never unloads what it loaded
            // well.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        if let Some(find) = find
            // SAFETY: NVTX's own function.
            && unsafe { callbacks::fill(find) }
        {
            CAME.store(true, Ordering::Relaxed);
        }
    });
    1
}
