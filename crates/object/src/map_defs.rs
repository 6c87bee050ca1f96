//! Maps declared in `.maps`: their attributes are encoded in the type of a variable that has no
//! contents.
//!
//! `__uint(name, n)` is a pointer to an array of `n` elements, `__ulong(name, n)` an enumerator
//! with that value, `__type(name, t)` a pointer to `t`, and `__array(values, t)` an array of
//! pointers to `t`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::btf::{Btf, Linkage, Member, Type, TypeId};
use crate::elf::{Elf, Place, R_BPF_64_ABS64, Relocation};
use crate::error::{Errors, ObjectError};
use crate::object::{InitialEntry, InitialValue, MapDef, MapKind};

/// The declared maps and where they stand.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) maps: Vec<MapDef>,
    /// Section index of `.maps`.
    pub(crate) section: Option<usize>,
    /// Byte offset in `.maps` of each map, ascending.
    pub(crate) offsets: Vec<u64>,
}

impl Declared {
    /// The map that starts at `offset` of `.maps`.
    pub(crate) fn at(&self, offset: u64) -> Option<u32> {
        self.offsets
            .binary_search(&offset)
            .ok()
            .map(|index| index as u32)
    }
}

/// The maps of `.maps`. `errors` gets what is wrong with others, which are left out.
pub(crate) fn read(elf: &Elf<'_>, btf: Option<&Btf>, errors: &mut Errors) -> Declared {
    let Some(section) = elf.section_index(".maps") else {
        return Declared::default();
    };
    let mut declared = Declared {
        section: Some(section),
        ..Declared::default()
    };
    let Some(btf) = btf else {
        errors.push(ObjectError::MapsWithoutBtf);
        return declared;
    };
    let (mut values_at, mut whole) = (Vec::new(), true);
    // What is filled into such a one does not matter either.
    let mut hidden: Vec<Range<u64>> = Vec::new();
    for var in btf.data_section(".maps").unwrap_or_default() {
        let Some(Type::Var { name, ty, linkage }) = btf.type_by_id(var.ty) else {
            errors.push(ObjectError::Damaged {
                detail: format!("type {} in `.maps` is not a variable", var.ty),
            });
            return declared;
        };
        // Defined in another object, which is at fault only if code refers to it.
        let offset = u64::from(var.offset);
        if *linkage == Linkage::Extern {
            hidden.push(offset..offset + u64::from(var.size));
            continue;
        }
        if declared.offsets.last().is_some_and(|last| *last >= offset) {
            errors.push(ObjectError::Damaged {
                detail: format!("map `{name}` and another stand at the same place"),
            });
            return declared;
        }
        let Some(map) = errors.good(define(btf, name, *ty)) else {
            whole = false;
            continue;
        };
        declared.offsets.push(offset);
        values_at.push(values_offset(btf, *ty));
        declared.maps.push(map);
    }
    // An initial value may be one of those that are left out.
    if !whole {
        return declared;
    }
    let values = (elf.sections[section].relocations.iter())
        .filter(|value| !hidden.iter().any(|place| place.contains(&value.offset)));
    let initial = read_initial(elf, section, values, &mut declared, &values_at);
    errors.good(initial);
    declared
}

/// The definition of map `map`, whose variable has type `ty`.
pub(crate) fn define(btf: &Btf, map: &str, ty: TypeId) -> Result<MapDef, ObjectError> {
    Definition { btf, map }.parse(ty)
}

struct Definition<'a> {
    btf: &'a Btf,
    map: &'a str,
}

impl Definition<'_> {
    fn fail(&self, problem: impl Into<String>) -> ObjectError {
        ObjectError::MapDef {
            map: self.map.to_owned(),
            problem: problem.into(),
        }
    }

    fn parse(&self, ty: TypeId) -> Result<MapDef, ObjectError> {
        let Some((_, Type::Struct { members, .. })) = self.btf.strip(ty) else {
            return Err(self
                .fail("its type is not a struct; declare it as `struct { __uint(type, …); … }`"));
        };
        let mut def = MapDef {
            name: self.map.to_owned(),
            map_type: 0,
            key_size: 0,
            value_size: 0,
            max_entries: 0,
            flags: 0,
            kind: MapKind::User,
            extra: BTreeMap::new(),
            key_type: None,
            value_type: None,
            inner: None,
            initial: Vec::new(),
        };
        let mut has_type = false;
        for member in members {
            match member.name.as_str() {
                "type" => {
                    def.map_type = self.small(member)?;
                    has_type = true;
                }
                "max_entries" => def.max_entries = self.small(member)?,
                "map_flags" => def.flags = self.small(member)?,
                "key_size" => {
                    def.key_size = self.agree("key", def.key_size, self.small(member)?)?
                }
                "value_size" => {
                    def.value_size = self.agree("value", def.value_size, self.small(member)?)?
                }
                "key" => {
                    let (ty, size) = self.sized(member)?;
                    def.key_size = self.agree("key", def.key_size, size)?;
                    def.key_type = Some(ty);
                }
                "value" => {
                    let (ty, size) = self.sized(member)?;
                    def.value_size = self.agree("value", def.value_size, size)?;
                    def.value_type = Some(ty);
                }
                "values" => self.values(member, &mut def)?,
                name => {
                    let value = self.number(member)?;
                    def.extra.insert(name.to_owned(), value);
                }
            }
        }
        if !has_type {
            return Err(self.fail("it has no type; write `__uint(type, BPF_MAP_TYPE_…)`"));
        }
        Ok(def)
    }

    fn agree(&self, what: &str, old: u32, new: u32) -> Result<u32, ObjectError> {
        if old != 0 && old != new {
            return Err(self.fail(format!(
                "its {what} has {old} bytes in one attribute and {new} in another"
            )));
        }
        Ok(new)
    }

    /// `__uint` or `__ulong`.
    fn number(&self, member: &Member) -> Result<u64, ObjectError> {
        match self.btf.strip(member.ty).map(|(_, ty)| ty) {
            Some(Type::Ptr { target }) => {
                if let Some((_, Type::Array { count, .. })) = self.btf.strip(*target) {
                    return Ok(u64::from(*count));
                }
            }
            Some(Type::Enum { values, .. }) => {
                if let [(_, value)] = values.as_slice() {
                    return Ok(*value as u64);
                }
            }
            _ => {}
        }
        Err(self.fail(format!(
            "attribute `{0}` is not a number; write `__uint({0}, …)`",
            member.name
        )))
    }

    fn small(&self, member: &Member) -> Result<u32, ObjectError> {
        let value = self.number(member)?;
        u32::try_from(value).map_err(|_| {
            self.fail(format!(
                "attribute `{}` is {value}, which is too large",
                member.name
            ))
        })
    }

    /// `__type`.
    fn sized(&self, member: &Member) -> Result<(TypeId, u32), ObjectError> {
        let Some((_, Type::Ptr { target })) = self.btf.strip(member.ty) else {
            return Err(self.fail(format!(
                "attribute `{0}` is not a type; write `__type({0}, …)`",
                member.name
            )));
        };
        let size = self
            .btf
            .resolve_size(*target)
            .and_then(|size| u32::try_from(size).ok());
        let size = size.ok_or_else(|| {
            let name = self.btf.type_name(*target);
            self.fail(format!(
                "the type `{name}` of its {} has no size; define it completely",
                member.name
            ))
        })?;
        Ok((*target, size))
    }

    /// `__array(values, …)`: of maps, or of functions for a program array.
    fn values(&self, member: &Member, def: &mut MapDef) -> Result<(), ObjectError> {
        let bad = || {
            self.fail(
                "`values` must be `__array(values, struct inner_map)` or an array of functions",
            )
        };
        let Some((_, Type::Array { element, .. })) = self.btf.strip(member.ty) else {
            return Err(bad());
        };
        let Some((_, Type::Ptr { target })) = self.btf.strip(*element) else {
            return Err(bad());
        };
        match self.btf.strip(*target).map(|(_, ty)| ty) {
            Some(Type::FuncProto { .. }) => {}
            Some(Type::Struct { members, .. }) => {
                if values_offset(self.btf, *target).is_some()
                    || members.iter().any(|member| member.name == "values")
                {
                    return Err(self.fail("maps of maps of maps do not exist"));
                }
                let name = format!("{}.inner", self.map);
                def.inner = Some(Box::new(
                    Definition {
                        btf: self.btf,
                        map: &name,
                    }
                    .parse(*target)?,
                ));
            }
            _ => return Err(bad()),
        }
        // Values are references, which the loader counts as 4 bytes.
        def.value_size = self.agree("value", def.value_size, 4)?;
        Ok(())
    }
}

/// Byte offset of `values` in a definition.
fn values_offset(btf: &Btf, ty: TypeId) -> Option<u64> {
    let (_, Type::Struct { members, .. }) = btf.strip(ty)? else {
        return None;
    };
    let member = members.iter().find(|member| member.name == "values")?;
    Some(u64::from(member.bit_offset / 8))
}

/// `.values = { [i] = &x }` is the only thing in `.maps` that the linker fills in.
fn read_initial<'r>(
    elf: &Elf<'_>,
    section: usize,
    values: impl Iterator<Item = &'r Relocation>,
    declared: &mut Declared,
    values_at: &[Option<u64>],
) -> Result<(), ObjectError> {
    for relocation in values {
        let symbol = &elf.symbols[relocation.symbol];
        let label = elf.symbol_label(symbol);
        let unknown = || ObjectError::Damaged {
            detail: format!(
                "byte {} of `.maps` refers to `{label}`, which is no initial value",
                relocation.offset
            ),
        };
        let map = declared
            .offsets
            .partition_point(|offset| *offset <= relocation.offset)
            .checked_sub(1);
        let map = map.ok_or_else(unknown)?;
        let start = values_at[map].ok_or_else(unknown)? + declared.offsets[map];
        let byte = relocation.offset.checked_sub(start).ok_or_else(unknown)?;
        let index = u32::try_from(byte / 8).map_err(|_| unknown())?;
        if byte % 8 != 0 || relocation.kind != R_BPF_64_ABS64 {
            return Err(unknown());
        }
        let value = match symbol.place {
            Place::Section(at) if at == section => {
                InitialValue::Map(declared.at(symbol.value).ok_or_else(unknown)?)
            }
            Place::Section(at) if elf.sections[at].executable && symbol.function => {
                InitialValue::Program(symbol.name.clone())
            }
            _ => return Err(unknown()),
        };
        declared.maps[map]
            .initial
            .push(InitialEntry { index, value });
    }
    Ok(())
}
