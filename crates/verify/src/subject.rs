//! What is verified: a loaded program, or bare code in tests; and its division into functions.

use std::ops::Range;

use warpbpf_ebpf::{Callee, Code, Imm64, Insn, Pc};
use warpbpf_object::Program;

/// A place in the C source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// Path as the compiler was given it.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1; 0 if unknown.
    pub column: u32,
    /// The line's text, with the blanks at its start, which `column` counts.
    pub text: String,
}

/// Something that can be verified.
pub trait Subject {
    /// Its name, for messages.
    fn name(&self) -> &str;
    /// Its instructions; the entry is the first.
    fn code(&self) -> &Code;
    /// Name of the function that starts at `start`, if it has one.
    fn function_name(&self, start: Pc) -> Option<&str>;
    /// Where `pc` comes from.
    fn line_of(&self, pc: Pc) -> Option<SourceLine>;
    /// What the instruction at `pc` asks for that does not exist (a field that the target's types
    /// do not have, a weak kernel function that is not served): it is a call of a helper that no
    /// platform has, and this says why.
    fn unresolved(&self, _pc: Pc) -> Option<&str> {
        None
    }
}

impl Subject for Program {
    fn name(&self) -> &str {
        &self.name
    }
    fn code(&self) -> &Code {
        &self.code
    }
    fn function_name(&self, start: Pc) -> Option<&str> {
        self.functions
            .iter()
            .find(|f| f.start == start)
            .map(|f| f.name.as_str())
    }
    fn line_of(&self, pc: Pc) -> Option<SourceLine> {
        let line = Program::line_of(self, pc)?;
        Some(SourceLine {
            file: line.file.to_string(),
            line: line.line,
            column: line.column,
            text: line.text.to_string(),
        })
    }
    fn unresolved(&self, pc: Pc) -> Option<&str> {
        self.unresolved.get(&pc).map(String::as_str)
    }
}

/// Bare code, without names or lines.
impl Subject for Code {
    fn name(&self) -> &str {
        "program"
    }
    fn code(&self) -> &Code {
        self
    }
    fn function_name(&self, _: Pc) -> Option<&str> {
        None
    }
    fn line_of(&self, _: Pc) -> Option<SourceLine> {
        None
    }
}

impl<S: Subject + ?Sized> Subject for &S {
    fn name(&self) -> &str {
        S::name(self)
    }
    fn code(&self) -> &Code {
        S::code(self)
    }
    fn function_name(&self, start: Pc) -> Option<&str> {
        S::function_name(self, start)
    }
    fn line_of(&self, pc: Pc) -> Option<SourceLine> {
        S::line_of(self, pc)
    }
    fn unresolved(&self, pc: Pc) -> Option<&str> {
        S::unresolved(self, pc)
    }
}

/// The functions of a program, in order: a function begins at instruction 0 and wherever a call
/// goes, and ends where the next one begins.
pub(crate) fn functions(code: &Code) -> Vec<Range<u32>> {
    let end = code.insns().len() as u32;
    let mut starts = vec![0];
    for insn in code.insns() {
        match insn {
            Insn::Call {
                callee: Callee::Local(Pc(start)),
            }
            | Insn::LoadImm64 {
                value: Imm64::Func(Pc(start)),
                ..
            } if *start < end => {
                starts.push(*start);
            }
            _ => {}
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(start, end)| start..end)
        .collect()
}
