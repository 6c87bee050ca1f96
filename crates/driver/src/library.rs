//! Libraries: images that belong to no context.

use std::ffi::CString;
use std::ptr;

use crate::sys::CUkernel;
use crate::{Driver, DriverError, Function, Library, Module};

impl Driver {
    /// The kernel `name` of a library, which needs no context.
    pub fn library_kernel(&self, library: Library, name: &str) -> Result<CUkernel, DriverError> {
        let symbol = CString::new(name).unwrap_or_default();
        let mut kernel = ptr::null_mut();
        // SAFETY: a live library, a NUL-terminated name, a writable local.
        let code = unsafe { (self.api.library_kernel)(&mut kernel, library.0, symbol.as_ptr()) };
        self.check("cuLibraryGetKernel", code, || format!("`{name}`"))?;
        Ok(kernel)
    }

    /// The kernel `name` of a library in the current context.
    pub fn library_function(&self, library: Library, name: &str) -> Result<Function, DriverError> {
        let kernel = self.library_kernel(library, name)?;
        let mut function = ptr::null_mut();
        // SAFETY: a live kernel, a writable local.
        unsafe {
            self.check(
                "cuKernelGetFunction",
                (self.api.kernel_function)(&mut function, kernel),
                || format!("`{name}`"),
            )?;
        }
        Ok(Function(function))
    }

    /// The module that a library is in the current context.
    pub fn library_module(&self, library: Library) -> Result<Module, DriverError> {
        let mut module = ptr::null_mut();
        // SAFETY: a live library, a writable local.
        let code = unsafe { (self.api.library_module)(&mut module, library.0) };
        self.check("cuLibraryGetModule", code, String::new)?;
        Ok(Module(module))
    }
}
