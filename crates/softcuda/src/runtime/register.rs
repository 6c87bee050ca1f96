//! What `nvcc`'s start-up code registers: fatbins, kernels and variables, by the addresses of their
//! host shadows. Nothing is loaded before the program's first CUDA call, as static constructors run
//! before `main`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{CuError, CuResult};
use crate::per_thread::Stack;
use crate::runtime::Dim3;
use crate::runtime::link::{Driver, driver, ready};
use crate::state::Handle;

struct Fatbin {
    wrapper: usize,
    /// Loaded, or why not.
    library: Option<Result<Handle, CuError>>,
    live: bool,
}

struct Kernel {
    fatbin: usize,
    name: CString,
    handle: Option<Handle>,
}

struct Variable {
    fatbin: usize,
    name: CString,
    size: usize,
}

/// A variable that the program reads through a pointer of its own, which does not say yet where it
/// is.
struct Managed {
    fatbin: usize,
    name: CString,
    host: usize,
}

#[derive(Default)]
struct Registry {
    fatbins: Vec<Fatbin>,
    kernels: HashMap<usize, Kernel>,
    variables: HashMap<usize, Variable>,
    managed: Vec<Managed>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
/// Fatbins registered and not yet loaded: looked at by every call, so without a lock.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Managed variables registered since the program's pointers were last filled, looked at likewise.
static UNPLACED: AtomicUsize = AtomicUsize::new(0);

fn registry<T>(use_it: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(registry.get_or_insert_default())
}

/// Loads what is registered and not loaded. A fatbin that cannot be loaded is an error of its
/// kernels, not of all.
pub(crate) fn load_all(driver: &Driver) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    registry(|registry| {
        for fatbin in registry
            .fatbins
            .iter_mut()
            .filter(|fatbin| fatbin.live && fatbin.library.is_none())
        {
            fatbin.library = Some(load(driver, fatbin.wrapper));
        }
        PENDING.store(0, Ordering::Release);
    });
}

/// Fills the program's pointers to its managed variables, in the context that is current and alive.
/// One whose fatbin cannot be loaded stays null.
pub(crate) fn place_managed(driver: &Driver) {
    if UNPLACED.load(Ordering::Acquire) == 0 {
        return;
    }
    registry(|registry| {
        for variable in std::mem::take(&mut registry.managed) {
            let mut address = 0;
            let place = registry.library(variable.fatbin).and_then(|library| {
                let name = variable.name.as_ptr();
                // SAFETY: valid pointers.
                unsafe {
                    driver.cuLibraryGetManaged(
                        &raw mut address,
                        std::ptr::null_mut(),
                        library,
                        name,
                    )
                }
            });
            match place {
                // SAFETY: the program registered its pointer, which lives as long as its fatbin.
                Ok(()) => unsafe { (variable.host as *mut u64).write(address) },
                Err(error) => crate::say(&format!(
                    "managed variable `{}` cannot be had: {error:?}",
                    variable.name.to_string_lossy()
                )),
            }
        }
        UNPLACED.store(0, Ordering::Release);
    });
}

fn load(driver: &Driver, wrapper: usize) -> Result<Handle, CuError> {
    use std::ptr::{null, null_mut};
    let mut library = 0;
    // SAFETY: the program registered a fatbin wrapper that lives as long as it does; no options.
    unsafe {
        driver.cuLibraryLoadData(
            &raw mut library,
            wrapper as *const c_void,
            null(),
            null_mut(),
            0,
            null(),
            null_mut(),
            0,
        )
    }?;
    Ok(library)
}

impl Registry {
    fn library(&self, fatbin: usize) -> Result<Handle, CuError> {
        self.fatbins
            .get(fatbin)
            .and_then(|fatbin| fatbin.library)
            .unwrap_or(Err(CuError::INVALID_DEVICE_FUNCTION))
    }
}

/// The driver's kernel of a host function's address.
pub(crate) fn kernel_of(driver: &Driver, host: *const c_void) -> Result<Handle, CuError> {
    registry(|registry| {
        let kernel = registry
            .kernels
            .get(&(host as usize))
            .ok_or(CuError::INVALID_DEVICE_FUNCTION)?;
        if let Some(handle) = kernel.handle {
            return Ok(handle);
        }
        let library = registry.library(kernel.fatbin)?;
        let mut handle = 0;
        // SAFETY: valid pointers.
        let found =
            unsafe { driver.cuLibraryGetKernel(&raw mut handle, library, kernel.name.as_ptr()) };
        found.map_err(|error| {
            if error == CuError::NOT_FOUND {
                CuError::INVALID_DEVICE_FUNCTION
            } else {
                error
            }
        })?;
        if let Some(kernel) = registry.kernels.get_mut(&(host as usize)) {
            kernel.handle = Some(handle);
        }
        Ok(handle)
    })
}

/// Marks what [`get_kernel`] gives out for a kernel that is not there: no user-space address has
/// this bit.
const MISSING: Handle = 1 << 63;

/// `__cudaGetKernel`, which `nvcc`'s launch code calls once per kernel, ignoring its result, and
/// keeps what it wrote: for a kernel that cannot be had that is its address, marked, so that each
/// launch can tell why.
///
/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn get_kernel(driver: &Driver, to: *mut Handle, host: *const c_void) -> CuResult {
    let kernel = kernel_of(driver, host);
    // SAFETY: the caller's pointer.
    unsafe { crate::state::put(to, kernel.unwrap_or(host as Handle | MISSING)) }?;
    kernel.map(|_| ())
}

/// The kernel of what [`get_kernel`] gave out.
pub(crate) fn loaded(driver: &Driver, kernel: Handle) -> Result<Handle, CuError> {
    if kernel & MISSING == 0 {
        Ok(kernel)
    } else {
        kernel_of(driver, (kernel & !MISSING) as *const c_void)
    }
}

/// A kernel from what a program passes as `func`: a host function's address, or a `cudaKernel_t`
/// cast to one.
pub(crate) fn kernel_or_handle(driver: &Driver, host: *const c_void) -> Result<Handle, CuError> {
    let registered = kernel_of(driver, host);
    if registered != Err(CuError::INVALID_DEVICE_FUNCTION) {
        return registered;
    }
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: a valid pointer; the driver checks the handle.
    match unsafe { driver.cuKernelGetName(&raw mut name, host as Handle) } {
        Ok(()) => Ok(host as Handle),
        Err(_) => registered,
    }
}

/// What a program calls the kernel that a driver's function or kernel is: the host function's
/// address, or the kernel itself if it has none.
pub(crate) fn host_of(driver: &Driver, named: Handle) -> Result<usize, CuError> {
    let known: Vec<(usize, Handle)> = registry(|registry| {
        let kernels = registry.kernels.iter();
        kernels
            .filter_map(|(host, kernel)| Some((*host, kernel.handle?)))
            .collect()
    });
    for (host, kernel) in known {
        let mut function = 0;
        // SAFETY: a valid pointer and a kernel of the driver's.
        let found = unsafe { driver.cuKernelGetFunction(&raw mut function, kernel) };
        if kernel == named || (found.is_ok() && function == named) {
            return Ok(host);
        }
    }
    Ok(named)
}

/// Address and size of a variable, by its host shadow's address.
pub(crate) fn symbol(driver: &Driver, host: *const c_void) -> Result<(u64, usize), CuError> {
    let (library, name, size) = registry(|registry| {
        let variable = registry
            .variables
            .get(&(host as usize))
            .ok_or(CuError::INVALID_SYMBOL)?;
        let library = registry.library(variable.fatbin)?;
        Ok::<_, CuError>((library, variable.name.clone(), variable.size))
    })?;
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: valid pointers.
    unsafe { driver.cuLibraryGetGlobal(&raw mut address, &raw mut bytes, library, name.as_ptr()) }
        .map_err(|error| {
            if error == CuError::NOT_FOUND {
                CuError::INVALID_SYMBOL
            } else {
                error
            }
        })?;
    Ok((address, bytes.min(size.max(1))))
}

/// A handle as `nvcc`'s code keeps it: a pointer to the fatbin's number.
///
/// # Safety
/// `handle` must be null or come from [`__cudaRegisterFatBinary`].
unsafe fn number(handle: *mut *mut c_void) -> Option<usize> {
    // SAFETY: the number was boxed by `__cudaRegisterFatBinary` and is never freed.
    (!handle.is_null()).then(|| unsafe { *handle.cast::<usize>() })
}

/// # Safety
/// `name` must be a C string.
unsafe fn owned(name: *const c_char) -> Option<CString> {
    // SAFETY: the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// # Safety
/// `wrapper` must be a fatbin wrapper that lives until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *mut c_void) -> *mut *mut c_void {
    let number = registry(|registry| {
        registry.fatbins.push(Fatbin {
            wrapper: wrapper as usize,
            library: None,
            live: true,
        });
        registry.fatbins.len() - 1
    });
    PENDING.fetch_add(1, Ordering::AcqRel);
    // One word per fatbin of the program, needed until the process ends.
    Box::into_raw(Box::new(number)).cast()
}

/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// # Safety
/// `handle` must come from [`__cudaRegisterFatBinary`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    // SAFETY: the caller's promise.
    let Some(number) = (unsafe { number(handle) }) else {
        return;
    };
    let library = registry(|registry| {
        registry.kernels.retain(|_, kernel| kernel.fatbin != number);
        registry
            .variables
            .retain(|_, variable| variable.fatbin != number);
        registry
            .managed
            .retain(|variable| variable.fatbin != number);
        let fatbin = registry.fatbins.get_mut(number)?;
        fatbin.live = false;
        fatbin.library.take()?.ok()
    });
    if let (Some(library), Ok(driver)) = (library, driver()) {
        // SAFETY: the driver checks the handle.
        let _ = unsafe { driver.cuLibraryUnload(library) };
    }
}

/// # Safety
/// As CUDA's: `handle` from [`__cudaRegisterFatBinary`], `name` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_char,
    _device: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut Dim3,
    _grid: *mut Dim3,
    _warp_size: *mut c_int,
) {
    // SAFETY: the caller's promise.
    if let (Some(fatbin), Some(name)) = unsafe { (number(handle), owned(name)) } {
        registry(|registry| {
            registry.kernels.insert(
                host as usize,
                Kernel {
                    fatbin,
                    name,
                    handle: None,
                },
            )
        });
    }
}

/// # Safety
/// As CUDA's: `handle` from [`__cudaRegisterFatBinary`], `name` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_char,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: the caller's promise.
    if let (Some(fatbin), Some(name)) = unsafe { (number(handle), owned(name)) } {
        registry(|registry| {
            registry
                .variables
                .insert(host as usize, Variable { fatbin, name, size })
        });
    }
}

/// # Safety
/// As CUDA's: `handle` from [`__cudaRegisterFatBinary`], `name` a C string, `host` the program's
/// pointer to the variable, which is there as long as its fatbin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: the caller's promise.
    if let (Some(fatbin), Some(name)) = unsafe { (number(handle), owned(name)) } {
        registry(|registry| {
            registry.managed.push(Managed {
                fatbin,
                name,
                host: host as usize,
            })
        });
        UNPLACED.fetch_add(1, Ordering::AcqRel);
    }
}

/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterHostVar(
    _handle: *mut *mut c_void,
    _name: *const c_char,
    _host: *mut c_char,
    _size: usize,
) {
}

/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterUnifiedTable(
    _handle: *mut *mut c_void,
    _table: *mut c_void,
) {
}

/// # Safety
/// As CUDA's. Modules are loaded by the first call of any kind; a program calls this before it
/// touches a managed variable, perhaps before any of those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    c_char::from(ready().is_ok())
}

#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Stack<Configuration, 4>> = const { RefCell::new(Stack::new()) };
}

/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
) -> u32 {
    CONFIGURATIONS.with_borrow_mut(|stack| {
        stack.push(Configuration {
            grid,
            block,
            shared,
            stream,
        })
    });
    0
}

pub(crate) unsafe fn pop_configuration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut Handle,
) -> CuResult {
    let top = CONFIGURATIONS
        .with_borrow_mut(|stack| stack.pop())
        .ok_or(CuError::MISSING_CONFIGURATION)?;
    // SAFETY: the pointers are those of `nvcc`'s launch code.
    unsafe {
        crate::state::put(grid, top.grid)?;
        crate::state::put(block, top.block)?;
        crate::state::put(shared, top.shared)?;
        crate::state::put(stream, top.stream)
    }
}

/// A launch of a driver's kernel, with the runtime's own number for impossible sizes.
///
/// # Safety
/// `args` must hold a pointer to each of the kernel's parameters.
pub(crate) unsafe fn launch(
    kernel: Handle,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared: usize,
    stream: Handle,
    cooperative: bool,
) -> CuResult {
    let driver = ready()?;
    let shared = u32::try_from(shared).map_err(|_| CuError::INVALID_VALUE)?;
    let (g, b) = (grid, block);
    // SAFETY: the caller's promise.
    let launched = unsafe {
        if cooperative {
            driver.cuLaunchCooperativeKernel(
                kernel, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, args,
            )
        } else {
            let extra = std::ptr::null_mut();
            driver.cuLaunchKernel(
                kernel, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, args, extra,
            )
        }
    };
    launched.map_err(|error| configuration_error(error, grid, block))
}

/// The driver's "invalid value" is the runtime's "invalid configuration" where the sizes are at
/// fault.
pub(crate) fn configuration_error(error: CuError, grid: Dim3, block: Dim3) -> CuError {
    let threads = [block.y, block.z].into_iter();
    let threads = threads.fold(u64::from(block.x), |n, m| n.saturating_mul(u64::from(m)));
    let possible = grid.x > 0
        && i32::try_from(grid.x).is_ok()
        && (1..=65_535).contains(&grid.y)
        && (1..=65_535).contains(&grid.z)
        && block.z <= 64
        && (1..=1024).contains(&threads);
    if error == CuError::INVALID_VALUE && !possible {
        CuError::INVALID_CONFIGURATION
    } else {
        error
    }
}
