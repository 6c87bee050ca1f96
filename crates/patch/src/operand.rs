//! Operands as numbers: which are sources, and how the elements of a value lie in 64-bit words.

use warpbpf_ptx::ast::{Instruction, Operand};

/// Where the bits of 8 bytes come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Word<'b, 'a> {
    /// Elements, the first one lowest: operand, bytes, and which component if it is a vector
    /// register.
    Parts(Vec<(&'b Operand<'a>, u32, Option<char>)>),
    /// The lower or, if set, the higher half of a 128-bit register.
    Half(&'a str, bool),
}

/// The words of a value of elements of `element` bytes, and its length in bytes. `ty` gives the
/// type of a register.
pub(crate) fn words<'b, 'a>(
    operand: &'b Operand<'a>,
    element: u32,
    ty: &dyn Fn(&str) -> Option<&'a str>,
) -> (Vec<Word<'b, 'a>>, u32) {
    let elements = elements(operand, ty);
    let bytes = element.saturating_mul(elements.len() as u32);
    let words = match element {
        16 => elements
            .iter()
            .flat_map(|(part, _)| match part {
                Operand::Name(name) if *name != "_" => {
                    [Word::Half(name, false), Word::Half(name, true)]
                }
                _ => [Word::Parts(Vec::new()), Word::Parts(Vec::new())],
            })
            .collect(),
        1 | 2 | 4 | 8 => elements
            .chunks(8 / element as usize)
            .map(|chunk| Word::Parts(chunk.iter().map(|(o, c)| (*o, element, *c)).collect()))
            .collect(),
        _ => return (Vec::new(), 0),
    };
    (words, bytes)
}

/// Bits of a constant in an instruction whose type has `size` bytes; 0 for what is no number.
pub(crate) fn constant(operand: &Operand<'_>, size: Option<u32>) -> u64 {
    let bits = match (operand, size) {
        (Operand::Int(value), _) => *value as u64,
        (Operand::F32(bits), _) => u64::from(*bits),
        // PTX ISA "Floating-Point Constants": those without a size are doubles, and converted.
        (Operand::F64(bits), Some(4)) => u64::from((f64::from_bits(*bits) as f32).to_bits()),
        (Operand::F64(bits), _) => *bits,
        _ => 0,
    };
    match size {
        Some(size) if size < 8 => bits & ((1 << (size * 8)) - 1),
        _ => bits,
    }
}

/// A constant expression, which is left to ptxas: `1+2`, `~5`, `WARP_SZ`. `ty` gives the type of a
/// register.
pub(crate) fn expression<'a>(
    operand: &Operand<'a>,
    ty: &dyn Fn(&str) -> Option<&'a str>,
) -> Option<&'a str> {
    match operand {
        // Strings, elements of arrays.
        Operand::Other(text) if text.contains(['"', '[', '{']) => None,
        Operand::Other(text) => Some(text),
        Operand::Name(name) if *name == WARP_SIZE && ty(name).is_none() => Some(name),
        _ => None,
    }
}

/// PTX ISA "Predefined Constants".
const WARP_SIZE: &str = "WARP_SZ";

/// Base and constant expression of an address whose offset is one, `[%rd1+4*2]`.
pub(crate) fn base_and_offset(address: &str) -> Option<(&str, &str)> {
    let inner = address.strip_prefix('[')?;
    let inner = inner.get(..inner.rfind(']')?)?;
    let (base, offset) = inner.split_once('+')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
    let (base, offset) = (base.trim(), offset.trim());
    let plain = !base.is_empty() && base.chars().all(is_name) && !offset.contains(',');
    plain.then_some((base, offset))
}

/// A source operand, and which component if it is one of a vector register.
pub(crate) type SourceOperand<'b, 'a> = (&'b Operand<'a>, Option<char>);

/// The source operands of an instruction, the parts of a vector each for itself. The first operand
/// is the destination, unless it is an address or the instruction gives no result. `ty` gives the
/// type of a register.
pub(crate) fn sources<'b, 'a>(
    i: &'b Instruction<'a>,
    ty: &dyn Fn(&str) -> Option<&'a str>,
) -> Vec<SourceOperand<'b, 'a>> {
    let no_result = matches!(
        i.opcode,
        "bar" | "barrier" | "bra" | "brx" | "nanosleep" | "setmaxnreg" | "stackrestore" | "pmevent"
    ) && !i.has("red")
        || i.opcode == "cp"
        || i.opcode == "wgmma" && i.has("wait_group")
        || i.opcode == "tcgen05" && i.has("dealloc");
    let from = match i.operands.first() {
        Some(Operand::Name(_) | Operand::Pair(..) | Operand::Vector(_)) if !no_result => 1,
        _ => 0,
    };
    let flat = i.operands[from..].iter().flat_map(|o| elements(o, ty));
    flat.collect()
}

/// The parts of a vector, or of a vector register; anything else as it is.
fn elements<'b, 'a>(
    operand: &'b Operand<'a>,
    ty: &dyn Fn(&str) -> Option<&'a str>,
) -> Vec<SourceOperand<'b, 'a>> {
    match operand {
        Operand::Vector(list) => list.iter().map(|part| (part, None)).collect(),
        Operand::Name(name) => match ty(name).and_then(|ty| ty.split_once('.')) {
            Some((width, _)) => {
                let lanes = width.trim_start_matches('v').parse().unwrap_or(0);
                let components = "xyzw".chars().take(lanes);
                components.map(|c| (operand, Some(c))).collect()
            }
            None => vec![(operand, None)],
        },
        _ => vec![(operand, None)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbpf_ptx::ast::StatementKind;

    fn operands(text: &str) -> Vec<String> {
        let text =
            format!(".version 8.3\n.target sm_90\n.address_size 64\n.entry k() {{ {text} }}");
        let module = warpbpf_ptx::index(&text).unwrap();
        let body = warpbpf_ptx::parse_body(&module, &module.functions[0]).unwrap();
        let StatementKind::Instruction(i) = &body[0].kind else {
            panic!("{text}")
        };
        sources(i, &|_| None)
            .iter()
            .map(|(o, _)| format!("{o:?}"))
            .collect()
    }

    #[test]
    fn the_first_operand_is_the_result_of_most() {
        assert_eq!(operands("add.s32 d, a, 5;"), ["Name(\"a\")", "Int(5)"]);
        assert_eq!(
            operands("setp.eq.u32 p|q, a, b;"),
            ["Name(\"a\")", "Name(\"b\")"]
        );
        assert_eq!(operands("bar.sync a, 64;"), ["Name(\"a\")", "Int(64)"]);
        assert_eq!(
            operands("st.global.v2.f32 [a], {b, c};")[1..],
            ["Name(\"b\")", "Name(\"c\")"]
        );
        assert_eq!(operands("mma.x {d, e}, {a, b}, {c}, {d, e};").len(), 5);
        assert_eq!(
            operands("barrier.red.popc.u32 d, 1, p;"),
            ["Int(1)", "Name(\"p\")"]
        );
        assert_eq!(operands("ret;").len(), 0);
    }

    #[test]
    fn expressions_and_offsets_that_are_such() {
        let none = |_: &str| None;
        assert_eq!(expression(&Operand::Other("1+2"), &none), Some("1+2"));
        assert_eq!(expression(&Operand::Other("a[1]"), &none), None);
        assert_eq!(expression(&Operand::Other("\"x\""), &none), None);
        let size = Operand::Name("WARP_SZ");
        assert_eq!(expression(&size, &none), Some("WARP_SZ"));
        assert_eq!(expression(&size, &|_| Some("u32")), None);
        assert_eq!(base_and_offset("[%rd1 + 4*2]"), Some(("%rd1", "4*2")));
        assert_eq!(base_and_offset("[a+(8)].unified"), Some(("a", "(8)")));
        assert_eq!(base_and_offset("[4*2]"), None);
        assert_eq!(base_and_offset("[a+4*2, {b}]"), None);
        assert_eq!(base_and_offset("a[1]"), None);
    }

    #[test]
    fn elements_fill_words_from_below() {
        let list = Operand::Vector((0..3).map(Operand::Int).collect());
        let (words, bytes) = words(&list, 4, &|_| None);
        assert_eq!(bytes, 12);
        assert_eq!(words.len(), 2);
        assert!(matches!(&words[0], Word::Parts(parts) if parts.len() == 2));
        let vector = Operand::Name("v");
        let (words, bytes) = super::words(&vector, 8, &|_| Some("v2.f64"));
        assert_eq!((words.len(), bytes), (2, 16));
    }

    #[test]
    fn constants_take_the_size_of_their_instruction() {
        assert_eq!(constant(&Operand::Int(-1), Some(4)), 0xffff_ffff);
        assert_eq!(constant(&Operand::Int(-1), None), u64::MAX);
        assert_eq!(
            constant(&Operand::F64(1.5f64.to_bits()), Some(4)),
            0x3fc0_0000
        );
        assert_eq!(
            constant(&Operand::F64(1.5f64.to_bits()), Some(8)),
            1.5f64.to_bits()
        );
        assert_eq!(constant(&Operand::Other("x"), None), 0);
    }
}
