//! Copies by direction, in rows and boxes, and what a pointer is.

use std::ffi::{c_int, c_void};

use crate::driver::rows::Copy2d;
use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::transfer::Copy3d;
use crate::runtime::images;
use crate::runtime::link::Driver;
use crate::runtime::registered::symbol;
use crate::runtime::rows::{
    BY_ADDRESS, DEVICE_TO_DEVICE, DEVICE_TO_HOST, Extent, HOST_TO_DEVICE, HOST_TO_HOST, Rows, types,
};
use crate::state::put;

/// A stream to copy in, or none for a copy that returns when it is done.
type InStream = Option<Handle>;

/// # Safety
/// Host ranges must be valid.
pub(crate) unsafe fn copy(
    driver: &Driver,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: u32,
    stream: InStream,
) -> CuResult {
    if bytes == 0 {
        return if kind <= BY_ADDRESS {
            Ok(())
        } else {
            Err(CuError::INVALID_COPY_DIRECTION)
        };
    }
    let (device_to, device_from) = (to as u64, from as u64);
    // SAFETY: the caller's promise.
    unsafe {
        match (kind, stream) {
            (HOST_TO_HOST | BY_ADDRESS, None) => driver.cuMemcpy(device_to, device_from, bytes),
            (HOST_TO_HOST | BY_ADDRESS, Some(stream)) => {
                driver.cuMemcpyAsync(device_to, device_from, bytes, stream)
            }
            (HOST_TO_DEVICE, None) => driver.cuMemcpyHtoD_v2(device_to, from, bytes),
            (HOST_TO_DEVICE, Some(stream)) => {
                driver.cuMemcpyHtoDAsync_v2(device_to, from, bytes, stream)
            }
            (DEVICE_TO_HOST, None) => driver.cuMemcpyDtoH_v2(to, device_from, bytes),
            (DEVICE_TO_HOST, Some(stream)) => {
                driver.cuMemcpyDtoHAsync_v2(to, device_from, bytes, stream)
            }
            (DEVICE_TO_DEVICE, None) => driver.cuMemcpyDtoD_v2(device_to, device_from, bytes),
            (DEVICE_TO_DEVICE, Some(stream)) => {
                driver.cuMemcpyDtoDAsync_v2(device_to, device_from, bytes, stream)
            }
            _ => Err(CuError::INVALID_COPY_DIRECTION),
        }
    }
}

/// # Safety
/// Host ranges must be valid.
pub(crate) unsafe fn copy_rows(
    driver: &Driver,
    rows: &Rows,
    kind: u32,
    stream: InStream,
) -> CuResult {
    let (from_type, to_type) = types(kind)?;
    if rows.width > rows.to_pitch || rows.width > rows.from_pitch {
        // `cudaErrorInvalidPitchValue`
        return Err(CuError(12));
    }
    let copy = Copy2d::between(
        (from_type, rows.from as u64, rows.from_pitch),
        (to_type, rows.to as u64, rows.to_pitch),
        rows.width,
        rows.height,
    );
    // SAFETY: the caller's promise.
    unsafe {
        match stream {
            None => driver.cuMemcpy2DUnaligned_v2(&raw const copy),
            Some(stream) => driver.cuMemcpy2DAsync_v2(&raw const copy, stream),
        }
    }
}

/// `cudaPitchedPtr`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PitchedPointer {
    /// First byte.
    pub start: *mut c_void,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Bytes used of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
}

/// `cudaPos`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Position {
    x: usize,
    y: usize,
    z: usize,
}

/// `cudaMemcpy3DParms`
#[repr(C)]
pub struct Box3d {
    from_array: Handle,
    from_at: Position,
    from: PitchedPointer,
    to_array: Handle,
    to_at: Position,
    to: PitchedPointer,
    extent: Extent,
    kind: u32,
}

/// Bytes in a row as a box of them.
pub(crate) fn box_of_bytes(to: u64, from: u64, bytes: usize, kind: u32) -> Result<Copy3d, CuError> {
    let (from_type, to_type) = types(kind)?;
    Ok(Copy3d::between(
        (from_type, from, bytes, 1, [0; 3]),
        (to_type, to, bytes, 1, [0; 3]),
        [bytes, 1, 1],
    ))
}

/// The driver's description of a copy.
///
/// # Safety
/// `copy` must be null or valid.
pub(crate) unsafe fn described(driver: &Driver, copy: *const Box3d) -> Result<Copy3d, CuError> {
    if copy.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let copy = unsafe { &*copy };
    // Where an array takes part, the extent counts its texels, and so do places in arrays.
    let texel = |array: Handle| match array {
        0 => Ok(1),
        array => images::texel_bytes(driver, array),
    };
    let (from_texel, to_texel) = (texel(copy.from_array)?, texel(copy.to_array)?);
    let texel = if copy.from_array != 0 {
        from_texel
    } else {
        to_texel
    };
    let (from_type, to_type) = types(copy.kind)?;
    let place = |kind: u32, side: &PitchedPointer, at: &Position, texel: usize| {
        (
            kind,
            side.start as u64,
            side.pitch,
            side.height,
            [at.x.saturating_mul(texel), at.y, at.z],
        )
    };
    let width = copy.extent.width.saturating_mul(texel);
    let extent = [width, copy.extent.height, copy.extent.depth];
    let (from_array, to_array) = (copy.from_array, copy.to_array);
    let mut copy = Copy3d::between(
        place(from_type, &copy.from, &copy.from_at, from_texel),
        place(to_type, &copy.to, &copy.to_at, to_texel),
        extent,
    );
    if from_array != 0 {
        copy = copy.with_source(from_array);
    }
    if to_array != 0 {
        copy = copy.with_target(to_array);
    }
    Ok(copy)
}

/// # Safety
/// `copy` must be null or valid, and describe ranges that are.
pub(crate) unsafe fn copy_box(driver: &Driver, copy: *const Box3d, stream: InStream) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = described(driver, copy)?;
        match stream {
            None => driver.cuMemcpy3D_v2(&raw const copy),
            Some(stream) => driver.cuMemcpy3DAsync_v2(&raw const copy, stream),
        }
    }
}

/// Sets a box of bytes, slice by slice.
pub(crate) fn set_box(
    driver: &Driver,
    pointer: PitchedPointer,
    value: c_int,
    extent: Extent,
    stream: InStream,
) -> CuResult {
    let slice = pointer
        .pitch
        .checked_mul(pointer.height)
        .ok_or(CuError::INVALID_VALUE)?;
    for z in 0..extent.depth {
        let start = pointer.start as u64 + (z * slice) as u64;
        // SAFETY: the driver checks device addresses.
        unsafe {
            let (pitch, width, height) = (pointer.pitch, extent.width, extent.height);
            match stream {
                None => driver.cuMemsetD2D8_v2(start, pitch, value as u8, width, height)?,
                Some(stream) => {
                    driver.cuMemsetD2D8Async(start, pitch, value as u8, width, height, stream)?
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn part_of_symbol(
    driver: &Driver,
    host: *const c_void,
    bytes: usize,
    offset: usize,
) -> Result<u64, CuError> {
    let (address, size) = symbol(driver, host)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset as u64),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// # Safety
/// The host range must be valid.
pub(crate) unsafe fn copy_to_symbol(
    driver: &Driver,
    host: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: InStream,
) -> CuResult {
    if !matches!(kind, HOST_TO_DEVICE | DEVICE_TO_DEVICE | BY_ADDRESS) {
        return Err(CuError::INVALID_COPY_DIRECTION);
    }
    let to = part_of_symbol(driver, host, bytes, offset)?;
    // SAFETY: the caller's promise.
    unsafe { copy(driver, to as *mut c_void, from, bytes, kind, stream) }
}

/// # Safety
/// The host range must be valid.
pub(crate) unsafe fn copy_from_symbol(
    driver: &Driver,
    to: *mut c_void,
    host: *const c_void,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: InStream,
) -> CuResult {
    if !matches!(kind, DEVICE_TO_HOST | DEVICE_TO_DEVICE | BY_ADDRESS) {
        return Err(CuError::INVALID_COPY_DIRECTION);
    }
    let from = part_of_symbol(driver, host, bytes, offset)?;
    // SAFETY: the caller's promise.
    unsafe { copy(driver, to, from as *const c_void, bytes, kind, stream) }
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn malloc(driver: &Driver, to: *mut *mut c_void, bytes: usize) -> CuResult {
    let mut address = 0;
    if bytes > 0 && !to.is_null() {
        // SAFETY: a valid pointer.
        unsafe { driver.cuMemAlloc_v2(&raw mut address, bytes) }?;
    }
    // SAFETY: the caller's pointer. Nothing is asked for: nothing is given, and that is no error.
    unsafe { put(to, address as *mut c_void) }
}

/// # Safety
/// The pointers must be null or valid for a write.
pub(crate) unsafe fn malloc_pitch(
    driver: &Driver,
    to: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> CuResult {
    let mut address = 0;
    let mut row = 0;
    if width > 0 && height > 0 {
        // SAFETY: valid pointers.
        unsafe { driver.cuMemAllocPitch_v2(&raw mut address, &raw mut row, width, height, 4) }?;
    }
    // SAFETY: the caller's pointers.
    unsafe {
        put(to, address as *mut c_void)?;
        put(pitch, row)
    }
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn malloc_3d(
    driver: &Driver,
    to: *mut PitchedPointer,
    extent: Extent,
) -> CuResult {
    let mut start = std::ptr::null_mut();
    let mut pitch = 0;
    let rows = extent
        .height
        .checked_mul(extent.depth)
        .ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: valid pointers; then the caller's.
    unsafe {
        malloc_pitch(driver, &raw mut start, &raw mut pitch, extent.width, rows)?;
        put(
            to,
            PitchedPointer {
                start,
                pitch,
                width: extent.width,
                height: extent.height,
            },
        )
    }
}

/// `cudaPointerAttributes`
#[repr(C)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    reserved: [i64; 8],
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn pointer_attributes(
    driver: &Driver,
    to: *mut PointerAttributes,
    pointer: *const c_void,
) -> CuResult {
    /// `CU_POINTER_ATTRIBUTE_…`: memory type, device pointer, host pointer, managed, ordinal.
    const WANTED: [c_int; 5] = [2, 3, 4, 8, 9];
    /// `cudaMemoryTypeManaged`
    const MANAGED: u32 = 3;
    let (mut kind, mut managed) = (0u32, 0u32);
    let (mut on_device, mut on_host) = (0u64, 0u64);
    let mut ordinal: c_int = -2;
    let values = [
        (&raw mut kind).cast::<c_void>(),
        (&raw mut on_device).cast(),
        (&raw mut on_host).cast(),
        (&raw mut managed).cast(),
        (&raw mut ordinal).cast(),
    ];
    // SAFETY: as many values as attributes, each of its type.
    unsafe { driver.cuPointerGetAttributes(5, WANTED.as_ptr(), values.as_ptr(), pointer as u64) }?;
    // Memory that is not CUDA's is told as type 0 with its host address.
    if kind == 0 {
        on_host = pointer as u64;
    }
    let found = PointerAttributes {
        kind: (if managed != 0 { MANAGED } else { kind }) as c_int,
        device: ordinal,
        device_pointer: on_device as *mut c_void,
        host_pointer: on_host as *mut c_void,
        reserved: [0; 8],
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, found) }
}
