//! References between what was put together.

use crate::elf::{Place, R_BPF_64_32, R_BPF_64_64, R_BPF_64_ABS64, R_BPF_64_NODYLD32, Relocation};
use crate::link::error::LinkError;
use crate::link::input::Input;
use crate::link::layout::{Layout, OutRelocation};
use crate::link::symbols::{STT_SECTION, Symbols};

/// Relocation of four bytes in data.
const R_BPF_64_ABS32: u32 = 3;

/// Moves every relocation, and the offsets that stand in the bytes where it refers to a section as
/// a whole.
pub(super) fn relocate(
    inputs: &[Input<'_>],
    layout: &mut Layout,
    symbols: &Symbols,
) -> Result<(), LinkError> {
    for (object, input) in inputs.iter().enumerate() {
        for (index, section) in input.elf.sections.iter().enumerate() {
            let Some((out, shift)) = layout.placed[object][index] else {
                continue;
            };
            let dropped = dropped_maps(input, object, index, symbols);
            for relocation in &section.relocations {
                if dropped
                    .iter()
                    .any(|(start, end)| (*start..*end).contains(&relocation.offset))
                {
                    continue;
                }
                let symbol = &input.elf.symbols[relocation.symbol];
                let label = || input.elf.symbol_label(symbol);
                let target = symbols.index[object][relocation.symbol].ok_or_else(|| {
                    input.damaged(format!(
                        "byte {} of `{}` refers to `{}`, which is not part of a program",
                        relocation.offset,
                        section.name,
                        label()
                    ))
                })?;
                let offset = relocation.offset.saturating_add(shift);
                if symbol.kind == STT_SECTION
                    && let Place::Section(at) = symbol.place
                    && let Some((_, moved)) = layout.placed[object][at]
                {
                    let bytes = &mut layout.sections[out].data;
                    move_addend(bytes, offset, relocation, moved).ok_or_else(|| {
                        input.damaged(format!(
                            "byte {} of `{}` has a relocation of type {} against `{}` that cannot be moved",
                            relocation.offset,
                            section.name,
                            relocation.kind,
                            label()
                        ))
                    })?;
                }
                layout.sections[out].relocations.push(OutRelocation {
                    offset,
                    kind: relocation.kind,
                    symbol: target,
                });
            }
        }
    }
    Ok(())
}

/// Byte ranges of definitions of maps that another object's definition stands for.
fn dropped_maps(
    input: &Input<'_>,
    object: usize,
    section: usize,
    symbols: &Symbols,
) -> Vec<(u64, u64)> {
    if input.elf.sections[section].name != ".maps" {
        return Vec::new();
    }
    let here = input.elf.symbols.iter().filter(|symbol| {
        symbol.place == Place::Section(section)
            && symbol.global
            && !symbols.is_taken(object, &symbol.name)
    });
    here.map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size)))
        .collect()
}

/// Adds `moved` bytes to the addend that the relocated bytes hold.
fn move_addend(bytes: &mut [u8], offset: u64, relocation: &Relocation, moved: u64) -> Option<()> {
    let at = usize::try_from(offset).ok()?;
    let moved = i64::try_from(moved).ok()?;
    let (at, amount) = match relocation.kind {
        R_BPF_64_64 => (at.checked_add(4)?, moved),
        R_BPF_64_32 => (at.checked_add(4)?, moved / 8),
        R_BPF_64_ABS32 | R_BPF_64_NODYLD32 => (at, moved),
        R_BPF_64_ABS64 => {
            let field = bytes.get_mut(at..)?.first_chunk_mut::<8>()?;
            *field = i64::from_le_bytes(*field).checked_add(moved)?.to_le_bytes();
            return Some(());
        }
        _ => return None,
    };
    let field = bytes.get_mut(at..)?.first_chunk_mut::<4>()?;
    let sum = i64::from(i32::from_le_bytes(*field)) + amount;
    *field = i32::try_from(sum).ok()?.to_le_bytes();
    Some(())
}
