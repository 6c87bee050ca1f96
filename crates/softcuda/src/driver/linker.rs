//! `cuLink…` for its common use without a linker's work: one PTX text in, one image out. The image is the checked text
//! itself, which every load takes. Joining several texts is not offered.
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::driver::image::{JitLog, Refusal, from_bytes};
use crate::driver::module::text_of_file;
use crate::error::{CuError, CuResult};
use crate::state::{Handle, Soft, current, lock, name, new_handle, put, put_if, soft};

/// A link under way.
pub(crate) struct Link {
    log: Mutex<JitLog>,
    text: Mutex<Option<CString>>,
}

fn link(soft: &Soft, handle: Handle) -> Result<Arc<Link>, CuError> {
    soft.links.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn create(
    count: u32,
    options: *const c_int,
    values: *mut *mut c_void,
    to: *mut Handle,
) -> CuResult {
    let soft = soft()?;
    current()?;
    // SAFETY: the caller's arrays, which CUDA asks to stay until the link is destroyed.
    let log = unsafe { JitLog::new(count, options, values)? };
    let handle = new_handle();
    // SAFETY: the caller's pointer.
    unsafe { put(to, handle) }?;
    soft.links.add(
        handle,
        Arc::new(Link {
            log: Mutex::new(log),
            text: Mutex::new(None),
        }),
    );
    Ok(())
}

fn add(link: &Link, text: Result<String, Refusal>) -> CuResult {
    let checked = text.and_then(|text| {
        warpbpf_ptx::index(&text).map_err(|error| Refusal {
            code: CuError::INVALID_PTX,
            words: error.to_string(),
        })?;
        let refusal = |words: &str| Refusal {
            code: CuError::NOT_SUPPORTED,
            words: words.to_owned(),
        };
        let text = CString::new(text).map_err(|_| refusal("the PTX has a NUL inside"))?;
        let mut only = lock(&link.text);
        if only.is_some() {
            return Err(refusal("the soft GPU links one PTX text only"));
        }
        *only = Some(text);
        Ok(())
    });
    checked.map_err(|refusal| lock(&link.log).refused(refusal))
}

pub(crate) unsafe fn add_data(
    handle: Handle,
    _kind: c_int,
    data: *const c_void,
    bytes: usize,
    _name: *const c_char,
    _count: u32,
    _options: *const c_int,
    _values: *mut *mut c_void,
) -> CuResult {
    let link = link(soft()?, handle)?;
    if data.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's buffer of that length.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
    add(&link, from_bytes(bytes))
}

pub(crate) unsafe fn add_file(
    handle: Handle,
    _kind: c_int,
    path: *const c_char,
    _count: u32,
    _options: *const c_int,
    _values: *mut *mut c_void,
) -> CuResult {
    let link = link(soft()?, handle)?;
    // SAFETY: the caller's C string.
    add(&link, text_of_file(unsafe { name(path)? }))
}

/// The image lives until the link is destroyed.
pub(crate) unsafe fn complete(
    handle: Handle,
    image: *mut *const c_void,
    bytes: *mut usize,
) -> CuResult {
    let link = link(soft()?, handle)?;
    let text = lock(&link.text);
    let text = text.as_ref().ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(bytes, text.as_bytes_with_nul().len());
        put(image, text.as_ptr().cast())
    }?;
    lock(&link.log).succeeded()
}

pub(crate) unsafe fn destroy(handle: Handle) -> CuResult {
    soft()?
        .links
        .remove(handle)
        .map(|_| ())
        .ok_or(CuError::INVALID_HANDLE)
}
