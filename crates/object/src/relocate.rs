//! An object whose CO-RE relocations are done: for those who load it without the target's types at
//! hand.

use crate::btf::Btf;
use crate::core;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::functions;
use crate::load::load_with;
use crate::options::LoadOptions;
use crate::sections::types;

/// Offset of the length of the CO-RE table in the header of `.BTF.ext`.
const CORE_LEN: usize = 28;

/// Resolves the CO-RE relocations of an object against `target` and writes the results into its
/// code, so that [`crate::load`] sees in it what [`crate::load_with`] makes of the original. Only
/// the texts of [`crate::Program::unresolved`] are lost. A function that no program reaches may
/// stay as it is: [`crate::hide`] leaves such.
///
/// # Errors
/// [`ObjectError`], as [`crate::load_with`]. No input makes it panic.
pub fn relocate(bytes: &[u8], target: &Btf) -> Result<Vec<u8>, ObjectError> {
    let elf = Elf::parse(bytes)?;
    let (btf, ext) = types(&elf)?;
    let mut out = bytes.to_vec();
    let (Some(btf), Some(section)) = (btf, elf.section(".BTF.ext")) else {
        return Ok(out);
    };
    if ext.sections.values().all(|section| section.core.is_empty()) {
        return Ok(out);
    }
    let mut functions = functions::functions(&elf)?;
    let options = LoadOptions {
        target_btf: Some(target),
        no_target: None,
    };
    let resolved = core::apply(&elf, &ext, &btf, &options, &mut functions);
    if !resolved.faults.is_empty() {
        load_with(bytes, &options)?;
    }
    let mut write = |at: usize, bytes: &[u8]| {
        if let Some(place) = out.get_mut(at..).and_then(|out| out.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
    };
    for ((section, start), function) in &functions {
        let code: Vec<u8> = function
            .slots
            .iter()
            .flat_map(|slot| slot.to_bytes())
            .collect();
        write(elf.sections[*section].offset + *start as usize * 8, &code);
    }
    write(section.offset + CORE_LEN, &[0; 4]);
    Ok(out)
}
