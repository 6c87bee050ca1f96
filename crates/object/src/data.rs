//! Global variables: each data section becomes an array map with one entry that holds all of it.

use std::collections::BTreeMap;

use warpbpf_abi::maps::MapType;

use crate::btf::Btf;
use crate::elf::{Elf, Section};
use crate::error::ObjectError;
use crate::object::{MapDef, MapKind};

/// Largest data section in bytes. A limit, so that a damaged `.bss` size cannot ask for all memory.
pub(crate) const MAX_SECTION: u64 = 64 << 20;

/// `BPF_F_RDONLY_PROG`.
const RDONLY_PROG: u32 = 1 << 7;

/// Appends the maps of all data sections; returns which section became which map.
pub(crate) fn append(
    elf: &Elf<'_>,
    btf: Option<&Btf>,
    maps: &mut Vec<MapDef>,
) -> Result<BTreeMap<usize, u32>, ObjectError> {
    let mut map_of = BTreeMap::new();
    for (index, section) in elf.sections.iter().enumerate() {
        if !is_data(section) {
            continue;
        }
        let read_only = named(section, ".rodata");
        if section.size > MAX_SECTION {
            let (section, size) = (section.name.clone(), section.size);
            return Err(ObjectError::DataTooLarge {
                section,
                size,
                limit: MAX_SECTION,
            });
        }
        if let Some(relocation) = section.relocations.first() {
            return Err(ObjectError::DataRelocation {
                section: section.name.clone(),
                symbol: elf.symbol_label(&elf.symbols[relocation.symbol]),
                offset: relocation.offset,
            });
        }
        let mut image = section.data.to_vec();
        image.resize(section.size as usize, 0);
        let value_type = btf.and_then(|btf| {
            btf.find(&section.name)
                .find(|(_, ty)| matches!(ty, crate::btf::Type::DataSec { .. }))
                .map(|(id, _)| id)
        });
        map_of.insert(index, maps.len() as u32);
        maps.push(MapDef {
            name: section.name.clone(),
            map_type: MapType::Array as u32,
            key_size: 4,
            value_size: section.size as u32,
            max_entries: 1,
            flags: if read_only { RDONLY_PROG } else { 0 },
            kind: MapKind::Data {
                section: section.name.clone(),
                image,
                read_only,
            },
            extra: BTreeMap::new(),
            key_type: None,
            value_type,
            inner: None,
            initial: Vec::new(),
        });
    }
    Ok(map_of)
}

/// Whether a section is named after `base`: `.data`, `.data.mine`.
fn named(section: &Section<'_>, base: &str) -> bool {
    let rest = section.name.strip_prefix(base);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a section holds global variables, or the constants and texts of the compiler.
pub(crate) fn is_data(section: &Section<'_>) -> bool {
    [".rodata", ".data", ".bss"]
        .iter()
        .any(|base| named(section, base))
        && !section.executable
        && section.allocated
        && section.size > 0
}
