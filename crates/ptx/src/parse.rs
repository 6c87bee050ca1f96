//! The statements of one function's body. Nothing here knows an opcode: what an instruction means
//! is for those who look at it, and an unknown one must survive being looked past.

use crate::ast::{Function, Guard, Instruction, Linkage, Loc, Module, Statement, StatementKind};
use crate::decl;
use crate::error::PtxError;
use crate::lex::Cursor;
use crate::operand;

/// The statements of `function`'s body in text order; none for a prototype. Spans are offsets into
/// `module.text`, in order, and do not overlap; between them stand only blanks, comments and lone
/// `;`.
///
/// # Errors
/// The first place where the body does not follow the grammar. Opcodes, modifiers and directives
/// that are not known are no error.
///
/// # Examples
/// ```
/// use warpbpf_ptx::ast::StatementKind;
/// let text = ".version 8.3\n.target sm_90\n.address_size 64\n\
///     .entry k() { @!%p1 bra DONE; DONE: ret; }";
/// let module = warpbpf_ptx::index(text).unwrap();
/// let body = warpbpf_ptx::parse_body(&module, &module.functions[0]).unwrap();
/// assert_eq!(body.len(), 3);
/// let StatementKind::Instruction(branch) = &body[0].kind else { panic!() };
/// assert_eq!((branch.opcode, branch.guard.unwrap().negated), ("bra", true));
/// ```
pub fn parse_body<'a>(
    module: &Module<'a>,
    function: &Function<'a>,
) -> Result<Vec<Statement<'a>>, PtxError> {
    let Some(body) = function.body.clone() else {
        return Ok(Vec::new());
    };
    let mut c = Cursor::new(module.text, body);
    let mut out = Vec::new();
    loop {
        c.skip_blank()?;
        let start = c.pos;
        let kind = match c.peek() {
            None => return Ok(out),
            Some(b';') => {
                c.pos += 1;
                continue;
            }
            Some(b'{') => {
                c.pos += 1;
                StatementKind::Open
            }
            Some(b'}') => {
                c.pos += 1;
                StatementKind::Close
            }
            Some(b'@') => StatementKind::Instruction(guarded(&mut c)?),
            Some(_) if c.at_directive() => {
                let word = c.directive()?;
                if decl::is_variable_space(word) {
                    let variables = decl::variables(&mut c, start, Linkage::Local, word)?;
                    out.extend(variables.into_iter().map(|(span, v)| Statement {
                        span,
                        kind: StatementKind::Variable(v),
                    }));
                    continue;
                }
                directive(&mut c, start, word)?
            }
            Some(_) => named(&mut c)?,
        };
        out.push(Statement {
            span: start..c.pos,
            kind,
        });
    }
}

/// A directive other than a variable; `word` is read already.
fn directive<'a>(
    c: &mut Cursor<'a>,
    start: usize,
    word: &'a str,
) -> Result<StatementKind<'a>, PtxError> {
    match word {
        "reg" => Ok(StatementKind::Registers(decl::registers(c)?)),
        "loc" => Ok(StatementKind::Loc(loc(c)?)),
        "pragma" => {
            let first = c.string()?;
            let from = c.pos - 1 - first.len();
            let mut to = c.pos - 1;
            while c.eat(b',')? {
                c.string()?;
                to = c.pos - 1;
            }
            let text = c.slice(from..to);
            c.expect(b';', "`;`")?;
            Ok(StatementKind::Pragma(text))
        }
        _ => {
            let end = loop {
                c.skip_blank()?;
                match c.peek() {
                    Some(b';') => break c.pos,
                    Some(b',') => c.pos += 1,
                    _ => drop(c.raw("`;`")?),
                }
            };
            c.pos += 1;
            Ok(StatementKind::Directive(c.slice(start..end).trim_end()))
        }
    }
}

/// `.loc file line column[, function_name label[+n], inlined_at file line column]`, PTX ISA
/// "Debugging Directives: .loc". It has no `;`.
fn loc<'a>(c: &mut Cursor<'a>) -> Result<Loc<'a>, PtxError> {
    let mut loc = Loc {
        file: c.integer32("a file index")?,
        line: c.integer32("a line")?,
        column: c.integer32("a column")?,
        inlined: None,
    };
    let mut label = None;
    loop {
        let end = c.pos;
        if !c.eat(b',')? {
            c.pos = end;
            return Ok(loc);
        }
        match c.expect_identifier("`function_name` or `inlined_at`")? {
            "function_name" => {
                c.skip_blank()?;
                let start = c.pos;
                // Sections are named with a dot.
                let dot = usize::from(c.at_directive());
                c.pos += dot;
                c.expect_identifier("a label")?;
                let mut end = c.pos;
                if c.eat(b'+')? {
                    c.integer("an offset")?;
                    end = c.pos;
                }
                c.pos = end;
                label = Some(c.slice(start + dot..end));
            }
            "inlined_at" => {
                let site = (
                    c.integer32("a file index")?,
                    c.integer32("a line")?,
                    c.integer32("a column")?,
                );
                loc.inlined = Some((label.unwrap_or(""), site.0, site.1, site.2));
            }
            word => {
                c.pos -= word.len();
                return Err(c.unexpected("`function_name` or `inlined_at`"));
            }
        }
    }
}

/// A label, what a label names, or an instruction: all begin with a word.
fn named<'a>(c: &mut Cursor<'a>) -> Result<StatementKind<'a>, PtxError> {
    let start = c.pos;
    let name = c
        .identifier()
        .ok_or_else(|| c.unexpected("an instruction, a label or a directive"))?;
    c.skip_blank()?;
    if c.peek() != Some(b':') || c.peek_at(1) == Some(b':') {
        c.pos = start;
        return Ok(StatementKind::Instruction(instruction(c, None)?));
    }
    c.pos += 1;
    let label_end = c.pos;
    c.skip_blank()?;
    if c.at_directive() {
        match c.directive()? {
            "callprototype" => return call_prototype(c, name),
            "branchtargets" => {
                return Ok(StatementKind::BranchTargets {
                    name,
                    targets: names(c, "a label")?,
                });
            }
            "calltargets" => {
                return Ok(StatementKind::CallTargets {
                    name,
                    targets: names(c, "a function")?,
                });
            }
            _ => {}
        }
    }
    c.pos = label_end;
    Ok(StatementKind::Label(name))
}

/// `(ret) _ (params) directives;`, PTX ISA ".callprototype".
fn call_prototype<'a>(c: &mut Cursor<'a>, name: &'a str) -> Result<StatementKind<'a>, PtxError> {
    c.skip_blank()?;
    let returns = if c.peek() == Some(b'(') {
        decl::parameters(c)?.0
    } else {
        Vec::new()
    };
    c.expect_identifier("`_`")?;
    c.skip_blank()?;
    let params = if c.peek() == Some(b'(') {
        decl::parameters(c)?.0
    } else {
        Vec::new()
    };
    while !c.eat(b';')? {
        if !c.at_directive() {
            return Err(c.unexpected("a directive or `;`"));
        }
        c.directive()?;
        c.skip_blank()?;
        if c.peek().is_some_and(|b| b.is_ascii_digit()) {
            c.number("a number")?;
        }
    }
    Ok(StatementKind::CallPrototype {
        name,
        returns,
        params,
    })
}

fn names<'a>(c: &mut Cursor<'a>, expected: &'static str) -> Result<Vec<&'a str>, PtxError> {
    let mut names = Vec::new();
    loop {
        names.push(c.expect_identifier(expected)?);
        if c.eat(b';')? {
            return Ok(names);
        }
        c.expect(b',', "`,` or `;`")?;
    }
}

/// `@p` or `@!p`, and the instruction behind it.
fn guarded<'a>(c: &mut Cursor<'a>) -> Result<Instruction<'a>, PtxError> {
    c.expect(b'@', "`@`")?;
    let negated = c.eat(b'!')?;
    let register = c.expect_identifier("a guard predicate")?;
    c.skip_blank()?;
    instruction(c, Some(Guard { register, negated }))
}

/// An instruction from its opcode to its `;`.
fn instruction<'a>(
    c: &mut Cursor<'a>,
    guard: Option<Guard<'a>>,
) -> Result<Instruction<'a>, PtxError> {
    let start = c.pos;
    // Names of registers and compilers' labels begin otherwise.
    if !c
        .peek()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
    {
        return Err(c.unexpected("an instruction"));
    }
    let opcode = c
        .identifier()
        .ok_or_else(|| c.unexpected("an instruction"))?;
    let mut end = c.pos;
    let mut modifiers = Vec::new();
    loop {
        c.skip_blank()?;
        if c.peek() != Some(b'.') {
            break;
        }
        c.pos += 1;
        let modifier = c.modifier();
        if modifier.is_empty() {
            return Err(c.unexpected("a modifier after the `.`"));
        }
        modifiers.push(modifier);
        end = c.pos;
    }
    let name = c.slice(start..end);
    let (operands, operand_spans) = operand::list(c, b';', "`,` or `;` after the operand", 0)?;
    Ok(Instruction {
        guard,
        opcode,
        modifiers,
        name,
        operands,
        operand_spans,
    })
}
