//! An object made of what a loader has passed to the kernel: instructions with map numbers in them,
//! map attributes and types, as they stand in `union bpf_attr`.
//!
//! A program that libbpf has loaded is no file any more. To send it on, it becomes one again: each
//! program is a section, its references are relocations, maps are definitions in `.maps` whose
//! types are written here, and the records of functions and lines go with their code.
//! [`crate::load`] then gives back the same programs and maps.

use std::collections::BTreeMap;

use warpbpf_ebpf::Slot;

use crate::btf::{Linkage, SectionVar, Type, TypeId};
use crate::btf_ext::{FunctionRecord, LineRecord, SectionExt};
use crate::btf_write::{self, Strings};
use crate::elf::{R_BPF_64_64, R_BPF_64_ABS64};
use crate::functions::CALL;
use crate::link::define::{DEFINITION, Types};
use crate::link::error::LinkError;
use crate::link::layout::{Layout, OutRelocation, OutSection, SHT_PROGBITS};
use crate::link::loaded::{AssembleError, Assembly, LoadedProgram};
use crate::link::symbols::{Linked, STT_SECTION, Symbols};
use crate::link::types::{Merged, write_records};
use crate::link::write;

const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;

/// Puts together an object file.
///
/// # Errors
/// [`AssembleError`]; no input makes it panic.
pub fn assemble(assembly: &Assembly<'_>) -> Result<Vec<u8>, AssembleError> {
    let mut types = Types::read(&assembly.types)?;
    let mut sections = Vec::new();
    // Section symbols come first and have the numbers of their sections; then local functions, then
    // what is global.
    let (mut locals, mut globals) = (Vec::new(), Vec::new());
    let mut map_at = Vec::new();
    let declared: Vec<usize> = (0..assembly.maps.len())
        .filter(|map| assembly.maps[*map].data.is_none())
        .collect();
    let mut maps_section = None;
    if !declared.is_empty() {
        maps_section = Some(sections.len());
        sections.push(OutSection {
            flags: SHF_WRITE | SHF_ALLOC,
            ..section(".maps", Vec::new())
        });
    }
    for map in &assembly.maps {
        if let Some((name, contents)) = map.data {
            types.rename(map.types, map.value_type, name);
            map_at.push((sections.len(), 0));
            sections.push(OutSection {
                flags: SHF_ALLOC
                    | if name.starts_with(".rodata") {
                        0
                    } else {
                        SHF_WRITE
                    },
                ..section(name, contents.to_vec())
            });
        } else {
            // Filled in below, when the sizes are known.
            map_at.push((maps_section.unwrap_or(0), 0));
        }
    }
    if let Some(at) = maps_section {
        let mut vars = Vec::new();
        for map in declared {
            let def = &assembly.maps[map];
            let offset = sections[at].data.len() as u32;
            map_at[map].1 = u64::from(offset);
            let values = def.initial.iter().map(|(index, _)| index + 1).max();
            let size = DEFINITION + values.unwrap_or(0).saturating_mul(8);
            let ty = types.define(def, values.unwrap_or(0))?;
            let var = types.add(Type::Var {
                name: def.name.to_owned(),
                ty,
                linkage: Linkage::Global,
            });
            vars.push(SectionVar {
                ty: var,
                offset,
                size,
            });
            sections[at].data.resize((offset + size) as usize, 0);
            globals.push(symbol(def.name, STT_OBJECT, at, offset, u64::from(size)));
        }
        let size = sections[at].data.len() as u32;
        types.add(Type::DataSec {
            name: ".maps".to_owned(),
            size,
            vars,
        });
    }
    let mut records: BTreeMap<String, SectionExt> = BTreeMap::new();
    for program in &assembly.programs {
        let at = sections
            .iter()
            .position(|s| s.name == program.section)
            .unwrap_or_else(|| {
                sections.push(OutSection {
                    flags: SHF_ALLOC | SHF_EXECINSTR,
                    align: 8,
                    ..section(program.section, Vec::new())
                });
                sections.len() - 1
            });
        // Taken out while the program reads the types beside it.
        let mut strings = std::mem::replace(&mut types.strings, Strings::new());
        let placed = Placed {
            program,
            types: &types,
            section: at,
            start: sections[at].data.len() as u32,
        };
        placed.emit(&map_at, assembly, &mut sections[at])?;
        placed.functions(&mut locals, &mut globals)?;
        let ext = records.entry(program.section.to_owned()).or_default();
        placed.records(&mut strings, ext);
        types.strings = strings;
    }
    sections.push(section(
        "license",
        [assembly.license.as_bytes(), b"\0"].concat(),
    ));
    sections
        .iter_mut()
        .for_each(|section| section.size = section.data.len() as u64);
    let mut all: Vec<Linked> = (0..sections.len())
        .map(|at| Linked {
            global: false,
            ..symbol("", STT_SECTION, at, 0, 0)
        })
        .collect();
    all.extend(locals);
    all.extend(globals);
    initial(assembly, &map_at, &all, &mut sections)?;
    let ext = records.values().any(|ext| !ext.functions.is_empty());
    let ext = ext.then(|| write_records(&mut types.strings, &records));
    let too_large = || AssembleError::TooLarge {
        error: LinkError::TooLarge {
            what: "a type or data section with more than 65,535 members",
        },
    };
    let btf = btf_write::section(&types.all, types.strings).ok_or_else(too_large)?;
    let layout = Layout {
        sections,
        placed: Vec::new(),
    };
    let symbols = Symbols {
        all,
        index: Vec::new(),
        globals: BTreeMap::new(),
    };
    let merged = Merged {
        btf: Some(btf),
        ext,
    };
    write::object(&layout, &symbols, merged).map_err(|error| AssembleError::TooLarge { error })
}

fn section(name: &str, data: Vec<u8>) -> OutSection {
    OutSection {
        name: name.to_owned(),
        kind: SHT_PROGBITS,
        flags: SHF_ALLOC,
        align: 1,
        size: data.len() as u64,
        data,
        relocations: Vec::new(),
    }
}

fn symbol(name: &str, kind: u8, section: usize, at: u32, size: u64) -> Linked {
    Linked {
        name: name.to_owned(),
        global: true,
        weak: false,
        kind,
        visibility: 0,
        place: Some((section, u64::from(at))),
        size,
    }
}

/// References of maps of maps to what is in them from the start.
fn initial(
    assembly: &Assembly<'_>,
    map_at: &[(usize, u64)],
    symbols: &[Linked],
    sections: &mut [OutSection],
) -> Result<(), AssembleError> {
    for (map, def) in assembly.maps.iter().enumerate() {
        for (index, value) in &def.initial {
            let target = assembly.maps.get(*value);
            let symbol = target.and_then(|target| {
                let named = |s: &Linked| s.kind == STT_OBJECT && s.name == target.name;
                symbols.iter().position(named)
            });
            let symbol = symbol.ok_or_else(|| AssembleError::Map {
                map: def.name.to_owned(),
                what: "one of its values is no map that was loaded",
            })?;
            let (section, at) = map_at[map];
            sections[section].relocations.push(OutRelocation {
                offset: at + u64::from(DEFINITION) + u64::from(*index) * 8,
                kind: R_BPF_64_ABS64,
                symbol,
            });
        }
    }
    Ok(())
}

/// A program in its section.
struct Placed<'p, 'a> {
    program: &'p LoadedProgram<'a>,
    types: &'p Types,
    section: usize,
    /// In bytes.
    start: u32,
}

impl Placed<'_, '_> {
    fn fail(&self, what: impl Into<String>) -> AssembleError {
        AssembleError::Program {
            program: self.program.name.to_owned(),
            what: what.into(),
        }
    }

    fn slots(&self) -> u32 {
        (self.program.code.len() / Slot::BYTES) as u32
    }

    /// The code, its references as relocations.
    fn emit(
        &self,
        map_at: &[(usize, u64)],
        assembly: &Assembly<'_>,
        into: &mut OutSection,
    ) -> Result<(), AssembleError> {
        let mut slots: Vec<Slot> = Slot::all(self.program.code).collect();
        let mut relocate = |slot: u32, symbol: usize| {
            into.relocations.push(OutRelocation {
                offset: u64::from(self.start) + u64::from(slot) * Slot::BYTES as u64,
                kind: R_BPF_64_64,
                symbol,
            });
        };
        for reference in &self.program.maps {
            let slot = reference.slot as usize;
            let (Some([first, second]), Some(map)) = (
                slots.get_mut(slot..).and_then(|s| s.first_chunk_mut()),
                map_at.get(reference.map),
            ) else {
                return Err(self.fail(format!("instruction {slot} refers to no map")));
            };
            let data = assembly.maps[reference.map].data.is_some();
            if data != reference.offset.is_some() {
                return Err(self.fail(format!(
                    "instruction {slot} takes map `{}` for {}",
                    assembly.maps[reference.map].name,
                    if data {
                        "a whole, and it holds variables"
                    } else {
                        "variables"
                    },
                )));
            }
            let (section, at) = *map;
            (first.src, second.imm) = (0, 0);
            first.imm = (at + u64::from(reference.offset.unwrap_or(0))) as i32;
            relocate(reference.slot, section);
        }
        let mut at = 0;
        while let Some(insn) = slots.get_mut(at) {
            let wide = insn.opcode == Slot::LDDW;
            // `BPF_PSEUDO_FUNC`: the address of a function, so many slots from here.
            if wide && insn.src == 4 {
                let target = at as i64 + 1 + i64::from(insn.imm);
                if !(0..i64::from(self.slots())).contains(&target) {
                    return Err(self.fail(format!("instruction {at} refers to no function")));
                }
                insn.src = 0;
                insn.imm = (i64::from(self.start) + target * Slot::BYTES as i64) as i32;
                relocate(at as u32, self.section);
            }
            at += if wide { 2 } else { 1 };
        }
        into.relocations.sort_by_key(|r| r.offset);
        into.data.extend(slots.into_iter().flat_map(Slot::to_bytes));
        Ok(())
    }

    /// One symbol for each function: the entry is global, the others are not entries.
    fn functions(
        &self,
        locals: &mut Vec<Linked>,
        globals: &mut Vec<Linked>,
    ) -> Result<(), AssembleError> {
        let mut starts: Vec<(u32, TypeId)> = self.program.functions.clone();
        for (slot, insn) in (0..).zip(Slot::all(self.program.code)) {
            // A call within the program; those with a record of their own come first and stay.
            if insn.opcode == CALL && insn.src == 1 {
                let target = u32::try_from(i64::from(slot) + 1 + i64::from(insn.imm));
                starts.extend(target.ok().map(|target| (target, TypeId::VOID)));
            }
        }
        starts.sort_by_key(|(slot, _)| *slot);
        starts.dedup_by_key(|(slot, _)| *slot);
        if starts.first().is_none_or(|(slot, _)| *slot != 0) {
            starts.insert(0, (0, TypeId::VOID));
        }
        for (index, (slot, ty)) in starts.iter().enumerate() {
            let end = starts
                .get(index + 1)
                .map_or(self.slots(), |(slot, _)| *slot);
            if end > self.slots() || *slot >= end {
                return Err(self.fail(format!(
                    "its function at instruction {slot} is not inside its {} instructions",
                    self.slots()
                )));
            }
            let btf = self.program.types.and_then(|at| self.types.read.get(at));
            let name = match btf.and_then(|btf| btf.type_by_id(*ty)) {
                _ if index == 0 => self.program.name.to_owned(),
                Some(Type::Func { name, .. }) => name.clone(),
                _ => format!("{}.{slot}", self.program.name),
            };
            let bytes = u64::from(end - slot) * Slot::BYTES as u64;
            let at = self.start + slot * Slot::BYTES as u32;
            let linked = symbol(&name, STT_FUNC, self.section, at, bytes);
            if index == 0 {
                globals.push(linked);
            } else {
                locals.push(Linked {
                    global: false,
                    ..linked
                });
            }
        }
        Ok(())
    }

    /// What is known of functions and lines. Without the types they were loaded with nothing is.
    fn records(&self, strings: &mut Strings, into: &mut SectionExt) {
        let Some((index, btf)) = self
            .program
            .types
            .and_then(|index| Some((index, self.types.read.get(index)?)))
        else {
            return;
        };
        let offset = |slot: u32| self.start + slot * Slot::BYTES as u32;
        for (slot, ty) in &self.program.functions {
            if let Some(ty) = self.types.here(index, *ty) {
                let offset = offset(*slot);
                into.functions.push(FunctionRecord { offset, ty });
            }
        }
        for line in &self.program.lines {
            let mut text = |at| strings.add(btf.string(at).unwrap_or_default());
            into.lines.push(LineRecord {
                offset: offset(line.slot),
                file: text(line.file),
                text: text(line.text),
                line: line.position >> 10,
                column: line.position & 0x3ff,
            });
        }
    }
}
