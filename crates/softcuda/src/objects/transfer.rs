//! Copies of rows, slices and boxes of bytes.

use crate::objects::handle::Handle;

/// `CU_MEMORYTYPE_ARRAY`, `CU_MEMORYTYPE_UNIFIED`
const ARRAY: u32 = 3;
pub(crate) const UNIFIED: u32 = 4;

/// Where bytes are. Mapped host memory is the host's: it has one address for both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Arena(u64),
    Host(u64),
}

impl Place {
    pub(crate) fn address(self) -> u64 {
        match self {
            Place::Arena(address) | Place::Host(address) => address,
        }
    }

    pub(crate) fn add(self, offset: u64) -> Place {
        match self {
            Place::Arena(address) => Place::Arena(address.wrapping_add(offset)),
            Place::Host(address) => Place::Host(address.wrapping_add(offset)),
        }
    }
}

/// One side of a copy in rows and slices.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) start: Place,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// Width in bytes, rows, slices.
pub(crate) type Extent = [u64; 3];

/// A copy whose sides were looked up.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    /// What the program asked for.
    pub description: Copy3d,
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) extent: Extent,
}

impl Transfer {
    /// Bytes in a row, between places that were looked up.
    pub(crate) fn row(to: Place, from: Place, bytes: u64) -> Transfer {
        let side = |start: Place| Side {
            start,
            pitch: bytes,
            slice: bytes,
        };
        let end = |place: Place| (UNIFIED, place.address(), bytes as usize, 1, [0; 3]);
        Transfer {
            description: Copy3d::between(end(from), end(to), [bytes as usize, 1, 1]),
            to: side(to),
            from: side(from),
            extent: [bytes, 1, 1],
        }
    }

    /// Both are between the same kinds of memory.
    pub(crate) fn like(&self, other: &Transfer) -> bool {
        let kinds =
            |t: &Transfer| [t.to.start, t.from.start].map(|place| matches!(place, Place::Arena(_)));
        kinds(self) == kinds(other)
    }
}

/// `CUDA_MEMCPY3D`; host pointers as addresses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3d {
    pub(crate) from_x: usize,
    pub(crate) from_y: usize,
    pub(crate) from_z: usize,
    pub(crate) from_lod: usize,
    pub(crate) from_type: u32,
    pub(crate) from_host: u64,
    pub(crate) from_device: u64,
    pub(crate) from_array: Handle,
    pub(crate) from_reserved: usize,
    pub(crate) from_pitch: usize,
    pub(crate) from_height: usize,
    pub(crate) to_x: usize,
    pub(crate) to_y: usize,
    pub(crate) to_z: usize,
    pub(crate) to_lod: usize,
    pub(crate) to_type: u32,
    pub(crate) to_host: u64,
    pub(crate) to_device: u64,
    pub(crate) to_array: Handle,
    pub(crate) to_reserved: usize,
    pub(crate) to_pitch: usize,
    pub(crate) to_height: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// One side of a copy of boxes: memory type, address, pitch, rows per slice, position.
pub type BoxSide = (u32, u64, usize, usize, [usize; 3]);

impl Copy3d {
    pub(crate) fn is_empty(&self) -> bool {
        [self.width, self.height, self.depth].contains(&0)
    }

    /// A copy of a box of `[width in bytes, height, depth]`.
    pub fn between(
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
            from_host: from,
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
            to_host: to,
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

    /// The same from an array.
    pub(crate) fn with_source(self, from_array: Handle) -> Copy3d {
        Copy3d {
            from_type: ARRAY,
            from_array,
            ..self
        }
    }

    /// The same to an array.
    pub(crate) fn with_target(self, to_array: Handle) -> Copy3d {
        Copy3d {
            to_type: ARRAY,
            to_array,
            ..self
        }
    }
}
