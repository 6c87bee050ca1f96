//! Copies of boxes of a tensor, as its tensor map describes them.

use super::target::{GRAIN, put, targets};
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::bulk::{Direction, Place, Reduction, TensorCopy};
use crate::op::operand::{AtomicOp, Row, Space, Type};
use crate::position::Position;
use crate::tensor_map::{TENSOR_MAP_BYTES, TensorBox, TensorMap};
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::Warp;
use crate::worker::Worker;

/// Shared memory's side of a tensor copy has to be this much aligned.
const ALIGNMENT: u32 = 128;
const MAP_ALIGNMENT: u32 = 64;

/// One element's places.
struct Element {
    /// In global memory; `None` outside of the tensor.
    global: Option<u64>,
    /// From the start of the box in shared memory.
    shared: u64,
}

impl Worker<'_> {
    pub(super) fn tensor_copy(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        lane: usize,
        copy: &TensorCopy,
    ) -> Exec<()> {
        let bad = |kind, message: String| Err(Fault::new(lane as u32, kind, message));
        let map = self.tensor_map(env, warp, at, lane, copy.map)?;
        let number = |row: &Row| i64::from(warp.row(at.base, *row)[lane].get() as i32);
        let coordinates: Vec<i64> = copy.coordinates.iter().map(number).collect();
        let offsets: Vec<i64> = copy
            .offsets
            .iter()
            .map(|row| number(row) & 0xffff)
            .collect();
        if coordinates.len() != map.rank as usize {
            let message = format!(
                "a tensor copy with {} coordinates by a tensor map of {} dimensions",
                coordinates.len(),
                map.rank
            );
            return bad(TrapKind::InvalidDescriptor, message);
        }
        // What the H200 does not do: it raises an illegal instruction.
        let first = coordinates[0] * i64::from(map.element.bytes());
        if first.rem_euclid(16) != 0 {
            let message = format!(
                "a tensor copy from element {} of the first dimension: that is byte {first}, which is not a multiple \
                 of 16",
                coordinates[0]
            );
            return bad(TrapKind::InvalidDescriptor, message);
        }
        if copy.direction != Direction::Load
            && let Some(below) = coordinates.iter().find(|&&at| at < 0)
        {
            let message = format!(
                "a tensor copy to coordinate {below}: only loads may begin before the tensor does"
            );
            return bad(TrapKind::InvalidDescriptor, message);
        }
        if matches!(map.moved, TensorBox::Im2col { .. }) != copy.im2col {
            let mode = |im2col| if im2col { "im2col" } else { "tile" };
            let message = format!(
                "a tensor copy in {} mode by a tensor map for {} mode",
                mode(copy.im2col),
                mode(!copy.im2col)
            );
            return bad(TrapKind::InvalidDescriptor, message);
        }
        let reduce = match copy.direction {
            Direction::Load | Direction::Store => None,
            Direction::Reduce(op) => match map.element.reduction().and_then(|ty| fits(op, ty)) {
                Some(ty) => Some(Reduction {
                    op,
                    ty,
                    flush: map.element.flushes(),
                }),
                None => {
                    let message = format!(
                        "a tensor reduction by {op:?} of elements of type {}, which has none",
                        map.element.name()
                    );
                    return bad(TrapKind::InvalidDescriptor, message);
                }
            },
        };
        let start = copy.shared.1.of(warp, at, lane);
        if start & u64::from(ALIGNMENT - 1) != 0 {
            let kind = TrapKind::Misaligned {
                address: start,
                bytes: ALIGNMENT,
            };
            let message = format!("misaligned tensor copy at shared address {start:#x}");
            return bad(kind, message);
        }
        let width = map.element.bytes();
        let Some(elements) = elements(&map, &coordinates, &offsets) else {
            let message = "a tensor copy of a box that is larger than shared memory".to_owned();
            return bad(TrapKind::InvalidDescriptor, message);
        };
        let bytes = elements.len() as u32 * width;
        for target in targets(env, warp, at, lane, copy.multicast)? {
            let start = target.address(start);
            let mut rest = &elements[..];
            while let Some(element) = rest.first() {
                let whole =
                    reduce.is_none() && map.element.is_copied() && in_one_piece(rest, width);
                let (bytes, count) = if whole {
                    (GRAIN, (GRAIN / width) as usize)
                } else {
                    (width, 1)
                };
                rest = &rest[count..];
                let reach = |space, address, access| Reach {
                    space,
                    address,
                    bytes,
                    access,
                };
                let place = map.swizzle.apply(start + element.shared);
                match (copy.direction, element.global) {
                    (Direction::Load, None) => {
                        let value = if map.nan { map.element.nan() } else { 0 };
                        let reach = reach(copy.shared.0, place, "store");
                        let to = self.pointer(env, warp, lane, reach)?;
                        // SAFETY: `pointer` checked bounds and alignment.
                        unsafe { memory::store(to, width, value) };
                    }
                    (Direction::Load, Some(global)) => {
                        let from = reach(Space::Global, global, "load");
                        let from = self.pointer(env, warp, lane, from)?;
                        let to = reach(copy.shared.0, place, "store");
                        let to = self.pointer(env, warp, lane, to)?;
                        // SAFETY: as above, for the piece or the element.
                        unsafe {
                            if whole {
                                copy_piece(to, from);
                            } else {
                                let value = map.element.loaded(memory::load(from, width));
                                memory::store(to, width, value);
                            }
                        }
                    }
                    (Direction::Store | Direction::Reduce(_), None) => {}
                    (Direction::Store | Direction::Reduce(_), Some(global)) => {
                        let from = reach(copy.shared.0, place, "load");
                        let from = self.pointer(env, warp, lane, from)?;
                        let access = if reduce.is_some() { "atomic" } else { "store" };
                        let to = reach(Space::Global, global, access);
                        let to = self.pointer(env, warp, lane, to)?;
                        // SAFETY: as above.
                        unsafe {
                            if whole {
                                copy_piece(to, from);
                            } else {
                                put(to, width, memory::load(from, width), reduce);
                            }
                        }
                    }
                }
            }
            if let Some(barrier) = copy.barrier {
                self.complete(env, warp, at, lane, barrier, target, bytes)?;
            }
        }
        Ok(())
    }

    /// Reads a tensor map: of a parameter, of constant or of global memory.
    fn tensor_map(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        lane: usize,
        (space, address): Place,
    ) -> Exec<TensorMap> {
        let start = address.of(warp, at, lane);
        if start & u64::from(MAP_ALIGNMENT - 1) != 0 {
            let kind = TrapKind::Misaligned {
                address: start,
                bytes: MAP_ALIGNMENT,
            };
            let message = format!("misaligned tensor map at {start:#x}");
            return Err(Fault::new(lane as u32, kind, message));
        }
        let mut bytes = [0; TENSOR_MAP_BYTES];
        for (i, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            let reach = Reach {
                space,
                address: start + 8 * i as u64,
                bytes: 8,
                access: "load",
            };
            let from = self.pointer(env, warp, lane, reach)?;
            // SAFETY: `pointer` checked bounds and alignment.
            chunk.copy_from_slice(&unsafe { memory::load(from, 8) }.to_ne_bytes());
        }
        TensorMap::decode(&bytes).ok_or_else(|| {
            let message = format!("there is no tensor map at {start:#x}");
            Fault::new(lane as u32, TrapKind::InvalidDescriptor, message)
        })
    }
}

/// Whether the next elements are 16 bytes in a row on both sides, which no swizzle takes apart.
fn in_one_piece(rest: &[Element], width: u32) -> bool {
    let Some(piece) = rest.get(..(GRAIN / width) as usize) else {
        return false;
    };
    let ([first, ..], [.., last]) = (piece, piece) else {
        return false;
    };
    let far = u64::from(GRAIN - width);
    match (first.global, last.global) {
        (Some(from), Some(to)) => {
            from & u64::from(GRAIN - 1) == 0
                && first.shared & u64::from(GRAIN - 1) == 0
                && to == from.wrapping_add(far)
                && last.shared == first.shared + far
        }
        _ => false,
    }
}

/// # Safety
/// Both must be valid for 16 bytes and multiples of 16.
unsafe fn copy_piece(to: *mut u8, from: *mut u8) {
    for half in [0, 8] {
        // SAFETY: the caller's promise.
        unsafe {
            memory::store(
                to.wrapping_add(half),
                8,
                memory::load(from.wrapping_add(half), 8),
            )
        };
    }
}

/// The type, if the ISA has the operation for it; bitwise operations take signed numbers as bits.
fn fits(op: AtomicOp, ty: Type) -> Option<Type> {
    let ok = match op {
        AtomicOp::Add => ty != Type::S64,
        AtomicOp::Min | AtomicOp::Max => !matches!(ty, Type::F32 | Type::F64),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
            matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64)
        }
        AtomicOp::Increment | AtomicOp::Decrement => ty == Type::U32,
        AtomicOp::Exchange | AtomicOp::CompareAndSwap => false,
    };
    ok.then_some(ty)
}

/// All elements that a copy moves, in the order in which they lie in shared memory; `None` if no
/// shared memory holds so many.
fn elements(map: &TensorMap, coordinates: &[i64], offsets: &[i64]) -> Option<Vec<Element>> {
    match map.moved {
        TensorBox::Tile { size } => tile(map, coordinates, size),
        TensorBox::Im2col {
            lower,
            upper,
            channels,
            pixels,
        } => Some(im2col(
            map,
            coordinates,
            offsets,
            [lower, upper],
            [channels, pixels],
        )),
    }
}

/// The address of an element, if it is in the tensor.
fn global(map: &TensorMap, at: &[i64]) -> Option<u64> {
    let mut address = map.address;
    for (dimension, &at) in at.iter().enumerate() {
        let at = u64::try_from(at).ok()?;
        if at >= map.size[dimension] {
            return None;
        }
        let pitch = match dimension.checked_sub(1) {
            None => u64::from(map.element.bytes()),
            Some(outer) => map.pitch[outer],
        };
        address = address.wrapping_add(at.wrapping_mul(pitch));
    }
    Some(address)
}

/// Bytes from one row to the next in shared memory: with a swizzle, rows lie in spans.
fn row_bytes(map: &TensorMap, elements: u32) -> u64 {
    u64::from(elements * map.element.bytes()).max(map.swizzle.span())
}

fn tile(map: &TensorMap, coordinates: &[i64], size: [u32; 5]) -> Option<Vec<Element>> {
    let rank = map.rank as usize;
    // The innermost dimension has no stride.
    let stride = |d: usize| if d == 0 { 1 } else { map.strides[d] };
    let counts: Vec<u32> = (0..rank).map(|d| size[d].div_ceil(stride(d))).collect();
    let row = row_bytes(map, counts[0]);
    let rows: u64 = counts[1..].iter().map(|&n| u64::from(n)).product();
    if rows.saturating_mul(row) > u64::from(crate::limits::SHARED_PER_SM) {
        return None;
    }
    let mut found = Vec::with_capacity(rows as usize * counts[0] as usize);
    let mut place: Vec<i64> = coordinates.to_vec();
    for number in 0..rows {
        let mut rest = number;
        for d in 1..rank {
            let index = rest % u64::from(counts[d]);
            rest /= u64::from(counts[d]);
            place[d] = coordinates[d] + (index * u64::from(stride(d))) as i64;
        }
        for i in 0..counts[0] {
            place[0] = coordinates[0] + i64::from(i);
            found.push(Element {
                global: global(map, &place),
                shared: number * row + u64::from(i * map.element.bytes()),
            });
        }
    }
    Some(found)
}

/// The pixels of a bounding box from the given one on, row by row and image by image, each at the
/// filter's offset.
fn im2col(
    map: &TensorMap,
    coordinates: &[i64],
    offsets: &[i64],
    [lower, upper]: [[i16; 3]; 2],
    [channels, pixels]: [u32; 2],
) -> Vec<Element> {
    let rank = map.rank as usize;
    let spatial = rank.saturating_sub(2);
    let first = |d: usize| i64::from(lower[d]);
    let last = |d: usize| map.size[d + 1] as i64 - 1 + i64::from(upper[d]);
    let row = row_bytes(map, channels);
    let mut pixel = coordinates.to_vec();
    let mut found = Vec::with_capacity(pixels as usize * channels as usize);
    for number in 0..u64::from(pixels) {
        let mut place = pixel.clone();
        for d in 0..spatial {
            place[d + 1] += offsets.get(d).copied().unwrap_or(0);
        }
        for i in 0..channels {
            place[0] = coordinates[0] + i64::from(i);
            found.push(Element {
                global: global(map, &place),
                shared: number * row + u64::from(i * map.element.bytes()),
            });
        }
        let mut d = 0;
        while d < spatial {
            pixel[d + 1] += i64::from(map.strides[d + 1]);
            if pixel[d + 1] <= last(d) {
                break;
            }
            pixel[d + 1] = first(d);
            d += 1;
        }
        if d == spatial
            && let Some(image) = pixel.last_mut()
        {
            *image += 1;
        }
    }
    found
}
