//! The function by which bpftime's tools read maps of type 1527: they look it up by name, because libbpf has none.

use std::ffi::{c_int, c_void};

use crate::contents::Contents;
use crate::global;
use crate::guard::inside;
use crate::kernel::Handle;

/// Gets a record, its bytes, and what the tool wants to be given.
pub type Take = unsafe extern "C" fn(*const c_void, u64, *mut c_void);

/// Gives the tool all records that have come. How many, or an error as a negative number.
pub fn poll(fd: c_int, context: *mut c_void, take: Option<Take>) -> c_int {
    let found = inside(|| {
        let kernel = global::existing()?;
        let Some(Handle::Map(at)) = kernel.handle(fd) else {
            return None;
        };
        match &kernel.maps.get(at)?.contents {
            Contents::Records(records) => Some(records.clone()),
            _ => None,
        }
    });
    let (Some(Some(records)), Some(take)) = (found, take) else {
        return -libc::EINVAL;
    };
    let taken = records.take();
    for record in &taken {
        // SAFETY: the tool's own function, called as bpftime calls it, with bytes that outlive the call.
        unsafe { take(record.as_ptr().cast(), record.len() as u64, context) };
    }
    c_int::try_from(taken.len()).unwrap_or(c_int::MAX)
}
