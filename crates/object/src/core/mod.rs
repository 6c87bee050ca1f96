//! CO-RE relocations: fields, sizes and enumerators that are adapted to the types of a target when
//! a program is loaded.
//!
//! Without a target the types are those of the object itself, by identity: a GPU has no types of
//! its own, so what the author declared is what there is, and everything that the object declares
//! exists. With one ([`crate::LoadOptions::target_btf`]) the rules are those that libbpf documents:
//! candidates by name and kind, flavors (`task___old`) ignored, anonymous structs and unions looked
//! through, ambiguity refused.
//!
//! What the target does not have becomes a call of [`UNRESOLVED_CALL`], as in libbpf: code behind
//! `bpf_core_field_exists` never gets there, and a verifier that does get there can say which field
//! is missing.

mod candidates;
mod compat;
mod patch;
mod spec;
mod value;

use std::collections::BTreeMap;

pub use patch::UNRESOLVED_CALL;

use crate::btf::Btf;
use crate::btf_ext::{BtfExt, CoreRecord};
use crate::core_error::CoreError;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::functions::Function;
use crate::options::LoadOptions;
use patch::{Patch, Poison, Resolution};
use spec::{Kind, Spec};
use value::{Refusal, Value};

/// What became of the functions of an object.
#[derive(Default)]
pub(crate) struct Resolved {
    /// Why an instruction was poisoned, by section and slot within it.
    pub(crate) unresolved: BTreeMap<(usize, u32), String>,
    /// What is wrong with the relocations of a function, by section and its first slot. It matters
    /// only if a program reaches the function.
    pub(crate) faults: BTreeMap<(usize, u32), ObjectError>,
}

/// Adapts every function to the target, or to the object's own types.
pub(crate) fn apply(
    elf: &Elf<'_>,
    ext: &BtfExt,
    local: &Btf,
    options: &LoadOptions<'_>,
    functions: &mut BTreeMap<(usize, u32), Function>,
) -> Resolved {
    let mut all = Resolved::default();
    for (name, records) in &ext.sections {
        let Some(section) = elf.section_index(name) else {
            continue;
        };
        for record in &records.core {
            let slot = record.offset / 8;
            let before = functions
                .range_mut((section, 0)..=(section, slot))
                .next_back();
            let Some((&(_, start), function)) = before else {
                continue;
            };
            if (slot - start) as usize >= function.slots.len() {
                continue;
            }
            let slots = &mut function.slots[(slot - start) as usize..];
            let patched = resolve(local, options, record)
                .and_then(|resolution| patch::apply(slots, &resolution));
            match patched {
                Ok(Patch::Done) => {}
                Ok(Patch::Poison(poison)) => {
                    let text = message(record, local, &poison);
                    if patch::poison(slots) {
                        all.unresolved.insert((section, slot + 1), text.clone());
                    }
                    all.unresolved.insert((section, slot), text);
                }
                Err(problem) => {
                    all.faults
                        .entry((section, start))
                        .or_insert_with(|| ObjectError::CoRe {
                            function: function.name.clone(),
                            slot: slot - start,
                            kind: record.kind_name(),
                            access: record.describe(local),
                            problem,
                        });
                }
            }
        }
    }
    all
}

fn resolve(
    local: &Btf,
    options: &LoadOptions<'_>,
    record: &CoreRecord,
) -> Result<Resolution, CoreError> {
    let kind = record.kind;
    let kind = Kind::from_number(kind).ok_or(CoreError::Kind { kind })?;
    let spec = Spec::parse(local, record, kind)?;
    let before = match value::of(kind, &spec, Some(&spec)) {
        Ok(value) => value,
        Err(Refusal::Missing) => return Err(CoreError::Nothing),
        Err(Refusal::Bad(problem)) => return Err(problem),
    };
    if let Some(why) = options.no_target.filter(|_| kind != Kind::TypeIdLocal) {
        let why = why.to_owned();
        return Err(CoreError::NoTarget { why });
    }
    let target = options.target_btf;
    let Some(target) = target.filter(|_| kind != Kind::TypeIdLocal) else {
        return Ok(Resolution {
            before,
            after: Ok(before),
            resizable: true,
        });
    };
    let name = spec.root_name();
    if name.is_empty() {
        return Err(CoreError::Unnamed);
    }
    let candidates = candidates::of(&spec, target);
    let mut found: Option<(Result<Value, Poison>, Spec<'_>)> = None;
    for candidate in &candidates {
        let Some(matched) = spec.matched(kind, target, *candidate)? else {
            continue;
        };
        let after = match value::of(kind, &spec, Some(&matched)) {
            Ok(value) => Ok(value),
            Err(Refusal::Missing) => Err(Poison::Missing { ty: true }),
            Err(Refusal::Bad(problem)) => return Err(problem),
        };
        if let Some((other, place)) = &found
            && (*other != after || place.bit_offset != matched.bit_offset)
        {
            let name = name.to_owned();
            return Err(CoreError::Ambiguous { name });
        }
        found = Some((after, matched));
    }
    let (after, resizable) = match found {
        Some((after, matched)) => {
            let resizable = after.is_ok_and(|after| resizable(&spec, &before, &matched, &after));
            (after, resizable)
        }
        // Nothing fits: a question whether it exists has an answer, everything else has none.
        None => match value::of(kind, &spec, None) {
            Ok(value) => (Ok(value), true),
            Err(Refusal::Missing) => (
                Err(Poison::Missing {
                    ty: candidates.is_empty(),
                }),
                true,
            ),
            Err(Refusal::Bad(problem)) => return Err(problem),
        },
    };
    Ok(Resolution {
        before,
        after,
        resizable,
    })
}

/// A wider or narrower load gives the same number for pointers and unsigned integers only.
fn resizable(local: &Spec<'_>, before: &Value, target: &Spec<'_>, after: &Value) -> bool {
    use crate::btf::Type;
    let of = |spec: &Spec<'_>, value: &Value| {
        let (_, ty) = spec.btf.strip(value.field?.ty)?;
        Some(match ty {
            Type::Ptr { .. } => 1,
            Type::Int { signed: false, .. } => 2,
            _ => 0,
        })
    };
    match (before.field, after.field) {
        (Some(a), Some(b)) if a.size != b.size => {
            matches!((of(local, before), of(target, after)), (Some(a), Some(b)) if a == b && a != 0)
        }
        _ => true,
    }
}

fn message(record: &CoreRecord, local: &Btf, poison: &Poison) -> String {
    let access = record.describe(local);
    let what = match record.kind {
        0..=5 => "field",
        10 | 11 => "enumerator",
        _ => "type",
    };
    match poison {
        Poison::Missing { ty: true } if what != "type" => format!(
            "CO-RE: the target has no type `{}`, so no {what} `{access}`",
            local.type_name(record.ty)
        ),
        Poison::Missing { .. } if what == "type" => {
            format!("CO-RE: type `{access}` does not exist in the target")
        }
        Poison::Missing { .. } => {
            format!("CO-RE: {what} `{access}` does not exist in the target type")
        }
        Poison::Resized { before, after } => format!(
            "CO-RE: field `{access}` has {after} bytes in the target instead of {before}, and only pointers and unsigned \
             integers can be read with another width"
        ),
        Poison::TooFar { value } => format!(
            "CO-RE: field `{access}` is at byte {value} of the target type, too far for the offset of a load"
        ),
    }
}
