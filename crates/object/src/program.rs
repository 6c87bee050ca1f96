//! One program: its entry function gets a copy of every local function that it reaches, and each
//! reference becomes an index that needs no relocation any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpbpf_ebpf::{Code, DecodeError, Pc, Slot};

use crate::btf_ext::{BtfExt, SectionExt};
use crate::core::{Resolved, UNRESOLVED_CALL};
use crate::error::{FunctionDecodeError, ObjectError};
use crate::functions::Function;
use crate::object::{FunctionInfo, LineInfo, Program};
use crate::references::{Names, Reference, Site};

/// What programs are made of.
pub(crate) struct Linker<'a> {
    pub(crate) names: &'a Names<'a>,
    pub(crate) ext: &'a BtfExt,
    pub(crate) resolved: &'a Resolved,
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
    /// The program that begins with `entry`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(crate) fn link(&self, entry: &'a Function) -> Result<Program, Vec<ObjectError>> {
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
        let code = warpbpf_ebpf::decode(&bytes)
            .map_err(|errors| vec![decode_errors(entry, &placed, errors)])?;
        let functions = self.function_table(&placed, &code);
        let lines = self.lines(&placed, &code);
        let unresolved = self.unresolved(&placed, &code);
        let section = self.names.elf.sections[entry.section].name.clone();
        Ok(Program {
            name: entry.name.clone(),
            section,
            code,
            functions,
            lines,
            unresolved,
        })
    }

    /// The entry and all it reaches, in order of discovery.
    fn reach(&self, entry: &'a Function) -> Result<Vec<Placed<'a>>, Vec<ObjectError>> {
        let mut order = vec![entry];
        let mut seen = BTreeSet::from([(entry.section, entry.start)]);
        let (mut placed, mut errors) = (Vec::new(), Vec::new());
        let mut start = 0;
        let mut next = 0;
        while let Some(function) = order.get(next).copied() {
            next += 1;
            let place = (function.section, function.start);
            errors.extend(self.resolved.faults.get(&place).cloned());
            let references = Site {
                names: self.names,
                entry,
                function,
            }
            .references(&mut errors);
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
        match errors.is_empty() {
            true => Ok(placed),
            false => Err(errors),
        }
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
                Some(Reference::Kfunc(number)) => (insn.src, insn.imm) = (2, *number as i32),
                Some(Reference::Constant(value)) => {
                    (insn.src, insn.imm) = (0, *value as i32);
                    high = Some((*value >> 32) as i32);
                }
                Some(Reference::Unresolved(_)) => {
                    (insn.src, insn.imm) = (0, UNRESOLVED_CALL as i32);
                }
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
            // No function ends inside an `lddw` (`references`), so all of them start at an
            // instruction.
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
        let Some(btf) = self.names.btf else {
            return Vec::new();
        };
        let mut strings: BTreeMap<u32, Arc<str>> = BTreeMap::new();
        let mut text = |offset: u32| {
            let text = || btf.string(offset).unwrap_or_default().trim_end();
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

    /// What stands in place of something that does not exist, and why.
    fn unresolved(&self, placed: &[Placed<'_>], code: &Code) -> BTreeMap<Pc, String> {
        let mut unresolved = BTreeMap::new();
        for placed in placed {
            let (section, start) = (placed.function.section, placed.function.start);
            let end = start + placed.function.slots.len() as u32;
            let poisoned = self
                .resolved
                .unresolved
                .range((section, start)..(section, end));
            let poisoned = poisoned.map(|((_, slot), text)| (slot - start, text));
            let references = placed.references.iter();
            let missing = references.filter_map(|(slot, reference)| match reference {
                Reference::Unresolved(text) => Some((*slot, text)),
                _ => None,
            });
            for (slot, text) in poisoned.chain(missing) {
                if let Some(pc) = code.pc_of_slot(placed.start + slot) {
                    unresolved.insert(pc, text.clone());
                }
            }
        }
        unresolved
    }

    fn ext_of(&self, function: &Function) -> Option<&'a SectionExt> {
        self.ext
            .sections
            .get(&self.names.elf.sections[function.section].name)
    }
}
