//! What a relocation is about: a type and a path of members and indices into it, in the object and
//! in the target.
//!
//! The compiler writes the path as numbers (`0:1:2`): first an index of the pointer itself, then
//! members and array elements, anonymous structs and unions included. What is compared with the
//! target are the names on it.

use crate::btf::{Btf, Member, Type, TypeId};
use crate::btf_ext::CoreRecord;
use crate::core::compat;
use crate::core_error::CoreError;
use crate::flavor::essential;

/// Deepest path, in the object and in the target.
const MAX_PATH: usize = 64;

/// What is asked of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    FieldOffset,
    FieldSize,
    FieldExists,
    FieldSigned,
    FieldLeftShift,
    FieldRightShift,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    EnumeratorExists,
    EnumeratorValue,
    TypeMatches,
}

impl Kind {
    /// Numbers are those of `enum bpf_core_relo_kind`.
    pub(super) fn from_number(number: u32) -> Option<Kind> {
        Some(match number {
            0 => Kind::FieldOffset,
            1 => Kind::FieldSize,
            2 => Kind::FieldExists,
            3 => Kind::FieldSigned,
            4 => Kind::FieldLeftShift,
            5 => Kind::FieldRightShift,
            6 => Kind::TypeIdLocal,
            7 => Kind::TypeIdTarget,
            8 => Kind::TypeExists,
            9 => Kind::TypeSize,
            10 => Kind::EnumeratorExists,
            11 => Kind::EnumeratorValue,
            12 => Kind::TypeMatches,
            _ => return None,
        })
    }

    fn about(self) -> About {
        match self {
            Kind::FieldOffset
            | Kind::FieldSize
            | Kind::FieldExists
            | Kind::FieldSigned
            | Kind::FieldLeftShift
            | Kind::FieldRightShift => About::Field,
            Kind::TypeIdLocal
            | Kind::TypeIdTarget
            | Kind::TypeExists
            | Kind::TypeSize
            | Kind::TypeMatches => About::Type,
            Kind::EnumeratorExists | Kind::EnumeratorValue => About::Enumerator,
        }
    }
}

enum About {
    Field,
    Type,
    Enumerator,
}

/// One step that matters for the comparison: a named member, an index, or an enumerator.
#[derive(Clone, Copy)]
pub(super) struct Step<'b> {
    /// The struct or union of a member, the type of an element, the enumeration.
    pub(super) ty: TypeId,
    pub(super) index: u32,
    /// `None` for an index.
    pub(super) name: Option<&'b str>,
}

/// A path in one set of types.
pub(super) struct Spec<'b> {
    pub(super) btf: &'b Btf,
    pub(super) root: TypeId,
    pub(super) steps: Vec<Step<'b>>,
    /// From the start of the root type.
    pub(super) bit_offset: u64,
}

impl<'b> Spec<'b> {
    pub(super) fn parse(btf: &'b Btf, record: &CoreRecord, kind: Kind) -> Result<Self, CoreError> {
        let text = btf.string(record.access)?;
        let bad = || CoreError::Path {
            path: text.to_owned(),
        };
        let path: Vec<u32> = text
            .split(':')
            .map(|part| part.parse().map_err(|_| bad()))
            .collect::<Result<_, _>>()?;
        let mut spec = Spec {
            btf,
            root: record.ty,
            steps: Vec::new(),
            bit_offset: 0,
        };
        btf.type_by_id(record.ty).ok_or_else(bad)?;
        match kind.about() {
            About::Type if path == [0] => {}
            About::Type => return Err(bad()),
            About::Enumerator => {
                let Some((ty, Type::Enum { values, .. })) = btf.strip(record.ty) else {
                    return Err(bad());
                };
                let [index] = path[..] else {
                    return Err(bad());
                };
                let (name, _) = values.get(index as usize).ok_or_else(bad)?;
                let name = Some(name.as_str());
                spec.steps.push(Step { ty, index, name });
            }
            About::Field => spec.parse_field(&path).ok_or_else(bad)?,
        }
        Ok(spec)
    }

    fn parse_field(&mut self, path: &[u32]) -> Option<()> {
        let (&first, rest) = path.split_first()?;
        if rest.len() > MAX_PATH {
            return None;
        }
        self.index(self.root, first)?;
        let mut at = self.root;
        for &index in rest {
            let (ty, shape) = self.btf.strip(at)?;
            match shape {
                Type::Struct { members, .. } | Type::Union { members, .. } => {
                    let member = members.get(index as usize)?;
                    self.bit_offset += u64::from(member.bit_offset);
                    if !member.name.is_empty() {
                        let name = Some(member.name.as_str());
                        self.steps.push(Step { ty, index, name });
                    }
                    at = member.ty;
                }
                Type::Array { element, count, .. } => {
                    if index >= *count && !self.flexible(*count) {
                        return None;
                    }
                    at = *element;
                    self.index(at, index)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Appends element `index` of elements of type `element`.
    fn index(&mut self, element: TypeId, index: u32) -> Option<()> {
        let (ty, _) = self.btf.strip(element)?;
        if index > 0 {
            let bits = self.btf.resolve_size(ty)?.checked_mul(8)?;
            let offset = bits.checked_mul(u64::from(index))?;
            self.bit_offset = self.bit_offset.checked_add(offset)?;
        }
        let name = None;
        self.steps.push(Step { ty, index, name });
        Some(())
    }

    /// Whether the array that the last step leads to is a flexible one: the last member of a
    /// struct, of no elements.
    fn flexible(&self, count: u32) -> bool {
        let Some(step) = self.steps.last().filter(|step| step.name.is_some()) else {
            return false;
        };
        count == 0
            && matches!(self.btf.type_by_id(step.ty), Some(Type::Struct { members, .. })
                if members.len() == step.index as usize + 1)
    }

    /// The name of the root type; empty if it has none.
    pub(super) fn root_name(&self) -> &'b str {
        self.btf
            .type_by_id(self.root)
            .and_then(Type::name)
            .unwrap_or_default()
    }

    /// The same path in `target`, starting at `candidate`. `None` if it is not there.
    pub(super) fn matched<'t>(
        &self,
        kind: Kind,
        target: &'t Btf,
        candidate: TypeId,
    ) -> Result<Option<Spec<'t>>, CoreError> {
        let mut spec = Spec {
            btf: target,
            root: candidate,
            steps: Vec::new(),
            bit_offset: 0,
        };
        let fits = match kind.about() {
            About::Type if kind == Kind::TypeMatches => {
                compat::types_match(self.btf, self.root, target, candidate)
            }
            About::Type => compat::types(self.btf, self.root, target, candidate),
            About::Enumerator => spec.match_enumerator(self).is_some(),
            About::Field => {
                let mut at = Some(candidate);
                for step in &self.steps {
                    at = match at {
                        Some(at) if step.name.is_some() => spec.match_member(self.btf, step, at)?,
                        Some(at) => spec.match_index(step, at),
                        None => break,
                    };
                }
                at.is_some()
            }
        };
        Ok(fits.then_some(spec))
    }

    fn match_enumerator(&mut self, local: &Spec<'_>) -> Option<()> {
        let wanted = essential(local.steps.first()?.name?);
        let (ty, Type::Enum { values, .. }) = self.btf.strip(self.root)? else {
            return None;
        };
        let index = values
            .iter()
            .position(|(name, _)| essential(name) == wanted)?;
        let name = Some(values[index].0.as_str());
        let index = index as u32;
        self.steps.push(Step { ty, index, name });
        Some(())
    }

    /// An index: of the pointer itself if it is the first step, else of the array `at`. Returns the
    /// element's type.
    fn match_index(&mut self, local: &Step<'_>, at: TypeId) -> Option<TypeId> {
        let element = if self.steps.is_empty() {
            at
        } else {
            let (_, Type::Array { element, count, .. }) = self.btf.strip(at)? else {
                return None;
            };
            if local.index >= *count && !self.flexible(*count) {
                return None;
            }
            *element
        };
        self.index(element, local.index)?;
        Some(element)
    }

    /// The member of `at` with the name of the local one, also inside anonymous members. Returns
    /// its type.
    fn match_member(
        &mut self,
        local: &Btf,
        step: &Step<'_>,
        at: TypeId,
    ) -> Result<Option<TypeId>, CoreError> {
        let (Some(Type::Struct { members, .. } | Type::Union { members, .. }), Some(name)) =
            (local.type_by_id(step.ty), step.name)
        else {
            return Ok(None);
        };
        let Some(member) = members.get(step.index as usize) else {
            return Ok(None);
        };
        let mut budget = 1 << 16;
        let found = self.search(local, member, name, at, 0, &mut budget);
        if budget == 0 {
            return Err(CoreError::Endless);
        }
        Ok(found)
    }

    fn search(
        &mut self,
        local: &Btf,
        wanted: &Member,
        name: &str,
        at: TypeId,
        depth: usize,
        budget: &mut u32,
    ) -> Option<TypeId> {
        let btf = self.btf;
        let (ty, Type::Struct { members, .. } | Type::Union { members, .. }) = btf.strip(at)?
        else {
            return None;
        };
        if depth > MAX_PATH {
            return None;
        }
        for (index, member) in (0..).zip(members) {
            *budget = budget.checked_sub(1)?;
            let before = self.bit_offset;
            self.bit_offset += u64::from(member.bit_offset);
            if member.name.is_empty() {
                if let Some(found) = self.search(local, wanted, name, member.ty, depth + 1, budget)
                {
                    return Some(found);
                }
            } else if member.name == name {
                let name = Some(member.name.as_str());
                self.steps.push(Step { ty, index, name });
                let fits = compat::fields(local, wanted.ty, btf, member.ty);
                return fits.then_some(member.ty);
            }
            self.bit_offset = before;
        }
        None
    }
}
