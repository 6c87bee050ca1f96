//! BTF, the type information of a BPF object: parsed once into plain values that answer questions.
//!
//! Maps are defined in it, events are printed by it, and refusals quote names from it. Every walk
//! is bounded, because the bytes come from a file that nobody checked: a cycle of typedefs is an
//! unknown size, not a hang. Format: the Linux documentation `bpf/btf.rst`.

use std::collections::BTreeMap;
use std::ops::Bound;

pub use crate::btf_types::{BtfError, Linkage, Member, SectionVar, Type, TypeId};

use crate::btf_write::{self, Strings, each_reference};
use crate::elf;
use crate::error::ObjectError;
use crate::read::Reader;

/// How many typedefs, qualifiers or array levels are followed before a type is taken for malformed.
const MAX_DEPTH: usize = 32;

/// The types of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    by_name: BTreeMap<String, Vec<TypeId>>,
}

impl Btf {
    /// Reads a `.BTF` section.
    ///
    /// # Errors
    /// [`BtfError`] if it is truncated, not version 1, big endian, or holds an unknown kind.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        Btf::default().followed_by(bytes)
    }

    /// These types and behind them those of a section that goes on from them, as the types of a
    /// module of Linux (`/sys/kernel/btf/MODULE`) do from the kernel's.
    ///
    /// # Errors
    /// As [`Btf::parse`].
    pub fn followed_by(&self, bytes: &[u8]) -> Result<Btf, BtfError> {
        let mut header = Reader::new(bytes, "the header");
        let magic = header.u16()?;
        if magic != 0xeb9f {
            return Err(BtfError::Magic { magic });
        }
        let version = header.u8()?;
        if version != 1 {
            return Err(BtfError::Version { version });
        }
        let _flags = header.u8()?;
        let header_len = header.u32()? as usize;
        let type_off = header.u32()? as usize;
        let type_len = header.u32()? as usize;
        let str_off = header.u32()? as usize;
        let str_len = header.u32()? as usize;
        let part = |off: usize, len: usize, what: &'static str| {
            header_len
                .checked_add(off)
                .and_then(|start| Some(start..start.checked_add(len)?))
                .and_then(|range| bytes.get(range))
                .ok_or(BtfError::Truncated {
                    at: bytes.len(),
                    what,
                })
        };
        let strings = part(str_off, str_len, "the string table")?;
        let mut types = Reader::new(part(type_off, type_len, "the types")?, "a type");
        let mut btf = self.clone();
        btf.strings.extend(strings);
        if btf.types.is_empty() {
            btf.types.push(Type::Void);
        }
        while !types.is_empty() {
            let ty = btf.parse_type(&mut types)?;
            btf.push(ty);
        }
        Ok(btf)
    }

    /// Types with numbers from 1.
    pub fn of_types(types: impl IntoIterator<Item = Type>) -> Btf {
        let mut btf = Btf {
            types: vec![Type::Void],
            ..Btf::default()
        };
        types.into_iter().for_each(|ty| btf.push(ty));
        btf
    }

    fn push(&mut self, ty: Type) {
        if let Some(name) = ty.name() {
            let id = TypeId(self.types.len() as u32);
            self.by_name.entry(name.to_owned()).or_default().push(id);
        }
        self.types.push(ty);
    }

    /// Takes in types of another object, with all that they refer to: what each of `roots` is
    /// called here. One that was taken in before is `known`, and is not taken in again.
    pub fn take_in(
        &mut self,
        other: &Btf,
        roots: &[TypeId],
        known: &mut BTreeMap<TypeId, TypeId>,
    ) -> Vec<TypeId> {
        if self.types.is_empty() {
            self.types.push(Type::Void);
        }
        known.insert(TypeId::VOID, TypeId::VOID);
        let mut left = roots.to_vec();
        let mut taken: Vec<Type> = Vec::new();
        while let Some(id) = left.pop() {
            // What refers to a type that there is not stays so: `void` has no size and no fields.
            let Some(ty) = other.type_by_id(id).filter(|_| !known.contains_key(&id)) else {
                continue;
            };
            let here = TypeId((self.types.len() + taken.len()) as u32);
            known.insert(id, here);
            let mut ty = ty.clone();
            each_reference(&mut ty, &mut |id| left.push(*id));
            taken.push(ty);
        }
        let here = |id: &TypeId| known.get(id).copied().unwrap_or(TypeId::VOID);
        for mut ty in taken {
            each_reference(&mut ty, &mut |id| *id = here(id));
            self.push(ty);
        }
        roots.iter().map(here).collect()
    }

    /// Reads types from a file: raw ones as in `/sys/kernel/btf/vmlinux`, or the `.BTF` section of
    /// a BPF object.
    ///
    /// # Errors
    /// [`ObjectError`]: neither of the two, damaged, or an object without types.
    pub fn read(bytes: &[u8]) -> Result<Btf, ObjectError> {
        let raw = |bytes: &[u8]| {
            Btf::parse(bytes).map_err(|error| ObjectError::Btf {
                section: ".BTF",
                error,
            })
        };
        if bytes.starts_with(&0xeb9fu16.to_le_bytes()) {
            return raw(bytes);
        }
        raw(elf::section_of_any(bytes, ".BTF")?.ok_or(ObjectError::NoBtf)?)
    }

    /// The types as a section again, which also has these texts; and where in it each of them
    /// stands. `None` if a type has more parts than the format can say.
    pub fn to_bytes(&self, texts: &[&str]) -> Option<(Vec<u8>, Vec<u32>)> {
        let mut strings = Strings::new();
        let places = texts.iter().map(|text| strings.add(text)).collect();
        let bytes = btf_write::section(self.types.get(1..).unwrap_or_default(), strings)?;
        Some((bytes, places))
    }

    /// The string at `offset` of the string table; `.BTF.ext` refers to it too.
    ///
    /// # Errors
    /// [`BtfError::String`] if there is none.
    pub fn string(&self, offset: u32) -> Result<&str, BtfError> {
        let bad = BtfError::String { offset };
        let rest = self.strings.get(offset as usize..).ok_or(bad.clone())?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(bad.clone())?;
        std::str::from_utf8(&rest[..end]).map_err(|_| bad)
    }

    /// The type with number `id`.
    pub fn type_by_id(&self, id: TypeId) -> Option<&Type> {
        self.types.get(id.0 as usize)
    }

    /// All types with their numbers, `void` first.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types
            .iter()
            .enumerate()
            .map(|(i, ty)| (TypeId(i as u32), ty))
    }

    /// Types called `name`: a struct, a typedef and a function may share one.
    pub fn find(&self, name: &str) -> impl Iterator<Item = (TypeId, &Type)> {
        let ids = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        ids.iter().map(|id| (*id, &self.types[id.0 as usize]))
    }

    /// Types whose name starts with `prefix`.
    pub(crate) fn find_with_prefix(
        &self,
        prefix: &str,
    ) -> impl Iterator<Item = (&str, TypeId, &Type)> {
        let names = self
            .by_name
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let names = names.take_while(move |(name, _)| name.starts_with(prefix));
        names.flat_map(move |(name, ids)| {
            ids.iter()
                .map(move |id| (name.as_str(), *id, &self.types[id.0 as usize]))
        })
    }

    /// The variables of data section `name` (`.bss`, `.maps`, …).
    pub fn data_section(&self, name: &str) -> Option<&[SectionVar]> {
        self.find(name).find_map(|(_, ty)| match ty {
            Type::DataSec { vars, .. } => Some(vars.as_slice()),
            _ => None,
        })
    }

    /// Follows typedefs, `const`, `volatile`, `restrict` and tags. `None` for a dangling or
    /// circular chain.
    pub fn strip(&self, id: TypeId) -> Option<(TypeId, &Type)> {
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            let ty = self.type_by_id(at)?;
            at = match ty {
                Type::Typedef { target, .. }
                | Type::Volatile { target }
                | Type::Const { target }
                | Type::Restrict { target }
                | Type::TypeTag { target, .. } => *target,
                _ => return Some((at, ty)),
            };
        }
        None
    }

    /// Size of a value of type `id` in bytes. `None` for types without one (`void`, functions,
    /// forward declarations) and for malformed chains.
    pub fn resolve_size(&self, id: TypeId) -> Option<u64> {
        let (mut id, mut factor) = (id, 1u64);
        for _ in 0..MAX_DEPTH {
            let (_, ty) = self.strip(id)?;
            let size = match ty {
                Type::Int { size, .. }
                | Type::Struct { size, .. }
                | Type::Union { size, .. }
                | Type::Enum { size, .. }
                | Type::Float { size, .. }
                | Type::DataSec { size, .. } => u64::from(*size),
                Type::Ptr { .. } => 8,
                Type::Array { element, count, .. } => {
                    factor = factor.checked_mul(u64::from(*count))?;
                    id = *element;
                    continue;
                }
                Type::Var { ty, .. } => {
                    id = *ty;
                    continue;
                }
                Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto { .. } => {
                    return None;
                }
                Type::Typedef { .. }
                | Type::Volatile { .. }
                | Type::Const { .. }
                | Type::Restrict { .. }
                | Type::TypeTag { .. }
                | Type::DeclTag { .. } => return None,
            };
            return factor.checked_mul(size);
        }
        None
    }

    /// Fills offsets and sizes of data section `section`, which the file leaves to the symbol
    /// table.
    pub(crate) fn place_vars(
        &mut self,
        section: &str,
        size: u32,
        offset_of: impl Fn(&str) -> Option<u32>,
    ) {
        let names: BTreeMap<u32, String> = self
            .types
            .iter()
            .enumerate()
            .filter_map(|(i, ty)| match ty {
                Type::Var { name, .. } => Some((i as u32, name.clone())),
                _ => None,
            })
            .collect();
        for ty in &mut self.types {
            let Type::DataSec {
                name,
                size: old,
                vars,
            } = ty
            else {
                continue;
            };
            if name != section {
                continue;
            }
            // A linker has filled them in already, and names of static variables are not unique any
            // more then.
            let inside = |var: &SectionVar| {
                let end = var.offset.checked_add(var.size);
                end.is_some_and(|end| end <= size)
            };
            if *old == size && vars.iter().all(inside) {
                vars.sort_by_key(|var| var.offset);
                continue;
            }
            *old = size;
            for var in vars.iter_mut() {
                if let Some(offset) = names.get(&var.ty.0).and_then(|name| offset_of(name)) {
                    var.offset = offset;
                }
            }
            vars.sort_by_key(|var| var.offset);
        }
    }

    pub(crate) fn parse_type(&self, r: &mut Reader<'_>) -> Result<Type, BtfError> {
        let name = self.string(r.u32()?)?.to_owned();
        let info = r.u32()?;
        let size_or_type = r.u32()?;
        let (vlen, flag) = (info & 0xffff, info >> 31 == 1);
        let (size, target) = (size_or_type, TypeId(size_or_type));
        Ok(match (info >> 24) & 0x1f {
            1 => {
                let data = r.u32()?;
                let encoding = (data >> 24) & 0xf;
                Type::Int {
                    name,
                    size,
                    bits: data as u8,
                    signed: encoding & 1 != 0,
                    char: encoding & 2 != 0,
                    bool: encoding & 4 != 0,
                }
            }
            2 => Type::Ptr { target },
            3 => Type::Array {
                element: TypeId(r.u32()?),
                index: TypeId(r.u32()?),
                count: r.u32()?,
            },
            4 => Type::Struct {
                name,
                size,
                members: self.parse_members(r, vlen, flag)?,
            },
            5 => Type::Union {
                name,
                size,
                members: self.parse_members(r, vlen, flag)?,
            },
            6 => {
                let mut values = Vec::new();
                for _ in 0..vlen {
                    let name = self.string(r.u32()?)?.to_owned();
                    let bits = r.u32()?;
                    values.push((
                        name,
                        if flag {
                            i64::from(bits as i32)
                        } else {
                            i64::from(bits)
                        },
                    ));
                }
                Type::Enum {
                    name,
                    size,
                    signed: flag,
                    values,
                }
            }
            7 => Type::Fwd { name, union: flag },
            8 => Type::Typedef { name, target },
            9 => Type::Volatile { target },
            10 => Type::Const { target },
            11 => Type::Restrict { target },
            12 => Type::Func {
                name,
                proto: target,
                linkage: linkage(vlen),
            },
            13 => {
                let mut params = Vec::new();
                for _ in 0..vlen {
                    params.push((self.string(r.u32()?)?.to_owned(), TypeId(r.u32()?)));
                }
                Type::FuncProto {
                    ret: target,
                    params,
                }
            }
            14 => Type::Var {
                name,
                ty: target,
                linkage: linkage(r.u32()?),
            },
            15 => {
                let mut vars = Vec::new();
                for _ in 0..vlen {
                    vars.push(SectionVar {
                        ty: TypeId(r.u32()?),
                        offset: r.u32()?,
                        size: r.u32()?,
                    });
                }
                Type::DataSec { name, size, vars }
            }
            16 => Type::Float { name, size },
            17 => {
                let component = r.u32()?;
                Type::DeclTag {
                    name,
                    target,
                    component: (component != u32::MAX).then_some(component),
                }
            }
            18 => Type::TypeTag { name, target },
            19 => {
                let mut values = Vec::new();
                for _ in 0..vlen {
                    let name = self.string(r.u32()?)?.to_owned();
                    let (low, high) = (r.u32()?, r.u32()?);
                    values.push((name, (u64::from(high) << 32 | u64::from(low)) as i64));
                }
                Type::Enum {
                    name,
                    size,
                    signed: flag,
                    values,
                }
            }
            kind => {
                return Err(BtfError::Kind {
                    id: TypeId(self.types.len() as u32),
                    kind,
                });
            }
        })
    }

    fn parse_members(
        &self,
        r: &mut Reader<'_>,
        count: u32,
        bit_fields: bool,
    ) -> Result<Vec<Member>, BtfError> {
        let mut members = Vec::new();
        for _ in 0..count {
            let name = self.string(r.u32()?)?.to_owned();
            let ty = TypeId(r.u32()?);
            let offset = r.u32()?;
            let (bit_offset, bit_size) = if bit_fields {
                (offset & 0xff_ffff, offset >> 24)
            } else {
                (offset, 0)
            };
            members.push(Member {
                name,
                ty,
                bit_offset,
                bit_size,
            });
        }
        Ok(members)
    }
}

fn linkage(number: u32) -> Linkage {
    match number {
        0 => Linkage::Static,
        2 => Linkage::Extern,
        _ => Linkage::Global,
    }
}
