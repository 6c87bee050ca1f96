//! Locks in values of maps, which are refused.

use warpbpf_object::{Btf, MapDef, Type, TypeId};

use crate::rule::Rule;

/// The attribute of [`MapDef::extra`] that says where a `struct bpf_spin_lock` stands in a map's
/// value.
const LOCK_ATTRIBUTE: &str = "bpf_spin_lock";

/// Notes in each map's definition whether its values hold a `struct bpf_spin_lock`, so that
/// [`verify`](crate::verify) refuses programs that use it.
pub fn note_locks(maps: &mut [MapDef], types: &Btf) {
    for map in maps {
        if let Some(at) = map.value_type.and_then(|ty| lock_offset(types, ty, 0)) {
            map.extra.insert(LOCK_ATTRIBUTE.to_owned(), at);
        }
    }
}

/// Where the first lock in a type is, in bytes.
fn lock_offset(types: &Btf, ty: TypeId, depth: u32) -> Option<u64> {
    // Types of a damaged object may go round.
    const DEEPEST: u32 = 16;
    match types.strip(ty)? {
        (_, Type::Struct { name, .. }) if name == "bpf_spin_lock" => Some(0),
        (_, Type::Struct { members, .. } | Type::Union { members, .. }) if depth < DEEPEST => {
            members.iter().find_map(|member| {
                let inner = lock_offset(types, member.ty, depth + 1)?;
                Some(u64::from(member.bit_offset / 8) + inner)
            })
        }
        (
            _,
            Type::Array {
                element,
                count: 1..,
                ..
            },
        ) if depth < DEEPEST => lock_offset(types, *element, depth + 1),
        _ => None,
    }
}

/// The rule that a map breaks whose values hold a lock.
pub(crate) fn lock_in(def: &MapDef) -> Option<Rule> {
    def.extra.contains_key(LOCK_ATTRIBUTE).then(|| Rule::Lock {
        what: format!("values of map `{}` hold a `struct bpf_spin_lock`", def.name),
    })
}
