//! CUDA arrays: texels in the emulator's memory, in plain rows, since nothing says how a device
//! lays them out.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use warpbpf_softgpu::{Channels, Image, ImageSource};

use crate::driver::copy::{Wait, Work, wait_for};
use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, new_handle};
use crate::objects::image::{Array, Descriptor3d};
use crate::objects::transfer::{Place, Transfer};
use crate::objects::work::Operation;
use crate::state::{Soft, current, put, soft};
use crate::work::bytes::{any_place, device_place};

/// Rows begin at multiples of this: no texel is larger.
const ROW_ALIGNMENT: u64 = 16;

/// `CUDA_ARRAY3D_…`
const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const GATHER: u32 = 8;

/// `CUDA_ARRAY_DESCRIPTOR`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUarray_format`: kind and bits of a channel.
pub(crate) fn format(number: u32) -> Result<(Channels, u32), CuError> {
    Ok(match number {
        0x01 => (Channels::Unsigned, 8),
        0x02 => (Channels::Unsigned, 16),
        0x03 => (Channels::Unsigned, 32),
        0x08 => (Channels::Signed, 8),
        0x09 => (Channels::Signed, 16),
        0x0a => (Channels::Signed, 32),
        0x10 => (Channels::Float, 16),
        0x20 => (Channels::Float, 32),
        other => {
            crate::say::say(&format!(
                "array format `{other:#x}` is not there: only integers and floats are"
            ));
            return Err(CuError::NOT_SUPPORTED);
        }
    })
}

/// An image whose rows lie without gaps of its own choice.
pub(crate) fn image(
    (kind, bits): (Channels, u32),
    channels: u32,
    size: [usize; 3],
    layers: usize,
) -> Result<Image, CuError> {
    if !matches!(channels, 1 | 2 | 4) {
        return Err(CuError::INVALID_VALUE);
    }
    let [width, height, depth] = size.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    // The largest textures of the device.
    let most = match (height, depth, layers) {
        (_, 0, 0) if height == 0 => [131_072, 0, 0],
        (_, 0, 0) => [131_072, 65_536, 0],
        (_, 0, _) => [32_768, 32_768, 0],
        _ => [16_384; 3],
    };
    let fits = [width, height, depth]
        .iter()
        .zip(most)
        .all(|(&n, most)| n <= most);
    if width == 0 || !fits || layers > 2_048 || (depth > 0 && height == 0) {
        return Err(CuError::INVALID_VALUE);
    }
    let pitch = (u64::from(width) * u64::from(bits / 8 * channels)).next_multiple_of(ROW_ALIGNMENT);
    Ok(Image {
        address: 0,
        source: ImageSource::Array,
        kind,
        bits,
        channels,
        size: [width, height, depth],
        layers: layers as u32,
        pitch,
        slice: pitch * u64::from(height.max(1)),
    })
}

pub(crate) unsafe fn create_3d(to: *mut Handle, descriptor: *const Descriptor3d) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if to.is_null() || descriptor.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let d = unsafe { *descriptor };
    if d.flags & !(LAYERED | SURFACE | GATHER) != 0 {
        crate::say::say(&format!(
            "array flags `{:#x}` are not there: cubemaps, depth textures, colour attachments and sparse or deferred \
             mapping",
            d.flags & !(LAYERED | SURFACE | GATHER)
        ));
        return Err(CuError::NOT_SUPPORTED);
    }
    let layered = d.flags & LAYERED != 0;
    let (depth, layers) = if layered { (0, d.depth) } else { (d.depth, 0) };
    if layered && layers == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let size = [d.width, d.height, depth];
    let mut image = image(format(d.format)?, d.channels, size, layers)?;
    let slices = u64::from(image.size[2].max(image.layers).max(1));
    let bytes = image
        .slice
        .checked_mul(slices)
        .ok_or(CuError::OUT_OF_MEMORY)?;
    image.address = soft
        .gpu(&context)
        .alloc(bytes)
        .ok_or(CuError::OUT_OF_MEMORY)?;
    let array = Array {
        context: context.handle,
        image,
        descriptor: d,
    };
    let handle = new_handle();
    soft.arrays.add(handle, Arc::new(array));
    // SAFETY: checked above.
    unsafe { put(to, handle) }
}

pub(crate) unsafe fn create(to: *mut Handle, descriptor: *const Descriptor) -> CuResult {
    if descriptor.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let d = unsafe { *descriptor };
    let same = Descriptor3d {
        width: d.width,
        height: d.height,
        depth: 0,
        format: d.format,
        channels: d.channels,
        flags: 0,
    };
    // SAFETY: the caller's pointer.
    unsafe { create_3d(to, &raw const same) }
}

pub(crate) fn find(soft: &Soft, handle: Handle) -> Result<Arc<Array>, CuError> {
    soft.arrays.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn destroy(array: Handle) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    // Work on it that is under way comes first.
    context.synchronize()?;
    let array = soft.arrays.remove(array).ok_or(CuError::INVALID_HANDLE)?;
    // The table said that it is live.
    let _ = soft.free(array.image.address);
    Ok(())
}

/// Frees what a context leaves.
pub(crate) fn forget_context(soft: &Soft, own: Handle) {
    for array in soft
        .arrays
        .all()
        .iter()
        .filter(|array| array.context == own)
    {
        let _ = soft.free(array.image.address);
    }
    soft.arrays.retain(|array| array.context != own);
}

pub(crate) unsafe fn get_descriptor_3d(to: *mut Descriptor3d, array: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, find(soft, array)?.descriptor) }
}

pub(crate) unsafe fn get_descriptor(to: *mut Descriptor, array: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    let d = find(soft, array)?.descriptor;
    let two = Descriptor {
        width: d.width,
        height: d.height,
        format: d.format,
        channels: d.channels,
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, two) }
}

/// The texels of an array from `[x in bytes, y, z]` on, of which a copy takes an extent: start,
/// pitch, slice.
pub(crate) fn part(
    soft: &Soft,
    array: Handle,
    at: [usize; 3],
    extent: [u64; 3],
) -> Result<(Place, u64, u64), CuError> {
    let array = find(soft, array)?;
    let image = &array.image;
    let row = u64::from(image.size[0]) * u64::from(image.texel_bytes());
    let ends = [
        row,
        u64::from(image.size[1].max(1)),
        u64::from(image.size[2].max(image.layers).max(1)),
    ];
    for d in 0..3 {
        let end = (at[d] as u64).checked_add(extent[d]);
        if end.is_none_or(|end| end > ends[d]) {
            return Err(CuError::INVALID_VALUE);
        }
    }
    let [x, y, z] = at.map(|n| n as u64);
    let start = image.address + z * image.slice + y * image.pitch + x;
    Ok((Place::Arena(start), image.pitch, image.slice))
}

/// One end of a copy to or from an array of one dimension.
enum End {
    Array(Handle, usize),
    Device(u64),
    Host(u64),
}

fn row(
    to: End,
    from: End,
    bytes: usize,
    work: impl FnOnce(Wait) -> Result<Work, CuError>,
) -> CuResult {
    let soft = soft()?;
    current()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    let place = |end| match end {
        End::Array(array, offset) => {
            if find(soft, array)?.image.size[1] != 0 {
                return Err(CuError::INVALID_VALUE);
            }
            part(soft, array, [offset, 0, 0], [bytes, 1, 1]).map(|(place, ..)| place)
        }
        End::Device(address) => device_place(soft, address, bytes),
        End::Host(address) => any_place(soft, address, bytes),
    };
    let (to, from) = (place(to)?, place(from)?);
    work(wait_for(soft, [to, from]))?
        .perform(Operation::Copy(Transfer::row(to, from, bytes).into()))
}

pub(crate) unsafe fn from_device(to: Handle, offset: usize, from: u64, bytes: usize) -> CuResult {
    row(End::Array(to, offset), End::Device(from), bytes, |_| {
        Work::blocking()
    })
}

pub(crate) unsafe fn to_device(to: u64, from: Handle, offset: usize, bytes: usize) -> CuResult {
    row(End::Device(to), End::Array(from, offset), bytes, |_| {
        Work::blocking()
    })
}

pub(crate) unsafe fn from_host(
    to: Handle,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> CuResult {
    row(
        End::Array(to, offset),
        End::Host(from as u64),
        bytes,
        |_| Work::blocking(),
    )
}

pub(crate) unsafe fn to_host(
    to: *mut c_void,
    from: Handle,
    offset: usize,
    bytes: usize,
) -> CuResult {
    row(
        End::Host(to as u64),
        End::Array(from, offset),
        bytes,
        |_| Work::blocking(),
    )
}

pub(crate) unsafe fn to_array(
    to: Handle,
    to_offset: usize,
    from: Handle,
    from_offset: usize,
    bytes: usize,
) -> CuResult {
    let (to, from) = (End::Array(to, to_offset), End::Array(from, from_offset));
    row(to, from, bytes, |_| Work::blocking())
}

pub(crate) unsafe fn from_host_async(
    to: Handle,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    row(
        End::Array(to, offset),
        End::Host(from as u64),
        bytes,
        |wait| Work::in_stream(stream, wait),
    )
}

pub(crate) unsafe fn to_host_async(
    to: *mut c_void,
    from: Handle,
    offset: usize,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    row(
        End::Host(to as u64),
        End::Array(from, offset),
        bytes,
        |wait| Work::in_stream(stream, wait),
    )
}

pub(crate) unsafe fn create_mipmapped(
    _to: *mut Handle,
    _descriptor: *const Descriptor3d,
    _levels: u32,
) -> CuResult {
    crate::say::say("mipmapped arrays are not there");
    Err(CuError::NOT_SUPPORTED)
}

pub(crate) unsafe fn linear_max_width(
    to: *mut usize,
    number: u32,
    channels: u32,
    _device: c_int,
) -> CuResult {
    soft()?;
    format(number)?;
    if !matches!(channels, 1 | 2 | 4) {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, 1 << 28) }
}
