//! Other values for global variables, before an object is loaded: what libbpf's skeletons do with
//! `skel->rodata->x = 3`.
//!
//! The bytes of the object change, nothing else: whoever loads it afterwards, here or in another
//! process, sees the same value, and the verifier takes that of a `const volatile` variable for a
//! constant.

use crate::btf::{Btf, Type, TypeId};
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::sections;

/// Why a variable cannot be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetError {
    /// The object cannot be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Nothing says where variables are.
    #[error("variables can only be set in an object with type information; compile with `-g`")]
    NoTypes,
    /// No variable of this name.
    #[error("there is no variable `{name}`; the object has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Variables that there are.
        known: Vec<String>,
    },
    /// Several static variables of this name.
    #[error(
        "there are {count} variables `{name}` (static ones of several files); rename one of them"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
    /// A constant that the compiler has already used.
    #[error(
        "`{name}` is `const` without `volatile`, so the compiler has already used its value; declare it `const volatile`"
    )]
    Folded {
        /// The variable.
        name: String,
    },
    /// A member or element that the variable does not have.
    #[error("`{name}`: {problem}")]
    Path {
        /// As it was given.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A value that does not fit the variable.
    #[error("`{name}` cannot be `{value}`: {problem}")]
    Value {
        /// The variable.
        name: String,
        /// The value that was given.
        value: String,
        /// Why not.
        problem: String,
    },
}

/// Sets global variables, given as name and value, in the bytes of an object.
///
/// A name may lead to a member or an element: `config.limits[2]`. A value is a number (decimal, or
/// `0x` and hexadecimal), `true` or `false`, an enumerator, or text for an array of `char` (other
/// arrays are set element by element).
///
/// # Errors
/// [`SetError`]; then nothing is set. No input makes it panic.
pub fn set_variables(bytes: &[u8], values: &[(&str, &str)]) -> Result<Vec<u8>, SetError> {
    let mut out = bytes.to_vec();
    for (name, value) in values {
        set(&mut out, name, value)?;
    }
    Ok(out)
}

fn set(bytes: &mut Vec<u8>, name: &str, value: &str) -> Result<(), SetError> {
    let elf = Elf::parse(bytes)?;
    let (btf, _) = sections::types(&elf)?;
    let btf = btf.ok_or(SetError::NoTypes)?;
    let (variable, path) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
    let variables = variables(&elf, &btf);
    let found: Vec<&Variable<'_>> = variables.iter().filter(|v| v.name == variable).collect();
    let variable = match found[..] {
        [variable] => variable,
        [] => {
            let mut known: Vec<String> = variables
                .iter()
                .map(|v| format!("`{}` ({})", v.name, btf.type_name(v.ty)))
                .collect();
            known.sort_unstable();
            let name = variable.to_owned();
            return Err(SetError::Unknown { name, known });
        }
        _ => {
            return Err(SetError::Ambiguous {
                name: variable.to_owned(),
                count: found.len(),
            });
        }
    };
    let section = &elf.sections[variable.section];
    if section.name.starts_with(".rodata") && !is_volatile(&btf, variable.ty) {
        let name = variable.name.to_owned();
        return Err(SetError::Folded { name });
    }
    let place = Place {
        ty: variable.ty,
        offset: u64::from(variable.offset),
    };
    let place = walk(&btf, place, path).map_err(|problem| SetError::Path {
        name: name.to_owned(),
        problem,
    })?;
    let encoded = encode(&btf, place.ty, name, value).map_err(|problem| SetError::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        problem,
    })?;
    let damaged = || {
        SetError::Object(ObjectError::Damaged {
            detail: format!("variable `{}` is outside its section", variable.name),
        })
    };
    let size = section.size;
    let end = place.offset.checked_add(encoded.len() as u64);
    let inside = end.is_some_and(|end| end <= size);
    let offset = usize::try_from(place.offset).map_err(|_| damaged())?;
    if !inside {
        return Err(damaged());
    }
    let (header, start) = (section.header, section.offset);
    let start = if section.kind == NOBITS {
        give_contents(bytes, header, size)?
    } else {
        start
    };
    let target = bytes
        .get_mut(start..)
        .and_then(|bytes| bytes.get_mut(offset..offset + encoded.len()))
        .ok_or(SetError::Object(ObjectError::Damaged {
            detail: "a data section is outside the file".to_owned(),
        }))?;
    target.copy_from_slice(&encoded);
    Ok(())
}

const PROGBITS: u32 = 1;
const NOBITS: u32 = 8;

/// Gives a `.bss` contents of its own, at the end of the file. Returns where.
fn give_contents(bytes: &mut Vec<u8>, header: usize, size: u64) -> Result<usize, SetError> {
    let too_large = |size| ObjectError::DataTooLarge {
        section: ".bss".to_owned(),
        size,
        limit: crate::data::MAX_SECTION,
    };
    if size > crate::data::MAX_SECTION {
        return Err(too_large(size).into());
    }
    let start = bytes.len().next_multiple_of(16);
    bytes.resize(start + size as usize, 0);
    // `sh_type` and `sh_offset`.
    for (at, field) in [
        (4, PROGBITS.to_le_bytes().as_slice()),
        (24, &(start as u64).to_le_bytes()),
    ] {
        let place = header.checked_add(at);
        let place = place.and_then(|at| bytes.get_mut(at..)?.get_mut(..field.len()));
        if let Some(place) = place {
            place.copy_from_slice(field);
        }
    }
    Ok(start)
}

struct Variable<'a> {
    name: &'a str,
    ty: TypeId,
    section: usize,
    offset: u32,
}

fn variables<'a>(elf: &Elf<'_>, btf: &'a Btf) -> Vec<Variable<'a>> {
    let mut variables = Vec::new();
    for (index, section) in elf.sections.iter().enumerate() {
        if !crate::data::is_data(section) {
            continue;
        }
        for var in btf.data_section(&section.name).unwrap_or_default() {
            if let Some(Type::Var { name, ty, .. }) = btf.type_by_id(var.ty) {
                variables.push(Variable {
                    name,
                    ty: *ty,
                    section: index,
                    offset: var.offset,
                });
            }
        }
    }
    variables
}

/// How many qualifiers and array levels are looked through.
const MAX_DEPTH: usize = 32;

fn is_volatile(btf: &Btf, mut ty: TypeId) -> bool {
    for _ in 0..MAX_DEPTH {
        ty = match btf.type_by_id(ty) {
            Some(Type::Volatile { .. }) => return true,
            Some(Type::Const { target } | Type::Typedef { target, .. }) => *target,
            Some(Type::Array { element, .. }) => *element,
            _ => return false,
        };
    }
    false
}

#[derive(Clone, Copy)]
struct Place {
    ty: TypeId,
    offset: u64,
}

/// Follows `.member` and `[index]`.
fn walk(btf: &Btf, mut place: Place, mut path: &str) -> Result<Place, String> {
    while !path.is_empty() {
        let shown = btf.type_name(place.ty);
        if let Some(rest) = path.strip_prefix('[') {
            let (index, rest) = rest.split_once(']').ok_or("`]` is missing")?;
            let Some((_, Type::Array { element, count, .. })) = btf.strip(place.ty) else {
                return Err(format!("`{shown}` has no elements"));
            };
            let inside = index.parse::<u32>().ok().filter(|index| index < count);
            let index = inside.ok_or_else(|| format!("`{shown}` has no element {index}"))?;
            let size = btf.resolve_size(*element).unwrap_or(0);
            place.offset = size
                .checked_mul(u64::from(index))
                .and_then(|bytes| bytes.checked_add(place.offset))
                .ok_or_else(|| format!("`{shown}` is too large"))?;
            place.ty = *element;
            path = rest;
        } else if let Some(rest) = path.strip_prefix('.') {
            let (name, rest) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
            place = member(btf, place, name, 0)
                .ok_or_else(|| format!("`{shown}` has no member `{name}` that can be set"))?;
            path = rest;
        } else {
            return Err(format!("`{path}` is neither `.member` nor `[index]`"));
        }
    }
    Ok(place)
}

/// The member `name`, also inside anonymous ones; bit fields have no place of their own.
fn member(btf: &Btf, place: Place, name: &str, depth: usize) -> Option<Place> {
    let (_, Type::Struct { members, .. } | Type::Union { members, .. }) = btf.strip(place.ty)?
    else {
        return None;
    };
    let inside = |bits: u32| place.offset.checked_add(u64::from(bits / 8));
    for member in members {
        if member.name == name && !name.is_empty() {
            let offset = inside(member.bit_offset)?;
            return (member.bit_size == 0).then_some(Place {
                ty: member.ty,
                offset,
            });
        }
    }
    if depth > 4 {
        return None;
    }
    members.iter().filter(|m| m.name.is_empty()).find_map(|m| {
        let offset = inside(m.bit_offset)?;
        self::member(btf, Place { ty: m.ty, offset }, name, depth + 1)
    })
}

/// The bytes of `value` as the variable `name` of type `ty`.
fn encode(btf: &Btf, ty: TypeId, name: &str, value: &str) -> Result<Vec<u8>, String> {
    let shown = btf.type_name(ty);
    // What the advice repeats.
    let example = number(value).map_or("VALUE", |_| value);
    match btf.strip(ty).map(|(_, ty)| ty) {
        Some(Type::Int {
            bool: true, size, ..
        }) => match value {
            "true" | "1" => integer(1, *size, false),
            "false" | "0" => integer(0, *size, false),
            _ => None,
        }
        .ok_or_else(|| "it is `true` or `false`".to_owned()),
        Some(Type::Int { size, signed, .. }) => {
            let number = number(value).ok_or_else(|| format!("`{shown}` is a number"))?;
            integer(number, *size, *signed)
                .ok_or_else(|| format!("`{shown}` has {size} bytes and cannot hold that"))
        }
        Some(Type::Enum {
            size,
            signed,
            values,
            ..
        }) => {
            let named = values.iter().find(|(name, _)| name == value);
            let named = named.map(|(_, number)| match signed {
                true => i128::from(*number),
                false => i128::from(*number as u64),
            });
            let number = named.or_else(|| number(value)).ok_or_else(|| {
                let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
                format!("`{shown}` is a number or one of {}", names.join(", "))
            })?;
            integer(number, *size, *signed)
                .ok_or_else(|| format!("`{shown}` has {size} bytes and cannot hold that"))
        }
        Some(Type::Float { size, .. }) => match (size, value.parse::<f64>()) {
            (4, Ok(number)) => Ok((number as f32).to_le_bytes().to_vec()),
            (8, Ok(number)) => Ok(number.to_le_bytes().to_vec()),
            _ => Err(format!("`{shown}` is a number")),
        },
        Some(Type::Array { element, count, .. }) => {
            // Compilers tell `char` from `unsigned char` by name; the encoding bit for characters
            // is hardly ever set.
            let text =
                matches!(btf.strip(*element), Some((_, Type::Int { name, .. })) if name == "char");
            if !text {
                return Err(format!(
                    "`{shown}` is set element by element (`{name}[0]={example}`)"
                ));
            }
            // C text ends with a zero.
            if value.len() >= *count as usize {
                return Err(format!(
                    "`{shown}` holds at most {} bytes of text",
                    count.saturating_sub(1)
                ));
            }
            if *count > MAX_TEXT {
                return Err(format!("`{shown}` is longer than {MAX_TEXT} bytes"));
            }
            let mut bytes = value.as_bytes().to_vec();
            bytes.resize(*count as usize, 0);
            Ok(bytes)
        }
        Some(Type::Struct { .. } | Type::Union { .. }) => Err(format!(
            "`{shown}` is set member by member (`{name}.MEMBER={example}`)"
        )),
        Some(Type::Ptr { .. }) => Err("addresses are only known at run time".to_owned()),
        _ => Err(format!("`{shown}` has no values")),
    }
}

/// Longest array that is set as text, in bytes.
const MAX_TEXT: u32 = 1 << 20;

fn number(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    // `u64` accepts a sign of its own.
    let plain = digits.starts_with(|c: char| c.is_ascii_digit());
    plain.then_some(if negative {
        -i128::from(number)
    } else {
        i128::from(number)
    })
}

fn integer(number: i128, size: u32, signed: bool) -> Option<Vec<u8>> {
    let bits = size
        .checked_mul(8)
        .filter(|bits| (8..=128).contains(bits))?;
    let (least, most) = match (signed, bits) {
        (true, 128) => (i128::MIN, i128::MAX),
        (true, bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (false, 128) => (0, i128::MAX),
        (false, bits) if bits < 128 => (0, (1 << bits) - 1),
        (false, _) => return None,
    };
    let fits = (least..=most).contains(&number);
    fits.then(|| number.to_le_bytes()[..size as usize].to_vec())
}
