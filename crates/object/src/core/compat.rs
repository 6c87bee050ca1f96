//! Which types of the program and of the target may stand for each other.
//!
//! Three strengths, as in libbpf: fields (what a load of one may become), types
//! (`bpf_core_type_exists` and its like: same kind, structs by name only), and matches
//! (`bpf_core_type_matches`: member by member).

use std::mem::discriminant;

use crate::btf::{Btf, Type, TypeId};
use crate::flavor::essential;

/// How deep pointers, arrays and parameters are followed; deeper types do not fit.
const MAX_DEPTH: usize = 32;

/// How many pairs of types one comparison looks at, so that nested members of a damaged file cannot
/// make it endless.
const MAX_PAIRS: u32 = 1 << 16;

/// Whether a field of type `a` may be one of type `b` in the target.
pub(super) fn fields(a_btf: &Btf, mut a: TypeId, b_btf: &Btf, mut b: TypeId) -> bool {
    for _ in 0..MAX_DEPTH {
        let (Some((_, a_ty)), Some((_, b_ty))) = (a_btf.strip(a), b_btf.strip(b)) else {
            return false;
        };
        match (a_ty, b_ty) {
            (
                Type::Struct { .. } | Type::Union { .. },
                Type::Struct { .. } | Type::Union { .. },
            )
            | (Type::Ptr { .. }, Type::Ptr { .. })
            | (Type::Float { .. }, Type::Float { .. })
            | (Type::Int { .. }, Type::Int { .. }) => return true,
            (Type::Enum { .. }, Type::Enum { .. }) | (Type::Fwd { .. }, Type::Fwd { .. }) => {
                return loose_name(a_ty, b_ty);
            }
            (Type::Array { element: x, .. }, Type::Array { element: y, .. }) => (a, b) = (*x, *y),
            _ => return false,
        }
    }
    false
}

/// One of them has no name, or both have the same.
fn loose_name(a: &Type, b: &Type) -> bool {
    match (a.name(), b.name()) {
        (Some(a), Some(b)) => essential(a) == essential(b),
        _ => true,
    }
}

/// Whether `b` is the type that `a` declares, names of inner types aside.
pub(super) fn types(a_btf: &Btf, a: TypeId, b_btf: &Btf, b: TypeId) -> bool {
    let kinds = a_btf.type_by_id(a).map(discriminant) == b_btf.type_by_id(b).map(discriminant);
    kinds && types_at(a_btf, a, b_btf, b, 0, &mut MAX_PAIRS.clone())
}

fn types_at(
    a_btf: &Btf,
    mut a: TypeId,
    b_btf: &Btf,
    mut b: TypeId,
    depth: usize,
    budget: &mut u32,
) -> bool {
    for _ in depth..MAX_DEPTH {
        let Some(rest) = budget.checked_sub(1) else {
            return false;
        };
        *budget = rest;
        let (Some((_, a_ty)), Some((_, b_ty))) = (a_btf.strip(a), b_btf.strip(b)) else {
            return false;
        };
        match (a_ty, b_ty) {
            (Type::Void, Type::Void)
            | (Type::Struct { .. }, Type::Struct { .. })
            | (Type::Union { .. }, Type::Union { .. })
            | (Type::Enum { .. }, Type::Enum { .. })
            | (Type::Fwd { .. }, Type::Fwd { .. })
            | (Type::Int { .. }, Type::Int { .. }) => return true,
            (Type::Ptr { target: x }, Type::Ptr { target: y })
            | (Type::Array { element: x, .. }, Type::Array { element: y, .. }) => (a, b) = (*x, *y),
            (
                Type::FuncProto {
                    ret: x,
                    params: a_params,
                },
                Type::FuncProto {
                    ret: y,
                    params: b_params,
                },
            ) => {
                let same = a_params.len() == b_params.len()
                    && a_params
                        .iter()
                        .zip(b_params)
                        .all(|((_, a), (_, b))| types_at(a_btf, *a, b_btf, *b, depth + 1, budget));
                if !same {
                    return false;
                }
                (a, b) = (*x, *y);
            }
            _ => return false,
        }
    }
    false
}

/// Whether `b` has everything that `a` declares, with the same types.
pub(super) fn types_match(a_btf: &Btf, a: TypeId, b_btf: &Btf, b: TypeId) -> bool {
    Match {
        a: a_btf,
        b: b_btf,
        budget: MAX_PAIRS,
    }
    .types(a, b, false, 0)
}

struct Match<'b> {
    a: &'b Btf,
    b: &'b Btf,
    budget: u32,
}

impl Match<'_> {
    fn types(&mut self, a: TypeId, b: TypeId, mut behind_pointer: bool, depth: usize) -> bool {
        let (mut a, mut b) = (a, b);
        for _ in depth..MAX_DEPTH {
            let Some(rest) = self.budget.checked_sub(1) else {
                return false;
            };
            self.budget = rest;
            let (Some((_, a_ty)), Some((_, b_ty))) = (self.a.strip(a), self.b.strip(b)) else {
                return false;
            };
            let names = essential(a_ty.name().unwrap_or_default())
                == essential(b_ty.name().unwrap_or_default());
            match (a_ty, b_ty) {
                (Type::Void, Type::Void) => return true,
                (Type::Fwd { union: x, .. }, Type::Fwd { union: y, .. }) => return names && x == y,
                (Type::Fwd { union, .. }, Type::Struct { .. })
                | (Type::Struct { .. }, Type::Fwd { union, .. }) => {
                    return names && behind_pointer && !union;
                }
                (Type::Fwd { union, .. }, Type::Union { .. })
                | (Type::Union { .. }, Type::Fwd { union, .. }) => {
                    return names && behind_pointer && *union;
                }
                (
                    Type::Enum {
                        size: x, values, ..
                    },
                    Type::Enum {
                        size: y,
                        values: others,
                        ..
                    },
                ) => {
                    let has = |name: &str| others.iter().any(|(n, _)| essential(n) == name);
                    return names && x == y && values.iter().all(|(n, _)| has(essential(n)));
                }
                (Type::Struct { members: x, .. }, Type::Struct { members: y, .. })
                | (Type::Union { members: x, .. }, Type::Union { members: y, .. }) => {
                    if behind_pointer {
                        return names;
                    }
                    return names
                        && x.iter().all(|member| {
                            y.iter().any(|other| {
                                essential(&member.name) == essential(&other.name)
                                    && self.types(member.ty, other.ty, false, depth + 1)
                            })
                        });
                }
                (
                    Type::Int {
                        size: x,
                        signed: x_signed,
                        ..
                    },
                    Type::Int {
                        size: y,
                        signed: y_signed,
                        ..
                    },
                ) => return x == y && x_signed == y_signed,
                (Type::Ptr { target: x }, Type::Ptr { target: y }) => {
                    behind_pointer = true;
                    (a, b) = (*x, *y);
                }
                (
                    Type::Array {
                        element: x,
                        count: n,
                        ..
                    },
                    Type::Array {
                        element: y,
                        count: m,
                        ..
                    },
                ) => {
                    if n != m {
                        return false;
                    }
                    (a, b) = (*x, *y);
                }
                (
                    Type::FuncProto {
                        ret: x,
                        params: a_params,
                    },
                    Type::FuncProto {
                        ret: y,
                        params: b_params,
                    },
                ) => {
                    let same = a_params.len() == b_params.len()
                        && a_params
                            .iter()
                            .zip(b_params)
                            .all(|((_, a), (_, b))| self.types(*a, *b, behind_pointer, depth + 1));
                    if !same {
                        return false;
                    }
                    (a, b) = (*x, *y);
                }
                _ => return false,
            }
        }
        false
    }
}
