//! Constant expressions, PTX ISA "Constant Expressions" and "Initializers": what ptxas computes
//! where an operand, an offset or an initialiser is written as `4 * (2 + 1)`, `table[2]` or `name +
//! 8`.
//!
//! Integers are 64 bits wide and signed or unsigned as in C, floating point is f64. An address is a
//! symbol and a constant, since only who places the symbol knows the rest.

use crate::ast::Operand;
use crate::error::PtxError;
use crate::lex::Cursor;

/// Brackets inside brackets beyond this are nobody's PTX, and recursion must end before the stack
/// does.
const DEEPEST: usize = 64;

/// What an expression comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant<'a> {
    /// An integer of type `.s64`.
    Signed(i64),
    /// An integer of type `.u64`.
    Unsigned(u64),
    /// `0fXXXXXXXX`: bits of an f32.
    F32(u32),
    /// Any other floating point number.
    F64(f64),
    /// An address.
    Address(Address<'a>),
}

/// `name + offset`, `name[index]`, `generic(name) + offset`, `0xff00(name)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    /// Variable, function, label or register.
    pub name: &'a str,
    /// Bytes behind it.
    pub offset: i64,
    /// `name[register + 1]`: a register, and the bytes that it counts.
    pub index: Option<(&'a str, u64)>,
    /// `generic(…)`: the address in the generic space.
    pub is_generic: bool,
    /// `0xff00(…)`: these bits only, moved down to the lowest one.
    pub mask: Option<u64>,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstantError {
    /// It does not follow the grammar.
    #[error("`{text}` is not a constant expression")]
    Unreadable {
        /// The expression.
        text: String,
    },
    /// An operator that its operands do not have: an address that is multiplied, a remainder of
    /// floats.
    #[error("`{operator}` in `{text}` does not take these operands")]
    Operands {
        /// The operator.
        operator: &'static str,
        /// The expression.
        text: String,
    },
    /// A division by zero.
    #[error("`{text}` divides by zero")]
    Division {
        /// The expression.
        text: String,
    },
    /// An index of what is not known to be an array.
    #[error("`{name}` in `{text}` is not an array of that many dimensions")]
    Index {
        /// What has an index.
        name: String,
        /// The expression.
        text: String,
    },
}

/// Bytes from one element to the next, for each dimension of a variable; `None` if there is no
/// variable of that name.
pub type Strides<'s> = &'s dyn Fn(&str) -> Option<Vec<u64>>;

/// The value of a whole text: [`Operand::Other`], an initialiser without braces.
///
/// # Errors
/// See [`ConstantError`].
///
/// # Examples
/// ```
/// use warpbpf_ptx::constant::{Constant, evaluate};
/// let none = |_: &str| None;
/// assert_eq!(evaluate("(1<<4) + 7/2", &none), Ok(Constant::Signed(19)));
/// assert_eq!(evaluate("-7 % 4", &none), Ok(Constant::Signed(-3)));
/// ```
pub fn evaluate<'a>(text: &'a str, strides: Strides<'_>) -> Result<Constant<'a>, ConstantError> {
    let mut parser = Parser::new(text, strides);
    let value = parser.whole(0)?;
    parser.at_end()?;
    Ok(value)
}

/// An address of memory that is accessed, `[name + 4*2]` or `name[2]`: never in the generic space
/// by itself, nor a part of one. A number is one, too.
///
/// # Errors
/// See [`ConstantError`].
pub fn evaluate_address<'a>(
    text: &'a str,
    strides: Strides<'_>,
) -> Result<Constant<'a>, ConstantError> {
    let inner = text.trim();
    let inner = inner
        .strip_prefix('[')
        .and_then(|inner| inner.get(..inner.rfind(']')?))
        .unwrap_or(inner);
    let value = evaluate(inner, strides)?;
    match value {
        Constant::Signed(_) | Constant::Unsigned(_) => Ok(value),
        Constant::Address(address) if !address.is_generic && address.mask.is_none() => Ok(value),
        Constant::Address(_) | Constant::F32(_) | Constant::F64(_) => {
            Err(ConstantError::Unreadable {
                text: text.to_owned(),
            })
        }
    }
}

/// An initialiser: an expression, or a list of initialisers.
#[derive(Debug, Clone, PartialEq)]
pub enum Initialiser<'a> {
    /// A value.
    Value(Constant<'a>),
    /// `{…}`
    List(Vec<Initialiser<'a>>),
}

/// Reads an initialiser, [`Variable::init`](crate::ast::Variable::init).
///
/// # Errors
/// See [`ConstantError`].
pub fn initialiser<'a>(
    text: &'a str,
    strides: Strides<'_>,
) -> Result<Initialiser<'a>, ConstantError> {
    let mut parser = Parser::new(text, strides);
    let value = parser.initialiser(0)?;
    parser.at_end()?;
    Ok(value)
}

/// Operators of two operands by how tightly they bind, the loosest first.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'a, 's> {
    text: &'a str,
    cursor: Cursor<'a>,
    strides: Strides<'s>,
}

type Value<'a> = Result<Constant<'a>, ConstantError>;

impl<'a, 's> Parser<'a, 's> {
    fn new(text: &'a str, strides: Strides<'s>) -> Self {
        Parser {
            text,
            cursor: Cursor::new(text, 0..text.len()),
            strides,
        }
    }

    fn unreadable<T>(&self) -> Result<T, ConstantError> {
        Err(ConstantError::Unreadable {
            text: self.text.trim().to_owned(),
        })
    }

    fn operands<T>(&self, operator: &'static str) -> Result<T, ConstantError> {
        Err(ConstantError::Operands {
            operator,
            text: self.text.trim().to_owned(),
        })
    }

    fn read<T>(&self, result: Result<T, PtxError>) -> Result<T, ConstantError> {
        result.or_else(|_| self.unreadable())
    }

    fn peek(&mut self) -> Result<Option<u8>, ConstantError> {
        let skipped = self.cursor.skip_blank();
        self.read(skipped)?;
        Ok(self.cursor.peek())
    }

    fn eat(&mut self, byte: u8) -> Result<bool, ConstantError> {
        let found = self.peek()? == Some(byte);
        self.cursor.pos += usize::from(found);
        Ok(found)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ConstantError> {
        match self.eat(byte)? {
            true => Ok(()),
            false => self.unreadable(),
        }
    }

    fn at_end(&mut self) -> Result<(), ConstantError> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => self.unreadable(),
        }
    }

    fn initialiser(&mut self, depth: usize) -> Result<Initialiser<'a>, ConstantError> {
        if depth > DEEPEST {
            return self.unreadable();
        }
        if !self.eat(b'{')? {
            return self.whole(depth).map(Initialiser::Value);
        }
        let mut list = Vec::new();
        if self.eat(b'}')? {
            return Ok(Initialiser::List(list));
        }
        loop {
            list.push(self.initialiser(depth + 1)?);
            if !self.eat(b',')? {
                self.expect(b'}')?;
                return Ok(Initialiser::List(list));
            }
        }
    }

    /// `condition ? yes : no`, or less.
    fn whole(&mut self, depth: usize) -> Value<'a> {
        if depth > DEEPEST {
            return self.unreadable();
        }
        let condition = self.level(0, depth)?;
        if !self.eat(b'?')? {
            return Ok(condition);
        }
        let yes = self.whole(depth + 1)?;
        self.expect(b':')?;
        let no = self.whole(depth + 1)?;
        Ok(if self.truth(condition, "?")? { yes } else { no })
    }

    /// Operators that bind at least as tightly as those of a level, with what is between them.
    fn level(&mut self, loosest: usize, depth: usize) -> Value<'a> {
        let mut left = self.unary(depth)?;
        while let Some((operator, level)) = self.operator()? {
            if level < loosest {
                break;
            }
            self.cursor.pos += operator.len();
            let right = self.level(level + 1, depth + 1)?;
            left = self.binary(operator, left, right)?;
        }
        Ok(left)
    }

    /// The operator that stands here, and its level.
    fn operator(&mut self) -> Result<Option<(&'static str, usize)>, ConstantError> {
        // Most values of an initialiser end here.
        if matches!(
            self.peek()?,
            None | Some(b',' | b'}' | b')' | b']' | b'?' | b':')
        ) {
            return Ok(None);
        }
        let rest = &self.text[self.cursor.pos..];
        let all = LEVELS.iter().enumerate();
        let all = all.flat_map(|(level, of)| of.iter().map(move |&operator| (operator, level)));
        let found = all.filter(|(operator, _)| rest.starts_with(operator));
        Ok(found.max_by_key(|(operator, _)| operator.len()))
    }

    fn unary(&mut self, depth: usize) -> Value<'a> {
        if depth > DEEPEST {
            return self.unreadable();
        }
        let (operator, sign) = match self.peek()? {
            Some(b'-') => ("-", b'-'),
            Some(b'+') => ("+", b'+'),
            Some(b'!') => ("!", b'!'),
            Some(b'~') => ("~", b'~'),
            _ => return self.primary(depth),
        };
        self.cursor.pos += 1;
        let value = self.unary(depth + 1)?;
        match (sign, value) {
            (b'+', value) => Ok(value),
            (b'-', Constant::Signed(value)) => Ok(Constant::Signed(value.wrapping_neg())),
            (b'-', Constant::Unsigned(value)) => Ok(Constant::Unsigned(value.wrapping_neg())),
            (b'-', Constant::F32(bits)) => Ok(Constant::F32(bits ^ 1 << 31)),
            (b'-', Constant::F64(value)) => Ok(Constant::F64(-value)),
            (b'!', value) => Ok(Constant::Signed(i64::from(!self.truth(value, operator)?))),
            (b'~', Constant::Signed(value)) => Ok(Constant::Signed(!value)),
            (b'~', Constant::Unsigned(value)) => Ok(Constant::Unsigned(!value)),
            _ => self.operands(operator),
        }
    }

    fn primary(&mut self, depth: usize) -> Value<'a> {
        match self.peek()? {
            Some(b'(') => {
                self.cursor.pos += 1;
                if self.peek()? == Some(b'.') {
                    return self.cast(depth);
                }
                let value = self.whole(depth + 1)?;
                self.expect(b')')?;
                Ok(value)
            }
            Some(b'0'..=b'9' | b'.') => {
                let number = self.number()?;
                match (number, self.peek()?) {
                    // `0xff00(name)`: a byte of an address.
                    (Constant::Signed(_) | Constant::Unsigned(_), Some(b'(')) => {
                        self.masked(number, depth)
                    }
                    _ => Ok(number),
                }
            }
            _ => self.named(depth),
        }
    }

    /// `(.s64) value`; the opening bracket is read.
    fn cast(&mut self, depth: usize) -> Value<'a> {
        let ty = self.cursor.directive();
        let ty = self.read(ty)?;
        self.expect(b')')?;
        let value = self.unary(depth + 1)?;
        match (ty, value) {
            ("s64", Constant::Unsigned(value)) => Ok(Constant::Signed(value.cast_signed())),
            ("s64", Constant::F64(value)) => Ok(Constant::Signed(value as i64)),
            ("u64", Constant::Signed(value)) => Ok(Constant::Unsigned(value.cast_unsigned())),
            ("u64", Constant::F64(value)) => Ok(Constant::Unsigned(value as u64)),
            ("s64", value @ Constant::Signed(_)) | ("u64", value @ Constant::Unsigned(_)) => {
                Ok(value)
            }
            _ => self.operands("cast"),
        }
    }

    fn number(&mut self) -> Value<'a> {
        let start = self.cursor.pos;
        let number = self.cursor.number("a number");
        let unsigned = self.cursor.since(start).ends_with('U');
        Ok(match self.read(number)? {
            Operand::Int(value) if unsigned || value < 0 => {
                Constant::Unsigned(value.cast_unsigned())
            }
            Operand::Int(value) => Constant::Signed(value),
            Operand::F32(bits) => Constant::F32(bits),
            Operand::F64(bits) => Constant::F64(f64::from_bits(bits)),
            _ => return self.unreadable(),
        })
    }

    fn masked(&mut self, mask: Constant<'a>, depth: usize) -> Value<'a> {
        self.expect(b'(')?;
        let value = self.whole(depth + 1)?;
        self.expect(b')')?;
        match (value, mask.bits()) {
            (Constant::Address(address @ Address { mask: None, .. }), Some(mask)) => {
                Ok(Constant::Address(Address {
                    mask: Some(mask),
                    ..address
                }))
            }
            _ => self.operands("mask"),
        }
    }

    /// `name`, `name[1][2]`, `generic(name)`.
    fn named(&mut self, depth: usize) -> Value<'a> {
        let Some(name) = self.cursor.dotted_name() else {
            return self.unreadable();
        };
        if name == "WARP_SZ" {
            return Ok(Constant::Signed(32));
        }
        if name == "generic" && self.eat(b'(')? {
            let value = self.whole(depth + 1)?;
            self.expect(b')')?;
            return match value {
                Constant::Address(address) => Ok(Constant::Address(Address {
                    is_generic: true,
                    ..address
                })),
                _ => self.operands("generic"),
            };
        }
        let mut address = Address {
            name,
            offset: 0,
            index: None,
            is_generic: false,
            mask: None,
        };
        let mut strides: Option<std::vec::IntoIter<u64>> = None;
        while self.eat(b'[')? {
            let index = self.whole(depth + 1)?;
            self.expect(b']')?;
            let rest =
                strides.get_or_insert_with(|| (self.strides)(name).unwrap_or_default().into_iter());
            let Some(stride) = rest.next() else {
                return Err(ConstantError::Index {
                    name: name.to_owned(),
                    text: self.text.trim().to_owned(),
                });
            };
            let elements = match (index, index.bits()) {
                (_, Some(index)) => index,
                (Constant::Address(register), _)
                    if register.is_plain() && address.index.is_none() =>
                {
                    address.index = Some((register.name, stride));
                    register.offset.cast_unsigned()
                }
                _ => return self.unreadable(),
            };
            let offset = elements.wrapping_mul(stride).cast_signed();
            address.offset = address.offset.wrapping_add(offset);
        }
        Ok(Constant::Address(address))
    }

    fn truth(&self, value: Constant<'a>, operator: &'static str) -> Result<bool, ConstantError> {
        match value {
            Constant::Signed(value) => Ok(value != 0),
            Constant::Unsigned(value) => Ok(value != 0),
            Constant::F64(value) => Ok(value != 0.0),
            Constant::F32(_) | Constant::Address(_) => self.operands(operator),
        }
    }

    fn binary(&self, operator: &'static str, a: Constant<'a>, b: Constant<'a>) -> Value<'a> {
        use Constant::{Address as At, F64, Signed, Unsigned};
        let moved = |address: Address<'a>, by: i64| {
            let offset = address.offset.wrapping_add(by);
            Ok(At(Address { offset, ..address }))
        };
        match (operator, a, b) {
            ("&&", ..) => {
                let both = self.truth(a, operator)? & self.truth(b, operator)?;
                Ok(Signed(i64::from(both)))
            }
            ("||", ..) => {
                let either = self.truth(a, operator)? | self.truth(b, operator)?;
                Ok(Signed(i64::from(either)))
            }
            ("+", At(address), Signed(by)) => moved(address, by),
            ("+", At(address), Unsigned(by)) => moved(address, by.cast_signed()),
            ("-", At(address), Signed(by)) => moved(address, by.wrapping_neg()),
            ("-", At(address), Unsigned(by)) => moved(address, by.cast_signed().wrapping_neg()),
            ("<<" | ">>", Signed(value), _) => {
                Ok(Signed(match (operator, self.shift(operator, b)?) {
                    ("<<", by) => value.checked_shl(by).unwrap_or(0),
                    (_, by) => value >> by.min(63),
                }))
            }
            ("<<" | ">>", Unsigned(value), _) => {
                Ok(Unsigned(match (operator, self.shift(operator, b)?) {
                    ("<<", by) => value.checked_shl(by).unwrap_or(0),
                    (_, by) => value.checked_shr(by).unwrap_or(0),
                }))
            }
            (_, F64(a), F64(b)) => self.floats(operator, a, b),
            (_, F64(a), Signed(b)) => self.floats(operator, a, b as f64),
            (_, F64(a), Unsigned(b)) => self.floats(operator, a, b as f64),
            (_, Signed(a), F64(b)) => self.floats(operator, a as f64, b),
            (_, Unsigned(a), F64(b)) => self.floats(operator, a as f64, b),
            (_, Signed(a), Signed(b)) => self.signed(operator, a, b),
            (_, Signed(a), Unsigned(b)) => self.unsigned(operator, a.cast_unsigned(), b),
            (_, Unsigned(a), Signed(b)) => self.unsigned(operator, a, b.cast_unsigned()),
            (_, Unsigned(a), Unsigned(b)) => self.unsigned(operator, a, b),
            _ => self.operands(operator),
        }
    }

    fn shift(&self, operator: &'static str, by: Constant<'a>) -> Result<u32, ConstantError> {
        match by.bits() {
            Some(by) => Ok(u32::try_from(by).unwrap_or(u32::MAX)),
            None => self.operands(operator),
        }
    }

    fn division<T>(&self, result: Option<T>) -> Result<T, ConstantError> {
        result.ok_or_else(|| ConstantError::Division {
            text: self.text.trim().to_owned(),
        })
    }

    fn signed(&self, operator: &'static str, a: i64, b: i64) -> Value<'a> {
        Ok(Constant::Signed(match operator {
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" => self.division((b != 0).then(|| a.wrapping_div(b)))?,
            "%" => self.division((b != 0).then(|| a.wrapping_rem(b)))?,
            "&" => a & b,
            "^" => a ^ b,
            "|" => a | b,
            _ => i64::from(self.compare(operator, a.cmp(&b))?),
        }))
    }

    fn unsigned(&self, operator: &'static str, a: u64, b: u64) -> Value<'a> {
        Ok(Constant::Unsigned(match operator {
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" => self.division(a.checked_div(b))?,
            "%" => self.division(a.checked_rem(b))?,
            "&" => a & b,
            "^" => a ^ b,
            "|" => a | b,
            _ => {
                let holds = self.compare(operator, a.cmp(&b))?;
                return Ok(Constant::Signed(i64::from(holds)));
            }
        }))
    }

    fn floats(&self, operator: &'static str, a: f64, b: f64) -> Value<'a> {
        Ok(Constant::F64(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => {
                let holds = match a.partial_cmp(&b) {
                    Some(order) => self.compare(operator, order)?,
                    None => operator == "!=",
                };
                return Ok(Constant::Signed(i64::from(holds)));
            }
        }))
    }

    fn compare(
        &self,
        operator: &'static str,
        order: std::cmp::Ordering,
    ) -> Result<bool, ConstantError> {
        match operator {
            "==" => Ok(order.is_eq()),
            "!=" => Ok(order.is_ne()),
            "<" => Ok(order.is_lt()),
            "<=" => Ok(order.is_le()),
            ">" => Ok(order.is_gt()),
            ">=" => Ok(order.is_ge()),
            _ => self.operands(operator),
        }
    }
}

impl Address<'_> {
    /// A name and an offset, nothing else.
    fn is_plain(&self) -> bool {
        self.index.is_none() && !self.is_generic && self.mask.is_none()
    }
}

impl Constant<'_> {
    /// Of an integer.
    fn bits(self) -> Option<u64> {
        match self {
            Constant::Signed(value) => Some(value.cast_unsigned()),
            Constant::Unsigned(value) => Some(value),
            Constant::F32(_) | Constant::F64(_) | Constant::Address(_) => None,
        }
    }
}
