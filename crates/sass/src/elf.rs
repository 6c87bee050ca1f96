//! A cubin as an ELF that can be written back: same bytes if nothing was changed, and a section can
//! grow in place.
//!
//! `warpbpf-fatbin` reads what a kernel is; this keeps where everything is. Nothing is laid out
//! anew: a section that grows pushes what follows it in the file, by a multiple of [`GRAIN`] so
//! that all alignments hold, and addresses are not used in cubins (they are all zero, which is
//! checked).

use std::ops::Range;

use crate::arch::Arch;
use crate::error::ElfError;

/// Sections grow by multiples of this: the alignment of code.
pub const GRAIN: u64 = 128;

const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const SYMBOL: usize = 24;
const EM_CUDA: u64 = 190;
const SHT_SYMTAB: u64 = 2;
const SHT_NOBITS: u64 = 8;
/// A variable, a function and a section, in the low bits of a symbol's `st_info`.
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_SECTION: u8 = 3;
/// `st_other` of a kernel.
const STO_ENTRY: u8 = 0x10;

/// A section's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// `sh_type`.
    pub kind: u64,
    /// `sh_addr`.
    pub address: u64,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// How many there are, or would be.
    pub size: u64,
    /// `sh_link`.
    pub link: u64,
    /// `sh_info`.
    pub info: u64,
    /// `sh_addralign`.
    pub align: u64,
}

impl Section {
    /// Has bytes in the file.
    pub fn is_stored(&self) -> bool {
        self.kind != SHT_NOBITS && self.kind != 0
    }
}

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// `p_vaddr`.
    pub address: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
}

/// A symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its number in the table.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Section that it is in.
    pub section: usize,
    /// Offset in it.
    pub value: u64,
    /// Bytes.
    pub size: u64,
    /// A variable whose symbol says nothing else of it: neither who may see it nor whose memory it
    /// is in.
    pub is_plain_variable: bool,
    /// Stands for its section.
    pub is_section: bool,
    /// A function.
    pub is_function: bool,
    /// A function that can be launched.
    pub is_kernel: bool,
}

/// A cubin.
#[derive(Debug, Clone)]
pub struct Image {
    bytes: Vec<u8>,
    section_table: u64,
    segment_table: u64,
    /// Architecture.
    pub arch: Arch,
    /// All sections, number 0 included.
    pub sections: Vec<Section>,
    /// All segments.
    pub segments: Vec<Segment>,
    /// All symbols, number 0 included.
    pub symbols: Vec<Symbol>,
    symbol_table: usize,
}

impl Image {
    /// Reads a cubin.
    ///
    /// # Errors
    /// [`ElfError`]: not an ELF for CUDA, one of an architecture that is not in [`Arch`], or one
    /// whose tables do not fit.
    pub fn parse(bytes: &[u8]) -> Result<Image, ElfError> {
        let whole = Reader(bytes);
        if !bytes.starts_with(b"\x7fELF\x02\x01") || bytes.len() < HEADER {
            return Err(ElfError::NotElf);
        }
        let machine = whole.number(18, 2)?;
        if machine != EM_CUDA {
            return Err(ElfError::Machine { machine });
        }
        let (segment_table, section_table) = (whole.number(32, 8)?, whole.number(40, 8)?);
        let flags = whole.number(48, 4)?;
        let sizes = (whole.number(54, 2)?, whole.number(58, 2)?);
        let (n_segments, n_sections) = (whole.number(56, 2)?, whole.number(60, 2)?);
        if n_segments > 0 && sizes.0 != SEGMENT as u64 || sizes.1 != SECTION as u64 {
            return Err(ElfError::Tables);
        }
        let abi = whole.number(8, 1)?;
        let number = if abi >= 8 { flags >> 8 } else { flags } & 0xff;
        let arch = Arch::of(number as u32).ok_or(ElfError::Arch { sm: number as u32 })?;

        let mut names = Vec::new();
        let mut sections = Vec::new();
        for index in 0..n_sections {
            let at = place(section_table, index, SECTION)?;
            names.push(whole.number(at, 4)?);
            sections.push(Section {
                name: String::new(),
                kind: whole.number(at + 4, 4)?,
                address: whole.number(at + 16, 8)?,
                offset: whole.number(at + 24, 8)?,
                size: whole.number(at + 32, 8)?,
                link: whole.number(at + 40, 4)?,
                info: whole.number(at + 44, 4)?,
                align: whole.number(at + 48, 8)?,
            });
        }
        let strings = sections
            .get(whole.number(62, 2)? as usize)
            .ok_or(ElfError::Tables)?;
        let strings = Reader(whole.slice(strings.offset, strings.size)?);
        for (section, name) in sections.iter_mut().zip(names) {
            section.name = strings.string(name)?;
            if section.is_stored() {
                whole.slice(section.offset, section.size)?;
            }
        }
        let mut segments = Vec::new();
        for index in 0..n_segments {
            let at = place(segment_table, index, SEGMENT)?;
            segments.push(Segment {
                kind: whole.number(at, 4)?,
                offset: whole.number(at + 8, 8)?,
                address: whole.number(at + 16, 8)?,
                file_bytes: whole.number(at + 32, 8)?,
                memory_bytes: whole.number(at + 40, 8)?,
            });
        }
        let symbol_table = sections
            .iter()
            .position(|s| s.kind == SHT_SYMTAB)
            .ok_or(ElfError::Tables)?;
        let symbols = symbols(whole, &sections, symbol_table)?;
        Ok(Image {
            bytes: bytes.to_vec(),
            section_table,
            segment_table,
            arch,
            sections,
            segments,
            symbols,
            symbol_table,
        })
    }

    /// The cubin as it is now: the tables written from what was read and changed, everything else
    /// as it stands.
    pub fn write(&self) -> Vec<u8> {
        self.clone().into_bytes()
    }

    /// The same, without a copy of it.
    pub fn into_bytes(mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.bytes);
        let mut put = |at: u64, bytes: usize, value: u64| {
            let at = at as usize;
            out[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        if !self.segments.is_empty() {
            put(32, 8, self.segment_table);
        }
        put(40, 8, self.section_table);
        for (section, index) in self.sections.iter().zip(0u64..) {
            let at = self.section_table + index * SECTION as u64;
            put(at + 4, 4, section.kind);
            put(at + 16, 8, section.address);
            put(at + 24, 8, section.offset);
            put(at + 32, 8, section.size);
            put(at + 40, 4, section.link);
            put(at + 44, 4, section.info);
            put(at + 48, 8, section.align);
        }
        for (segment, index) in self.segments.iter().zip(0u64..) {
            let at = self.segment_table + index * SEGMENT as u64;
            put(at, 4, segment.kind);
            put(at + 8, 8, segment.offset);
            put(at + 16, 8, segment.address);
            put(at + 32, 8, segment.file_bytes);
            put(at + 40, 8, segment.memory_bytes);
        }
        let table = self.sections[self.symbol_table].offset;
        for symbol in &self.symbols {
            let at = table + u64::from(symbol.index) * SYMBOL as u64;
            put(at + 6, 2, symbol.section as u64);
            put(at + 8, 8, symbol.value);
            put(at + 16, 8, symbol.size);
        }
        out
    }

    /// Number of the section of this name.
    pub fn section(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|s| s.name == name)
    }

    /// Bytes of a section; none of one that has none in the file.
    pub fn data(&self, section: usize) -> &[u8] {
        &self.bytes[self.range(section)]
    }

    /// The same to be changed in place.
    pub fn data_mut(&mut self, section: usize) -> &mut [u8] {
        let range = self.range(section);
        &mut self.bytes[range]
    }

    fn range(&self, section: usize) -> Range<usize> {
        let section = &self.sections[section];
        if !section.is_stored() {
            return 0..0;
        }
        section.offset as usize..(section.offset + section.size) as usize
    }

    /// Sections that may be in the way of one that grows, by number. Most files have none.
    pub(crate) fn obstacles(&self) -> Vec<usize> {
        let with_bytes = |s: &&Section| s.is_stored() && s.size > 0;
        let mut ranges: Vec<(u64, u64)> = self
            .sections
            .iter()
            .filter(with_bytes)
            .map(|s| (s.offset, s.offset + s.size))
            .collect();
        ranges.sort_unstable();
        let overlap = ranges.windows(2).any(|pair| pair[0].1 > pair[1].0);
        let all = self.sections.iter().enumerate();
        all.filter(|(_, s)| overlap || s.address != 0 || s.is_stored() && s.align > GRAIN)
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether a section can grow where it is; `obstacles` are those of [`Image::obstacles`].
    ///
    /// # Errors
    /// [`ElfError`] if something lies across the section's end, or a part that would move has an
    /// address or needs a larger alignment.
    pub(crate) fn can_grow(&self, section: usize, obstacles: &[usize]) -> Result<(), ElfError> {
        let grown = &self.sections[section];
        let awkward = |what: &str| ElfError::CannotGrow {
            section: grown.name.clone(),
            reason: what.to_owned(),
        };
        if !grown.is_stored() || grown.size == 0 {
            return Err(awkward("it has no bytes"));
        }
        let end = grown.offset + grown.size;
        for index in obstacles {
            let other = &self.sections[*index];
            if *index != section && other.is_stored() {
                let inside = other.offset < end && other.offset + other.size > end;
                let overlaps = other.offset < end && other.offset + other.size > grown.offset;
                if inside || overlaps && other.size > 0 {
                    return Err(awkward(&format!("`{}` lies across its end", other.name)));
                }
                if other.offset >= end && other.align > GRAIN {
                    return Err(awkward(&format!("`{}` is aligned to more", other.name)));
                }
            }
            if other.address != 0 {
                return Err(awkward(&format!("`{}` has an address", other.name)));
            }
        }
        let tables = [self.section_table, self.segment_table];
        if tables.iter().any(|t| (grown.offset..end).contains(t)) {
            return Err(awkward("a table lies in it"));
        }
        for segment in &self.segments {
            if segment.address != 0 {
                return Err(awkward("a segment has an address"));
            }
            let segment_end = segment.offset + segment.file_bytes;
            if segment.offset < end && segment_end < end && segment_end > grown.offset {
                return Err(awkward("a segment ends in it"));
            }
        }
        Ok(())
    }

    /// Puts bytes behind those of sections, each of which can grow. What follows in the file moves
    /// back by multiples of [`GRAIN`], once for all of them, and what is between is zero.
    pub(crate) fn grow(&mut self, mut pieces: Vec<(usize, Vec<u8>)>) {
        let end = |section: &Section| section.offset + section.size;
        pieces.sort_by_key(|(section, _)| self.sections[*section].offset);
        let ends = pieces
            .iter()
            .map(|(section, _)| end(&self.sections[*section]));
        let moves = Moves::new(ends.zip(pieces.iter().map(|(_, bytes)| bytes.len() as u64)));
        let mut bytes = Vec::with_capacity(self.bytes.len() + moves.by(u64::MAX) as usize);
        let mut from = 0;
        for (section, added) in &pieces {
            let end = end(&self.sections[*section]) as usize;
            bytes.extend_from_slice(&self.bytes[from..end]);
            bytes.extend_from_slice(added);
            let moved = (added.len() as u64).next_multiple_of(GRAIN) as usize;
            bytes.resize(bytes.len() + moved - added.len(), 0);
            from = end;
        }
        bytes.extend_from_slice(&self.bytes[from..]);
        self.bytes = bytes;
        for segment in &mut self.segments {
            *segment = moves.segment(segment);
        }
        for section in &mut self.sections {
            section.offset += moves.by(section.offset);
        }
        for (section, added) in &pieces {
            self.sections[*section].size += added.len() as u64;
        }
        for table in [&mut self.section_table, &mut self.segment_table] {
            *table += moves.by(*table);
        }
    }
}

/// How far what lies in a file moves back when sections before it grow.
#[derive(Debug)]
pub(crate) struct Moves {
    /// Ends of the sections, in order, and how far what follows moves.
    ends: Vec<(u64, u64)>,
    /// Of each, what was put behind it only so that alignments hold.
    filled: Vec<u64>,
}

impl Moves {
    /// By ends of sections in the file, in order, and how much is put there.
    pub(crate) fn new(pieces: impl Iterator<Item = (u64, u64)>) -> Moves {
        let (mut all, mut ends, mut filled) = (0, Vec::new(), Vec::new());
        for (end, growth) in pieces {
            let moved = growth.next_multiple_of(GRAIN);
            all += moved;
            ends.push((end, all));
            filled.push(moved - growth);
        }
        Moves { ends, filled }
    }

    /// How far what lies at an offset moves.
    pub(crate) fn by(&self, offset: u64) -> u64 {
        let before = self.ends.partition_point(|(end, _)| *end <= offset);
        before.checked_sub(1).map_or(0, |last| self.ends[last].1)
    }

    /// A segment moves with what lies before it, and grows by what is put into it. It ends where
    /// its last section does.
    pub(crate) fn segment(&self, segment: &Segment) -> Segment {
        let moved = self.by(segment.offset);
        let end = segment.offset + segment.file_bytes;
        let last = self.ends.binary_search_by_key(&end, |(end, _)| *end);
        let filled = last.map_or(0, |index| self.filled[index]);
        let inside = self.by(end) - moved;
        // One that is empty and begins there has moved with what follows.
        let growth = if inside == 0 { 0 } else { inside - filled };
        Segment {
            offset: segment.offset + moved,
            file_bytes: segment.file_bytes + growth,
            memory_bytes: segment.memory_bytes + growth,
            ..*segment
        }
    }
}

fn symbols(whole: Reader<'_>, sections: &[Section], table: usize) -> Result<Vec<Symbol>, ElfError> {
    let header = &sections[table];
    let names = sections.get(header.link as usize).ok_or(ElfError::Tables)?;
    let names = Reader(whole.slice(names.offset, names.size)?);
    let table = Reader(whole.slice(header.offset, header.size)?);
    let mut symbols = Vec::new();
    for index in 0..header.size / SYMBOL as u64 {
        let at = place(0, index, SYMBOL)?;
        let kind = table.number(at + 4, 1)? as u8 & 15;
        let other = table.number(at + 5, 1)? as u8;
        let is_function = kind == STT_FUNC;
        symbols.push(Symbol {
            index: index as u32,
            name: names.string(table.number(at, 4)?)?,
            section: table.number(at + 6, 2)? as usize,
            value: table.number(at + 8, 8)?,
            size: table.number(at + 16, 8)?,
            is_plain_variable: kind == STT_OBJECT && other == 0,
            is_section: kind == STT_SECTION,
            is_function,
            is_kernel: is_function && other & STO_ENTRY != 0,
        });
    }
    Ok(symbols)
}

fn place(table: u64, index: u64, size: usize) -> Result<usize, ElfError> {
    let at = table.checked_add(index * size as u64);
    at.and_then(|at| usize::try_from(at).ok())
        .filter(|at| at.checked_add(size).is_some())
        .ok_or(ElfError::Tables)
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(self, offset: u64, size: u64) -> Result<&'a [u8], ElfError> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        range
            .and_then(|(offset, size)| self.0.get(offset..offset.checked_add(size)?))
            .ok_or(ElfError::Tables)
    }

    fn number(self, at: usize, bytes: usize) -> Result<u64, ElfError> {
        let field = at.checked_add(bytes).and_then(|end| self.0.get(at..end));
        let field = field.ok_or(ElfError::Tables)?;
        Ok(field
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn string(self, at: u64) -> Result<String, ElfError> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..));
        let rest = rest.ok_or(ElfError::Tables)?;
        let end = rest.iter().position(|b| *b == 0).ok_or(ElfError::Tables)?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}
