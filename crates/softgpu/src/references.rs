//! Names that a module uses and nobody defines. A driver refuses such a module when it is loaded,
//! whether or not the place is ever come to; so do we, before anything else is made of it.

use std::collections::{HashMap, HashSet};

use warpbpf_ptx::ast::{Function, Linkage, Module, Operand, StatementKind};

use crate::load_error::LoadError;
use crate::op::Builtin;

/// Refuses bodies that call, or take the address of, a function without a body that we do not have
/// either.
pub(crate) fn check(
    module: &Module<'_>,
    functions: &HashMap<String, u32>,
) -> Result<(), LoadError> {
    for alias in &module.aliases {
        let declared = |name| {
            functions
                .get(name)
                .and_then(|&at| module.functions.get(at as usize))
        };
        let reason = match (declared(alias.name), declared(alias.target)) {
            (None, _) => format!("`{}` is not declared", alias.name),
            (_, Some(target)) if target.linkage == Linkage::Weak => {
                format!("`{}` is weak and has no other name", alias.target)
            }
            (_, Some(target)) if target.body.is_some() && !target.is_entry => continue,
            _ => format!("`{}` is not a function of this module", alias.target),
        };
        return Err(LoadError::Body {
            function: alias.name.to_owned(),
            line: module.line_of(alias.name.as_ptr() as usize - module.text.as_ptr() as usize),
            reason: format!("`.alias`: {reason}"),
        });
    }
    let unresolved = |function: &&Function<'_>| {
        let defined = functions.get(function.name);
        let defined = defined.and_then(|&index| module.functions.get(index as usize));
        defined.is_none_or(|defined| defined.body.is_none())
            && Builtin::named(function.name).is_none()
    };
    let prototypes = module.functions.iter().filter(|f| f.body.is_none());
    let nowhere: HashSet<&str> = prototypes.filter(unresolved).map(|f| f.name).collect();
    if nowhere.is_empty() {
        return Ok(());
    }
    for function in &module.functions {
        let mut own: HashSet<&str> = HashSet::new();
        for statement in warpbpf_ptx::parse_body(module, function)? {
            let instruction = match &statement.kind {
                StatementKind::Instruction(instruction) => instruction,
                StatementKind::Registers(list) => {
                    own.extend(list.iter().map(|decl| decl.name));
                    continue;
                }
                StatementKind::Variable(variable) => {
                    own.insert(variable.name);
                    continue;
                }
                _ => continue,
            };
            let mut names = instruction
                .operands
                .iter()
                .filter_map(|operand| match operand {
                    Operand::Name(name) | Operand::Offset(name, _) => Some(*name),
                    _ => None,
                });
            if let Some(name) = names.find(|name| nowhere.contains(name) && !own.contains(name)) {
                return Err(LoadError::Body {
                    function: function.name.to_owned(),
                    line: module.line_of(statement.span.start),
                    reason: format!(
                        "function `{name}` is not defined: link the modules that define it before loading"
                    ),
                });
            }
        }
    }
    Ok(())
}
