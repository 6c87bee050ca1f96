//! The number that a relocation asks for, in the object and in the target.

use crate::btf::{Type, TypeId};
use crate::core::spec::{Kind, Spec};
use crate::core_error::CoreError;

/// What a relocation comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) number: u64,
    /// Of an ordinary field whose offset is asked for: what a load of it reads.
    pub(super) field: Option<Field>,
    /// Whether the instruction must hold the number that the object's own types give. Not for bit
    /// fields, which compilers may read in more than one way, and type numbers, which the linker
    /// moves.
    pub(super) exact: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) size: u64,
    pub(super) ty: TypeId,
}

/// Two fields agree if they are equally wide: numbers of types say nothing across candidates.
impl PartialEq for Field {
    fn eq(&self, other: &Field) -> bool {
        self.size == other.size
    }
}

impl Eq for Field {}

/// Why there is no number.
pub(super) enum Refusal {
    /// The target does not have it.
    Missing,
    /// The relocation asks what has no answer.
    Bad(CoreError),
}

/// The answer to `kind` in `found`, which is what `local` became in the target, if anything.
pub(super) fn of(kind: Kind, local: &Spec<'_>, found: Option<&Spec<'_>>) -> Result<Value, Refusal> {
    let plain = |number: u64| Value {
        number,
        field: None,
        exact: true,
    };
    match kind {
        Kind::FieldExists | Kind::TypeExists | Kind::TypeMatches | Kind::EnumeratorExists => {
            Ok(plain(u64::from(found.is_some())))
        }
        Kind::TypeIdLocal => Ok(Value {
            exact: false,
            ..plain(u64::from(local.root.0))
        }),
        Kind::TypeIdTarget => Ok(Value {
            exact: false,
            ..plain(u64::from(found.ok_or(Refusal::Missing)?.root.0))
        }),
        Kind::TypeSize => {
            let found = found.ok_or(Refusal::Missing)?;
            let size = found.btf.resolve_size(found.root);
            Ok(plain(size.ok_or(Refusal::Bad(CoreError::TypeWithoutSize))?))
        }
        Kind::EnumeratorValue => {
            let found = found.ok_or(Refusal::Missing)?;
            let step = found.steps.first().ok_or(Refusal::Missing)?;
            let Some(Type::Enum { values, .. }) = found.btf.type_by_id(step.ty) else {
                return Err(Refusal::Missing);
            };
            let (_, value) = values.get(step.index as usize).ok_or(Refusal::Missing)?;
            Ok(plain(*value as u64))
        }
        Kind::FieldOffset
        | Kind::FieldSize
        | Kind::FieldSigned
        | Kind::FieldLeftShift
        | Kind::FieldRightShift => field(kind, found.ok_or(Refusal::Missing)?),
    }
}

fn field(kind: Kind, spec: &Spec<'_>) -> Result<Value, Refusal> {
    let bad = Refusal::Bad;
    let no_size = || bad(CoreError::FieldWithoutSize);
    let step = spec.steps.last().ok_or_else(|| bad(CoreError::NoPath))?;
    if step.name.is_none() {
        let size = || spec.btf.resolve_size(step.ty).ok_or_else(no_size);
        return match kind {
            Kind::FieldOffset => Ok(Value {
                number: spec.bit_offset / 8,
                field: spec
                    .btf
                    .resolve_size(step.ty)
                    .map(|size| Field { size, ty: step.ty }),
                exact: true,
            }),
            Kind::FieldSize => Ok(Value {
                number: size()?,
                field: None,
                exact: true,
            }),
            _ => Err(bad(CoreError::Element)),
        };
    }
    let Some(Type::Struct { members, .. } | Type::Union { members, .. }) =
        spec.btf.type_by_id(step.ty)
    else {
        return Err(bad(CoreError::NoMember));
    };
    let member = members
        .get(step.index as usize)
        .ok_or_else(|| bad(CoreError::NoMember))?;
    let stored = || spec.btf.strip(member.ty).map(|(_, ty)| ty);
    let bits = u64::from(member.bit_size);
    let (bytes, offset, bits) = if bits > 0 {
        let Some(Type::Int { size, .. } | Type::Enum { size, .. }) = stored() else {
            return Err(bad(CoreError::BitFieldOfWhat));
        };
        bit_field(spec.bit_offset, bits, u64::from(*size))
            .ok_or_else(|| bad(CoreError::WideBitField))?
    } else {
        // Pointers, sizes and existence of arrays without elements included.
        let size = spec.btf.resolve_size(member.ty).ok_or_else(no_size)?;
        (size, spec.bit_offset / 8, size.saturating_mul(8))
    };
    let ordinary = member.bit_size == 0;
    Ok(match kind {
        Kind::FieldOffset => Value {
            number: offset,
            field: ordinary.then_some(Field {
                size: bytes,
                ty: member.ty,
            }),
            exact: ordinary,
        },
        Kind::FieldSize => Value {
            number: bytes,
            field: None,
            exact: ordinary,
        },
        Kind::FieldSigned => {
            let signed = matches!(
                stored(),
                Some(Type::Int { signed: true, .. } | Type::Enum { signed: true, .. })
            );
            Value {
                number: u64::from(signed),
                field: None,
                exact: true,
            }
        }
        // The field's top bit goes to bit 63, then its low bit to bit 0.
        Kind::FieldLeftShift => {
            let end = (spec.bit_offset + bits).saturating_sub(offset * 8);
            Value {
                number: 64u64
                    .checked_sub(end)
                    .ok_or_else(|| bad(CoreError::WideShift))?,
                field: None,
                exact: ordinary,
            }
        }
        _ => Value {
            number: 64u64
                .checked_sub(bits)
                .ok_or_else(|| bad(CoreError::WideShift))?,
            field: None,
            exact: true,
        },
    })
}

/// Size, offset in bytes and width in bits of the load that reads a bit field: its storage unit, or
/// a wider one where the field crosses units.
fn bit_field(bit_offset: u64, bits: u64, unit: u64) -> Option<(u64, u64, u64)> {
    let mut bytes = unit;
    while bytes.is_power_of_two() && bytes <= 8 {
        let offset = bit_offset / 8 / bytes * bytes;
        if bit_offset + bits <= (offset + bytes) * 8 {
            return Some((bytes, offset, bits));
        }
        bytes *= 2;
    }
    None
}
