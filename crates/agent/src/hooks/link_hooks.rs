//! The hooks of the driver's linker ([`crate::sources::links`]).
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use warpbpf_driver::JitOptions;
use warpbpf_driver::sys::{self, CUlinkState, CUresult};

use crate::runtime::agent::Agent;
use crate::sources::image;
use crate::sources::jit_outputs::MOST_BYTES;
use crate::sources::links::text;
use crate::sources::links::{Link, LinkError, of_file};
use crate::sys::guard::Outcome;
use crate::sys::lock::lock;
use crate::sys::original;

/// Hooks, each of which gives the original's call to a function that watches it: versions of a
/// function have one signature.
macro_rules! hooks {
    ($( $name:ident($($arg:ident: $ty:ty),*) => $watch:ident; )*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(agent: &'static Agent, outcome: &Outcome, $($arg: $ty),*) -> CUresult {
            // SAFETY: the application's own arguments.
            let call = || outcome.keep(unsafe { original::$name($($arg),*) });
            // SAFETY: as above.
            unsafe { $watch(agent, call, $($arg),*) }
        }
    )* };
}

hooks! {
    link_create(count: c_uint, options: *mut c_int, values: *mut *mut c_void, link: *mut CUlinkState) => watch_create;
    link_create_v1(count: c_uint, options: *mut c_int, values: *mut *mut c_void, link: *mut CUlinkState) => watch_create;
    link_add_data(link: CUlinkState, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void) => watch_data;
    link_add_data_v1(link: CUlinkState, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void) => watch_data;
    link_add_file(link: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void) => watch_file;
    link_add_file_v1(link: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void) => watch_file;
    link_complete(link: CUlinkState, made: *mut *mut c_void, bytes: *mut usize) => watch_complete;
    link_destroy(link: CUlinkState) => watch_destroy;
}

/// # Safety
/// The arguments are the driver's, which `call` gives it.
unsafe fn watch_create(
    agent: &Agent,
    call: impl FnOnce() -> CUresult,
    count: c_uint,
    options: *const c_int,
    values: *const *mut c_void,
    link: *const CUlinkState,
) -> CUresult {
    // SAFETY: the caller's promise.
    let jit = unsafe { JitOptions::read(count, options, values) };
    let code = call();
    if code == sys::SUCCESS && !link.is_null() {
        // SAFETY: the driver has written it.
        let link = unsafe { link.read() } as usize;
        lock(&agent.links.0).begin(link, jit);
    }
    code
}

/// # Safety
/// As [`watch_create`].
unsafe fn watch_data(
    agent: &Agent,
    call: impl FnOnce() -> CUresult,
    link: CUlinkState,
    kind: c_int,
    data: *const c_void,
    bytes: usize,
    _name: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *const *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise.
    let jit = unsafe { JitOptions::read(count, options, values) };
    let code = call();
    added(agent, link, kind, &jit, code, || {
        if data.is_null() {
            return Err(LinkError::Nothing);
        }
        if bytes > MOST_BYTES {
            return Err(LinkError::TooLong);
        }
        // SAFETY: the driver has read so many bytes there.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) }.to_vec())
    });
    code
}

/// # Safety
/// As [`watch_create`].
unsafe fn watch_file(
    agent: &Agent,
    call: impl FnOnce() -> CUresult,
    link: CUlinkState,
    kind: c_int,
    path: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *const *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise.
    let jit = unsafe { JitOptions::read(count, options, values) };
    let code = call();
    added(agent, link, kind, &jit, code, || {
        // SAFETY: the driver has read the file of that name.
        of_file(unsafe { CStr::from_ptr(path) })
    });
    code
}

fn added(
    agent: &Agent,
    link: CUlinkState,
    kind: c_int,
    jit: &JitOptions,
    code: CUresult,
    bytes: impl FnOnce() -> Result<Vec<u8>, LinkError>,
) {
    let input = match code {
        sys::SUCCESS => text(kind, bytes),
        // What it has left in the link is not known.
        _ => Err(LinkError::Refused),
    };
    lock(&agent.links.0).add(link as usize, jit, input);
}

/// # Safety
/// As [`watch_create`].
unsafe fn watch_complete(
    agent: &Agent,
    call: impl FnOnce() -> CUresult,
    link: CUlinkState,
    made: *const *mut c_void,
    bytes: *const usize,
) -> CUresult {
    let code = call();
    if code != sys::SUCCESS || made.is_null() {
        return code;
    }
    let open = lock(&agent.links.0);
    let known = open.links.get(&(link as usize)).map(Link::known);
    drop(open);
    // SAFETY: the driver has written where the image is, which is whole, and how long it is if that
    // was asked for.
    let (image, bytes) = unsafe { (image::bytes(*made), bytes.as_ref()) };
    let image = image.filter(|image| bytes.is_none_or(|bytes| image.len() <= *bytes));
    if let (Some(image), Some(known)) = (image, known) {
        agent.jit_outputs.add(&image, known);
    }
    code
}

/// # Safety
/// As [`watch_create`].
unsafe fn watch_destroy(
    agent: &Agent,
    call: impl FnOnce() -> CUresult,
    link: CUlinkState,
) -> CUresult {
    // First: another thread may be given the handle again.
    lock(&agent.links.0).end(link as usize);
    call()
}
