//! Which types of the target may be meant: same name without the flavor, same kind.

use std::mem::discriminant;

use crate::btf::{Btf, TypeId};
use crate::core::spec::Spec;
use crate::flavor::essential;

/// Types of `target` that the root of `local` may stand for, in order of their numbers.
pub(super) fn of(local: &Spec<'_>, target: &Btf) -> Vec<TypeId> {
    let Some(root) = local.btf.type_by_id(local.root) else {
        return Vec::new();
    };
    let wanted = essential(local.root_name());
    let mut ids: Vec<TypeId> = target
        .find_with_prefix(wanted)
        .filter(|(name, _, ty)| {
            essential(name) == wanted && discriminant(*ty) == discriminant(root)
        })
        .map(|(_, id, _)| id)
        .collect();
    ids.sort_unstable();
    ids
}
