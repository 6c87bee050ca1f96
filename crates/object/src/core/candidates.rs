//! Which types of the target may be meant: same name without the flavor, same kind.

use std::mem::discriminant;

use crate::btf::{Btf, TypeId};
use crate::core::spec::Spec;

/// `task` of `task___old`: what follows three underscores tells variants of one type apart in the program only.
pub(crate) fn essential(name: &str) -> &str {
    let bytes = name.as_bytes();
    // A flavor has something before and after the underscores, neither of which is one more.
    let at = (1..bytes.len().saturating_sub(3))
        .rev()
        .find(|&at| &bytes[at..at + 3] == b"___" && bytes[at - 1] != b'_' && bytes[at + 3] != b'_');
    at.map_or(name, |at| &name[..at])
}

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

#[cfg(test)]
mod tests {
    use super::essential;

    #[test]
    fn a_flavor_is_no_part_of_the_name() {
        for (name, expected) in [
            ("task", "task"),
            ("task___old", "task"),
            ("task___old___er", "task___old"),
            ("___old", "___old"),
            ("task___", "task___"),
            ("task____old", "task____old"),
            ("a___b", "a"),
            ("", ""),
            ("a", "a"),
        ] {
            assert_eq!(essential(name), expected, "{name}");
        }
    }
}
