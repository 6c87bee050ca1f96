//! A map of the tool.

use warpbpf_object::TypeId;

use crate::objects::contents::Contents;
use crate::objects::extra_cpus::ExtraCpus;
use crate::objects::shadow::Shadow;
use crate::objects::walk::Walk;
use crate::spec::Spec;

/// A map.
#[derive(Debug)]
pub struct Map {
    /// Attributes.
    pub spec: Spec,
    /// Name, as libbpf shortened it.
    pub name: String,
    /// Its types' object, by place.
    pub btf: Option<usize>,
    /// Of a key.
    pub key_type: TypeId,
    /// Of a value.
    pub value_type: TypeId,
    /// User space may not write.
    pub frozen: bool,
    /// What it holds.
    pub contents: Contents,
    /// What of its values per CPU no device has.
    pub extra_cpus: ExtraCpus,
    /// Of a map of maps: the map that all in it are like.
    pub inner: Option<Spec>,
    /// Keys of a walk through the device's map.
    pub(crate) walk: Option<Walk>,
    /// The map of Linux that its programs use.
    pub(crate) shadow: Option<Shadow>,
}

impl Map {
    /// Maps that are in it.
    pub fn held(&self) -> impl Iterator<Item = usize> + '_ {
        let maps = match &self.contents {
            Contents::Maps(maps) => Some(maps),
            _ => None,
        };
        maps.into_iter().flat_map(|maps| maps.values().copied())
    }
}
