//! How many bytes a tensor copy moves: read from the tensor map when the copy is executed, because
//! one copy of a kernel serves whatever map it is given, and because kernels change maps themselves
//! (`tensormap.replace`). Where a map holds the numbers is the driver's secret; whoever patches
//! says what it learned of it, see [`TensorLayout`].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf_ptx::access::TensorBox;

/// Bits of a tensor map, which do not cross a 64-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorBits {
    /// The first one, counted from the map's start.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// A number in a tensor map: `bits × step + bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorField {
    /// Where.
    pub bits: TensorBits,
    /// The number is a multiple of it, but for the bias.
    pub step: u32,
    /// What the number is if no bit is set.
    pub bias: u32,
}

/// Where tensor maps hold the size of their boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorLayout {
    /// Elements of the box in each dimension, innermost first.
    pub size: [TensorField; 5],
    /// Every how many-th element is taken, from the second dimension on. The hardware does not look
    /// at the first one's.
    pub strides: [TensorField; 4],
    /// Of an image: elements of a pixel.
    pub channels: TensorField,
    /// Of an image: pixels.
    pub pixels: TensorField,
    /// The number of the elements' type, in pieces, the lowest first; together at most 5 bits.
    /// Pieces may have no bits.
    pub element: [TensorBits; 5],
    /// By that number: the type is known.
    pub known: u32,
    /// By that number: the logarithm of the bytes of an element, 2 bits each.
    pub sizes: u64,
}

/// Sets the 32-bit register `d` to the bytes that a copy moves; `map` holds the generic address of
/// the tensor map. 0 for a type of elements that is not known. Everything is declared within.
pub(crate) fn bytes(layout: &TensorLayout, shape: TensorBox, map: &str, d: &str) -> String {
    let fields: Vec<(TensorField, Option<TensorField>)> = match shape {
        TensorBox::Tile(rank) => {
            let strides = std::iter::once(None).chain(layout.strides.iter().copied().map(Some));
            layout
                .size
                .iter()
                .copied()
                .zip(strides)
                .take(rank as usize)
                .collect()
        }
        TensorBox::Rows => vec![(layout.size[0], None)],
        TensorBox::Im2col => vec![(layout.channels, None), (layout.pixels, None)],
    };
    let numbers = fields
        .iter()
        .flat_map(|(size, stride)| std::iter::once(*size).chain(*stride));
    let pieces = layout.element.into_iter().filter(|piece| piece.count > 0);
    let words: BTreeSet<u32> = numbers
        .map(|field| field.bits)
        .chain(pieces.clone())
        .map(|bits| bits.first / 64)
        .collect();
    let mut out = String::from("\t{\n\t.reg .b64 %wbpf_x;\n\t.reg .b32 %wbpf_n, %wbpf_s;\n");
    for word in &words {
        put(&mut out, format_args!(".reg .b64 %wbpf_m{word};"));
        put(
            &mut out,
            format_args!("ld.b64 %wbpf_m{word}, [{map}+{}];", word * 8),
        );
    }
    put(&mut out, format_args!("mov.b32 %wbpf_n, 0;"));
    let mut above = 0;
    for piece in pieces {
        take(&mut out, piece, "%wbpf_s");
        put(&mut out, format_args!("shl.b32 %wbpf_s, %wbpf_s, {above};"));
        put(&mut out, format_args!("or.b32 %wbpf_n, %wbpf_n, %wbpf_s;"));
        above += piece.count;
    }
    // 1 << size for a type that is known.
    put(
        &mut out,
        format_args!("mov.b32 %wbpf_s, {:#x};", layout.known),
    );
    put(&mut out, format_args!("shr.u32 %wbpf_s, %wbpf_s, %wbpf_n;"));
    put(&mut out, format_args!("and.b32 {d}, %wbpf_s, 1;"));
    put(&mut out, format_args!("shl.b32 %wbpf_n, %wbpf_n, 1;"));
    put(
        &mut out,
        format_args!("mov.b64 %wbpf_x, {:#x};", layout.sizes),
    );
    put(&mut out, format_args!("shr.u64 %wbpf_x, %wbpf_x, %wbpf_n;"));
    put(&mut out, format_args!("cvt.u32.u64 %wbpf_n, %wbpf_x;"));
    put(&mut out, format_args!("and.b32 %wbpf_n, %wbpf_n, 3;"));
    put(&mut out, format_args!("shl.b32 {d}, {d}, %wbpf_n;"));
    for (size, stride) in fields {
        number(&mut out, size, "%wbpf_n");
        if let Some(stride) = stride {
            number(&mut out, stride, "%wbpf_s");
            put(&mut out, format_args!("add.u32 %wbpf_n, %wbpf_n, %wbpf_s;"));
            put(&mut out, format_args!("sub.u32 %wbpf_n, %wbpf_n, 1;"));
            put(&mut out, format_args!("div.u32 %wbpf_n, %wbpf_n, %wbpf_s;"));
        }
        put(&mut out, format_args!("mul.lo.u32 {d}, {d}, %wbpf_n;"));
    }
    if shape == TensorBox::Rows {
        put(&mut out, format_args!("shl.b32 {d}, {d}, 2;"));
    }
    out.push_str("\t}\n");
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\t{text}");
}

/// Bits of the map into a 32-bit register.
fn take(out: &mut String, bits: TensorBits, d: &str) {
    let (word, at) = (bits.first / 64, bits.first % 64);
    let mask = (1u64 << bits.count) - 1;
    put(out, format_args!("shr.u64 %wbpf_x, %wbpf_m{word}, {at};"));
    put(out, format_args!("cvt.u32.u64 {d}, %wbpf_x;"));
    put(out, format_args!("and.b32 {d}, {d}, {mask:#x};"));
}

fn number(out: &mut String, field: TensorField, d: &str) {
    take(out, field.bits, d);
    put(
        out,
        format_args!("mad.lo.u32 {d}, {d}, {}, {};", field.step, field.bias),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(first: u32, count: u32, step: u32, bias: u32) -> TensorField {
        let bits = TensorBits { first, count };
        TensorField { bits, step, bias }
    }

    /// Sizes from bit 0 on, strides in the last word, the type in bits 8 and 128.
    fn layout() -> TensorLayout {
        let mut element = [TensorBits::default(); 5];
        element[0] = TensorBits { first: 8, count: 1 };
        element[1] = TensorBits {
            first: 128,
            count: 1,
        };
        TensorLayout {
            size: [0, 1, 2, 3, 4].map(|at| field(64 * at, 8, 1, 1)),
            strides: [0, 1, 2, 3].map(|at| field(960 + 3 * at, 3, 1, 1)),
            channels: field(17, 7, 2, 2),
            pixels: field(64, 10, 1, 0),
            element,
            known: 0b0111,
            sizes: 0b00_10_01_00,
        }
    }

    const HEAD: &str = "\t{
\t.reg .b64 %wbpf_x;
\t.reg .b32 %wbpf_n, %wbpf_s;
";
    const ELEMENT: &str = "\tmov.b32 %wbpf_n, 0;
\tshr.u64 %wbpf_x, %wbpf_m0, 8;
\tcvt.u32.u64 %wbpf_s, %wbpf_x;
\tand.b32 %wbpf_s, %wbpf_s, 0x1;
\tshl.b32 %wbpf_s, %wbpf_s, 0;
\tor.b32 %wbpf_n, %wbpf_n, %wbpf_s;
\tshr.u64 %wbpf_x, %wbpf_m2, 0;
\tcvt.u32.u64 %wbpf_s, %wbpf_x;
\tand.b32 %wbpf_s, %wbpf_s, 0x1;
\tshl.b32 %wbpf_s, %wbpf_s, 1;
\tor.b32 %wbpf_n, %wbpf_n, %wbpf_s;
\tmov.b32 %wbpf_s, 0x7;
\tshr.u32 %wbpf_s, %wbpf_s, %wbpf_n;
\tand.b32 %d, %wbpf_s, 1;
\tshl.b32 %wbpf_n, %wbpf_n, 1;
\tmov.b64 %wbpf_x, 0x24;
\tshr.u64 %wbpf_x, %wbpf_x, %wbpf_n;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 3;
\tshl.b32 %d, %d, %wbpf_n;
";

    fn loads(words: &[u32]) -> String {
        let load = |n: &u32| {
            format!(
                "\t.reg .b64 %wbpf_m{n};\n\tld.b64 %wbpf_m{n}, [%a+{}];\n",
                n * 8
            )
        };
        words.iter().map(load).collect()
    }

    #[test]
    fn boxes_have_strides_from_the_second_dimension_on() {
        let code = bytes(&layout(), TensorBox::Tile(2), "%a", "%d");
        let sizes = "\tshr.u64 %wbpf_x, %wbpf_m0, 0;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 0xff;
\tmad.lo.u32 %wbpf_n, %wbpf_n, 1, 1;
\tmul.lo.u32 %d, %d, %wbpf_n;
\tshr.u64 %wbpf_x, %wbpf_m1, 0;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 0xff;
\tmad.lo.u32 %wbpf_n, %wbpf_n, 1, 1;
\tshr.u64 %wbpf_x, %wbpf_m15, 0;
\tcvt.u32.u64 %wbpf_s, %wbpf_x;
\tand.b32 %wbpf_s, %wbpf_s, 0x7;
\tmad.lo.u32 %wbpf_s, %wbpf_s, 1, 1;
\tadd.u32 %wbpf_n, %wbpf_n, %wbpf_s;
\tsub.u32 %wbpf_n, %wbpf_n, 1;
\tdiv.u32 %wbpf_n, %wbpf_n, %wbpf_s;
\tmul.lo.u32 %d, %d, %wbpf_n;
\t}
";
        let expected = format!("{HEAD}{}{ELEMENT}{sizes}", loads(&[0, 1, 2, 15]));
        assert_eq!(code, expected);
    }

    #[test]
    fn images_have_channels_and_pixels_and_gathered_rows_are_four() {
        let code = bytes(&layout(), TensorBox::Im2col, "%a", "%d");
        let sizes = "\tshr.u64 %wbpf_x, %wbpf_m0, 17;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 0x7f;
\tmad.lo.u32 %wbpf_n, %wbpf_n, 2, 2;
\tmul.lo.u32 %d, %d, %wbpf_n;
\tshr.u64 %wbpf_x, %wbpf_m1, 0;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 0x3ff;
\tmad.lo.u32 %wbpf_n, %wbpf_n, 1, 0;
\tmul.lo.u32 %d, %d, %wbpf_n;
\t}
";
        assert_eq!(code, format!("{HEAD}{}{ELEMENT}{sizes}", loads(&[0, 1, 2])));
        let code = bytes(&layout(), TensorBox::Rows, "%a", "%d");
        let sizes = "\tshr.u64 %wbpf_x, %wbpf_m0, 0;
\tcvt.u32.u64 %wbpf_n, %wbpf_x;
\tand.b32 %wbpf_n, %wbpf_n, 0xff;
\tmad.lo.u32 %wbpf_n, %wbpf_n, 1, 1;
\tmul.lo.u32 %d, %d, %wbpf_n;
\tshl.b32 %d, %d, 2;
\t}
";
        assert_eq!(code, format!("{HEAD}{}{ELEMENT}{sizes}", loads(&[0, 2])));
    }
}
