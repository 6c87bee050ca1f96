//! `cuLink…`: PTX texts in, one image out. The image is the linked text itself, which every load
//! takes.
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::driver::image::from_bytes;
use crate::driver::module::text_of_file;
use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::jit_log::{JitLog, Refusal};
use crate::objects::link::Link;
use crate::state::{Soft, current, name, put, put_if, soft};

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
            texts: Mutex::default(),
            image: Mutex::default(),
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
        lock(&link.texts).push(text);
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
    let texts = lock(&link.texts);
    if texts.is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let refused = |words: String| {
        let code = CuError::INVALID_PTX;
        lock(&link.log).refused(Refusal { code, words })
    };
    let linked = warpbpf_ptx::link::link(&all).map_err(|error| refused(error.to_string()))?;
    let linked =
        CString::new(linked).map_err(|_| refused("the PTX has a NUL inside".to_owned()))?;
    let mut done = lock(&link.image);
    // Completed once more, it is the same image.
    let linked = done.get_or_insert(linked);
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(bytes, linked.as_bytes_with_nul().len());
        put(image, linked.as_ptr().cast())
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
