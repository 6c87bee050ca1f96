//! Textures and surfaces of a device, and the numbers that name them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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

    pub(super) fn dimensions(&self) -> usize {
        self.size.iter().take_while(|&&n| n > 0).count()
    }

    pub(super) fn address_of(&self, [x, y, z]: [u64; 3], layer: u64) -> u64 {
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
    /// The image repeats, every other time backwards; of normalised coordinates only, else as
    /// `Clamp`.
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

    pub(super) fn get(&mut self, handle: u64) -> Option<&Object> {
        if self.last.as_ref().is_none_or(|&(last, _)| last != handle) {
            self.last = self.registry.get(handle).map(|object| (handle, object));
        }
        self.last.as_ref().map(|(_, object)| object)
    }
}
