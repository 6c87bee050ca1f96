//! Any text as PTX, and any bytes as its debug information.

use std::fmt::Write as _;

use warpbpf_fuzz::{Bounds, Target};

use crate::arguments::Arguments;
use crate::{Splices, index, parse_body};

const TEXT: &[&str] = &[
    ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n.maxntid 128, 1, 1\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n\
     ld.param.u32 %r1, [n];\n$L: setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $E;\nsub.s32 %r1, %r1, 1; bra.uni $L;\n$E: ret;\n}\n",
    ".version 7.0\n.target sm_80\n.address_size 64\n.global .align 4 .b8 g[8] = {1, 2, 3, 4};\n.func (.param .b32 r) f(.param .b32 a) { /* c */ ret; }\n\
     .extern .shared .align 16 .b8 s[];\n.visible .entry e() { { .param .b32 x; call (x), f, (x); } // end\n bar.sync 0; exit; }\n",
];

#[test]
fn texts() {
    let seeds = TEXT.iter().map(|text| text.as_bytes().to_vec()).collect();
    let words: &[&[u8]] = &[
        b".entry ",
        b".func ",
        b"{",
        b"}",
        b"/*",
        b"*/",
        b"//",
        b"\"",
        b";",
        b".param .align 8 .b8 q[16]",
        b"@!%p1 ",
        b".loc 1 2 3",
        b".file 1 \"a\"\n",
        b".section .debug_info {",
        b"0x",
        b"0f3F800000",
    ];
    // A text becomes a list of statements with their words.
    let bounds = Bounds {
        per_byte: 2048,
        ..Bounds::default()
    };
    Target::new("ptx-texts", seeds)
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            assert_eq!(Splices::new().apply(text).as_deref(), Ok(text));
            let Ok(module) = index(text) else { return };
            for function in &module.functions {
                assert_eq!(&text[function.name_span.clone()], function.name);
                let Ok(statements) = parse_body(&module, function) else {
                    continue;
                };
                let mut at = function.body.clone().map_or(0, |body| body.start);
                for statement in &statements {
                    assert!(at <= statement.span.start, "statements overlap");
                    at = statement.span.end;
                }
            }
        });
}

/// Abbreviations: a unit, a function, a parameter, a base type, a pointer, an array and its
/// dimension, a subroutine.
const ABBREVIATIONS: &[u8] = &[
    1, 17, 1, 0, 0, 2, 46, 1, 3, 8, 0, 0, 5, 5, 0, 3, 8, 0x49, 0x13, 0, 0, 8, 36, 0, 3, 8, 0, 0, 9,
    15, 0, 0x49, 0x13, 0, 0, 10, 1, 1, 0x49, 0x13, 0, 0, 11, 33, 0, 0x2f, 0x0b, 0, 0, 12, 21, 1,
    0x49, 0x13, 0, 0, 0,
];
/// What a unit has: `int`, a pointer to it, an array, a function `k` with two parameters.
const ENTRIES: &[u8] = &[
    1, 8, b'i', b'n', b't', 0, 9, 12, 0, 0, 0, 10, 12, 0, 0, 0, 11, 3, 0, 12, 17, 0, 0, 0, 0, 2,
    b'k', 0, 5, b'a', 0, 17, 0, 0, 0, 5, b'b', 0, 22, 0, 0, 0, 0, 0,
];

/// Bytes as a section's text.
fn section(text: &mut String, name: &str, bytes: &[u8]) {
    let _ = writeln!(text, ".section .{name}\n{{");
    for byte in bytes {
        let _ = writeln!(text, ".b8 {byte}");
    }
    text.push_str("}\n");
}

#[test]
fn dwarf() {
    let mut unit = vec![0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8];
    unit.extend(ENTRIES);
    let length = unit.len() as u32 - 4;
    unit[..4].copy_from_slice(&length.to_le_bytes());
    let mut seed = vec![ABBREVIATIONS.len() as u8];
    seed.extend(ABBREVIATIONS);
    seed.extend(unit);
    // A text of 8 bytes and more stands for each byte.
    let bounds = Bounds {
        per_byte: 8192,
        ..Bounds::default()
    };
    let shown = std::cell::Cell::new(0);
    let target = Target::new("dwarf", vec![seed.clone()]).bounds(bounds);
    target.run(|bytes| {
        let Some((first, rest)) = bytes.split_first() else {
            return;
        };
        let (abbreviations, info) = rest.split_at(usize::from(*first).min(rest.len()));
        let mut text = ".version 8.3\n.target sm_90, debug\n.address_size 64\n.entry k(.param .u64 p0, .param .u64 p1) { ret; }\n".to_owned();
        section(&mut text, "debug_abbrev", abbreviations);
        section(&mut text, "debug_info", info);
        section(&mut text, "debug_str", &info[..info.len().min(64)]);
        let module = index(&text).expect("the text around it is good");
        let arguments = Arguments::new(&module);
        let found = arguments.of("k");
        let longest = found.iter().map(|a| a.ty.len() + a.name.len()).max();
        assert!(longest.unwrap_or(0) <= 1 << 16, "a name of {longest:?} bytes");
        if bytes == seed {
            let names = found.iter().map(|a| format!("{} {}", a.ty, a.name));
            shown.set(names.collect::<Vec<_>>().len());
        }
    });
    assert_eq!(shown.get(), 2, "the seed's two parameters");
}
