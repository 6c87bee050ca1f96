//! Declarations: variables and parameters read alike at module scope, in signatures and in bodies.

use crate::ast::{Linkage, Param, RegisterDecl, Span, Variable};
use crate::error::PtxError;
use crate::lex::Cursor;

/// The spaces a variable can be declared in, PTX ISA "State Spaces".
pub(crate) fn is_variable_space(directive: &str) -> bool {
    matches!(
        directive,
        "global" | "const" | "shared" | "local" | "param" | "tex"
    )
}

/// What stands between a space and a name.
struct TypePart<'a> {
    ty: &'a str,
    align: u64,
    attribute: Option<&'a str>,
}

/// `v4.f32` for the words `.v4` and `.f32`, which the text may hold apart. `None` for a type we
/// have no name for.
fn vector_name(width: &str, element: &str) -> Option<&'static str> {
    macro_rules! names {
        ($($element:literal)*) => {
            match (width, element) {
                $(
                    ("v2", $element) => Some(concat!("v2.", $element)),
                    ("v4", $element) => Some(concat!("v4.", $element)),
                    ("v8", $element) => Some(concat!("v8.", $element)),
                )*
                _ => None,
            }
        };
    }
    names!("b8" "b16" "b32" "b64" "b128" "u8" "u16" "u32" "u64" "s8" "s16" "s32" "s64" "f16" "f16x2" "bf16" "bf16x2"
        "tf32" "f32" "f32x2" "f64" "pred")
}

/// Bytes of one element of `ty`, PTX ISA "Fundamental Types" and "Packed Data Types". Opaque types
/// are handles of 8 bytes. `None` for a type we do not know.
pub fn type_size(ty: &str) -> Option<u64> {
    if let Some((width, element)) = ty.split_once('.') {
        let lanes: u64 = width.strip_prefix('v')?.parse().ok()?;
        return type_size(element)?.checked_mul(lanes);
    }
    Some(match ty {
        "pred" | "b8" | "u8" | "s8" | "e4m3" | "e5m2" | "e2m1x2" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" | "e3m2x2" | "e2m3x2"
        | "ue8m0x2" | "e2m1x4" => 2,
        "b32" | "u32" | "s32" | "f32" | "tf32" | "f16x2" | "bf16x2" | "u16x2" | "s16x2"
        | "e4m3x4" | "e5m2x4" | "e3m2x4" | "e2m3x4" => 4,
        "b64" | "u64" | "s64" | "f64" | "f32x2" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    })
}

/// The words between a space and a name. `pointer` allows `.ptr`, after which space and alignment
/// are the pointee's.
fn type_part<'a>(c: &mut Cursor<'a>, pointer: bool) -> Result<TypePart<'a>, PtxError> {
    let mut vector: Option<(&'a str, usize)> = None;
    let mut ty: Option<&'a str> = None;
    let mut align = None;
    let mut attribute = None;
    let mut pointee = false;
    loop {
        c.skip_blank()?;
        if !c.at_directive() {
            break;
        }
        let at = c.pos;
        match c.directive()? {
            "align" => {
                let value = c.integer("an alignment in bytes")?;
                if !pointee {
                    align = Some(value);
                }
            }
            "attribute" => {
                c.expect(b'(', "`(`")?;
                let start = c.pos;
                loop {
                    c.raw("an attribute")?;
                    if c.peek() != Some(b',') {
                        break;
                    }
                    c.pos += 1;
                }
                attribute = Some(c.since(start).trim());
                c.expect(b')', "`,` or `)` after the attribute")?;
            }
            width @ ("v2" | "v4" | "v8") if vector.is_none() && ty.is_none() => {
                vector = Some((width, at + 1))
            }
            "ptr" if pointer && ty.is_some() => pointee = true,
            "global" | "const" | "shared" | "local" | "param" if pointee => {}
            word if ty.is_none() => {
                ty = Some(match vector {
                    Some((width, start)) => {
                        vector_name(width, word).unwrap_or_else(|| c.since(start))
                    }
                    None => word,
                });
            }
            _ => {
                c.pos = at;
                break;
            }
        }
    }
    let Some(ty) = ty else {
        return Err(c.unexpected("a type"));
    };
    // An alignment we cannot know is the strictest a scalar can have.
    let align = align.or_else(|| type_size(ty)).unwrap_or(16);
    Ok(TypePart {
        ty,
        align,
        attribute,
    })
}

/// `[4][]` after a name: the dimensions, 0 for an open one, and where the last one ends.
fn dimensions(c: &mut Cursor<'_>) -> Result<(Vec<u64>, usize), PtxError> {
    let mut dims = Vec::new();
    let mut end = c.pos;
    while c.eat(b'[')? {
        c.skip_blank()?;
        dims.push(if c.peek() == Some(b']') {
            0
        } else {
            c.integer("an array dimension or `]`")?
        });
        c.expect(b']', "`]`")?;
        end = c.pos;
    }
    Ok((dims, end))
}

/// Variables after their space directive, up to the `;` inclusive, each with the bytes of its own
/// declarator; these pieces follow each other from `start` on, a comma belonging to the piece
/// before it.
pub(crate) fn variables<'a>(
    c: &mut Cursor<'a>,
    start: usize,
    linkage: Linkage,
    space: &'a str,
) -> Result<Vec<(Span, Variable<'a>)>, PtxError> {
    // `.const[2]`: constant banks of PTX 1.x and 2.x.
    if c.eat(b'[')? {
        c.integer("a constant bank")?;
        c.expect(b']', "`]`")?;
    }
    let part = type_part(c, false)?;
    let mut found = Vec::new();
    let mut piece = start;
    loop {
        let name = c.expect_identifier("a variable name")?;
        let (dims, _) = dimensions(c)?;
        let init = if c.eat(b'=')? {
            Some(c.raw("an initialiser")?)
        } else {
            None
        };
        c.skip_blank()?;
        let last = match c.peek() {
            Some(b';') => true,
            Some(b',') => false,
            _ if init.is_some() => return Err(c.unexpected("`,` or `;` after the initialiser")),
            _ => return Err(c.unexpected("`[`, `=`, `,` or `;` after the variable's name")),
        };
        c.pos += 1;
        let variable = Variable {
            linkage,
            space,
            ty: part.ty,
            name,
            align: part.align,
            dims,
            init,
            attribute: part.attribute,
            span: start..c.pos,
        };
        found.push((piece..c.pos, variable));
        if last {
            break;
        }
        c.skip_blank()?;
        piece = c.pos;
    }
    for (_, variable) in &mut found {
        variable.span.end = c.pos;
    }
    Ok(found)
}

/// A parenthesised parameter list; the cursor stands on its `(`. The parameters and the bytes
/// between the parentheses.
pub(crate) fn parameters<'a>(c: &mut Cursor<'a>) -> Result<(Vec<Param<'a>>, Span), PtxError> {
    c.expect(b'(', "`(`")?;
    let start = c.pos;
    let mut params = Vec::new();
    if c.eat(b')')? {
        return Ok((params, start..c.pos - 1));
    }
    loop {
        params.push(parameter(c)?);
        if c.eat(b')')? {
            return Ok((params, start..c.pos - 1));
        }
        c.expect(b',', "`,` or `)` after the parameter")?;
    }
}

fn parameter<'a>(c: &mut Cursor<'a>) -> Result<Param<'a>, PtxError> {
    c.skip_blank()?;
    let start = c.pos;
    let is_reg = match c.directive() {
        Ok("param") => false,
        Ok("reg") => true,
        _ => {
            c.pos = start;
            return Err(c.unexpected("`.param` or `.reg`"));
        }
    };
    let part = type_part(c, true)?;
    let name = c.expect_identifier("a parameter name")?;
    let dims_at = c.pos;
    let (dims, end) = dimensions(c)?;
    let array = if dims.is_empty() {
        None
    } else {
        let elements = dims
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim));
        Some(elements.ok_or_else(|| {
            c.bad_number(
                dims_at,
                "the array has more elements than 64 bits can count",
            )
        })?)
    };
    Ok(Param {
        name,
        ty: part.ty,
        array,
        align: part.align,
        is_reg,
        span: start..end,
    })
}

/// The declarators of `.reg`, up to the `;` inclusive.
pub(crate) fn registers<'a>(c: &mut Cursor<'a>) -> Result<Vec<RegisterDecl<'a>>, PtxError> {
    let part = type_part(c, false)?;
    let mut found = Vec::new();
    loop {
        let name = c.expect_identifier("a register name")?;
        let count = if c.eat(b'<')? {
            let count = c.integer32("a register count")?;
            c.expect(b'>', "`>`")?;
            Some(count)
        } else {
            None
        };
        found.push(RegisterDecl {
            ty: part.ty,
            name,
            count,
        });
        c.skip_blank()?;
        match c.peek() {
            Some(b',') => c.pos += 1,
            Some(b';') => {
                c.pos += 1;
                return Ok(found);
            }
            _ => return Err(c.unexpected("`<`, `,` or `;` after the register's name")),
        }
    }
}
