//! Source places: through inlined calls, and where the debug information has holes.

use crate::tools::nvcc;
use warpbpf_ptx::ast::StatementKind;
use warpbpf_ptx::lines::{Lines, Place, Sources};
use warpbpf_ptx::{index, parse_body};

/// `file:line:column function < caller…` of each instruction of the first entry.
fn places(text: &str) -> Vec<(String, String)> {
    let module = index(text).unwrap();
    let sources = Sources::new(&module);
    let entry = module.functions.iter().find(|f| f.is_entry).unwrap();
    let statements = parse_body(&module, entry).unwrap();
    let lines = Lines::new(&sources, &statements);
    let mut shown = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        let StatementKind::Instruction(instruction) = &statement.kind else {
            continue;
        };
        let chain: Vec<_> = lines.chain(at).map(place).collect();
        assert_eq!(lines.place(at).map(place), chain.first().cloned());
        assert_eq!(lines.outermost(at).map(place), chain.last().cloned());
        shown.push((instruction.name.to_owned(), chain.join(" < ")));
    }
    assert_eq!(lines.place(statements.len()), None);
    assert_eq!(lines.loc(statements.len()), None);
    shown
}

fn place(place: Place<'_>) -> String {
    let file = place.file.rsplit('/').next().unwrap_or("");
    let function = place
        .function
        .map_or(String::new(), |name| format!(" {name}"));
    format!("{file}:{}:{}{function}", place.line, place.column)
}

fn hand_written(body: &str) -> Vec<String> {
    let text = format!(
        ".version 8.3\n.target sm_90\n.address_size 64\n.entry k()\n{{\n{body}\n}}\n\
         .file 1 \"/src/a.cu\"\n.file 2 \"/src/b.h\"\n.file 1 \"/src/late.cu\"\n\
         .section .debug_abbrev {{ .b8 1 }}\n\
         .section .debug_str\n{{\n$L0: .b8 102,0 // f\n.b8 103\n.b8 104, 0;\nL1:\n.b8 0xff,0\nL2: .b8 105\n}}\n"
    );
    places(&text).into_iter().map(|(_, place)| place).collect()
}

#[test]
fn nvcc_inlines() {
    let text = nvcc::compile("inline.cu", &["-arch=sm_90", "-lineinfo"]);
    let places = places(&text);
    let of = |name: &str| -> Vec<&str> {
        let named = places.iter().filter(|(at, _)| at == name);
        named.map(|(_, place)| place.as_str()).collect()
    };
    assert_eq!(
        of("fma.rn.f32"),
        [
            "inline.cu:9:5 _Z5twiceIfET_S0_ < inline.cu:14:5 _ZN2ns4deepEf < inline.cu:21:9",
            "inline.cu:9:5 _Z5twiceIfET_S0_ < inline.cu:22:5",
        ]
    );
    assert_eq!(
        of("mul.f32"),
        ["inline.cu:14:5 _ZN2ns4deepEf < inline.cu:21:9"]
    );
    assert_eq!(of("ld.param.u32"), ["inline.cu:18:0"]);
    assert_eq!(of("st.global.f32"), ["inline.cu:21:9", "inline.cu:22:5"]);
    assert_eq!(of("ret"), ["inline.cu:23:1"]);
}

#[test]
fn a_loc_holds_up_to_the_next() {
    let found =
        hand_written("nop;\n.loc 1 5 3\nnop;\n.loc 2 0 0\nL: nop;\n{ nop; }\n.loc 9 1 1\nnop;");
    assert_eq!(found, ["", "a.cu:5:3", "b.h:0:0", "b.h:0:0", ":1:1"]);
}

#[test]
fn the_statement_of_the_loc() {
    let text = ".version 8.3\n.target sm_90\n.entry k() { nop; .loc 1 2 3 nop; nop; }";
    let module = index(text).unwrap();
    let sources = Sources::new(&module);
    let statements = parse_body(&module, &module.functions[0]).unwrap();
    let lines = Lines::new(&sources, &statements);
    let locs: Vec<_> = (0..5).map(|at| lines.loc(at)).collect();
    assert_eq!(locs, [None, Some(1), Some(1), Some(1), None]);
}

#[test]
fn names_of_inlined_functions() {
    let name = |label: &str| {
        hand_written(&format!(
            ".loc 1 5 3\n.loc 2 7 1, function_name {label}, inlined_at 1 5 3\nnop;"
        ))
        .remove(0)
    };
    assert_eq!(name("$L0"), "b.h:7:1 f < a.cu:5:3");
    assert_eq!(name("$L0+2"), "b.h:7:1 gh < a.cu:5:3");
    assert_eq!(name(".debug_str+3"), "b.h:7:1 h < a.cu:5:3");
    assert_eq!(name(".debug_str + 2"), "b.h:7:1 gh < a.cu:5:3");
    // No label, an offset past the end, no UTF-8, no end.
    for none in ["missing", "$L0+100", "$L0+18446744073709551615", "L1", "L2"] {
        assert_eq!(name(none), "b.h:7:1 < a.cu:5:3", "{none}");
    }
}

#[test]
fn calls_of_calls() {
    // The same function inlined twice: each time its caller's `.loc` stands before it.
    let found = hand_written(
        ".loc 1 5 3\n.loc 1 40 1, function_name $L0, inlined_at 1 5 3\n.loc 2 7 1, function_name $L0+2, inlined_at 1 40 1\nnop;\n\
         .loc 1 6 3\n.loc 1 40 1, function_name $L0, inlined_at 1 6 3\n.loc 2 7 1, function_name $L0+2, inlined_at 1 40 1\nnop;",
    );
    assert_eq!(
        found,
        [
            "b.h:7:1 gh < a.cu:40:1 f < a.cu:5:3",
            "b.h:7:1 gh < a.cu:40:1 f < a.cu:6:3"
        ]
    );
    // A call site without a `.loc` ends the chain; one that names itself does not go round.
    let found = hand_written(
        ".loc 2 7 1, function_name $L0, inlined_at 1 8 2\nnop;\n.loc 2 9 1, function_name $L0, inlined_at 2 9 1\nnop;",
    );
    assert_eq!(found, ["b.h:7:1 f < a.cu:8:2", "b.h:9:1 f < b.h:9:1"]);
}

#[test]
fn a_broken_string_section_only_loses_names() {
    for section in [
        "{ $L0: .b8 x }",
        "{ $L0 .b8 1 }",
        "{ $L0: .f32 1 }",
        "{ $L0: .b32 }",
        "{ ) }",
        "",
    ] {
        let text = format!(
            ".version 8.3\n.target sm_90\n.entry k() {{ .loc 1 7 1, function_name $L0, inlined_at 1 5 3\nnop; }}\n.file 1 \"a\"\n.section .debug_str {section}"
        );
        let expected = ("nop".to_owned(), "a:7:1 < a:5:3".to_owned());
        assert_eq!(places(&text), [expected], "{section}");
    }
}
