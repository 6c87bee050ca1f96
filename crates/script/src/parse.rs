//! From tokens to a tree: blocks and statements.

use crate::ast::{BinaryOp, Block, Expr, Probe, Script, Stmt, StmtKind};
use crate::error::{Problem, ScriptError};
use crate::lex::{Lexer, Token};
use crate::parse_expr::{expression, target};
use crate::probe::probe;
use crate::read::{Reader, expected};

/// Reads a script.
///
/// # Errors
/// The first place that does not belong to the language.
pub fn parse(source: &str) -> Result<Script, ScriptError> {
    let mut lexer = Lexer::new(source);
    let mut script = Script::default();
    while !lexer.is_at_end()? {
        let (block, behind) = block(lexer)?;
        script.blocks.push(block);
        lexer = behind;
    }
    match script.blocks.is_empty() {
        false => Ok(script),
        true => Err(Problem::NoProgram.at(lexer.here())),
    }
}

/// Reads one probe and nothing else.
///
/// # Errors
/// It is none.
pub fn one_probe(source: &str) -> Result<Probe, ScriptError> {
    let mut lexer = Lexer::new(source);
    let (text, span) = lexer.probe()?;
    match lexer.is_at_end()? {
        true => probe(&text, span),
        false => {
            let (token, span) = lexer.token()?;
            Err(expected("one probe", &token, span))
        }
    }
}

fn block(mut lexer: Lexer<'_>) -> Result<(Block, Lexer<'_>), ScriptError> {
    let mut probes = Vec::new();
    loop {
        let (text, span) = lexer.probe()?;
        if text.is_empty() {
            let (token, span) = lexer.token()?;
            return Err(expected("a probe", &token, span));
        }
        probes.push(probe(&text, span)?);
        if !lexer.comma() {
            break;
        }
    }
    let mut reader = Reader::new(lexer)?;
    let mut filter = None;
    if reader.take_sign("/")? {
        filter = Some(expression(&mut reader)?);
        match reader.token() {
            Token::FilterEnd => reader.step()?,
            _ => return Err(reader.expected("`/` and `{` behind the filter")),
        };
    } else if *reader.token() != Token::Sign("{") {
        return Err(reader.expected("`{`, or `/FILTER/` and `{`"));
    }
    let body = body(&mut reader)?;
    let block = Block {
        probes,
        filter,
        body,
    };
    Ok((block, reader.behind()))
}

/// The outermost `{ … }`. Behind it stands a probe, so nothing is looked at in advance.
fn body(reader: &mut Reader<'_>) -> Result<Vec<Stmt>, ScriptError> {
    reader.sign("{")?;
    let statements = statements(reader)?;
    reader.close()?;
    Ok(statements)
}

/// `{ … }` inside of one.
fn inner(reader: &mut Reader<'_>) -> Result<Vec<Stmt>, ScriptError> {
    reader.deeper()?;
    reader.sign("{")?;
    let statements = statements(reader)?;
    reader.sign("}")?;
    reader.out();
    Ok(statements)
}

fn statements(reader: &mut Reader<'_>) -> Result<Vec<Stmt>, ScriptError> {
    let mut statements = Vec::new();
    loop {
        while reader.take_sign(";")? {}
        if matches!(reader.token(), Token::Sign("}") | Token::End) {
            return Ok(statements);
        }
        let (statement, needs_end) = statement(reader)?;
        statements.push(statement);
        let ended = matches!(reader.token(), Token::Sign(";" | "}") | Token::End);
        if needs_end && !ended {
            return Err(reader.expected("`;` or `}` behind the statement"));
        }
    }
}

/// A statement, and whether a `;` must stand between it and the next one.
fn statement(reader: &mut Reader<'_>) -> Result<(Stmt, bool), ScriptError> {
    let start = reader.span();
    let (kind, needs_end) = match reader.word() {
        "if" => (branch(reader)?, false),
        "unroll" => {
            reader.step()?;
            let count = in_brackets(reader)?;
            let body = inner(reader)?;
            (StmtKind::Unroll { count, body }, false)
        }
        "while" => {
            reader.step()?;
            let cond = in_brackets(reader)?;
            let body = inner(reader)?;
            (StmtKind::While { cond, body }, false)
        }
        "for" => (count(reader)?, false),
        "break" => (word(reader, StmtKind::Break)?, true),
        "continue" => (word(reader, StmtKind::Continue)?, true),
        "return" => (word(reader, StmtKind::Return)?, true),
        _ => (simple(reader)?, true),
    };
    let span = reader.since(start);
    Ok((Stmt { span, kind }, needs_end))
}

fn word(reader: &mut Reader<'_>, kind: StmtKind) -> Result<StmtKind, ScriptError> {
    reader.step()?;
    Ok(kind)
}

fn in_brackets(reader: &mut Reader<'_>) -> Result<Expr, ScriptError> {
    reader.sign("(")?;
    let expr = expression(reader)?;
    reader.sign(")")?;
    Ok(expr)
}

fn branch(reader: &mut Reader<'_>) -> Result<StmtKind, ScriptError> {
    reader.step()?;
    let cond = in_brackets(reader)?;
    let then = inner(reader)?;
    let mut otherwise = Vec::new();
    if reader.word() == "else" {
        reader.step()?;
        if reader.word() == "if" {
            let start = reader.span();
            reader.deeper()?;
            let kind = branch(reader)?;
            reader.out();
            let span = reader.since(start);
            otherwise.push(Stmt { span, kind });
        } else {
            otherwise = inner(reader)?;
        }
    }
    Ok(StmtKind::If {
        cond,
        then,
        otherwise,
    })
}

/// `for ($i : 0..10) { … }`, with or without the round brackets.
fn count(reader: &mut Reader<'_>) -> Result<StmtKind, ScriptError> {
    const WHAT: &str = "a variable, as in `for ($i : 0..10) { … }`";
    reader.step()?;
    let bracket = reader.take_sign("(")?;
    let span = reader.span();
    let Token::Variable(variable) = reader.token().clone() else {
        return Err(reader.expected(WHAT));
    };
    reader.step()?;
    reader.sign(":")?;
    let from = expression(reader)?;
    reader.sign("..")?;
    let to = expression(reader)?;
    if bracket {
        reader.sign(")")?;
    }
    let body = inner(reader)?;
    Ok(StmtKind::For {
        variable,
        span,
        from,
        to,
        body,
    })
}

/// An assignment, or an expression that does something.
fn simple(reader: &mut Reader<'_>) -> Result<StmtKind, ScriptError> {
    let expr = expression(reader)?;
    let Token::Sign(sign) = *reader.token() else {
        return Ok(StmtKind::Expr(expr));
    };
    let op = match sign {
        "=" => None,
        "+=" => Some(BinaryOp::Add),
        "-=" => Some(BinaryOp::Sub),
        "*=" => Some(BinaryOp::Mul),
        "/=" => Some(BinaryOp::Div),
        "%=" => Some(BinaryOp::Mod),
        "&=" => Some(BinaryOp::And),
        "|=" => Some(BinaryOp::Or),
        "^=" => Some(BinaryOp::Xor),
        "<<=" => Some(BinaryOp::Left),
        ">>=" => Some(BinaryOp::Right),
        _ => return Ok(StmtKind::Expr(expr)),
    };
    let Some(target) = target(&expr) else {
        let problem = Problem::Expected {
            expected: "a map or a variable in front of an assignment".into(),
            found: "something else".into(),
        };
        return Err(problem.at(expr.span));
    };
    reader.step()?;
    let value = expression(reader)?;
    Ok(StmtKind::Assign { target, op, value })
}
