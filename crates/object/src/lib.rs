//! BPF object files: from the ELF that clang writes to relocated programs, maps, types and source
//! lines.
//!
//! [`load`], [`load_with`] and [`load_all`] do no I/O; the caller brings the bytes. What they
//! return is complete: each program's code starts with its entry function, holds every local
//! function that it reaches, and names maps by their index in [`Object::maps`]. CO-RE relocations
//! are resolved against the object's own types or a target's. What cannot be relocated is refused
//! by name, so nothing half-understood reaches the verifier: `.kconfig` externs, kernel symbols
//! that are not served, `struct_ops`, the legacy `maps` section, arenas.
//!
//! [`link`] makes one object of several, [`assemble`] one of what a loader has passed to `bpf()`,
//! and [`set_variables`] gives global variables other values, both as bytes of an object file
//! again, [`hide`] leaves some programs and maps out, and [`relocate`] does CO-RE relocations in
//! advance: what is loaded here and in the target process is then one and the same.
//!
//! Layers, each uses only those to its right: `relocate → load → link → program → hide → references
//! → settings → core → data → map_defs → sections → btf_ext → btf_print → object → options → btf →
//! functions → elf → btf_write → error → read → btf_types → flavor`.
//!
//! Absent on purpose: any meaning of section names, map types or helpers. Those belong to other
//! crates.

pub mod btf;
mod btf_ext;
mod btf_print;
mod btf_types;
mod btf_write;
mod core;
mod core_error;
mod data;
mod elf;
mod error;
mod flavor;
mod functions;
mod hide;
mod link;
mod load;
mod map_defs;
mod object;
mod options;
mod program;
mod read;
mod references;
mod relocate;
mod sections;
mod settings;

#[cfg(test)]
mod fuzz;

pub use btf::{Btf, BtfError, Linkage, Member, SectionVar, Type, TypeId};
pub use core::UNRESOLVED_CALL;
pub use core_error::CoreError;
pub use error::{FunctionDecodeError, ObjectError, ObjectErrors};
pub use hide::hide;
pub use link::{
    AssembleError, Assembly, Difference, LinkError, LoadedLine, LoadedMap, LoadedProgram,
    MapReference, assemble, link,
};
pub use load::{load, load_all, load_some, load_with};
pub use object::{
    FunctionInfo, InitialEntry, InitialValue, LineInfo, MapDef, MapKind, Object, Program,
};
pub use options::LoadOptions;
pub use relocate::relocate;
pub use settings::{SetError, set_variables};
