//! Where in a kernel what may be changed: what its lines depend on, and which of them belong
//! together.

use std::collections::BTreeSet;

use super::mutate::Mutation;
use warpbpf_conformance::lines::{Line, Parts};

/// Instructions that do nothing but give a value to their first operand.
const PURE: &[&str] = &[
    "add", "sub", "mul", "mad", "and", "or", "xor", "not", "neg", "shl", "shr", "min", "max",
    "abs", "selp", "setp", "mov", "cvt", "fma", "lop3", "prmt", "popc", "clz", "brev",
];

/// The type that a register of the outermost scope is declared with, if only there.
pub(super) fn declared_as(lines: &[Line], register: &str) -> Option<String> {
    let mut types = lines.iter().filter_map(|line| {
        let list = line.0.strip_prefix(".reg")?.strip_suffix(';')?.trim();
        let (ty, list) = list.strip_prefix('.')?.split_once(char::is_whitespace)?;
        let declares = |name: &str| match name.trim().split_once('<') {
            Some((prefix, count)) => {
                let number = register
                    .strip_prefix(prefix)
                    .and_then(|n| n.parse::<u32>().ok());
                let count = count.trim_end_matches('>').parse::<u32>().ok();
                matches!((number, count), (Some(number), Some(count)) if number < count)
            }
            None => name.trim() == register,
        };
        list.split(',').any(declares).then(|| ty.to_owned())
    });
    let first = types.next()?;
    types.next().is_none().then_some(first)
}

/// What is known of a kernel's lines.
pub(super) struct Scene {
    generated: bool,
    /// Lines before which nothing may be put in.
    closed: Vec<bool>,
    /// Registers whose value decides where memory is accessed or where control goes.
    deciding: BTreeSet<String>,
    /// The first line behind all declarations and first values.
    begin: usize,
    /// The line behind the last one that lanes need each other at.
    together: usize,
}

impl Scene {
    pub(super) fn of(lines: &[Line], generated: bool) -> Scene {
        let begin = match generated {
            // The first values, and what was written to shared and local memory, come before.
            // Registers may have other names.
            true => lines
                .iter()
                .position(|l| l.0.starts_with("st.local.v4.u32 [") && l.0.contains("+16]"))
                .map_or(0, |at| at + 1),
            false => 0,
        };
        let together = lines.iter().rposition(|line| {
            let opcode = line
                .parts()
                .map(|p| p.opcode().to_owned())
                .unwrap_or_default();
            ["bar", "barrier", "shfl", "vote", "redux"].contains(&opcode.as_str())
        });
        Scene {
            generated,
            closed: closed(lines),
            deciding: if generated {
                BTreeSet::new()
            } else {
                deciding(lines)
            },
            begin,
            together: together.map_or(0, |at| at + 1),
        }
    }

    /// Its value may become another.
    fn is_value(&self, register: &str) -> bool {
        if self.generated {
            ["%r", "%l", "%f", "%h", "%p"].iter().any(|prefix| {
                register
                    .strip_prefix(prefix)
                    .is_some_and(|n| n.parse::<u32>().is_ok())
            })
        } else {
            register.starts_with('%') && !self.deciding.contains(register)
        }
    }

    pub(super) fn allows(&self, mutation: Mutation, lines: &[Line], at: usize) -> bool {
        let line = &lines[at];
        let Some(parts) = line.parts() else {
            return match mutation {
                Mutation::Split | Mutation::Unreached => !self.closed[at],
                _ => false,
            };
        };
        let opcode = parts.opcode();
        let first = parts.operands.first().copied().unwrap_or_default();
        let is_pure = PURE.contains(&opcode) && !parts.name.contains(".cc");
        let is_access =
            matches!(opcode, "ld" | "st" | "atom" | "red") && !parts.name.contains(".param");
        let open = !self.closed[at] && at >= self.begin;
        let makes_value = is_pure && self.is_value(first);
        match mutation {
            Mutation::Reorder => {
                open && lines.get(at + 1).is_some_and(|next| {
                    !self.closed[at + 1] && (is_pure || is_access) && independent(&parts, next)
                })
            }
            // The predicates of generated kernels are named by other changes.
            Mutation::Rename => {
                let free = !(self.generated && first.starts_with("%p"));
                is_pure && first.starts_with('%') && !first.contains('|') && free
            }
            Mutation::Spelling => is_pure && !parts.name.contains(".f"),
            Mutation::Immediate => open && makes_value && takes_any_number(&parts),
            Mutation::Negate => {
                let of_value = parts
                    .guard
                    .is_some_and(|(register, _)| self.is_value(register));
                let compares = opcode == "setp" && makes_value && parts.guard.is_none();
                open && (of_value && self.generated && (is_pure || is_access || opcode == "bra")
                    || compares)
            }
            // A register of the corpus that loses its value has none.
            Mutation::Drop | Mutation::Guard if !self.generated => false,
            Mutation::Drop => {
                open && (makes_value || is_access && (opcode != "ld" || self.is_value(first)))
            }
            Mutation::Guard => {
                open && parts.guard.is_none()
                    && (makes_value || is_access && !opcode.starts_with("ld"))
            }
            Mutation::Repeat if self.generated => open && (makes_value || is_access),
            Mutation::Repeat => {
                // Twice the same gives the same where it does not read what it writes.
                let reads = parts.operands.iter().skip(1).any(|o| o.contains(first));
                open && is_pure && !reads && first.starts_with('%')
            }
            Mutation::Split | Mutation::Unreached => open,
            Mutation::Invert => open && opcode == "bra" && parts.guard.is_some(),
            Mutation::Scope => {
                open && is_pure && parts.guard.is_none() && !parts.name.contains(".cc")
            }
            Mutation::Exit => self.generated && open && at >= self.together,
        }
    }
}

/// Every number is good there, as one of 32 bits.
fn takes_any_number(parts: &Parts<'_>) -> bool {
    let types = [".u32", ".s32", ".b32"];
    let any = [
        "add", "sub", "mul", "mad", "and", "or", "xor", "min", "max", "selp", "setp", "mov",
    ];
    any.contains(&parts.opcode())
        && types.iter().any(|ty| parts.name.ends_with(ty))
        && !parts.name.contains("wide")
}

/// Neither reads or writes what the other writes, and at most one touches memory.
fn independent(one: &Parts<'_>, next: &Line) -> bool {
    let Some(other) = next.parts() else {
        return false;
    };
    let kind = |parts: &Parts<'_>| match parts.opcode() {
        opcode if PURE.contains(&opcode) && !parts.name.contains(".cc") => Some(0),
        "ld" | "st" | "atom" | "red" if !parts.name.contains(".param") => Some(1),
        _ => None,
    };
    let (Some(a), Some(b)) = (kind(one), kind(&other)) else {
        return false;
    };
    if a + b > 1 {
        return false;
    }
    let all = |parts: &Parts<'_>| -> BTreeSet<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for operand in &parts.operands {
            let operand = Line((*operand).to_owned());
            names.extend(operand.names().into_iter().map(str::to_owned));
        }
        names.extend(parts.guard.map(|(register, _)| register.to_owned()));
        names
    };
    let written = |parts: &Parts<'_>| -> BTreeSet<String> {
        let first = parts
            .operands
            .first()
            .copied()
            .unwrap_or_default()
            .to_owned();
        let first = Line(first);
        if matches!(parts.opcode(), "st" | "red") {
            return BTreeSet::new();
        }
        first.names().into_iter().map(str::to_owned).collect()
    };
    written(one).is_disjoint(&all(&other)) && written(&other).is_disjoint(&all(one))
}

/// Between the parts of a call, and between a pragma and what it is for, nothing goes; nor before a
/// declaration.
fn closed(lines: &[Line]) -> Vec<bool> {
    let mut closed = vec![false; lines.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.0 == "{" {
            open.push(at);
        } else if line.0 == "}" {
            let from = open.pop().unwrap_or(0);
            let call = lines[from..at].iter().any(|l| {
                l.0.starts_with("call") || l.0.contains(" call") || l.0.contains(".param")
            });
            if call {
                closed[from + 1..=at].fill(true);
            }
        }
        if line.0.starts_with('.') || line.0.contains(": .") {
            closed[at] = true;
        }
        if at > 0 && lines[at - 1].0.starts_with(".pragma") {
            closed[at] = true;
        }
    }
    closed
}

/// Registers that reach an address, a predicate of anything but a choice of values, or what is not
/// understood.
fn deciding(lines: &[Line]) -> BTreeSet<String> {
    let mut deciding: BTreeSet<String> = BTreeSet::new();
    let parts: Vec<Parts<'_>> = lines.iter().filter_map(Line::parts).collect();
    let names = |text: &str| -> Vec<String> {
        Line(text.to_owned())
            .names()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    for one in &parts {
        let is_pure = PURE.contains(&one.opcode()) && !one.name.contains(".cc");
        if let Some((register, _)) = one.guard {
            deciding.insert(register.to_owned());
        }
        match one.opcode() {
            _ if is_pure => {}
            // Where it goes decides, what goes there does not.
            "st" | "ld" => {
                let addresses = one.operands.iter().filter(|o| o.starts_with('['));
                deciding.extend(addresses.flat_map(|o| names(o)));
                if one.opcode() == "st" && !one.name.contains(".global") {
                    // What is kept in memory may come back as an address.
                    deciding.extend(one.operands.iter().flat_map(|o| names(o)));
                }
            }
            _ => deciding.extend(one.operands.iter().flat_map(|o| names(o))),
        }
    }
    loop {
        let before = deciding.len();
        for one in &parts {
            let written = one.operands.first().map(|o| names(o)).unwrap_or_default();
            if PURE.contains(&one.opcode()) && written.iter().any(|w| deciding.contains(w)) {
                deciding.extend(one.operands.iter().flat_map(|o| names(o)));
            }
        }
        if deciding.len() == before {
            return deciding;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<Line> {
        text.iter().map(|line| Line((*line).to_owned())).collect()
    }

    #[test]
    fn only_what_depends_on_nothing_changes_places() {
        let independent = |a: &str, b: &str| {
            let (a, b) = (Line(a.into()), Line(b.into()));
            a.parts().is_some_and(|parts| independent(&parts, &b))
        };
        assert!(independent(
            "add.u32 %r1, %r2, %r3;",
            "add.u32 %r4, %r2, %r3;"
        ));
        assert!(!independent(
            "add.u32 %r1, %r2, %r3;",
            "add.u32 %r4, %r1, %r3;"
        ));
        assert!(!independent(
            "add.u32 %r1, %r2, %r3;",
            "add.u32 %r2, %r4, %r3;"
        ));
        assert!(!independent(
            "setp.eq.u32 %p1, %r2, 0;",
            "@%p1 add.u32 %r1, %r1, 1;"
        ));
        assert!(!independent(
            "st.global.u32 [%a1], %r1;",
            "ld.global.u32 %r2, [%a1];"
        ));
        assert!(independent("st.global.u32 [%a1], %r1;", "mov.u32 %r2, 0;"));
        assert!(!independent("add.cc.u32 %r1, %r2, %r3;", "mov.u32 %r4, 0;"));
    }

    #[test]
    fn what_reaches_an_address_or_a_branch_decides() {
        let lines = lines(&[
            "add.u32 %r1, %r2, 4;",
            "cvt.u64.u32 %rd1, %r1;",
            "mul.lo.u32 %r3, %r4, %r5;",
            "setp.eq.u32 %p1, %r6, 0;",
            "@%p1 bra L;",
            "st.global.u32 [%rd1], %r3;",
        ]);
        let deciding = deciding(&lines);
        for register in ["%r1", "%r2", "%rd1", "%p1", "%r6"] {
            assert!(deciding.contains(register), "{register}");
        }
        for register in ["%r3", "%r4", "%r5"] {
            assert!(!deciding.contains(register), "{register}");
        }
    }

    #[test]
    fn registers_are_found_where_they_are_declared() {
        let lines = lines(&[
            ".reg .b32 %r<3>;",
            ".reg .pred $x, %p1;",
            "{",
            ".reg .b64 %p1;",
            "}",
        ]);
        assert_eq!(declared_as(&lines, "%r2").as_deref(), Some("b32"));
        assert_eq!(declared_as(&lines, "%r3"), None);
        assert_eq!(declared_as(&lines, "$x").as_deref(), Some("pred"));
        assert_eq!(declared_as(&lines, "%p1"), None);
    }

    #[test]
    fn a_call_and_a_pragma_stay_together() {
        let lines = lines(&[
            "{",
            ".param .b32 x;",
            "call f, (x);",
            "}",
            ".pragma \"nounroll\";",
            "L:",
            "ret;",
        ]);
        assert_eq!(closed(&lines), [false, true, true, true, true, true, false]);
    }
}
