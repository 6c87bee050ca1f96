//! Definitions of maps as types: the reverse of [`crate::map_defs`], for maps of which only the
//! attributes are known.

use crate::btf::{Btf, Member, Type, TypeId};
use crate::btf_write::{Strings, each_reference};
use crate::link::loaded::{AssembleError, LoadedMap};

/// Bytes of a definition in `.maps` in front of its `values`: eight for each attribute, of which
/// there are at most eight.
pub(super) const DEFINITION: u32 = 64;

/// The types of all objects one after the other, and those that define the maps.
pub(super) struct Types {
    pub(super) read: Vec<Btf>,
    /// What to add to the numbers of each.
    base: Vec<u32>,
    /// From type 1.
    pub(super) all: Vec<Type>,
    pub(super) strings: Strings,
    int: Option<TypeId>,
}

impl Types {
    pub(super) fn read(sections: &[&[u8]]) -> Result<Types, AssembleError> {
        let mut types = Types {
            read: Vec::new(),
            base: Vec::new(),
            all: Vec::new(),
            strings: Strings::new(),
            int: None,
        };
        for (index, bytes) in sections.iter().enumerate() {
            let btf = Btf::parse(bytes).map_err(|error| AssembleError::Types { index, error })?;
            let base = types.all.len() as u32;
            for (_, ty) in btf.types().skip(1) {
                let mut ty = ty.clone();
                each_reference(&mut ty, &mut |id| {
                    if *id != TypeId::VOID {
                        id.0 = id.0.saturating_add(base);
                    }
                });
                // The definitions that the loader was given say less than what it made of them.
                if let Type::DataSec { name, .. } = &mut ty
                    && is_kept(name)
                {
                    name.insert_str(0, "loaded");
                }
                types.all.push(ty);
            }
            types.base.push(base);
            types.read.push(btf);
        }
        Ok(types)
    }

    /// Adds a type and says its number.
    pub(super) fn add(&mut self, ty: Type) -> TypeId {
        self.all.push(ty);
        TypeId(self.all.len() as u32)
    }

    /// The number here of type `id` of object `index`.
    pub(super) fn here(&self, index: usize, id: TypeId) -> Option<TypeId> {
        let (btf, base) = (self.read.get(index)?, self.base.get(index)?);
        (id != TypeId::VOID && btf.type_by_id(id).is_some()).then(|| TypeId(id.0 + base))
    }

    /// Gives a data section's type the name of its section.
    pub(super) fn rename(&mut self, index: usize, id: TypeId, section: &str) {
        if let Some(id) = self.here(index, id)
            && let Type::DataSec { name, .. } = &mut self.all[id.0 as usize - 1]
        {
            section.clone_into(name);
        }
    }

    fn int(&mut self) -> TypeId {
        if let Some(int) = self.int {
            return int;
        }
        let int = self.add(Type::Int {
            name: "int".to_owned(),
            size: 4,
            bits: 32,
            signed: true,
            char: false,
            bool: false,
        });
        self.int = Some(int);
        int
    }

    /// `__uint(…, number)`.
    fn number(&mut self, number: u32) -> TypeId {
        let int = self.int();
        let target = self.add(Type::Array {
            element: int,
            index: int,
            count: number,
        });
        self.add(Type::Ptr { target })
    }

    /// The type of a definition in `.maps`, with this many `values`.
    pub(super) fn define(
        &mut self,
        def: &LoadedMap<'_>,
        values: u32,
    ) -> Result<TypeId, AssembleError> {
        let mut members: Vec<(&str, TypeId)> = Vec::new();
        for (name, value) in [
            ("type", def.map_type),
            ("max_entries", def.max_entries),
            ("map_flags", def.flags),
        ] {
            let ty = self.number(value);
            members.push((name, ty));
        }
        if def.extra != 0 {
            let ty = self.add(Type::Enum {
                name: String::new(),
                size: 8,
                signed: false,
                values: vec![("map_extra".to_owned(), def.extra as i64)],
            });
            members.push(("map_extra", ty));
        }
        for (typed, sized, id, size) in [
            ("key", "key_size", def.key_type, def.key_size),
            ("value", "value_size", def.value_type, def.value_size),
        ] {
            let known = self
                .read
                .get(def.types)
                .and_then(|btf| btf.resolve_size(id));
            let typed_here = self.here(def.types, id);
            match typed_here.filter(|_| known == Some(u64::from(size)) && def.inner.is_none()) {
                Some(target) => {
                    let ty = self.add(Type::Ptr { target });
                    members.push((typed, ty));
                }
                None => {
                    let ty = self.number(size);
                    members.push((sized, ty));
                }
            }
        }
        let mut members: Vec<Member> = members
            .into_iter()
            .zip(0..)
            .map(|((name, ty), at)| member(name, ty, at * 64))
            .collect();
        if let Some(inner) = &def.inner {
            if inner.inner.is_some() {
                return Err(AssembleError::Map {
                    map: def.name.to_owned(),
                    what: "maps of maps of maps do not exist",
                });
            }
            let target = self.define(inner, 0)?;
            let (element, index) = (self.add(Type::Ptr { target }), self.int());
            let ty = self.add(Type::Array {
                element,
                index,
                count: values,
            });
            members.push(member("values", ty, DEFINITION * 8));
        }
        Ok(self.add(Type::Struct {
            name: String::new(),
            size: DEFINITION + values * 8,
            members,
        }))
    }
}

fn member(name: &str, ty: TypeId, bit_offset: u32) -> Member {
    Member {
        name: name.to_owned(),
        ty,
        bit_offset,
        bit_size: 0,
    }
}

/// Sections whose types mean something here; those that were loaded step aside.
fn is_kept(name: &str) -> bool {
    [".maps", ".data", ".rodata", ".bss"]
        .iter()
        .any(|base| name.starts_with(base))
}
