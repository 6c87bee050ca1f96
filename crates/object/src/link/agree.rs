//! What several objects say of the same thing must be the same: maps, types, licence, version.

use std::collections::{BTreeSet, VecDeque};

use crate::btf::{Btf, Linkage, Member, Type, TypeId};
use crate::link::error::{Difference, LinkError};
use crate::link::input::Input;
use crate::object::MapDef;
use crate::{map_defs, sections};

/// How many pairs of types are compared for one symbol; what lies beyond counts as equal.
const MAX_PAIRS: usize = 1 << 16;

/// Checks licence and version.
pub(super) fn sections(inputs: &[Input<'_>]) -> Result<(), LinkError> {
    single(inputs, "license", |input| {
        Some(format!("`{}`", sections::license(&input.elf)?))
    })?;
    single(inputs, "version", |input| {
        Some(sections::version(&input.elf)?.to_string())
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
    let Some(unlike) = unlike(a_btf, a, b_btf, b) else {
        return Ok(());
    };
    let whole = |btf: &Btf, id: TypeId| match btf.type_by_id(id) {
        Some(Type::Func { proto: ty, .. } | Type::Var { ty, .. }) => btf.type_name(*ty),
        _ => btf.type_name(id),
    };
    let (first_value, second_value) = unlike.within(&whole(a_btf, a), &whole(b_btf, b));
    Err(LinkError::TypeConflict {
        symbol: symbol.to_owned(),
        difference: Box::new(Difference {
            first: first.name.to_owned(),
            first_value,
            second: second.name.to_owned(),
            second_value,
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
        let text = |btf: &Btf, ty: Option<TypeId>| {
            ty.map_or_else(absent, |ty| format!("`{}`", btf.type_name(ty)))
        };
        let (first, second) = match (a, b) {
            (Some(a), Some(b)) => match unlike(a_btf, a, b_btf, b) {
                Some(unlike) => unlike.within(&a_btf.type_name(a), &b_btf.type_name(b)),
                None => continue,
            },
            (None, None) => continue,
            (a, b) => (text(a_btf, a), text(b_btf, b)),
        };
        return Some((attribute.to_owned(), first, second));
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

/// What two types differ in, in words, for each of them.
struct Unlike {
    first: String,
    second: String,
}

impl Unlike {
    fn new(first: impl Into<String>, second: impl Into<String>) -> Self {
        Self {
            first: first.into(),
            second: second.into(),
        }
    }

    /// The two types as messages show them: by name where that tells them apart, else with what
    /// differs inside.
    fn within(&self, a: &str, b: &str) -> (String, String) {
        if a == b {
            let text = |detail: &str| format!("`{a}` ({detail})");
            (text(&self.first), text(&self.second))
        } else {
            (format!("`{a}`"), format!("`{b}`"))
        }
    }
}

/// Two types that have to be the same, and the member that has them.
struct Pair {
    a: TypeId,
    b: TypeId,
    member: Option<String>,
}

/// What keeps two types from being one in C, typedefs and qualifiers aside; `None` if they are the
/// same.
///
/// Types refer to themselves through pointers, so each pair is compared once.
fn unlike(a_btf: &Btf, a: TypeId, b_btf: &Btf, b: TypeId) -> Option<Unlike> {
    let mut seen = BTreeSet::new();
    let mut pairs = VecDeque::from([Pair { a, b, member: None }]);
    while let Some(pair) = pairs.pop_front() {
        let (Some((a, a_type)), Some((b, b_type))) = (a_btf.strip(pair.a), b_btf.strip(pair.b))
        else {
            return Some(Unlike::new("a type without end", "a type without end"));
        };
        if seen.len() >= MAX_PAIRS || !seen.insert((a, b)) {
            continue;
        }
        match step(a_type, b_type) {
            Step::Same => {}
            Step::If(parts) => pairs.extend(parts.into_iter().map(|part| Pair {
                member: part.member.or_else(|| pair.member.clone()),
                ..part
            })),
            Step::Unlike(unlike) => return Some(unlike),
            Step::Differ => {
                let member = pair
                    .member
                    .map_or(String::new(), |name| format!("{name} is "));
                let text = |btf: &Btf, id: TypeId| format!("{member}`{}`", btf.type_name(id));
                return Some(Unlike::new(text(a_btf, pair.a), text(b_btf, pair.b)));
            }
        }
    }
    None
}

/// What is known of two types without looking into those they are made of.
enum Step {
    Same,
    /// They are the same if these are.
    If(Vec<Pair>),
    /// Their names tell.
    Differ,
    /// Their names may be the same.
    Unlike(Unlike),
}

fn step(a: &Type, b: &Type) -> Step {
    let names = a.name() == b.name();
    let only = |holds: bool| if holds { Step::Same } else { Step::Differ };
    let part = |a: &TypeId, b: &TypeId| Pair {
        a: *a,
        b: *b,
        member: None,
    };
    match (a, b) {
        (Type::Func { proto: a, .. }, Type::Func { proto: b, .. })
        | (Type::Var { ty: a, .. }, Type::Var { ty: b, .. })
        | (Type::Ptr { target: a }, Type::Ptr { target: b }) => Step::If(vec![part(a, b)]),
        (Type::Void, Type::Void) => Step::Same,
        (
            Type::Int {
                size: a,
                signed: x,
                bool: p,
                ..
            },
            Type::Int {
                size: b,
                signed: y,
                bool: q,
                ..
            },
        ) => only((a, x, p) == (b, y, q)),
        (Type::Float { size: a, .. }, Type::Float { size: b, .. }) => only(a == b && names),
        (
            Type::Enum {
                size: a, values: x, ..
            },
            Type::Enum {
                size: b, values: y, ..
            },
        ) if a == b && names => enumerators(x, y),
        (
            Type::Struct {
                size: x,
                members: p,
                ..
            },
            Type::Struct {
                size: y,
                members: q,
                ..
            },
        ) if names => members(("struct", a), (*x, p), (*y, q)),
        (
            Type::Union {
                size: x,
                members: p,
                ..
            },
            Type::Union {
                size: y,
                members: q,
                ..
            },
        ) if names => members(("union", a), (*x, p), (*y, q)),
        (Type::Fwd { .. }, Type::Fwd { .. } | Type::Struct { .. } | Type::Union { .. })
        | (Type::Struct { .. } | Type::Union { .. }, Type::Fwd { .. }) => only(names),
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
        ) if x == y || *x == 0 || *y == 0 => {
            // `extern int x[];` leaves the size to the definition.
            Step::If(vec![part(a, b)])
        }
        (Type::FuncProto { ret: a, params: x }, Type::FuncProto { ret: b, params: y })
            if x.len() == y.len() =>
        {
            let params = x.iter().zip(y).map(|((_, a), (_, b))| part(a, b));
            Step::If([part(a, b)].into_iter().chain(params).collect())
        }
        _ => Step::Differ,
    }
}

/// Enumerators of two enums of one name and size. One without any is only declared.
fn enumerators(a: &[(String, i64)], b: &[(String, i64)]) -> Step {
    if a.is_empty() || b.is_empty() || a == b {
        return Step::Same;
    }
    let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let text = |values: &[(String, i64)]| match values.get(at) {
        Some((name, value)) => format!("enumerator {at} is `{name} = {value}`"),
        None => format!("it has {at} enumerators"),
    };
    Step::Unlike(Unlike::new(text(a), text(b)))
}

/// Members of two structs or unions of one name, given with the size of the whole in bytes.
fn members(
    (keyword, whole): (&str, &Type),
    (a_size, a): (u32, &[Member]),
    (b_size, b): (u32, &[Member]),
) -> Step {
    let whole = format!("`{keyword} {}`", whole.name().unwrap_or("{…}"));
    if a_size != b_size {
        let text = |size: u32| format!("{whole} has {size} bytes");
        return Step::Unlike(Unlike::new(text(a_size), text(b_size)));
    }
    let place = |member: &Member| (member.name.clone(), member.bit_offset, member.bit_size);
    let at = a
        .iter()
        .zip(b)
        .take_while(|(a, b)| place(a) == place(b))
        .count();
    if at < a.len() || at < b.len() {
        let text = |members: &[Member]| match members.get(at) {
            Some(member) if member.bit_size > 0 => format!(
                "member {at} of {whole} is `{}` at bit {}, {} bits wide",
                member.name, member.bit_offset, member.bit_size
            ),
            Some(member) => format!(
                "member {at} of {whole} is `{}` at bit {}",
                member.name, member.bit_offset
            ),
            None => format!("{whole} has {at} members"),
        };
        return Step::Unlike(Unlike::new(text(a), text(b)));
    }
    let parts = a.iter().zip(b).map(|(a, b)| Pair {
        a: a.ty,
        b: b.ty,
        member: Some(format!("member `{}` of {whole}", a.name)),
    });
    Step::If(parts.collect())
}
