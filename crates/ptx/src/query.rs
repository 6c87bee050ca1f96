//! Questions asked of the typed view again and again: functions by name, targets, lines, modifiers.

use std::fmt;

use crate::ast::{Function, Instruction, Module, Variable};
use crate::lex;

/// An architecture as `.target` names it, PTX ISA "PTX Module Directives: .target".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// `90` of `sm_90a`.
    pub number: u32,
    /// `a` (this architecture only) or `f` (its family), which decide what code may run where.
    pub suffix: Option<char>,
}

impl Target {
    /// Reads `sm_90`, `sm_90a` or `compute_100f`; `None` for anything else, such as
    /// `texmode_independent`.
    pub fn parse(text: &str) -> Option<Target> {
        let rest = text
            .strip_prefix("sm_")
            .or_else(|| text.strip_prefix("compute_"))?;
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let mut suffix = rest[digits.len()..].chars();
        let target = Target {
            number: digits.parse().ok()?,
            suffix: suffix.next(),
        };
        (suffix.next().is_none() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(target)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

impl<'a> Module<'a> {
    /// The entry or function of that (mangled) name; where prototypes precede it, the one with a
    /// body.
    pub fn function(&self, name: &str) -> Option<&Function<'a>> {
        let mut named = self.functions.iter().filter(|f| f.name == name);
        let first = named.next()?;
        if first.body.is_some() {
            Some(first)
        } else {
            Some(named.find(|f| f.body.is_some()).unwrap_or(first))
        }
    }

    /// The module-scope variable of that name.
    pub fn variable(&self, name: &str) -> Option<&Variable<'a>> {
        self.variables.iter().find(|v| v.name == name)
    }

    /// The first architecture of `.target`.
    pub fn target(&self) -> Option<Target> {
        self.targets.iter().find_map(|word| Target::parse(word))
    }

    /// The line, from 1, that a byte offset of the text stands on.
    pub fn line_of(&self, offset: usize) -> usize {
        lex::line_column(self.text, offset).0
    }

    /// The path of a `.file`.
    pub fn file(&self, index: u32) -> Option<&'a str> {
        self.files
            .iter()
            .find(|(at, _)| *at == index)
            .map(|(_, path)| *path)
    }
}

impl Variable<'_> {
    /// Bytes the variable occupies: 0 with an open dimension, `None` where the type is unknown or
    /// the size is past 64 bits.
    pub fn size(&self) -> Option<u64> {
        let element = crate::decl::type_size(self.ty)?;
        self.dims
            .iter()
            .try_fold(element, |product, &dim| product.checked_mul(dim))
    }
}

impl crate::ast::Param<'_> {
    /// Bytes the parameter occupies: 0 for `p[]`, `None` where the type is unknown or the size is
    /// past 64 bits.
    pub fn size(&self) -> Option<u64> {
        crate::decl::type_size(self.ty)?.checked_mul(self.array.unwrap_or(1))
    }
}

impl Instruction<'_> {
    /// True if `modifier` is among the instruction's modifiers, whole: `has("global")`,
    /// `has("L1::evict_last")`.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }
}
