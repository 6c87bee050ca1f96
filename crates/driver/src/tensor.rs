//! Tensor maps of our own, which nothing is copied by: what the driver makes of known boxes shows
//! how it writes boxes down.

use std::ffi::c_void;

use crate::result::DriverError;
use crate::safe::Driver;

/// 64-bit words of a tensor map.
pub const TENSOR_MAP_WORDS: usize = 16;

/// What a tensor map says of a copy (`cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorShape {
    /// A box, in elements, of which every `strides`-th is taken; innermost dimension first.
    Tile {
        /// 1 to 256 each.
        size: [u32; 5],
        /// 1 to 8 each.
        strides: [u32; 5],
    },
    /// Pixels of an image.
    Im2col {
        /// Elements taken of each pixel, 1 to 256.
        channels: u32,
        /// 1 to 1024.
        pixels: u32,
    },
}

/// As the driver wants it.
#[repr(align(64))]
struct Aligned([u64; TENSOR_MAP_WORDS]);

/// Elements of our tensors in each dimension, as many as a box can have.
const SIZE: [u64; 5] = [256; 5];
/// Bytes between rows and so on, enough for elements of 16 bytes.
const PITCH: [u64; 4] = [1 << 12, 1 << 20, 1 << 28, 1 << 36];
/// Where the tensors would lie; nothing reads there.
const ADDRESS: usize = 1 << 16;

impl Driver {
    /// The words of a tensor map with five dimensions. `element`: number of a
    /// `CUtensorMapDataType`. Needs a current context.
    ///
    /// # Errors
    /// The driver does not take the element's type or the shape: rows must be a multiple of 16
    /// bytes.
    pub fn tensor_map(
        &self,
        element: u32,
        shape: TensorShape,
    ) -> Result<[u64; TENSOR_MAP_WORDS], DriverError> {
        let mut words = Aligned([0; TENSOR_MAP_WORDS]);
        let to = words.0.as_mut_ptr().cast::<c_void>();
        let address = ADDRESS as *mut c_void;
        let (size, pitch) = (SIZE.as_ptr(), PITCH.as_ptr());
        let (call, code) = match shape {
            TensorShape::Tile {
                size: moved,
                strides,
            } => {
                // SAFETY: `to` is aligned and has 128 bytes; the lists have five elements (four
                // between dimensions).
                let code = unsafe {
                    let (moved, strides) = (moved.as_ptr(), strides.as_ptr());
                    (self.api.tensor_map_tiled)(
                        to, element, 5, address, size, pitch, moved, strides, 0, 0, 0, 0,
                    )
                };
                ("cuTensorMapEncodeTiled", code)
            }
            TensorShape::Im2col { channels, pixels } => {
                let (corner, strides) = ([0; 3], [1; 5]);
                // SAFETY: as above; the corners have an element for each of three dimensions.
                let code = unsafe {
                    let (corner, strides) = (corner.as_ptr(), strides.as_ptr());
                    (self.api.tensor_map_im2col)(
                        to, element, 5, address, size, pitch, corner, corner, channels, pixels,
                        strides, 0, 0, 0, 0,
                    )
                };
                ("cuTensorMapEncodeIm2col", code)
            }
        };
        self.check(call, code, || format!("{shape:?} of elements {element}"))?;
        Ok(words.0)
    }
}
