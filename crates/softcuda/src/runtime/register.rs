//! What `nvcc`'s start-up code registers: fatbins, kernels and variables, by the addresses of their
//! host shadows. Nothing is loaded before the program's first CUDA call, as static constructors run
//! before `main`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::per_thread::Stack;
use crate::runtime::Dim3;
use crate::runtime::link::driver;
use crate::runtime::ready::ready;
use crate::runtime::registered::{Fatbin, Kernel, Managed, PENDING, UNPLACED, Variable, registry};

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
