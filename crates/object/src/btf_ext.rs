//! `.BTF.ext`: which instruction belongs to which function, source line and CO-RE relocation.
//!
//! Offsets are bytes from the start of the section that the compiler wrote; the linker moves them.

use std::collections::BTreeMap;

use crate::btf::{Btf, BtfError, Type, TypeId};
use crate::read::Reader;

#[derive(Default)]
pub(crate) struct BtfExt {
    /// By section name; records in file order.
    pub(crate) sections: BTreeMap<String, SectionExt>,
}

#[derive(Default)]
pub(crate) struct SectionExt {
    pub(crate) functions: Vec<FunctionRecord>,
    pub(crate) lines: Vec<LineRecord>,
    pub(crate) core: Vec<CoreRecord>,
}

pub(crate) struct FunctionRecord {
    pub(crate) offset: u32,
    pub(crate) ty: TypeId,
}

#[derive(Clone, Copy)]
pub(crate) struct LineRecord {
    pub(crate) offset: u32,
    /// String offsets.
    pub(crate) file: u32,
    pub(crate) text: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

pub(crate) struct CoreRecord {
    pub(crate) offset: u32,
    pub(crate) ty: TypeId,
    /// String offset.
    pub(crate) access: u32,
    pub(crate) kind: u32,
}

/// Header length from which on CO-RE fields exist.
const CORE_HEADER: u32 = 32;

impl BtfExt {
    pub(crate) fn parse(bytes: &[u8], btf: &Btf) -> Result<BtfExt, BtfError> {
        let mut header = Reader::new(bytes, "the header");
        let magic = header.u16()?;
        if magic != 0xeb9f {
            return Err(BtfError::Magic { magic });
        }
        let version = header.u8()?;
        if version != 1 {
            return Err(BtfError::Version { version });
        }
        let _flags = header.u8()?;
        let header_len = header.u32()?;
        let mut table = |present: bool| -> Result<&[u8], BtfError> {
            if !present {
                return Ok(&[]);
            }
            let (off, len) = (header.u32()? as usize, header.u32()? as usize);
            let start = (header_len as usize).checked_add(off);
            let range = start.and_then(|start| Some(start..start.checked_add(len)?));
            let part = range.and_then(|range| bytes.get(range));
            part.ok_or(BtfError::Truncated {
                at: bytes.len(),
                what: "a table",
            })
        };
        let (functions, lines, core) = (
            table(true)?,
            table(true)?,
            table(header_len >= CORE_HEADER)?,
        );

        let mut ext = BtfExt::default();
        ext.each(functions, btf, "function", 8, |section, r| {
            section.functions.push(FunctionRecord {
                offset: r.u32()?,
                ty: TypeId(r.u32()?),
            });
            Ok(())
        })?;
        ext.each(lines, btf, "line", 16, |section, r| {
            let (offset, file, text, position) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            let (line, column) = (position >> 10, position & 0x3ff);
            section.lines.push(LineRecord {
                offset,
                file,
                text,
                line,
                column,
            });
            Ok(())
        })?;
        ext.each(core, btf, "CO-RE", 16, |section, r| {
            let (offset, ty, access, kind) = (r.u32()?, TypeId(r.u32()?), r.u32()?, r.u32()?);
            section.core.push(CoreRecord {
                offset,
                ty,
                access,
                kind,
            });
            Ok(())
        })?;
        Ok(ext)
    }

    fn each(
        &mut self,
        table: &[u8],
        btf: &Btf,
        what: &'static str,
        least: u32,
        mut record: impl FnMut(&mut SectionExt, &mut Reader<'_>) -> Result<(), BtfError>,
    ) -> Result<(), BtfError> {
        let mut r = Reader::new(table, what);
        if r.is_empty() {
            return Ok(());
        }
        let size = r.u32()?;
        if size < least {
            return Err(BtfError::RecordSize { what, size });
        }
        while !r.is_empty() {
            let name = btf.string(r.u32()?)?;
            let count = r.u32()?;
            let section = self.sections.entry(name.to_owned()).or_default();
            for _ in 0..count {
                // Newer compilers may append fields to a record; they are skipped.
                record(section, &mut Reader::new(r.take(size as usize)?, what))?;
            }
        }
        Ok(())
    }
}

impl CoreRecord {
    /// What is relocated, for a message.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            0 => "field offset",
            1 => "field size",
            2 => "field existence",
            3 => "field signedness",
            4 | 5 => "bit field shift",
            6 => "local type id",
            7 => "kernel type id",
            8 => "type existence",
            9 => "type size",
            10 => "enumerator existence",
            11 => "enumerator value",
            12 => "type match",
            _ => "unknown kind",
        }
    }

    /// The type with the path of members: `struct task_struct.pid`.
    pub(crate) fn describe(&self, btf: &Btf) -> String {
        let mut text = btf.type_name(self.ty);
        let access = btf.string(self.access).unwrap_or_default();
        if self.kind > 5 {
            if let Some(enumerator) = self.enumerator(btf, access) {
                text = format!("{text}::{enumerator}");
            }
            return text;
        }
        let mut at = self.ty;
        // The first index is the one of the pointer itself.
        for step in access.split(':').skip(1) {
            let Ok(step) = step.parse::<usize>() else {
                break;
            };
            match btf.strip(at).map(|(_, ty)| ty) {
                Some(Type::Struct { members, .. } | Type::Union { members, .. }) => {
                    let Some(member) = members.get(step) else {
                        break;
                    };
                    if !member.name.is_empty() {
                        text = format!("{text}.{}", member.name);
                    }
                    at = member.ty;
                }
                Some(Type::Array { element, .. }) => {
                    text = format!("{text}[{step}]");
                    at = *element;
                }
                _ => break,
            }
        }
        text
    }

    fn enumerator<'a>(&self, btf: &'a Btf, access: &str) -> Option<&'a str> {
        let Type::Enum { values, .. } = btf.strip(self.ty)?.1 else {
            return None;
        };
        let (name, _) = values.get(access.parse::<usize>().ok()?)?;
        Some(name)
    }
}
