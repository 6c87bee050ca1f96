//! Keys and values as a user types them, to bytes, by their BTF types: the other direction of
//! `pretty`.

use warpbpf_object::{Type, TypeId};

use super::pretty::Printer;
use super::read_back;

/// What bytes are to become of words.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// `key` or `value`, for messages.
    pub what: &'static str,
    /// The object's types, and names that are shown in place of numbers.
    pub printer: Printer<'a>,
    /// Its type, if the definition names one.
    pub ty: Option<TypeId>,
    /// Its bytes.
    pub size: usize,
    /// `hex:` may give any number of bytes.
    pub any_size: bool,
}

impl Shape<'_> {
    /// The bytes of `words`: a number, `hex:` and bytes, or `field=value` for some fields of
    /// `base`.
    ///
    /// # Errors
    /// What is wrong, and what there is.
    pub fn bytes(&self, words: &[String], base: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
        let what = self.what;
        let text = words.join(" ");
        if let Some(ty) = self.ty
            && (text.starts_with(['{', '[', '"']) || self.is_name(ty, &text))
        {
            let mut bytes = vec![0; self.size];
            let read = read_back::read(&self.printer, ty, &text, &mut bytes);
            read.map_err(|why| format!("the {what}: {why}"))?;
            return Ok(bytes);
        }
        let words: Vec<&str> = words.iter().flat_map(|word| word.split(',')).collect();
        if let [word] = words.as_slice()
            && let Some(digits) = word.strip_prefix("hex:")
        {
            let bytes = hex(digits).ok_or_else(|| {
                format!("`{digits}` is not hex bytes, two digits each, for the {what}")
            })?;
            return self.sized(bytes);
        }
        if words.iter().all(|word| word.contains('=')) {
            let mut bytes = base.unwrap_or_else(|| vec![0; self.size]);
            for word in &words {
                let (path, value) = word.split_once('=').unwrap_or((word, ""));
                let (at, ty) = self.field(path)?;
                self.put(&mut bytes, at, ty, path, value)?;
            }
            return Ok(bytes);
        }
        let [word] = words.as_slice() else {
            return Err(format!(
                "the {what} is one number, `hex:…`, or `field=value` for each field{}",
                self.fields()
            ));
        };
        let mut bytes = vec![0; self.size];
        match self.ty.filter(|ty| self.is_scalar(*ty)) {
            Some(ty) => self.put(&mut bytes, 0, ty, what, word)?,
            None if self.ty.is_some() && self.printer.btf.is_some() => {
                return Err(format!(
                    "the {what} is no number: write `field=value` for each field, or `hex:…`{}",
                    self.fields()
                ));
            }
            None if matches!(self.size, 1 | 2 | 4 | 8) => {
                let number = read_back::integer(word, self.size, None)
                    .map_err(|e| format!("{what}: {e}"))?;
                bytes.copy_from_slice(&number[..self.size]);
            }
            None => {
                return Err(if self.any_size {
                    format!("the {what} has no type: write `hex:…`")
                } else {
                    format!(
                        "the {what} has {} bytes and no type: write `hex:…`",
                        self.size
                    )
                });
            }
        }
        Ok(bytes)
    }

    fn sized(&self, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        if bytes.len() == self.size || self.any_size {
            return Ok(bytes);
        }
        Err(format!(
            "the {} has {} bytes, not {}",
            self.what,
            self.size,
            bytes.len()
        ))
    }

    /// It is shown in place of a number.
    fn is_name(&self, ty: TypeId, text: &str) -> bool {
        let names = self.printer.names_of(ty);
        names.is_some_and(|names| names.iter().any(|name| name == text && !name.is_empty()))
    }

    fn is_scalar(&self, ty: TypeId) -> bool {
        let stripped = self.printer.btf.and_then(|btf| btf.strip(ty));
        matches!(
            stripped,
            Some((
                _,
                Type::Int { .. } | Type::Enum { .. } | Type::Float { .. } | Type::Ptr { .. }
            ))
        )
    }

    /// `; its fields are a, b`
    fn fields(&self) -> String {
        let stripped = self
            .printer
            .btf
            .zip(self.ty)
            .and_then(|(btf, ty)| btf.strip(ty));
        let names: Vec<String> = match stripped {
            Some((_, Type::Struct { members, .. } | Type::Union { members, .. })) => {
                members.iter().map(|m| m.name.clone()).collect()
            }
            Some((_, Type::DataSec { vars, .. })) => vars
                .iter()
                .filter_map(|var| self.variable(var.ty))
                .map(|(name, _)| name)
                .collect(),
            _ => return String::new(),
        };
        format!("; its fields are {}", names.join(", "))
    }

    fn variable(&self, ty: TypeId) -> Option<(String, TypeId)> {
        match self.printer.btf?.type_by_id(ty) {
            Some(Type::Var { name, ty, .. }) => Some((name.clone(), *ty)),
            _ => None,
        }
    }

    /// Offset and type of `a.b[2]`.
    fn field(&self, path: &str) -> Result<(usize, TypeId), String> {
        let none = || format!("the {} has no field `{path}`{}", self.what, self.fields());
        let (btf, mut ty) = self.printer.btf.zip(self.ty).ok_or_else(none)?;
        let mut at = 0;
        for part in path.split('.') {
            let mut pieces = part.split('[');
            let name = pieces.next().unwrap_or_default();
            let (offset, member) = match btf.strip(ty).map(|(_, ty)| ty) {
                Some(Type::Struct { members, .. } | Type::Union { members, .. }) => members
                    .iter()
                    .find(|m| m.name == name && m.bit_size == 0 && m.bit_offset % 8 == 0)
                    .map(|m| ((m.bit_offset / 8) as usize, m.ty)),
                Some(Type::DataSec { vars, .. }) => vars.iter().find_map(|var| {
                    let (found, ty) = self.variable(var.ty)?;
                    (found == name).then_some((var.offset as usize, ty))
                }),
                _ => None,
            }
            .ok_or_else(none)?;
            (at, ty) = (at + offset, member);
            for index in pieces {
                let index = index
                    .strip_suffix(']')
                    .and_then(|n| n.parse::<usize>().ok());
                let (element, count) = match btf.strip(ty).map(|(_, ty)| ty) {
                    Some(Type::Array { element, count, .. }) => (*element, *count as usize),
                    _ => return Err(none()),
                };
                let index = index.filter(|index| *index < count).ok_or_else(none)?;
                let size = btf.resolve_size(element).unwrap_or(0) as usize;
                (at, ty) = (at + index * size, element);
            }
        }
        Ok((at, ty))
    }

    fn put(
        &self,
        bytes: &mut [u8],
        at: usize,
        ty: TypeId,
        name: &str,
        text: &str,
    ) -> Result<(), String> {
        let told = |reason: String| format!("`{name}`: {reason}");
        let stripped = self
            .printer
            .btf
            .and_then(|btf| btf.strip(ty))
            .map(|(_, ty)| ty);
        let number = match stripped {
            Some(Type::Int { size, signed, .. }) => {
                read_back::integer(text, *size as usize, Some(*signed)).map_err(told)?
                    [..*size as usize]
                    .to_vec()
            }
            Some(Type::Ptr { .. }) => read_back::integer(text, 8, Some(false))
                .map_err(told)?
                .to_vec(),
            Some(Type::Enum { size, values, .. }) => {
                let named = values.iter().find(|(name, _)| name == text);
                let number = match named {
                    Some((_, value)) => value.to_le_bytes(),
                    None => read_back::integer(text, *size as usize, None).map_err(told)?,
                };
                number[..*size as usize].to_vec()
            }
            Some(Type::Float { size: 4, .. }) => {
                let number: Result<f32, _> = text.parse();
                number
                    .map_err(|e| told(e.to_string()))?
                    .to_le_bytes()
                    .to_vec()
            }
            Some(Type::Float { size: 8, .. }) => {
                let number: Result<f64, _> = text.parse();
                number
                    .map_err(|e| told(e.to_string()))?
                    .to_le_bytes()
                    .to_vec()
            }
            _ => {
                return Err(told(
                    "it is no number; name a field or an element of it".into(),
                ));
            }
        };
        let to = bytes.get_mut(at..at + number.len());
        to.ok_or_else(|| told(format!("it is outside the {}", self.what)))?
            .copy_from_slice(&number);
        Ok(())
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| !matches!(c, ':' | '_'))
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use warpbpf_object::Btf;

    use super::*;

    fn untyped(size: usize) -> Shape<'static> {
        Shape {
            any_size: false,
            what: "key",
            printer: printer(None),
            ty: None,
            size,
        }
    }

    fn printer(btf: Option<&Btf>) -> Printer<'_> {
        Printer {
            btf,
            kernels: &[],
            sites: &[],
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn without_types_numbers_and_hex() {
        let key = |size, text: &str| untyped(size).bytes(&words(text), None);
        assert_eq!(key(4, "7"), Ok(vec![7, 0, 0, 0]));
        assert_eq!(key(4, "0x10203"), Ok(vec![3, 2, 1, 0]));
        assert_eq!(key(2, "-2"), Ok(vec![0xfe, 0xff]));
        assert_eq!(key(8, "18446744073709551615"), Ok(vec![0xff; 8]));
        assert_eq!(key(3, "hex:01:02:ff"), Ok(vec![1, 2, 255]));
        let refused = |size, text: &str| key(size, text).unwrap_err();
        assert_eq!(refused(1, "256"), "key: `256` does not fit into 1 bytes");
        assert_eq!(refused(4, "seven"), "key: `seven` is not a number");
        assert_eq!(
            refused(3, "7"),
            "the key has 3 bytes and no type: write `hex:…`"
        );
        assert_eq!(refused(3, "hex:0102"), "the key has 3 bytes, not 2");
        assert_eq!(
            refused(3, "hex:012"),
            "`012` is not hex bytes, two digits each, for the key"
        );
        assert_eq!(refused(4, "a=3"), "the key has no field `a`");
        assert_eq!(
            refused(4, "1 2"),
            "the key is one number, `hex:…`, or `field=value` for each field"
        );
    }

    /// Types 1 `int`, 2 `int[3]`, 3 `struct { int a; int b[3]; }`.
    fn types() -> Btf {
        let strings = b"\0int\0a\0b\0s\0";
        let types: [u32; 19] = [
            1,
            1 << 24,
            4,
            1 << 24 | 32, // int, signed
            0,
            3 << 24,
            0,
            1,
            1,
            3, // int[3]
            9,
            4 << 24 | 2,
            16,
            5,
            1,
            0,
            7,
            2,
            32, // struct s
        ];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let length = 4 * types.len() as u32;
        let header = [24, 0, length, length, strings.len() as u32];
        for word in header.into_iter().chain(types) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(strings);
        Btf::parse(&bytes).expect("it is BTF")
    }

    #[test]
    fn fields_by_their_names() {
        let btf = types();
        let shape = Shape {
            any_size: false,
            what: "value",
            printer: printer(Some(&btf)),
            ty: Some(TypeId(3)),
            size: 16,
        };
        let mut expected = vec![0; 16];
        expected[0] = 3;
        expected[12..].copy_from_slice(&(-1i32).to_le_bytes());
        assert_eq!(
            shape.bytes(&words("a=3 b[2]=-1"), None),
            Ok(expected.clone())
        );
        assert_eq!(
            shape.bytes(&words("a=3,b[2]=-1"), None),
            Ok(expected.clone())
        );
        expected[4] = 9;
        assert_eq!(
            shape.bytes(
                &words("b[0]=9"),
                Some(shape.bytes(&words("a=3 b[2]=-1"), None).unwrap())
            ),
            Ok(expected)
        );
        let refused = |text: &str| shape.bytes(&words(text), None).unwrap_err();
        assert_eq!(
            refused("3"),
            "the value is no number: write `field=value` for each field, or `hex:…`; its fields are a, b"
        );
        assert_eq!(
            refused("c=1"),
            "the value has no field `c`; its fields are a, b"
        );
        assert_eq!(
            refused("b[3]=1"),
            "the value has no field `b[3]`; its fields are a, b"
        );
        assert_eq!(
            refused("b=1"),
            "`b`: it is no number; name a field or an element of it"
        );
        assert_eq!(
            refused("a=4294967295"),
            "`a`: `4294967295` does not fit into 4 bytes"
        );
    }
}
