//! From the bytes of an object file to programs and maps.

use crate::core::{self, Resolved};
use crate::elf::Elf;
use crate::error::{Errors, ObjectError, ObjectErrors};
use crate::functions::{entries, functions};
use crate::object::Object;
use crate::options::LoadOptions;
use crate::program::Linker;
use crate::references::Names;
use crate::sections::{license, refused_sections, types, version};
use crate::{data, map_defs};

/// Loads a BPF object from the bytes of its ELF file.
///
/// # Errors
/// [`ObjectError`] says which section, program or symbol is at fault and what to change. No input
/// makes it panic.
pub fn load(bytes: &[u8]) -> Result<Object, ObjectError> {
    load_with(bytes, &LoadOptions::default())
}

/// Loads a BPF object for a given target.
///
/// # Errors
/// Those of [`load`]. What the target does not have is no error but stands in
/// [`Program::unresolved`](crate::Program::unresolved).
pub fn load_with(bytes: &[u8], options: &LoadOptions<'_>) -> Result<Object, ObjectError> {
    load_all(bytes, options).map_err(ObjectErrors::first)
}

/// [`load_with`], with all that is wrong and not only the first of it.
///
/// # Errors
/// Those of [`load`], of the sections, maps and programs together.
pub fn load_all(bytes: &[u8], options: &LoadOptions<'_>) -> Result<Object, ObjectErrors> {
    load_wanted(bytes, options, &mut |_| true)
}

/// Loads an object with only the programs that `wanted` names, asked for each entry point's C
/// function name. What is wrong with another program does not matter then (libbpf's
/// `bpf_program__set_autoload`).
///
/// # Errors
/// As [`load`], for what is shared by all programs and for those wanted.
pub fn load_some(
    bytes: &[u8],
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<Object, ObjectError> {
    let all = load_wanted(bytes, &LoadOptions::default(), wanted);
    all.map_err(ObjectErrors::first)
}

/// Loads the entry points that `wanted` says, by their names.
fn load_wanted(
    bytes: &[u8],
    options: &LoadOptions<'_>,
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<Object, ObjectErrors> {
    let elf = Elf::parse(bytes)?;
    let mut errors = Errors::default();
    refused_sections(&elf, &mut errors);
    let (btf, ext) = types(&elf)?;
    let mut declared = map_defs::read(&elf, btf.as_ref(), &mut errors);
    let mut maps = std::mem::take(&mut declared.maps);
    let data = errors.good(data::append(&elf, btf.as_ref(), &mut maps));
    let data = data.unwrap_or_default();
    let whole = errors.is_empty();
    let mut functions = functions(&elf)?;
    let resolved = match &btf {
        Some(btf) => core::apply(&elf, &ext, btf, options, &mut functions),
        None => Resolved::default(),
    };
    let names = Names {
        elf: &elf,
        btf: btf.as_ref(),
        declared: &declared,
        data: &data,
        functions: &functions,
    };
    let linker = Linker {
        names: &names,
        ext: &ext,
        resolved: &resolved,
    };
    let mut programs = Vec::new();
    for entry in entries(&elf, &functions).filter(|entry| wanted(&entry.name)) {
        match linker.link(entry) {
            Ok(program) => programs.push(program),
            Err(all) => all.into_iter().for_each(|error| match error {
                // It may be about what is not there because of the others.
                ObjectError::Relocation { .. } if !whole => {}
                error => errors.push(error),
            }),
        }
    }
    errors.end()?;
    let (license, version) = (license(&elf), version(&elf));
    Ok(Object {
        programs,
        maps,
        license,
        version,
        btf,
    })
}
