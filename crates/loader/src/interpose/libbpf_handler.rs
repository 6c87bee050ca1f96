//! `SEC("gpu/…")` in libbpf: a handler that loads such programs as probes and attaches them by
//! their section.
//!
//! A section name is no part of `union bpf_attr`. libbpf calls a handler of ours just before it
//! loads a program and when it attaches it, and each time it can be asked for the section. That
//! needs libbpf as a shared library: of one that is linked statically nothing can be found by name,
//! and a tool has to register the handler itself (docs/loader.md).

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use super::global;
use super::guard::inside;
use crate::objects::perf::Probe;
use crate::tool::announced_section::announce;
use crate::uapi::prog_type;

type Program = c_void;
type Link = c_void;

/// `struct libbpf_prog_handler_opts`.
#[repr(C)]
struct Handler {
    size: usize,
    cookie: c_long,
    setup: Option<extern "C" fn(*mut Program, c_long) -> c_int>,
    prepare_load: Option<extern "C" fn(*mut Program, *mut c_void, c_long) -> c_int>,
    attach: Option<extern "C" fn(*const Program, c_long, *mut *mut Link) -> c_int>,
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a valid name; the answer is an address or null.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Tells libbpf about sections that begin with `gpu`, if it can be found.
pub fn register() {
    let Some(function) = find(c"libbpf_register_prog_handler") else {
        return;
    };
    let handler = Handler {
        size: size_of::<Handler>(),
        cookie: 0,
        setup: None,
        prepare_load: Some(prepare_load),
        attach: Some(attach),
    };
    type Register = unsafe extern "C" fn(*const c_char, c_int, c_int, *const Handler) -> c_int;
    // SAFETY: libbpf's function of this name has this type since 0.8, and copies what it is
    // given.
    unsafe {
        let function = std::mem::transmute::<*mut c_void, Register>(function);
        function(c"gpu+".as_ptr(), prog_type::KPROBE as c_int, 0, &handler);
    }
}

fn text(function: &CStr, program: *const Program) -> Option<String> {
    let function = find(function)?;
    type Text = unsafe extern "C" fn(*const Program) -> *const c_char;
    // SAFETY: both functions that are asked for take a program and give its text, or null.
    unsafe {
        let function = std::mem::transmute::<*mut c_void, Text>(function);
        let text = function(program);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

fn section(program: *const Program) -> Option<String> {
    text(c"bpf_program__section_name", program)
}

extern "C" fn prepare_load(program: *mut Program, _: *mut c_void, _: c_long) -> c_int {
    inside(|| {
        if let (Some(name), Some(section)) = (text(c"bpf_program__name", program), section(program))
        {
            announce(&name, &section);
        }
    });
    0
}

extern "C" fn attach(program: *const Program, _: c_long, link: *mut *mut Link) -> c_int {
    let opened = inside(|| {
        let section = section(program)?;
        let function = find(c"bpf_program__attach_perf_event")?;
        let opened = global::kernel().open_probe(Probe::Section(section));
        Some((opened, function))
    });
    let Some(Some((opened, function))) = opened else {
        return -libc::EOPNOTSUPP;
    };
    let fd = match opened {
        Ok(fd) => fd as c_int,
        Err(error) => return -error.raw_os_error(),
    };
    type Attach = unsafe extern "C" fn(*const Program, c_int) -> *mut Link;
    // SAFETY: libbpf's function of this name has this type; it takes the descriptor over if it
    // succeeds.
    unsafe {
        let function = std::mem::transmute::<*mut c_void, Attach>(function);
        let made = function(program, fd);
        if made.is_null() {
            let error = crate::interpose::real::errno();
            libc::close(fd);
            return -error.max(1);
        }
        *link = made;
    }
    0
}
