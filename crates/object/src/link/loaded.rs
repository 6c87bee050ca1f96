//! What a loader has passed to the kernel, for [`assemble`](super::assemble()).

use crate::btf::{BtfError, TypeId};
use crate::link::error::LinkError;

/// What a loader passed.
#[derive(Debug, Clone, Default)]
pub struct Assembly<'a> {
    /// Contents of `.BTF` sections, one for each object that was loaded.
    pub types: Vec<&'a [u8]>,
    /// The maps; programs refer to them by their place here.
    pub maps: Vec<LoadedMap<'a>>,
    /// The programs.
    pub programs: Vec<LoadedProgram<'a>>,
    /// Text of the licence.
    pub license: &'a str,
}

/// A map as `BPF_MAP_CREATE` describes it.
#[derive(Debug, Clone, Default)]
pub struct LoadedMap<'a> {
    /// Name; a data section gets one of its own, see [`LoadedMap::data`].
    pub name: &'a str,
    /// Number of `enum bpf_map_type`.
    pub map_type: u32,
    /// Bytes.
    pub key_size: u32,
    /// Bytes.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// `BPF_F_*` bits.
    pub flags: u32,
    /// `map_extra`.
    pub extra: u64,
    /// Which of [`Assembly::types`] the next two are of.
    pub types: usize,
    /// Type of a key; `void` if unknown.
    pub key_type: TypeId,
    /// Type of a value; `void` if unknown. Of a data section its
    /// [`Type::DataSec`](crate::Type::DataSec).
    pub value_type: TypeId,
    /// Set if it is a data section: the section's name and its contents.
    pub data: Option<(&'a str, &'a [u8])>,
    /// What each value of a map of maps is.
    pub inner: Option<Box<LoadedMap<'a>>>,
    /// Entries of a map of maps: index, and which of [`Assembly::maps`].
    pub initial: Vec<(u32, usize)>,
}

/// A program as `BPF_PROG_LOAD` describes it.
#[derive(Debug, Clone, Default)]
pub struct LoadedProgram<'a> {
    /// Name of its entry function.
    pub name: &'a str,
    /// Section name to give it.
    pub section: &'a str,
    /// Instructions, the entry function first, then the functions that it calls.
    pub code: &'a [u8],
    /// Which of its instructions name maps.
    pub maps: Vec<MapReference>,
    /// Which of [`Assembly::types`] it was loaded with.
    pub types: Option<usize>,
    /// First slot and type of each function, as in `func_info`.
    pub functions: Vec<(u32, TypeId)>,
    /// As in `line_info`.
    pub lines: Vec<LoadedLine>,
}

/// An `lddw` of a map or of a variable in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapReference {
    /// Slot of the instruction.
    pub slot: u32,
    /// Which of [`Assembly::maps`].
    pub map: usize,
    /// Byte offset in the map's only value; `None` if the map itself is meant.
    pub offset: Option<u32>,
}

/// A record of `line_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedLine {
    /// Slot.
    pub slot: u32,
    /// Offset of the file's name in the strings of its types.
    pub file: u32,
    /// Offset of the line's text there.
    pub text: u32,
    /// Line `<< 10 |` column.
    pub position: u32,
}

/// Why no object can be made. The loader's input is at fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssembleError {
    /// Types that cannot be read.
    #[error("the types that were loaded as number {index} cannot be read: {error}")]
    Types {
        /// Which.
        index: usize,
        /// What is wrong.
        error: BtfError,
    },
    /// A place that does not exist.
    #[error("program `{program}`: {what}")]
    Program {
        /// Its name.
        program: String,
        /// What is wrong.
        what: String,
    },
    /// A map of maps of maps, or a reference to a map that was not given.
    #[error("map `{map}`: {what}")]
    Map {
        /// Its name.
        map: String,
        /// What is wrong.
        what: &'static str,
    },
    /// More than the format can hold.
    #[error("{error}")]
    TooLarge {
        /// What there is too much of.
        error: LinkError,
    },
}
