//! Textures and surfaces: memory that is read and written by coordinates. An object is a number that a kernel gets as a
//! parameter; what it stands for is kept here.
//!
//! # What is exact and what is not
//! Points are exact, and so are addressing modes, borders and conversions to normalised numbers. The weights of linear
//! filters have 8 bits and are those of the H200, measured; the weighted sum is exact here before it is rounded to f32,
//! where a GPU has roundings of its own: results agree wherever the sum has few bits. A texture of one dimension with a
//! linear filter ignores the modes of the others, where the H200 mixes in half of the border if the second says so.

mod gather;
mod sample;
mod surface;

pub(crate) use surface::Boundary;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::block::Env;
use crate::op::{Address, NOWHERE, Row};
use crate::sched::Worker;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Position, Warp, lanes};

/// What a channel of a texel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// f16 or f32.
    Float,
}

/// Where texels lie, which is also what a texture does beyond its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSource {
    /// An array, or rows with a pitch.
    Array,
    /// Bytes in a row: read by number, and zero beyond the end.
    Linear,
}

/// Texels in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// First byte.
    pub address: u64,
    /// Where from.
    pub source: ImageSource,
    /// What a channel is.
    pub kind: Channels,
    /// Bits of a channel: 8, 16 or 32.
    pub bits: u32,
    /// Channels: 1, 2 or 4.
    pub channels: u32,
    /// Texels in each dimension; 0 for one that is not there.
    pub size: [u32; 3],
    /// Layers, 0 if it has none.
    pub layers: u32,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Bytes from slice to slice, or layer to layer.
    pub slice: u64,
}

/// What sort of object a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// Read by `tex` and `tld4`.
    Texture,
    /// Read by `suld`, written by `sust`.
    Surface,
}

impl Image {
    /// Bytes of a texel.
    pub fn texel_bytes(&self) -> u32 {
        self.bits / 8 * self.channels
    }

    fn dimensions(&self) -> usize {
        self.size.iter().take_while(|&&n| n > 0).count()
    }

    fn address_of(&self, [x, y, z]: [u64; 3], layer: u64) -> u64 {
        self.address
            .wrapping_add(x)
            .wrapping_add(y.wrapping_mul(self.pitch))
            .wrapping_add((z + layer).wrapping_mul(self.slice))
    }
}

/// What a coordinate beyond the ends means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The image repeats; of normalised coordinates only, else as `Clamp`.
    Wrap,
    /// The last texel.
    Clamp,
    /// The image repeats, every other time backwards; of normalised coordinates only, else as `Clamp`.
    Mirror,
    /// The border's colour.
    Border,
}

/// A texture: an image and how it is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Texture {
    /// Its texels.
    pub image: Image,
    /// By dimension.
    pub modes: [AddressMode; 3],
    /// Linear filtering rather than the nearest texel.
    pub linear: bool,
    /// Integers of 8 and 16 bits are read as numbers from 0 (or -1) to 1.
    pub as_float: bool,
    /// Coordinates go from 0 to 1.
    pub normalised: bool,
    /// The border's colour.
    pub border: [f32; 4],
}

/// What an object's number stands for.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Texture(Arc<Texture>),
    Surface(Arc<Image>),
}

/// The objects of a device.
#[derive(Default)]
pub(crate) struct Registry {
    live: RwLock<HashMap<u64, Object>>,
    last: AtomicU64,
}

impl Registry {
    /// Numbers of objects begin behind `first`, so that those of several devices are told apart.
    pub(crate) fn behind(first: u64) -> Registry {
        Registry {
            last: AtomicU64::new(first),
            ..Registry::default()
        }
    }

    pub(crate) fn add(&self, object: Object) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.insert(handle, object);
        handle
    }

    pub(crate) fn remove(&self, handle: u64, kind: ImageKind) -> bool {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let found = match live.get(&handle) {
            Some(Object::Texture(_)) => kind == ImageKind::Texture,
            Some(Object::Surface(_)) => kind == ImageKind::Surface,
            None => false,
        };
        found && live.remove(&handle).is_some()
    }

    fn get(&self, handle: u64) -> Option<Object> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle).cloned()
    }
}

/// A worker's view of the objects, with the last one it used: a kernel has few.
pub(crate) struct Lookup<'l> {
    registry: &'l Registry,
    last: Option<(u64, Object)>,
}

impl<'l> Lookup<'l> {
    pub(crate) fn new(registry: &'l Registry) -> Lookup<'l> {
        Lookup {
            registry,
            last: None,
        }
    }

    fn get(&mut self, handle: u64) -> Option<&Object> {
        if self.last.as_ref().is_none_or(|&(last, _)| last != handle) {
            self.last = self.registry.get(handle).map(|object| (handle, object));
        }
        self.last.as_ref().map(|(_, object)| object)
    }
}

impl crate::Gpu {
    /// A texture object: the number that kernels name it by, never 0 and never used again. Its memory stays the
    /// caller's.
    pub fn add_texture(&self, texture: Texture) -> u64 {
        self.device.images.add(Object::Texture(Arc::new(texture)))
    }

    /// A surface object, as [`Gpu::add_texture`](crate::Gpu::add_texture) makes a texture object.
    pub fn add_surface(&self, image: Image) -> u64 {
        self.device.images.add(Object::Surface(Arc::new(image)))
    }

    /// Forgets an object; false if there is none of that number and kind.
    pub fn remove_image(&self, object: u64, kind: ImageKind) -> bool {
        self.device.images.remove(object, kind)
    }
}

/// What the coordinates of an instruction name: `.1d`, `.2d`, `.3d` and the layered ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub dimensions: usize,
    pub layered: bool,
}

impl Geometry {
    fn name(self) -> String {
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

/// One lane of an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'w> {
    pub env: &'w Env,
    pub warp: &'w Warp,
    pub at: Position,
    pub lane: usize,
}

impl Lane<'_> {
    fn get(&self, row: Row) -> u64 {
        self.warp.row(self.at.base, row)[self.lane].get()
    }

    fn put(&self, row: Row, value: u64) {
        if row != NOWHERE {
            self.warp.row(self.at.base, row)[self.lane].set(value);
        }
    }

    fn wrong(&self, message: String) -> Box<Fault> {
        Fault::new(self.lane as u32, TrapKind::InvalidDescriptor, message)
    }
}

impl Worker<'_> {
    pub(crate) fn image(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        op: &ImageOp,
    ) -> Exec<()> {
        self.view.refresh();
        for lane in lanes(active) {
            let object = op.object.of(warp, at, lane);
            let lane = Lane {
                env,
                warp,
                at,
                lane,
            };
            match &op.access {
                ImageAccess::Sample {
                    d,
                    geometry,
                    coordinates,
                    integers,
                } => {
                    let texture = self.texture(&lane, object)?;
                    fits(&lane, &texture.image, *geometry, "texture")?;
                    let texel = self.sample(&lane, &texture, *geometry, coordinates, *integers)?;
                    for (&d, value) in d.iter().zip(texel) {
                        lane.put(d, u64::from(value));
                    }
                }
                ImageAccess::Gather {
                    d,
                    component,
                    coordinates,
                } => {
                    let texture = self.texture(&lane, object)?;
                    let geometry = Geometry {
                        dimensions: 2,
                        layered: false,
                    };
                    fits(&lane, &texture.image, geometry, "texture")?;
                    let four = self.gather(&lane, &texture, *component, *coordinates)?;
                    for (&d, value) in d.iter().zip(four) {
                        lane.put(d, u64::from(value));
                    }
                }
                ImageAccess::Surface {
                    load,
                    rows,
                    bytes,
                    geometry,
                    coordinates,
                    boundary,
                } => {
                    let image = self.surface(&lane, object)?;
                    fits(&lane, &image, *geometry, "surface")?;
                    let place = surface::Place {
                        geometry: *geometry,
                        coordinates,
                        boundary: *boundary,
                        load: *load,
                    };
                    self.surface_access(&lane, &image, place, rows, *bytes)?;
                }
                ImageAccess::Query { d, what, surface } => {
                    let value = if *surface {
                        answer(*what, &*self.surface(&lane, object)?, false)
                    } else {
                        let texture = self.texture(&lane, object)?;
                        answer(*what, &texture.image, texture.normalised)
                    };
                    lane.put(*d, u64::from(value));
                }
            }
        }
        Ok(())
    }

    fn texture(&mut self, lane: &Lane<'_>, object: u64) -> Exec<Arc<Texture>> {
        match self.images.get(object) {
            Some(Object::Texture(texture)) => Ok(Arc::clone(texture)),
            Some(Object::Surface(_)) => {
                Err(lane.wrong(format!("object {object:#x} is a surface, not a texture")))
            }
            None => Err(lane.wrong(format!("there is no texture object {object:#x}"))),
        }
    }

    fn surface(&mut self, lane: &Lane<'_>, object: u64) -> Exec<Arc<Image>> {
        match self.images.get(object) {
            Some(Object::Surface(image)) => Ok(Arc::clone(image)),
            Some(Object::Texture(_)) => {
                Err(lane.wrong(format!("object {object:#x} is a texture, not a surface")))
            }
            None => Err(lane.wrong(format!("there is no surface object {object:#x}"))),
        }
    }
}

fn answer(what: Question, image: &Image, normalised: bool) -> u32 {
    match what {
        Question::Size(dimension) => image.size[dimension],
        Question::Layers => image.layers,
        Question::Levels => 1,
        Question::Samples => 0,
        Question::Normalised => u32::from(normalised),
    }
}

/// The instruction's geometry must be the image's.
fn fits(lane: &Lane<'_>, image: &Image, geometry: Geometry, what: &str) -> Exec<()> {
    let own = Geometry {
        dimensions: image.dimensions(),
        layered: image.layers > 0,
    };
    if own == geometry {
        return Ok(());
    }
    Err(lane.wrong(format!(
        "`{}` access to a `{}` {what}",
        geometry.name(),
        own.name()
    )))
}
