//! What was registered by `nvcc`'s start-up code ([`super::register`]), and the driver's objects of
//! that, which are made when they are first needed.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::runtime::link::Driver;

pub(super) struct Fatbin {
    pub(super) wrapper: usize,
    /// Loaded, or why not.
    pub(super) library: Option<Result<Handle, CuError>>,
    pub(super) live: bool,
}

pub(super) struct Kernel {
    pub(super) fatbin: usize,
    pub(super) name: CString,
    pub(super) handle: Option<Handle>,
}

pub(super) struct Variable {
    pub(super) fatbin: usize,
    pub(super) name: CString,
    pub(super) size: usize,
}

/// A variable that the program reads through a pointer of its own, which does not say yet where it
/// is.
pub(super) struct Managed {
    pub(super) fatbin: usize,
    pub(super) name: CString,
    pub(super) host: usize,
}

#[derive(Default)]
pub(super) struct Registry {
    pub(super) fatbins: Vec<Fatbin>,
    pub(super) kernels: HashMap<usize, Kernel>,
    pub(super) variables: HashMap<usize, Variable>,
    pub(super) managed: Vec<Managed>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
/// Fatbins registered and not yet loaded: looked at by every call, so without a lock.
pub(super) static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Managed variables registered since the program's pointers were last filled, looked at likewise.
pub(super) static UNPLACED: AtomicUsize = AtomicUsize::new(0);

pub(super) fn registry<T>(use_it: impl FnOnce(&mut Registry) -> T) -> T {
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
                Err(error) => crate::say::say(&format!(
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
