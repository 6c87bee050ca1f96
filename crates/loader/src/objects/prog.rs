//! A program of the tool.

use std::sync::Arc;

use warpbpf_object::{LoadedLine, TypeId};

use crate::objects::proved::Proved;

/// What bpftime's GPU programs are told by.
pub const BPFTIME_PREFIX: &str = "cuda__";

/// An instruction that names a map, by place in the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Slot.
    pub slot: u32,
    /// The map.
    pub map: usize,
    /// Byte offset in its value, if that is meant.
    pub offset: Option<u32>,
}

/// A program.
#[derive(Debug, Clone)]
pub struct Prog {
    /// Number of `enum bpf_prog_type`.
    pub kind: u32,
    /// Name as libbpf shortened it.
    pub short_name: String,
    /// Name of the C function, from the types if there are any.
    pub name: String,
    /// Text of the licence.
    pub license: String,
    /// Instructions, descriptors in them as they were.
    pub code: Vec<u8>,
    /// Where maps are named.
    pub references: Vec<Reference>,
    /// Maps that it holds without naming them (`BPF_PROG_BIND_MAP`).
    pub bound: Vec<usize>,
    /// Its types, by place.
    pub btf: Option<usize>,
    /// First slot and type of each function.
    pub functions: Vec<(u32, TypeId)>,
    /// Source lines.
    pub lines: Vec<LoadedLine>,
    /// Its section, if it came by our handler of `gpu/`.
    pub section: Option<String>,
    /// Linux has it and runs it.
    pub in_linux: bool,
    /// As it was proved when it was last tried.
    pub(crate) tried: Option<Arc<Proved>>,
}

impl Prog {
    /// All maps that it holds, some twice.
    pub fn all_maps(&self) -> impl Iterator<Item = usize> + '_ {
        let named = self.references.iter().map(|reference| reference.map);
        named.chain(self.bound.iter().copied())
    }

    /// It is for a GPU, wherever it is attached.
    pub(crate) fn is_for_gpu(&self) -> bool {
        self.section.is_some() || self.name.starts_with(BPFTIME_PREFIX)
    }

    /// The section that it is proved for before anybody attaches it.
    pub(crate) fn likely_section(&self) -> &str {
        self.section.as_deref().unwrap_or("gpu/entry/*")
    }
}

/// Programs by place, each with the section that it is in.
pub type Programs = Vec<(usize, String)>;
