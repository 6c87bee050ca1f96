//! A module as lines that can be moved, changed and added to: the text between them is the writer's
//! choice.
//!
//! Only the split into statements is the product's (`warpbpf_ptx`); what a line reads and writes is
//! found here anew, from its text, so that a mistake of the product's typed view is not shared by
//! what looks for it.

use std::ops::Range;

use warpbpf_ptx::ast::{Function, Module, StatementKind};

/// A module with one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// In the order of the text.
    pub pieces: Vec<Piece>,
}

/// A part of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it is: directives, variables, signatures.
    Verbatim(String),
    /// What stands between the braces of a function.
    Body {
        /// Of the kernel, and not of a function that it calls.
        entry: bool,
        /// Its statements.
        lines: Vec<Line>,
    },
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line(pub String);

/// An instruction in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts<'t> {
    /// `@%p1` as its register and whether it is negated.
    pub guard: Option<(&'t str, bool)>,
    /// `ld.global.u32`
    pub name: &'t str,
    /// Its operands as written.
    pub operands: Vec<&'t str>,
}

impl Text {
    /// A module with all kernels but one left out.
    ///
    /// # Errors
    /// What cannot be read, or that there is no such kernel.
    pub fn of(module: &Module<'_>, kernel: &str) -> Result<Text, String> {
        let mut functions: Vec<&Function<'_>> = module.functions.iter().collect();
        functions.sort_by_key(|function| function.span.start);
        let found = functions.iter().any(|f| f.is_entry && f.name == kernel);
        if !found {
            return Err(format!("there is no kernel `{kernel}`"));
        }
        let mut pieces = Vec::new();
        let mut done = 0;
        for function in functions {
            let verbatim = |range: Range<usize>| Piece::Verbatim(module.text[range].to_owned());
            if function.is_entry && function.name != kernel {
                pieces.push(verbatim(done..function.span.start));
                done = function.span.end;
            } else if let Some(body) = &function.body {
                pieces.push(verbatim(done..body.start));
                pieces.push(Piece::Body {
                    entry: function.is_entry,
                    lines: lines(module, function)?,
                });
                done = body.end;
            }
        }
        pieces.push(Piece::Verbatim(module.text[done..].to_owned()));
        Ok(Text { pieces })
    }

    /// The statements of the kernel.
    pub fn kernel(&mut self) -> &mut Vec<Line> {
        let bodies = self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Body { entry: true, lines } => Some(lines),
            _ => None,
        });
        // `Text::of` makes no other.
        bodies.last().expect("a text has a kernel")
    }

    /// The statements of the kernel and of all functions.
    pub fn bodies(&mut self) -> impl Iterator<Item = &mut Vec<Line>> {
        self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Body { lines, .. } => Some(lines),
            Piece::Verbatim(_) => None,
        })
    }

    /// One statement in a line.
    pub fn plain(&self) -> String {
        self.written(|lines, out| {
            for line in lines {
                out.push('\n');
                out.push_str(&line.0);
            }
            out.push('\n');
        })
    }

    /// The module with its statements written by `write`.
    pub fn written(&self, mut write: impl FnMut(&[Line], &mut String)) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Verbatim(text) => out.push_str(text),
                Piece::Body { lines, .. } => write(lines, &mut out),
            }
        }
        out
    }
}

fn lines(module: &Module<'_>, function: &Function<'_>) -> Result<Vec<Line>, String> {
    let statements = warpbpf_ptx::parse_body(module, function).map_err(|e| e.to_string())?;
    let mut lines: Vec<Line> = Vec::with_capacity(statements.len());
    for statement in &statements {
        let text = &module.text[statement.span.clone()];
        match lines.last_mut() {
            // Variables of one declaration stay together.
            Some(last) if last.0.ends_with(',') => {
                last.0.push(' ');
                last.0.push_str(text);
            }
            _ => lines.push(Line(text.to_owned())),
        }
        // A source line is of no use to what is compared, and refers to files by number.
        if matches!(statement.kind, StatementKind::Loc(_)) {
            lines.pop();
        }
    }
    Ok(lines)
}

impl Line {
    /// `NAME:`
    pub fn is_label(&self) -> bool {
        self.0.ends_with(':')
    }

    /// Its parts, if it is an instruction.
    pub fn parts(&self) -> Option<Parts<'_>> {
        let text = self.0.strip_suffix(';')?.trim();
        let (guard, rest) = match text.strip_prefix('@') {
            Some(guarded) => {
                let (guard, rest) = guarded.split_once(char::is_whitespace)?;
                let register = guard.strip_prefix('!');
                (
                    Some((register.unwrap_or(guard), register.is_some())),
                    rest.trim_start(),
                )
            }
            None => (None, text),
        };
        let name = rest.split(char::is_whitespace).next()?;
        // Targets of a jump are declared behind a label.
        let opcode = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with(':');
        opcode.then(|| Parts {
            guard,
            name,
            operands: operands(&rest[name.len()..]),
        })
    }

    /// Every name in it: registers, labels, words of opcodes.
    pub fn names(&self) -> Vec<&str> {
        names(&self.0)
    }

    /// The same with one name for another.
    pub fn renamed(&self, from: &str, to: &str) -> Line {
        let mut out = String::with_capacity(self.0.len());
        let mut done = 0;
        for range in name_ranges(&self.0) {
            if &self.0[range.clone()] == from {
                out.push_str(&self.0[done..range.start]);
                out.push_str(to);
                done = range.end;
            }
        }
        out.push_str(&self.0[done..]);
        Line(out)
    }
}

impl Parts<'_> {
    /// `ld` of `ld.global.u32`
    pub fn opcode(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// The words behind the opcode.
    pub fn modifiers(&self) -> impl Iterator<Item = &str> {
        self.name.split('.').skip(1)
    }

    /// Put together again.
    pub fn line(&self, operands: &[String]) -> Line {
        let guard = match self.guard {
            Some((register, true)) => format!("@!{register} "),
            Some((register, false)) => format!("@{register} "),
            None => String::new(),
        };
        let list = operands.join(", ");
        let space = if list.is_empty() { "" } else { " " };
        Line(format!("{guard}{}{space}{list};", self.name))
    }
}

fn names(text: &str) -> Vec<&str> {
    name_ranges(text).map(|range| &text[range]).collect()
}

fn name_ranges(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$';
            at += 1;
            if !word(bytes[start]) && bytes[start] != b'%' {
                continue;
            }
            while at < bytes.len() && word(bytes[at]) {
                at += 1;
            }
            if !bytes[start].is_ascii_digit() {
                return Some(start..at);
            }
        }
        None
    })
}

/// Split at the commas that stand in no bracket.
fn operands(text: &str) -> Vec<&str> {
    let (mut list, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                list.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = text[from..].trim();
    if !last.is_empty() {
        list.push(last);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry other() { ret; }
.func helper() { ret; }
.visible .entry k(.param .u64 p) {
  .reg .b32 %r<3>; // three
  .shared .b32 a, b;
  @!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+4]; L: ret;
}
";

    #[test]
    fn a_module_in_lines_and_back() {
        let module = warpbpf_ptx::index(MODULE).expect("it is PTX");
        let mut text = Text::of(&module, "k").expect("it has the kernel");
        let lines: Vec<String> = text.kernel().iter().map(|line| line.0.clone()).collect();
        assert_eq!(
            lines,
            [
                ".reg .b32 %r<3>;",
                ".shared .b32 a, b;",
                "@!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+4];",
                "L:",
                "ret;"
            ]
        );
        assert_eq!(text.bodies().count(), 2);
        let plain = text.plain();
        assert!(
            !plain.contains("other") && plain.contains("helper"),
            "{plain}"
        );
        let again = warpbpf_ptx::index(&plain).expect("it still is PTX");
        assert_eq!(Text::of(&again, "k").map(|t| t.plain()), Ok(plain.clone()));
        assert_eq!(
            Text::of(&module, "none"),
            Err("there is no kernel `none`".into())
        );
    }

    #[test]
    fn a_line_in_parts_and_back() {
        let line = Line("@!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+4];".into());
        let parts = line.parts().expect("it is an instruction");
        assert_eq!(parts.guard, Some(("%p1", true)));
        assert_eq!((parts.opcode(), parts.operands.len()), ("ld", 2));
        let operands: Vec<String> = parts.operands.iter().map(ToString::to_string).collect();
        assert_eq!(parts.line(&operands), line);
        assert_eq!(
            line.renamed("%r1", "$x").0,
            "@!%p1 ld.global.v2.u32 {$x, %r2}, [%rd1+4];"
        );
        for other in ["L:", ".reg .b32 %r<2>;", "{", "t: .branchtargets A, B;"] {
            assert_eq!(Line(other.into()).parts(), None, "{other}");
        }
        let copy = Line("ld.shared::cta.u32 %r1, [%r2];".into());
        assert_eq!(
            copy.parts().map(|p| p.opcode().to_owned()),
            Some("ld".into())
        );
    }
}
