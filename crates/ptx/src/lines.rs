//! Which line of which source file a statement was compiled from, through all the calls that were
//! inlined into it.
//!
//! A `.loc` of inlined code names only the call next to it, and its function's name stands as bytes
//! of `.debug_str`: both are put together here. PTX ISA "Debugging Directives".

use std::collections::HashMap;

use crate::ast::{Loc, Module, Statement, StatementKind};
use crate::sections::Section;

/// What `.loc` directives refer to: files by index, names by label. Read once for a module.
#[derive(Debug, Clone, Default)]
pub struct Sources<'a> {
    files: HashMap<u32, &'a str>,
    strings: Section<'a>,
}

impl<'a> Sources<'a> {
    /// Reads the module's `.file`s and `.section .debug_str`. What is malformed there is left out:
    /// without a name, code is still code.
    pub fn new(module: &Module<'a>) -> Sources<'a> {
        Sources {
            // The first of a file's directives counts, as in `Module::file`.
            files: module.files.iter().rev().copied().collect(),
            strings: Section::read(module, "debug_str"),
        }
    }

    /// The path of a `.file`.
    pub fn file(&self, index: u32) -> Option<&'a str> {
        self.files.get(&index).copied()
    }

    /// The string at `label` or `label+offset`, as `function_name` of a `.loc` gives it: a
    /// function's mangled name. `None` where the module does not have it, or where it is no UTF-8.
    pub fn string(&self, label: &str) -> Option<&str> {
        let (label, offset) = match label.split_once('+') {
            Some((label, offset)) => (label.trim_end(), offset.trim_start().parse().ok()?),
            None => (label, 0usize),
        };
        let start = self.strings.labels.get(label)?.checked_add(offset)?;
        let bytes = self.strings.bytes.get(start..)?;
        let length = memchr::memchr(0, bytes)?;
        std::str::from_utf8(&bytes[..length]).ok()
    }
}

/// A place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'s> {
    /// Path as the compiler wrote it; empty where the module has no `.file` of that index.
    pub file: &'s str,
    /// Line, from 1; 0 for code that the compiler made up.
    pub line: u32,
    /// Column.
    pub column: u32,
    /// Mangled name of the inlined function that the place is in. `None` in the function that has
    /// the code, or where the name is not known.
    pub function: Option<&'s str>,
}

/// One `.loc`, or a call site that no `.loc` before it stands for.
struct Entry<'s> {
    place: Place<'s>,
    /// The entry of the call that this code was inlined at; always an earlier one.
    caller: Option<usize>,
}

/// The source places of one body's statements.
pub struct Lines<'s> {
    entries: Vec<Entry<'s>>,
    /// For each statement the `.loc` in force: the statement's index and its entry.
    current: Vec<Option<(usize, usize)>>,
}

impl<'s> Lines<'s> {
    /// Follows the `.loc` directives of a body, of which each holds up to the next.
    pub fn new(sources: &'s Sources<'_>, statements: &[Statement<'_>]) -> Lines<'s> {
        let mut lines = Lines {
            entries: Vec::new(),
            current: Vec::with_capacity(statements.len()),
        };
        // The last entry at a file, line and column.
        let mut last = HashMap::new();
        let mut current = None;
        for (at, statement) in statements.iter().enumerate() {
            if let StatementKind::Loc(loc) = &statement.kind {
                let entry = lines.enter(sources, loc, &last);
                last.insert((loc.file, loc.line, loc.column), entry);
                current = Some((at, entry));
            }
            lines.current.push(current);
        }
        lines
    }

    fn enter(
        &mut self,
        sources: &'s Sources<'_>,
        loc: &Loc<'_>,
        last: &HashMap<(u32, u32, u32), usize>,
    ) -> usize {
        let mut place = Place {
            file: sources.file(loc.file).unwrap_or(""),
            line: loc.line,
            column: loc.column,
            function: None,
        };
        let caller = loc.inlined.map(|(label, file, line, column)| {
            place.function = sources.string(label);
            // The ISA wants the call to have a `.loc` before this one. A function that is inlined
            // at several places has several: the compiler writes the right one last.
            last.get(&(file, line, column)).copied().unwrap_or_else(|| {
                self.entries.push(Entry {
                    place: Place {
                        file: sources.file(file).unwrap_or(""),
                        line,
                        column,
                        function: None,
                    },
                    caller: None,
                });
                self.entries.len() - 1
            })
        });
        self.entries.push(Entry { place, caller });
        self.entries.len() - 1
    }

    /// Where statement `index` comes from: of inlined code, the line in the inlined function.
    /// `None` before the first `.loc`, and for an index past the end.
    pub fn place(&self, index: usize) -> Option<Place<'s>> {
        self.chain(index).next()
    }

    /// The line of the function itself: of inlined code, that of the outermost call.
    pub fn outermost(&self, index: usize) -> Option<Place<'s>> {
        self.chain(index).last()
    }

    /// All places of statement `index`: where it was written, then where that was called, up to the
    /// function itself.
    pub fn chain(&self, index: usize) -> impl Iterator<Item = Place<'s>> + '_ {
        let first = self.current.get(index).copied().flatten();
        // A caller is always an earlier entry, so this ends.
        std::iter::successors(first.map(|(_, entry)| entry), |&entry| {
            self.entries[entry].caller
        })
        .map(|entry| self.entries[entry].place)
    }

    /// Index of the `.loc` statement in force at statement `index`.
    pub fn loc(&self, index: usize) -> Option<usize> {
        Some((*self.current.get(index)?)?.0)
    }
}
