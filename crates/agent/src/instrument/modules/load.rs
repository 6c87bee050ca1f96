//! An image on its way to the driver: with our kernels in its text, and where the driver does not
//! take that, as it was.

use std::ffi::c_void;
use std::ptr;

use warpbpf_driver::sys::{self, CUlibrary, CUresult};
use warpbpf_driver::{JitOptions, Library};
use warpbpf_session::Prepared;
use warpbpf_wire::NoteLevel;

use crate::instrument::modules::loaded::loaded;
use crate::instrument::modules::read::read;
use crate::instrument::nvrtc;
use crate::runtime::agent::Agent;
use crate::sources::images::Handle;
use crate::sys::guard::Outcome;
use crate::sys::original;

/// Loads an image by `load`, which is given our text or null for the application's own image.
pub(crate) fn load(
    agent: &'static Agent,
    outcome: &Outcome,
    bytes: Option<&[u8]>,
    jit: JitOptions,
    mut load: impl FnMut(*const c_void) -> (CUresult, Handle),
) -> CUresult {
    nvrtc::look(agent);
    let output = bytes.and_then(|bytes| agent.jit_outputs.of(bytes));
    let jit = output
        .as_ref()
        .and_then(|output| output.jit.clone())
        .unwrap_or(jit);
    let Some(mut incoming) = read(agent, bytes, output.as_deref()) else {
        return outcome.keep(load(ptr::null()).0);
    };
    if let Some(text) = &incoming.text {
        // A text that no compiler takes.
        let refused = warpbpf_faults::strikes("agent/clones-refused");
        let given = if refused {
            c"?".as_ptr()
        } else {
            text.as_ptr()
        };
        let (mut code, handle) = load(given.cast());
        if code == sys::SUCCESS {
            code = taken(agent, handle, &incoming.prepared);
        }
        if code == sys::SUCCESS {
            outcome.keep(code);
            loaded(agent, incoming, jit, handle);
            return code;
        }
        agent.note(
            NoteLevel::Warning,
            format!(
                "the driver refuses an image with instrumented kernels ({}); it is loaded unchanged",
                agent.driver.error_name(code)
            ),
        );
        incoming.text = None;
    }
    let (code, handle) = load(ptr::null());
    outcome.keep(code);
    if code == sys::SUCCESS {
        loaded(agent, incoming, jit, handle);
    }
    code
}

/// What a driver says of a text that it does not take: `CUDA_ERROR_INVALID_IMAGE`,
/// `NO_BINARY_FOR_GPU`, `INVALID_PTX`, `JIT_COMPILER_NOT_FOUND`, `UNSUPPORTED_PTX_VERSION`,
/// `JIT_COMPILATION_DISABLED`, `INVALID_SOURCE` (CUDA driver API, "Data types").
const REFUSALS: [CUresult; 7] = [200, 209, 218, 221, 222, 223, 300];

/// Whether the driver takes our text after all. One that loads lazily takes any text for a library,
/// and looks at it when somebody asks for a kernel; by then it would be too late for the original.
/// If it does not, the library is gone.
fn taken(agent: &Agent, handle: Handle, prepared: &Prepared) -> CUresult {
    let Handle::Library(handle) = handle else {
        return sys::SUCCESS;
    };
    let library = handle as CUlibrary;
    let first = prepared.kernels.first();
    let found = first.map(|kernel| {
        agent
            .driver
            .library_kernel(Library(library), &kernel.mangled)
    });
    match found {
        Some(Err(error)) if REFUSALS.contains(&error.code) => {
            // SAFETY: the driver has just given it, and nobody else knows it.
            unsafe { original::library_unload(library) };
            error.code
        }
        Some(Ok(_) | Err(_)) | None => sys::SUCCESS,
    }
}
