//! The little of DWARF that names need: a tree of functions, their parameters and types out of `.debug_info`, for every
//! version from 2, which compilers write into PTX, to 5. DWARF 5 "General Description".

use std::collections::{HashMap, hash_map};

use crate::ast::Module;
use crate::sections::Section;

mod form;

use form::{Abbreviations, Reader, Text, Unit, Value, read_abbreviations, value};

pub use form::DebugInfoError;

/// Tags of the entries that are kept, DWARF 5 table 7.3.
pub(crate) mod tag {
    pub(crate) const ARRAY: u64 = 0x01;
    pub(crate) const CLASS: u64 = 0x02;
    pub(crate) const ENUMERATION: u64 = 0x04;
    pub(crate) const PARAMETER: u64 = 0x05;
    pub(crate) const POINTER: u64 = 0x0f;
    pub(crate) const REFERENCE: u64 = 0x10;
    pub(crate) const STRUCTURE: u64 = 0x13;
    pub(crate) const SUBROUTINE: u64 = 0x15;
    pub(crate) const TYPEDEF: u64 = 0x16;
    pub(crate) const UNION: u64 = 0x17;
    pub(crate) const POINTER_TO_MEMBER: u64 = 0x1f;
    pub(crate) const SUBRANGE: u64 = 0x21;
    pub(crate) const BASE: u64 = 0x24;
    pub(crate) const CONST: u64 = 0x26;
    pub(crate) const FUNCTION: u64 = 0x2e;
    pub(crate) const VOLATILE: u64 = 0x35;
    pub(crate) const RESTRICT: u64 = 0x37;
    pub(crate) const NAMESPACE: u64 = 0x39;
    pub(crate) const UNSPECIFIED: u64 = 0x3b;
    pub(crate) const RVALUE_REFERENCE: u64 = 0x42;
    pub(crate) const ATOMIC: u64 = 0x47;
}

/// An entry that a name may need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// Offset in the section, by which others refer to it.
    offset: usize,
    pub(crate) tag: u64,
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
        let info = std::mem::take(&mut self.info.bytes);
        let mut tables = HashMap::new();
        let mut r = Reader::new("debug_info", &info, 0..info.len());
        let mut result = Ok(());
        while r.pos < info.len() && result.is_ok() {
            result = self.unit(&mut r, abbreviations, &mut tables);
        }
        self.info.bytes = info;
        result
    }

    fn unit(
        &mut self,
        r: &mut Reader<'_>,
        abbreviations: &[u8],
        tables: &mut HashMap<usize, Abbreviations>,
    ) -> Result<(), DebugInfoError> {
        let unit = Unit::read(r)?;
        let table = match tables.entry(unit.abbreviations) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => {
                new.insert(read_abbreviations(abbreviations, unit.abbreviations)?)
            }
        };
        let mut inner = Reader::new(r.section, r.bytes, r.pos..unit.end);
        self.entries_of(&unit, &mut inner, table)?;
        r.pos = unit.end;
        Ok(())
    }

    fn entries_of(
        &mut self,
        unit: &Unit,
        r: &mut Reader<'_>,
        table: &Abbreviations,
    ) -> Result<(), DebugInfoError> {
        // The entries that are open: the index of those that are kept.
        let mut open: Vec<Option<usize>> = Vec::new();
        while r.pos < r.end {
            let offset = r.pos;
            let code = r.leb()?;
            if code == 0 {
                // Padding may follow the last.
                open.pop();
                continue;
            }
            let abbreviation = table
                .get(&code)
                .ok_or(DebugInfoError::Abbreviation { offset, code })?;
            let mut entry = Entry {
                offset,
                tag: abbreviation.tag,
                depth: open.len(),
                parent: open.iter().rev().find_map(|kept| *kept),
                ..Entry::default()
            };
            for &(attribute, form, constant) in &abbreviation.attributes {
                let value = value(unit, r, form, constant)?;
                entry.take(attribute, value, r.bytes);
            }
            let kept = self.keeps(&entry, open.last().copied().flatten());
            if kept {
                self.entries.push(entry);
            }
            if abbreviation.has_children {
                open.push(kept.then(|| self.entries.len() - 1));
            }
        }
        Ok(())
    }

    /// Most entries are variables, members and inlined calls, which no name needs.
    fn keeps(&self, entry: &Entry, around: Option<usize>) -> bool {
        let inside = |tags: &[u64]| around.is_some_and(|at| tags.contains(&self.entries[at].tag));
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

impl Entry {
    /// An attribute of interest, DWARF 5 table 7.5.
    fn take(&mut self, attribute: u64, value: Value, bytes: &[u8]) {
        const LOCATION: u64 = 0x02;
        const NAME: u64 = 0x03;
        const CONTAINING_TYPE: u64 = 0x1d;
        const UPPER_BOUND: u64 = 0x2f;
        const ABSTRACT_ORIGIN: u64 = 0x31;
        const ARTIFICIAL: u64 = 0x34;
        const COUNT: u64 = 0x37;
        const SPECIFICATION: u64 = 0x47;
        const TYPE: u64 = 0x49;
        const LINKAGE_NAME: u64 = 0x6e;
        const MIPS_LINKAGE_NAME: u64 = 0x2007;
        // `DW_OP_addr`
        const ADDRESS: u8 = 0x03;
        match (attribute, value) {
            (NAME, Value::Text(text)) => self.name = Some(text),
            (LINKAGE_NAME | MIPS_LINKAGE_NAME, Value::Text(text)) => self.linkage_name = Some(text),
            (TYPE, Value::Entry(at)) => self.ty = Some(at),
            (CONTAINING_TYPE, Value::Entry(at)) => self.class = Some(at),
            (ABSTRACT_ORIGIN | SPECIFICATION, Value::Entry(at)) => self.origin = Some(at),
            (ARTIFICIAL, Value::Number(set)) => self.artificial = set != 0,
            (COUNT, Value::Number(count)) => self.count = Some(count),
            // Of an array with an open bound some compilers write -1.
            (UPPER_BOUND, Value::Number(last)) => {
                self.count = last.checked_add(1).filter(|count| *count <= 1 << 62);
            }
            // Nothing may follow the address, of 4 bytes or 8.
            (LOCATION, Value::Block(block))
                if bytes.get(block.start) == Some(&ADDRESS) && matches!(block.len(), 5 | 9) =>
            {
                self.address = Some(block.start + 1);
            }
            _ => {}
        }
    }
}
