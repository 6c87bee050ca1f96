//! Texture and surface objects.

use std::sync::Arc;

use warpbpf_softgpu::{AddressMode, Image, ImageKind, ImageSource, Texture};

use crate::driver::arrays::{self, format};
use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::image::{Object, Resource, Sampling};
use crate::state::{Soft, current, put, soft};
use crate::work::bytes::device_place;

/// `CU_RESOURCE_TYPE_…`
pub(crate) const ARRAY: u32 = 0;
const MIPMAPPED: u32 = 1;
pub(crate) const LINEAR: u32 = 2;
pub(crate) const PITCHED: u32 = 3;

/// `CU_TRSF_…`
pub(crate) const READ_AS_INTEGER: u32 = 1;
pub(crate) const NORMALISED: u32 = 2;
pub(crate) const SRGB: u32 = 0x10;
const KNOWN_FLAGS: u32 = READ_AS_INTEGER | NORMALISED | SRGB | 0x20 | 0x40;

/// `CUDA_RESOURCE_VIEW_DESC`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    format: u32,
    rest: [u64; 13],
}

/// The texels that a resource means.
fn image(soft: &Soft, resource: &Resource) -> Result<Image, CuError> {
    let memory = &resource.memory;
    match resource.kind {
        ARRAY => Ok(arrays::find(soft, memory.address as Handle)?.image),
        MIPMAPPED => {
            crate::say::say("textures of mipmapped arrays are not there");
            Err(CuError::NOT_SUPPORTED)
        }
        LINEAR | PITCHED => {
            let (kind, bits) = format(memory.format)?;
            if !matches!(memory.channels, 1 | 2 | 4) {
                return Err(CuError::INVALID_VALUE);
            }
            let texel = u64::from(bits / 8 * memory.channels);
            let (size, pitch, bytes, source) = if resource.kind == LINEAR {
                let count = memory.width as u64 / texel;
                (
                    [count.min(1 << 28), 0],
                    memory.width as u64,
                    memory.width as u64,
                    ImageSource::Linear,
                )
            } else {
                let pitch = memory.pitch as u64;
                let (width, height) = (memory.width as u64, memory.height as u64);
                if height == 0
                    || height > 65_536
                    || width > 131_072
                    || pitch < width * texel
                    || !pitch.is_multiple_of(32)
                    || pitch > 1 << 32
                {
                    return Err(CuError::INVALID_VALUE);
                }
                let bytes = pitch * (height - 1) + width * texel;
                ([width, height], pitch, bytes, ImageSource::Array)
            };
            if size[0] == 0 || !memory.address.is_multiple_of(16) {
                return Err(CuError::INVALID_VALUE);
            }
            device_place(soft, memory.address, bytes)?;
            Ok(Image {
                address: memory.address,
                source,
                kind,
                bits,
                channels: memory.channels,
                size: [size[0] as u32, size[1] as u32, 0],
                layers: 0,
                pitch,
                slice: bytes,
            })
        }
        _ => Err(CuError::INVALID_VALUE),
    }
}

fn mode(number: u32) -> Result<AddressMode, CuError> {
    Ok(match number {
        0 => AddressMode::Wrap,
        1 => AddressMode::Clamp,
        2 => AddressMode::Mirror,
        3 => AddressMode::Border,
        _ => return Err(CuError::INVALID_VALUE),
    })
}

fn remember(soft: &Soft, object: Object) -> u64 {
    let number = object.number;
    soft.images.add(number as Handle, Arc::new(object));
    number
}

pub(crate) unsafe fn texture_create(
    to: *mut u64,
    resource: *const Resource,
    sampling: *const Sampling,
    view: *const View,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if to.is_null() || resource.is_null() || sampling.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let (resource, sampling) = unsafe { (*resource, *sampling) };
    // SAFETY: as above, where it is not null.
    if !view.is_null() && unsafe { (*view).format } != 0 {
        crate::say::say("texture objects with a resource view are not there");
        return Err(CuError::NOT_SUPPORTED);
    }
    if sampling.flags & !KNOWN_FLAGS != 0 || sampling.filter > 1 {
        return Err(CuError::INVALID_VALUE);
    }
    if sampling.flags & SRGB != 0 {
        crate::say::say("textures with CU_TRSF_SRGB are not there");
        return Err(CuError::NOT_SUPPORTED);
    }
    let texture = Texture {
        image: image(soft, &resource)?,
        modes: [
            mode(sampling.modes[0])?,
            mode(sampling.modes[1])?,
            mode(sampling.modes[2])?,
        ],
        linear: sampling.filter == 1,
        as_float: sampling.flags & READ_AS_INTEGER == 0,
        normalised: sampling.flags & NORMALISED != 0,
        border: sampling.border,
    };
    let object = Object {
        number: soft.gpu(&context).add_texture(texture),
        context: context.handle,
        kind: ImageKind::Texture,
        resource,
        sampling: Some(sampling),
    };
    // SAFETY: checked above.
    unsafe { put(to, remember(soft, object)) }
}

pub(crate) unsafe fn surface_create(to: *mut u64, resource: *const Resource) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if to.is_null() || resource.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let resource = unsafe { *resource };
    if resource.kind != ARRAY {
        return Err(CuError::INVALID_VALUE);
    }
    // Any array will do, as on a GPU, whatever flags it was made with.
    let array = arrays::find(soft, resource.memory.address as Handle)?;
    let object = Object {
        number: soft.gpu(&context).add_surface(array.image),
        context: context.handle,
        kind: ImageKind::Surface,
        resource,
        sampling: None,
    };
    // SAFETY: checked above.
    unsafe { put(to, remember(soft, object)) }
}

fn find(soft: &Soft, number: u64, kind: ImageKind) -> Result<Arc<Object>, CuError> {
    soft.images
        .get(number as Handle)
        .filter(|object| object.kind == kind)
        .ok_or(CuError::INVALID_VALUE)
}

/// The numbers of devices differ.
fn remove(soft: &Soft, number: u64, kind: ImageKind) {
    for device in &soft.devices {
        device.gpu.remove_image(number, kind);
    }
}

fn destroy(number: u64, kind: ImageKind) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if find(soft, number, kind).is_err() {
        // A GPU's driver takes any number here.
        return Ok(());
    }
    // Kernels that use it may still run.
    context.synchronize()?;
    soft.images.remove(number as Handle);
    remove(soft, number, kind);
    Ok(())
}

pub(crate) unsafe fn texture_destroy(number: u64) -> CuResult {
    destroy(number, ImageKind::Texture)
}

pub(crate) unsafe fn surface_destroy(number: u64) -> CuResult {
    destroy(number, ImageKind::Surface)
}

/// Forgets the objects that a context leaves.
pub(crate) fn forget_context(soft: &Soft, own: Handle) {
    for object in soft.images.all().iter().filter(|o| o.context == own) {
        remove(soft, object.number, object.kind);
    }
    soft.images.retain(|object| object.context != own);
}

pub(crate) unsafe fn texture_resource(to: *mut Resource, number: u64) -> CuResult {
    let object = find(soft()?, number, ImageKind::Texture)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, object.resource) }
}

pub(crate) unsafe fn surface_resource(to: *mut Resource, number: u64) -> CuResult {
    let object = find(soft()?, number, ImageKind::Surface)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, object.resource) }
}

pub(crate) unsafe fn texture_sampling(to: *mut Sampling, number: u64) -> CuResult {
    let object = find(soft()?, number, ImageKind::Texture)?;
    let sampling = object.sampling.ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, sampling) }
}

pub(crate) unsafe fn texture_view(_to: *mut View, number: u64) -> CuResult {
    find(soft()?, number, ImageKind::Texture)?;
    // None was given: such objects are refused.
    Err(CuError::INVALID_VALUE)
}
