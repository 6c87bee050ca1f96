//! `suld` and `sust`: bytes of an image by coordinates, the first of which counts bytes.

use super::lane::Lane;
use super::object::Image;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::image::{Boundary, Geometry};
use crate::op::operand::{Row, Space};
use crate::trap::{Exec, Fault, TrapKind};
use crate::worker::Worker;

/// Where an access goes.
#[derive(Clone, Copy)]
pub(super) struct Place<'o> {
    pub geometry: Geometry,
    /// The layer first, if there is one.
    pub coordinates: &'o [Row],
    pub boundary: Boundary,
    pub load: bool,
}

impl Worker<'_> {
    pub(super) fn surface_access(
        &mut self,
        lane: &Lane<'_>,
        image: &Image,
        place: Place<'_>,
        rows: &[Row],
        bytes: u32,
    ) -> Exec<()> {
        let access = if place.load { "load" } else { "store" };
        let (layer, coordinates) = match (place.geometry.layered, place.coordinates) {
            (true, [layer, rest @ ..]) => (i64::from(lane.get(*layer) as i32), rest),
            _ => (0, place.coordinates),
        };
        let wide = bytes * rows.len() as u32;
        let row = u64::from(image.size[0]) * u64::from(image.texel_bytes());
        // The greatest coordinate in each dimension, of which the first is that of the access's
        // first byte.
        let most = |d: usize| match d {
            0 => row as i64 - i64::from(wide),
            d => i64::from(image.size[d]) - 1,
        };
        let mut at = [0i64; 3];
        let mut beyond = false;
        for d in 0..place.geometry.dimensions {
            at[d] = i64::from(lane.get(coordinates[d]) as i32);
            beyond |= !(0..=most(d)).contains(&at[d]);
        }
        let layers = i64::from(image.layers.max(1));
        beyond |= !(0..layers).contains(&layer);
        if at[0].rem_euclid(i64::from(wide)) != 0 {
            let kind = TrapKind::Misaligned {
                address: at[0] as u64,
                bytes: wide,
            };
            let message = format!("misaligned {wide}-byte surface {access} at byte {}", at[0]);
            return Err(Fault::new(lane.lane as u32, kind, message));
        }
        let mut layer = layer;
        if beyond {
            match place.boundary {
                Boundary::Trap => {
                    let kind = TrapKind::OutOfBounds {
                        address: at[0] as u64,
                        bytes: wide,
                        space: "surface",
                        access,
                    };
                    let message = format!(
                        "{wide}-byte {access} at byte {}, row {}, slice {}, layer {layer} is out of bounds: the \
                         surface has rows of {row} bytes, size {:?} and {} layers",
                        at[0], at[1], at[2], image.size, image.layers
                    );
                    return Err(Fault::new(lane.lane as u32, kind, message));
                }
                Boundary::Zero => {
                    if place.load {
                        rows.iter().for_each(|&d| lane.put(d, 0));
                    }
                    return Ok(());
                }
                Boundary::Clamp => {
                    for (d, at) in at.iter_mut().enumerate().take(place.geometry.dimensions) {
                        *at = (*at).min(most(d)).max(0);
                    }
                    layer = layer.clamp(0, layers - 1);
                }
            }
        }
        let address = image.address_of(at.map(|n| n as u64), layer as u64);
        let reach = Reach {
            space: Space::Global,
            address,
            bytes: wide,
            access,
        };
        let pointer = self.pointer(lane.env, lane.warp, lane.lane, reach)?;
        for (i, &row) in rows.iter().enumerate() {
            let pointer = pointer.wrapping_add(i * bytes as usize);
            if place.load {
                // SAFETY: `pointer` checked bounds and alignment of all elements.
                lane.put(row, unsafe { memory::load(pointer, bytes) });
            } else {
                // SAFETY: as above.
                unsafe { memory::store(pointer, bytes, lane.get(row)) };
            }
        }
        Ok(())
    }
}
