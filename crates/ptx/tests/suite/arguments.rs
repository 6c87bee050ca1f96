//! Names and types of parameters: as compilers write them, and out of debug information with every
//! kind of hole.

use crate::tools::{clang, nvcc};
use proptest::prelude::*;
use warpbpf_ptx::arguments::{self, Arguments};
use warpbpf_ptx::index;

/// `type name` of each parameter.
fn of(text: &str, kernel: &str) -> Vec<String> {
    let module = index(text).unwrap();
    let arguments = Arguments::new(&module);
    assert_eq!(arguments.error(), None);
    let found = arguments.of(kernel);
    assert_eq!(found, arguments::of(&module, kernel));
    let shown = found.iter();
    shown.map(|a| format!("{} {}", a.ty, a.name)).collect()
}

#[test]
fn nvcc_for_debugging() {
    let text = nvcc::compile("arguments.cu", &["-arch=sm_90", "-G"]);
    let types = "_Z5typesPKfPfPViybN2ns5InnerENS4_5ArrayIS5_Li3EEENS4_5ColorEPFfiRKS5_EPKh3OldPN5Outer6NestedEPA4_A2_iPvPKvPPcNS5_6EitherEN";
    let module = index(&text).unwrap();
    let types = module.functions.iter().find(|f| f.name.starts_with(types));
    // nvcc leaves namespaces out, and a method's pointer is a structure of its own.
    assert_eq!(
        of(&text, types.unwrap().name),
        [
            "const float * in",
            "float *const out",
            "volatile int * flag",
            "unsigned long long n",
            "bool set",
            "Inner inner",
            "Array<Inner,3> array",
            "ns::Color color",
            "Callback callback",
            "Alias alias",
            "Old old",
            "Nested * nested",
            "int (*)[4][2] table",
            "void * raw",
            "const void * fixed",
            "char ** strings",
            "Either either",
            "Hidden hidden",
            "const int constant",
            "int (*const *)(float) functions",
            "(unnamed struct) method",
        ]
    );
    assert_eq!(of(&text, "plain"), ["int first", "long second"]);
    assert_eq!(of(&text, "_ZN2ns6insideEPNS_5InnerE"), ["Inner * p"]);
    assert_eq!(of(&text, "_Z7unnamediPf"), ["int ", "float * p"]);
    assert_eq!(of(&text, "_Z4nonev"), [""; 0]);
    assert_eq!(of(&text, "missing"), [""; 0]);
}

#[test]
fn clang_for_debugging() {
    for flags in [
        ["-O0", "-g", "--cuda-gpu-arch=sm_90"].as_slice(),
        &[
            "-O2",
            "-g",
            "--cuda-noopt-device-debug",
            "--cuda-gpu-arch=sm_70",
        ],
    ] {
        let Some(text) = clang::compile("arguments.cu", flags) else {
            continue;
        };
        let module = index(&text).unwrap();
        let types = module.functions.iter().find(|f| f.params.len() == 21);
        assert_eq!(
            of(&text, types.unwrap().name),
            [
                "const float * in",
                "float *const out",
                "volatile int * flag",
                "unsigned long long n",
                "bool set",
                "ns::Inner inner",
                "ns::Array<ns::Inner, 3> array",
                "ns::Color color",
                "ns::Callback callback",
                "Alias alias",
                "Old old",
                "Outer::Nested * nested",
                "int (*)[4][2] table",
                "void * raw",
                "const void * fixed",
                "char ** strings",
                "ns::Inner::Either either",
                "(anonymous namespace)::Hidden hidden",
                "const int constant",
                "int (*const *)(float) functions",
                "int (Outer::*)(int) method",
            ]
        );
        let generic = module
            .functions
            .iter()
            .find(|f| f.name.contains("generic"))
            .unwrap();
        assert_eq!(
            of(&text, generic.name),
            ["float * p", "ns::Array<float, 4> a"]
        );
        assert_eq!(of(&text, "_ZN2ns6insideEPNS_5InnerE"), ["ns::Inner * p"]);
        assert_eq!(of(&text, "_Z7unnamediPf"), ["int ", "float * p"]);
    }
}

#[test]
fn without_debug_information() {
    let lines = nvcc::compile("inline.cu", &["-arch=sm_90", "-lineinfo"]);
    assert_eq!(of(&lines, "_Z6kernelPfi"), [""; 0]);
    assert_eq!(of(include_str!("../corpus/triton-tma.ptx"), "tma"), [""; 0]);
}

/// Abbreviations that the tests below share: a unit; a function with an inline name, one with
/// `strp` for both names, one that is an instance; a parameter with and without a location, one
/// that is an instance; a base type, a pointer, an array and its dimension, a subroutine, an entry
/// of no interest with every other form.
const ABBREVIATIONS: &str = ".b8 1,17,1,0,0
.b8 2,46,1,3,8,0,0
.b8 3,46,1,0x6e,0x0e,3,0x0e,0,0
.b8 4,46,1,0x31,0x13,0,0
.b8 5,5,0,3,8,0x49,0x13,2,0x0a,0,0
.b8 6,5,0,3,8,0x49,0x10,0,0
.b8 7,5,0,0x31,0x12,0,0
.b8 8,36,0,3,8,0,0
.b8 9,15,0,0x49,0x11,0,0
.b8 10,1,1,0x49,0x15,0,0
.b8 11,33,0,0x2f,0x0b,0,0
.b8 12,21,1,0x49,0x16,0,0
.b8 13,52,0,1,1,1,3,1,4,1,5,1,6,1,7,1,9,1,0x0c,1,0x0d,1,0x0f,1,0x14,0,0
.b8 14,52,0,1,0x17,1,0x18,1,0x19,1,0x1f,1,0x1e,1,0x20,1,0x21,7,1,0x1a,1,0x25,1,0x26,1,0x27,1,0x28,1,0x1b,1,0x29,1,0x2c,1,0x1c,1,0x24,1,0x22,1,0x23,1,0x1d,0,0
.b8 15,59,0,0x3,0x0e,0,0
.b8 0
";

fn module(info: &str) -> String {
    format!(
        ".version 8.3\n.target sm_90, debug\n.address_size 64\n.entry k(.param .u64 p0, .param .u32 p1) {{ ret; }}\n\
         .section .debug_abbrev\n{{\nABBREVIATIONS:\n{ABBREVIATIONS}}}\n\
         .section .debug_info\n{{\n{info}\n}}\n.section .debug_str\n{{\n.b8 107,0\nNAMES: .b8 107,0,120,0\n}}\n"
    )
}

/// A unit of version 2 with `entries`, at most 1,000 bytes.
fn unit(entries: &str) -> String {
    module(&format!(
        ".b32 1000\n.b16 2\n.b32 ABBREVIATIONS\n.b8 8\n.b8 1\n{entries}"
    ))
}

/// `int` at 12 and `float` at 17 of the unit.
const TYPES: &str = ".b8 8,105,110,116,0\n.b8 8,102,108,111,97,116,0\n";

#[test]
fn by_the_place_or_by_the_order() {
    // The location says which is which.
    let crossed = format!(
        "{TYPES}.b8 2,107,0\n.b8 5,98,0\n.b32 12\n.b8 9,3\n.b64 p1\n.b8 5,97,0\n.b32 17\n.b8 9,3\n.b64 p0\n.b8 0,0"
    );
    assert_eq!(of(&unit(&crossed), "k"), ["float a", "int b"]);
    // Two parameters without a place: their order.
    let order = format!(
        "{TYPES}.b8 2,107,0\n.b8 6,97,0\n.b64 12\n.b8 6,98,0\n.b64 .debug_info+17\n.b8 0,0"
    );
    assert_eq!(of(&unit(&order), "k"), ["int a", "float b"]);
    // One without, of two: which it is cannot be said. A place in the middle of a parameter is
    // none.
    let one = format!("{TYPES}.b8 2,107,0\n.b8 5,98,0\n.b32 12\n.b8 9,3\n.b64 p1+4\n.b8 0,0");
    assert_eq!(of(&unit(&one), "k"), [""; 0]);
    // One with a place is known, the other not.
    let one = format!("{TYPES}.b8 2,107,0\n.b8 5,98,0\n.b32 12\n.b8 9,3\n.b64 p1\n.b8 0,0");
    assert_eq!(of(&unit(&one), "k"), [" ", "int b"]);
    // The place says more than the order.
    let both = format!(
        "{TYPES}.b8 2,107,0\n.b8 5,98,0\n.b32 12\n.b8 9,3\n.b64 p1\n.b8 6,97,0\n.b64 17\n.b8 0,0"
    );
    assert_eq!(of(&unit(&both), "k"), [" ", "int b"]);
    // A declaration without names stands before the definition, an instance of something else
    // behind it.
    let declared = format!(
        "{TYPES}.b8 2,107,0\n.b8 0\n.b8 2,107,0\n.b8 6,97,0\n.b64 12\n.b8 6,98,0\n.b64 17\n.b8 0\n\
         .b8 2,107,0\n.b8 6,99,0\n.b64 12\n.b8 6,100,0\n.b64 17\n.b8 0,0"
    );
    assert_eq!(of(&unit(&declared), "k"), ["int a", "float b"]);
}

#[test]
fn names_in_the_string_section_and_of_the_origin() {
    // A function `x` with the linker's name `k`; then its instance, whose parameters are instances
    // as well.
    let text = format!(
        "{TYPES}.b8 3\n.b32 NAMES\n.b32 NAMES+2\n.b8 6,97,0\n.b64 12\n.b8 6,98,0\n.b64 17\n.b8 0\n.b8 0"
    );
    assert_eq!(of(&unit(&text), "k"), ["int a", "float b"]);
    assert_eq!(of(&unit(&text), "x"), [""; 0]);
    let instance = format!(
        "{TYPES}.b8 2,107,0\n.b8 0\nO: .b8 3\n.b32 .debug_str+2\n.b32 NAMES\nA: .b8 6,97,0\n.b64 12\nB: .b8 6,98,0\n.b64 17\n.b8 0\n\
         .b8 4\n.b32 O\n.b8 7\n.b16 A\n.b8 7\n.b16 B\n.b8 0\n.b8 0"
    );
    assert_eq!(of(&unit(&instance), "k"), ["int a", "float b"]);
}

#[test]
fn types_that_are_broken() {
    let with = |types: &str| {
        let text =
            format!("{types}.b8 2,107,0\n.b8 6,97,0\n.b64 12\n.b8 6,98,0\n.b64 99999\n.b8 0,0");
        of(&unit(&text), "k")
    };
    // A pointer to itself, one to nothing there is, an open array, a function of functions without
    // an end.
    assert!(with(".b8 9,12\n")[0].starts_with("… ****"));
    assert_eq!(with(".b8 9,200\n"), ["void * a", " b"]);
    assert_eq!(
        with(".b8 10,17\n.b8 11,2\n.b8 0\n.b8 15\n.b32 4\n"),
        ["x[3] a", " b"]
    );
    assert_eq!(
        with(".b8 10,19\n.b8 11,2,11,255\n.b8 0\n.b8 8,105,0\n")[0],
        "i[3][256] a"
    );
    let deep = ".b8 12,0x13\n.b32 12\n.b8 6,97,0\n.b64 12\n.b8 6,97,0\n.b64 12\n.b8 0\n";
    assert!(with(deep)[0].contains('…'));
    // No UTF-8.
    assert_eq!(with(".b8 8,255,0\n"), ["(unnamed) a", " b"]);
}

#[test]
fn versions_and_forms() {
    let all = ".b8 13\n.b64 k\n.b16 1\n.b8 5\n.b32 1\n.b8 5\n.b16 5\n.b32 5\n.b64 5\n.b8 1,5\n.b8 1\n.b8 0x7f\n.b8 0x80,1\n.b64 5\n";
    let newer = ".b8 14\n.b32 0\n.b8 1,5\n.b32 0\n.b64 0,0\n.b64 0\n.b8 0x81,1\n.b8 0\n.b16 0\n.b8 0,0,0\n.b32 0\n.b8 0x80,0\n.b8 0\n.b32 0\n.b32 0\n.b64 0\n.b8 1,2\n.b32 0\n";
    let function = format!(
        "{all}{newer}F: .b8 8,105,0\n.b8 2,107,0\n.b8 6,97,0\n.b32 F\n.b8 6,98,0\n.b32 F\n.b8 0,0"
    );
    // Two units; the second is padded by zeros, and its length is what its labels say.
    let first =
        ".b32 END0-START0\nSTART0: .b16 4\n.b32 .debug_abbrev\n.b8 8\n.b8 1\n.b8 0\nEND0:\n";
    for header in [
        ".b32 END-START\nSTART: .b16 4\n.b32 0\n.b8 8\n",
        ".b32 END-START\nSTART: .b16 5\n.b8 1,8\n.b32 0\n",
        ".b32 END-START\nSTART: .b16 5\n.b8 4,8\n.b32 0\n.b64 -1\n",
        ".b32 END-START\nSTART: .b16 5\n.b8 6,8\n.b32 0\n.b64 -1\n.b32 0\n",
    ] {
        let text = module(&format!("{first}{header}.b8 1\n{function}\n.b8 0,0\nEND:"));
        assert_eq!(of(&text, "k"), ["i a", "i b"], "{header}");
    }
    // 64-bit: each offset has 8 bytes.
    let wide = module(
        ".b32 0xffffffff\n.b64 END-START\nSTART: .b16 3\n.b64 ABBREVIATIONS\n.b8 8\n.b8 1\nF: .b8 8,105,0\n\
         .b8 3\n.b64 NAMES\n.b64 0\n.b8 6,97,0\n.b64 F\n.b8 6,98,0\n.b64 F\n.b8 0,0\nEND:",
    );
    assert_eq!(of(&wide, "k"), ["i a", "i b"]);
}

#[test]
fn what_is_before_an_error_is_known() {
    let good = format!("{TYPES}.b8 2,107,0\n.b8 6,97,0\n.b64 12\n.b8 6,98,0\n.b64 17\n.b8 0\n");
    let broken = |info: &str| {
        let text = unit(&format!("{good}{info}"));
        let module = index(&text).unwrap();
        let arguments = Arguments::new(&module);
        let names: Vec<_> = arguments.of("k").into_iter().map(|a| a.name).collect();
        assert_eq!(names, ["a", "b"], "{info}");
        arguments.error().map(ToString::to_string)
    };
    assert_eq!(broken(""), None);
    assert_eq!(
        broken(".b8 99").as_deref(),
        Some("the entry at byte 50 of `.debug_info` cannot be read: invalid abbreviation code: 99")
    );
    assert_eq!(
        broken(".b8 8,105").as_deref(),
        Some("the entry at byte 50 of `.debug_info` cannot be read: unexpected end of input")
    );
    // An indirect form that is no form.
    assert_eq!(
        broken(".b8 12,0x7f").as_deref(),
        Some("the entry at byte 50 of `.debug_info` cannot be read: unknown attribute form: 0x7f")
    );
    assert_eq!(
        broken(".b8 8,105,0\n.f32 1").as_deref(),
        Some("the text of a debug section cannot be read")
    );
}

#[test]
fn errors_of_units_and_abbreviations() {
    let error = |text: &str| {
        let module = index(text).unwrap();
        let arguments = Arguments::new(&module);
        assert_eq!(arguments.of("k"), []);
        arguments.error().map(ToString::to_string)
    };
    assert_eq!(
        error(&module(".b32 100\n.b16 6")).as_deref(),
        Some("the unit at byte 0 of `.debug_info` cannot be read: unknown DWARF version: 6")
    );
    assert_eq!(
        error(&module(".b16 6")).as_deref(),
        Some("the unit at byte 0 of `.debug_info` cannot be read: unexpected end of input")
    );
    // The table begins past the section's end.
    assert_eq!(
        error(&module(".b32 100\n.b16 2\n.b32 .debug_abbrev+4000\n.b8 8")).as_deref(),
        Some(
            "the table of abbreviations at byte 4000 of `.debug_abbrev` cannot be read: unexpected end of input"
        )
    );
    // The text's error explains what came of it.
    assert_eq!(
        error(&module(".b32 100\n.b16 2\n.b32 $")).as_deref(),
        Some("the unit at byte 0 of `.debug_info` cannot be read: unexpected end of input")
    );
    assert_eq!(
        error(&module(".b32 100\n.b16 x y")).as_deref(),
        Some("the text of a debug section cannot be read")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_are_too_broken(
        info in prop::collection::vec(0u8..40, 0..200),
        abbreviations in prop::collection::vec(0u8..64, 0..120),
    ) {
        let list = |bytes: &[u8]| {
            let bytes: Vec<_> = bytes.iter().map(|byte| format!(".b8 {byte}")).collect();
            bytes.join("\n")
        };
        let text = format!(
            ".version 8.3\n.target sm_90\n.entry k(.param .u64 p0) {{ ret; }}\n.section .debug_abbrev {{ {} }}\n\
             .section .debug_info {{ .b32 500\n.b16 2\n.b32 .debug_abbrev\n.b8 8\n{} }}\n",
            list(&abbreviations),
            list(&info),
        );
        let module = index(&text).unwrap();
        let _ = arguments::of(&module, "k");
    }

    #[test]
    fn one_byte_changed(at in 0usize..120, byte in 0u8..=255) {
        let good = format!(
            "{TYPES}.b8 9,12\n.b8 10,17\n.b8 11,2,0\n.b8 2,107,0\n.b8 6,97,0\n.b64 24\n.b8 6,98,0\n.b64 26\n.b8 0,0"
        );
        let text = unit(&good);
        let mut bytes = 0;
        let changed: Vec<_> = text
            .split_inclusive('\n')
            .map(|line| {
                let number = line.strip_prefix(".b8 ").and_then(|rest| rest.split_once(','));
                match number {
                    Some((_, rest)) if { bytes += 1; bytes == at } => format!(".b8 {byte},{rest}"),
                    _ => line.to_owned(),
                }
            })
            .collect();
        let text = changed.concat();
        let module = index(&text).unwrap();
        let _ = arguments::of(&module, "k");
    }
}
