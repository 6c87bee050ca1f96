//! From sections to programs: each entry function gets a copy of every local function that it reaches, and each
//! reference becomes an index that needs no relocation any more.
//!
//! The rules for what a relocation means are those of LLVM's `BPFRelocation.rst`: an `lddw` adds its immediate to the
//! symbol, a call against a section symbol counts slots from the start of that section.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpbpf_ebpf::{Code, DecodeError, DecodeErrorKind, Pc, Slot};

use crate::btf::{Btf, Type};
use crate::btf_ext::{BtfExt, SectionExt};
use crate::elf::{Elf, Place, R_BPF_64_32, R_BPF_64_64, Relocation, Symbol};
use crate::error::{FunctionDecodeError, ObjectError};
use crate::functions::{CALL, Function, entries, functions};
use crate::map_defs::Declared;
use crate::{FunctionInfo, LineInfo, Object, Program, data, map_defs};

pub(crate) fn load(bytes: &[u8]) -> Result<Object, ObjectError> {
    let elf = Elf::parse(bytes)?;
    refuse_sections(&elf)?;
    let (btf, ext) = types(&elf)?;
    let mut declared = map_defs::read(&elf, btf.as_ref())?;
    let mut maps = std::mem::take(&mut declared.maps);
    let data = data::append(&elf, btf.as_ref(), &mut maps)?;
    let functions = functions(&elf)?;
    let linker = Linker {
        elf: &elf,
        btf: btf.as_ref(),
        ext: &ext,
        declared: &declared,
        data: &data,
        functions: &functions,
    };
    let programs = entries(&elf, &functions)
        .map(|entry| linker.link(entry))
        .collect::<Result<_, _>>()?;
    let license = elf.section("license").map(|section| {
        let end = section
            .data
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(section.data.len());
        String::from_utf8_lossy(&section.data[..end]).into_owned()
    });
    let version = elf
        .section("version")
        .and_then(|section| section.data.first_chunk())
        .map(|b| u32::from_le_bytes(*b));
    Ok(Object {
        programs,
        maps,
        license,
        version,
        btf,
    })
}

fn refuse_sections(elf: &Elf<'_>) -> Result<(), ObjectError> {
    for section in &elf.sections {
        let name = || section.name.clone();
        if section.name == "maps" || section.name.starts_with("maps/") {
            return Err(ObjectError::LegacyMaps { section: name() });
        }
        let program = section.name.trim_start_matches('?');
        if section.name.starts_with(".struct_ops")
            || program.split(['/', '.']).next() == Some("struct_ops")
        {
            return Err(ObjectError::StructOps { section: name() });
        }
        if section.name.starts_with(".addr_space.") {
            return Err(ObjectError::Arena { section: name() });
        }
    }
    Ok(())
}

fn types(elf: &Elf<'_>) -> Result<(Option<Btf>, BtfExt), ObjectError> {
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

struct Linker<'a> {
    elf: &'a Elf<'a>,
    btf: Option<&'a Btf>,
    ext: &'a BtfExt,
    declared: &'a Declared,
    data: &'a BTreeMap<usize, u32>,
    functions: &'a BTreeMap<(usize, u32), Function>,
}

/// What an instruction refers to.
enum Reference<'a> {
    Map(u32),
    Value { map: u32, offset: u32 },
    Address(&'a Function),
    Call(&'a Function),
}

/// A function in its place in the program.
struct Placed<'a> {
    function: &'a Function,
    /// First slot in the program.
    start: u32,
    /// By slot within the function.
    references: BTreeMap<u32, Reference<'a>>,
}

/// Moves slots of the program back into the functions that the author knows.
fn decode_errors(entry: &Function, placed: &[Placed<'_>], errors: Vec<DecodeError>) -> ObjectError {
    let errors = errors
        .into_iter()
        .map(|error| {
            let before = placed.partition_point(|placed| placed.start <= error.slot);
            // The entry starts at slot 0, so there is always one before.
            let placed = &placed[before - 1];
            let (function, slot) = (placed.function.name.clone(), error.slot - placed.start);
            FunctionDecodeError {
                function,
                error: DecodeError {
                    slot,
                    kind: error.kind,
                },
            }
        })
        .collect();
    ObjectError::Decode {
        program: entry.name.clone(),
        errors,
    }
}

impl<'a> Linker<'a> {
    fn link(&self, entry: &'a Function) -> Result<Program, ObjectError> {
        let placed = self.reach(entry)?;
        let mut bytes = Vec::new();
        let start_of: BTreeMap<(usize, u32), u32> = placed
            .iter()
            .map(|placed| {
                (
                    (placed.function.section, placed.function.start),
                    placed.start,
                )
            })
            .collect();
        for placed in &placed {
            self.emit(placed, &start_of, &mut bytes);
        }
        let code =
            warpbpf_ebpf::decode(&bytes).map_err(|errors| decode_errors(entry, &placed, errors))?;
        let functions = self.function_table(&placed, &code);
        let lines = self.lines(&placed, &code);
        let section = self.elf.sections[entry.section].name.clone();
        Ok(Program {
            name: entry.name.clone(),
            section,
            code,
            functions,
            lines,
        })
    }

    /// The entry and all it reaches, in order of discovery.
    fn reach(&self, entry: &'a Function) -> Result<Vec<Placed<'a>>, ObjectError> {
        let mut order = vec![entry];
        let mut seen = BTreeSet::from([(entry.section, entry.start)]);
        let mut placed = Vec::new();
        let mut start = 0;
        let mut next = 0;
        while let Some(function) = order.get(next).copied() {
            next += 1;
            self.refuse_core(entry, function)?;
            let references = self.references(entry, function)?;
            for reference in references.values() {
                if let Reference::Address(callee) | Reference::Call(callee) = reference
                    && seen.insert((callee.section, callee.start))
                {
                    order.push(callee);
                }
            }
            placed.push(Placed {
                function,
                start,
                references,
            });
            start += function.slots.len() as u32;
        }
        Ok(placed)
    }

    fn references(
        &self,
        entry: &Function,
        function: &'a Function,
    ) -> Result<BTreeMap<u32, Reference<'a>>, ObjectError> {
        let at = Site {
            linker: self,
            entry,
            function,
        };
        let mut relocations = at.relocations();
        let mut references = BTreeMap::new();
        let mut slot = 0;
        while let Some(&insn) = function.slots.get(slot as usize) {
            let relocation = relocations.remove(&(u64::from(slot) * Slot::BYTES as u64));
            let wide = insn.opcode == Slot::LDDW;
            if wide && function.slots.len() == slot as usize + 1 {
                let error = DecodeError {
                    slot,
                    kind: DecodeErrorKind::HalfLddw,
                };
                let errors = vec![FunctionDecodeError {
                    function: function.name.clone(),
                    error,
                }];
                return Err(ObjectError::Decode {
                    program: entry.name.clone(),
                    errors,
                });
            }
            if function.jumps_out(slot) {
                let (program, function) = (entry.name.clone(), function.name.clone());
                return Err(ObjectError::JumpOut {
                    program,
                    function,
                    slot,
                });
            }
            let reference = match relocation {
                Some(relocation) => Some(at.relocated(slot, insn, relocation)?),
                None if wide && insn.src != 0 => {
                    let (program, function) = (entry.name.clone(), function.name.clone());
                    return Err(ObjectError::BakedReference {
                        program,
                        function,
                        slot,
                        kind: insn.src,
                    });
                }
                None if insn.opcode == CALL && insn.src == 1 => {
                    let target =
                        i64::from(function.start) + i64::from(slot) + 1 + i64::from(insn.imm);
                    Some(Reference::Call(at.callee(
                        slot,
                        function.section,
                        target,
                    )?))
                }
                None => None,
            };
            if let Some(reference) = reference {
                references.insert(slot, reference);
            }
            slot += if wide { 2 } else { 1 };
        }
        if let Some((offset, relocation)) = relocations.first_key_value() {
            let slot = (offset / Slot::BYTES as u64) as u32;
            return Err(at.refuse(slot, relocation, "is not at the start of an instruction"));
        }
        Ok(references)
    }

    fn emit(
        &self,
        placed: &Placed<'_>,
        start_of: &BTreeMap<(usize, u32), u32>,
        bytes: &mut Vec<u8>,
    ) {
        // Every function that a reference names was placed by `reach`.
        let distance = |slot: u32, callee: &Function| {
            let target = start_of[&(callee.section, callee.start)];
            (i64::from(target) - i64::from(placed.start + slot) - 1) as i32
        };
        let mut high = None;
        for (slot, insn) in placed.function.slots.iter().enumerate() {
            let slot = slot as u32;
            let mut insn = *insn;
            if let Some(imm) = high.take() {
                insn.imm = imm;
            }
            match placed.references.get(&slot) {
                Some(Reference::Map(map)) => {
                    (insn.src, insn.imm) = (1, *map as i32);
                    high = Some(0);
                }
                Some(Reference::Value { map, offset }) => {
                    (insn.src, insn.imm) = (2, *map as i32);
                    high = Some(*offset as i32);
                }
                Some(Reference::Address(callee)) => {
                    (insn.src, insn.imm) = (4, distance(slot, callee));
                    high = Some(0);
                }
                Some(Reference::Call(callee)) => (insn.src, insn.imm) = (1, distance(slot, callee)),
                None => {}
            }
            bytes.extend(insn.to_bytes());
        }
    }

    /// Where functions ended up.
    fn function_table(&self, placed: &[Placed<'_>], code: &Code) -> Vec<FunctionInfo> {
        let mut table = Vec::with_capacity(placed.len());
        let end_of_code = Pc(code.insns().len() as u32);
        for (index, placed_here) in placed.iter().enumerate() {
            let function = placed_here.function;
            // No function ends inside an `lddw` (`references`), so all of them start at an instruction.
            let pc_of = |placed: &Placed<'_>| code.pc_of_slot(placed.start).unwrap_or(end_of_code);
            let start = pc_of(placed_here);
            let end = placed.get(index + 1).map_or(end_of_code, pc_of);
            let records = self.ext_of(function).map_or(&[][..], |ext| &ext.functions);
            let offset = function.start * Slot::BYTES as u32;
            let btf = records
                .iter()
                .find(|record| record.offset == offset)
                .map(|record| record.ty);
            table.push(FunctionInfo {
                name: function.name.clone(),
                start,
                end,
                btf,
            });
        }
        table
    }

    fn lines(&self, placed: &[Placed<'_>], code: &Code) -> Vec<LineInfo> {
        let Some(btf) = self.btf else {
            return Vec::new();
        };
        let mut strings: BTreeMap<u32, Arc<str>> = BTreeMap::new();
        let mut text = |offset: u32| {
            let text = || btf.string(offset).unwrap_or_default().trim();
            Arc::clone(strings.entry(offset).or_insert_with(|| Arc::from(text())))
        };
        let mut lines = Vec::new();
        for placed in placed {
            let Some(ext) = self.ext_of(placed.function) else {
                continue;
            };
            for record in &ext.lines {
                let inside =
                    (record.offset / Slot::BYTES as u32).checked_sub(placed.function.start);
                let inside = inside.filter(|slot| (*slot as usize) < placed.function.slots.len());
                let Some(pc) = inside.and_then(|slot| code.pc_of_slot(placed.start + slot)) else {
                    continue;
                };
                let (file, line_text) = (text(record.file), text(record.text));
                lines.push(LineInfo {
                    pc,
                    file,
                    line: record.line,
                    column: record.column,
                    text: line_text,
                });
            }
        }
        lines.sort_by_key(|line| line.pc);
        lines
    }

    fn refuse_core(&self, entry: &Function, function: &Function) -> Result<(), ObjectError> {
        let (Some(btf), Some(ext)) = (self.btf, self.ext_of(function)) else {
            return Ok(());
        };
        for record in &ext.core {
            let slot = (record.offset / Slot::BYTES as u32).checked_sub(function.start);
            if let Some(slot) = slot.filter(|slot| (*slot as usize) < function.slots.len()) {
                return Err(ObjectError::CoRe {
                    program: entry.name.clone(),
                    function: function.name.clone(),
                    slot,
                    kind: record.kind_name(),
                    access: record.describe(btf),
                });
            }
        }
        Ok(())
    }

    fn ext_of(&self, function: &Function) -> Option<&SectionExt> {
        self.ext
            .sections
            .get(&self.elf.sections[function.section].name)
    }
}

/// A function that is being linked into a program: what messages need.
struct Site<'l, 'a> {
    linker: &'l Linker<'a>,
    entry: &'l Function,
    function: &'l Function,
}

impl<'a> Site<'_, 'a> {
    /// Relocations of the function by byte offset from its start.
    fn relocations(&self) -> BTreeMap<u64, Relocation> {
        let start = u64::from(self.function.start) * Slot::BYTES as u64;
        let end = start + (self.function.slots.len() * Slot::BYTES) as u64;
        let all = &self.linker.elf.sections[self.function.section].relocations;
        let from = all.partition_point(|relocation| relocation.offset < start);
        let inside = all[from..]
            .iter()
            .take_while(|relocation| relocation.offset < end);
        inside
            .map(|relocation| (relocation.offset - start, *relocation))
            .collect()
    }

    fn symbol(&self, relocation: &Relocation) -> &'a Symbol {
        &self.linker.elf.symbols[relocation.symbol]
    }

    fn refuse(
        &self,
        slot: u32,
        relocation: &Relocation,
        problem: impl Into<String>,
    ) -> ObjectError {
        ObjectError::Relocation {
            program: self.entry.name.clone(),
            function: self.function.name.clone(),
            slot,
            symbol: self.linker.elf.symbol_label(self.symbol(relocation)),
            problem: problem.into(),
        }
    }

    fn relocated(
        &self,
        slot: u32,
        insn: Slot,
        relocation: Relocation,
    ) -> Result<Reference<'a>, ObjectError> {
        let linker = self.linker;
        let symbol = self.symbol(&relocation);
        let section = match symbol.place {
            Place::Section(section) => section,
            Place::Undefined => return Err(self.refuse_extern(symbol)),
            Place::Other => {
                return Err(self.refuse(
                    slot,
                    &relocation,
                    "is neither defined here nor elsewhere",
                ));
            }
        };
        match (relocation.kind, insn.opcode) {
            (R_BPF_64_32, CALL) if insn.src == 1 => {
                let target = (symbol.value / Slot::BYTES as u64) as i64;
                Ok(Reference::Call(self.callee(
                    slot,
                    section,
                    target.saturating_add(1 + i64::from(insn.imm)),
                )?))
            }
            (R_BPF_64_64, Slot::LDDW) => {
                let offset = i128::from(symbol.value) + i128::from(insn.imm);
                let outside = || {
                    self.refuse(
                        slot,
                        &relocation,
                        format!("points to byte {offset}, outside its section"),
                    )
                };
                let offset = u32::try_from(offset).map_err(|_| outside())?;
                if Some(section) == linker.declared.section {
                    let map = linker.declared.at(u64::from(offset));
                    return map.map(Reference::Map).ok_or_else(|| {
                        self.refuse(
                            slot,
                            &relocation,
                            format!("points to byte {offset} of `.maps`, where no map starts"),
                        )
                    });
                }
                if let Some(map) = linker.data.get(&section) {
                    if u64::from(offset) > linker.elf.sections[section].size {
                        return Err(outside());
                    }
                    return Ok(Reference::Value { map: *map, offset });
                }
                if linker.elf.sections[section].executable {
                    let target = i64::from(offset / Slot::BYTES as u32);
                    return Ok(Reference::Address(self.callee(slot, section, target)?));
                }
                let name = &linker.elf.sections[section].name;
                Err(self.refuse(
                    slot,
                    &relocation,
                    format!("is in section `{name}`; variables can only be in `.data`, `.rodata`, `.bss` and sections named after them"),
                ))
            }
            (kind, _) => Err(self.refuse(
                slot,
                &relocation,
                format!("has type {kind}, which does not fit this instruction"),
            )),
        }
    }

    fn callee(&self, slot: u32, section: usize, target: i64) -> Result<&'a Function, ObjectError> {
        let key = u32::try_from(target).ok().map(|target| (section, target));
        key.and_then(|key| self.linker.functions.get(&key))
            .ok_or_else(|| ObjectError::CallTarget {
                program: self.entry.name.clone(),
                function: self.function.name.clone(),
                slot,
                section: self.linker.elf.sections[section].name.clone(),
                target,
            })
    }

    fn refuse_extern(&self, symbol: &Symbol) -> ObjectError {
        let named = |section: &str| {
            let btf = self.linker.btf?;
            let is = |ty| matches!(btf.type_by_id(ty), Some(Type::Var { name, .. } | Type::Func { name, .. }) if *name == symbol.name);
            btf.data_section(section)?
                .iter()
                .any(|var| is(var.ty))
                .then_some(())
        };
        let (place, advice) = if named(".kconfig").is_some() {
            (
                " in .kconfig",
                "is a setting of the running kernel and does not exist on a GPU; use a `const volatile` variable",
            )
        } else if named(".ksyms").is_some() {
            (
                " in .ksyms",
                "is a kernel symbol and does not exist on a GPU; use a helper",
            )
        } else {
            (
                "",
                "is defined in no section of this object; define it, or link the objects with `bpftool gen object`",
            )
        };
        ObjectError::Extern {
            program: self.entry.name.clone(),
            function: self.function.name.clone(),
            symbol: symbol.name.clone(),
            place,
            advice,
        }
    }
}
