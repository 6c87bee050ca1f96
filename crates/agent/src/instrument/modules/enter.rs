//! Handles by which launches find what stands for a kernel.

use std::ffi::CString;
use std::ptr;

use warpbpf_driver::sys::{self, CUfunction, CUlibrary};

use crate::kernels::entry::{self, Entry};
use crate::runtime::agent::Agent;
use crate::sources::images::{Handle, Image};

/// Enters the handles that the application will launch by, before it asks for them: it may get them
/// in ways that are not hooked.
pub(crate) fn enter_known_handles(agent: &Agent, image: &Image, entry: &'static Entry) {
    let Ok(name) = CString::new(entry.mangled.as_str()) else {
        return;
    };
    let Handle::Library(library) = image.handle else {
        return;
    };
    let api = &agent.driver.api;
    let (mut kernel, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live library, a NUL-terminated name and writable locals.
    image.standing.while_loaded(|| unsafe {
        let library = library as CUlibrary;
        if (api.library_kernel)(&mut kernel, library, name.as_ptr()) == sys::SUCCESS {
            enter(agent, entry, kernel, None);
            if (api.kernel_function)(&mut function, kernel) == sys::SUCCESS {
                enter_here(agent, entry, function);
            }
        }
    });
}

/// Has launches by this handle, which is of the current context, found.
pub(crate) fn enter_here(agent: &Agent, entry: &'static Entry, handle: CUfunction) {
    let context = agent.driver.current().map(|c| c.0 as usize);
    enter(agent, entry, handle, context);
}

pub(crate) fn enter(
    agent: &Agent,
    entry: &'static Entry,
    handle: CUfunction,
    context: Option<usize>,
) {
    let value = handle as usize;
    entry.note(entry::Handle { value, context });
    agent.table.insert(value, entry);
}
