//! Tensor maps: what a tensor copy knows of the tensor in global memory and of the box that it
//! moves. A kernel gets one in 128 bytes whose layout is the driver's own; this one is ours, and a
//! mark at its front tells it from other bytes.

use crate::op::operand::Type;

/// Bytes of a tensor map.
pub const TENSOR_MAP_BYTES: usize = 128;
const MARK: &[u8; 8] = b"wbpfTMA1";

/// What a tensor is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the element type of that name")]
pub enum TensorElement {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    /// f32 whose subnormals count as zeroes in additions.
    F32Flushed,
    Tf32,
    /// As tf32.
    Tf32Flushed,
}

impl TensorElement {
    const ALL: [TensorElement; 13] = [
        TensorElement::U8,
        TensorElement::U16,
        TensorElement::U32,
        TensorElement::S32,
        TensorElement::U64,
        TensorElement::S64,
        TensorElement::F16,
        TensorElement::F32,
        TensorElement::F64,
        TensorElement::Bf16,
        TensorElement::F32Flushed,
        TensorElement::Tf32,
        TensorElement::Tf32Flushed,
    ];

    /// The type by its number in `CUtensorMapDataType`.
    pub fn from_number(number: u32) -> Option<TensorElement> {
        TensorElement::ALL.get(number as usize).copied()
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            TensorElement::U8 => 1,
            TensorElement::U16 | TensorElement::F16 | TensorElement::Bf16 => 2,
            TensorElement::U32
            | TensorElement::S32
            | TensorElement::F32
            | TensorElement::F32Flushed
            | TensorElement::Tf32
            | TensorElement::Tf32Flushed => 4,
            TensorElement::U64 | TensorElement::S64 | TensorElement::F64 => 8,
        }
    }

    /// Whether places outside of the tensor can be filled with NaN.
    pub fn is_float(self) -> bool {
        match self {
            TensorElement::F16
            | TensorElement::F32
            | TensorElement::F64
            | TensorElement::Bf16
            | TensorElement::F32Flushed
            | TensorElement::Tf32
            | TensorElement::Tf32Flushed => true,
            TensorElement::U8
            | TensorElement::U16
            | TensorElement::U32
            | TensorElement::S32
            | TensorElement::U64
            | TensorElement::S64 => false,
        }
    }

    /// The name, as the driver's enumeration has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TensorElement::U8 => "UINT8",
            TensorElement::U16 => "UINT16",
            TensorElement::U32 => "UINT32",
            TensorElement::S32 => "INT32",
            TensorElement::U64 => "UINT64",
            TensorElement::S64 => "INT64",
            TensorElement::F16 => "FLOAT16",
            TensorElement::F32 => "FLOAT32",
            TensorElement::F64 => "FLOAT64",
            TensorElement::Bf16 => "BFLOAT16",
            TensorElement::F32Flushed => "FLOAT32_FTZ",
            TensorElement::Tf32 => "TFLOAT32",
            TensorElement::Tf32Flushed => "TFLOAT32_FTZ",
        }
    }

    /// How a reduction sees the element; `None` for types that have none.
    pub(crate) fn reduction(self) -> Option<Type> {
        match self {
            TensorElement::U32 => Some(Type::U32),
            TensorElement::S32 => Some(Type::S32),
            TensorElement::U64 => Some(Type::U64),
            TensorElement::S64 => Some(Type::S64),
            TensorElement::F16 => Some(Type::F16),
            TensorElement::Bf16 => Some(Type::Bf16),
            TensorElement::F32
            | TensorElement::F32Flushed
            | TensorElement::Tf32
            | TensorElement::Tf32Flushed => Some(Type::F32),
            TensorElement::F64 => Some(Type::F64),
            TensorElement::U8 | TensorElement::U16 => None,
        }
    }

    /// Whether a sum takes subnormals for zeroes.
    pub(crate) fn flushes(self) -> bool {
        matches!(self, TensorElement::F32Flushed | TensorElement::Tf32Flushed)
    }

    /// Whether [`TensorElement::loaded`] changes nothing.
    pub(crate) fn is_copied(self) -> bool {
        !matches!(self, TensorElement::Tf32 | TensorElement::Tf32Flushed)
    }

    /// The NaN that stands for places outside of the tensor, as the H200 writes it.
    pub(crate) fn nan(self) -> u64 {
        match self {
            TensorElement::F16 | TensorElement::Bf16 => 0x7ff7,
            TensorElement::F32
            | TensorElement::F32Flushed
            | TensorElement::Tf32
            | TensorElement::Tf32Flushed => 0x7ff7_7ff7,
            TensorElement::F64 => 0x7ff7_7ff7_7ff7_7ff7,
            TensorElement::U8
            | TensorElement::U16
            | TensorElement::U32
            | TensorElement::S32
            | TensorElement::U64
            | TensorElement::S64 => 0,
        }
    }

    /// An element as it arrives in shared memory. Loads flush no subnormals, whatever the type's
    /// name says.
    pub(crate) fn loaded(self, bits: u64) -> u64 {
        match self {
            TensorElement::Tf32 | TensorElement::Tf32Flushed => tf32(bits),
            TensorElement::F32Flushed
            | TensorElement::U8
            | TensorElement::U16
            | TensorElement::U32
            | TensorElement::S32
            | TensorElement::U64
            | TensorElement::S64
            | TensorElement::F16
            | TensorElement::F32
            | TensorElement::F64
            | TensorElement::Bf16 => bits,
        }
    }
}

/// An f32 to the 10 bits of fraction of a tf32, to the nearest, ties to even; there is one NaN.
fn tf32(bits: u64) -> u64 {
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return 0x7fff_e000;
    }
    (bits + 0x0fff + (bits >> 13 & 1)) & 0xffff_e000
}

/// How the 16-byte parts of rows are mixed in shared memory, against conflicts of banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorSwizzle {
    /// Not at all.
    None,
    /// Among 32 bytes.
    Bytes32,
    /// Among 64 bytes.
    Bytes64,
    /// Among 128 bytes.
    Bytes128,
}

impl TensorSwizzle {
    const ALL: [TensorSwizzle; 4] = [
        TensorSwizzle::None,
        TensorSwizzle::Bytes32,
        TensorSwizzle::Bytes64,
        TensorSwizzle::Bytes128,
    ];

    /// The pattern by its number in `CUtensorMapSwizzle`.
    pub fn from_number(number: u32) -> Option<TensorSwizzle> {
        TensorSwizzle::ALL.get(number as usize).copied()
    }

    /// Bytes that are mixed with each other; 0 for none.
    pub fn span(self) -> u64 {
        match self {
            TensorSwizzle::None => 0,
            TensorSwizzle::Bytes32 => 32,
            TensorSwizzle::Bytes64 => 64,
            TensorSwizzle::Bytes128 => 128,
        }
    }

    /// The shared address at which the byte lies that would lie at `address`: bits from 4 on are
    /// flipped by those from 7 on, one, two or three.
    pub(crate) fn apply(self, address: u64) -> u64 {
        let mask = (self.span() >> 4).saturating_sub(1);
        address ^ (address >> 7 & mask) << 4
    }
}

/// Which elements a copy moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorBox {
    /// A box: its size in each dimension, in elements of the tensor, of which every `strides`-th is
    /// taken.
    Tile {
        /// Elements from the first to behind the last.
        size: [u32; 5],
    },
    /// Columns of an image for a convolution: pixels of a bounding box, in the order of their
    /// numbers.
    Im2col {
        /// Of the bounding box's corners against the tensor's, by dimension from the second on.
        lower: [i16; 3],
        /// As above, for the upper corner.
        upper: [i16; 3],
        /// Elements of the first dimension that are taken of a pixel.
        channels: u32,
        /// Pixels that are taken.
        pixels: u32,
    },
}

/// A tensor map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// First byte of the tensor in global memory.
    pub address: u64,
    /// Its elements.
    pub element: TensorElement,
    /// Its dimensions, 1 to 5.
    pub rank: u32,
    /// Elements in each, innermost first; 1 to 2³².
    pub size: [u64; 5],
    /// Bytes from one to the next of the second dimension and so on.
    pub pitch: [u64; 4],
    /// What is moved.
    pub moved: TensorBox,
    /// Every how many-th element of a dimension is taken.
    pub strides: [u32; 5],
    /// Its place in shared memory.
    pub swizzle: TensorSwizzle,
    /// Places outside of the tensor are read as NaN rather than zero.
    pub nan: bool,
}

impl TensorMap {
    /// The 128 bytes.
    pub fn encode(&self) -> [u8; TENSOR_MAP_BYTES] {
        let mut out = Vec::with_capacity(TENSOR_MAP_BYTES);
        out.extend_from_slice(MARK);
        out.extend_from_slice(&self.address.to_le_bytes());
        let position = |found: Option<usize>| found.map_or(u8::MAX, |n| n as u8);
        out.push(position(
            TensorElement::ALL.iter().position(|&e| e == self.element),
        ));
        out.push(position(
            TensorSwizzle::ALL.iter().position(|&s| s == self.swizzle),
        ));
        out.push(self.rank as u8);
        out.push(u8::from(self.nan));
        for size in self.size {
            out.extend_from_slice(&(size.wrapping_sub(1) as u32).to_le_bytes());
        }
        for pitch in self.pitch {
            out.extend_from_slice(&pitch.to_le_bytes());
        }
        out.extend(self.strides.map(|stride| stride as u8));
        match self.moved {
            TensorBox::Tile { size } => {
                out.push(0);
                out.extend(size.iter().flat_map(|&n| (n as u16).to_le_bytes()));
            }
            TensorBox::Im2col {
                lower,
                upper,
                channels,
                pixels,
            } => {
                out.push(1);
                out.extend(lower.iter().chain(&upper).flat_map(|n| n.to_le_bytes()));
                out.extend_from_slice(&(channels as u16).to_le_bytes());
                out.extend_from_slice(&(pixels as u16).to_le_bytes());
            }
        }
        let mut bytes = [0; TENSOR_MAP_BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        bytes
    }

    /// What [`TensorMap::encode`] made; `None` for other bytes.
    pub fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Option<TensorMap> {
        let mut rest = bytes.strip_prefix(MARK.as_slice())?;
        let address = u64::from_le_bytes(take(&mut rest)?);
        let [element, swizzle, rank, nan] = take(&mut rest)?;
        let mut size = [0; 5];
        for size in &mut size {
            *size = u64::from(u32::from_le_bytes(take(&mut rest)?)) + 1;
        }
        let mut pitch = [0; 4];
        for pitch in &mut pitch {
            *pitch = u64::from_le_bytes(take(&mut rest)?);
        }
        let strides = take::<5>(&mut rest)?.map(u32::from);
        let [kind] = take(&mut rest)?;
        let mut word = || take(&mut rest).map(i16::from_le_bytes);
        let moved = if kind == 0 {
            let mut size = [0; 5];
            for size in &mut size {
                *size = u32::from(word()? as u16);
            }
            TensorBox::Tile { size }
        } else {
            let mut corners = [0; 6];
            for corner in &mut corners {
                *corner = word()?;
            }
            let [a, b, c, d, e, f] = corners;
            TensorBox::Im2col {
                lower: [a, b, c],
                upper: [d, e, f],
                channels: u32::from(word()? as u16),
                pixels: u32::from(word()? as u16),
            }
        };
        let map = TensorMap {
            address,
            element: TensorElement::from_number(u32::from(element))?,
            rank: u32::from(rank),
            size,
            pitch,
            moved,
            strides,
            swizzle: TensorSwizzle::from_number(u32::from(swizzle))?,
            nan: nan == 1,
        };
        // A kernel can have changed the bytes: what the copies divide by or index with is checked
        // here.
        let sane = (1..=5).contains(&map.rank) && !map.strides.contains(&0);
        sane.then_some(map)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, more) = rest.split_first_chunk::<N>()?;
    *rest = more;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_hold_all_of_it() {
        let tile = TensorMap {
            address: 0x0a00_1234_5670,
            element: TensorElement::Bf16,
            rank: 5,
            size: [1 << 32, 1, 77, 3, 65_536],
            pitch: [16, 1 << 39, 48, 64],
            moved: TensorBox::Tile {
                size: [256, 1, 7, 2, 256],
            },
            strides: [1, 8, 2, 3, 1],
            swizzle: TensorSwizzle::Bytes64,
            nan: true,
        };
        assert_eq!(TensorMap::decode(&tile.encode()), Some(tile));
        let column = TensorMap {
            moved: TensorBox::Im2col {
                lower: [-128, 3, -1],
                upper: [0, -5, 127],
                channels: 256,
                pixels: 1024,
            },
            nan: false,
            ..tile
        };
        assert_eq!(TensorMap::decode(&column.encode()), Some(column));
    }

    #[test]
    fn other_bytes_are_no_map() {
        assert_eq!(TensorMap::decode(&[0; 128]), None);
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(MARK);
        assert_eq!(TensorMap::decode(&bytes), None, "rank 0");
        bytes[16] = 99;
        bytes[18] = 2;
        assert_eq!(TensorMap::decode(&bytes), None, "no such element");
    }

    #[test]
    fn tf32_as_the_h200_loads_it() {
        for (from, to) in [
            (0x3f80_0fff, 0x3f80_0000),
            (0x3f80_1000, 0x3f80_0000),
            (0x3f80_3000, 0x3f80_4000),
            (0xbf80_2fff, 0xbf80_2000),
            (0x0000_0001, 0),
            (0x007f_ffff, 0x0080_0000),
            (0x7f80_0001, 0x7fff_e000),
            (0x7f80_0000, 0x7f80_0000),
            (0x7f7f_ffff, 0x7f80_0000),
        ] {
            assert_eq!(TensorElement::Tf32.loaded(from), to, "{from:#x}");
            assert_eq!(TensorElement::F32Flushed.loaded(from), from);
        }
    }

    #[test]
    fn swizzles_flip_the_documented_bits() {
        let of = |swizzle: TensorSwizzle, address| swizzle.apply(address);
        assert_eq!(of(TensorSwizzle::None, 0x3f8), 0x3f8);
        assert_eq!(of(TensorSwizzle::Bytes32, 0x380), 0x390);
        assert_eq!(of(TensorSwizzle::Bytes64, 0x388), 0x3b8);
        assert_eq!(of(TensorSwizzle::Bytes128, 0x3f4), 0x384);
        assert_eq!(of(TensorSwizzle::Bytes128, 0x410), 0x410);
    }
}
