//! From tokens to a tree: expressions, with the precedence of C.

use crate::ast::{BinaryOp, Expr, ExprKind, MapRef, Target, UnaryOp};
use crate::error::ScriptError;
use crate::lex::Token;
use crate::read::{LONGEST, Reader};

/// Operators with two operands, the weakest first.
const LEVELS: [&[BinaryOp]; 10] = [
    &[BinaryOp::AnyTrue],
    &[BinaryOp::BothTrue],
    &[BinaryOp::Or],
    &[BinaryOp::Xor],
    &[BinaryOp::And],
    &[BinaryOp::Equal, BinaryOp::Unequal],
    &[
        BinaryOp::Less,
        BinaryOp::LessEqual,
        BinaryOp::Greater,
        BinaryOp::GreaterEqual,
    ],
    &[BinaryOp::Left, BinaryOp::Right],
    &[BinaryOp::Add, BinaryOp::Sub],
    &[BinaryOp::Mul, BinaryOp::Div, BinaryOp::Mod],
];

/// Reads an expression.
///
/// # Errors
/// What is none.
pub fn expression(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    reader.deeper()?;
    let expr = choice(reader)?;
    reader.out();
    Ok(expr)
}

fn choice(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    let start = reader.span();
    let cond = binary(reader, 0)?;
    if !reader.take_sign("?")? {
        return Ok(cond);
    }
    let then = expression(reader)?;
    reader.sign(":")?;
    let otherwise = expression(reader)?;
    let kind = ExprKind::Choice {
        cond: Box::new(cond),
        then: Box::new(then),
        otherwise: Box::new(otherwise),
    };
    let span = reader.since(start);
    Ok(Expr { span, kind })
}

fn binary(reader: &mut Reader<'_>, level: usize) -> Result<Expr, ScriptError> {
    let Some(ops) = LEVELS.get(level) else {
        return unary(reader);
    };
    let start = reader.span();
    let mut left = binary(reader, level + 1)?;
    for count in 1.. {
        reader.allow(count, LONGEST)?;
        let Token::Sign(sign) = *reader.token() else {
            return Ok(left);
        };
        let Some(op) = ops.iter().find(|op| op.sign() == sign) else {
            return Ok(left);
        };
        reader.step()?;
        let right = binary(reader, level + 1)?;
        let kind = ExprKind::Binary {
            op: *op,
            left: Box::new(left),
            right: Box::new(right),
        };
        let span = reader.since(start);
        left = Expr { span, kind };
    }
    Ok(left)
}

fn unary(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    let start = reader.span();
    let op = match reader.token() {
        Token::Sign("-") => UnaryOp::Minus,
        Token::Sign("!") => UnaryOp::Not,
        Token::Sign("~") => UnaryOp::Complement,
        Token::Sign(sign @ ("++" | "--")) => {
            let by = if *sign == "++" { 1 } else { -1 };
            reader.step()?;
            reader.deeper()?;
            let operand = unary(reader)?;
            reader.out();
            let Some(target) = target(&operand) else {
                return Err(reader.expected("a map or a variable behind `++` or `--`"));
            };
            let kind = ExprKind::Step {
                target: Box::new(target),
                by,
                post: false,
            };
            let span = reader.since(start);
            return Ok(Expr { span, kind });
        }
        _ => return postfix(reader),
    };
    reader.step()?;
    reader.deeper()?;
    let value = Box::new(unary(reader)?);
    reader.out();
    let span = reader.since(start);
    let kind = ExprKind::Unary { op, value };
    Ok(Expr { span, kind })
}

fn postfix(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    let start = reader.span();
    let expr = primary(reader)?;
    let Token::Sign(sign @ ("++" | "--")) = *reader.token() else {
        return Ok(expr);
    };
    let Some(target) = target(&expr) else {
        return Err(reader.expected("an operator, for only maps and variables have `++` and `--`"));
    };
    reader.step()?;
    let kind = ExprKind::Step {
        target: Box::new(target),
        by: if sign == "++" { 1 } else { -1 },
        post: true,
    };
    let span = reader.since(start);
    Ok(Expr { span, kind })
}

fn primary(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    let start = reader.span();
    let kind = match reader.token().clone() {
        Token::Number(number) => {
            reader.step()?;
            ExprKind::Number(number)
        }
        Token::Text(text) => {
            reader.step()?;
            ExprKind::Text(text)
        }
        Token::Variable(name) => {
            reader.step()?;
            ExprKind::Variable(name)
        }
        Token::Map(name) => {
            reader.step()?;
            let key = match reader.take_sign("[")? {
                true => list(reader, "]")?,
                false => Vec::new(),
            };
            let span = reader.since(start);
            ExprKind::Map(MapRef { name, key, span })
        }
        Token::Word(name) => {
            reader.step()?;
            let name_span = reader.since(start);
            if reader.take_sign("(")? {
                let args = match reader.take_sign(")")? {
                    true => Vec::new(),
                    false => list(reader, ")")?,
                };
                ExprKind::Call {
                    name,
                    name_span,
                    args,
                }
            } else if *reader.token() == Token::Sign(".") {
                reader.step()?;
                let Token::Word(part) = reader.token().clone() else {
                    return Err(reader.expected("a name behind `.`"));
                };
                reader.step()?;
                ExprKind::Name(format!("{name}.{part}"))
            } else {
                ExprKind::Name(name)
            }
        }
        Token::Sign("(") => {
            reader.step()?;
            let expr = expression(reader)?;
            reader.sign(")")?;
            return Ok(Expr {
                span: reader.since(start),
                ..expr
            });
        }
        _ => return Err(reader.expected("a value")),
    };
    let span = reader.since(start);
    Ok(Expr { span, kind })
}

/// Expressions with commas between them, and what ends them.
fn list(reader: &mut Reader<'_>, end: &'static str) -> Result<Vec<Expr>, ScriptError> {
    let mut all = vec![expression(reader)?];
    while reader.take_sign(",")? {
        all.push(expression(reader)?);
    }
    reader.sign(end)?;
    Ok(all)
}

/// What an expression names, if it can be assigned to.
pub fn target(expr: &Expr) -> Option<Target> {
    match &expr.kind {
        ExprKind::Map(map) => Some(Target::Map(map.clone())),
        ExprKind::Variable(name) => Some(Target::Variable {
            name: name.clone(),
            span: expr.span,
        }),
        _ => None,
    }
}
