//! What is said of a text that some tool spoiled: the line, the column, and what would have been
//! right.

use warpbpf_ptx::{index, parse_body};

const TEXT: &str = r#".version 8.3
.target sm_90
.address_size 64
.file 1 "a.cu"
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .entry k(
	.param .u64 k_param_0,
	.param .align 8 .b8 k_param_1[16]
)
.maxntid 256, 1, 1
{
	.reg .pred %p<3>;
	.reg .b32 %r<5>;
	.loc 1 23 5
	ld.param.u64 %rd1, [k_param_0];
	@!%p1 bra $L__BB0_2; // a comment with a }
	ld.global.v2.f32 {%f1, %f2}, [%rd1+8];
	.pragma "nounroll";
$L__BB0_2:
	ret;
}
"#;

/// The error of the module, or of the kernel's body.
fn error(text: &str) -> String {
    let module = match index(text) {
        Ok(module) => module,
        Err(error) => return error.to_string(),
    };
    for function in &module.functions {
        if let Err(error) = parse_body(&module, function) {
            return format!("in the body, {error}");
        }
    }
    "none".to_owned()
}

#[test]
fn the_text_is_right() {
    assert_eq!(error(TEXT), "none");
}

/// Each row: what is replaced, by what, and the error.
#[test]
fn spoiled() {
    let rows: &[(&str, &str, &str)] = &[
        (
            ".version 8.3\n",
            "",
            "PTX line 1, column 1: expected `.version`, which every module begins with, found `.target`",
        ),
        (
            ".version 8.3",
            ".version",
            "PTX line 2, column 1: expected a version number, found `.target`",
        ),
        (
            ".version 8.3",
            ".version 8",
            "PTX line 1, column 10: `8` is no valid number: a version is written major.minor",
        ),
        (
            ".version 8.3",
            ".version 8.x",
            "PTX line 1, column 10: `8.` is no valid number: a version is written major.minor",
        ),
        (
            ".target sm_90\n",
            "",
            "PTX module has no `.target` directive: is the text truncated?",
        ),
        (
            ".target sm_90",
            ".target",
            "PTX line 3, column 1: expected a target such as `sm_90`, found `.address_size`",
        ),
        (
            ".address_size 64",
            ".address_size wide",
            "PTX line 3, column 15: expected 32 or 64, found `wide`",
        ),
        (
            ".address_size 64",
            ".address_size 0x1FFFFFFFF",
            "PTX line 3, column 15: `0x1FFFFFFFF` is no valid number: it does not fit in 32 bits",
        ),
        (
            ".file 1",
            ".file",
            "PTX line 4, column 7: expected a file index, found `\"`",
        ),
        (
            "\"a.cu\"",
            "\"a.cu",
            "PTX line 4, column 9: `\"` opened here is never closed",
        ),
        (
            "\"a.cu\"",
            "a.cu",
            "PTX line 4, column 9: expected a string, found `a.cu`",
        ),
        (
            "table[4]",
            "table[4",
            "PTX line 5, column 30: expected `]`, found `=`",
        ),
        (
            "table[4]",
            "table[four]",
            "PTX line 5, column 28: expected an array dimension or `]`, found `four`",
        ),
        (
            "= {1, 2, 3, 4}",
            "= {1, 2, 3, 4",
            "PTX line 5, column 33: `{` opened here is never closed",
        ),
        (
            "= {1, 2, 3, 4};",
            "= {1, 2, 3, 4}",
            "PTX line 6, column 1: expected `,` or `;` after the initialiser, found `.extern`",
        ),
        (
            ".align 4",
            ".align",
            "PTX line 5, column 16: expected an alignment in bytes, found `.b8`",
        ),
        (
            ".extern .func",
            ".extern",
            "PTX line 6, column 9: expected `.entry`, `.func` or a variable's state space, found `(`",
        ),
        (
            "vprintf",
            "",
            "PTX line 6, column 32: expected a function name, found `(`",
        ),
        (
            ".param .b64 b);",
            ".param .b64 b;",
            "PTX line 6, column 68: expected `,` or `)` after the parameter, found `;`",
        ),
        (
            ".entry k(",
            ".entry (",
            "PTX line 7, column 17: expected a function name, found `(`",
        ),
        (
            ".param .u64 k_param_0,",
            ".param .u64 k_param_0",
            "PTX line 9, column 2: expected `,` or `)` after the parameter, found `.param`",
        ),
        (
            ".param .u64 k_param_0,",
            ".u64 k_param_0,",
            "PTX line 8, column 2: expected `.param` or `.reg`, found `.u64`",
        ),
        (
            ".param .u64 k_param_0,",
            ".param k_param_0,",
            "PTX line 8, column 9: expected a type, found `k_param_0`",
        ),
        (
            "{\n\t.reg .pred",
            "\n\t.reg .pred",
            "PTX line 13, column 2: expected a performance directive, `{` or `;`, found `.reg`",
        ),
        (
            "\tret;\n}",
            "\tret;\n",
            "PTX line 12, column 1: `{` opened here is never closed",
        ),
        (
            "\tret;\n}",
            "\tret;\n}}",
            "PTX line 22, column 2: expected a module-scope directive, found `}`",
        ),
        (
            "\tret;\n}",
            "\tret;\n{}",
            "PTX line 12, column 1: `{` opened here is never closed",
        ),
        (
            "// a comment",
            "/* a comment",
            "PTX line 17, column 23: `/*` opened here is never closed",
        ),
        (
            "\"nounroll\"",
            "\"nounroll",
            "PTX line 19, column 10: `\"` opened here is never closed",
        ),
        (
            "\"nounroll\";",
            "\"nounroll\"",
            "in the body, PTX line 20, column 1: expected `;`, found `$L__BB0_2`",
        ),
        (
            "\"nounroll\"",
            "nounroll",
            "in the body, PTX line 19, column 10: expected a string, found `nounroll`",
        ),
        (
            "%p<3>",
            "%p<3",
            "in the body, PTX line 13, column 17: expected `>`, found `;`",
        ),
        (
            "%p<3>",
            "%p<>",
            "in the body, PTX line 13, column 16: expected a register count, found `>`",
        ),
        (
            "%p<3>",
            "3",
            "in the body, PTX line 13, column 13: expected a register name, found `3`",
        ),
        (
            ".b32 %r<5>",
            "%r<5>",
            "in the body, PTX line 14, column 7: expected a type, found `%r`",
        ),
        (
            ".loc 1 23 5",
            ".loc 1 23",
            "in the body, PTX line 16, column 2: expected a column, found `ld.param.u64`",
        ),
        (
            ".loc 1 23 5",
            ".loc one 23 5",
            "in the body, PTX line 15, column 7: expected a file index, found `one`",
        ),
        (
            ".loc 1 23 5",
            ".loc 1 23 5, inlined_at 1 2",
            "in the body, PTX line 16, column 2: expected a column, found `ld.param.u64`",
        ),
        (
            "[k_param_0];",
            "[k_param_0;",
            "in the body, PTX line 16, column 31: expected `+`, `,` or `]` in an address, found `;`",
        ),
        (
            "[k_param_0];",
            "[];",
            "in the body, PTX line 16, column 22: expected an address, found `]`",
        ),
        (
            "[k_param_0];",
            "[k_param_0]",
            "in the body, PTX line 17, column 2: expected `,` or `;` after the operand, found `@`",
        ),
        (
            "@!%p1 bra",
            "@! bra",
            "in the body, PTX line 17, column 9: expected an instruction, found `$L__BB0_2`",
        ),
        (
            "@!%p1 bra",
            "@!%p1 ,",
            "in the body, PTX line 17, column 8: expected an instruction, found `,`",
        ),
        (
            "@!%p1 bra",
            "@ %p1",
            "in the body, PTX line 17, column 8: expected an instruction, found `$L__BB0_2`",
        ),
        (
            "ld.global.v2.f32",
            "ld..v2.f32",
            "in the body, PTX line 18, column 5: expected a modifier after the `.`, found `.v2.f32`",
        ),
        (
            "ld.global.v2.f32 {",
            "ld.global.v2.f32 ",
            "PTX line 18, column 28: expected a module-scope directive, found `,`",
        ),
        (
            "{%f1, %f2}, ",
            "{%f1, %f2} ",
            "in the body, PTX line 18, column 30: expected `,` or `;` after the operand, found `[`",
        ),
        (
            "[%rd1+8]",
            "[%rd1 8]",
            "in the body, PTX line 18, column 37: expected `+`, `,` or `]` in an address, found `8`",
        ),
        (
            "[%rd1+8]",
            "[%rd1+0x]",
            "in the body, PTX line 18, column 37: `0x` is no valid number: a digit does not belong to its base",
        ),
        (
            "[%rd1+8]",
            "[%rd1+99999999999999999999]",
            "in the body, PTX line 18, column 37: `99999999999999999999` is no valid number: it does not fit in 64 bits",
        ),
        (
            "$L__BB0_2:",
            ":",
            "in the body, PTX line 20, column 1: expected an instruction, a label or a directive, found `:`",
        ),
        (
            "\tret;",
            "\t=;",
            "in the body, PTX line 21, column 2: expected an instruction, a label or a directive, found `=`",
        ),
        (
            "\tret;",
            "\tret }",
            "PTX line 22, column 1: expected a module-scope directive, found `}`",
        ),
        (
            "\tret;",
            "\t\u{1F980};",
            "in the body, PTX line 21, column 2: expected an instruction, a label or a directive, found `🦀`",
        ),
        (
            "\tret;",
            "\t\u{0};#",
            "in the body, PTX line 21, column 4: expected an instruction, a label or a directive, found `#`",
        ),
    ];
    let mut wrong = String::new();
    for (from, to, expected) in rows {
        assert_eq!(TEXT.matches(from).count(), 1, "`{from}` is not one place");
        let found = error(&TEXT.replacen(from, to, 1));
        if found != *expected {
            wrong += &format!("({from:?}, {to:?}, {found:?}),\n");
        }
    }
    assert!(wrong.is_empty(), "these rows are not as expected:\n{wrong}");
}

/// A text that broke off says so, unless an item was just complete or a word of the next has only
/// begun.
#[test]
fn truncated() {
    let mut complete = Vec::new();
    for (end, _) in TEXT.char_indices() {
        match index(&TEXT[..end]) {
            Ok(_) => complete.push(TEXT[..end].lines().count()),
            Err(error) => assert!(
                error.offset().is_some() || error.to_string().ends_with("is the text truncated?"),
                "{error}"
            ),
        }
    }
    complete.dedup();
    assert_eq!(complete, [2, 3, 4, 5, 6, 7, 22]);
}

/// nvcc and NVRTC 13.3 to 13.5 put a `.loc` before each line of inline assembly for `sm_100` and
/// newer, so that one of several lines is torn apart. ptxas refuses that as well, theirs included.
#[test]
fn statements_torn_by_a_loc() {
    let body = |body: &str| {
        error(&format!(
            ".version 9.3\n.target sm_100\n.entry k()\n{{\n{body}\n}}\n"
        ))
    };
    assert_eq!(
        body("T: .branchtargets A,\n.loc 1 45 5\nB;\nA: B: ret;"),
        "in the body, PTX line 6, column 1: expected a label, found `.loc`"
    );
    assert_eq!(
        body("add.u32 %r1,\n.loc 1 45 5\n%r2, 1;"),
        "in the body, PTX line 6, column 1: expected an operand, found `.loc`"
    );
    assert_eq!(
        body("@%p1\n.loc 1 45 5\nret;"),
        "in the body, PTX line 6, column 1: expected an instruction, found `.loc`"
    );
    assert_eq!(
        body(".reg .b32 a,\n.loc 1 45 5\nb;"),
        "in the body, PTX line 6, column 1: expected a register name, found `.loc`"
    );
}
