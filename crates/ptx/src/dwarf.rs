//! The little of DWARF that names need: a tree of functions, their parameters and types out of
//! `.debug_info`, for every version from 2, which compilers write into PTX, to 5. DWARF 5 "General
//! Description".

use std::collections::{HashMap, hash_map};

use gimli::{
    Abbreviations, Attribute, AttributeValue, DebugAbbrev, DebugInfo, DwTag, EndianSlice,
    EntriesRaw, LittleEndian,
};

use crate::PtxError;
use crate::ast::Module;
use crate::sections::Section;

/// What is wrong with a module's debug information. Code does not depend on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DebugInfoError {
    /// The text of a section.
    #[error("the text of a debug section cannot be read")]
    Text(#[from] PtxError),
    /// A unit, a table of abbreviations or an entry.
    #[error("{what} at byte {offset} of `.{section}` cannot be read: {source}")]
    Bytes {
        /// Which of these.
        what: &'static str,
        /// The section, without its dot.
        section: &'static str,
        /// Where it begins.
        offset: usize,
        /// What is wrong with it.
        source: gimli::Error,
    },
}

impl DebugInfoError {
    fn at(what: &'static str, offset: usize) -> impl Fn(gimli::Error) -> DebugInfoError {
        move |source| DebugInfoError::Bytes {
            what,
            section: match what {
                TABLE => "debug_abbrev",
                _ => "debug_info",
            },
            offset,
            source,
        }
    }
}

const UNIT: &str = "the unit";
const ENTRY: &str = "the entry";
const TABLE: &str = "the table of abbreviations";

type Bytes<'b> = EndianSlice<'b, LittleEndian>;

/// Tags of entries that are kept, DWARF 5 table 7.3.
pub(crate) mod tag {
    pub(crate) use gimli::constants::{
        DW_TAG_array_type as ARRAY, DW_TAG_atomic_type as ATOMIC, DW_TAG_base_type as BASE,
        DW_TAG_class_type as CLASS, DW_TAG_const_type as CONST,
        DW_TAG_enumeration_type as ENUMERATION, DW_TAG_formal_parameter as PARAMETER,
        DW_TAG_namespace as NAMESPACE, DW_TAG_pointer_type as POINTER,
        DW_TAG_ptr_to_member_type as POINTER_TO_MEMBER, DW_TAG_reference_type as REFERENCE,
        DW_TAG_restrict_type as RESTRICT, DW_TAG_rvalue_reference_type as RVALUE_REFERENCE,
        DW_TAG_structure_type as STRUCTURE, DW_TAG_subprogram as FUNCTION,
        DW_TAG_subrange_type as SUBRANGE, DW_TAG_subroutine_type as SUBROUTINE,
        DW_TAG_typedef as TYPEDEF, DW_TAG_union_type as UNION,
        DW_TAG_unspecified_type as UNSPECIFIED, DW_TAG_volatile_type as VOLATILE,
    };
}

/// Attributes that are read, DWARF 5 table 7.5.
mod at {
    pub(super) use gimli::constants::{
        DW_AT_MIPS_linkage_name as MIPS_LINKAGE_NAME, DW_AT_abstract_origin as ABSTRACT_ORIGIN,
        DW_AT_artificial as ARTIFICIAL, DW_AT_containing_type as CONTAINING_TYPE,
        DW_AT_count as COUNT, DW_AT_linkage_name as LINKAGE_NAME, DW_AT_location as LOCATION,
        DW_AT_name as NAME, DW_AT_specification as SPECIFICATION, DW_AT_type as TYPE,
        DW_AT_upper_bound as UPPER_BOUND,
    };
}

/// Where a zero-terminated string begins: in `.debug_info` itself or in `.debug_str`.
#[derive(Debug, Clone, Copy)]
enum Text {
    Here(usize),
    Strings(usize),
}

/// An entry that a name may need.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Offset in the section, by which others refer to it.
    offset: usize,
    pub(crate) tag: DwTag,
    depth: usize,
    /// The nearest entry around it that is kept.
    pub(crate) parent: Option<usize>,
    name: Option<Text>,
    linkage_name: Option<Text>,
    /// Offsets of other entries.
    ty: Option<usize>,
    class: Option<usize>,
    origin: Option<usize>,
    /// Elements of an array's dimension.
    pub(crate) count: Option<u64>,
    /// The compiler's own: `this`.
    pub(crate) artificial: bool,
    /// Where in the section an address stands that is all of the entry's location.
    address: Option<usize>,
}

/// The kept entries in text order, and the bytes that they refer to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) entries: Vec<Entry>,
    info: Section<'a>,
    strings: Section<'a>,
    pub(crate) error: Option<DebugInfoError>,
}

impl<'a> Tree<'a> {
    /// Reads the module's debug information as far as it can be read.
    pub(crate) fn new(module: &Module<'a>) -> Tree<'a> {
        let mut info = Section::read(module, "debug_info");
        if info.bytes.is_empty() && info.error.is_none() {
            return Tree::default();
        }
        let mut abbreviations = Section::read(module, "debug_abbrev");
        let mut strings = Section::read(module, "debug_str");
        let sections = [&mut info, &mut abbreviations, &mut strings];
        let labels = sections.map(|section| std::mem::take(&mut section.labels));
        info.link(&labels);
        let mut tree = Tree {
            entries: Vec::new(),
            info,
            strings,
            error: None,
        };
        let read = tree.units(&abbreviations.bytes).err();
        let text = [tree.info.error.take(), abbreviations.error];
        let text = text.into_iter().flatten().next().map(DebugInfoError::Text);
        // Where the text is wrong, what stops the reading is only what comes of it.
        tree.error = text.or(read);
        tree
    }

    /// The entry that the attribute of another refers to.
    fn at(&self, offset: Option<usize>) -> Option<usize> {
        let offset = offset?;
        self.entries
            .binary_search_by_key(&offset, |entry| entry.offset)
            .ok()
    }

    /// What `get` gives for the entry or for the one that it is an instance of.
    fn own_or_origin<T>(&self, entry: usize, get: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        // An instance of a definition of a declaration is the longest there is.
        const LONGEST: usize = 4;
        let chain = std::iter::successors(Some(entry), |&at| self.at(self.entries[at].origin));
        chain.take(LONGEST).find_map(|at| get(&self.entries[at]))
    }

    pub(crate) fn name(&self, entry: usize) -> Option<&str> {
        self.text(self.own_or_origin(entry, |entry| entry.name)?)
    }

    /// The name that a linker sees: of a function without mangling, its own.
    pub(crate) fn linkage_name(&self, entry: usize) -> Option<&str> {
        let text = self.own_or_origin(entry, |entry| entry.linkage_name);
        text.map_or_else(|| self.name(entry), |text| self.text(text))
    }

    pub(crate) fn ty(&self, entry: usize) -> Option<usize> {
        self.at(self.own_or_origin(entry, |entry| entry.ty))
    }

    /// Of a pointer to a member, the class.
    pub(crate) fn class(&self, entry: usize) -> Option<usize> {
        self.at(self.entries[entry].class)
    }

    /// The variable or parameter that the entry's location is.
    pub(crate) fn symbol(&self, entry: usize) -> Option<&'a str> {
        let symbol = self.info.symbol_at(self.entries[entry].address?)?;
        (symbol.addend == 0 && symbol.minus.is_none()).then_some(symbol.name)
    }

    /// The entries right inside `entry`.
    pub(crate) fn children(&self, entry: usize) -> impl Iterator<Item = usize> + '_ {
        let depth = self.entries[entry].depth;
        (entry + 1..self.entries.len())
            .take_while(move |&at| self.entries[at].depth > depth)
            .filter(move |&at| self.entries[at].parent == Some(entry))
    }

    fn text(&self, text: Text) -> Option<&str> {
        let bytes = match text {
            Text::Here(at) => self.info.bytes.get(at..)?,
            Text::Strings(at) => self.strings.bytes.get(at..)?,
        };
        let length = memchr::memchr(0, bytes)?;
        std::str::from_utf8(&bytes[..length]).ok()
    }

    fn units(&mut self, abbreviations: &[u8]) -> Result<(), DebugInfoError> {
        let mut info = std::mem::take(&mut self.info.bytes);
        let abbreviations = DebugAbbrev::new(abbreviations, LittleEndian);
        let mut tables = HashMap::new();
        let (mut at, mut result) = (0, Ok(()));
        while at < info.len() && result.is_ok() {
            bound(&mut info, at);
            result = self
                .unit(&info, at, &abbreviations, &mut tables)
                .map(|end| at = end);
        }
        self.info.bytes = info;
        result
    }

    /// Reads the unit at byte `at`. Where the next one begins.
    fn unit(
        &mut self,
        info: &[u8],
        at: usize,
        abbreviations: &DebugAbbrev<Bytes<'_>>,
        tables: &mut HashMap<usize, Abbreviations>,
    ) -> Result<usize, DebugInfoError> {
        let header = DebugInfo::new(info, LittleEndian)
            .header_from_offset(gimli::DebugInfoOffset(at))
            .map_err(DebugInfoError::at(UNIT, at))?;
        let of = header.debug_abbrev_offset();
        let table = match tables.entry(of.0) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => {
                let table = abbreviations.abbreviations(of);
                new.insert(table.map_err(DebugInfoError::at(TABLE, of.0))?)
            }
        };
        let entries = header
            .entries_raw(table, None)
            .map_err(DebugInfoError::at(UNIT, at))?;
        self.entries_of(at, entries, info)?;
        Ok(at + header.length_including_self())
    }

    fn entries_of(
        &mut self,
        start: usize,
        mut entries: EntriesRaw<'_, Bytes<'_>>,
        info: &[u8],
    ) -> Result<(), DebugInfoError> {
        // The entries that are open: the index of those that are kept.
        let mut open: Vec<Option<usize>> = Vec::new();
        while !entries.is_empty() {
            let offset = start + entries.next_offset().0;
            let wrong = DebugInfoError::at(ENTRY, offset);
            let Some(abbreviation) = entries.read_abbreviation().map_err(&wrong)? else {
                // Padding may follow the last.
                open.pop();
                continue;
            };
            let mut entry = Entry {
                offset,
                tag: abbreviation.tag(),
                depth: open.len(),
                parent: open.iter().rev().find_map(|kept| *kept),
                name: None,
                linkage_name: None,
                ty: None,
                class: None,
                origin: None,
                count: None,
                artificial: false,
                address: None,
            };
            for attribute in abbreviation.attributes() {
                let attribute = entries.read_attribute(*attribute).map_err(&wrong)?;
                entry.take(start, &attribute, info);
            }
            let kept = self.keeps(&entry, open.last().copied().flatten());
            if kept {
                self.entries.push(entry);
            }
            if abbreviation.has_children() {
                open.push(kept.then(|| self.entries.len() - 1));
            }
        }
        Ok(())
    }

    /// Most entries are variables, members and inlined calls, which no name needs.
    fn keeps(&self, entry: &Entry, around: Option<usize>) -> bool {
        let inside = |tags: &[DwTag]| around.is_some_and(|at| tags.contains(&self.entries[at].tag));
        match entry.tag {
            tag::PARAMETER => inside(&[tag::FUNCTION, tag::SUBROUTINE]),
            tag::SUBRANGE => inside(&[tag::ARRAY]),
            tag::ARRAY
            | tag::CLASS
            | tag::ENUMERATION
            | tag::POINTER
            | tag::REFERENCE
            | tag::STRUCTURE
            | tag::SUBROUTINE
            | tag::TYPEDEF
            | tag::UNION
            | tag::POINTER_TO_MEMBER
            | tag::BASE
            | tag::CONST
            | tag::FUNCTION
            | tag::VOLATILE
            | tag::RESTRICT
            | tag::NAMESPACE
            | tag::UNSPECIFIED
            | tag::RVALUE_REFERENCE
            | tag::ATOMIC => true,
            _ => false,
        }
    }
}

/// A unit's length may be wrong although its entries are good: they are read as far as they go.
fn bound(info: &mut [u8], at: usize) {
    let is_wide = info[at..].starts_with(&[0xff; 4]);
    let (at, size) = if is_wide { (at + 4, 8) } else { (at, 4) };
    let Some((length, rest)) = info[at..].split_at_mut_checked(size) else {
        return;
    };
    let mut value = [0; 8];
    value[..size].copy_from_slice(length);
    let bounded = u64::from_le_bytes(value).min(rest.len() as u64);
    length.copy_from_slice(&bounded.to_le_bytes()[..size]);
}

impl Entry {
    /// An attribute of interest, DWARF 5 table 7.5.
    fn take(&mut self, start: usize, attribute: &Attribute<Bytes<'_>>, info: &[u8]) {
        let whole = EndianSlice::new(info, LittleEndian);
        let value = attribute.value();
        let text = match &value {
            AttributeValue::String(text) => Some(Text::Here(text.offset_from(whole))),
            AttributeValue::DebugStrRef(at) => Some(Text::Strings(at.0)),
            _ => None,
        };
        let entry = match &value {
            AttributeValue::UnitRef(at) => start.checked_add(at.0),
            AttributeValue::DebugInfoRef(at) => Some(at.0),
            _ => None,
        };
        let number = attribute.udata_value();
        match attribute.name() {
            at::NAME => self.name = text.or(self.name),
            at::LINKAGE_NAME | at::MIPS_LINKAGE_NAME => {
                self.linkage_name = text.or(self.linkage_name);
            }
            at::TYPE => self.ty = entry,
            at::CONTAINING_TYPE => self.class = entry,
            at::ABSTRACT_ORIGIN | at::SPECIFICATION => self.origin = entry,
            at::ARTIFICIAL => self.artificial = matches!(value, AttributeValue::Flag(true)),
            at::COUNT => self.count = number,
            // Of an array with an open bound some compilers write -1.
            at::UPPER_BOUND => {
                let count = number.and_then(|last| last.checked_add(1));
                self.count = count.filter(|count| *count <= 1 << 62);
            }
            at::LOCATION => {
                if let AttributeValue::Exprloc(expression) = value {
                    let bytes = expression.0;
                    // Nothing may follow the address, of 4 bytes or 8.
                    let is_address = bytes.slice().first() == Some(&gimli::constants::DW_OP_addr.0);
                    self.address = (is_address && matches!(bytes.len(), 5 | 9))
                        .then(|| bytes.offset_from(whole) + 1);
                }
            }
            _ => {}
        }
    }
}
