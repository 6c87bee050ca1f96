//! Everything that can be wrong with an object file, each with what to change.

use warpbpf_ebpf::DecodeError;

use crate::btf_types::BtfError;
use crate::core_error::CoreError;

/// Why an object cannot be loaded. The file is at fault in all cases.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectError {
    /// No ELF magic.
    #[error("this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`")]
    NotElf,
    /// An ELF file of 32 bits.
    #[error("this is a 32-bit ELF file; BPF objects are 64-bit (`clang -target bpf`)")]
    Class,
    /// An ELF file for big-endian machines.
    #[error(
        "this is a big-endian object; compile with `-target bpfel` (GPUs and their hosts are little-endian)"
    )]
    BigEndian,
    /// An ELF file for another processor.
    #[error(
        "this ELF file is for machine {machine}, not BPF (247); compile with `clang -target bpf`"
    )]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// An executable or a shared library.
    #[error(
        "this ELF file is of type {kind}, not relocatable (1); load what `clang -c` writes, without linking it"
    )]
    NotRelocatable {
        /// `e_type`.
        kind: u16,
    },
    /// Damaged headers, sections, symbols or relocations.
    #[error("the ELF file is damaged: {detail}; compile it again")]
    Damaged {
        /// What does not hold.
        detail: String,
    },
    /// A `.BTF` or `.BTF.ext` section that cannot be read.
    #[error(
        "section `{section}` cannot be read: {error}; compile with a clang of version 11 or later"
    )]
    Btf {
        /// Which one.
        section: &'static str,
        /// What is wrong.
        error: BtfError,
    },
    /// `struct bpf_map_def SEC("maps")`.
    #[error(
        "section `{section}` holds legacy map definitions; declare maps as `struct {{ __uint(type, …); … }} name SEC(\".maps\")`"
    )]
    LegacyMaps {
        /// Its name: `maps` or `maps/…`.
        section: String,
    },
    /// A `struct_ops` program or map.
    #[error(
        "section `{section}`: struct_ops replaces kernel functions and has no meaning on a GPU; remove it"
    )]
    StructOps {
        /// Its name.
        section: String,
    },
    /// Global variables in an arena.
    #[error(
        "section `{section}`: arena variables (`__arena`) are not supported yet; use an array map"
    )]
    Arena {
        /// Its name.
        section: String,
    },
    /// Maps without type information.
    #[error(
        "section `.maps` needs type information, but the object has no `.BTF`; compile with `-g`"
    )]
    MapsWithoutBtf,
    /// A file that was to give types has none.
    #[error(
        "this file has no types (no `.BTF` section); compile with `-g`, or give `/sys/kernel/btf/vmlinux`"
    )]
    NoBtf,
    /// `.BTF.ext` without the strings it refers to.
    #[error(
        "the object has `.BTF.ext` but no `.BTF`; it was stripped halfway, compile it again with `-g`"
    )]
    ExtWithoutBtf,
    /// A map definition that says too little or something unknown.
    #[error("map `{map}`: {problem}")]
    MapDef {
        /// Its name.
        map: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// A data section larger than any program needs.
    #[error(
        "section `{section}` has {size} bytes, the limit is {limit}; put large data into a map"
    )]
    DataTooLarge {
        /// Its name.
        section: String,
        /// In bytes.
        size: u64,
        /// In bytes.
        limit: u64,
    },
    /// A global variable initialised with an address.
    #[error(
        "section `{section}` holds the address of `{symbol}` at byte {offset}; addresses are only known at run time, assign it in the program"
    )]
    DataRelocation {
        /// The data section.
        section: String,
        /// What it points to.
        symbol: String,
        /// Where, in bytes.
        offset: u64,
    },
    /// A function symbol that is not a whole number of instructions inside its section.
    #[error(
        "function `{function}` (bytes {offset} to {end} of section `{section}`) is not a whole number of instructions inside it"
    )]
    FunctionRange {
        /// Name of the function.
        function: String,
        /// Its section.
        section: String,
        /// Start in bytes.
        offset: u64,
        /// End in bytes.
        end: u64,
    },
    /// `__kconfig`, `__ksym`, or a plain `extern`.
    #[error("program `{program}`: `{function}` uses the extern `{symbol}`{place}, which {advice}")]
    Extern {
        /// The entry point.
        program: String,
        /// The function with the reference.
        function: String,
        /// The name.
        symbol: String,
        /// ` in .kconfig`, ` in .ksyms`, or empty.
        place: &'static str,
        /// Why not, and what to do.
        advice: String,
    },
    /// A CO-RE relocation that contradicts the types or the instruction that it belongs to, or fits
    /// several types of the target in different ways.
    #[error("`{function}` (slot {slot}): the CO-RE relocation ({kind}) of `{access}` {problem}")]
    CoRe {
        /// The function with the access.
        function: String,
        /// Slot within the function.
        slot: u32,
        /// `field offset`, `type size`, …
        kind: &'static str,
        /// The type and the path of members: `struct task_struct.pid`.
        access: String,
        /// What is wrong.
        problem: CoreError,
    },
    /// A relocation of a kind or against a symbol that means nothing in code.
    #[error(
        "program `{program}`: `{function}` (slot {slot}) has a relocation against `{symbol}` that {problem}"
    )]
    Relocation {
        /// The entry point.
        program: String,
        /// The function.
        function: String,
        /// Slot within the function.
        slot: u32,
        /// Name of the symbol, or of its section.
        symbol: String,
        /// Why it cannot be applied.
        problem: String,
    },
    /// A map, variable or function reference that was baked into the code instead of left to the
    /// loader.
    #[error(
        "program `{program}`: `{function}` (slot {slot}) is an `lddw` of kind {kind} without a relocation; only the loader can fill that in"
    )]
    BakedReference {
        /// The entry point.
        program: String,
        /// The function.
        function: String,
        /// Slot within the function.
        slot: u32,
        /// The `src` field.
        kind: u8,
    },
    /// A call that does not reach the start of a function.
    #[error(
        "program `{program}`: `{function}` (slot {slot}) calls slot {target} of section `{section}`, where no function starts"
    )]
    CallTarget {
        /// The entry point.
        program: String,
        /// The calling function.
        function: String,
        /// Slot within the calling function.
        slot: u32,
        /// Section of the target.
        section: String,
        /// Slot within that section.
        target: i64,
    },
    /// A jump from one function into another.
    #[error(
        "program `{program}`: `{function}` (slot {slot}) jumps out of its function; only calls may do that"
    )]
    JumpOut {
        /// The entry point.
        program: String,
        /// The function.
        function: String,
        /// Slot within the function.
        slot: u32,
    },
    /// Instructions that do not exist.
    #[error("program `{program}` does not decode: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Decode {
        /// The entry point.
        program: String,
        /// All of them.
        errors: Vec<FunctionDecodeError>,
    },
}

/// All that is wrong with an object, as far as it could be found out: a line for each.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ObjectErrors(Vec<ObjectError>);

impl ObjectErrors {
    /// At least one, each of which is told once.
    pub fn all(self) -> Vec<ObjectError> {
        self.0
    }

    pub(crate) fn first(mut self) -> ObjectError {
        self.0.swap_remove(0)
    }
}

impl From<ObjectError> for ObjectErrors {
    fn from(error: ObjectError) -> ObjectErrors {
        ObjectErrors(vec![error])
    }
}

/// Errors that are collected, to be told in one go.
#[derive(Default)]
pub(crate) struct Errors(Vec<ObjectError>);

impl Errors {
    pub(crate) fn push(&mut self, error: ObjectError) {
        if !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    /// What is good of a result.
    pub(crate) fn good<T>(&mut self, result: Result<T, ObjectError>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(crate) fn end(self) -> Result<(), ObjectErrors> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(ObjectErrors(self.0)),
        }
    }
}

/// A slot of a function that is no instruction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{function}` {error}")]
pub struct FunctionDecodeError {
    /// The function.
    pub function: String,
    /// What is wrong; the slot counts from the start of the function.
    pub error: DecodeError,
}
