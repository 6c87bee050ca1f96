//! The container: sections, symbols and relocations as plain values, checked once.
//!
//! The `object` crate reads the bytes; nothing outside this file knows it.

use object::LittleEndian;
use object::elf::{self as abi, FileHeader64};
use object::read::elf::{FileHeader as _, Rel as _, SectionHeader as _, Sym as _};
use object::read::{SectionIndex, SymbolIndex};

use crate::error::ObjectError;

const LE: LittleEndian = LittleEndian;

/// Size of a section header in bytes; the reader takes no other.
const SECTION_HEADER: usize = 64;

pub(crate) struct Elf<'a> {
    /// Indexed like the section header table.
    pub(crate) sections: Vec<Section<'a>>,
    /// Indexed like the symbol table.
    pub(crate) symbols: Vec<Symbol>,
}

pub(crate) struct Section<'a> {
    pub(crate) name: String,
    /// Empty for `.bss`.
    pub(crate) data: &'a [u8],
    /// In bytes, also for `.bss`.
    pub(crate) size: u64,
    /// `sh_type`.
    pub(crate) kind: u32,
    /// `sh_flags`.
    pub(crate) flags: u64,
    /// `sh_addralign`.
    pub(crate) align: u64,
    /// Where its header stands in the file, in bytes.
    pub(crate) header: usize,
    /// Where its contents stand in the file, in bytes.
    pub(crate) offset: usize,
    pub(crate) executable: bool,
    pub(crate) allocated: bool,
    /// Sorted by offset.
    pub(crate) relocations: Vec<Relocation>,
}

#[derive(Clone, Copy)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: usize,
}

/// Relocation of an `lddw`.
pub(crate) const R_BPF_64_64: u32 = 1;
/// Relocation of a pointer in data.
pub(crate) const R_BPF_64_ABS64: u32 = 2;
/// Relocation of 4 bytes in data, which no loader at run time looks at.
pub(crate) const R_BPF_64_NODYLD32: u32 = 4;
/// Relocation of a call.
pub(crate) const R_BPF_64_32: u32 = 10;

pub(crate) struct Symbol {
    /// Empty for section symbols.
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) function: bool,
    pub(crate) global: bool,
    pub(crate) weak: bool,
    /// `STT_*`.
    pub(crate) kind: u8,
    /// `STV_*`.
    pub(crate) visibility: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Undefined,
    Section(usize),
    /// Common or absolute: means nothing in a BPF object.
    Other,
}

fn damaged(detail: impl ToString) -> ObjectError {
    ObjectError::Damaged {
        detail: detail.to_string(),
    }
}

impl<'a> Elf<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, ObjectError> {
        check_header(bytes)?;
        let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(damaged)?;
        let table = header.sections(LE, bytes).map_err(damaged)?;
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| damaged("the name of a section or symbol is not UTF-8"))
        };

        let mut sections = Vec::with_capacity(table.len());
        let headers = header.e_shoff(LE) as usize;
        for (index, section) in table.iter().enumerate() {
            let nobits = section.sh_type(LE) == abi::SHT_NOBITS;
            let flags = section.sh_flags(LE);
            sections.push(Section {
                name: text(table.section_name(LE, section).map_err(damaged)?)?,
                data: if nobits {
                    &[]
                } else {
                    section.data(LE, bytes).map_err(damaged)?
                },
                size: section.sh_size(LE),
                kind: section.sh_type(LE).0,
                flags: flags.0,
                align: section.sh_addralign(LE),
                header: headers.saturating_add(index * SECTION_HEADER),
                offset: section.sh_offset(LE) as usize,
                executable: flags.0 & abi::SHF_EXECINSTR.0 != 0,
                allocated: flags.0 & abi::SHF_ALLOC.0 != 0,
                relocations: Vec::new(),
            });
        }

        let symtab = table.symbols(LE, bytes, abi::SHT_SYMTAB).map_err(damaged)?;
        let mut symbols = Vec::with_capacity(symtab.len());
        for (index, symbol) in symtab.iter().enumerate() {
            let place = match symtab
                .symbol_section(LE, symbol, SymbolIndex(index))
                .map_err(damaged)?
            {
                Some(SectionIndex(at)) if at < sections.len() => Place::Section(at),
                Some(SectionIndex(at)) => {
                    return Err(damaged(format!(
                        "symbol {index} is in section {at} of {}",
                        sections.len()
                    )));
                }
                None if symbol.is_undefined(LE) => Place::Undefined,
                None => Place::Other,
            };
            symbols.push(Symbol {
                name: text(symtab.symbol_name(LE, symbol).map_err(damaged)?)?,
                place,
                value: symbol.st_value(LE),
                size: symbol.st_size(LE),
                function: symbol.st_type() == abi::STT_FUNC,
                global: symbol.st_bind() != abi::STB_LOCAL,
                weak: symbol.st_bind() == abi::STB_WEAK,
                kind: symbol.st_type().0,
                visibility: symbol.st_visibility().0,
            });
        }

        for section in table.iter() {
            let Some((records, _)) = section.rel(LE, bytes).map_err(damaged)? else {
                if section.sh_type(LE) == abi::SHT_RELA {
                    return Err(damaged(
                        "it has relocations with addends (RELA), which BPF objects never have",
                    ));
                }
                continue;
            };
            let target = section.sh_info(LE) as usize;
            let count = symbols.len();
            let target = sections
                .get_mut(target)
                .ok_or_else(|| damaged("relocations of a section that does not exist"))?;
            for record in records {
                let symbol = record.r_sym(LE) as usize;
                if symbol >= count {
                    return Err(damaged(format!(
                        "a relocation of `{}` names symbol {symbol} of {count}",
                        target.name
                    )));
                }
                let kind = record.r_type(LE).0;
                let relocation = Relocation {
                    offset: record.r_offset(LE),
                    kind: match target.executable {
                        true => kind,
                        false => of_data(kind),
                    },
                    symbol,
                };
                target.relocations.push(relocation);
            }
            target
                .relocations
                .sort_by_key(|relocation| relocation.offset);
        }
        Ok(Elf { sections, symbols })
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub(crate) fn section_index(&self, name: &str) -> Option<usize> {
        self.sections
            .iter()
            .position(|section| section.name == name)
    }

    /// Name of a symbol for messages: section symbols have none of their own.
    pub(crate) fn symbol_label(&self, symbol: &Symbol) -> String {
        match symbol.place {
            Place::Section(at) if symbol.name.is_empty() => self.sections[at].name.clone(),
            _ => symbol.name.clone(),
        }
    }
}

/// What a relocation of data is: clang before version 13 gave those of 8 and 4 bytes the types of
/// `lddw` and calls.
fn of_data(kind: u32) -> u32 {
    match kind {
        R_BPF_64_64 => R_BPF_64_ABS64,
        R_BPF_64_32 => R_BPF_64_NODYLD32,
        other => other,
    }
}

/// The contents of section `name` of an ELF file for any processor: a kernel with types in it, say.
pub(crate) fn section_of_any<'a>(
    bytes: &'a [u8],
    name: &str,
) -> Result<Option<&'a [u8]>, ObjectError> {
    check_class(bytes)?;
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(damaged)?;
    let table = header.sections(LE, bytes).map_err(damaged)?;
    let found = table.section_by_name(LE, name.as_bytes());
    found
        .map(|(_, section)| section.data(LE, bytes).map_err(damaged))
        .transpose()
}

/// The `object` crate would say "unsupported" for all of these; people need to know which.
fn check_header(bytes: &[u8]) -> Result<(), ObjectError> {
    check_class(bytes)?;
    let half = |at: usize| match bytes.get(at..at + 2) {
        Some(&[low, high]) => Ok(u16::from_le_bytes([low, high])),
        _ => Err(damaged("it ends inside the header")),
    };
    let (kind, machine) = (half(16)?, half(18)?);
    if machine != abi::EM_BPF.0 {
        return Err(ObjectError::Machine { machine });
    }
    if kind != abi::ET_REL.0 {
        return Err(ObjectError::NotRelocatable { kind });
    }
    Ok(())
}

fn check_class(bytes: &[u8]) -> Result<(), ObjectError> {
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err(ObjectError::NotElf);
    }
    let (class, order) = match bytes.get(4..6) {
        Some(&[class, order]) => (class, order),
        _ => return Err(damaged("it ends inside the header")),
    };
    if class != 2 {
        return Err(ObjectError::Class);
    }
    if order != 1 {
        return Err(ObjectError::BigEndian);
    }
    Ok(())
}
