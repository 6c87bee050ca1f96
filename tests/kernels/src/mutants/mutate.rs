//! Small changes of a kernel: some keep what it computes, others only keep it harmless.
//!
//! In a generated kernel everything that is a value may become another (see `generate`). In a
//! kernel of the corpus only what reaches neither an address nor a branch may: else threads would
//! meet at one place, and their order would decide.

use warpbpf_conformance::rng::Rng;

use super::scene::{Scene, declared_as};
use warpbpf_conformance::lines::{Line, Parts, Text};

/// Kinds of changes, in the order of [`Mutation::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Two neighbours that do not depend on each other change places.
    Reorder,
    /// A register gets another name.
    Rename,
    /// Another number.
    Immediate,
    /// The same number, written in another way.
    Spelling,
    /// A predicate the other way round.
    Negate,
    /// A statement less.
    Drop,
    /// A statement twice.
    Repeat,
    /// A statement under a predicate.
    Guard,
    /// A block is cut in two by a label.
    Split,
    /// A jump over a block that nobody reaches.
    Unreached,
    /// A conditional branch becomes one around an unconditional one.
    Invert,
    /// A statement in a scope of its own, with registers that hide outer ones.
    Scope,
    /// Threads leave early.
    Exit,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 13] = [
        Mutation::Reorder,
        Mutation::Rename,
        Mutation::Immediate,
        Mutation::Spelling,
        Mutation::Negate,
        Mutation::Drop,
        Mutation::Repeat,
        Mutation::Guard,
        Mutation::Split,
        Mutation::Unreached,
        Mutation::Invert,
        Mutation::Scope,
        Mutation::Exit,
    ];

    /// Its word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Mutation::Reorder => "reorder",
            Mutation::Rename => "rename",
            Mutation::Immediate => "immediate",
            Mutation::Spelling => "spelling",
            Mutation::Negate => "negate",
            Mutation::Drop => "drop",
            Mutation::Repeat => "repeat",
            Mutation::Guard => "guard",
            Mutation::Split => "split",
            Mutation::Unreached => "unreached",
            Mutation::Invert => "invert",
            Mutation::Scope => "scope",
            Mutation::Exit => "exit",
        }
    }
}

/// Makes changes in a text.
pub struct Mutator<'r> {
    rng: &'r mut Rng,
    /// Values may become others wherever they go.
    generated: bool,
    fresh: u32,
}

impl<'r> Mutator<'r> {
    /// `generated`: the kernel is one of ours. Names that are added begin behind number `tag`.
    pub fn new(rng: &'r mut Rng, generated: bool, tag: u32) -> Mutator<'r> {
        Mutator {
            rng,
            generated,
            fresh: tag,
        }
    }

    /// One change of a kind at a random place; false if there is no place for it.
    pub fn apply(&mut self, mutation: Mutation, text: &mut Text) -> bool {
        let lines = text.kernel();
        let scene = Scene::of(lines, self.generated);
        let places: Vec<usize> = (0..lines.len())
            .filter(|at| scene.allows(mutation, lines, *at))
            .collect();
        if places.is_empty() {
            return false;
        }
        let at = self.rng.pick(&places);
        match mutation {
            Mutation::Reorder => {
                lines.swap(at, at + 1);
                true
            }
            Mutation::Rename => self.rename(lines, at),
            Mutation::Immediate => {
                self.number(lines, at, |rng, _| rng.number() as u32 as i32 as i64)
            }
            Mutation::Spelling => self.spell(lines, at),
            Mutation::Negate => negate(lines, at),
            Mutation::Drop => {
                lines.remove(at);
                true
            }
            Mutation::Repeat => {
                lines.insert(at, lines[at].clone());
                true
            }
            Mutation::Guard => {
                let not = if self.rng.one_in(2) { "!" } else { "" };
                let guard = format!("@{not}%p{} ", self.rng.below(4));
                lines[at].0.insert_str(0, &guard);
                true
            }
            Mutation::Split => self.split(lines, at),
            Mutation::Unreached => self.unreached(lines, at),
            Mutation::Invert => self.invert(lines, at),
            Mutation::Scope => self.scope(lines, at),
            Mutation::Exit => {
                let guard = format!("@%p{}", self.rng.below(4));
                let word = self.rng.pick(&["exit", "ret"]);
                lines.insert(at, Line(format!("{guard} {word};")));
                true
            }
        }
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.fresh += 1;
        format!("{prefix}{}", self.fresh)
    }

    fn rename(&mut self, lines: &mut Vec<Line>, at: usize) -> bool {
        let Some((from, declared)) = lines[at].parts().and_then(|parts| {
            let from = (*parts.operands.first()?).to_owned();
            let declared = declared_as(lines, &from)?;
            Some((from, declared))
        }) else {
            return false;
        };
        // Names that look like something else.
        let to = self.fresh(
            self.rng
                .clone()
                .pick(&["$r", "%bra_", "_ld", "%_", "$L__BR", "r", "%tidx"]),
        );
        for line in lines.iter_mut() {
            *line = line.renamed(&from, &to);
        }
        // A register that is declared by its own name took its declaration with it; one of a range
        // did not.
        if declared_as(lines, &to).is_none() {
            lines.insert(0, Line(format!(".reg .{declared} {to};")));
        }
        true
    }

    fn number(
        &mut self,
        lines: &mut [Line],
        at: usize,
        make: impl Fn(&mut Rng, i64) -> i64,
    ) -> bool {
        let Some(parts) = lines[at].parts() else {
            return false;
        };
        let mut operands: Vec<String> = parts.operands.iter().map(ToString::to_string).collect();
        let numbers: Vec<usize> = (1..operands.len())
            .filter(|i| operands[*i].parse::<i64>().is_ok())
            .collect();
        if numbers.is_empty() {
            return false;
        }
        let which = self.rng.pick(&numbers);
        let old = operands[which].parse().unwrap_or(0);
        operands[which] = make(self.rng, old).to_string();
        lines[at] = parts.line(&operands);
        true
    }

    fn spell(&mut self, lines: &mut [Line], at: usize) -> bool {
        let Some(parts) = lines[at].parts() else {
            return false;
        };
        let mut operands: Vec<String> = parts.operands.iter().map(ToString::to_string).collect();
        let mut found = false;
        for operand in operands.iter_mut().skip(1) {
            if let Ok(number) = operand.parse::<u32>() {
                *operand = match self.rng.below(5) {
                    0 => format!("{number:#x}"),
                    1 => format!("0X{number:X}"),
                    2 => format!("0{number:o}"),
                    3 => format!("{number:#b}"),
                    _ => format!("{number}U"),
                };
                found = true;
            }
        }
        lines[at] = parts.line(&operands);
        found
    }

    fn split(&mut self, lines: &mut Vec<Line>, at: usize) -> bool {
        let label = self.fresh("$split");
        let jump = match self.rng.below(3) {
            0 => None,
            1 => Some(format!("bra {label};")),
            _ => Some(format!("bra.uni {label};")),
        };
        lines.insert(at, Line(format!("{label}:")));
        if let Some(jump) = jump {
            lines.insert(at, Line(jump));
        }
        true
    }

    fn unreached(&mut self, lines: &mut Vec<Line>, at: usize) -> bool {
        let label = self.fresh("$over");
        let (value, address) = (self.fresh("%dead"), self.fresh("%dead"));
        let block = [
            format!("bra.uni {label};"),
            format!("{{ .reg .b32 {value};"),
            format!(".reg .b64 {address};"),
            format!("mov.b64 {address}, 64;"),
            format!("ld.global.u32 {value}, [{address}];"),
            format!("st.shared.u32 [{value}], {value};"),
            "bar.sync 0;".into(),
            "ret;".into(),
            "}".into(),
            format!("{label}:"),
        ];
        lines.splice(at..at, block.map(Line));
        true
    }

    fn invert(&mut self, lines: &mut Vec<Line>, at: usize) -> bool {
        let around = self.fresh("$around");
        let Some((guard, target)) = lines[at].parts().and_then(|parts| {
            let (register, negated) = parts.guard?;
            let not = if negated { "" } else { "!" };
            let target = (*parts.operands.first()?).to_owned();
            Some((format!("@{not}{register}"), target))
        }) else {
            return false;
        };
        let new = [
            format!("{guard} bra {around};"),
            format!("bra.uni {target};"),
            format!("{around}:"),
        ];
        lines.splice(at..=at, new.map(Line));
        true
    }

    fn scope(&mut self, lines: &mut Vec<Line>, at: usize) -> bool {
        // A register of the statement that it only reads: a copy of it under a name of the scope.
        let Some((register, ty, hidden)) = lines[at].parts().and_then(|parts| {
            let written = parts
                .operands
                .first()
                .copied()
                .unwrap_or_default()
                .to_owned();
            let read = parts.operands.iter().skip(1).find(|o| {
                o.starts_with('%') && **o != written && declared_as(lines, o).is_some()
            })?;
            let used = lines[at].names();
            let hidden = lines.iter().find_map(|line| {
                let other = line.parts()?.operands.first().map(ToString::to_string)?;
                let ours = declared_as(lines, &other).is_some() && !used.contains(&other.as_str());
                ours.then_some(other)
            });
            Some(((*read).to_owned(), declared_as(lines, read)?, hidden))
        }) else {
            return false;
        };
        let inner = self.fresh("%own");
        let mut scope = vec![
            "{".to_owned(),
            format!(".reg .{ty} {inner};"),
            format!("mov.{ty} {inner}, {register};"),
        ];
        if let Some(hidden) = hidden {
            scope.push(format!(".reg .b64 {hidden};"));
            scope.push(format!("mov.b64 {hidden}, 7;"));
        }
        // The first operand keeps its name: it is written.
        let parts = lines[at].parts();
        let statement = parts.map(|parts| {
            let renamed = |o: &&str| Line((*o).to_owned()).renamed(&register, &inner).0;
            let mut operands: Vec<String> = parts.operands.iter().map(renamed).collect();
            if let (Some(first), Some(given)) = (operands.first_mut(), parts.operands.first()) {
                *first = (*given).to_owned();
            }
            parts.line(&operands).0
        });
        scope.extend(statement);
        scope.push("}".to_owned());
        lines.splice(at..=at, scope.into_iter().map(Line));
        true
    }
}

fn negate(lines: &mut [Line], at: usize) -> bool {
    let Some(parts) = lines[at].parts() else {
        return false;
    };
    let operands: Vec<String> = parts.operands.iter().map(ToString::to_string).collect();
    let line = match parts.guard {
        Some((register, negated)) => Parts {
            guard: Some((register, !negated)),
            ..parts.clone()
        }
        .line(&operands),
        None => {
            let others = [
                ("lt", "ge"),
                ("ge", "lt"),
                ("le", "gt"),
                ("gt", "le"),
                ("eq", "ne"),
                ("ne", "eq"),
            ];
            let word = parts.modifiers().next().unwrap_or_default();
            let Some((_, other)) = others.iter().find(|(from, _)| *from == word) else {
                return false;
            };
            let name = parts.name.replacen(word, other, 1);
            Parts {
                name: &name,
                ..parts.clone()
            }
            .line(&operands)
        }
    };
    lines[at] = line;
    true
}
