//! Arrays, and texture and surface objects.

use warpbpf_softgpu::{Image, ImageKind};

use crate::objects::handle::Handle;

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Descriptor3d {
    /// Texels in a row.
    pub width: usize,
    /// Rows, 0 for an array of one dimension.
    pub height: usize,
    /// Slices or layers.
    pub depth: usize,
    /// `CUarray_format`
    pub format: u32,
    /// 1, 2 or 4.
    pub channels: u32,
    /// `CUDA_ARRAY3D_…`
    pub flags: u32,
}

/// A live array.
pub(crate) struct Array {
    pub context: Handle,
    pub image: Image,
    pub descriptor: Descriptor3d,
}

/// Memory as a resource, by the type: `[address, format and channels, bytes]` or `[…, width,
/// height, pitch]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory {
    /// First byte, or the array's handle.
    pub address: u64,
    /// `CUarray_format`
    pub format: u32,
    /// 1, 2 or 4.
    pub channels: u32,
    /// Bytes, or texels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes from row to row.
    pub pitch: usize,
    pub(crate) rest: [u64; 11],
}

/// `CUDA_RESOURCE_DESC`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Resource {
    /// `CU_RESOURCE_TYPE_…`
    pub kind: u32,
    /// What it is.
    pub memory: Memory,
    /// None.
    pub flags: u32,
}

impl Resource {
    /// A resource of that type; what the type does not have is 0.
    pub(crate) fn new(
        kind: u32,
        address: u64,
        (format, channels): (u32, u32),
        [width, height, pitch]: [usize; 3],
    ) -> Resource {
        Resource {
            kind,
            memory: Memory {
                address,
                format,
                channels,
                width,
                height,
                pitch,
                rest: [0; 11],
            },
            flags: 0,
        }
    }
}

/// `CUDA_TEXTURE_DESC`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sampling {
    /// `CU_TR_ADDRESS_MODE_…`
    pub modes: [u32; 3],
    /// `CU_TR_FILTER_MODE_…`
    pub filter: u32,
    /// `CU_TRSF_…`
    pub flags: u32,
    /// Of no effect without mipmaps.
    pub anisotropy: u32,
    /// As above.
    pub level_filter: u32,
    /// As above.
    pub level_bias: f32,
    /// As above.
    pub level_least: f32,
    /// As above.
    pub level_most: f32,
    /// The border's colour.
    pub border: [f32; 4],
    /// Nothing.
    pub reserved: [i32; 12],
}

/// A live object.
pub(crate) struct Object {
    pub(crate) number: u64,
    pub(crate) context: Handle,
    pub(crate) kind: ImageKind,
    pub(crate) resource: Resource,
    pub(crate) sampling: Option<Sampling>,
}
