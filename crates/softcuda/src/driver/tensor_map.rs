//! `cuTensorMapEncode…`: descriptions of tensors to the 128 bytes that a kernel's tensor copies
//! take, in the emulator's own layout. NVIDIA's want a current context for it, so these do.

use std::ffi::{c_int, c_void};

use warpbpf_softgpu::{TENSOR_MAP_BYTES, TensorBox, TensorElement, TensorMap, TensorSwizzle};

use crate::error::{CuError, CuResult};

/// `CUtensorMap`
#[repr(C, align(64))]
pub struct Encoded([u8; TENSOR_MAP_BYTES]);

/// The part of the arguments that all encodings have.
struct Common {
    element: u32,
    rank: u32,
    address: u64,
    size: *const u64,
    pitch: *const u64,
    strides: *const u32,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

/// A refusal in words: one number for a dozen arguments would leave the program's author to guess.
fn refuse<T>(error: CuError, reason: &str) -> Result<T, CuError> {
    crate::say::say(&format!("a tensor map cannot be encoded: {reason}"));
    Err(error)
}

fn invalid<T>(reason: &str) -> Result<T, CuError> {
    refuse(CuError::INVALID_VALUE, reason)
}

fn unsupported<T>(reason: &str) -> Result<T, CuError> {
    refuse(CuError::NOT_SUPPORTED, reason)
}

/// The first `count` of an array that the caller gave.
///
/// # Safety
/// `from` must be null or valid for reads of `count` elements.
unsafe fn list<T: Copy, const N: usize>(
    from: *const T,
    count: usize,
    rest: T,
    name: &str,
) -> Result<[T; N], CuError> {
    if from.is_null() && count > 0 {
        return invalid(&format!("`{name}` is null"));
    }
    let mut list = [rest; N];
    for (i, place) in list.iter_mut().enumerate().take(count) {
        // SAFETY: inside of what the caller vouches for.
        *place = unsafe { *from.add(i) };
    }
    Ok(list)
}

/// Checks what all encodings check and makes the map, whose box is still to come.
///
/// # Safety
/// The pointers must be null or valid for `rank` elements.
unsafe fn common(c: &Common, least_rank: u32) -> Result<TensorMap, CuError> {
    crate::state::current_any()?;
    let Some(element) = TensorElement::from_number(c.element) else {
        return match c.element {
            13 => unsupported("CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B is not there"),
            14 => unsupported("CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B is not there"),
            15 => unsupported("CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B is not there"),
            other => invalid(&format!("data type `{other}` does not exist")),
        };
    };
    if !(least_rank..=5).contains(&c.rank) {
        return invalid(&format!("rank `{}` is not {least_rank} to 5", c.rank));
    }
    if c.address & 15 != 0 {
        return invalid(&format!(
            "the tensor's address `{:#x}` is not a multiple of 16",
            c.address
        ));
    }
    let rank = c.rank as usize;
    // SAFETY: the caller's promise.
    let (size, pitch, strides) = unsafe {
        (
            list::<u64, 5>(c.size, rank, 1, "globalDim")?,
            list::<u64, 4>(c.pitch, rank - 1, 0, "globalStrides")?,
            list::<u32, 5>(c.strides, rank, 1, "elementStrides")?,
        )
    };
    if let Some(bad) = size.iter().find(|&&n| n == 0 || n > 1 << 32) {
        return invalid(&format!("a dimension of `{bad}` elements"));
    }
    if let Some(bad) = pitch.iter().find(|&&n| n & 15 != 0 || n >= 1 << 40) {
        return invalid(&format!(
            "a stride of `{bad}` bytes is not a multiple of 16 below 2^40"
        ));
    }
    if let Some(bad) = strides.iter().find(|&&n| n == 0 || n > 8) {
        return invalid(&format!("an element stride of `{bad}` is not 1 to 8"));
    }
    match c.interleave {
        0 => {}
        1 => return unsupported("CU_TENSOR_MAP_INTERLEAVE_16B is not there"),
        2 => return unsupported("CU_TENSOR_MAP_INTERLEAVE_32B is not there"),
        other => return invalid(&format!("interleave `{other}` does not exist")),
    }
    let Some(swizzle) = TensorSwizzle::from_number(c.swizzle) else {
        return match c.swizzle {
            4 => unsupported("CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B is not there"),
            5 => unsupported("CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B is not there"),
            6 => unsupported("CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B is not there"),
            other => invalid(&format!("swizzle `{other}` does not exist")),
        };
    };
    if c.promotion > 3 {
        return invalid(&format!("L2 promotion `{}` does not exist", c.promotion));
    }
    if c.fill > 1 || (c.fill == 1 && !element.is_float()) {
        return invalid("that fill is for elements of a floating-point type");
    }
    Ok(TensorMap {
        address: c.address,
        element,
        rank: c.rank,
        size,
        pitch,
        moved: TensorBox::Tile { size: [1; 5] },
        strides,
        swizzle,
        nan: c.fill == 1,
    })
}

/// Whether rows of so many bytes can be moved.
fn check_row(map: &TensorMap, elements: u32) -> CuResult {
    let bytes = u64::from(elements * map.element.bytes());
    if !bytes.is_multiple_of(16) {
        return invalid(&format!(
            "rows of `{bytes}` bytes of the box are not a multiple of 16"
        ));
    }
    let span = map.swizzle.span();
    if span != 0 && bytes > span {
        return invalid(&format!(
            "rows of `{bytes}` bytes of the box do not fit the swizzle's `{span}`"
        ));
    }
    Ok(())
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn finish(to: *mut Encoded, map: &TensorMap) -> CuResult {
    if to as usize & 63 != 0 {
        return invalid("the CUtensorMap is not aligned to 64 bytes");
    }
    // SAFETY: the caller's pointer.
    unsafe { crate::state::put(to, Encoded(map.encode())) }
}

#[expect(clippy::too_many_arguments, reason = "the signature is CUDA's")]
pub(crate) unsafe fn encode_tiled(
    to: *mut Encoded,
    element: u32,
    rank: u32,
    address: *mut c_void,
    size: *const u64,
    pitch: *const u64,
    moved: *const u32,
    strides: *const u32,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CuResult {
    let c = Common {
        element,
        rank,
        address: address as u64,
        size,
        pitch,
        strides,
        interleave,
        swizzle,
        promotion,
        fill,
    };
    // SAFETY: the caller's pointers, as CUDA asks for them; `common` checked the rank.
    unsafe {
        let mut map = common(&c, 1)?;
        let moved = list::<u32, 5>(moved, rank as usize, 1, "boxDim")?;
        if let Some(bad) = moved.iter().find(|&&n| n == 0 || n > 256) {
            return invalid(&format!("a box of `{bad}` elements is not 1 to 256"));
        }
        check_row(&map, moved[0])?;
        map.moved = TensorBox::Tile { size: moved };
        finish(to, &map)
    }
}

#[expect(clippy::too_many_arguments, reason = "the signature is CUDA's")]
pub(crate) unsafe fn encode_im2col(
    to: *mut Encoded,
    element: u32,
    rank: u32,
    address: *mut c_void,
    size: *const u64,
    pitch: *const u64,
    lower: *const c_int,
    upper: *const c_int,
    channels: u32,
    pixels: u32,
    strides: *const u32,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CuResult {
    let c = Common {
        element,
        rank,
        address: address as u64,
        size,
        pitch,
        strides,
        interleave,
        swizzle,
        promotion,
        fill,
    };
    // SAFETY: as above.
    unsafe {
        let mut map = common(&c, 3)?;
        let spatial = rank as usize - 2;
        // The more dimensions, the fewer bits the corners have.
        let most = [32_768, 128, 16][spatial - 1];
        let corner = |from, name| {
            let list = list::<c_int, 3>(from, spatial, 0, name)?;
            match list.iter().find(|&&n| !(-most..most).contains(&n)) {
                Some(bad) => invalid(&format!(
                    "`{name}` of `{bad}` is not {} to {}",
                    -most,
                    most - 1
                )),
                None => Ok(list.map(|n| n as i16)),
            }
        };
        let (lower, upper) = (
            corner(lower, "pixelBoxLowerCorner")?,
            corner(upper, "pixelBoxUpperCorner")?,
        );
        if !(1..=256).contains(&channels) || !(1..=1024).contains(&pixels) {
            return invalid(&format!(
                "`{channels}` channels of `{pixels}` pixels are not 1 to 256 of 1 to 1024"
            ));
        }
        check_row(&map, channels)?;
        map.moved = TensorBox::Im2col {
            lower,
            upper,
            channels,
            pixels,
        };
        finish(to, &map)
    }
}

#[expect(clippy::too_many_arguments, reason = "the signature is CUDA's")]
pub(crate) unsafe fn encode_im2col_wide(
    _to: *mut Encoded,
    _element: u32,
    _rank: u32,
    _address: *mut c_void,
    _size: *const u64,
    _pitch: *const u64,
    _lower: c_int,
    _upper: c_int,
    _channels: u32,
    _pixels: u32,
    _strides: *const u32,
    _interleave: u32,
    _mode: u32,
    _swizzle: u32,
    _promotion: u32,
    _fill: u32,
) -> CuResult {
    unsupported("im2col wide mode needs a device of capability 10.0")
}

pub(crate) unsafe fn replace_address(map: *mut Encoded, address: *mut c_void) -> CuResult {
    if map.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let Some(mut decoded) = TensorMap::decode(unsafe { &(*map).0 }) else {
        return invalid("what is given is no tensor map");
    };
    if address as u64 & 15 != 0 {
        return invalid("the tensor's address is not a multiple of 16");
    }
    decoded.address = address as u64;
    // SAFETY: as above.
    unsafe { finish(map, &decoded) }
}
