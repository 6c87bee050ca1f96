//! DWARF's bytes: units, abbreviations, and the forms that values take. DWARF 5 "Data Representation".

use std::collections::HashMap;
use std::ops::Range;

use crate::error::PtxError;

/// What is wrong with a module's debug information. Code does not depend on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DebugInfoError {
    /// The text of a section.
    #[error("the text of a debug section cannot be read")]
    Text(#[from] PtxError),
    /// The section ends inside an entry.
    #[error("`.{section}` ends at byte {offset}, inside an entry")]
    Truncated {
        /// The section, without its dot.
        section: &'static str,
        /// Where more was expected.
        offset: usize,
    },
    /// A version of DWARF that is laid out otherwise.
    #[error(
        "the unit at byte {offset} of `.debug_info` is of DWARF version {version}: 2 to 5 can be read"
    )]
    Version {
        /// Where the unit begins.
        offset: usize,
        /// Its version.
        version: u16,
    },
    /// A code without an entry in `.debug_abbrev`.
    #[error(
        "the entry at byte {offset} of `.debug_info` has code {code}, which `.debug_abbrev` does not have"
    )]
    Abbreviation {
        /// Where the entry begins.
        offset: usize,
        /// Its code.
        code: u64,
    },
    /// A form whose length is not known.
    #[error(
        "the entry at byte {offset} of `.debug_info` has an attribute of form {form:#x}, which is not known"
    )]
    Form {
        /// Where the attribute begins.
        offset: usize,
        /// Its form.
        form: u64,
    },
}

/// The header of a unit.
pub(super) struct Unit {
    start: usize,
    /// Behind its last entry.
    pub(super) end: usize,
    /// Where its abbreviations begin.
    pub(super) abbreviations: usize,
    version: u16,
    address_size: usize,
    offset_size: usize,
}

impl Unit {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Unit, DebugInfoError> {
        const TYPE: u64 = 2;
        const SKELETON: u64 = 4;
        const SPLIT_COMPILE: u64 = 5;
        const SPLIT_TYPE: u64 = 6;
        let start = r.pos;
        let mut length = r.unsigned(4)?;
        let offset_size = if length == 0xffff_ffff { 8 } else { 4 };
        if offset_size == 8 {
            length = r.unsigned(8)?;
        }
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| r.pos.checked_add(length))
            .filter(|end| *end <= r.end);
        let version = r.unsigned(2)? as u16;
        if !(2..=5).contains(&version) {
            return Err(DebugInfoError::Version {
                offset: start,
                version,
            });
        }
        let (address_size, table) = if version == 5 {
            let kind = r.unsigned(1)?;
            let address_size = r.unsigned(1)?;
            let table = r.unsigned(offset_size)?;
            match kind {
                SKELETON | SPLIT_COMPILE => r.skip(8)?,
                TYPE | SPLIT_TYPE => r.skip(8 + offset_size)?,
                _ => {}
            }
            (address_size, table)
        } else {
            let table = r.unsigned(offset_size)?;
            (r.unsigned(1)?, table)
        };
        Ok(Unit {
            start,
            // A length may be wrong although the entries are good: they are read as far as they go.
            end: end.unwrap_or(r.end),
            abbreviations: usize::try_from(table).unwrap_or(usize::MAX),
            version,
            address_size: usize::try_from(address_size).unwrap_or(8).min(8),
            offset_size,
        })
    }
}

/// Where a zero-terminated string begins: in `.debug_info` itself or in `.debug_str`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Text {
    Here(usize),
    Strings(usize),
}

/// A value as far as it is of use.
pub(super) enum Value {
    Number(u64),
    Text(Text),
    Entry(usize),
    Block(Range<usize>),
    Other,
}

/// By code.
pub(super) type Abbreviations = HashMap<u64, Abbreviation>;

pub(super) struct Abbreviation {
    pub(super) tag: u64,
    pub(super) has_children: bool,
    /// Attribute, form, and the value of those that have it here.
    pub(super) attributes: Vec<(u64, u64, u64)>,
}

const IMPLICIT_CONST: u64 = 0x21;

pub(super) fn read_abbreviations(bytes: &[u8], at: usize) -> Result<Abbreviations, DebugInfoError> {
    let mut r = Reader::new("debug_abbrev", bytes, at..bytes.len());
    let mut table = HashMap::new();
    loop {
        let code = r.leb()?;
        if code == 0 {
            return Ok(table);
        }
        let tag = r.leb()?;
        let has_children = r.unsigned(1)? != 0;
        let mut attributes = Vec::new();
        loop {
            let (attribute, form) = (r.leb()?, r.leb()?);
            if (attribute, form) == (0, 0) {
                break;
            }
            let constant = if form == IMPLICIT_CONST { r.leb()? } else { 0 };
            attributes.push((attribute, form, constant));
        }
        // Of two with one code the first counts.
        table.entry(code).or_insert(Abbreviation {
            tag,
            has_children,
            attributes,
        });
    }
}

/// A value of any form, DWARF 5 table 7.6.
pub(super) fn value(
    unit: &Unit,
    r: &mut Reader<'_>,
    form: u64,
    constant: u64,
) -> Result<Value, DebugInfoError> {
    let offset = r.pos;
    let entry = |at: u64| {
        let at = usize::try_from(at).ok();
        at.and_then(|at| unit.start.checked_add(at))
            .map_or(Value::Other, Value::Entry)
    };
    let absolute = |at: u64| usize::try_from(at).map_or(Value::Other, Value::Entry);
    let form = if form == 0x16 { r.leb()? } else { form };
    Ok(match form {
        // addr
        0x01 => {
            r.skip(unit.address_size)?;
            Value::Other
        }
        // block2, block4, block, block1, exprloc
        0x03 | 0x04 | 0x09 | 0x0a | 0x18 => {
            let length = match form {
                0x03 => r.unsigned(2)?,
                0x04 => r.unsigned(4)?,
                0x0a => r.unsigned(1)?,
                _ => r.leb()?,
            };
            let start = r.pos;
            r.skip(usize::try_from(length).unwrap_or(usize::MAX))?;
            Value::Block(start..r.pos)
        }
        // data2, data4, data8, data1, flag, sdata, udata
        0x05 => Value::Number(r.unsigned(2)?),
        0x06 => Value::Number(r.unsigned(4)?),
        0x07 => Value::Number(r.unsigned(8)?),
        0x0b | 0x0c => Value::Number(r.unsigned(1)?),
        0x0d => {
            r.leb()?;
            Value::Other
        }
        0x0f => Value::Number(r.leb()?),
        // string
        0x08 => {
            r.string()?;
            Value::Text(Text::Here(offset))
        }
        // strp
        0x0e => usize::try_from(r.unsigned(unit.offset_size)?)
            .map_or(Value::Other, |at| Value::Text(Text::Strings(at))),
        // ref_addr, which was an address in version 2
        0x10 if unit.version == 2 => absolute(r.unsigned(unit.address_size)?),
        0x10 => absolute(r.unsigned(unit.offset_size)?),
        // ref1, ref2, ref4, ref8, ref_udata
        0x11 => entry(r.unsigned(1)?),
        0x12 => entry(r.unsigned(2)?),
        0x13 => entry(r.unsigned(4)?),
        0x14 => entry(r.unsigned(8)?),
        0x15 => entry(r.leb()?),
        // sec_offset, strp_sup, line_strp
        0x17 | 0x1d | 0x1f => {
            r.skip(unit.offset_size)?;
            Value::Other
        }
        // flag_present
        0x19 => Value::Number(1),
        IMPLICIT_CONST => Value::Number(constant),
        // strx, addrx, loclistx, rnglistx
        0x1a | 0x1b | 0x22 | 0x23 => {
            r.leb()?;
            Value::Other
        }
        // strx1 to strx4 and addrx1 to addrx4
        0x25..=0x2c => {
            r.skip(if form <= 0x28 {
                form - 0x24
            } else {
                form - 0x28
            } as usize)?;
            Value::Other
        }
        // ref_sup4, ref_sig8, ref_sup8, data16
        0x1c | 0x20 | 0x24 | 0x1e => {
            r.skip(match form {
                0x1c => 4,
                0x1e => 16,
                _ => 8,
            })?;
            Value::Other
        }
        _ => return Err(DebugInfoError::Form { offset, form }),
    })
}

/// A position in a section's bytes.
pub(super) struct Reader<'b> {
    pub(super) section: &'static str,
    pub(super) bytes: &'b [u8],
    pub(super) pos: usize,
    pub(super) end: usize,
}

impl<'b> Reader<'b> {
    pub(super) fn new(section: &'static str, bytes: &'b [u8], span: Range<usize>) -> Reader<'b> {
        Reader {
            section,
            bytes,
            pos: span.start,
            end: span.end.min(bytes.len()),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], DebugInfoError> {
        let end = self.pos.checked_add(count).filter(|end| *end <= self.end);
        let Some(taken) = end.and_then(|end| self.bytes.get(self.pos..end)) else {
            return Err(DebugInfoError::Truncated {
                section: self.section,
                offset: self.pos.max(self.end),
            });
        };
        self.pos += count;
        Ok(taken)
    }

    fn skip(&mut self, count: usize) -> Result<(), DebugInfoError> {
        self.take(count).map(drop)
    }

    /// A little-endian number of up to 8 bytes.
    fn unsigned(&mut self, size: usize) -> Result<u64, DebugInfoError> {
        let taken = self.take(size)?;
        Ok(taken
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// A number of variable length, of which bits past 64 are lost.
    pub(super) fn leb(&mut self) -> Result<u64, DebugInfoError> {
        let mut value = 0u64;
        let mut shift = 0u32;
        loop {
            let byte = self.unsigned(1)?;
            if shift < 64 {
                value |= (byte & 0x7f) << shift;
            }
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    fn string(&mut self) -> Result<(), DebugInfoError> {
        while self.unsigned(1)? != 0 {}
        Ok(())
    }
}
