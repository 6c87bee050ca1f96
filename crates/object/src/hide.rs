//! An object without some of its programs and maps: those that another machine runs, or Linux.
//!
//! The bytes of the object change in place, nothing else: a program's symbol becomes a local one,
//! so that its function is an entry point no more, and a map's variable an external one, which
//! means nothing as long as no code names it. So whoever loads the object afterwards, here or in
//! another process, sees the same.

use std::collections::BTreeMap;

use crate::btf::{Btf, BtfError, Type};
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::read::Reader;
use crate::sections;

/// Bytes of a symbol, and where its binding and type stand in it.
const SYMBOL: usize = 24;
const SYMBOL_INFO: usize = 4;
/// `SHT_SYMTAB`
const SYMTAB: u32 = 2;
/// `BTF_VAR_GLOBAL_EXTERN`
const EXTERN: u32 = 2;
/// Bytes of a variable's linkage, which is the last that there is of it.
const LINKAGE: usize = 4;

/// The object without these programs, by the names of their C functions, and without these declared
/// maps. No program that is left may name one of the maps.
///
/// # Errors
/// [`ObjectError`]: the object cannot be read. No input makes it panic.
pub fn hide(bytes: &[u8], programs: &[&str], maps: &[&str]) -> Result<Vec<u8>, ObjectError> {
    let mut out = bytes.to_vec();
    let elf = Elf::parse(bytes)?;
    let (btf, _) = sections::types(&elf)?;
    if let Some(table) = elf.sections.iter().find(|section| section.kind == SYMTAB) {
        for (number, symbol) in elf.symbols.iter().enumerate() {
            if symbol.function && programs.contains(&symbol.name.as_str()) {
                // The upper half is the binding, of which 0 is local.
                let at = table.offset + number * SYMBOL + SYMBOL_INFO;
                out[at] &= 0xf;
            }
        }
    }
    let (Some(btf), Some(section)) = (btf, elf.section(".BTF")) else {
        return Ok(out);
    };
    let places = linkages(&btf, section.data).map_err(|error| ObjectError::Btf {
        section: ".BTF",
        error,
    })?;
    for var in btf.data_section(".maps").unwrap_or_default() {
        let Some(Type::Var { name, .. }) = btf.type_by_id(var.ty) else {
            continue;
        };
        if maps.contains(&name.as_str())
            && let Some(at) = places.get(&var.ty.0)
        {
            let at = section.offset + at;
            out[at..at + 4].copy_from_slice(&EXTERN.to_le_bytes());
        }
    }
    Ok(out)
}

/// Where in a `.BTF` section, which was read before, the linkage of each variable stands, by the
/// number of its type.
fn linkages(btf: &Btf, bytes: &[u8]) -> Result<BTreeMap<u32, usize>, BtfError> {
    let mut header = Reader::new(bytes, "the header");
    // Magic, version and flags.
    header.u32()?;
    let start = header.u32()? as usize + header.u32()? as usize;
    let length = header.u32()? as usize;
    let types = bytes.get(start..start + length).unwrap_or_default();
    let mut reader = Reader::new(types, "a type");
    let mut places = BTreeMap::new();
    let mut number = 1;
    while !reader.is_empty() {
        if let Type::Var { .. } = btf.parse_type(&mut reader)? {
            places.insert(number, start + reader.at() - LINKAGE);
        }
        number += 1;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_is_said() {
        assert_eq!(hide(b"text", &["a"], &[]), Err(ObjectError::NotElf));
    }
}
