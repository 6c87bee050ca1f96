//! BTF for people: C names of types, struct layouts, and values printed by type.

use std::fmt::Write as _;

use crate::btf::{Btf, Member, Type, TypeId};

/// Deepest nesting that is printed; deeper values show as `…`, so that a cyclic file ends.
const MAX_DEPTH: usize = 16;
/// Most elements of one array that are printed.
const MAX_ELEMENTS: usize = 64;
/// Longest text of one value in bytes: nested arrays of a malformed file would grow without end.
const MAX_TEXT: usize = 64 << 10;
/// Deepest nesting at which the parameters of a function type are spelled out.
const MAX_PARAMS_DEPTH: usize = 2;

impl Btf {
    /// The type's name as C writes it: `struct val`, `__u64`, `const char *`, `int[4]`.
    pub fn type_name(&self, id: TypeId) -> String {
        self.name_at(id, 0)
    }

    fn name_at(&self, id: TypeId, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return "…".to_owned();
        }
        let inner = |id: TypeId| self.name_at(id, depth + 1);
        let tagged = |tag: &str, name: &str| match name {
            "" => format!("{tag} {{…}}"),
            name => format!("{tag} {name}"),
        };
        match self.type_by_id(id) {
            None => format!("<no type {id}>"),
            Some(Type::Void) => "void".to_owned(),
            Some(
                Type::Int { name, .. }
                | Type::Float { name, .. }
                | Type::Typedef { name, .. }
                | Type::Func { name, .. }
                | Type::Var { name, .. }
                | Type::DataSec { name, .. },
            ) => name.clone(),
            Some(Type::Struct { name, .. } | Type::Fwd { name, union: false }) => {
                tagged("struct", name)
            }
            Some(Type::Union { name, .. } | Type::Fwd { name, union: true }) => {
                tagged("union", name)
            }
            Some(Type::Enum { name, .. }) => tagged("enum", name),
            Some(Type::Ptr { target }) => {
                let target = inner(*target);
                if target.ends_with('*') {
                    format!("{target}*")
                } else {
                    format!("{target} *")
                }
            }
            Some(Type::Array { element, count, .. }) => {
                // `int[2][3]` is an array of two; the outer count stands first.
                let element = inner(*element);
                let at = element.find('[').unwrap_or(element.len());
                format!("{}[{count}]{}", &element[..at], &element[at..])
            }
            Some(Type::Const { target }) => format!("const {}", inner(*target)),
            Some(Type::Volatile { target }) => format!("volatile {}", inner(*target)),
            Some(
                Type::Restrict { target }
                | Type::TypeTag { target, .. }
                | Type::DeclTag { target, .. },
            ) => inner(*target),
            Some(Type::FuncProto { ret, .. }) if depth > MAX_PARAMS_DEPTH => {
                format!("{}(…)", inner(*ret))
            }
            Some(Type::FuncProto { ret, params }) => {
                let params: Vec<String> = params.iter().map(|(_, ty)| inner(*ty)).collect();
                format!("{}({})", inner(*ret), params.join(", "))
            }
        }
    }

    /// Layout of a struct or union, one line a field: offset and size in bytes, type, name. `None`
    /// for other types.
    pub fn struct_layout(&self, id: TypeId) -> Option<String> {
        let (id, ty) = self.strip(id)?;
        let (Type::Struct { size, members, .. } | Type::Union { size, members, .. }) = ty else {
            return None;
        };
        let mut out = format!("{}: {size} bytes\n", self.type_name(id));
        for member in members {
            let offset = member.bit_offset / 8;
            let width = match member.bit_size {
                0 => self
                    .resolve_size(member.ty)
                    .map_or("?".to_owned(), |size| size.to_string()),
                bits => format!("bit {}, {bits} bits", member.bit_offset % 8),
            };
            let name = if member.name.is_empty() {
                "(anonymous)"
            } else {
                &member.name
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "  +{offset:<4} ({width}) {} {name}",
                self.type_name(member.ty)
            );
        }
        Some(out)
    }

    /// Prints a value as C would initialise it: `{ .a = 1, .name = "x", .v = [1, 2] }`. Missing
    /// bytes show as `?`.
    pub fn format_value(&self, id: TypeId, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.value(&mut out, id, bytes, 0);
        out
    }

    fn value(&self, out: &mut String, id: TypeId, bytes: &[u8], depth: usize) {
        let Some((_, ty)) = self
            .strip(id)
            .filter(|_| depth <= MAX_DEPTH && out.len() < MAX_TEXT)
        else {
            out.push('…');
            return;
        };
        match ty {
            Type::Int {
                size,
                signed,
                char,
                bool,
                ..
            } => match number(bytes, *size) {
                None => out.push('?'),
                Some(value) if *bool => out.push_str(if value == 0 { "false" } else { "true" }),
                Some(value) => integer(out, value, *size, *signed || *char),
            },
            Type::Enum {
                size,
                signed,
                values,
                ..
            } => match number(bytes, *size) {
                None => out.push('?'),
                Some(value) => {
                    let wanted = if *signed {
                        sign_extend(value, size * 8)
                    } else {
                        value as i64
                    };
                    match values.iter().find(|(_, known)| *known == wanted) {
                        Some((name, _)) => out.push_str(name),
                        None => integer(out, value, *size, *signed),
                    }
                }
            },
            Type::Float { size, .. } => {
                let text = match (number(bytes, *size), size) {
                    (Some(bits), 4) => f32::from_bits(bits as u32).to_string(),
                    (Some(bits), 8) => f64::from_bits(bits).to_string(),
                    _ => "?".to_owned(),
                };
                out.push_str(&text);
            }
            Type::Ptr { .. } => match number(bytes, 8) {
                // Writing to a String cannot fail.
                Some(value) => drop(write!(out, "{value:#x}")),
                None => out.push('?'),
            },
            Type::Array { element, count, .. } => self.array(out, *element, *count, bytes, depth),
            Type::Struct { members, .. } | Type::Union { members, .. } => {
                self.members(out, members, bytes, depth)
            }
            Type::Var { ty, .. } => self.value(out, *ty, bytes, depth + 1),
            Type::DataSec { vars, .. } => {
                out.push('{');
                for (i, var) in vars.iter().enumerate() {
                    out.push_str(if i == 0 { " ." } else { ", ." });
                    out.push_str(self.type_by_id(var.ty).and_then(Type::name).unwrap_or("?"));
                    out.push_str(" = ");
                    self.value(
                        out,
                        var.ty,
                        bytes.get(var.offset as usize..).unwrap_or_default(),
                        depth + 1,
                    );
                }
                out.push_str(" }");
            }
            Type::Void
            | Type::Fwd { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::DeclTag { .. } => out.push('?'),
            Type::Typedef { .. }
            | Type::Volatile { .. }
            | Type::Const { .. }
            | Type::Restrict { .. }
            | Type::TypeTag { .. } => {
                // `strip` went past all of these.
                out.push('?');
            }
        }
    }

    fn array(&self, out: &mut String, element: TypeId, count: u32, bytes: &[u8], depth: usize) {
        let is_text = matches!(self.strip(element), Some((_, Type::Int { size: 1, char, .. })) if *char)
            || self.type_name(element).trim_start_matches("const ") == "char";
        if is_text {
            let bytes = &bytes[..bytes.len().min(count as usize)];
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            // Writing to a String cannot fail.
            let _ = write!(out, "{:?}", String::from_utf8_lossy(&bytes[..end]));
            return;
        }
        let size = self.resolve_size(element).map_or(0, |size| size as usize);
        out.push('[');
        for i in 0..(count as usize).min(MAX_ELEMENTS) {
            if i > 0 {
                out.push_str(", ");
            }
            let rest = i.checked_mul(size).and_then(|start| bytes.get(start..));
            self.value(out, element, rest.unwrap_or_default(), depth + 1);
        }
        if count as usize > MAX_ELEMENTS {
            out.push_str(", …");
        }
        out.push(']');
    }

    fn members(&self, out: &mut String, members: &[Member], bytes: &[u8], depth: usize) {
        out.push('{');
        for (i, member) in members.iter().enumerate() {
            out.push_str(if i == 0 { " " } else { ", " });
            if !member.name.is_empty() {
                out.push('.');
                out.push_str(&member.name);
                out.push_str(" = ");
            }
            let rest = bytes
                .get(member.bit_offset as usize / 8..)
                .unwrap_or_default();
            if member.bit_size == 0 {
                self.value(out, member.ty, rest, depth + 1);
            } else {
                self.bit_field(out, member, rest);
            }
        }
        out.push_str(" }");
    }

    fn bit_field(&self, out: &mut String, member: &Member, bytes: &[u8]) {
        let (shift, bits) = (member.bit_offset % 8, member.bit_size);
        let len = (shift + bits).div_ceil(8) as usize;
        let Some(bytes) = bytes.get(..len).filter(|_| (1..=64).contains(&bits)) else {
            out.push('?');
            return;
        };
        let wide = bytes
            .iter()
            .rev()
            .fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let value = (wide >> shift) as u64 & (u64::MAX >> (64 - bits));
        let signed = matches!(
            self.strip(member.ty),
            Some((_, Type::Int { signed: true, .. }))
        );
        // Writing to a String cannot fail.
        let _ = if signed {
            write!(out, "{}", sign_extend(value, bits))
        } else {
            write!(out, "{value}")
        };
    }
}

fn number(bytes: &[u8], size: u32) -> Option<u64> {
    let bytes = bytes
        .get(..size as usize)
        .filter(|bytes| bytes.len() <= 8)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    )
}

fn sign_extend(value: u64, bits: u32) -> i64 {
    match bits {
        1..=63 => ((value << (64 - bits)) as i64) >> (64 - bits),
        _ => value as i64,
    }
}

fn integer(out: &mut String, value: u64, size: u32, signed: bool) {
    // Writing to a String cannot fail.
    let _ = if signed {
        write!(out, "{}", sign_extend(value, size * 8))
    } else {
        write!(out, "{value}")
    };
}
