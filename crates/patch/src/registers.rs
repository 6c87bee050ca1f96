//! Declared types of registers: what is copied out of an operand depends on how wide it is, and the
//! same name may be another register in an inner scope (PTX ISA "Scoping of Names").

use std::collections::BTreeMap;

use warpbpf_ptx::ast::{Function, RegisterDecl, Statement, StatementKind};

/// The registers of a function.
pub(crate) struct Registers<'a> {
    scopes: Vec<Scope<'a>>,
    /// Scope of each statement.
    scope_of: Vec<usize>,
}

#[derive(Default)]
struct Scope<'a> {
    parent: Option<usize>,
    plain: BTreeMap<&'a str, &'a str>,
    /// By prefix: how many there are, and their type.
    counted: BTreeMap<&'a str, (u32, &'a str)>,
}

impl<'a> Scope<'a> {
    fn declare(&mut self, register: &RegisterDecl<'a>) {
        match register.count {
            Some(count) => drop(self.counted.insert(register.name, (count, register.ty))),
            None => drop(self.plain.insert(register.name, register.ty)),
        }
    }

    fn ty(&self, name: &str) -> Option<&'a str> {
        if let Some(ty) = self.plain.get(name) {
            return Some(ty);
        }
        // `%r1<5>` declares `%r10` to `%r14`, so a prefix may itself end with digits.
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (1..=digits).find_map(|tail| {
            let (prefix, number) = name.split_at(name.len() - tail);
            let (count, ty) = self.counted.get(prefix)?;
            let plain = number == "0" || !number.starts_with('0');
            (plain && number.parse::<u32>().ok()? < *count).then_some(*ty)
        })
    }
}

impl<'a> Registers<'a> {
    pub(crate) fn of(function: &Function<'a>, statements: &[Statement<'a>]) -> Registers<'a> {
        let mut root = Scope::default();
        let params = function.params.iter().chain(&function.returns);
        for param in params.filter(|p| p.is_reg) {
            root.plain.insert(param.name, param.ty);
        }
        let mut registers = Registers {
            scopes: vec![root],
            scope_of: Vec::with_capacity(statements.len()),
        };
        let mut current = 0;
        for statement in statements {
            match &statement.kind {
                StatementKind::Open => {
                    registers.scopes.push(Scope {
                        parent: Some(current),
                        ..Scope::default()
                    });
                    current = registers.scopes.len() - 1;
                }
                StatementKind::Close => {
                    current = registers.scopes[current].parent.unwrap_or(0);
                }
                StatementKind::Registers(list) => {
                    for register in list {
                        registers.scopes[current].declare(register);
                    }
                }
                StatementKind::Label(_)
                | StatementKind::Instruction(_)
                | StatementKind::Variable(_)
                | StatementKind::Loc(_)
                | StatementKind::Pragma(_)
                | StatementKind::CallPrototype { .. }
                | StatementKind::BranchTargets { .. }
                | StatementKind::CallTargets { .. }
                | StatementKind::Directive(_) => {}
            }
            registers.scope_of.push(current);
        }
        registers
    }

    /// Type of the register that `name` stands for in a statement; of `%v.x` that of one element of
    /// `%v`. `None` for what is no register of the function, such as `%tid.x`.
    pub(crate) fn ty(&self, statement: usize, name: &str) -> Option<&'a str> {
        let mut scope = self.scope_of.get(statement).copied();
        while let Some(at) = scope {
            let here = self.scopes.get(at)?;
            if let Some(ty) = here.ty(name) {
                return Some(ty);
            }
            scope = here.parent;
        }
        let (vector, _) = name.rsplit_once('.')?;
        let ty = self.ty(statement, vector)?;
        ty.split_once('.').map(|(_, element)| element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(body: &str, then: impl Fn(&Registers<'_>, &[Statement<'_>]) -> T) -> T {
        let text = format!(
            ".version 8.3\n.target sm_90\n.address_size 64\n.func f(.reg .u32 x) {{ {body} }}"
        );
        let module = warpbpf_ptx::index(&text).unwrap();
        let statements = warpbpf_ptx::parse_body(&module, &module.functions[0]).unwrap();
        then(
            &Registers::of(&module.functions[0], &statements),
            &statements,
        )
    }

    #[test]
    fn counted_plain_and_parameters() {
        with(
            ".reg .b32 %r<7>; .reg .f64 %r1<3>, y; .reg .v4 .f32 v; ret;",
            |registers, statements| {
                let last = statements.len() - 1;
                let ty = |name| registers.ty(last, name);
                assert_eq!(ty("%r6"), Some("b32"));
                assert_eq!(ty("%r7"), None);
                assert_eq!(ty("%r06"), None);
                assert_eq!(ty("%r12"), Some("f64"));
                assert_eq!(ty("y"), Some("f64"));
                assert_eq!(ty("x"), Some("u32"));
                assert_eq!(ty("v"), Some("v4.f32"));
                assert_eq!(ty("v.y"), Some("f32"));
                assert_eq!(ty("%tid.x"), None);
            },
        );
    }

    #[test]
    fn an_inner_scope_hides_and_ends() {
        with(
            ".reg .b32 a; { .reg .b64 a; ret; { ret; } } ret;",
            |registers, statements| {
                let rets: Vec<_> = (0..statements.len())
                    .filter(|i| matches!(statements[*i].kind, StatementKind::Instruction(_)))
                    .map(|i| registers.ty(i, "a"))
                    .collect();
                assert_eq!(rets, [Some("b64"), Some("b64"), Some("b32")]);
            },
        );
    }
}
