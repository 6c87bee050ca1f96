//! The bytes of `.section`s, which debug information is written in one by one: `.b8 102,0`, `.b64
//! label+8`. PTX ISA "Debugging Directives: .section".

use std::collections::HashMap;

use crate::PtxError;
use crate::ast::Module;
use crate::lex::Cursor;

/// All sections of one name, behind each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section<'a> {
    pub(crate) bytes: Vec<u8>,
    /// Where labels stand; the section's own name, without its dot, is one at its start.
    pub(crate) labels: HashMap<&'a str, usize>,
    /// Bytes that hold an address, in text order. They are 0.
    pub(crate) symbols: Vec<Symbol<'a>>,
    /// What stopped the reading. What stands before it is there.
    pub(crate) error: Option<PtxError>,
}

/// An address: `name + addend - minus`.
#[derive(Debug, Clone)]
pub(crate) struct Symbol<'a> {
    /// Offset in the section.
    pub(crate) at: usize,
    /// Bytes it takes.
    pub(crate) size: usize,
    /// Label, variable, parameter or section, without a section's dot.
    pub(crate) name: &'a str,
    pub(crate) minus: Option<&'a str>,
    pub(crate) addend: u64,
}

impl<'a> Section<'a> {
    /// Reads all sections called `name`, given without its dot.
    pub(crate) fn read(module: &Module<'a>, name: &str) -> Section<'a> {
        let mut section = Section::default();
        for span in &module.others {
            let mut c = Cursor::new(module.text, span.clone());
            if let Some(found) = called(&mut c).filter(|found| *found == name) {
                section.labels.entry(found).or_insert(section.bytes.len());
                if let Err(error) = section.lines(&mut c) {
                    section.error.get_or_insert(error);
                }
            }
        }
        section
    }

    /// `{ label: .b8 1, 2 … }`
    fn lines(&mut self, c: &mut Cursor<'a>) -> Result<(), PtxError> {
        c.expect(b'{', "`{`")?;
        loop {
            c.skip_blank()?;
            if c.at_directive() {
                let at = c.pos;
                let size = match c.directive()? {
                    "b8" => 1,
                    "b16" => 2,
                    "b32" => 4,
                    "b64" => 8,
                    _ => {
                        c.pos = at;
                        return Err(c.unexpected("`.b8`, `.b16`, `.b32` or `.b64`"));
                    }
                };
                self.value(c, size)?;
                while c.eat(b',')? {
                    self.value(c, size)?;
                }
                c.eat(b';')?;
            } else if let Some(label) = c.identifier() {
                c.expect(b':', "`:`")?;
                self.labels.insert(label, self.bytes.len());
            } else {
                return c.expect(b'}', "a label, a directive or `}`");
            }
        }
    }

    fn value(&mut self, c: &mut Cursor<'a>, size: usize) -> Result<(), PtxError> {
        c.skip_blank()?;
        // An address has more than one byte.
        let name = if size > 1 { symbol(c)? } else { None };
        let value = if let Some(name) = name {
            let (mut minus, mut addend) = (None, 0u64);
            if c.eat(b'+')? {
                addend = c.integer("an offset")?;
            } else if c.eat(b'-')? {
                c.skip_blank()?;
                minus = symbol(c)?;
                if minus.is_none() {
                    addend = c.integer("a label or an offset")?.wrapping_neg();
                }
            }
            self.symbols.push(Symbol {
                at: self.bytes.len(),
                size,
                name,
                minus,
                addend,
            });
            0
        } else if c.eat(b'-')? {
            c.integer("a number")?.wrapping_neg()
        } else {
            c.integer("a number or a label")?
        };
        self.bytes.extend_from_slice(&value.to_le_bytes()[..size]);
        Ok(())
    }

    /// Writes the addresses that are known in `labels` of any of `sections`; the others stay 0.
    pub(crate) fn link(&mut self, sections: &[HashMap<&str, usize>]) {
        let offset = |name: &str| sections.iter().find_map(|labels| labels.get(name)).copied();
        for symbol in &self.symbols {
            let Some(value) = offset(symbol.name) else {
                continue;
            };
            let Some(minus) = symbol.minus.map_or(Some(0), offset) else {
                continue;
            };
            let value = (value as u64)
                .wrapping_sub(minus as u64)
                .wrapping_add(symbol.addend);
            self.bytes[symbol.at..symbol.at + symbol.size]
                .copy_from_slice(&value.to_le_bytes()[..symbol.size]);
        }
    }

    /// The address at an offset.
    pub(crate) fn symbol_at(&self, at: usize) -> Option<&Symbol<'a>> {
        let index = self
            .symbols
            .binary_search_by_key(&at, |symbol| symbol.at)
            .ok()?;
        self.symbols.get(index)
    }
}

/// Up to a section's `{`: its name without the dot; `None` for another directive.
fn called<'a>(c: &mut Cursor<'a>) -> Option<&'a str> {
    if c.peek() != Some(b'.') || c.directive().ok()? != "section" {
        return None;
    }
    c.skip_blank().ok()?;
    symbol(c).ok().flatten()
}

/// A name, or a section's without its dot.
fn symbol<'a>(c: &mut Cursor<'a>) -> Result<Option<&'a str>, PtxError> {
    if c.at_directive() {
        return c.directive().map(Some);
    }
    Ok(c.identifier())
}
