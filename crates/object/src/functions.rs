//! The functions of an object and which of them are entry points.

use std::collections::BTreeMap;

use warpbpf_ebpf::Slot;

use crate::elf::{Elf, Place};
use crate::error::ObjectError;

pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) section: usize,
    /// First slot in its section.
    pub(crate) start: u32,
    pub(crate) slots: Vec<Slot>,
    pub(crate) global: bool,
}

impl Function {
    /// Whether `slot` jumps to what stands beside the function, which will not be there in a
    /// program.
    pub(crate) fn jumps_out(&self, slot: u32) -> bool {
        let insn = self.slots[slot as usize];
        let class = insn.opcode & 7;
        if !matches!(class, JMP | JMP32) || matches!(insn.opcode, CALL | CALLX | EXIT) {
            return false;
        }
        let distance = if insn.opcode == JMP32 {
            i64::from(insn.imm)
        } else {
            i64::from(insn.off)
        };
        !(0..self.slots.len() as i64).contains(&(i64::from(slot) + 1 + distance))
    }
}

/// Instruction class of 64-bit jumps and calls.
const JMP: u8 = 5;
/// Instruction class of 32-bit jumps; as an opcode, the jump with a 32-bit distance.
const JMP32: u8 = 6;
pub(crate) const CALL: u8 = 0x85;
const CALLX: u8 = 0x8d;
const EXIT: u8 = 0x95;

/// All functions by place. Two names of one function count once, under the global one.
pub(crate) fn functions(elf: &Elf<'_>) -> Result<BTreeMap<(usize, u32), Function>, ObjectError> {
    let mut functions: BTreeMap<(usize, u32), Function> = BTreeMap::new();
    for symbol in elf.symbols.iter().filter(|symbol| symbol.function) {
        let Place::Section(at) = symbol.place else {
            continue;
        };
        let section = &elf.sections[at];
        let end = symbol.value.saturating_add(symbol.size);
        let slot = Slot::BYTES as u64;
        let bytes = usize::try_from(symbol.value)
            .ok()
            .zip(usize::try_from(end).ok());
        let bytes = bytes
            .and_then(|(start, end)| section.data.get(start..end))
            .filter(|bytes| {
                section.executable
                    && !bytes.is_empty()
                    && symbol.value % slot == 0
                    && symbol.size % slot == 0
            });
        let bytes = bytes.ok_or_else(|| ObjectError::FunctionRange {
            function: symbol.name.clone(),
            section: section.name.clone(),
            offset: symbol.value,
            end,
        })?;
        let start = (symbol.value / slot) as u32;
        let slots = Slot::all(bytes).collect();
        let function = Function {
            name: symbol.name.clone(),
            section: at,
            start,
            slots,
            global: symbol.global,
        };
        match functions.get(&(at, start)) {
            Some(other) if other.global || !function.global => {}
            _ => drop(functions.insert((at, start), function)),
        }
    }
    Ok(functions)
}

/// Entry points: global functions in named sections; if there is none, the only function of
/// `.text`.
pub(crate) fn entries<'a>(
    elf: &Elf<'_>,
    functions: &'a BTreeMap<(usize, u32), Function>,
) -> impl Iterator<Item = &'a Function> {
    let text = elf.section_index(".text");
    let lone = functions.len() == 1;
    functions
        .values()
        .filter(move |function| function.global && (lone || Some(function.section) != text))
}
