//! Modules, libraries, kernels and functions. A library is text with one module per context; a
//! kernel is a name in it; a function is a kernel in one module. As in NVIDIA's driver, a
//! `CUkernel` passes for a `CUfunction`.
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use warpbpf_softgpu::LoadError;

use crate::driver::image::{from_bytes, text_at};
use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::jit_log::{JitLog, Refusal};
use crate::objects::module::{
    Function, KernelNames, KernelObject, Library, LoadedModule, Settings,
};
use crate::state::{Soft, current, exiting, name, put, put_if, soft};

impl LoadedModule {
    fn load(soft: &Soft, context: Handle, text: &str) -> Result<Arc<LoadedModule>, Refusal> {
        let of = soft.contexts.get(context).ok_or(Refusal {
            code: CuError::CONTEXT_IS_DESTROYED,
            words: "its context is gone".to_owned(),
        })?;
        let _alone = of.alone().map_err(|code| Refusal {
            code,
            words: "its context is gone".to_owned(),
        })?;
        let image = soft.gpu(&of).load(text).map_err(|error| Refusal {
            code: load_code(&error),
            words: error.to_string(),
        })?;
        let module = Arc::new(LoadedModule {
            handle: new_handle(),
            context,
            image,
            functions: Mutex::new(HashMap::new()),
        });
        soft.modules.add(module.handle, Arc::clone(&module));
        Ok(module)
    }

    /// The function of that name; the same handle each time.
    fn function(
        self: &Arc<LoadedModule>,
        soft: &Soft,
        name: &CStr,
        settings: Option<Arc<Mutex<Settings>>>,
    ) -> Result<Arc<Function>, CuError> {
        let key = name.to_str().map_err(|_| CuError::NOT_FOUND)?;
        let mut functions = lock(&self.functions);
        if let Some(function) = functions
            .get(key)
            .and_then(|&handle| soft.functions.get(handle))
        {
            return Ok(function);
        }
        let kernel = self.image.kernel(key).ok_or(CuError::NOT_FOUND)?;
        let function = Arc::new(Function {
            handle: new_handle(),
            module: Arc::clone(self),
            kernel,
            name: name.to_owned(),
            settings: settings.unwrap_or_default(),
            info: OnceLock::new(),
        });
        soft.functions.add(function.handle, Arc::clone(&function));
        functions.insert(key.to_owned(), function.handle);
        Ok(function)
    }

    fn unload(&self, soft: &Soft) {
        let context = soft.contexts.get(self.context);
        // The module's code and variables must outlive the work that uses them. A driver lets
        // others launch meanwhile only until something else of this kind stands behind the unload.
        let _alone = (context.as_ref())
            .filter(|_| !exiting())
            .map(|of| of.alone());
        if let Some(context) = &context {
            context.flush_printed();
        }
        soft.functions
            .retain(|function| function.module.handle != self.handle);
        soft.modules.remove(self.handle);
    }
}

fn load_code(error: &LoadError) -> CuError {
    match error {
        LoadError::OutOfMemory { .. } => CuError::OUT_OF_MEMORY,
        LoadError::Ptx(_)
        | LoadError::AddressSize { .. }
        | LoadError::ExternVariable { .. }
        | LoadError::VariableSize { .. }
        | LoadError::Initialiser { .. }
        | LoadError::Body { .. } => CuError::INVALID_PTX,
    }
}

impl Library {
    /// Takes any text, as the driver does where it loads lazily: what is wrong with one is told to
    /// who asks for what is in it.
    fn load(soft: &Soft, text: String) -> Arc<Library> {
        let kernel_names = warpbpf_ptx::index(&text).map(|index| {
            let entries = index
                .functions
                .iter()
                .filter(|function| function.is_entry && function.body.is_some());
            KernelNames::new(entries.map(|function| function.name.to_owned()))
        });
        let kernel_names = kernel_names.map_err(|error| {
            crate::say::say(&format!("a library cannot be loaded: {error}"));
            CuError::INVALID_PTX
        });
        Library::known(soft, text, kernel_names)
    }

    /// The same of what is no image at all.
    fn unknown(soft: &Soft, refusal: &Refusal) -> Arc<Library> {
        crate::say::say(&format!("a library cannot be loaded: {}", refusal.words));
        Library::known(soft, String::new(), Err(refusal.code))
    }

    fn known(
        soft: &Soft,
        text: String,
        kernel_names: Result<KernelNames, CuError>,
    ) -> Arc<Library> {
        let library = Arc::new(Library {
            handle: new_handle(),
            text,
            kernel_names,
            kernels: Mutex::new(HashMap::new()),
            modules: Mutex::new(HashMap::new()),
        });
        soft.libraries.add(library.handle, Arc::clone(&library));
        library
    }

    /// The library's module in a context, made on first use.
    fn module_in(&self, soft: &Soft, context: Handle) -> Result<Arc<LoadedModule>, CuError> {
        if let Err(error) = &self.kernel_names {
            return Err(*error);
        }
        let mut modules = lock(&self.modules);
        if let Some(module) = modules
            .get(&context)
            .and_then(|&handle| soft.modules.get(handle))
        {
            return Ok(module);
        }
        let module = LoadedModule::load(soft, context, &self.text).map_err(|refusal| {
            crate::say::say(&format!("a library cannot be loaded: {}", refusal.words));
            refusal.code
        })?;
        modules.insert(context, module.handle);
        Ok(module)
    }

    fn kernel(&self, soft: &Soft, name: &CStr) -> Result<Arc<KernelObject>, CuError> {
        let key = name.to_str().map_err(|_| CuError::NOT_FOUND)?;
        let names = self.kernel_names.as_ref().map_err(|error| *error)?;
        // What only a context's own look at the text finds wrong.
        if let Ok(context) = current() {
            self.module_in(soft, context.handle)?;
        }
        if !names.known.contains(key) {
            return Err(CuError::NOT_FOUND);
        }
        let mut kernels = lock(&self.kernels);
        if let Some(kernel) = kernels
            .get(key)
            .and_then(|&handle| soft.kernels.get(handle))
        {
            return Ok(kernel);
        }
        let kernel = Arc::new(KernelObject {
            handle: new_handle(),
            library: self.handle,
            name: name.to_owned(),
            settings: Arc::default(),
        });
        soft.kernels.add(kernel.handle, Arc::clone(&kernel));
        kernels.insert(key.to_owned(), kernel.handle);
        Ok(kernel)
    }

    pub(crate) fn forget_context(&self, context: Handle) {
        lock(&self.modules).remove(&context);
    }
}

/// The function that a `CUfunction` or a `CUkernel` means in the current context.
pub(crate) fn resolve(soft: &Soft, handle: Handle) -> Result<Arc<Function>, CuError> {
    if let Some(function) = soft.functions.get(handle) {
        return Ok(function);
    }
    let kernel = soft.kernels.get(handle).ok_or(CuError::INVALID_HANDLE)?;
    function_of(soft, &kernel)
}

fn function_of(soft: &Soft, kernel: &KernelObject) -> Result<Arc<Function>, CuError> {
    let context = current()?;
    let library = soft
        .libraries
        .get(kernel.library)
        .ok_or(CuError::INVALID_HANDLE)?;
    let module = library.module_in(soft, context.handle)?;
    module.function(soft, &kernel.name, Some(Arc::clone(&kernel.settings)))
}

pub(crate) unsafe fn load_data_ex(
    to: *mut Handle,
    image: *const c_void,
    count: u32,
    options: *const c_int,
    values: *mut *mut c_void,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's arrays and image.
    unsafe {
        let log = JitLog::new(count, options, values)?;
        let loaded =
            text_at(image).and_then(|text| LoadedModule::load(soft, context.handle, &text));
        let module = loaded.map_err(|refusal| log.refused(refusal))?;
        put(to, module.handle)?;
        log.succeeded()
    }
}

pub(crate) unsafe fn load_data(to: *mut Handle, image: *const c_void) -> CuResult {
    // SAFETY: the caller's pointers; no options.
    unsafe { load_data_ex(to, image, 0, std::ptr::null(), std::ptr::null_mut()) }
}

pub(crate) fn text_of_file(path: &CStr) -> Result<String, Refusal> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    match std::fs::read(path) {
        Ok(bytes) => from_bytes(&bytes),
        Err(error) => {
            let words = format!("`{}` cannot be read: {error}", path.display());
            Err(Refusal {
                code: CuError::FILE_NOT_FOUND,
                words,
            })
        }
    }
}

pub(crate) unsafe fn load_file(to: *mut Handle, path: *const c_char) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    // SAFETY: the caller's pointers.
    unsafe {
        let loaded = text_of_file(name(path)?)
            .and_then(|text| LoadedModule::load(soft, context.handle, &text));
        let log = JitLog::new(0, std::ptr::null(), std::ptr::null_mut())?;
        put(to, loaded.map_err(|refusal| log.refused(refusal))?.handle)
    }
}

/// The library that a module is in its context.
fn library_of(soft: &Soft, module: Handle) -> Option<Arc<Library>> {
    let all = soft.libraries.all();
    all.into_iter()
        .find(|library| lock(&library.modules).values().any(|&own| own == module))
}

/// The library's kernel that a function is in its context; `None` for a function of a module.
pub(crate) fn kernel_of(soft: &Soft, function: &Function) -> Option<Arc<KernelObject>> {
    let library = library_of(soft, function.module.handle)?;
    library.kernel(soft, &function.name).ok()
}

fn module(soft: &Soft, handle: Handle) -> Result<Arc<LoadedModule>, CuError> {
    soft.modules.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn unload(handle: Handle) -> CuResult {
    let soft = soft()?;
    let module = module(soft, handle)?;
    // A library's module goes with the library.
    if library_of(soft, handle).is_some() {
        return Err(CuError::NOT_PERMITTED);
    }
    module.unload(soft);
    Ok(())
}

pub(crate) unsafe fn get_function(
    to: *mut Handle,
    handle: Handle,
    wanted: *const c_char,
) -> CuResult {
    let soft = soft()?;
    current()?;
    let module = module(soft, handle)?;
    // SAFETY: the caller's pointers.
    unsafe { put(to, module.function(soft, name(wanted)?, None)?.handle) }
}

pub(crate) unsafe fn function_count(to: *mut u32, handle: Handle) -> CuResult {
    let module = module(soft()?, handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, module.image.kernels().count() as u32) }
}

/// Writes up to `room` handles to `to`.
///
/// # Safety
/// `to` must be valid for `room` writes.
unsafe fn put_all(
    to: *mut Handle,
    room: u32,
    names: impl Iterator<Item = String>,
    mut handle: impl FnMut(&CStr) -> Result<Handle, CuError>,
) -> CuResult {
    if to.is_null() && room > 0 {
        return Err(CuError::INVALID_VALUE);
    }
    for (at, name) in names.take(room as usize).enumerate() {
        let name = CString::new(name).map_err(|_| CuError::NOT_FOUND)?;
        // SAFETY: `at` is below `room`.
        unsafe { to.add(at).write(handle(&name)?) };
    }
    Ok(())
}

pub(crate) unsafe fn enumerate_functions(to: *mut Handle, room: u32, handle: Handle) -> CuResult {
    let soft = soft()?;
    let module = module(soft, handle)?;
    let names = module
        .image
        .kernels()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    // SAFETY: the caller's array.
    unsafe {
        put_all(to, room, names.into_iter(), |name| {
            Ok(module.function(soft, name, None)?.handle)
        })
    }
}

/// # Safety
/// `address`, `bytes` null or valid for writes.
unsafe fn put_global(
    module: &LoadedModule,
    wanted: &CStr,
    address: *mut u64,
    bytes: *mut usize,
) -> CuResult {
    let wanted = wanted.to_str().map_err(|_| CuError::NOT_FOUND)?;
    // SAFETY: the caller's pointers.
    unsafe { put_place(module.image.global(wanted), address, bytes) }
}

/// Tells where a variable is and how large, if there is one.
///
/// # Safety
/// The pointers must be null or valid for a write.
unsafe fn put_place(place: Option<(u64, u64)>, address: *mut u64, bytes: *mut usize) -> CuResult {
    let (start, size) = place.ok_or(CuError::NOT_FOUND)?;
    // SAFETY: the caller's promise.
    unsafe {
        put_if(address, start);
        put_if(bytes, size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn get_global(
    address: *mut u64,
    bytes: *mut usize,
    handle: Handle,
    wanted: *const c_char,
) -> CuResult {
    let module = module(soft()?, handle)?;
    current()?;
    // SAFETY: the caller's pointers.
    unsafe { put_global(&module, name(wanted)?, address, bytes) }
}

pub(crate) unsafe fn loading_mode(to: *mut c_int) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointer. `CU_MODULE_LAZY_LOADING`: bodies are decoded on first use.
    unsafe { put(to, 2) }
}

pub(crate) unsafe fn library_load_data(
    to: *mut Handle,
    image: *const c_void,
    options: *const c_int,
    values: *mut *mut c_void,
    count: u32,
    _library_options: *const c_int,
    _library_values: *mut *mut c_void,
    _library_count: u32,
) -> CuResult {
    let soft = soft()?;
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's arrays and image.
    unsafe {
        let log = JitLog::new(count, options, values)?;
        let loaded = match text_at(image) {
            Err(refusal) if refusal.code == CuError::INVALID_IMAGE && !image.is_null() => {
                Ok(Library::unknown(soft, &refusal))
            }
            read => read.map(|text| Library::load(soft, text)),
        };
        put(to, loaded.map_err(|refusal| log.refused(refusal))?.handle)?;
        log.succeeded()
    }
}

pub(crate) unsafe fn library_load_file(
    to: *mut Handle,
    path: *const c_char,
    options: *const c_int,
    values: *mut *mut c_void,
    count: u32,
    _library_options: *const c_int,
    _library_values: *mut *mut c_void,
    _library_count: u32,
) -> CuResult {
    let soft = soft()?;
    // SAFETY: the caller's pointers.
    unsafe {
        let log = JitLog::new(count, options, values)?;
        let loaded = text_of_file(name(path)?).map(|text| Library::load(soft, text));
        put(to, loaded.map_err(|refusal| log.refused(refusal))?.handle)?;
        log.succeeded()
    }
}

fn library(soft: &Soft, handle: Handle) -> Result<Arc<Library>, CuError> {
    soft.libraries.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn library_unload(handle: Handle) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    soft.libraries.remove(handle);
    soft.kernels.retain(|kernel| kernel.library != handle);
    let modules: Vec<Handle> = lock(&library.modules).values().copied().collect();
    for module in modules
        .into_iter()
        .filter_map(|module| soft.modules.get(module))
    {
        module.unload(soft);
    }
    Ok(())
}

pub(crate) unsafe fn library_get_kernel(
    to: *mut Handle,
    handle: Handle,
    wanted: *const c_char,
) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    // SAFETY: the caller's pointers.
    unsafe { put(to, library.kernel(soft, name(wanted)?)?.handle) }
}

pub(crate) unsafe fn library_kernel_count(to: *mut u32, handle: Handle) -> CuResult {
    let library = library(soft()?, handle)?;
    // SAFETY: the caller's pointer.
    unsafe {
        put(
            to,
            library
                .kernel_names
                .as_ref()
                .map_or(0, |names| names.list.len()) as u32,
        )
    }
}

pub(crate) unsafe fn library_enumerate(to: *mut Handle, room: u32, handle: Handle) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    let names = library
        .kernel_names
        .iter()
        .flat_map(|names| names.list.iter().cloned());
    // SAFETY: the caller's array.
    unsafe {
        put_all(to, room, names, |name| {
            Ok(library.kernel(soft, name)?.handle)
        })
    }
}

pub(crate) unsafe fn library_get_module(to: *mut Handle, handle: Handle) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, library.module_in(soft, current()?.handle)?.handle) }
}

pub(crate) unsafe fn library_get_global(
    address: *mut u64,
    bytes: *mut usize,
    handle: Handle,
    wanted: *const c_char,
) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    let module = library.module_in(soft, current()?.handle)?;
    // SAFETY: the caller's pointers.
    unsafe { put_global(&module, name(wanted)?, address, bytes) }
}

/// In each context the library has variables of its own, where a GPU has one `__managed__` variable
/// for all.
pub(crate) unsafe fn library_get_managed(
    address: *mut u64,
    bytes: *mut usize,
    handle: Handle,
    wanted: *const c_char,
) -> CuResult {
    let soft = soft()?;
    let library = library(soft, handle)?;
    let module = library.module_in(soft, current()?.handle)?;
    // SAFETY: the caller's pointers.
    unsafe {
        let wanted = name(wanted)?.to_str().map_err(|_| CuError::NOT_FOUND)?;
        put_place(module.image.managed(wanted), address, bytes)
    }
}

pub(crate) unsafe fn library_get_unified(
    _to: *mut *mut c_void,
    handle: Handle,
    _wanted: *const c_char,
) -> CuResult {
    library(soft()?, handle)?;
    Err(CuError::NOT_FOUND)
}

fn kernel(soft: &Soft, handle: Handle) -> Result<Arc<KernelObject>, CuError> {
    soft.kernels.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn kernel_get_function(to: *mut Handle, handle: Handle) -> CuResult {
    let soft = soft()?;
    let kernel = kernel(soft, handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, function_of(soft, &kernel)?.handle) }
}

pub(crate) unsafe fn kernel_get_library(to: *mut Handle, handle: Handle) -> CuResult {
    let kernel = kernel(soft()?, handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, kernel.library) }
}

pub(crate) unsafe fn kernel_get_name(to: *mut *const c_char, handle: Handle) -> CuResult {
    let kernel = kernel(soft()?, handle)?;
    // SAFETY: the caller's pointer; the name lives as long as the kernel's library.
    unsafe { put(to, kernel.name.as_ptr()) }
}

pub(crate) unsafe fn function_get_name(to: *mut *const c_char, handle: Handle) -> CuResult {
    let function = resolve(soft()?, handle)?;
    // SAFETY: the caller's pointer; the name lives as long as the function's module.
    unsafe { put(to, function.name.as_ptr()) }
}

pub(crate) unsafe fn function_get_module(to: *mut Handle, handle: Handle) -> CuResult {
    let function = resolve(soft()?, handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, function.module.handle) }
}

pub(crate) unsafe fn function_is_loaded(to: *mut c_int, handle: Handle) -> CuResult {
    resolve(soft()?, handle)?;
    // SAFETY: the caller's pointer. `CU_FUNCTION_LOADING_STATE_LOADED`
    unsafe { put(to, 1) }
}

pub(crate) unsafe fn function_load(handle: Handle) -> CuResult {
    resolve(soft()?, handle)?.info().map(|_| ())
}

pub(crate) unsafe fn param_info(
    handle: Handle,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CuResult {
    let function = resolve(soft()?, handle)?;
    let param = function
        .kernel
        .params()
        .get(index)
        .ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(size, param.size);
        put(offset, param.offset)
    }
}
