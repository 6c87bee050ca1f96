//! A driver that knows its device and says yes to loads, and a tool at the other end of a socket
//! pair.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{Api, CUresult};
use warpbpf_wire::ToolConnection;

use super::world::{self, application};
use crate::runtime::agent::{Agent, Tool};
use crate::sys::descriptors::FileThread;
use crate::sys::original::trampolines;
use crate::sys::symbols::Symbols;

/// What the driver gave out last; handles count up by 16.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x1000);
/// Texts that were loaded, as the driver got them.
pub(super) static LOADED: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn unsupported() -> CUresult {
    801
}
unsafe extern "C" fn one_int(value: *mut c_int) -> CUresult {
    // SAFETY: the callers pass a local.
    unsafe { *value = 0 };
    0
}
unsafe extern "C" fn version(value: *mut c_int) -> CUresult {
    // SAFETY: as above.
    unsafe { *value = 13000 };
    0
}
unsafe extern "C" fn name(text: *mut c_char, _len: c_int, _device: c_int) -> CUresult {
    for (i, byte) in b"Fake GPU\0".iter().enumerate() {
        // SAFETY: the caller passes 128 bytes.
        unsafe { *text.add(i) = *byte as c_char };
    }
    0
}
unsafe extern "C" fn attribute(value: *mut c_int, which: c_int, _device: c_int) -> CUresult {
    let answer = match which {
        16 => 4,
        75 => 9,
        _ => 0,
    };
    // SAFETY: as above.
    unsafe { *value = answer };
    0
}
unsafe extern "C" fn error_name(_code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: as above.
    unsafe { *text = c"CUDA_ERROR_FAKE".as_ptr() };
    0
}
/// Loads everything but text that says `refuse`.
unsafe extern "C" fn load(handle: *mut *mut c_void, image: *const c_void) -> CUresult {
    if world::is_entered() {
        // SAFETY: the caller's promise.
        return unsafe { application::load(handle.cast(), image.cast()) };
    }
    // SAFETY: the tests load text.
    let text = unsafe { CStr::from_ptr(image.cast()) }
        .to_string_lossy()
        .into_owned();
    let refused = text.contains("refuse");
    LOADED.lock().unwrap().push(text);
    if refused {
        return 218;
    }
    // SAFETY: the callers pass a local.
    unsafe { *handle = NEXT_HANDLE.fetch_add(16, Ordering::Relaxed) as *mut c_void };
    0
}
unsafe extern "C" fn load_ex(
    handle: *mut *mut c_void,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { load(handle, image) }
}

unsafe extern "C" fn unload(module: usize) -> CUresult {
    if world::is_entered() {
        // SAFETY: the caller's promise.
        return unsafe { application::unload(module) };
    }
    0
}

fn address(symbol: &str) -> usize {
    let found = world::address(symbol).or_else(|| super::memory::address(symbol));
    if let Some(address) = found.or_else(|| super::graphs::address(symbol)) {
        return address;
    }
    match symbol {
        "cuDeviceGet" => one_int as *const () as usize,
        "cuDriverGetVersion" => version as *const () as usize,
        "cuDeviceGetName" => name as *const () as usize,
        "cuDeviceGetAttribute" => attribute as *const () as usize,
        "cuGetErrorName" => error_name as *const () as usize,
        "cuCtxSetCurrent" => world::ctx_set_current as *const () as usize,
        "cuCtxPushCurrent_v2" => world::ctx_push as *const () as usize,
        _ => unsupported as *const () as usize,
    }
}

/// An agent over the fake driver, and the tool that it will say hello to.
pub(super) fn agent() -> (&'static Agent, ToolConnection) {
    for (slot, function) in [
        (&trampolines::module_load_data, load as *const () as usize),
        (
            &trampolines::module_load_data_ex,
            load_ex as *const () as usize,
        ),
        (&trampolines::module_unload, unload as *const () as usize),
        (
            &trampolines::module_get_function,
            application::get_function as *const () as usize,
        ),
        (
            &trampolines::launch_kernel,
            application::launch as *const () as usize,
        ),
        (
            &trampolines::library_load_data,
            application::load as *const () as usize,
        ),
        (
            &trampolines::library_get_kernel,
            application::get_function as *const () as usize,
        ),
        (
            &trampolines::library_unload,
            application::library_unload as *const () as usize,
        ),
        (
            &trampolines::primary_retain,
            application::retain as *const () as usize,
        ),
        (
            &trampolines::primary_release,
            application::release as *const () as usize,
        ),
        (
            &trampolines::ctx_destroy,
            application::destroy as *const () as usize,
        ),
    ] {
        slot.store(function, Ordering::Relaxed);
    }
    // SAFETY: every function has the signature of its symbol, or ignores its arguments.
    let api = unsafe { Api::resolve(|symbol| address(symbol) as *const c_void) }.unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (files, ours) = FileThread::start(Some(ours.as_fd())).unwrap();
    let tool = Tool::Socket(Mutex::new(ours));
    let symbols = Symbols::new(|symbol| Some(address(symbol)));
    let agent = Agent::leak(
        Driver::new(api),
        symbols,
        tool,
        files,
        crate::startup::start::ABOVE,
    );
    (agent, ToolConnection::new(theirs).unwrap())
}

/// Loads a text as the application would.
pub(super) fn load_module(agent: &'static Agent, text: &str) -> (CUresult, usize) {
    let text = CString::new(text).unwrap();
    let mut module = std::ptr::null_mut();
    let outcome = crate::sys::guard::Outcome::default();
    // SAFETY: a local and NUL-terminated text.
    let code = unsafe {
        crate::hooks::loads::module_load_data(agent, &outcome, &mut module, text.as_ptr().cast())
    };
    (code, module as usize)
}
