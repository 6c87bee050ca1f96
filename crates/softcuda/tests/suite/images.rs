//! Arrays, texture and surface objects by the driver API, called in this process through its
//! exported functions: copies to and from arrays, and every refusal.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::common::Context;
use warpbpf_softcuda::Handle;
use warpbpf_softcuda::driver::table::*;

const INVALID_VALUE: u32 = 1;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const NOT_SUPPORTED: u32 = 801;

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Descriptor3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

const U8: u32 = 1;
const FLOAT: u32 = 0x20;

fn try_array(
    [width, height, depth]: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
) -> Result<Handle, u32> {
    let descriptor = Descriptor3d {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    };
    let mut handle = 0;
    // SAFETY: valid pointers; the descriptor is laid out as CUDA's.
    match unsafe { cuArray3DCreate_v2(&raw mut handle, (&raw const descriptor).cast()) } {
        0 => Ok(handle),
        code => Err(code),
    }
}

fn array(size: [usize; 3], format: u32, channels: u32) -> Handle {
    try_array(size, format, channels, 0).expect("an array")
}

#[test]
fn an_array_tells_what_it_is_until_it_is_destroyed() {
    let _context = Context::new();
    let handle = try_array([5, 3, 2], U8, 4, 2).expect("an array");
    let mut found = Descriptor3d::default();
    // SAFETY: valid pointers; the descriptors are laid out as CUDA's.
    unsafe {
        assert_eq!(
            cuArray3DGetDescriptor_v2((&raw mut found).cast(), handle),
            0
        );
        let wanted = Descriptor3d {
            width: 5,
            height: 3,
            depth: 2,
            format: U8,
            channels: 4,
            flags: 2,
        };
        assert_eq!(found, wanted);
        let mut two = [0u64; 3];
        assert_eq!(cuArrayGetDescriptor_v2(two.as_mut_ptr().cast(), handle), 0);
        assert_eq!(two, [5, 3, 4 << 32 | u64::from(U8)]);
        let mut again = 0;
        assert_eq!(cuArrayCreate_v2(&raw mut again, two.as_ptr().cast()), 0);
        assert_eq!(cuArrayDestroy(again), 0);
        assert_eq!(cuArrayDestroy(handle), 0);
        assert_eq!(cuArrayDestroy(handle), INVALID_HANDLE);
        assert_eq!(
            cuArray3DGetDescriptor_v2((&raw mut found).cast(), handle),
            INVALID_HANDLE
        );
        assert_eq!(cuArrayCreate_v2(&raw mut again, null()), INVALID_VALUE);
        assert_eq!(cuMipmappedArrayCreate(null_mut(), null(), 3), NOT_SUPPORTED);
        let mut width = 0;
        assert_eq!(
            cuDeviceGetTexture1DLinearMaxWidth(&raw mut width, FLOAT, 4, 0),
            0
        );
        assert_eq!(width, 1 << 28);
    }
}

#[test]
fn arrays_that_cannot_be() {
    let _context = Context::new();
    let refused = |size, format, channels, flags, code| {
        assert_eq!(
            try_array(size, format, channels, flags),
            Err(code),
            "{size:?} {format} {channels} {flags}"
        );
    };
    refused([0, 0, 0], U8, 1, 0, INVALID_VALUE);
    refused([4, 0, 4], U8, 1, 0, INVALID_VALUE);
    refused([4, 4, 0], U8, 3, 0, INVALID_VALUE);
    refused([4, 4, 0], 0xb0, 1, 0, NOT_SUPPORTED);
    refused([4, 4, 6], U8, 1, 4, NOT_SUPPORTED);
    refused([4, 4, 0], U8, 1, 1, INVALID_VALUE);
    refused([4, 4, 4096], U8, 1, 1, INVALID_VALUE);
    refused([200_000, 0, 0], U8, 1, 0, INVALID_VALUE);
    refused([100_000, 4, 4], U8, 1, 0, INVALID_VALUE);
    refused([131_072, 65_536, 0], FLOAT, 4, 0, 2);
}

#[test]
fn rows_to_and_from_arrays_of_one_dimension() {
    let _context = Context::new();
    let (one, two) = (array([16, 0, 0], U8, 1), array([16, 0, 0], U8, 1));
    let from: Vec<u8> = (1..=16).collect();
    let mut to = [0u8; 8];
    let mut memory = 0;
    // SAFETY: buffers are as long as said.
    unsafe {
        assert_eq!(cuMemcpyHtoA_v2(one, 0, from.as_ptr().cast(), 16), 0);
        assert_eq!(cuMemcpyAtoA_v2(two, 4, one, 2, 8), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut memory, 64), 0);
        assert_eq!(cuMemcpyAtoD_v2(memory, two, 4, 8), 0);
        assert_eq!(cuMemcpyDtoA_v2(one, 8, memory, 8), 0);
        assert_eq!(cuMemcpyAtoH_v2(to.as_mut_ptr().cast(), one, 8, 8), 0);
        assert_eq!(to, [3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(
            cuMemcpyHtoAAsync_v2(one, 1, from[7..].as_ptr().cast(), 2, 0),
            0
        );
        assert_eq!(
            cuMemcpyAtoHAsync_v2(to.as_mut_ptr().cast(), one, 0, 4, 0),
            0
        );
        assert_eq!(to[..4], [1, 8, 9, 4]);
        assert_eq!(
            cuMemcpyHtoA_v2(one, 9, from.as_ptr().cast(), 8),
            INVALID_VALUE
        );
        assert_eq!(cuMemcpyAtoD_v2(memory + 60, one, 0, 8), INVALID_VALUE);
        assert_eq!(
            cuMemcpyAtoH_v2(to.as_mut_ptr().cast(), 77, 0, 8),
            INVALID_HANDLE
        );
        let flat = array([4, 4, 0], U8, 1);
        assert_eq!(
            cuMemcpyHtoA_v2(flat, 0, from.as_ptr().cast(), 4),
            INVALID_VALUE
        );
    }
}

/// `CUDA_RESOURCE_DESC` in words: type, address or handle, format and channels, sizes.
fn resource(kind: u64, address: u64, format: u32, sizes: [u64; 3]) -> [u64; 18] {
    let mut words = [0; 18];
    words[0] = kind;
    words[1] = address;
    words[2] = 1 << 32 | u64::from(format);
    words[3..6].copy_from_slice(&sizes);
    words
}

/// `CUDA_TEXTURE_DESC`: modes, filter, flags, the rest.
type Sampling = [u32; 26];

fn try_texture(resource: &[u64; 18], sampling: &Sampling, view: *const c_void) -> Result<u64, u32> {
    let mut object = 0;
    // SAFETY: laid out as CUDA's.
    let code = unsafe {
        cuTexObjectCreate(
            &raw mut object,
            resource.as_ptr().cast(),
            sampling.as_ptr().cast(),
            view.cast(),
        )
    };
    if code == 0 { Ok(object) } else { Err(code) }
}

#[test]
fn textures_that_cannot_be() {
    let _context = Context::new();
    let handle = array([4, 4, 0], FLOAT, 1) as u64;
    let good = resource(0, handle, 0, [0; 3]);
    let plain: Sampling = [0; 26];
    let mut memory = 0;
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut memory, 1024) }, 0);
    let refused = |resource: [u64; 18], sampling: Sampling, code| {
        assert_eq!(try_texture(&resource, &sampling, null()), Err(code));
    };
    refused(resource(0, 77, 0, [0; 3]), plain, INVALID_HANDLE);
    refused(resource(1, handle, 0, [0; 3]), plain, NOT_SUPPORTED);
    refused(resource(9, handle, 0, [0; 3]), plain, INVALID_VALUE);
    refused(
        resource(2, memory, FLOAT, [1028, 0, 0]),
        plain,
        INVALID_VALUE,
    );
    refused(resource(2, memory, FLOAT, [3, 0, 0]), plain, INVALID_VALUE);
    refused(
        resource(2, memory + 4, FLOAT, [64, 0, 0]),
        plain,
        INVALID_VALUE,
    );
    refused(resource(2, memory, 0xb0, [64, 0, 0]), plain, NOT_SUPPORTED);
    refused(resource(3, memory, FLOAT, [8, 4, 16]), plain, INVALID_VALUE);
    refused(resource(3, memory, FLOAT, [8, 4, 40]), plain, INVALID_VALUE);
    refused(
        resource(3, memory, FLOAT, [8, 33, 32]),
        plain,
        INVALID_VALUE,
    );
    let with = |place: usize, value| {
        let mut sampling = plain;
        sampling[place] = value;
        sampling
    };
    refused(good, with(1, 4), INVALID_VALUE);
    refused(good, with(3, 2), INVALID_VALUE);
    refused(good, with(4, 0x1000), INVALID_VALUE);
    refused(good, with(4, 0x10), NOT_SUPPORTED);
    let view = [1u32; 28];
    assert_eq!(
        try_texture(&good, &plain, view.as_ptr().cast()),
        Err(NOT_SUPPORTED)
    );
    let none = [0u32; 28];
    assert!(try_texture(&good, &plain, none.as_ptr().cast()).is_ok());
    assert!(try_texture(&resource(3, memory, FLOAT, [8, 32, 32]), &plain, null()).is_ok());
    let mut surface = 0;
    // SAFETY: laid out as CUDA's.
    let code = unsafe {
        let linear = resource(2, memory, FLOAT, [64, 0, 0]);
        cuSurfObjectCreate(&raw mut surface, linear.as_ptr().cast())
    };
    assert_eq!(code, INVALID_VALUE);
}

#[test]
fn objects_are_known_by_their_kind_and_die_with_the_context() {
    let context = Context::new();
    let handle = array([4, 4, 0], FLOAT, 1);
    let made = resource(0, handle as u64, 0, [0; 3]);
    let mut sampling: Sampling = [0; 26];
    sampling[..5].copy_from_slice(&[1, 3, 2, 1, 2]);
    let texture = try_texture(&made, &sampling, null()).expect("a texture");
    let mut surface = 0;
    let mut found = [0u64; 18];
    let mut how: Sampling = [0; 26];
    // SAFETY: laid out as CUDA's.
    unsafe {
        assert_eq!(
            cuSurfObjectCreate(&raw mut surface, made.as_ptr().cast()),
            0
        );
        assert_eq!(
            cuTexObjectGetResourceDesc(found.as_mut_ptr().cast(), texture),
            0
        );
        assert_eq!(found[1], handle as u64);
        assert_eq!(
            cuTexObjectGetTextureDesc(how.as_mut_ptr().cast(), texture),
            0
        );
        assert_eq!(how, sampling);
        assert_eq!(
            cuTexObjectGetResourceViewDesc(found.as_mut_ptr().cast(), texture),
            INVALID_VALUE
        );
        assert_eq!(
            cuSurfObjectGetResourceDesc(found.as_mut_ptr().cast(), surface),
            0
        );
        assert_eq!(
            cuSurfObjectGetResourceDesc(found.as_mut_ptr().cast(), texture),
            INVALID_VALUE
        );
        assert_eq!(cuTexObjectDestroy(texture), 0);
        assert_eq!(
            cuTexObjectGetResourceDesc(found.as_mut_ptr().cast(), texture),
            INVALID_VALUE
        );
        // As NVIDIA's driver: a number that means nothing is nothing to do.
        assert_eq!(cuTexObjectDestroy(texture), 0);
        drop(context);
        let _context = Context::new();
        assert_eq!(
            cuSurfObjectGetResourceDesc(found.as_mut_ptr().cast(), surface),
            INVALID_VALUE
        );
        assert_eq!(cuArrayDestroy(handle), INVALID_HANDLE);
    }
}

#[test]
fn a_tensor_maps_address_can_be_replaced() {
    #[repr(C, align(64))]
    struct Map([u8; 128]);
    let mut map = Map([0; 128]);
    let (size, pitch) = ([64u64, 8], [256u64]);
    let (moved, strides) = ([16u32, 4], [1u32, 1]);
    // SAFETY: arrays are as long as the rank says.
    unsafe {
        let encode = |map: *mut Map| {
            cuTensorMapEncodeTiled(
                map.cast(),
                7,
                2,
                0x1000 as *mut c_void,
                size.as_ptr(),
                pitch.as_ptr(),
                moved.as_ptr(),
                strides.as_ptr(),
                0,
                0,
                0,
                0,
            )
        };
        let replace = |map: *mut Map, address: usize| {
            cuTensorMapReplaceAddress(map.cast(), address as *mut c_void)
        };
        assert_eq!(replace(&raw mut map, 0x2000), INVALID_VALUE, "no map yet");
        // Other tests of this process may have called it, or not.
        assert_eq!(cuInit(0), 0);
        assert_eq!(encode(&raw mut map), INVALID_CONTEXT);
        let _context = Context::new();
        assert_eq!(encode(&raw mut map), 0);
        let before = map.0;
        assert_eq!(replace(&raw mut map, 0x2008), INVALID_VALUE);
        assert_eq!(replace(null_mut(), 0x2000), INVALID_VALUE);
        assert_eq!(map.0, before);
        assert_eq!(replace(&raw mut map, 0x2000), 0);
        assert_ne!(map.0, before);
        assert_eq!(replace(&raw mut map, 0x1000), 0);
        assert_eq!(map.0, before);
        let unaligned = (&raw mut map).cast::<u8>().add(16).cast();
        assert_eq!(encode(unaligned), INVALID_VALUE);
        assert_eq!(encode(null_mut()), INVALID_VALUE);
    }
}
