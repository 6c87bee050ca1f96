//! Machine code as bytes: the driver's linker gives it, and a later process can load it without
//! compiling.
//!
//! While a text is linked kernels run and start as ever; a load of a text holds all of them up for
//! as long as the compilation takes (docs/measurements.md).

use std::ffi::{c_uint, c_void};
use std::ptr;

use crate::handles::Module;
use crate::jit::JitOptions;
use crate::result::DriverError;
use crate::safe::{Driver, LOG_BYTES, log_text, logged, text_image};
use crate::sys::{self, CUlinkState};

/// More is no image of a kernel of ours.
const MOST_BYTES: usize = 1 << 30;

impl Driver {
    /// Compiles a text for the current context's device: what [`Driver::load_image`] takes, and
    /// what the compiler said.
    ///
    /// # Errors
    /// [`DriverError`], with the compiler's log.
    pub fn link_ptx(&self, ptx: &str, jit: &JitOptions) -> Result<(Vec<u8>, String), DriverError> {
        let text = text_image("cuLinkAddData", ptx)?;
        let (mut log, mut info) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
        let (mut options, mut values) = logged(jit, &mut log, &mut info);
        let mut link: CUlinkState = ptr::null_mut();
        // SAFETY: both arrays have the length given; they and the logs live until the link is
        // destroyed below.
        let code = unsafe {
            (self.api.link_create)(
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
                &mut link,
            )
        };
        self.check("cuLinkCreate", code, String::new)?;
        let image = self.linked(link, &text, &log);
        // SAFETY: a link of ours; the image has been copied out of it. One that stays only costs
        // memory.
        unsafe { (self.api.link_destroy)(link) };
        Ok((image?, log_text(&info)))
    }

    fn linked(
        &self,
        link: CUlinkState,
        text: &std::ffi::CStr,
        log: &[u8],
    ) -> Result<Vec<u8>, DriverError> {
        let bytes = text.to_bytes_with_nul();
        // SAFETY: the text has that length with its NUL, which is to be counted; no further
        // options. The driver only reads it.
        let code = unsafe {
            (self.api.link_add)(
                link,
                sys::INPUT_PTX,
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                c"wbpf".as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check("cuLinkAddData", code, || log_text(log))?;
        let (mut image, mut length): (*mut c_void, usize) = (ptr::null_mut(), 0);
        // SAFETY: writable locals.
        let code = unsafe { (self.api.link_complete)(link, &mut image, &mut length) };
        self.check("cuLinkComplete", code, || log_text(log))?;
        if image.is_null() || length == 0 || length > MOST_BYTES {
            let nothing = || format!("an image of {length} bytes");
            self.check("cuLinkComplete", sys::INVALID_VALUE, nothing)?;
        }
        // SAFETY: the driver says that so many bytes are there, until the link is destroyed.
        Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), length) }.to_vec())
    }

    /// Loads a cubin, such as [`Driver::link_ptx`] gave in this process or another one, into the
    /// current context.
    ///
    /// # Errors
    /// [`DriverError`]: this driver does not take it.
    pub fn load_image(&self, image: &[u8]) -> Result<Module, DriverError> {
        // A driver learns an image's end from the image. Where that is a text, a NUL is its end.
        let mut whole = Vec::with_capacity(image.len() + 1);
        whole.extend_from_slice(image);
        whole.push(0);
        let mut module = ptr::null_mut();
        // SAFETY: the image is as a driver made it, and no options are given.
        let code = self.while_nothing_runs("cuModuleLoadDataEx", || unsafe {
            (self.api.module_load)(
                &mut module,
                whole.as_ptr().cast(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        })?;
        self.check("cuModuleLoadDataEx", code, || {
            format!("an image of {} bytes", image.len())
        })?;
        Ok(Module(module))
    }
}
