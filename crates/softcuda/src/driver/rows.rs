//! Copies of rectangles and boxes: rows of bytes with a pitch, slices of rows. A copy of bytes in a
//! row is the least of them.

use std::ffi::c_void;

use crate::driver::arrays;
use crate::driver::copy::{Wait, Work, wait_for};
use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::transfer::{Copy3d, Extent, Side, Transfer, UNIFIED};
use crate::objects::work::Operation;
use crate::state::{Soft, current, soft};
use crate::work::bytes::any_place;

impl Transfer {
    /// # Errors
    /// What is wrong with the description.
    pub(crate) fn of(soft: &Soft, description: &Copy3d) -> Result<Transfer, CuError> {
        let c = description;
        let extent = [c.width as u64, c.height as u64, c.depth as u64];
        let from = Described {
            kind: c.from_type,
            host: c.from_host,
            device: c.from_device,
            array: c.from_array,
            at: [c.from_x, c.from_y, c.from_z],
            pitch: c.from_pitch,
            rows: c.from_height,
        };
        let to = Described {
            kind: c.to_type,
            host: c.to_host,
            device: c.to_device,
            array: c.to_array,
            at: [c.to_x, c.to_y, c.to_z],
            pitch: c.to_pitch,
            rows: c.to_height,
        };
        Ok(Transfer {
            description: *c,
            to: to.side(soft, extent)?,
            from: from.side(soft, extent)?,
            extent,
        })
    }
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
pub struct Copy2d {
    from_x: usize,
    from_y: usize,
    from_type: u32,
    from_host: *const c_void,
    from_device: u64,
    from_array: Handle,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_type: u32,
    to_host: *mut c_void,
    to_device: u64,
    to_array: Handle,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// `CU_MEMORYTYPE_ARRAY`
const ARRAY: u32 = 3;

/// What a description says of one side.
struct Described {
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    /// In bytes, rows and slices.
    at: [usize; 3],
    pitch: usize,
    /// Per slice.
    rows: usize,
}

impl Described {
    /// By `CU_MEMORYTYPE_…`.
    fn side(&self, soft: &Soft, extent: Extent) -> Result<Side, CuError> {
        let start = match self.kind {
            1 => self.host,
            2 | UNIFIED => self.device,
            ARRAY => {
                let (start, pitch, slice) = arrays::part(soft, self.array, self.at, extent)?;
                return Ok(Side {
                    start,
                    pitch,
                    slice,
                });
            }
            _ => return Err(CuError::INVALID_VALUE),
        };
        side(soft, start, self.at, self.pitch, self.rows, extent)
    }
}

/// Checks a side and finds its first byte: `[x, y, z]` in bytes, rows and slices, `rows` per slice.
fn side(
    soft: &Soft,
    start: u64,
    at: [usize; 3],
    pitch: usize,
    rows: usize,
    extent: Extent,
) -> Result<Side, CuError> {
    let [x, y, z] = at.map(|n| n as u64);
    // A pitch of 0 means rows without gaps.
    let pitch = if pitch == 0 { extent[0] } else { pitch as u64 };
    if pitch < x.saturating_add(extent[0]) {
        return Err(CuError::INVALID_VALUE);
    }
    let slice = pitch
        .checked_mul(if rows == 0 { extent[1] } else { rows as u64 })
        .ok_or(CuError::INVALID_VALUE)?;
    let offset = || {
        slice
            .checked_mul(z)?
            .checked_add(pitch.checked_mul(y)?)?
            .checked_add(x)
    };
    let length = || {
        let slices = slice.checked_mul(extent[2].saturating_sub(1))?;
        slices
            .checked_add(pitch.checked_mul(extent[1].saturating_sub(1))?)?
            .checked_add(extent[0])
    };
    let (offset, length) = (
        offset().ok_or(CuError::INVALID_VALUE)?,
        length().ok_or(CuError::INVALID_VALUE)?,
    );
    let first = start.checked_add(offset).ok_or(CuError::INVALID_VALUE)?;
    Ok(Side {
        start: any_place(soft, first, length)?,
        pitch,
        slice,
    })
}

fn copy_box(copy: &Copy3d, work: impl FnOnce(Wait) -> Result<Work, CuError>) -> CuResult {
    let soft = soft()?;
    current()?;
    if copy.is_empty() {
        return Ok(());
    }
    let copy = Transfer::of(soft, copy)?;
    let wait = wait_for(soft, [copy.to.start, copy.from.start]);
    work(wait)?.perform(Operation::Copy(copy.into()))
}

/// # Safety
/// `copy` must be null or valid, and describe ranges that are.
unsafe fn copy_2d_by(
    copy: *const Copy2d,
    work: impl FnOnce(Wait) -> Result<Work, CuError>,
) -> CuResult {
    if copy.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let c = unsafe { &*copy };
    let one = Copy3d {
        from_host: c.from_host as u64,
        from_device: c.from_device,
        from_array: c.from_array,
        to_host: c.to_host as u64,
        to_device: c.to_device,
        to_array: c.to_array,
        ..Copy3d::between(
            (c.from_type, 0, c.from_pitch, 0, [c.from_x, c.from_y, 0]),
            (c.to_type, 0, c.to_pitch, 0, [c.to_x, c.to_y, 0]),
            [c.width, c.height, 1],
        )
    };
    copy_box(&one, work)
}

pub(crate) unsafe fn copy_2d(copy: *const Copy2d) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_2d_by(copy, |_| Work::blocking()) }
}

pub(crate) unsafe fn copy_2d_async(copy: *const Copy2d, stream: Handle) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_2d_by(copy, |wait| Work::in_stream(stream, wait)) }
}

/// # Safety
/// As for [`copy_2d_by`].
unsafe fn copy_3d_by(
    copy: *const Copy3d,
    work: impl FnOnce(Wait) -> Result<Work, CuError>,
) -> CuResult {
    // SAFETY: null, or valid by the caller's promise.
    let copy = unsafe { copy.as_ref() };
    copy_box(copy.ok_or(CuError::INVALID_VALUE)?, work)
}

pub(crate) unsafe fn copy_3d(copy: *const Copy3d) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_3d_by(copy, |_| Work::blocking()) }
}

pub(crate) unsafe fn copy_3d_async(copy: *const Copy3d, stream: Handle) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_3d_by(copy, |wait| Work::in_stream(stream, wait)) }
}

impl Copy2d {
    /// A copy between two sides `(memory type, address, pitch)`; the type says which of the address
    /// fields counts.
    pub(crate) fn between(
        (from_type, from, from_pitch): (u32, u64, usize),
        (to_type, to, to_pitch): (u32, u64, usize),
        width: usize,
        height: usize,
    ) -> Copy2d {
        Copy2d {
            from_x: 0,
            from_y: 0,
            from_type,
            from_host: from as *const c_void,
            from_device: from,
            from_array: 0,
            from_pitch,
            to_x: 0,
            to_y: 0,
            to_type,
            to_host: to as *mut c_void,
            to_device: to,
            to_array: 0,
            to_pitch,
            width,
            height,
        }
    }

    /// The same from an array, from this place on: bytes, rows.
    pub(crate) fn with_source(self, from_array: Handle, [from_x, from_y]: [usize; 2]) -> Copy2d {
        Copy2d {
            from_type: ARRAY,
            from_array,
            from_x,
            from_y,
            ..self
        }
    }

    /// The same to an array, from this place on: bytes, rows.
    pub(crate) fn with_target(self, to_array: Handle, [to_x, to_y]: [usize; 2]) -> Copy2d {
        Copy2d {
            to_type: ARRAY,
            to_array,
            to_x,
            to_y,
            ..self
        }
    }
}
