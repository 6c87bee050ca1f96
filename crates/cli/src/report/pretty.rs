//! Bytes of keys, values and records as JSON, by their BTF types; numbers of kernels and sites as
//! their names.

use serde_json::{Map, Value, json};
use warpbpf_object::{Btf, Type, TypeId};

/// Typedef whose values are shown as kernel names.
const KERNEL_ID: &str = "wbpf_kernel_id_t";
/// The same in 4 bytes, as the key of an array.
const KERNEL_KEY: &str = "wbpf_kernel_key_t";
/// Typedef whose values are shown as names of sites.
const SITE_ID: &str = "wbpf_site_id_t";
/// Types in each other that are followed.
const DEEPEST: u32 = 16;

/// What is needed to show bytes.
#[derive(Debug, Clone, Copy)]
pub struct Printer<'a> {
    /// The object's types.
    pub btf: Option<&'a Btf>,
    /// Kernel names by number.
    pub kernels: &'a [String],
    /// Names of sites by number; an empty one is none.
    pub sites: &'a [String],
}

impl<'a> Printer<'a> {
    /// The names by which values of a type are shown, if they are numbers of kernels or sites.
    pub fn names_of(&self, ty: TypeId) -> Option<&'a [String]> {
        let (btf, mut ty) = (self.btf?, ty);
        // As deep as a value is shown.
        for _ in 0..=DEEPEST {
            ty = match btf.type_by_id(ty)? {
                Type::Typedef { name, target } => match name.as_str() {
                    KERNEL_ID | KERNEL_KEY => return Some(self.kernels),
                    SITE_ID => return Some(self.sites),
                    _ => *target,
                },
                Type::Const { target }
                | Type::Volatile { target }
                | Type::TypeTag { target, .. } => *target,
                _ => return None,
            };
        }
        None
    }

    /// A value of type `ty`; without a type, a number where it has 1, 2, 4 or 8 bytes, else hex.
    pub fn json(&self, ty: Option<TypeId>, bytes: &[u8]) -> Value {
        match (self.btf, ty) {
            (Some(btf), Some(ty)) => self.typed(btf, ty, bytes, 0),
            _ => untyped(bytes),
        }
    }

    fn typed(&self, btf: &Btf, id: TypeId, bytes: &[u8], depth: u32) -> Value {
        if depth > DEEPEST {
            return untyped(bytes);
        }
        match btf.type_by_id(id) {
            Some(Type::Typedef { target, .. }) => {
                if let (Some(names), Some(number)) = (self.names_of(id), number(bytes)) {
                    let at = usize::try_from(number).ok();
                    let name = at
                        .and_then(|n| names.get(n))
                        .filter(|name| !name.is_empty());
                    return name.map_or_else(|| json!(number), |n| json!(n));
                }
                self.typed(btf, *target, bytes, depth + 1)
            }
            Some(
                Type::Const { target } | Type::Volatile { target } | Type::TypeTag { target, .. },
            ) => self.typed(btf, *target, bytes, depth + 1),
            Some(Type::Struct { members, .. }) => {
                let mut object = Map::new();
                for member in members {
                    let at = (member.bit_offset / 8) as usize;
                    let size = btf.resolve_size(member.ty).unwrap_or(0) as usize;
                    let Some(part) = bytes
                        .get(at..at.saturating_add(size))
                        .filter(|_| member.bit_size == 0)
                    else {
                        continue;
                    };
                    object.insert(
                        member.name.clone(),
                        self.typed(btf, member.ty, part, depth + 1),
                    );
                }
                Value::Object(object)
            }
            Some(Type::DataSec { vars, .. }) => {
                let mut object = Map::new();
                for var in vars {
                    let (at, size) = (var.offset as usize, var.size as usize);
                    let part = bytes.get(at..at.saturating_add(size));
                    if let (Some(Type::Var { name, ty, .. }), Some(part)) =
                        (btf.type_by_id(var.ty), part)
                    {
                        object.insert(name.clone(), self.typed(btf, *ty, part, depth + 1));
                    }
                }
                Value::Object(object)
            }
            Some(Type::Array { element, count, .. }) => {
                let size = btf.resolve_size(*element).unwrap_or(0) as usize;
                if size == 0 || is_char(btf, *element) {
                    return text(bytes);
                }
                bytes
                    .chunks_exact(size)
                    .take(*count as usize)
                    .map(|b| self.typed(btf, *element, b, depth + 1))
                    .collect()
            }
            Some(Type::Int { signed: true, .. }) => {
                signed(bytes).map_or_else(|| untyped(bytes), |n| json!(n))
            }
            Some(_) | None => untyped(bytes),
        }
    }
}

fn is_char(btf: &Btf, id: TypeId) -> bool {
    matches!(btf.strip(id), Some((_, Type::Int { name, .. })) if name == "char")
}

fn text(bytes: &[u8]) -> Value {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    json!(String::from_utf8_lossy(&bytes[..end]))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

fn signed(bytes: &[u8]) -> Option<i64> {
    let value = number(bytes)?;
    let unused = 64 - bytes.len() as u32 * 8;
    Some(((value << unused) as i64) >> unused)
}

fn untyped(bytes: &[u8]) -> Value {
    number(bytes).map_or_else(
        || json!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        |n| json!(n),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_types_numbers_and_hex() {
        let printer = Printer {
            btf: None,
            kernels: &[],
            sites: &[],
        };
        assert_eq!(printer.json(None, &[1, 0, 0, 0]), json!(1));
        assert_eq!(printer.json(None, &[0xff; 8]), json!(u64::MAX));
        assert_eq!(printer.json(None, &[1, 2, 3]), json!("010203"));
    }

    /// Types 1 `u32`, 2 `wbpf_kernel_id_t`, 3 `wbpf_site_id_t`.
    fn ids() -> Btf {
        let strings = b"\0u32\0wbpf_kernel_id_t\0wbpf_site_id_t\0";
        let types: [u32; 10] = [1, 1 << 24, 4, 32, 5, 8 << 24, 1, 22, 8 << 24, 1];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let header = [24, 0, 40, 40, strings.len() as u32];
        for word in header.into_iter().chain(types) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(strings);
        Btf::parse(&bytes).expect("it is BTF")
    }

    #[test]
    fn numbers_of_kernels_and_sites_are_names() {
        let btf = ids();
        let names = |names: [&str; 2]| names.map(str::to_owned);
        let (kernels, sites) = (names(["k", "m"]), names(["", "k at a.cu:7 ld.global.f32"]));
        let printer = Printer {
            btf: Some(&btf),
            kernels: &kernels,
            sites: &sites,
        };
        let shown = |ty, number: u32| printer.json(Some(TypeId(ty)), &number.to_le_bytes());
        assert_eq!(shown(2, 0), json!("k"));
        assert_eq!(shown(2, 2), json!(2));
        assert_eq!(shown(3, 1), json!("k at a.cu:7 ld.global.f32"));
        // No site has the number 0, and this one has not been named.
        assert_eq!(shown(3, 0), json!(0));
        assert_eq!(shown(3, 2), json!(2));
        assert_eq!(shown(1, 1), json!(1));
    }

    #[test]
    fn signed_numbers_of_every_width() {
        assert_eq!(signed(&[0xff]), Some(-1));
        assert_eq!(signed(&[0xfe, 0xff]), Some(-2));
        assert_eq!(signed(&[0, 0, 0, 0x80]), Some(i32::MIN.into()));
        assert_eq!(signed(&[1, 2, 3]), None);
    }
}
