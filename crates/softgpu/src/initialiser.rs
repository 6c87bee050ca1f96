//! Initialisers of module-scope variables: numbers, nested lists, addresses of symbols (PTX ISA, "Initializers").

use warpbpf_ptx::ast::Variable;
use warpbpf_ptx::type_size;

/// A symbol whose address an initialiser takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference<'a> {
    pub name: &'a str,
}

/// Bytes of a variable; an open first dimension has as many elements as the initialiser.
pub(crate) fn size(variable: &Variable<'_>) -> Option<u64> {
    if variable.dims.first() != Some(&0) {
        return variable.size().map(|n| n.max(1));
    }
    let element = variable.dims[1..]
        .iter()
        .try_fold(type_size(variable.ty)?, |n, &d| n.checked_mul(d))?;
    let text = variable.init?;
    let mut parser = Parser { rest: text.trim() };
    let Ok(Value::List(list)) = parser.value() else {
        return None;
    };
    element.checked_mul(list.len() as u64)
}

#[derive(Debug)]
enum Value<'a> {
    List(Vec<Value<'a>>),
    Int(i64),
    F32(u32),
    F64(u64),
    /// Address of a symbol plus an offset, and the mask that selects a byte of it (`0xff00(symbol)`).
    Address {
        name: &'a str,
        offset: i64,
        mask: Option<u64>,
    },
}

/// Evaluates `text` into `bytes`, which are as long as the variable and zero.
pub(crate) fn evaluate<'a>(
    variable: &Variable<'a>,
    text: &'a str,
    resolve: &mut dyn FnMut(Reference<'a>) -> Option<u64>,
    bytes: &mut [u8],
) -> Result<(), String> {
    let mut parser = Parser { rest: text.trim() };
    let value = parser.value()?;
    let rest = parser.rest.trim().trim_end_matches(';').trim();
    if !rest.is_empty() {
        return Err(format!("initialiser: cannot read `{}`", shown(rest)));
    }
    let (ty, lanes) = match variable.ty.split_once('.') {
        Some((lanes, ty)) => (
            ty,
            lanes.trim_start_matches('v').parse::<u64>().unwrap_or(1),
        ),
        None => (variable.ty, 1),
    };
    let element =
        type_size(ty).ok_or_else(|| format!("initialiser of unknown type `{ty}`"))? as usize;
    let mut dims = variable.dims.clone();
    if lanes > 1 {
        dims.push(lanes);
    }
    if let (Some(first @ 0), Value::List(list)) = (dims.first_mut(), &value) {
        *first = list.len() as u64;
    }
    place(&value, &dims, ty, element, resolve, bytes)
}

fn place<'a>(
    value: &Value<'a>,
    dims: &[u64],
    ty: &str,
    element: usize,
    resolve: &mut dyn FnMut(Reference<'a>) -> Option<u64>,
    bytes: &mut [u8],
) -> Result<(), String> {
    if let Value::List(list) = value {
        let (stride, inner) = match dims {
            [_, inner @ ..] => (
                inner
                    .iter()
                    .fold(element, |n, &dim| n.saturating_mul(dim as usize)),
                inner,
            ),
            [] => (element, dims),
        };
        for (i, item) in list.iter().enumerate() {
            let part = bytes
                .get_mut(i.saturating_mul(stride)..)
                .filter(|part| part.len() >= element);
            let part = part.ok_or_else(|| {
                format!("initialiser has more than {i} elements, which do not fit")
            })?;
            place(item, inner, ty, element, resolve, part)?;
        }
        return Ok(());
    }
    let raw = match *value {
        Value::Int(n) if ty == "f32" => u64::from((n as f32).to_bits()),
        Value::Int(n) if ty == "f64" => (n as f64).to_bits(),
        Value::Int(n) => n as u64,
        Value::F32(bits) if ty == "f64" => f64::from(f32::from_bits(bits)).to_bits(),
        Value::F32(bits) => u64::from(bits),
        Value::F64(bits) if ty == "f32" => u64::from((f64::from_bits(bits) as f32).to_bits()),
        Value::F64(bits) => bits,
        Value::Address { name, offset, mask } => {
            let base = resolve(Reference { name }).ok_or_else(|| {
                format!("initialiser refers to `{name}`, which has no address in this module")
            })?;
            let address = base.wrapping_add_signed(offset);
            mask.map_or(address, |mask| {
                (address & mask) >> mask.trailing_zeros().min(63)
            })
        }
        Value::List(_) => 0,
    };
    let part = bytes.get_mut(..element).ok_or("initialiser does not fit")?;
    part.copy_from_slice(&raw.to_le_bytes()[..element.min(8)]);
    Ok(())
}

/// The start of what cannot be read.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: char) -> bool {
        let text = self.rest.trim_start();
        match text.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end = text
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')))
            .unwrap_or(text.len());
        self.rest = &text[end..];
        &text[..end]
    }

    fn value(&mut self) -> Result<Value<'a>, String> {
        if self.eat('{') {
            let mut list = Vec::new();
            while !self.eat('}') {
                if self.rest.trim().is_empty() {
                    return Err("initialiser: `{` is not closed".to_owned());
                }
                list.push(self.value()?);
                self.eat(',');
            }
            return Ok(Value::List(list));
        }
        if self.eat('(') {
            let value = self.value()?;
            return if self.eat(')') {
                Ok(value)
            } else {
                Err("initialiser: `(` is not closed".to_owned())
            };
        }
        let negative = self.eat('-');
        let word = self.word();
        if word.is_empty() {
            return Err(format!("initialiser: cannot read `{}`", shown(self.rest)));
        }
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            return self.address(word, None);
        }
        let number =
            number(word).ok_or_else(|| format!("initialiser: `{word}` is not a number"))?;
        if let Value::Int(mask) = number
            && !negative
            && self.eat('(')
        {
            let name = self.word();
            let value = self.address(name, Some(mask as u64))?;
            return if self.eat(')') {
                Ok(value)
            } else {
                Err("initialiser: `(` is not closed".to_owned())
            };
        }
        Ok(match number {
            Value::Int(n) if negative => Value::Int(n.wrapping_neg()),
            Value::F32(bits) if negative => Value::F32(bits ^ 1 << 31),
            Value::F64(bits) if negative => Value::F64(bits ^ 1 << 63),
            other => other,
        })
    }

    /// `name`, `generic(name)`, each with `+ offset`.
    fn address(&mut self, word: &'a str, mask: Option<u64>) -> Result<Value<'a>, String> {
        let mut name = word;
        if word == "generic" && self.eat('(') {
            name = self.word();
            let offset = self.offset()?;
            if !self.eat(')') {
                return Err("initialiser: `generic(` is not closed".to_owned());
            }
            let more = self.offset()?;
            return Ok(Value::Address {
                name,
                offset: offset.wrapping_add(more),
                mask,
            });
        }
        let offset = self.offset()?;
        name = name.trim();
        Ok(Value::Address { name, offset, mask })
    }

    fn offset(&mut self) -> Result<i64, String> {
        let negative = if self.eat('+') {
            self.eat('-')
        } else if self.eat('-') {
            true
        } else {
            return Ok(0);
        };
        let word = self.word();
        match number(word) {
            Some(Value::Int(n)) => Ok(if negative { n.wrapping_neg() } else { n }),
            _ => Err(format!("initialiser: `{word}` is not an offset")),
        }
    }
}

fn number(word: &str) -> Option<Value<'static>> {
    let word = word.strip_suffix('U').unwrap_or(word);
    let lower = word.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16)
            .ok()
            .map(|n| Value::Int(n as i64));
    }
    if let Some(bits) = lower.strip_prefix("0f") {
        return u32::from_str_radix(bits, 16).ok().map(Value::F32);
    }
    if let Some(bits) = lower.strip_prefix("0d") {
        return u64::from_str_radix(bits, 16).ok().map(Value::F64);
    }
    if let Some(bits) = lower.strip_prefix("0b") {
        return u64::from_str_radix(bits, 2)
            .ok()
            .map(|n| Value::Int(n as i64));
    }
    if lower.contains(['.', 'e']) {
        return lower.parse::<f64>().ok().map(|x| Value::F64(x.to_bits()));
    }
    if lower.len() > 1 && lower.starts_with('0') {
        return u64::from_str_radix(&lower, 8)
            .ok()
            .map(|n| Value::Int(n as i64));
    }
    lower.parse::<u64>().ok().map(|n| Value::Int(n as i64))
}
