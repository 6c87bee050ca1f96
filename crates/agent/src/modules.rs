//! Images: read when the application loads them, instrumented when they have a context, forgotten when they go.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_driver::sys::{self, CUdevice, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};
use warpbpf_driver::{Library, Module};
use warpbpf_session::{ImageInfo, LoadedVariant, Prepared, Session, inspect};
use warpbpf_wire::{Kernel, NoteLevel, ToTool};

use crate::agent::{Agent, Mode};
use crate::exports::original;
use crate::guard::Outcome;
use crate::launch::Entry;
use crate::{image, observe};

/// A module or a library, by its driver handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Handle {
    Module(usize),
    Library(usize),
}

/// A loaded image with kernels that programs want.
#[derive(Debug)]
struct Image {
    handle: Handle,
    session: Arc<Session>,
    info: ImageInfo,
    prepared: Prepared,
    /// Set by the thread that instruments it.
    settled: AtomicBool,
    entries: Mutex<HashMap<String, &'static Entry>>,
    /// The text that the driver was given, where the application promised to keep its own.
    _text: Option<CString>,
}

/// The images that are loaded now.
#[derive(Debug, Default)]
pub(crate) struct Images {
    by_handle: Mutex<HashMap<Handle, Arc<Image>>>,
    reported: Mutex<HashSet<(String, String, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Images {
    fn get(&self, handle: Handle) -> Option<Arc<Image>> {
        lock(&self.by_handle).get(&handle).cloned()
    }
}

// What an image is before it is loaded.

/// An image about to be loaded.
struct Incoming {
    session: Arc<Session>,
    info: ImageInfo,
    prepared: Prepared,
    text: Option<CString>,
}

/// Reads an image. `None` when the load is none of our business.
fn read(agent: &'static Agent, bytes: Option<&[u8]>) -> Option<Incoming> {
    let mode = agent.mode();
    let capability = agent.device()?.capability;
    let session = match mode {
        Mode::PassThrough => return None,
        Mode::Observe => None,
        Mode::Attached(session) => Some(session),
    };
    let Some(bytes) = bytes else {
        agent.note(
            NoteLevel::Warning,
            "an image with a damaged header was loaded; its kernels run without probes".into(),
        );
        return None;
    };
    let info = match inspect(bytes, capability) {
        Ok(info) => info,
        Err(error) => {
            agent.note(
                NoteLevel::Warning,
                format!("an image was loaded that cannot be read: {error}"),
            );
            return None;
        }
    };
    let Some(session) = session else {
        observe::report(agent, &info);
        return None;
    };
    let mut prepared = session.prepare(&info);
    let text = prepared.rewritten.take().and_then(|text| {
        let text = CString::new(text);
        if text.is_err() {
            agent.note(
                NoteLevel::Warning,
                "an image's PTX holds a NUL byte; it is loaded unchanged".into(),
            );
        }
        text.ok()
    });
    Some(Incoming {
        session: Arc::clone(session),
        info,
        prepared,
        text,
    })
}

/// Loads an image by `load`, which is given our text or null for the application's own image.
fn load(
    agent: &'static Agent,
    outcome: &Outcome,
    bytes: Option<&[u8]>,
    mut load: impl FnMut(*const c_void) -> (CUresult, Handle),
) -> CUresult {
    let Some(mut incoming) = read(agent, bytes) else {
        return outcome.keep(load(ptr::null()).0);
    };
    if let Some(text) = &incoming.text {
        let (code, handle) = load(text.as_ptr().cast());
        if code == sys::SUCCESS {
            outcome.keep(code);
            loaded(agent, incoming, handle);
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
        loaded(agent, incoming, handle);
    }
    code
}

/// An image is loaded: its kernels are reported, and instrumented if they are wanted.
fn loaded(agent: &'static Agent, incoming: Incoming, handle: Handle) {
    let Incoming {
        session,
        info,
        prepared,
        text,
    } = incoming;
    for kernel in prepared.kernels.iter().filter(|k| !k.wanted) {
        // A kernel that programs want and that was refused is missed at every launch.
        report(agent, &info, kernel, None);
    }
    if !prepared.kernels.iter().any(|k| !k.programs.is_empty()) && text.is_none() {
        return;
    }
    let image = Arc::new(Image {
        handle,
        session,
        info,
        prepared,
        settled: AtomicBool::new(false),
        entries: Mutex::default(),
        _text: text,
    });
    lock(&agent.images.by_handle).insert(handle, Arc::clone(&image));
    agent.count_pending(1);
    settle(agent, &image);
}

/// Instruments an image, if that was not done yet and its context is current. Never waits for another thread that does.
fn settle(agent: &'static Agent, image: &Image) {
    if image.settled.load(Ordering::Acquire) {
        return;
    }
    agent.with_live(&image.session, |live| {
        if image.settled.swap(true, Ordering::AcqRel) {
            return;
        }
        agent.count_pending(-1);
        let context = live.context().0 as usize;
        let module = match image.handle {
            Handle::Module(module) => Ok(Module(module as CUmodule)),
            Handle::Library(library) => agent.driver.library_module(Library(library as CUlibrary)),
        };
        let results: HashMap<String, Result<Arc<LoadedVariant>, String>> = match module {
            Ok(module) => live
                .instrument(&image.prepared, module)
                .into_iter()
                .collect(),
            Err(error) => {
                let wanted = image.prepared.kernels.iter().filter(|k| k.wanted);
                wanted
                    .map(|k| (k.mangled.clone(), Err(error.to_string())))
                    .collect()
            }
        };
        for kernel in &image.prepared.kernels {
            if kernel.programs.is_empty() {
                continue;
            }
            let result = results.get(&kernel.mangled);
            if kernel.wanted {
                report(agent, &image.info, kernel, result);
            }
            let variant = result.and_then(|r| r.as_ref().ok()).cloned();
            let entry: &'static Entry = Box::leak(Box::new(Entry::new(
                kernel.mangled.clone(),
                variant,
                context,
            )));
            agent.add_entry(entry);
            lock(&image.entries).insert(kernel.mangled.clone(), entry);
            enter_known_handles(agent, image, entry);
        }
    });
}

/// Enters the handles that the application will launch by, before it asks for them: it may get them in ways that are not
/// hooked.
fn enter_known_handles(agent: &Agent, image: &Image, entry: &'static Entry) {
    if let Some(variant) = &entry.variant {
        enter(agent, entry, variant.original.0);
    }
    let Ok(name) = CString::new(entry.mangled.as_str()) else {
        return;
    };
    if let Handle::Library(library) = image.handle {
        let api = &agent.driver.api;
        let (mut kernel, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live library, a NUL-terminated name and writable locals.
        unsafe {
            let library = library as CUlibrary;
            if (api.library_kernel)(&mut kernel, library, name.as_ptr()) == sys::SUCCESS {
                enter(agent, entry, kernel);
                if (api.kernel_function)(&mut function, kernel) == sys::SUCCESS {
                    enter(agent, entry, function);
                }
            }
        }
    }
}

fn enter(agent: &Agent, entry: &'static Entry, handle: CUfunction) {
    let mut handles = lock(&entry.handles);
    if !handles.contains(&(handle as usize)) {
        handles.push(handle as usize);
    }
    agent.table.insert(handle as usize, entry);
}

/// Instruments what waits for the context that is current now.
pub(crate) fn settle_pending(agent: &'static Agent) {
    let waiting: Vec<Arc<Image>> = lock(&agent.images.by_handle)
        .values()
        .filter(|image| !image.settled.load(Ordering::Relaxed))
        .cloned()
        .collect();
    for image in waiting {
        settle(agent, &image);
    }
}

/// Reports wanted kernels that never got a context.
pub(crate) fn report_unsettled(agent: &Agent) {
    let images: Vec<Arc<Image>> = lock(&agent.images.by_handle).values().cloned().collect();
    for image in images.iter().filter(|i| !i.settled.load(Ordering::Relaxed)) {
        for kernel in image.prepared.kernels.iter().filter(|k| k.wanted) {
            let why = Err("no context was current when it could have been made".to_string());
            report(agent, &image.info, kernel, Some(&why));
        }
    }
}

fn report(
    agent: &Agent,
    info: &ImageInfo,
    kernel: &warpbpf_session::PreparedKernel,
    result: Option<&Result<Arc<LoadedVariant>, String>>,
) {
    let summary = info.kernels.iter().find(|k| k.mangled == kernel.mangled);
    let (way, variant) = match result {
        None => (kernel.way.clone(), None),
        Some(Ok(variant)) => (kernel.way.clone(), Some(variant)),
        Some(Err(reason)) => (format!("failed: {reason}"), None),
    };
    let registers_before = variant
        .map(|v| v.registers.0)
        .or_else(|| summary.and_then(|s| s.registers));
    send_kernel(
        agent,
        Kernel {
            kernel_id: kernel.kernel_id.map(|id| id as u32),
            mangled: kernel.mangled.clone(),
            demangled: kernel.demangled.clone(),
            source: summary.map(|s| s.source.clone()).unwrap_or_default(),
            registers_before,
            registers_after: variant.map(|v| v.registers.1),
            way,
            instrumented: variant.is_some(),
            programs: kernel.programs.clone(),
        },
    );
}

/// Sends a kernel's report, the same one once.
pub(crate) fn send_kernel(agent: &Agent, kernel: Kernel) {
    let key = (
        kernel.mangled.clone(),
        kernel.source.clone(),
        kernel.way.clone(),
    );
    if lock(&agent.images.reported).insert(key) {
        agent.send(ToTool::Kernel(kernel), None);
    }
}

fn forget(agent: &Agent, handle: Handle) -> Option<Arc<Image>> {
    let mut images = lock(&agent.images.by_handle);
    let image = images.remove(&handle)?;
    // A library's modules are aliases of it.
    images.retain(|_, other| !Arc::ptr_eq(other, &image));
    drop(images);
    if !image.settled.swap(true, Ordering::AcqRel) {
        agent.count_pending(-1);
    }
    for entry in lock(&image.entries).values() {
        for handle in std::mem::take(&mut *lock(&entry.handles)) {
            agent.table.remove(handle);
        }
    }
    Some(image)
}

// The hooks.

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
    load(agent, outcome, file.as_deref(), |text| {
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
    })
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
    load(agent, outcome, bytes, |text| {
        let image = if text.is_null() { image } else { text };
        // SAFETY: the application's own arguments, or our text in place of its image.
        let code = unsafe { original::module_load_data(module, image) };
        // SAFETY: on success the driver has written the module.
        (code, unsafe { module_handle(code, module) })
    })
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
    load(agent, outcome, bytes, |text| {
        let image = if text.is_null() { image } else { text };
        // SAFETY: the application's own arguments, or our text in place of its image.
        let code = unsafe { original::module_load_data_ex(module, image, count, options, values) };
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
    load(agent, outcome, bytes, |text| {
        // SAFETY: the application's own arguments, or our text, which is no fatbin and so goes to the general function.
        let code = unsafe {
            if text.is_null() {
                original::module_load_fatbin(module, image)
            } else {
                original::module_load_data(module, text)
            }
        };
        // SAFETY: on success the driver has written the module.
        (code, unsafe { module_handle(code, module) })
    })
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
    load(agent, outcome, bytes, |text| {
        let image = if text.is_null() { image } else { text };
        // SAFETY: the application's own arguments, or our text in place of its image.
        let code = unsafe {
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
    load(agent, outcome, file.as_deref(), |text| {
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
            }
        };
        // SAFETY: on success the driver has written the library.
        (code, unsafe { library_handle(code, library) })
    })
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
    std::fs::read(path).ok()
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
    // Before the driver forgets it: another thread may get the same handles at once.
    let image = forget(agent, Handle::Module(module as usize));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::module_unload(module) });
    drop(image);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_unload(
    agent: &Agent,
    outcome: &Outcome,
    library: CUlibrary,
) -> CUresult {
    let image = forget(agent, Handle::Library(library as usize));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::library_unload(library) });
    // Our text, if the driver was told that it would be kept, is freed only now.
    drop(image);
    code
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
    let Some(image) = agent.images.get(handle) else {
        return;
    };
    settle(agent, &image);
    // SAFETY: the caller's promise.
    let (function, name) = unsafe { (*function, CStr::from_ptr(name)) };
    let entry = name
        .to_str()
        .ok()
        .and_then(|name| lock(&image.entries).get(name).copied());
    if let Some(entry) = entry {
        enter(agent, entry, function);
    }
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
    if code == sys::SUCCESS
        && !module.is_null()
        && let Some(image) = agent.images.get(Handle::Library(library as usize))
    {
        settle(agent, &image);
        // SAFETY: the driver has written the module.
        let alias = Handle::Module(unsafe { *module } as usize);
        lock(&agent.images.by_handle).insert(alias, image);
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
        settle_pending(agent);
    }
    if code == sys::SUCCESS
        && !function.is_null()
        && let Some(entry) = agent.table.get(kernel as usize)
    {
        // SAFETY: the driver has written the function.
        enter(agent, entry, unsafe { *function });
    }
    code
}

// Attributes follow to the variant.

/// Calls `set` for the variant of a kernel and tells the user if the driver refuses what it took for the original.
fn mirror(
    agent: &Agent,
    code: CUresult,
    handle: CUfunction,
    set: impl FnOnce(CUfunction) -> CUresult,
) {
    if code != sys::SUCCESS {
        return;
    }
    let Some(entry) = agent.table.get(handle as usize) else {
        return;
    };
    if let Some(variant) = &entry.variant {
        let code = set(variant.function.0);
        if code != sys::SUCCESS {
            agent.note(
                NoteLevel::Warning,
                format!(
                    "kernel `{}`: the driver refuses an attribute of the original for the instrumented kernel ({})",
                    entry.mangled,
                    agent.driver.error_name(code)
                ),
            );
        }
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn func_set_attribute(
    agent: &Agent,
    outcome: &Outcome,
    function: CUfunction,
    attribute: c_int,
    value: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then those for our kernel.
    let set = |f| unsafe { original::func_set_attribute(f, attribute, value) };
    let code = outcome.keep(set(function));
    mirror(agent, code, function, set);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_set_attribute(
    agent: &Agent,
    outcome: &Outcome,
    attribute: c_int,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code =
        outcome.keep(unsafe { original::kernel_set_attribute(attribute, value, kernel, device) });
    // SAFETY: our kernel is a function of a module.
    mirror(agent, code, kernel, |f| unsafe {
        (agent.driver.api.func_set_attribute)(f, attribute, value)
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn func_set_cache(
    agent: &Agent,
    outcome: &Outcome,
    function: CUfunction,
    config: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then those for our kernel.
    let set = |f| unsafe { original::func_set_cache(f, config) };
    let code = outcome.keep(set(function));
    mirror(agent, code, function, set);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_set_cache(
    agent: &Agent,
    outcome: &Outcome,
    kernel: CUkernel,
    config: c_int,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::kernel_set_cache(kernel, config, device) });
    // SAFETY: our kernel is a function of a module.
    mirror(agent, code, kernel, |f| unsafe {
        original::func_set_cache(f, config)
    });
    code
}
