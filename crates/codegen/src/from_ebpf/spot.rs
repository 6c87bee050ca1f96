//! An address, and what the proof knows of it.

use warpbpf_verify::Place;

use crate::ir::{Mem, Origin, Value};

/// An address and what the proof knows of it.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub place: Place,
    /// The pointer, and what is added to it. Not used where the place is known to be a variable.
    pub pointer: Value,
    pub off: i32,
}

impl Spot {
    /// The memory class of a value of `map`.
    pub(super) fn map_memory(self, map: u32, sync: bool) -> Mem {
        let origin = Origin {
            map,
            offset: self.place.offset,
        };
        if sync {
            Mem::MapSync(origin)
        } else {
            Mem::Map(origin)
        }
    }

    /// The spot `bytes` further on.
    pub(super) fn plus(self, bytes: i64) -> Spot {
        let step = 1 << bytes.trailing_zeros().min(3);
        Spot {
            place: Place {
                region: self.place.region,
                offset: self.place.offset.map(|o| o + bytes),
                align: self.place.align.min(step),
            },
            pointer: self.pointer,
            off: self.off + bytes as i32,
        }
    }
}
