//! Rectangles, boxes and directions of copies, as the runtime describes them.

use std::ffi::c_void;

use crate::error::CuError;

/// `cudaMemcpyKind`
pub(super) const HOST_TO_HOST: u32 = 0;
pub(super) const HOST_TO_DEVICE: u32 = 1;
pub(super) const DEVICE_TO_HOST: u32 = 2;
pub(super) const DEVICE_TO_DEVICE: u32 = 3;
pub(super) const BY_ADDRESS: u32 = 4;

/// `CU_MEMORYTYPE_…` of source and destination for a direction.
pub(crate) fn types(kind: u32) -> Result<(u32, u32), CuError> {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    const UNIFIED: u32 = 4;
    Ok(match kind {
        HOST_TO_HOST => (HOST, HOST),
        HOST_TO_DEVICE => (HOST, DEVICE),
        DEVICE_TO_HOST => (DEVICE, HOST),
        DEVICE_TO_DEVICE => (DEVICE, DEVICE),
        BY_ADDRESS => (UNIFIED, UNIFIED),
        _ => return Err(CuError::INVALID_COPY_DIRECTION),
    })
}

/// A rectangle as the runtime describes it.
pub(crate) struct Rows {
    pub to: *mut c_void,
    pub to_pitch: usize,
    pub from: *const c_void,
    pub from_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `cudaExtent`: bytes, rows, slices.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}
