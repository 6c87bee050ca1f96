//! The one pass over a module that everything else starts from. It reads declarations and skips
//! bodies by their braces, so that opening a module of megabytes to instrument one kernel costs
//! little more than reading its memory.

use crate::ast::{Alias, Function, Linkage, Module};
use crate::decl;
use crate::error::PtxError;
use crate::lex::Cursor;

/// Indexes a PTX module (PTX ISA "Source Format" to "Directives"). Unknown module-scope directives
/// are kept in [`Module::others`].
///
/// # Errors
/// The first place where the text does not follow the grammar, or a missing `.version` or
/// `.target`.
///
/// # Examples
/// ```
/// let text = ".version 8.3\n.target sm_90a\n.address_size 64\n\
///     .visible .entry k(.param .u64 p)\n{\n\tret;\n}\n";
/// let module = warpbpf_ptx::index(text).unwrap();
/// let kernel = module.function("k").unwrap();
/// assert_eq!(kernel.params[0].ty, "u64");
/// assert_eq!(&text[kernel.body.clone().unwrap()], "\n\tret;\n");
/// ```
pub fn index(text: &str) -> Result<Module<'_>, PtxError> {
    let mut c = Cursor::new(text, 0..text.len());
    let mut module = Module {
        text,
        version: (0, 0),
        targets: Vec::new(),
        address_size: 32,
        header_end: 0,
        functions: Vec::new(),
        variables: Vec::new(),
        files: Vec::new(),
        aliases: Vec::new(),
        others: Vec::new(),
    };
    let mut versions = 0usize;
    loop {
        c.skip_blank()?;
        let start = c.pos;
        match c.peek() {
            None => break,
            Some(b';') => {
                c.pos += 1;
                continue;
            }
            // `@@DWARF` lines of old compilers and `#` lines of preprocessors say something to
            // other tools only.
            Some(b'@' | b'#') => {
                c.skip_line();
                module.others.push(start..c.pos);
                continue;
            }
            Some(_) if c.at_directive() => {}
            Some(_) => return Err(c.unexpected("a module-scope directive")),
        }
        let word = c.directive()?;
        if versions == 0 && word != "version" {
            c.pos = start;
            return Err(c.unexpected("`.version`, which every module begins with"));
        }
        match word {
            "version" => {
                let version = version(&mut c)?;
                if versions == 0 {
                    module.version = version;
                    module.header_end = c.pos;
                }
                versions += 1;
            }
            "target" => {
                targets(&mut c, &mut module.targets)?;
                if module.functions.is_empty() && module.variables.is_empty() {
                    module.header_end = c.pos;
                }
            }
            "address_size" => {
                module.address_size = c.integer32("32 or 64")?;
                module.header_end = c.pos;
            }
            "file" => {
                let file = c.integer32("a file index")?;
                module.files.push((file, c.string()?));
                // Modification time and size.
                while c.eat(b',')? {
                    c.integer("a number")?;
                }
            }
            "alias" => {
                let name = c.expect_identifier("a function's other name")?;
                c.expect(b',', "`,` and the function")?;
                let target = c.expect_identifier("a function")?;
                c.expect(b';', "`;`")?;
                module.aliases.push(Alias { name, target });
                module.others.push(start..c.pos);
            }
            "visible" | "extern" | "weak" | "common" | "entry" | "func" => {
                linked(&mut c, start, word, &mut module)?;
            }
            space if decl::is_variable_space(space) => {
                let found = decl::variables(&mut c, start, Linkage::Local, space)?;
                module
                    .variables
                    .extend(found.into_iter().map(|(_, variable)| variable));
            }
            _ => {
                other(&mut c)?;
                module.others.push(start..c.pos);
            }
        }
    }
    if versions == 0 {
        return Err(PtxError::MissingDirective {
            directive: ".version",
        });
    }
    if module.targets.is_empty() {
        return Err(PtxError::MissingDirective {
            directive: ".target",
        });
    }
    Ok(module)
}

/// `8.3`: not a number of the other grammar, where 8.10 would be 8.1.
fn version(c: &mut Cursor<'_>) -> Result<(u32, u32), PtxError> {
    c.skip_blank()?;
    let start = c.pos;
    if !c.peek().is_some_and(|b| b.is_ascii_digit()) {
        return Err(c.unexpected("a version number"));
    }
    while c.peek().is_some_and(|b| b.is_ascii_digit() || b == b'.') {
        c.pos += 1;
    }
    let parsed = c
        .since(start)
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| c.bad_number(start, "a version is written major.minor"))
}

fn targets<'a>(c: &mut Cursor<'a>, targets: &mut Vec<&'a str>) -> Result<(), PtxError> {
    loop {
        targets.push(c.expect_identifier("a target such as `sm_90`")?);
        // A look ahead that is not taken would otherwise move the header's end past the blank after
        // it.
        let end = c.pos;
        if !c.eat(b',')? {
            c.pos = end;
            return Ok(());
        }
    }
}

/// An item from its linking directive on; `word` is the first directive, already read.
fn linked<'a>(
    c: &mut Cursor<'a>,
    start: usize,
    word: &'a str,
    module: &mut Module<'a>,
) -> Result<(), PtxError> {
    let mut linkage = Linkage::Local;
    let mut word = word;
    loop {
        linkage = match word {
            "visible" => Linkage::Visible,
            "extern" => Linkage::Extern,
            "weak" => Linkage::Weak,
            "common" => Linkage::Common,
            "entry" | "func" => {
                let function = function(c, start, linkage, word == "entry")?;
                module.functions.push(function);
                return Ok(());
            }
            space if decl::is_variable_space(space) => {
                let found = decl::variables(c, start, linkage, space)?;
                module
                    .variables
                    .extend(found.into_iter().map(|(_, variable)| variable));
                return Ok(());
            }
            _ => {
                c.pos -= word.len() + 1;
                return Err(c.unexpected("`.entry`, `.func` or a variable's state space"));
            }
        };
        c.skip_blank()?;
        word = match c.directive() {
            Ok(word) => word,
            Err(_) => return Err(c.unexpected("`.entry`, `.func` or a variable's state space")),
        };
    }
}

/// An `.entry` or `.func` behind that word, PTX ISA "Kernel and Function Directives".
fn function<'a>(
    c: &mut Cursor<'a>,
    start: usize,
    linkage: Linkage,
    is_entry: bool,
) -> Result<Function<'a>, PtxError> {
    let mut directives = Vec::new();
    let mut returns = Vec::new();
    let (name, name_span) = loop {
        c.skip_blank()?;
        if c.at_directive() {
            directives.push(directive_text(c, false)?);
        } else if c.peek() == Some(b'(') && !is_entry && returns.is_empty() {
            returns = decl::parameters(c)?.0;
        } else {
            let at = c.pos;
            break (c.expect_identifier("a function name")?, at..c.pos);
        }
    };
    let mut end = c.pos;
    c.skip_blank()?;
    let (params, params_span) = if c.peek() == Some(b'(') {
        let (params, span) = decl::parameters(c)?;
        end = c.pos;
        (params, Some(span))
    } else {
        (Vec::new(), None)
    };
    let body = loop {
        c.skip_blank()?;
        match c.peek() {
            // The `;` of a prototype may be missing. What follows must not be taken for its
            // directives.
            Some(b'.') if !is_entry && at_item(c) => {
                c.pos = end;
                break None;
            }
            Some(b'{') => break Some(c.skip_braces()?),
            Some(b';') => {
                c.pos += 1;
                break None;
            }
            Some(_) if c.at_directive() && !at_item(c) => {
                let directive = directive_text(c, true)?;
                // A pragma ends in a `;` of its own, which does not end the declaration.
                if directive.starts_with(".pragma") {
                    c.expect(b';', "`;`")?;
                }
                end = c.pos;
                directives.push(directive);
            }
            _ => return Err(c.unexpected("a performance directive, `{` or `;`")),
        }
    };
    Ok(Function {
        is_entry,
        linkage,
        name,
        name_span,
        returns,
        params,
        params_span,
        directives,
        body,
        span: start..c.pos,
    })
}

/// One directive of a function with its arguments, as written. Before the name an identifier is the
/// name, so only behind it (`words`) can one be an argument.
fn directive_text<'a>(c: &mut Cursor<'a>, words: bool) -> Result<&'a str, PtxError> {
    let start = c.pos;
    c.directive()?;
    let mut end = c.pos;
    loop {
        c.skip_blank()?;
        match c.peek() {
            Some(b'(') => {
                c.pos += 1;
                while !c.eat(b')')? {
                    if !c.eat(b',')? {
                        c.raw("an argument or `)`")?;
                    }
                }
            }
            Some(b',') => c.pos += 1,
            Some(b'"') => drop(c.string()?),
            Some(b'0'..=b'9') => drop(c.number("a number")?),
            Some(_) if words && c.at_identifier() => drop(c.identifier()),
            _ => return Ok(c.slice(start..end)),
        }
        end = c.pos;
    }
}

/// A directive we do not read: up to its `;`, its `{…}`, or the line on which another item begins.
/// The cursor ends behind its last token.
fn other(c: &mut Cursor<'_>) -> Result<(), PtxError> {
    let mut end = c.pos;
    loop {
        c.skip_blank()?;
        match c.peek() {
            Some(b';') => {
                c.pos += 1;
                return Ok(());
            }
            Some(b'{') => {
                c.skip_braces()?;
                return Ok(());
            }
            Some(b'"') => drop(c.string()?),
            Some(b'.') => {
                let at = c.pos;
                let line_break = c.slice(end..at).contains('\n');
                // An error costs a count of lines: none where it would be thrown away.
                let word = if c.at_directive() { c.directive()? } else { "" };
                if line_break && starts_item(word) {
                    c.pos = end;
                    return Ok(());
                }
                c.pos = at + 1 + word.len();
            }
            Some(byte) if byte.is_ascii() => c.pos += 1,
            Some(_) => return Err(c.unexpected("`;` or `{`")),
            None => {
                c.pos = end;
                return Ok(());
            }
        }
        end = c.pos;
    }
}

/// True at the directive of another item, which a function's own directives cannot be.
fn at_item(c: &Cursor<'_>) -> bool {
    let word = c.clone().directive().unwrap_or_default();
    word != "pragma" && starts_item(word)
}

fn starts_item(word: &str) -> bool {
    matches!(
        word,
        "version"
            | "target"
            | "address_size"
            | "file"
            | "section"
            | "pragma"
            | "alias"
            | "visible"
            | "extern"
            | "weak"
            | "common"
            | "entry"
            | "func"
            | "reg"
    ) || decl::is_variable_space(word)
}
