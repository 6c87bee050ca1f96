//! Sections that mean one thing in every object: the licence, the version, the types; and those
//! that are refused.

use std::collections::BTreeMap;

use crate::btf::Btf;
use crate::btf_ext::BtfExt;
use crate::elf::{Elf, Place};
use crate::error::{Errors, ObjectError, ObjectErrors};

/// Text of the licence.
pub(crate) fn license(elf: &Elf<'_>) -> Option<String> {
    let data = elf.section("license")?.data;
    let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Number in the `version` section.
pub(crate) fn version(elf: &Elf<'_>) -> Option<u32> {
    let bytes = elf.section("version")?.data.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The first of the sections that no object may have, as an error.
pub(crate) fn refuse_sections(elf: &Elf<'_>) -> Result<(), ObjectError> {
    let mut errors = Errors::default();
    refused_sections(elf, &mut errors);
    errors.end().map_err(ObjectErrors::first)
}

/// Sections that no object may have.
pub(crate) fn refused_sections(elf: &Elf<'_>, errors: &mut Errors) {
    for section in &elf.sections {
        let name = || section.name.clone();
        if section.name == "maps" || section.name.starts_with("maps/") {
            errors.push(ObjectError::LegacyMaps { section: name() });
        }
        let program = section.name.trim_start_matches('?');
        if section.name.starts_with(".struct_ops")
            || program.split(['/', '.']).next() == Some("struct_ops")
        {
            errors.push(ObjectError::StructOps { section: name() });
        }
        if section.name.starts_with(".addr_space.") {
            errors.push(ObjectError::Arena { section: name() });
        }
    }
}

/// The types, and what `.BTF.ext` says of the code.
pub(crate) fn types(elf: &Elf<'_>) -> Result<(Option<Btf>, BtfExt), ObjectError> {
    let ext = elf.section(".BTF.ext");
    let Some(section) = elf.section(".BTF") else {
        return if ext.is_some() {
            Err(ObjectError::ExtWithoutBtf)
        } else {
            Ok((None, BtfExt::default()))
        };
    };
    let mut btf = Btf::parse(section.data).map_err(|error| ObjectError::Btf {
        section: ".BTF",
        error,
    })?;
    for (index, section) in elf.sections.iter().enumerate() {
        if btf.data_section(&section.name).is_none() {
            continue;
        }
        let offsets: BTreeMap<&str, u64> = elf
            .symbols
            .iter()
            .filter(|symbol| symbol.place == Place::Section(index) && !symbol.name.is_empty())
            .map(|symbol| (symbol.name.as_str(), symbol.value))
            .collect();
        let size = u32::try_from(section.size).unwrap_or(u32::MAX);
        btf.place_vars(&section.name, size, |name| {
            u32::try_from(*offsets.get(name)?).ok()
        });
    }
    let ext = match ext {
        Some(ext) => BtfExt::parse(ext.data, &btf).map_err(|error| ObjectError::Btf {
            section: ".BTF.ext",
            error,
        })?,
        None => BtfExt::default(),
    };
    Ok((Some(btf), ext))
}
