//! The hooks by which images and their kernels' handles pass: what the driver answers goes to
//! [`crate::instrument::modules`].

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;

use warpbpf_driver::JitOptions;
use warpbpf_driver::sys::{self, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::contexts::memory_table;
use crate::instrument::modules::enter::enter_here;
use crate::instrument::modules::leave::Leaving;
use crate::instrument::modules::load::load;
use crate::instrument::modules::pending::instrument_pending;
use crate::instrument::modules::{self, forget};
use crate::runtime::agent::Agent;
use crate::sources::image;
use crate::sources::images::Handle;
use crate::sys::guard::Outcome;
use crate::sys::original;

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_load(
    agent: &'static Agent,
    outcome: &Outcome,
    module: *mut CUmodule,
    path: *const c_char,
) -> CUresult {
    // SAFETY: the application's own path.
    let file = unsafe { read_file(path) };
    load(
        agent,
        outcome,
        file.as_deref(),
        JitOptions::default(),
        |text| {
            // SAFETY: the application's own arguments, or our text in place of its file.
            let code = unsafe {
                if text.is_null() {
                    original::module_load(module, path)
                } else {
                    original::module_load_data(module, text)
                }
            };
            // SAFETY: on success the driver has written the module.
            (code, unsafe { module_handle(code, module) })
        },
    )
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_load_data(
    agent: &'static Agent,
    outcome: &Outcome,
    module: *mut CUmodule,
    image: *const c_void,
) -> CUresult {
    // SAFETY: the application's own image.
    let bytes = unsafe { image::bytes(image) };
    load(
        agent,
        outcome,
        bytes.as_deref(),
        JitOptions::default(),
        |text| {
            let image = if text.is_null() { image } else { text };
            // SAFETY: the application's own arguments, or our text in place of its image.
            let code = unsafe { original::module_load_data(module, image) };
            // SAFETY: on success the driver has written the module.
            (code, unsafe { module_handle(code, module) })
        },
    )
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_load_data_ex(
    agent: &'static Agent,
    outcome: &Outcome,
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the application's own image.
    let bytes = unsafe { image::bytes(image) };
    // SAFETY: the application's own options.
    let jit = unsafe { JitOptions::read(count, options, values) };
    load(agent, outcome, bytes.as_deref(), jit, |text| {
        // SAFETY: the application's own arguments, or our text in place of its image.
        let code = unsafe {
            if text.is_null() {
                original::module_load_data_ex(module, image, count, options, values)
            } else {
                on_copy(values, count, |values| {
                    original::module_load_data_ex(module, text, count, options, values)
                })
            }
        };
        // SAFETY: on success the driver has written the module.
        (code, unsafe { module_handle(code, module) })
    })
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_load_fatbin(
    agent: &'static Agent,
    outcome: &Outcome,
    module: *mut CUmodule,
    image: *const c_void,
) -> CUresult {
    // SAFETY: the application's own image.
    let bytes = unsafe { image::bytes(image) };
    load(
        agent,
        outcome,
        bytes.as_deref(),
        JitOptions::default(),
        |text| {
            // SAFETY: the application's own arguments, or our text, which is no fatbin and so goes
            // to the general function.
            let code = unsafe {
                if text.is_null() {
                    original::module_load_fatbin(module, image)
                } else {
                    original::module_load_data(module, text)
                }
            };
            // SAFETY: on success the driver has written the module.
            (code, unsafe { module_handle(code, module) })
        },
    )
}

/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn library_load_data(
    agent: &'static Agent,
    outcome: &Outcome,
    library: *mut CUlibrary,
    image: *const c_void,
    jit_options: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> CUresult {
    // SAFETY: the application's own image.
    let bytes = unsafe { image::bytes(image) };
    // SAFETY: the application's own options.
    let jit = unsafe { JitOptions::read(jit_count, jit_options, jit_values) };
    load(agent, outcome, bytes.as_deref(), jit, |text| {
        let run = |image, jit_values| {
            // SAFETY: the application's own arguments, or our text in place of its image.
            unsafe {
                original::library_load_data(
                    library,
                    image,
                    jit_options,
                    jit_values,
                    jit_count,
                    options,
                    values,
                    count,
                )
            }
        };
        let code = if text.is_null() {
            run(image, jit_values)
        } else {
            // SAFETY: the application's own values.
            unsafe { on_copy(jit_values, jit_count, |values| run(text, values)) }
        };
        // SAFETY: on success the driver has written the library.
        (code, unsafe { library_handle(code, library) })
    })
}

/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn library_load_file(
    agent: &'static Agent,
    outcome: &Outcome,
    library: *mut CUlibrary,
    path: *const c_char,
    jit_options: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> CUresult {
    // SAFETY: the application's own path.
    let file = unsafe { read_file(path) };
    // SAFETY: the application's own options.
    let jit = unsafe { JitOptions::read(jit_count, jit_options, jit_values) };
    load(agent, outcome, file.as_deref(), jit, |text| {
        // SAFETY: the application's own arguments, or our text in place of its file.
        let code = unsafe {
            if text.is_null() {
                original::library_load_file(
                    library,
                    path,
                    jit_options,
                    jit_values,
                    jit_count,
                    options,
                    values,
                    count,
                )
            } else {
                on_copy(jit_values, jit_count, |jit_values| {
                    original::library_load_data(
                        library,
                        text,
                        jit_options,
                        jit_values,
                        jit_count,
                        options,
                        values,
                        count,
                    )
                })
            }
        };
        // SAFETY: on success the driver has written the library.
        (code, unsafe { library_handle(code, library) })
    })
}

/// Calls the driver with a copy of the options' values, and hands back what it wrote into them if
/// it succeeded. If not, the application's own load comes next, and needs them as they were: sizes
/// of logs, for one, are replaced by lengths.
///
/// # Safety
/// `values` is null or has `count` elements.
unsafe fn on_copy(
    values: *mut *mut c_void,
    count: c_uint,
    call: impl FnOnce(*mut *mut c_void) -> CUresult,
) -> CUresult {
    if values.is_null() {
        return call(values);
    }
    // SAFETY: the caller's promise.
    let mut copy = unsafe { std::slice::from_raw_parts(values, count as usize) }.to_vec();
    let code = call(copy.as_mut_ptr());
    if code == sys::SUCCESS {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), values, copy.len()) };
    }
    code
}

/// The file's bytes, with a NUL behind them as text needs it.
///
/// # Safety
/// `path` is null or NUL-terminated.
unsafe fn read_file(path: *const c_char) -> Option<Vec<u8>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    // From a FIFO it can be read once, and that is the driver's.
    let mut bytes = Vec::new();
    let mut file = warpbpf_descriptor::open(path).ok()?;
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// # Safety
/// If `code` is success, `module` is readable.
unsafe fn module_handle(code: CUresult, module: *mut CUmodule) -> Handle {
    if code != sys::SUCCESS || module.is_null() {
        return Handle::Module(0);
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { *module };
    Handle::Module(handle as usize)
}

/// # Safety
/// If `code` is success, `library` is readable.
unsafe fn library_handle(code: CUresult, library: *mut CUlibrary) -> Handle {
    if code != sys::SUCCESS || library.is_null() {
        return Handle::Library(0);
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { *library };
    Handle::Library(handle as usize)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_unload(agent: &Agent, outcome: &Outcome, module: CUmodule) -> CUresult {
    agent
        .preloaded
        .leaves(&agent.table, Handle::Module(module as usize));
    let leaving = forget(agent, Handle::Module(module as usize));
    let variables = memory_table::withdraw(agent, |known| known.set.take_owned(module as usize));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::module_unload(module) });
    after_unload(agent, leaving, code);
    memory_table::put_back_if_refused(agent, variables, code)
}

fn after_unload(agent: &Agent, leaving: Option<Leaving>, code: CUresult) {
    match leaving {
        // Our text, if the driver was told that it would be kept, is freed only now.
        Some(leaving) if code == sys::SUCCESS => leaving.gone(agent),
        Some(leaving) => leaving.stays(agent),
        None => {}
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_unload(
    agent: &Agent,
    outcome: &Outcome,
    library: CUlibrary,
) -> CUresult {
    agent
        .preloaded
        .leaves(&agent.table, Handle::Library(library as usize));
    let leaving = forget(agent, Handle::Library(library as usize));
    let variables = memory_table::withdraw(agent, |known| known.set.take_owned(library as usize));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::library_unload(library) });
    after_unload(agent, leaving, code);
    memory_table::put_back_if_refused(agent, variables, code)
}

/// A handle that the driver gave out for a kernel of an image by name.
///
/// # Safety
/// If `code` is success, `function` is readable and `name` NUL-terminated.
unsafe fn named(
    agent: &'static Agent,
    code: CUresult,
    handle: Handle,
    function: *mut CUfunction,
    name: *const c_char,
) {
    if code != sys::SUCCESS || function.is_null() || name.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let (function, name) = unsafe { (*function, CStr::from_ptr(name)) };
    modules::named(agent, handle, function, name);
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_get_function(
    agent: &'static Agent,
    outcome: &Outcome,
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::module_get_function(function, module, name) });
    // SAFETY: as above.
    unsafe { named(agent, code, Handle::Module(module as usize), function, name) };
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_get_kernel(
    agent: &'static Agent,
    outcome: &Outcome,
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::library_get_kernel(kernel, library, name) });
    // SAFETY: as above.
    unsafe { named(agent, code, Handle::Library(library as usize), kernel, name) };
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_get_module(
    agent: &'static Agent,
    outcome: &Outcome,
    module: *mut CUmodule,
    library: CUlibrary,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::library_get_module(module, library) });
    if code == sys::SUCCESS && !module.is_null() {
        // SAFETY: the driver has written the module.
        let module = unsafe { *module } as usize;
        let context = agent.driver.current().map_or(0, |c| c.0 as usize);
        agent.memory.note_library(module, library as usize, context);
        let module = Handle::Module(module);
        modules::alias(agent, Handle::Library(library as usize), module);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_get_function(
    agent: &'static Agent,
    outcome: &Outcome,
    function: *mut CUfunction,
    kernel: CUkernel,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::kernel_get_function(function, kernel) });
    if agent.has_pending() {
        instrument_pending(agent);
    }
    if code == sys::SUCCESS
        && !function.is_null()
        && let Some(entry) = agent.table.get(kernel as usize)
    {
        // SAFETY: the driver has written the function.
        enter_here(agent, entry, unsafe { *function });
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the first value for a size that the driver replaces.
    fn driver(values: *mut *mut c_void, code: CUresult) -> CUresult {
        // SAFETY: the tests give two values.
        unsafe { *values = 7 as *mut c_void };
        code
    }

    #[test]
    fn values_that_the_driver_writes_come_back_only_from_a_load_that_worked() {
        let mut values = [64, 1].map(|n: usize| n as *mut c_void);
        // SAFETY: two values.
        let code = unsafe { on_copy(values.as_mut_ptr(), 2, |values| driver(values, 218)) };
        assert_eq!((code, values[0] as usize, values[1] as usize), (218, 64, 1));
        // SAFETY: as above.
        let code = unsafe { on_copy(values.as_mut_ptr(), 2, |values| driver(values, 0)) };
        assert_eq!((code, values[0] as usize, values[1] as usize), (0, 7, 1));
        let none = |values: *mut *mut c_void| CUresult::from(!values.is_null());
        // SAFETY: null is allowed.
        assert_eq!(unsafe { on_copy(std::ptr::null_mut(), 2, none) }, 0);
    }
}
