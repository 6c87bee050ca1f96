//! Instructions on textures and surfaces.

use super::operand::{Address, Row};

/// What the coordinates of an instruction name: `.1d`, `.2d`, `.3d` and the layered ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub dimensions: usize,
    pub layered: bool,
}

impl Geometry {
    pub(crate) fn name(self) -> String {
        let layered = if self.layered { "a" } else { "" };
        format!(".{layered}{}d", self.dimensions)
    }
}

/// An instruction on a texture or surface.
#[derive(Debug)]
pub(crate) struct ImageOp {
    pub object: Address,
    pub access: ImageAccess,
}

#[derive(Debug)]
pub(crate) enum ImageAccess {
    /// `tex`
    Sample {
        d: [Row; 4],
        geometry: Geometry,
        /// The layer first, if there is one.
        coordinates: Box<[Row]>,
        integers: bool,
    },
    /// `tld4`
    Gather {
        d: [Row; 4],
        component: usize,
        coordinates: [Row; 2],
    },
    /// `suld` and `sust`
    Surface {
        load: bool,
        rows: Box<[Row]>,
        bytes: u32,
        geometry: Geometry,
        coordinates: Box<[Row]>,
        boundary: Boundary,
    },
    /// `txq` and `suq`
    Query {
        d: Row,
        what: Question,
        surface: bool,
    },
}

/// What `txq` and `suq` tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Width, height, depth.
    Size(usize),
    Layers,
    Levels,
    Samples,
    Normalised,
}

/// What an access beyond the ends does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// Stops the kernel.
    Trap,
    /// Goes to the nearest place.
    Clamp,
    /// Reads zero, writes nothing.
    Zero,
}
