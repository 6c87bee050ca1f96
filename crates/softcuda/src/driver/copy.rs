//! Copies and fills, in all the shapes that the API has: by direction, by unified address, in rows, in boxes.

use std::ffi::c_void;
use std::sync::Arc;

use warpbpf_softgpu::ARENA_BASE;

use crate::driver::streams;
use crate::error::{CuError, CuResult};
use crate::state::{Context, Handle, Soft, current, soft};
use crate::stream::{Run, Stream};

/// Where bytes are. Mapped host memory is the host's: it has one address for both sides.
#[derive(Debug, Clone, Copy)]
enum Place {
    Arena(u64),
    Host(u64),
}

impl Place {
    fn add(self, offset: u64) -> Place {
        match self {
            Place::Arena(address) => Place::Arena(address.wrapping_add(offset)),
            Place::Host(address) => Place::Host(address.wrapping_add(offset)),
        }
    }
}

fn in_arena(soft: &Soft, address: u64) -> bool {
    (ARENA_BASE..ARENA_BASE + soft.gpu.memory_info().0).contains(&address)
}

/// A device address: the whole range must be in one allocation.
fn device_place(soft: &Soft, address: u64, bytes: u64) -> Result<Place, CuError> {
    let (base, size) = soft.gpu.range_of(address).ok_or(CuError::INVALID_VALUE)?;
    if bytes > size - (address - base) {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(if in_arena(soft, address) { Place::Arena(address) } else { Place::Host(address) })
}

/// An address of either side, as unified addressing lets a program give everywhere.
fn any_place(soft: &Soft, address: u64, bytes: u64) -> Result<Place, CuError> {
    if in_arena(soft, address) {
        device_place(soft, address, bytes)
    } else if address == 0 {
        Err(CuError::INVALID_VALUE)
    } else {
        Ok(Place::Host(address))
    }
}

/// Moves bytes. Device memory that was freed since the call is left alone: the program's mistake, seen by its sticky
/// neighbours on a real device too.
fn transfer(soft: &Soft, to: Place, from: Place, bytes: u64) {
    let length = bytes as usize;
    match (to, from) {
        // SAFETY: host ranges are valid by the caller's promise.
        (Place::Host(to), Place::Host(from)) => unsafe {
            std::ptr::copy(from as *const u8, to as *mut u8, length);
        },
        (Place::Arena(to), Place::Host(from)) => {
            // SAFETY: as above.
            let data = unsafe { std::slice::from_raw_parts(from as *const u8, length) };
            let _ = soft.gpu.write(to, data);
        }
        (Place::Host(to), Place::Arena(from)) => {
            // SAFETY: as above.
            let out = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, length) };
            let _ = soft.gpu.read(from, out);
        }
        (Place::Arena(to), Place::Arena(from)) => {
            const CHUNK: u64 = 64 << 10;
            let mut buffer = vec![0u8; bytes.min(CHUNK) as usize];
            let mut done = 0;
            while done < bytes {
                let part = &mut buffer[..(bytes - done).min(CHUNK) as usize];
                if soft.gpu.read(from + done, part).is_err() || soft.gpu.write(to + done, part).is_err() {
                    return;
                }
                done += part.len() as u64;
            }
        }
    }
}

/// When the call returns.
#[derive(Clone, Copy)]
enum Wait {
    /// When the bytes have arrived.
    Yes,
    /// When the work is in the stream.
    No,
}

struct Work {
    soft: &'static Soft,
    context: Arc<Context>,
    stream: Arc<Stream>,
    wait: Wait,
}

impl Work {
    fn blocking() -> Result<Work, CuError> {
        let soft = soft()?;
        let context = current()?;
        let stream = Arc::clone(&context.null_stream);
        Ok(Work { soft, context, stream, wait: Wait::Yes })
    }

    /// In a stream. Copies that touch the program's pageable memory are done when the call returns: it may reuse it.
    fn in_stream(handle: Handle, wait: Wait) -> Result<Work, CuError> {
        let soft = soft()?;
        let context = current()?;
        let stream = streams::find(soft, &context, handle)?;
        Ok(Work { soft, context, stream, wait })
    }

    fn run(self, job: impl FnOnce(&Soft) + Send + 'static) -> CuResult {
        let (soft, context) = (self.soft, Arc::clone(&self.context));
        streams::submit(soft, &self.context, &self.stream, Run::Here, move || {
            if context.check().is_ok() {
                job(soft);
            }
        });
        match self.wait {
            Wait::No => Ok(()),
            Wait::Yes => {
                self.stream.synchronize();
                self.context.flush_printed();
                self.context.check()
            }
        }
    }

    fn copy(self, to: Place, from: Place, bytes: usize) -> CuResult {
        if bytes == 0 {
            return Ok(());
        }
        self.run(move |soft| transfer(soft, to, from, bytes as u64))
    }
}

/// Whether a copy between these may still be under way when the call returns.
fn wait_for(soft: &Soft, places: [Place; 2]) -> Wait {
    let pageable = |place: Place| match place {
        Place::Arena(_) => false,
        Place::Host(address) => soft.gpu.range_of(address).is_none(),
    };
    if places.into_iter().any(pageable) { Wait::Yes } else { Wait::No }
}

pub(crate) unsafe fn host_to_device(to: u64, from: *const c_void, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let to = device_place(work.soft, to, bytes as u64)?;
    let from = any_place(work.soft, from as u64, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn device_to_host(to: *mut c_void, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = device_place(work.soft, from, bytes as u64)?;
    let to = any_place(work.soft, to as u64, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn device_to_device(to: u64, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = device_place(work.soft, from, bytes as u64)?;
    let to = device_place(work.soft, to, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn unified(to: u64, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = any_place(work.soft, from, bytes as u64)?;
    let to = any_place(work.soft, to, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn unified_async(to: u64, from: u64, bytes: usize, stream: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    let from = any_place(soft, from, bytes as u64)?;
    let to = any_place(soft, to, bytes as u64)?;
    Work::in_stream(stream, wait_for(soft, [to, from]))?.copy(to, from, bytes)
}

pub(crate) unsafe fn host_to_device_async(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, to, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to, from as u64, bytes, stream) }
}

pub(crate) unsafe fn device_to_host_async(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, from, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to as u64, from, bytes, stream) }
}

pub(crate) unsafe fn device_to_device_async(to: u64, from: u64, bytes: usize, stream: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, from, bytes as u64)?;
    device_place(soft, to, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to, from, bytes, stream) }
}

pub(crate) unsafe fn peer(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize) -> CuResult {
    // SAFETY: one device: a copy like any other.
    unsafe { device_to_device(to, from, bytes) }
}

pub(crate) unsafe fn peer_async(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    // SAFETY: as above.
    unsafe { device_to_device_async(to, from, bytes, stream) }
}

/// One side of a copy in rows and slices.
#[derive(Clone, Copy)]
struct Side {
    start: Place,
    pitch: u64,
    slice: u64,
}

/// Width in bytes, rows, slices.
type Extent = [u64; 3];

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

/// `CUDA_MEMCPY3D`
#[repr(C)]
pub struct Copy3d {
    from_x: usize,
    from_y: usize,
    from_z: usize,
    from_lod: usize,
    from_type: u32,
    from_host: *const c_void,
    from_device: u64,
    from_array: Handle,
    from_reserved: usize,
    from_pitch: usize,
    from_height: usize,
    to_x: usize,
    to_y: usize,
    to_z: usize,
    to_lod: usize,
    to_type: u32,
    to_host: *mut c_void,
    to_device: u64,
    to_array: Handle,
    to_reserved: usize,
    to_pitch: usize,
    to_height: usize,
    width: usize,
    height: usize,
    depth: usize,
}

/// `CU_MEMORYTYPE_…`; arrays are not there.
fn start_of(kind: u32, host: u64, device: u64) -> Result<u64, CuError> {
    match kind {
        1 => Ok(host),
        2 | 4 => Ok(device),
        3 => Err(CuError::NOT_SUPPORTED),
        _ => Err(CuError::INVALID_VALUE),
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
    let slice = pitch.checked_mul(if rows == 0 { extent[1] } else { rows as u64 }).ok_or(CuError::INVALID_VALUE)?;
    let offset = || slice.checked_mul(z)?.checked_add(pitch.checked_mul(y)?)?.checked_add(x);
    let length = || {
        let slices = slice.checked_mul(extent[2].saturating_sub(1))?;
        slices.checked_add(pitch.checked_mul(extent[1].saturating_sub(1))?)?.checked_add(extent[0])
    };
    let (offset, length) = (offset().ok_or(CuError::INVALID_VALUE)?, length().ok_or(CuError::INVALID_VALUE)?);
    let first = start.checked_add(offset).ok_or(CuError::INVALID_VALUE)?;
    Ok(Side { start: any_place(soft, first, length)?, pitch, slice })
}

fn copy_box(work: impl FnOnce(Wait) -> Result<Work, CuError>, to: Side, from: Side, extent: Extent) -> CuResult {
    if extent.contains(&0) {
        return Ok(());
    }
    let wait = wait_for(soft()?, [to.start, from.start]);
    work(wait)?.run(move |soft| {
        for z in 0..extent[2] {
            for y in 0..extent[1] {
                let at = |side: Side| side.start.add(z * side.slice + y * side.pitch);
                transfer(soft, at(to), at(from), extent[0]);
            }
        }
    })
}

/// # Safety
/// `copy` must be null or valid, and describe ranges that are.
unsafe fn copy_2d_by(copy: *const Copy2d, work: impl FnOnce(Wait) -> Result<Work, CuError>) -> CuResult {
    if copy.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let soft = soft()?;
    current()?;
    // SAFETY: not null; valid by the caller's promise.
    let c = unsafe { &*copy };
    let extent = [c.width as u64, c.height as u64, 1];
    if extent.contains(&0) {
        return Ok(());
    }
    let from = start_of(c.from_type, c.from_host as u64, c.from_device)?;
    let to = start_of(c.to_type, c.to_host as u64, c.to_device)?;
    let from = side(soft, from, [c.from_x, c.from_y, 0], c.from_pitch, 0, extent)?;
    let to = side(soft, to, [c.to_x, c.to_y, 0], c.to_pitch, 0, extent)?;
    copy_box(work, to, from, extent)
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
unsafe fn copy_3d_by(copy: *const Copy3d, work: impl FnOnce(Wait) -> Result<Work, CuError>) -> CuResult {
    if copy.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let soft = soft()?;
    current()?;
    // SAFETY: not null; valid by the caller's promise.
    let c = unsafe { &*copy };
    let extent = [c.width as u64, c.height as u64, c.depth as u64];
    if extent.contains(&0) {
        return Ok(());
    }
    let from = start_of(c.from_type, c.from_host as u64, c.from_device)?;
    let to = start_of(c.to_type, c.to_host as u64, c.to_device)?;
    let from = side(soft, from, [c.from_x, c.from_y, c.from_z], c.from_pitch, c.from_height, extent)?;
    let to = side(soft, to, [c.to_x, c.to_y, c.to_z], c.to_pitch, c.to_height, extent)?;
    copy_box(work, to, from, extent)
}

pub(crate) unsafe fn copy_3d(copy: *const Copy3d) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_3d_by(copy, |_| Work::blocking()) }
}

pub(crate) unsafe fn copy_3d_async(copy: *const Copy3d, stream: Handle) -> CuResult {
    // SAFETY: the caller's description.
    unsafe { copy_3d_by(copy, |wait| Work::in_stream(stream, wait)) }
}

/// Fills `rows` rows of `count` elements of `N` bytes.
fn set<const N: usize>(
    work: Work,
    address: u64,
    pitch: usize,
    element: [u8; N],
    count: usize,
    rows: usize,
) -> CuResult {
    if !address.is_multiple_of(N as u64) || !pitch.is_multiple_of(N) {
        return Err(CuError::INVALID_VALUE);
    }
    let width = (count as u64).checked_mul(N as u64).ok_or(CuError::INVALID_VALUE)?;
    if width == 0 || rows == 0 {
        return Ok(());
    }
    let length = (pitch as u64).checked_mul(rows as u64 - 1).and_then(|n| n.checked_add(width));
    device_place(work.soft, address, length.ok_or(CuError::INVALID_VALUE)?)?;
    if rows > 1 && (pitch as u64) < width {
        return Err(CuError::INVALID_VALUE);
    }
    work.run(move |soft| {
        let same = element.iter().all(|&byte| byte == element[0]);
        let pattern = element.repeat(if same { 1 } else { 4096 / N });
        for row in 0..rows as u64 {
            let start = address + row * pitch as u64;
            // Checked above; freed since then is the program's mistake, as in `transfer`.
            if same {
                let _ = soft.gpu.fill(start, element[0], width);
                continue;
            }
            let mut done = 0;
            while done < width {
                let part = &pattern[..(width - done).min(pattern.len() as u64) as usize];
                let _ = soft.gpu.write(start + done, part);
                done += part.len() as u64;
            }
        }
    })
}

macro_rules! fills {
    ($($row:ident, $row_async:ident, $rows:ident, $rows_async:ident: $ty:ty;)*) => {
        $(
            pub(crate) unsafe fn $row(address: u64, value: $ty, count: usize) -> CuResult {
                set(Work::blocking()?, address, 0, value.to_ne_bytes(), count, 1)
            }

            pub(crate) unsafe fn $row_async(address: u64, value: $ty, count: usize, stream: Handle) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, address, 0, value.to_ne_bytes(), count, 1)
            }

            pub(crate) unsafe fn $rows(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize,
            ) -> CuResult {
                set(Work::blocking()?, address, pitch, value.to_ne_bytes(), width, height)
            }

            pub(crate) unsafe fn $rows_async(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize, stream: Handle,
            ) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, address, pitch, value.to_ne_bytes(), width, height)
            }
        )*
    };
}

fills! {
    set_8, set_8_async, set_2d_8, set_2d_8_async: u8;
    set_16, set_16_async, set_2d_16, set_2d_16_async: u16;
    set_32, set_32_async, set_2d_32, set_2d_32_async: u32;
}

/// Writes a word in stream order.
fn write_value<const N: usize>(stream: Handle, address: u64, value: [u8; N]) -> CuResult {
    let work = Work::in_stream(stream, Wait::No)?;
    device_place(work.soft, address, N as u64)?;
    work.run(move |soft| {
        let _ = soft.gpu.write(address, &value);
    })
}

pub(crate) unsafe fn write_value_32(stream: Handle, address: u64, value: u32, _flags: u32) -> CuResult {
    write_value(stream, address, value.to_ne_bytes())
}

pub(crate) unsafe fn write_value_64(stream: Handle, address: u64, value: u64, _flags: u32) -> CuResult {
    write_value(stream, address, value.to_ne_bytes())
}

/// Holds a stream until a word compares as asked: `>=` (cyclic), `==`, `&`, `nor`.
fn wait_value(stream: Handle, address: u64, bytes: usize, flags: u32, fits: fn(u64, u64, u32) -> bool, value: u64) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    let stream = streams::find(soft, &context, stream)?;
    device_place(soft, address, bytes as u64)?;
    streams::submit(soft, &context, &stream, Run::Elsewhere, move || {
        let mut word = [0u8; 8];
        loop {
            let read = soft.gpu.read(address, &mut word[..bytes]);
            if read.is_err() || fits(u64::from_ne_bytes(word), value, flags & 3) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    });
    Ok(())
}

pub(crate) unsafe fn wait_value_32(stream: Handle, address: u64, value: u32, flags: u32) -> CuResult {
    let fits = |found: u64, value: u64, how: u32| {
        let (found, value) = (found as u32, value as u32);
        match how {
            0 => found.wrapping_sub(value) as i32 >= 0,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) != 0,
        }
    };
    wait_value(stream, address, 4, flags, fits, u64::from(value))
}

pub(crate) unsafe fn wait_value_64(stream: Handle, address: u64, value: u64, flags: u32) -> CuResult {
    let fits = |found: u64, value: u64, how: u32| match how {
        0 => found.wrapping_sub(value) as i64 >= 0,
        1 => found == value,
        2 => found & value != 0,
        _ => !(found | value) != 0,
    };
    wait_value(stream, address, 8, flags, fits, value)
}

impl Copy2d {
    /// A copy between two sides `(memory type, address, pitch)`; the type says which of the address fields counts.
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
}

/// One side of a copy of boxes: memory type, address, pitch, rows per slice, position.
pub(crate) type BoxSide = (u32, u64, usize, usize, [usize; 3]);

impl Copy3d {
    /// A copy of a box of `[width in bytes, height, depth]`.
    pub(crate) fn between(
        (from_type, from, from_pitch, from_height, [from_x, from_y, from_z]): BoxSide,
        (to_type, to, to_pitch, to_height, [to_x, to_y, to_z]): BoxSide,
        [width, height, depth]: [usize; 3],
    ) -> Copy3d {
        Copy3d {
            from_x,
            from_y,
            from_z,
            from_lod: 0,
            from_type,
            from_host: from as *const c_void,
            from_device: from,
            from_array: 0,
            from_reserved: 0,
            from_pitch,
            from_height,
            to_x,
            to_y,
            to_z,
            to_lod: 0,
            to_type,
            to_host: to as *mut c_void,
            to_device: to,
            to_array: 0,
            to_reserved: 0,
            to_pitch,
            to_height,
            width,
            height,
            depth,
        }
    }
}
