//! Keys and values as tables and JSON show them, back to bytes: `{block=3 sm=1}`,
//! `{"block":3,"sm":1}`, `[1, 2]`, and kernels and sites by their names.

use warpbpf_object::{Btf, Type, TypeId};

use super::pretty::Printer;

/// Reads what is shown of a value of type `ty` into `bytes`.
///
/// # Errors
/// What is wrong, and where.
pub fn read(printer: &Printer<'_>, ty: TypeId, text: &str, bytes: &mut [u8]) -> Result<(), String> {
    let btf = printer
        .btf
        .ok_or("the object has no types: write `hex:…`")?;
    let mut reader = Reader {
        btf,
        printer,
        rest: text,
    };
    reader.value(ty, bytes)?;
    reader.blanks();
    match reader.rest {
        "" => Ok(()),
        rest => Err(format!("`{rest}` is left over")),
    }
}

struct Reader<'t> {
    btf: &'t Btf,
    printer: &'t Printer<'t>,
    rest: &'t str,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: char) -> bool {
        self.blanks();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(match self.rest {
                "" => format!("`{sign}` is missing at the end"),
                rest => format!("`{sign}` is missing before `{rest}`"),
            }),
        }
    }

    fn value(&mut self, ty: TypeId, bytes: &mut [u8]) -> Result<(), String> {
        if let Some(names) = self.printer.names_of(ty)
            && let Some(number) = self.name(names)
        {
            return put(bytes, &number.to_le_bytes()[..bytes.len().min(8)]);
        }
        match self.btf.strip(ty).map(|(_, ty)| ty) {
            Some(Type::Struct { members, .. } | Type::Union { members, .. }) => {
                let members: Vec<(&str, usize, TypeId)> = members
                    .iter()
                    .filter(|member| member.bit_size == 0)
                    .map(|member| {
                        (
                            member.name.as_str(),
                            member.bit_offset as usize / 8,
                            member.ty,
                        )
                    })
                    .collect();
                self.fields(&members, bytes)
            }
            Some(Type::DataSec { vars, .. }) => {
                let vars = vars
                    .iter()
                    .filter_map(|var| match self.btf.type_by_id(var.ty) {
                        Some(Type::Var { name, ty, .. }) => {
                            Some((name.as_str(), var.offset as usize, *ty))
                        }
                        _ => None,
                    });
                self.fields(&vars.collect::<Vec<_>>(), bytes)
            }
            Some(Type::Array { element, count, .. }) => {
                self.elements(*element, *count as usize, bytes)
            }
            Some(Type::Int { signed, .. }) => {
                let (signed, word) = (*signed, self.word()?);
                put(bytes, &integer(&word, bytes.len().min(8), Some(signed))?)
            }
            Some(Type::Enum { values, .. }) => {
                let word = self.word()?;
                let named = values.iter().find(|(name, _)| *name == word);
                let number = match named {
                    Some((_, value)) => value.to_le_bytes(),
                    None => integer(&word, bytes.len().min(8), None)?,
                };
                put(bytes, &number)
            }
            Some(Type::Ptr { .. } | Type::Float { .. }) => {
                let word = self.word()?;
                put(bytes, &integer(&word, bytes.len().min(8), Some(false))?)
            }
            _ => Err("it has no type that can be written so: write `hex:…`".to_owned()),
        }
    }

    /// The longest of these names that stands here as a whole.
    fn name(&mut self, names: &[String]) -> Option<u64> {
        self.blanks();
        let quoted = self.rest.starts_with('"');
        if quoted {
            let (text, rest) = string(self.rest)?;
            let at = names
                .iter()
                .position(|name| !name.is_empty() && *name == text)?;
            self.rest = rest;
            return Some(at as u64);
        }
        let here = names.iter().enumerate().filter_map(|(at, name)| {
            let rest = self.rest.strip_prefix(name.as_str())?;
            let is_whole = rest.is_empty() || rest.starts_with([' ', ',', '}', ']']);
            (!name.is_empty() && is_whole).then_some((at, rest))
        });
        let (at, rest) = here.min_by_key(|(_, rest)| rest.len())?;
        self.rest = rest;
        Some(at as u64)
    }

    /// `{name=value name=value}`, or an object of JSON.
    fn fields(&mut self, fields: &[(&str, usize, TypeId)], bytes: &mut [u8]) -> Result<(), String> {
        self.expect('{')?;
        loop {
            if self.take('}') {
                return Ok(());
            }
            // Between fields of JSON.
            self.take(',');
            self.blanks();
            let name = match string(self.rest) {
                Some((name, rest)) => {
                    self.rest = rest;
                    self.expect(':')?;
                    name
                }
                None => {
                    let missing = || match self.rest {
                        "" => "`}` is missing at the end".to_owned(),
                        rest => format!("`{rest}` is no `field=value`"),
                    };
                    let (name, rest) = self.rest.split_once('=').ok_or_else(missing)?;
                    self.rest = rest;
                    name.trim().to_owned()
                }
            };
            let known = fields.iter().find(|(field, ..)| *field == name);
            let (_, at, ty) = known.ok_or_else(|| {
                let all: Vec<&str> = fields.iter().map(|(field, ..)| *field).collect();
                format!(
                    "there is no field `{name}`; its fields are {}",
                    all.join(", ")
                )
            })?;
            let size = self.btf.resolve_size(*ty).unwrap_or(0) as usize;
            let part = bytes.get_mut(*at..at.saturating_add(size));
            let part = part.ok_or_else(|| format!("field `{name}` is outside of it"))?;
            self.value(*ty, part)
                .map_err(|why| format!("`{name}`: {why}"))?;
        }
    }

    /// `[a, b]`, or a text where the elements are characters.
    fn elements(&mut self, element: TypeId, count: usize, bytes: &mut [u8]) -> Result<(), String> {
        let size = self.btf.resolve_size(element).unwrap_or(0) as usize;
        self.blanks();
        if size == 1 && !self.rest.starts_with('[') {
            let text = self.word()?;
            if text.len() > bytes.len() {
                return Err(format!("`{text}` is longer than its {} bytes", bytes.len()));
            }
            return put(bytes, text.as_bytes());
        }
        self.expect('[')?;
        for at in 0.. {
            if self.take(']') {
                break;
            }
            if at >= count {
                return Err(format!("it has {count} elements"));
            }
            if at > 0 {
                self.expect(',')?;
            }
            let part = bytes.get_mut(at * size..(at + 1) * size);
            let part = part.ok_or("it is too short")?;
            self.value(element, part)?;
        }
        Ok(())
    }

    /// A word up to what ends a value, or a string of JSON.
    fn word(&mut self) -> Result<String, String> {
        self.blanks();
        if let Some((text, rest)) = string(self.rest) {
            self.rest = rest;
            return Ok(text);
        }
        let end = self
            .rest
            .find([' ', ',', '}', ']'])
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "" => Err("a value is missing".to_owned()),
            word => Ok(word.to_owned()),
        }
    }
}

/// A string of JSON that stands at the front, and what is behind it.
fn string(text: &str) -> Option<(String, &str)> {
    if !text.starts_with('"') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next()?.ok()?;
    Some((value, &text[values.byte_offset()..]))
}

fn put(bytes: &mut [u8], from: &[u8]) -> Result<(), String> {
    let count = bytes.len().min(from.len());
    bytes[..count].copy_from_slice(&from[..count]);
    bytes[count..].fill(0);
    Ok(())
}

/// A number of `size` bytes; signed, unsigned, or whichever it is written as.
pub fn integer(text: &str, size: usize, signed: Option<bool>) -> Result<[u8; 8], String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let parsed = match digits.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let number = parsed.map_err(|_| format!("`{text}` is not a number"))?;
    let number = if negative { -number } else { number };
    let bits = 8 * size as u32;
    let (lowest, highest) = match signed {
        Some(true) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        Some(false) => (0, (1i128 << bits) - 1),
        None => (-(1i128 << (bits - 1)), (1i128 << bits) - 1),
    };
    if number < lowest || number > highest {
        return Err(format!("`{text}` does not fit into {size} bytes"));
    }
    Ok((number as u64).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use warpbpf_object::Member;

    use super::*;
    use crate::report::map_text::line;

    /// 1 `u32`, 2 `wbpf_kernel_id_t`, 3 `char`, 4 `char[8]`, 5 `s16`, 6 `s16[2]`, 7 `enum kind`,
    /// 8 `struct inner`, 9 `struct key`.
    fn types() -> Btf {
        let int = |name: &str, size: u32, signed| Type::Int {
            name: name.to_owned(),
            size,
            bits: 8 * size as u8,
            signed,
            char: false,
            bool: false,
        };
        let array = |element, count| Type::Array {
            element: TypeId(element),
            index: TypeId(1),
            count,
        };
        let member = |name: &str, ty, byte: u32| Member {
            name: name.to_owned(),
            ty: TypeId(ty),
            bit_offset: 8 * byte,
            bit_size: 0,
        };
        Btf::of_types([
            int("u32", 4, false),
            Type::Typedef {
                name: "wbpf_kernel_id_t".to_owned(),
                target: TypeId(1),
            },
            int("char", 1, true),
            array(3, 8),
            int("s16", 2, true),
            array(5, 2),
            Type::Enum {
                name: "kind".to_owned(),
                size: 4,
                signed: false,
                values: vec![("LOAD".to_owned(), 0), ("STORE".to_owned(), 1)],
            },
            Type::Struct {
                name: "inner".to_owned(),
                size: 8,
                members: vec![member("x", 1, 0), member("pair", 6, 4)],
            },
            Type::Struct {
                name: "key".to_owned(),
                size: 24,
                members: vec![
                    member("kernel", 2, 0),
                    member("text", 4, 4),
                    member("kind", 7, 12),
                    member("in", 8, 16),
                ],
            },
        ])
    }

    fn kernels() -> Vec<String> {
        ["add", "void add<float, 4>(float*)", ""]
            .map(str::to_owned)
            .into()
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(b"copy\0\0\0\0");
        bytes.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        bytes.extend([0xff, 0xff, 2, 0]);
        bytes
    }

    #[test]
    fn what_is_shown_is_read_back() {
        let (btf, kernels) = (types(), kernels());
        let printer = Printer {
            btf: Some(&btf),
            kernels: &kernels,
            sites: &[],
        };
        let key = TypeId(9);
        let shown = printer.json(Some(key), &bytes());
        let back = |text: &str| {
            let mut back = vec![0xaa; 24];
            read(&printer, key, text, &mut back).map(|()| back)
        };
        let text = format!("{{{}}}", line(&shown));
        assert_eq!(
            text,
            "{kernel=void add<float, 4>(float*) text=copy kind=1 in={x=7 pair=[-1, 2]}}"
        );
        assert_eq!(back(&text), Ok(bytes()));
        assert_eq!(back(&shown.to_string()), Ok(bytes()));
        assert_eq!(back(&text.replace("kind=1", "kind=STORE")), Ok(bytes()));
        // What has no name is shown as a number.
        let mut other = bytes();
        other[0] = 9;
        let text = format!("{{{}}}", line(&printer.json(Some(key), &other)));
        assert_eq!(back(&text), Ok(other));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let (btf, kernels) = (types(), kernels());
        let printer = Printer {
            btf: Some(&btf),
            kernels: &kernels,
            sites: &[],
        };
        let wrong = |text: &str| read(&printer, TypeId(9), text, &mut [0; 24]).unwrap_err();
        for (text, said) in [
            ("{kernel=add", "`}` is missing at the end"),
            (
                "{of=1}",
                "there is no field `of`; its fields are kernel, text, kind, in",
            ),
            ("{in={x=}}", "`in`: `x`: a value is missing"),
            ("{in={pair=[1, 2, 3]}}", "`in`: `pair`: it has 2 elements"),
            (
                "{in={pair=[40000]}}",
                "`in`: `pair`: `40000` does not fit into 2 bytes",
            ),
            (
                "{text=much-too-long}",
                "`text`: `much-too-long` is longer than its 8 bytes",
            ),
            ("{kernel=nobody}", "`kernel`: `nobody` is not a number"),
            ("{kernel=1} more", "`more` is left over"),
            ("add", "`{` is missing before `add`"),
        ] {
            assert_eq!(wrong(text), said, "{text}");
        }
    }
}
