//! What an object is once it is loaded: programs, maps, lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpbpf_abi::maps::{MapType, PLACE, Placement};
use warpbpf_ebpf::{Code, Imm64, Insn, Pc};

use crate::btf::{Btf, TypeId};

/// A loaded object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Object {
    /// Entry points, in the order of the file.
    pub programs: Vec<Program>,
    /// Maps that the user declared, by their offset in `.maps`, then the data sections. Code refers
    /// to them by index.
    pub maps: Vec<MapDef>,
    /// Text of the `license` section.
    pub license: Option<String>,
    /// Number in the `version` section.
    pub version: Option<u32>,
    /// The types, if the object was compiled with `-g`.
    pub btf: Option<Btf>,
}

impl Object {
    /// The program with this C function name.
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// The map with this name, and its index.
    pub fn map(&self, name: &str) -> Option<(u32, &MapDef)> {
        (0..).zip(&self.maps).find(|(_, map)| map.name == name)
    }
}

/// One entry point with all the code it can reach.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Name of the C function.
    pub name: String,
    /// Argument of `SEC(…)`, verbatim.
    pub section: String,
    /// The entry function first, then every local function that it reaches, relocated.
    pub code: Code,
    /// The functions in `code`, in order, without gaps.
    pub functions: Vec<FunctionInfo>,
    /// Source lines, sorted by `pc`. Empty without `-g`.
    pub lines: Vec<LineInfo>,
    /// Instructions that ask for what does not exist, and what that is, in words for the author:
    /// fields, types and enumerators that the target does not have, weak kernel functions that are
    /// not served. Each of them is a call of helper [`UNRESOLVED_CALL`](crate::UNRESOLVED_CALL), so
    /// that a program which asks first whether they exist can be accepted.
    pub unresolved: BTreeMap<Pc, String>,
}

impl Program {
    /// The line of `pc`: the nearest one at or before it in the same function.
    pub fn line_of(&self, pc: Pc) -> Option<&LineInfo> {
        let function = self.function_of(pc)?;
        let after = self.lines.partition_point(|line| line.pc <= pc);
        let line = self.lines[..after].last()?;
        (line.pc >= function.start).then_some(line)
    }

    /// Maps that it names, by index, some more than once.
    pub fn maps(&self) -> impl Iterator<Item = u32> + '_ {
        self.code.insns().iter().filter_map(|insn| match insn {
            Insn::LoadImm64 {
                value: Imm64::Map(map) | Imm64::MapValue { map, .. },
                ..
            } => Some(*map),
            _ => None,
        })
    }

    /// The function that `pc` belongs to.
    pub fn function_of(&self, pc: Pc) -> Option<&FunctionInfo> {
        self.functions
            .iter()
            .find(|function| function.start <= pc && pc < function.end)
    }
}

/// A function inside a [`Program`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionInfo {
    /// Name of the C function.
    pub name: String,
    /// Its first instruction.
    pub start: Pc,
    /// One past its last instruction.
    pub end: Pc,
    /// The [`Type::Func`](crate::Type::Func), from which parameter types follow. `None` without
    /// `-g`.
    pub btf: Option<TypeId>,
}

/// Source position of an instruction and those after it, up to the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineInfo {
    /// The first instruction.
    pub pc: Pc,
    /// Path as the compiler was given it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1; 0 if unknown.
    pub column: u32,
    /// The source line without blanks at its end: those at its start are counted by `column`.
    pub text: Arc<str>,
}

/// A map to create before the programs run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapDef {
    /// Name of the C variable, or of the data section.
    pub name: String,
    /// Number of `enum bpf_map_type`, or any other.
    pub map_type: u32,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// 0 if the definition leaves it to the loader.
    pub max_entries: u32,
    /// `BPF_F_*` bits.
    pub flags: u32,
    /// Declared, or made from a data section.
    pub kind: MapKind,
    /// Every other attribute under its name in the definition: `pinning`, `map_extra`, `numa_node`,
    /// …
    pub extra: BTreeMap<String, u64>,
    /// Type of a key, where the definition names one.
    pub key_type: Option<TypeId>,
    /// Type of a value, where the definition names one; for a data section its
    /// [`Type::DataSec`](crate::Type::DataSec).
    pub value_type: Option<TypeId>,
    /// For a map of maps: what each value is (`__array(values, …)`).
    pub inner: Option<Box<MapDef>>,
    /// Initial entries of a map of maps or of a program array (`.values = { [i] = &x }`).
    pub initial: Vec<InitialEntry>,
}

impl MapDef {
    /// Its contents are constants: `.rodata` and the like.
    pub fn is_constant(&self) -> bool {
        matches!(
            self.kind,
            MapKind::Data {
                read_only: true,
                ..
            }
        )
    }

    /// Each operation on it is one that the host is asked for: a hash that the user placed there.
    pub fn is_asked_for(&self) -> bool {
        let hash = matches!(
            MapType::from_number(self.map_type),
            Some(MapType::Hash | MapType::GpuHash)
        );
        let place = self.extra.get(PLACE).copied().unwrap_or(0);
        hash && Placement::from_number(place) == Some(Placement::Host)
    }
}

/// An entry that the definition of a map asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialEntry {
    /// The key.
    pub index: u32,
    /// The value.
    pub value: InitialValue,
}

/// What an [`InitialEntry`] refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitialValue {
    /// A map, by its index in [`Object::maps`].
    Map(u32),
    /// A program, by the name of its C function.
    Program(String),
}

/// Where a map comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// A definition in `.maps`.
    User,
    /// A data section, as an array with one entry that holds all of it.
    Data {
        /// `.rodata`, `.data`, `.bss`, or one of these with a suffix.
        section: String,
        /// Initial contents; zeros for `.bss`.
        image: Vec<u8>,
        /// `.rodata`: programs may not write, so the verifier may treat its contents as constants.
        read_only: bool,
    },
}
