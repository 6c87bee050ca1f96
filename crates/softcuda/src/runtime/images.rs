//! Arrays, texture and surface objects: the runtime's descriptions to the driver's and back.

use std::ffi::{c_int, c_void};

use crate::driver::images;
use crate::driver::rows::Copy2d;
use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::image::{Descriptor3d, Resource, Sampling};
use crate::runtime::link::Driver;
use crate::runtime::rows::{Extent, Rows, types};
use crate::state::{put, put_if};

/// `cudaErrorInvalidChannelDescriptor`
const INVALID_CHANNELS: CuError = CuError(20);

/// `cudaChannelFormatDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelFormat {
    /// Bits of each channel.
    pub bits: [c_int; 4],
    /// `cudaChannelFormatKind`: signed, unsigned, float.
    pub kind: c_int,
}

/// Kind, bits and `CUarray_format`.
const FORMATS: [(c_int, c_int, u32); 8] = [
    (0, 8, 0x08),
    (0, 16, 0x09),
    (0, 32, 0x0a),
    (1, 8, 0x01),
    (1, 16, 0x02),
    (1, 32, 0x03),
    (2, 16, 0x10),
    (2, 32, 0x20),
];

impl ChannelFormat {
    /// The driver's format and count of channels.
    fn driver(self) -> Result<(u32, u32), CuError> {
        let count = self.bits.iter().take_while(|&&bits| bits != 0).count();
        let bits = self.bits[0];
        let same = self.bits[..count].iter().all(|&b| b == bits)
            && self.bits[count..].iter().all(|&b| b == 0);
        let found = FORMATS
            .iter()
            .find(|&&(kind, size, _)| kind == self.kind && size == bits);
        match found {
            Some(&(.., format)) if same && matches!(count, 1 | 2 | 4) => Ok((format, count as u32)),
            _ => Err(INVALID_CHANNELS),
        }
    }

    fn of(format: u32, channels: u32) -> Result<ChannelFormat, CuError> {
        let found = FORMATS.iter().find(|&&(.., number)| number == format);
        let &(kind, bits, _) = found.ok_or(INVALID_CHANNELS)?;
        let bits = std::array::from_fn(|i| if i < channels as usize { bits } else { 0 });
        Ok(ChannelFormat { bits, kind })
    }
}

/// # Safety
/// The pointers must be null or valid.
pub(crate) unsafe fn malloc_array(
    driver: &Driver,
    to: *mut Handle,
    format: *const ChannelFormat,
    [width, height, depth]: [usize; 3],
    flags: u32,
) -> CuResult {
    if to.is_null() || format.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let (format, channels) = unsafe { *format }.driver()?;
    let descriptor = Descriptor3d {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    };
    // SAFETY: as above.
    unsafe { driver.cuArray3DCreate_v2(to, &raw const descriptor) }
}

/// What an array is.
pub(crate) fn descriptor(driver: &Driver, array: Handle) -> Result<Descriptor3d, CuError> {
    let mut found = Descriptor3d::default();
    // SAFETY: a valid pointer.
    unsafe { driver.cuArray3DGetDescriptor_v2(&raw mut found, array) }?;
    Ok(found)
}

/// Bytes of a texel of an array.
pub(crate) fn texel_bytes(driver: &Driver, array: Handle) -> Result<usize, CuError> {
    let d = descriptor(driver, array)?;
    let format = ChannelFormat::of(d.format, d.channels)?;
    Ok(format.bits.iter().sum::<c_int>() as usize / 8)
}

/// # Safety
/// The pointers must be null or valid for a write.
pub(crate) unsafe fn array_info(
    driver: &Driver,
    format: *mut ChannelFormat,
    extent: *mut Extent,
    flags: *mut u32,
    array: Handle,
) -> CuResult {
    let d = descriptor(driver, array)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(format, ChannelFormat::of(d.format, d.channels)?);
        put_if(
            extent,
            Extent {
                width: d.width,
                height: d.height,
                depth: d.depth,
            },
        );
        put_if(flags, d.flags);
    }
    Ok(())
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn channel_format(
    driver: &Driver,
    to: *mut ChannelFormat,
    array: Handle,
) -> CuResult {
    let d = descriptor(driver, array)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, ChannelFormat::of(d.format, d.channels)?) }
}

/// # Safety
/// The pointers must be null or valid.
pub(crate) unsafe fn linear_max_width(
    driver: &Driver,
    to: *mut usize,
    format: *const ChannelFormat,
    device: c_int,
) -> CuResult {
    if format.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    unsafe {
        let (format, channels) = (*format).driver()?;
        driver.cuDeviceGetTexture1DLinearMaxWidth(to, format, channels, device)
    }
}

/// An array and a place in it: bytes, rows.
#[derive(Clone, Copy)]
pub(crate) struct InArray {
    pub array: Handle,
    pub at: [usize; 2],
}

/// # Safety
/// Host ranges must be valid.
unsafe fn copy(driver: &Driver, copy: &Copy2d, stream: Option<Handle>) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        match stream {
            None => driver.cuMemcpy2DUnaligned_v2(copy),
            Some(stream) => driver.cuMemcpy2DAsync_v2(copy, stream),
        }
    }
}

/// A rectangle with the addresses of one side; the other is an array's.
///
/// # Safety
/// Host ranges must be valid.
pub(crate) unsafe fn copy_rows(
    driver: &Driver,
    rows: &Rows,
    [to, from]: [Option<InArray>; 2],
    kind: u32,
    stream: Option<Handle>,
) -> CuResult {
    let (from_type, to_type) = types(kind)?;
    let mut described = Copy2d::between(
        (from_type, rows.from as u64, rows.from_pitch),
        (to_type, rows.to as u64, rows.to_pitch),
        rows.width,
        rows.height,
    );
    if let Some(to) = to {
        described = described.with_target(to.array, to.at);
    }
    if let Some(from) = from {
        described = described.with_source(from.array, from.at);
    }
    // SAFETY: the caller's promise.
    unsafe { copy(driver, &described, stream) }
}

/// Bytes in a row that fill an array row by row from a place on, or come from it: the first row's
/// rest, whole rows, the beginning of a last one. `addresses` are the other side's: of a
/// destination, then of a source.
///
/// # Safety
/// Host ranges must be valid.
pub(crate) unsafe fn copy_bytes(
    driver: &Driver,
    array: InArray,
    [to, from]: [*mut c_void; 2],
    bytes: usize,
    kind: u32,
    stream: Option<Handle>,
) -> CuResult {
    let row = descriptor(driver, array.array)?.width * texel_bytes(driver, array.array)?;
    let [mut x, mut y] = array.at;
    let mut done = 0;
    while done < bytes {
        let left = bytes - done;
        let width = left.min(
            row.checked_sub(x)
                .filter(|&n| n > 0)
                .ok_or(CuError::INVALID_VALUE)?,
        );
        let height = if x == 0 { (left / row).max(1) } else { 1 };
        let rows = Rows {
            to: to.cast::<u8>().wrapping_add(done).cast(),
            to_pitch: width,
            from: from.cast::<u8>().wrapping_add(done).cast(),
            from_pitch: width,
            width,
            height,
        };
        let place = Some(InArray {
            array: array.array,
            at: [x, y],
        });
        let sides = if to.is_null() {
            [place, None]
        } else {
            [None, place]
        };
        // SAFETY: the caller's promise.
        unsafe { copy_rows(driver, &rows, sides, kind, stream) }?;
        done += width * height;
        y += height;
        x = 0;
    }
    Ok(())
}

/// `cudaResourceDesc`: by the type, an array's handle, or an address, a format and `[bytes]` or
/// `[width, height, pitch]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RuntimeResource {
    kind: u32,
    address: u64,
    format: ChannelFormat,
    sizes: [usize; 3],
    rest: [u64; 9],
    flags: u32,
}

impl RuntimeResource {
    fn driver(&self) -> Result<Resource, CuError> {
        let format = match self.kind {
            images::LINEAR | images::PITCHED => self.format.driver()?,
            _ => (0, 0),
        };
        let sizes = match self.kind {
            images::LINEAR => [self.sizes[0], 0, 0],
            images::PITCHED => self.sizes,
            _ => [0; 3],
        };
        Ok(Resource::new(self.kind, self.address, format, sizes))
    }

    fn of(resource: &Resource) -> Result<RuntimeResource, CuError> {
        let memory = &resource.memory;
        let format = match resource.kind {
            images::LINEAR | images::PITCHED => ChannelFormat::of(memory.format, memory.channels)?,
            _ => ChannelFormat {
                bits: [0; 4],
                kind: 0,
            },
        };
        Ok(RuntimeResource {
            kind: resource.kind,
            address: memory.address,
            format,
            sizes: [memory.width, memory.height, memory.pitch],
            rest: [0; 9],
            flags: resource.flags,
        })
    }
}

/// `cudaTextureDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RuntimeSampling {
    modes: [u32; 3],
    filter: u32,
    as_float: u32,
    srgb: c_int,
    border: [f32; 4],
    normalised: c_int,
    anisotropy: u32,
    level_filter: u32,
    level_bias: f32,
    level_least: f32,
    level_most: f32,
    no_trilinear_shortcut: c_int,
    seamless_cubemap: c_int,
}

impl RuntimeSampling {
    fn driver(&self) -> Sampling {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        Sampling {
            modes: self.modes,
            filter: self.filter,
            flags: flag(self.as_float == 0, images::READ_AS_INTEGER)
                | flag(self.normalised != 0, images::NORMALISED)
                | flag(self.srgb != 0, images::SRGB),
            anisotropy: self.anisotropy,
            level_filter: self.level_filter,
            level_bias: self.level_bias,
            level_least: self.level_least,
            level_most: self.level_most,
            border: self.border,
            reserved: [0; 12],
        }
    }

    fn of(sampling: &Sampling) -> RuntimeSampling {
        let has = |flag: u32| c_int::from(sampling.flags & flag != 0);
        RuntimeSampling {
            modes: sampling.modes,
            filter: sampling.filter,
            as_float: u32::from(sampling.flags & images::READ_AS_INTEGER == 0),
            srgb: has(images::SRGB),
            border: sampling.border,
            normalised: has(images::NORMALISED),
            anisotropy: sampling.anisotropy,
            level_filter: sampling.level_filter,
            level_bias: sampling.level_bias,
            level_least: sampling.level_least,
            level_most: sampling.level_most,
            no_trilinear_shortcut: 0,
            seamless_cubemap: 0,
        }
    }
}

/// What a resource's channels are; bytes where the driver will refuse it anyway.
fn channels_of(driver: &Driver, resource: &Resource) -> Result<ChannelFormat, CuError> {
    let (format, channels) = match resource.kind {
        images::ARRAY => {
            let d = descriptor(driver, resource.memory.address as Handle)?;
            (d.format, d.channels)
        }
        images::LINEAR | images::PITCHED => (resource.memory.format, resource.memory.channels),
        _ => (1, 1),
    };
    ChannelFormat::of(format, channels)
}

/// The runtime refuses to filter integers, and to make fractions of what has 32 bits.
fn check_reading(channels: ChannelFormat, sampling: &Sampling) -> CuResult {
    const INVALID_FILTER: CuError = CuError(26);
    const INVALID_NORM: CuError = CuError(27);
    const FLOAT: c_int = 2;
    let as_integer = sampling.flags & images::READ_AS_INTEGER != 0;
    if channels.kind != FLOAT && as_integer && sampling.filter == 1 {
        return Err(INVALID_FILTER);
    }
    if !as_integer && channels.bits[0] > 16 {
        return Err(INVALID_NORM);
    }
    Ok(())
}

/// # Safety
/// The pointers must be null or valid.
pub(crate) unsafe fn create_texture(
    driver: &Driver,
    to: *mut u64,
    resource: *const RuntimeResource,
    sampling: *const RuntimeSampling,
    view: *const c_void,
) -> CuResult {
    if resource.is_null() || sampling.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise. The runtime's view is laid out as the
    // driver's.
    unsafe {
        let (resource, sampling) = ((*resource).driver()?, (*sampling).driver());
        check_reading(channels_of(driver, &resource)?, &sampling)?;
        driver.cuTexObjectCreate(to, &raw const resource, &raw const sampling, view.cast())
    }
}

/// # Safety
/// The pointers must be null or valid.
pub(crate) unsafe fn create_surface(
    driver: &Driver,
    to: *mut u64,
    resource: *const RuntimeResource,
) -> CuResult {
    if resource.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    unsafe {
        let resource = (*resource).driver()?;
        driver.cuSurfObjectCreate(to, &raw const resource)
    }
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn texture_resource(
    driver: &Driver,
    to: *mut RuntimeResource,
    object: u64,
) -> CuResult {
    let mut found = Resource::new(0, 0, (0, 0), [0; 3]);
    // SAFETY: valid pointers.
    unsafe {
        driver.cuTexObjectGetResourceDesc(&raw mut found, object)?;
        put(to, RuntimeResource::of(&found)?)
    }
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn surface_resource(
    driver: &Driver,
    to: *mut RuntimeResource,
    object: u64,
) -> CuResult {
    let mut found = Resource::new(0, 0, (0, 0), [0; 3]);
    // SAFETY: valid pointers.
    unsafe {
        driver.cuSurfObjectGetResourceDesc(&raw mut found, object)?;
        put(to, RuntimeResource::of(&found)?)
    }
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn texture_sampling(
    driver: &Driver,
    to: *mut RuntimeSampling,
    object: u64,
) -> CuResult {
    let mut found = Sampling::default();
    // SAFETY: valid pointers.
    unsafe {
        driver.cuTexObjectGetTextureDesc(&raw mut found, object)?;
        put(to, RuntimeSampling::of(&found))
    }
}
