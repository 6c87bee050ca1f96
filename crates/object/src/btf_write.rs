//! BTF back to bytes, for objects that are put together from several.
//!
//! The format is that of the Linux documentation `bpf/btf.rst`. What [`crate::btf`] reads as one
//! kind is written as the smaller of the two: an enumeration becomes `ENUM` if its values fit 32
//! bits, else `ENUM64`.

use std::collections::HashMap;

use crate::btf_types::{Linkage, Member, Type, TypeId};

const MAGIC: u16 = 0xeb9f;

/// A string table without repetitions; the empty string is at 0.
pub(crate) struct Strings {
    bytes: Vec<u8>,
    at: HashMap<String, u32>,
}

impl Strings {
    pub(crate) fn new() -> Strings {
        Strings {
            bytes: vec![0],
            at: HashMap::from([(String::new(), 0)]),
        }
    }

    /// Offset of `text`.
    pub(crate) fn add(&mut self, text: &str) -> u32 {
        if let Some(at) = self.at.get(text) {
            return *at;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        self.at.insert(text.to_owned(), at);
        at
    }

    /// Offset of `text`, which was added before; else of the empty string.
    pub(crate) fn offset(&self, text: &str) -> u32 {
        self.at.get(text).copied().unwrap_or(0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A `.BTF` section. `types` starts with type 1. `None` if a type has more parts than its header
/// can say (65,535).
pub(crate) fn section(types: &[Type], mut strings: Strings) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    for ty in types {
        write_type(ty, &mut strings, &mut body)?;
    }
    let mut out = Vec::new();
    out.extend(MAGIC.to_le_bytes());
    out.extend([1, 0]);
    let (types, texts) = (body.len() as u32, strings.bytes.len() as u32);
    put(&mut out, &[24, 0, types, types, texts]);
    out.extend(body);
    out.extend(strings.bytes);
    Some(out)
}

pub(crate) fn put(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

fn write_type(ty: &Type, strings: &mut Strings, out: &mut Vec<u8>) -> Option<()> {
    let name = strings.add(ty.name().unwrap_or_default());
    let mut head = |kind: u32, parts: usize, flag: bool, size_or_type: u32| {
        let parts = u32::from(u16::try_from(parts).ok()?);
        put(
            out,
            &[
                name,
                u32::from(flag) << 31 | kind << 24 | parts,
                size_or_type,
            ],
        );
        Some(())
    };
    match ty {
        // Type 0 is nowhere written.
        Type::Void => {}
        Type::Int {
            size,
            bits,
            signed,
            char,
            bool,
            ..
        } => {
            head(1, 0, false, *size)?;
            let encoding = u32::from(*signed) | u32::from(*char) << 1 | u32::from(*bool) << 2;
            put(out, &[encoding << 24 | u32::from(*bits)]);
        }
        Type::Ptr { target } => head(2, 0, false, target.0)?,
        Type::Array {
            element,
            index,
            count,
        } => {
            head(3, 0, false, 0)?;
            put(out, &[element.0, index.0, *count]);
        }
        Type::Struct { size, members, .. } | Type::Union { size, members, .. } => {
            let kind = if matches!(ty, Type::Struct { .. }) {
                4
            } else {
                5
            };
            let bit_fields = members.iter().any(|member| member.bit_size != 0);
            head(kind, members.len(), bit_fields, *size)?;
            for Member {
                name,
                ty,
                bit_offset,
                bit_size,
            } in members
            {
                let name = strings.add(name);
                put(out, &[name, ty.0, bit_size << 24 | bit_offset]);
            }
        }
        Type::Enum {
            size,
            signed,
            values,
            ..
        } => {
            let fits = |value: i64| {
                i32::try_from(value).is_ok() && *signed || u32::try_from(value).is_ok() && !signed
            };
            let small = values.iter().all(|(_, value)| fits(*value));
            head(if small { 6 } else { 19 }, values.len(), *signed, *size)?;
            for (name, value) in values {
                let name = strings.add(name);
                put(out, &[name, *value as u32]);
                if !small {
                    put(out, &[(*value as u64 >> 32) as u32]);
                }
            }
        }
        Type::Fwd { union, .. } => head(7, 0, *union, 0)?,
        Type::Typedef { target, .. } => head(8, 0, false, target.0)?,
        Type::Volatile { target } => head(9, 0, false, target.0)?,
        Type::Const { target } => head(10, 0, false, target.0)?,
        Type::Restrict { target } => head(11, 0, false, target.0)?,
        Type::Func { proto, linkage, .. } => {
            head(12, number(*linkage) as usize, false, proto.0)?;
        }
        Type::FuncProto { ret, params } => {
            head(13, params.len(), false, ret.0)?;
            for (name, TypeId(ty)) in params {
                let name = strings.add(name);
                put(out, &[name, *ty]);
            }
        }
        Type::Var { ty, linkage, .. } => {
            head(14, 0, false, ty.0)?;
            put(out, &[number(*linkage)]);
        }
        Type::DataSec { size, vars, .. } => {
            head(15, vars.len(), false, *size)?;
            for var in vars {
                put(out, &[var.ty.0, var.offset, var.size]);
            }
        }
        Type::Float { size, .. } => head(16, 0, false, *size)?,
        Type::DeclTag {
            target, component, ..
        } => {
            head(17, 0, false, target.0)?;
            put(out, &[component.unwrap_or(u32::MAX)]);
        }
        Type::TypeTag { target, .. } => head(18, 0, false, target.0)?,
    }
    Some(())
}

fn number(linkage: Linkage) -> u32 {
    match linkage {
        Linkage::Static => 0,
        Linkage::Global => 1,
        Linkage::Extern => 2,
    }
}

/// Visits the numbers of all types that `ty` refers to.
pub(crate) fn each_reference(ty: &mut Type, visit: &mut dyn FnMut(&mut TypeId)) {
    match ty {
        Type::Void
        | Type::Int { .. }
        | Type::Enum { .. }
        | Type::Fwd { .. }
        | Type::Float { .. } => {}
        Type::Ptr { target }
        | Type::Typedef { target, .. }
        | Type::Volatile { target }
        | Type::Const { target }
        | Type::Restrict { target }
        | Type::DeclTag { target, .. }
        | Type::TypeTag { target, .. } => visit(target),
        Type::Array { element, index, .. } => {
            visit(element);
            visit(index);
        }
        Type::Struct { members, .. } | Type::Union { members, .. } => {
            members.iter_mut().for_each(|member| visit(&mut member.ty));
        }
        Type::Func { proto, .. } => visit(proto),
        Type::FuncProto { ret, params } => {
            visit(ret);
            params.iter_mut().for_each(|(_, ty)| visit(ty));
        }
        Type::Var { ty, .. } => visit(ty),
        Type::DataSec { vars, .. } => vars.iter_mut().for_each(|var| visit(&mut var.ty)),
    }
}
