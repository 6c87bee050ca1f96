//! What several objects say of the same thing must be the same: maps, types, licence, version.

use crate::MapDef;
use crate::btf::{Btf, Linkage, Type, TypeId};
use crate::link::{Difference, Input, LinkError};
use crate::{map_defs, program};

/// How deep types are compared; what lies deeper counts as equal.
const MAX_DEPTH: usize = 16;

/// Checks licence and version.
pub(super) fn sections(inputs: &[Input<'_>]) -> Result<(), LinkError> {
    single(inputs, "license", |input| {
        Some(format!("`{}`", program::license(&input.elf)?))
    })?;
    single(inputs, "version", |input| {
        Some(program::version(&input.elf)?.to_string())
    })
}

fn single(
    inputs: &[Input<'_>],
    section: &'static str,
    value_of: impl Fn(&Input<'_>) -> Option<String>,
) -> Result<(), LinkError> {
    let mut first: Option<(&str, String)> = None;
    for input in inputs {
        let Some(value) = value_of(input) else {
            continue;
        };
        match &first {
            Some((name, other)) if *other != value => {
                let difference = Box::new(Difference {
                    first: (*name).to_owned(),
                    first_value: other.clone(),
                    second: input.name.to_owned(),
                    second_value: value,
                });
                return Err(LinkError::Section {
                    section,
                    difference,
                });
            }
            Some(_) => {}
            None => first = Some((input.name, value)),
        }
    }
    Ok(())
}

/// The function or variable `name` that `btf` declares or defines for others.
pub(super) fn declared(btf: &Btf, name: &str) -> Option<TypeId> {
    let mut ids = btf.find(name).filter_map(|(id, ty)| match ty {
        Type::Func { linkage, .. } | Type::Var { linkage, .. } if *linkage != Linkage::Static => {
            Some(id)
        }
        _ => None,
    });
    ids.next()
}

/// Checks that both objects mean the same by `symbol`.
pub(super) fn symbol(symbol: &str, first: &Input<'_>, second: &Input<'_>) -> Result<(), LinkError> {
    let (Some(a_btf), Some(b_btf)) = (&first.btf, &second.btf) else {
        return Ok(());
    };
    let (Some(a), Some(b)) = (declared(a_btf, symbol), declared(b_btf, symbol)) else {
        return Ok(());
    };
    let definition = |input: &Input<'_>, btf: &Btf, id: TypeId| {
        let in_maps = btf
            .data_section(".maps")
            .is_some_and(|vars| vars.iter().any(|var| var.ty == id));
        let Some(Type::Var { ty, .. }) = btf.type_by_id(id).filter(|_| in_maps) else {
            return Ok(None);
        };
        let map = map_defs::define(btf, symbol, *ty);
        map.map(Some).map_err(|error| input.fault(error))
    };
    let maps = (definition(first, a_btf, a)?, definition(second, b_btf, b)?);
    if let (Some(a_map), Some(b_map)) = &maps {
        let difference = difference(a_btf, a_map, b_btf, b_map);
        return difference.map_or(Ok(()), |(attribute, first_value, second_value)| {
            Err(LinkError::MapConflict {
                map: symbol.to_owned(),
                attribute,
                difference: Box::new(Difference {
                    first: first.name.to_owned(),
                    first_value,
                    second: second.name.to_owned(),
                    second_value,
                }),
            })
        });
    }
    if same(a_btf, a, b_btf, b, 0) {
        return Ok(());
    }
    let text = |btf: &Btf, id: TypeId| match btf.type_by_id(id) {
        Some(Type::Func { proto, .. }) => format!("`{}`", btf.type_name(*proto)),
        Some(Type::Var { ty, .. }) => format!("`{}`", btf.type_name(*ty)),
        _ => format!("`{}`", btf.type_name(id)),
    };
    Err(LinkError::TypeConflict {
        symbol: symbol.to_owned(),
        difference: Box::new(Difference {
            first: first.name.to_owned(),
            first_value: text(a_btf, a),
            second: second.name.to_owned(),
            second_value: text(b_btf, b),
        }),
    })
}

/// The first attribute that differs, and its two values.
fn difference(
    a_btf: &Btf,
    a: &MapDef,
    b_btf: &Btf,
    b: &MapDef,
) -> Option<(String, String, String)> {
    let numbers = [
        ("type", a.map_type, b.map_type),
        ("key_size", a.key_size, b.key_size),
        ("value_size", a.value_size, b.value_size),
        ("max_entries", a.max_entries, b.max_entries),
        ("map_flags", a.flags, b.flags),
    ];
    for (attribute, a, b) in numbers {
        if a != b {
            return Some((attribute.to_owned(), a.to_string(), b.to_string()));
        }
    }
    let absent = || "absent".to_owned();
    for name in a.extra.keys().chain(b.extra.keys()) {
        let (a, b) = (a.extra.get(name), b.extra.get(name));
        if a != b {
            let text = |value: Option<&u64>| value.map_or_else(absent, ToString::to_string);
            return Some((name.clone(), text(a), text(b)));
        }
    }
    for (attribute, a, b) in [
        ("key", a.key_type, b.key_type),
        ("value", a.value_type, b.value_type),
    ] {
        let equal = match (a, b) {
            (Some(a), Some(b)) => same(a_btf, a, b_btf, b, 0),
            (None, None) => true,
            _ => false,
        };
        if !equal {
            let text = |btf: &Btf, ty: Option<TypeId>| {
                ty.map_or_else(absent, |ty| format!("`{}`", btf.type_name(ty)))
            };
            return Some((attribute.to_owned(), text(a_btf, a), text(b_btf, b)));
        }
    }
    match (&a.inner, &b.inner) {
        (Some(a), Some(b)) => {
            let (attribute, a, b) = difference(a_btf, a, b_btf, b)?;
            Some((format!("values.{attribute}"), a, b))
        }
        (None, None) => None,
        (a, _) => {
            let text = |present: bool| if present { "a map" } else { "absent" }.to_owned();
            Some(("values".to_owned(), text(a.is_some()), text(a.is_none())))
        }
    }
}

/// Whether two types are one in C, typedefs and qualifiers aside; structs are compared by name and size.
fn same(a_btf: &Btf, a: TypeId, b_btf: &Btf, b: TypeId, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    let (Some((_, a)), Some((_, b))) = (a_btf.strip(a), b_btf.strip(b)) else {
        return false;
    };
    let deeper = |a: TypeId, b: TypeId| same(a_btf, a, b_btf, b, depth + 1);
    let names = a.name() == b.name();
    match (a, b) {
        (Type::Func { proto: a, .. }, Type::Func { proto: b, .. }) => deeper(*a, *b),
        (Type::Var { ty: a, .. }, Type::Var { ty: b, .. }) => deeper(*a, *b),
        (Type::Void, Type::Void) => true,
        (
            Type::Int {
                size: a, signed: x, ..
            },
            Type::Int {
                size: b, signed: y, ..
            },
        ) => a == b && x == y,
        (Type::Float { size: a, .. }, Type::Float { size: b, .. })
        | (Type::Enum { size: a, .. }, Type::Enum { size: b, .. }) => a == b && names,
        (
            Type::Struct {
                size: a,
                members: x,
                ..
            },
            Type::Struct {
                size: b,
                members: y,
                ..
            },
        )
        | (
            Type::Union {
                size: a,
                members: x,
                ..
            },
            Type::Union {
                size: b,
                members: y,
                ..
            },
        ) => {
            let members = x.iter().zip(y).all(|(x, y)| {
                (&x.name, x.bit_offset, x.bit_size) == (&y.name, y.bit_offset, y.bit_size)
            });
            names && a == b && x.len() == y.len() && members
        }
        (Type::Fwd { .. }, Type::Fwd { .. } | Type::Struct { .. } | Type::Union { .. })
        | (Type::Struct { .. } | Type::Union { .. }, Type::Fwd { .. }) => names,
        (Type::Ptr { target: a }, Type::Ptr { target: b }) => deeper(*a, *b),
        (
            Type::Array {
                element: a,
                count: x,
                ..
            },
            Type::Array {
                element: b,
                count: y,
                ..
            },
        ) => {
            // `extern int x[];` leaves the size to the definition.
            (x == y || *x == 0 || *y == 0) && deeper(*a, *b)
        }
        (Type::FuncProto { ret: a, params: x }, Type::FuncProto { ret: b, params: y }) => {
            deeper(*a, *b)
                && x.len() == y.len()
                && x.iter().zip(y).all(|((_, a), (_, b))| deeper(*a, *b))
        }
        _ => false,
    }
}
