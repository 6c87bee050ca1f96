//! Hand-written PTX: every form of statement and operand, and every error with its exact message.

use warpbpf_ptx::ast::{Linkage, Loc, Module, Operand, Statement, StatementKind, Variable};
use warpbpf_ptx::{PtxError, Target, index, parse_body};

const HEADER: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

fn with_body(body: &str) -> String {
    format!("{HEADER}.entry k()\n{{\n{body}\n}}\n")
}

fn statements(text: &str) -> Result<Vec<Statement<'_>>, PtxError> {
    let module = index(text)?;
    parse_body(&module, &module.functions[0])
}

/// The operands of the one instruction `text`, as they print.
fn operands(text: &str) -> String {
    let text = with_body(text);
    let statements = statements(&text).unwrap_or_else(|error| panic!("{error}"));
    let [
        Statement {
            kind: StatementKind::Instruction(instruction),
            ..
        },
    ] = statements.as_slice()
    else {
        panic!("not one instruction: {statements:?}");
    };
    let written: Vec<_> = instruction
        .operand_spans
        .iter()
        .map(|span| &text[span.clone()])
        .collect();
    assert!(written.iter().all(|written| *written == written.trim()));
    format!("{:?}", instruction.operands)
}

fn body_error(body: &str) -> String {
    statements(&with_body(body))
        .expect_err("an error")
        .to_string()
}

fn index_error(text: &str) -> String {
    index(text).expect_err("an error").to_string()
}

fn variables(text: &str) -> Vec<Variable<'_>> {
    index(text)
        .unwrap_or_else(|error| panic!("{error}"))
        .variables
}

#[test]
fn names_and_numbers() {
    use Operand::{F32, F64, Int, Name, Not};
    let check = |text: &str, expected: &[Operand<'_>]| {
        assert_eq!(operands(text), format!("{expected:?}"), "{text}")
    };
    check("ret;", &[]);
    check("bra $L__BB0_2;", &[Name("$L__BB0_2")]);
    check("mov.u32 %r1, %tid.x;", &[Name("%r1"), Name("%tid.x")]);
    check("mov.u32 x, _ ;", &[Name("x"), Name("_")]);
    check("and.pred p, !q, r;", &[Name("p"), Not("q"), Name("r")]);
    check(
        "t 0, 10, -10, +3, 0x1F, -0X1fU, 017, 0b101, 0B1, 7U;",
        &[0, 10, -10, 3, 31, -31, 15, 5, 1, 7].map(Int),
    );
    check(
        "t 0xFFFFFFFFFFFFFFFF, 18446744073709551615, -9223372036854775808;",
        &[Int(-1), Int(-1), Int(i64::MIN)],
    );
    check(
        "t 0f3F800000, 0Fff800000, -0f00000000;",
        &[F32(0x3f80_0000), F32(0xff80_0000), F32(0x8000_0000)],
    );
    check(
        "t 0d3FF0000000000000, -0D0;"
            .replace("0D0", "0D0000000000000000")
            .as_str(),
        &[F64(0x3ff0_0000_0000_0000), F64(1 << 63)],
    );
    let decimal = [1.5, 0.5, -2.0, 1e10, 2.5e-3, 1e5].map(|value: f64| F64(value.to_bits()));
    check("t 1.5, .5, -2., 1e10, 2.5e-3, 1E+5;", &decimal);
}

#[test]
fn addresses() {
    let address = |base, offset| {
        vec![Operand::Address {
            base,
            offset,
            rest: vec![],
        }]
    };
    let check = |text: &str, expected: Vec<Operand<'_>>| {
        assert_eq!(operands(text), format!("{expected:?}"), "{text}")
    };
    check("t [%rd1];", address(Some("%rd1"), 0));
    check("t [%rd1+8];", address(Some("%rd1"), 8));
    check("t [ %rd1 + -8 ];", address(Some("%rd1"), -8));
    check("t [%rd1-0x10];", address(Some("%rd1"), -16));
    check("t [param_0+4+4];", address(Some("param_0"), 8));
    check("t [sym];", address(Some("sym"), 0));
    check("t [1024];", address(None, 1024));
    check("t [4+4];", address(None, 8));
    check("t [-4];", address(None, -4));
    check("t [sym+%r1];", vec![Operand::Other("[sym+%r1]")]);
    check("t [a[4]];", vec![Operand::Other("[a[4]]")]);
    check("t a[4];", vec![Operand::Other("a[4]")]);
    check("t sym+4;", vec![Operand::Offset("sym", 4)]);
    check("t sym + 4 - 8;", vec![Operand::Offset("sym", -4)]);
    let coordinates = Operand::Vector(vec![Operand::Name("%r1"), Operand::Int(2)]);
    check(
        "t [%rd1+64, {%r1, 2}];",
        vec![Operand::Address {
            base: Some("%rd1"),
            offset: 64,
            rest: vec![coordinates.clone()],
        }],
    );
    let rest = vec![Operand::Name("smp"), coordinates];
    check(
        "t [tex, smp, {%r1, 2}];",
        vec![Operand::Address {
            base: Some("tex"),
            offset: 0,
            rest,
        }],
    );
}

#[test]
fn groups_and_expressions() {
    let check = |text: &str, expected: &[Operand<'_>]| {
        assert_eq!(operands(text), format!("{expected:?}"), "{text}")
    };
    let name = Operand::Name;
    let pair = |a, b| Operand::Pair(Box::new(a), Box::new(b));
    check(
        "t {a, _, 1};",
        &[Operand::Vector(vec![name("a"), name("_"), Operand::Int(1)])],
    );
    check(
        "t p|q, _ | q;",
        &[pair(name("p"), name("q")), pair(name("_"), name("q"))],
    );
    check(
        "t {a, b}|p;",
        &[pair(Operand::Vector(vec![name("a"), name("b")]), name("p"))],
    );
    check("call f;", &[name("f")]);
    check(
        "call.uni f, (a, 1);",
        &[name("f"), Operand::List(vec![name("a"), Operand::Int(1)])],
    );
    check(
        "call (r), f, ();",
        &[
            Operand::List(vec![name("r")]),
            name("f"),
            Operand::List(vec![]),
        ],
    );
    let call = [
        Operand::List(vec![name("r")]),
        name("%rd1"),
        Operand::List(vec![name("a"), name("b")]),
        name("proto"),
    ];
    check("call.uni (r), %rd1, (a, b), proto;", &call);
    check(
        "t 1+2*3, (1 + 2) * 3, ~5;",
        &[
            Operand::Other("1+2*3"),
            Operand::Other("(1 + 2) * 3"),
            Operand::Other("~5"),
        ],
    );
    check(
        "t 4 > 3 ? 1 : 2 /* why */, \"s, ;\";",
        &[Operand::Other("4 > 3 ? 1 : 2"), Operand::Other("\"s, ;\"")],
    );
}

#[test]
fn instructions() {
    let text = with_body(
        "@!%p1 ld.global.L1::evict_last.L2::128B.v2.f32 {%f1, %f2}, [%rd1]; // ; in a comment\n;;\n\
         @ p add .u32 a , b, /* c, */ 1 ;\nunknown.thing.x9 {a}, [b], c|d, 5;",
    );
    let statements = statements(&text).unwrap();
    let found: Vec<_> = statements
        .iter()
        .map(|statement| match &statement.kind {
            StatementKind::Instruction(i) => {
                let guard = i.guard.map(|guard| (guard.register, guard.negated));
                (
                    &text[statement.span.clone()],
                    guard,
                    i.opcode,
                    i.modifiers.clone(),
                    i.name,
                    i.operands.len(),
                )
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                "@!%p1 ld.global.L1::evict_last.L2::128B.v2.f32 {%f1, %f2}, [%rd1];",
                Some(("%p1", true)),
                "ld",
                vec!["global", "L1::evict_last", "L2::128B", "v2", "f32"],
                "ld.global.L1::evict_last.L2::128B.v2.f32",
                2
            ),
            (
                "@ p add .u32 a , b, /* c, */ 1 ;",
                Some(("p", false)),
                "add",
                vec!["u32"],
                "add .u32",
                3
            ),
            (
                "unknown.thing.x9 {a}, [b], c|d, 5;",
                None,
                "unknown",
                vec!["thing", "x9"],
                "unknown.thing.x9",
                4
            ),
        ]
    );
    let StatementKind::Instruction(load) = &statements[0].kind else {
        unreachable!()
    };
    assert!(load.has("global") && load.has("L2::128B") && !load.has("L2") && !load.has("ld"));
}

#[test]
fn directives() {
    let text = with_body(
        ".reg .pred p, %q<3>;\n.reg .v4 .f32 v;\n.reg .b64 %rd<0x10>;\n\
         .param .align 8 .b8 p0[16];\n.shared .align 4 .b32 s[2][3], t;\n.local .b64 l = 5;\n\
         .loc 1 23 5\n.loc\t2 7 9, function_name $L__info_string0, inlined_at 1 45 3\n\
         .loc 1 1 0, function_name .debug_str+12, inlined_at 3 4 5\n\
         .pragma \"nounroll\";\n.pragma \"a\", \"b\" ;\n{ .made_up x, y; }\nL0 :\nL1: ret;\n\
         ts: .branchtargets L0,\n L1;\nfs : .calltargets f, g;\n\
         pr: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[24]) .noreturn .abi_preserve 4;\n\
         pq: .callprototype _ ();\npz : .callprototype ()_ (.reg .u32 x);",
    );
    let statements = statements(&text).unwrap();
    let mut shown = statements
        .iter()
        .map(|statement| (&text[statement.span.clone()], &statement.kind));
    let mut next = || shown.next().expect("another statement");
    let registers = |kind: &StatementKind<'_>| match kind {
        StatementKind::Registers(list) => list
            .iter()
            .map(|r| format!("{} {} {:?}", r.ty, r.name, r.count))
            .collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!(registers(next().1), ["pred p None", "pred %q Some(3)"]);
    assert_eq!(registers(next().1), ["v4.f32 v None"]);
    assert_eq!(registers(next().1), ["b64 %rd Some(16)"]);
    let variable = |(text, kind): (&str, &StatementKind<'_>)| match kind {
        StatementKind::Variable(v) => format!(
            "{text} = {} {} {} {} {:?} {:?}",
            v.space, v.ty, v.name, v.align, v.dims, v.init
        ),
        other => format!("{other:?}"),
    };
    assert_eq!(
        variable(next()),
        ".param .align 8 .b8 p0[16]; = param b8 p0 8 [16] None"
    );
    assert_eq!(
        variable(next()),
        ".shared .align 4 .b32 s[2][3], = shared b32 s 4 [2, 3] None"
    );
    assert_eq!(variable(next()), "t; = shared b32 t 4 [] None");
    assert_eq!(
        variable(next()),
        ".local .b64 l = 5; = local b64 l 8 [] Some(\"5\")"
    );
    let loc = |file, line, column, inlined| {
        StatementKind::Loc(Loc {
            file,
            line,
            column,
            inlined,
        })
    };
    assert_eq!(next(), (".loc 1 23 5", &loc(1, 23, 5, None)));
    assert_eq!(
        next().1,
        &loc(2, 7, 9, Some(("$L__info_string0", 1, 45, 3)))
    );
    assert_eq!(next().1, &loc(1, 1, 0, Some(("debug_str+12", 3, 4, 5))));
    assert_eq!(
        next(),
        (".pragma \"nounroll\";", &StatementKind::Pragma("nounroll"))
    );
    assert_eq!(next().1, &StatementKind::Pragma("a\", \"b"));
    assert_eq!(next(), ("{", &StatementKind::Open));
    assert_eq!(
        next(),
        (".made_up x, y;", &StatementKind::Directive(".made_up x, y"))
    );
    assert_eq!(next(), ("}", &StatementKind::Close));
    assert_eq!(next(), ("L0 :", &StatementKind::Label("L0")));
    assert_eq!(next(), ("L1:", &StatementKind::Label("L1")));
    assert_eq!(next().0, "ret;");
    assert_eq!(
        next().1,
        &StatementKind::BranchTargets {
            name: "ts",
            targets: vec!["L0", "L1"]
        }
    );
    assert_eq!(
        next(),
        (
            "fs : .calltargets f, g;",
            &StatementKind::CallTargets {
                name: "fs",
                targets: vec!["f", "g"]
            }
        )
    );
    let prototype = |kind: &StatementKind<'_>| match kind {
        StatementKind::CallPrototype {
            name,
            returns,
            params,
        } => {
            let list = |list: &[warpbpf_ptx::ast::Param<'_>]| {
                list.iter()
                    .map(|p| format!("{} {} {:?} {} {}", p.ty, p.name, p.array, p.align, p.is_reg))
                    .collect::<Vec<_>>()
            };
            format!("{name} {:?} {:?}", list(returns), list(params))
        }
        other => format!("{other:?}"),
    };
    assert_eq!(
        prototype(next().1),
        r#"pr ["b32 _ None 4 false"] ["b64 _ None 8 false", "b8 _ Some(24) 8 false"]"#
    );
    assert_eq!(prototype(next().1), "pq [] []");
    assert_eq!(prototype(next().1), r#"pz [] ["u32 x None 4 true"]"#);
    assert!(shown.next().is_none());
}

#[test]
fn functions() {
    let text = format!(
        "{HEADER}.visible .entry a(.param .u64 .ptr .global .align 1 p, .param .align 16 .b8 q[32], .param .f32 r)\n\
         .maxntid 256, 1, 1\n.reqntid 8 // eight\n.pragma \"nounroll\";\n{{ /* }} */ .pragma \"}}\"; ret; // }}\n}}\n\
         .extern .func (.param .b32 ret) f (.param .b64 x, .param .b64 y)\n;\n\
         .weak .func .attribute(.unified(1, 2)) g\n{{\n{{ret;}}\n}}\n.func h() .noreturn;\n\
         .visible .func (.reg .u32 o) i(.reg .pred t, .param .b8 z[])\n.abi_preserve 3 {{}}\n.func h() {{ exit; }}\n\
         .entry b {{}}"
    );
    let module = index(&text).unwrap();
    let found: Vec<_> = module
        .functions
        .iter()
        .map(|f| {
            let params: Vec<_> = f
                .params
                .iter()
                .map(|p| format!("{}:{}:{:?}:{}", p.name, p.ty, p.array, p.align))
                .collect();
            let body = f.body.clone().map(|body| &text[body]);
            (
                f.is_entry,
                f.linkage,
                f.name,
                f.returns.len(),
                params.join(" "),
                f.directives.clone(),
                body,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                true,
                Linkage::Visible,
                "a",
                0,
                "p:u64:None:8 q:b8:Some(32):16 r:f32:None:4".to_owned(),
                vec![".maxntid 256, 1, 1", ".reqntid 8", ".pragma \"nounroll\""],
                Some(" /* } */ .pragma \"}\"; ret; // }\n")
            ),
            (
                false,
                Linkage::Extern,
                "f",
                1,
                "x:b64:None:8 y:b64:None:8".to_owned(),
                vec![],
                None
            ),
            (
                false,
                Linkage::Weak,
                "g",
                0,
                String::new(),
                vec![".attribute(.unified(1, 2))"],
                Some("\n{ret;}\n")
            ),
            (
                false,
                Linkage::Local,
                "h",
                0,
                String::new(),
                vec![".noreturn"],
                None
            ),
            (
                false,
                Linkage::Visible,
                "i",
                1,
                "t:pred:None:1 z:b8:Some(0):1".to_owned(),
                vec![".abi_preserve 3"],
                Some("")
            ),
            (
                false,
                Linkage::Local,
                "h",
                0,
                String::new(),
                vec![],
                Some(" exit; ")
            ),
            (
                true,
                Linkage::Local,
                "b",
                0,
                String::new(),
                vec![],
                Some("")
            ),
        ]
    );
    assert_eq!(
        module.functions[1]
            .params_span
            .clone()
            .map(|span| &text[span]),
        Some(".param .b64 x, .param .b64 y")
    );
    assert_eq!(
        (
            module.functions[2].params_span.clone(),
            module.functions[6].params_span.clone()
        ),
        (None, None)
    );
    assert_eq!(
        module
            .function("h")
            .unwrap()
            .body
            .clone()
            .map(|body| &text[body]),
        Some(" exit; ")
    );
    assert_eq!(module.function("f").unwrap().body, None);
    assert!(module.function("nobody").is_none());
    assert!(
        module.functions[0]
            .params
            .iter()
            .all(|p| text[p.span.clone()].starts_with(".param"))
    );
    assert_eq!(module.functions[0].params[1].size(), Some(32));
    assert_eq!(parse_body(&module, &module.functions[1]), Ok(vec![]));
}

#[test]
fn module_variables() {
    let text = format!(
        "{HEADER}.global .align 4 .b8 a[4] = {{1, 2, 3, 4}}, b, c[2] = {{0xff(a), generic(b)+4}};\n\
         .visible .const .v4 .f32 d = {{1.0, 2.0, 3.0, 4.0}};\n.extern .shared .align 16 .b8 e[];\n\
         .global .attribute(.managed, .unified(1,2)) .u64 f = g;\n.weak .global .texref h;\n.common .global .s32 i[2][3];\n\
         .tex .u64 j;\n.const[3] .b32 k;\n.global .strange l;"
    );
    let shown: Vec<_> = variables(&text)
        .iter()
        .map(|v| {
            assert!(text[v.span.clone()].ends_with(';'));
            let size = v.size();
            format!(
                "{:?} {} {} {} {} {:?} {:?} {:?} {size:?}",
                v.linkage, v.space, v.ty, v.name, v.align, v.dims, v.init, v.attribute
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#"Local global b8 a 4 [4] Some("{1, 2, 3, 4}") None Some(4)"#,
            "Local global b8 b 4 [] None None Some(1)",
            r#"Local global b8 c 4 [2] Some("{0xff(a), generic(b)+4}") None Some(2)"#,
            r#"Visible const v4.f32 d 16 [] Some("{1.0, 2.0, 3.0, 4.0}") None Some(16)"#,
            "Extern shared b8 e 16 [0] None None Some(0)",
            r#"Local global u64 f 8 [] Some("g") Some(".managed, .unified(1,2)") Some(8)"#,
            "Weak global texref h 8 [] None None Some(8)",
            "Common global s32 i 4 [2, 3] None None Some(24)",
            "Local tex u64 j 8 [] None None Some(8)",
            "Local const b32 k 4 [] None None Some(4)",
            "Local global strange l 16 [] None None None",
        ]
    );
}

#[test]
fn the_rest_of_a_module() {
    let text = ".version 9.0 // new\n.target sm_100a, debug\n.address_size 32\n\
        .file 1 \"/a/b.cu\", 1234, 0x10\n.file\t2 \"c \\\" d\"\n@@DWARF .byte 1\n# 1 \"x\"\n\
        .section .debug_abbrev\n{\n.b8 1 // }\nL: .b32 L+4\n}\n.alias f, g;\n.pragma \"x\";\n\
        .future thing 1\n.visible .global .u32 v;\n.metadata 0 { a, {b} }\n.last";
    let module = index(text).unwrap();
    assert_eq!((module.version, module.address_size), ((9, 0), 32));
    assert_eq!(
        (module.targets.as_slice(), module.target()),
        (["sm_100a", "debug"].as_slice(), Target::parse("sm_100a"))
    );
    assert_eq!(
        &text[..module.header_end],
        ".version 9.0 // new\n.target sm_100a, debug\n.address_size 32"
    );
    assert_eq!(module.files, [(1, "/a/b.cu"), (2, "c \\\" d")]);
    assert_eq!((module.file(1), module.file(3)), (Some("/a/b.cu"), None));
    assert_eq!(
        module
            .others
            .iter()
            .map(|span| &text[span.clone()])
            .collect::<Vec<_>>(),
        [
            "@@DWARF .byte 1",
            "# 1 \"x\"",
            ".section .debug_abbrev\n{\n.b8 1 // }\nL: .b32 L+4\n}",
            ".alias f, g;",
            ".pragma \"x\";",
            ".future thing 1",
            ".metadata 0 { a, {b} }",
            ".last"
        ]
    );
    assert_eq!(module.variable("v").unwrap().linkage, Linkage::Visible);
    assert_eq!(
        (
            module.line_of(0),
            module.line_of(text.find(".file").unwrap()),
            module.line_of(usize::MAX)
        ),
        (1, 4, 18)
    );
    assert_eq!(
        index("/**/ .version 7.8\n.target sm_80\0\0").map(|m: Module<'_>| m.address_size),
        Ok(32)
    );
}

#[test]
fn targets() {
    let target = |number, suffix| Some(Target { number, suffix });
    assert_eq!(Target::parse("sm_90"), target(90, None));
    assert_eq!(Target::parse("sm_90a"), target(90, Some('a')));
    assert_eq!(Target::parse("compute_100f"), target(100, Some('f')));
    for wrong in [
        "sm_",
        "sm_a",
        "sm_90ab",
        "sm_9x0",
        "sm_+9",
        "sm_99999999999",
        "debug",
        "",
    ] {
        assert_eq!(Target::parse(wrong), None, "{wrong}");
    }
    assert_eq!(
        Target {
            number: 120,
            suffix: Some('a')
        }
        .to_string(),
        "sm_120a"
    );
}

#[test]
fn broken_modules() {
    let after = |text: &str| index_error(&format!("{HEADER}{text}"));
    assert_eq!(
        index_error(""),
        "PTX module has no `.version` directive: is the text truncated?"
    );
    assert_eq!(
        index_error(".version 8.0\n"),
        "PTX module has no `.target` directive: is the text truncated?"
    );
    assert_eq!(
        index_error(".target sm_90"),
        "PTX line 1, column 1: expected `.version`, which every module begins with, found `.target`"
    );
    assert_eq!(
        index_error("\u{7f}ELF"),
        "PTX line 1, column 1: expected a module-scope directive, found `\\u{7f}`"
    );
    assert_eq!(
        index_error("é"),
        "PTX line 1, column 1: expected a module-scope directive, found `é`"
    );
    assert_eq!(
        index_error(".version x"),
        "PTX line 1, column 10: expected a version number, found `x`"
    );
    assert_eq!(
        index_error(".version 8"),
        "PTX line 1, column 10: `8` is no valid number: a version is written major.minor"
    );
    assert_eq!(
        index_error(".version 8.0\n.target ;"),
        "PTX line 2, column 9: expected a target such as `sm_90`, found `;`"
    );
    assert_eq!(
        after("/* x"),
        "PTX line 4, column 1: `/*` opened here is never closed"
    );
    assert_eq!(
        after(".entry k() {\n ret;\n"),
        "PTX line 4, column 12: `{` opened here is never closed"
    );
    assert_eq!(
        after(".entry k() {\n .pragma \"x }\n"),
        "PTX line 5, column 10: `\"` opened here is never closed"
    );
    assert_eq!(
        after(".entry ("),
        "PTX line 4, column 8: expected a function name, found `(`"
    );
    assert_eq!(
        after(".entry k(x)"),
        "PTX line 4, column 10: expected `.param` or `.reg`, found `x`"
    );
    assert_eq!(
        after(".entry k(.param x)"),
        "PTX line 4, column 17: expected a type, found `x`"
    );
    assert_eq!(
        after(".entry k(.param .u32 x"),
        "PTX line 4, column 23: expected `,` or `)` after the parameter, found end of text"
    );
    assert_eq!(
        after(".entry k()\nret;"),
        "PTX line 5, column 1: expected a performance directive, `{` or `;`, found `ret`"
    );
    assert_eq!(
        after(".visible x"),
        "PTX line 4, column 10: expected `.entry`, `.func` or a variable's state space, found `x`"
    );
    assert_eq!(
        after(".visible .reg"),
        "PTX line 4, column 10: expected `.entry`, `.func` or a variable's state space, found `.reg`"
    );
    assert_eq!(
        after(".global .u32 x y;"),
        "PTX line 4, column 16: expected `[`, `=`, `,` or `;` after the variable's name, found `y`"
    );
    assert_eq!(
        after(".global .u32 x[-1];"),
        "PTX line 4, column 16: expected an array dimension or `]`, found `-`"
    );
    assert_eq!(
        after(".global .u32 x = ;"),
        "PTX line 4, column 18: expected an initialiser, found `;`"
    );
    assert_eq!(
        after(".global .u32 x = f(1;"),
        "PTX line 4, column 19: `(` opened here is never closed"
    );
    assert_eq!(
        after(".global .u32 x = 1];"),
        "PTX line 4, column 19: expected `,` or `;` after the initialiser, found `]`"
    );
    assert_eq!(
        after(".global .u32 x = (1];"),
        "PTX line 4, column 20: expected a matching bracket, found `]`"
    );
    assert_eq!(
        after(".global .align 1.5 .u32 x;"),
        "PTX line 4, column 16: `1.5` is no valid number: an integer is needed here"
    );
    assert_eq!(
        after(".file 99999999999 \"x\""),
        "PTX line 4, column 7: `99999999999` is no valid number: it does not fit in 32 bits"
    );
    assert_eq!(
        after(".file 1 x"),
        "PTX line 4, column 9: expected a string, found `x`"
    );
    let huge = ".func f(.param .b8 x[4294967296][4294967296]);";
    let message = "`[4294967296][4294967296]` is no valid number: the array has more elements than 64 bits can count";
    assert_eq!(after(huge), format!("PTX line 4, column 21: {message}"));
}

#[test]
fn broken_bodies() {
    let at = |line: usize, column: usize, rest: &str| {
        format!("PTX line {line}, column {column}: {rest}")
    };
    assert_eq!(
        body_error("add.u32 a b, c;"),
        at(6, 11, "expected `,` or `;` after the operand, found `b`")
    );
    assert_eq!(
        body_error("mov.u32 a, 5\nadd.u32 a, a, 1;"),
        at(
            7,
            1,
            "expected `,` or `;` after the operand, found `add.u32`"
        )
    );
    assert_eq!(
        body_error("ret"),
        at(7, 1, "expected an operand, found the end of the body")
    );
    assert_eq!(
        body_error("add. a;"),
        at(6, 5, "expected a modifier after the `.`, found ` `")
    );
    assert_eq!(
        body_error("add.u32 a,;"),
        at(6, 11, "expected an operand, found `;`")
    );
    assert_eq!(
        body_error("@ ;"),
        at(6, 3, "expected a guard predicate, found `;`")
    );
    assert_eq!(
        body_error("@p ;"),
        at(6, 4, "expected an instruction, found `;`")
    );
    assert_eq!(
        body_error("5;"),
        at(
            6,
            1,
            "expected an instruction, a label or a directive, found `5`"
        )
    );
    assert_eq!(
        body_error("ld [];"),
        at(6, 5, "expected an address, found `]`")
    );
    assert_eq!(
        body_error("ld [a b];"),
        at(6, 7, "expected `+`, `,` or `]` in an address, found `b`")
    );
    assert_eq!(
        body_error("ld {a b};"),
        at(6, 7, "expected `,` or `}`, found `b`")
    );
    assert_eq!(
        body_error("call (a;"),
        at(6, 8, "expected `,` or `)`, found `;`")
    );
    let deep = format!("t {}a;", "(".repeat(40));
    assert_eq!(
        body_error(&deep),
        at(
            6,
            19,
            "expected an operand nested at most 16 deep, found `(`"
        )
    );
    assert_eq!(
        body_error(".reg .u32 ;"),
        at(6, 11, "expected a register name, found `;`")
    );
    assert_eq!(
        body_error(".reg .u32 a b;"),
        at(
            6,
            13,
            "expected `<`, `,` or `;` after the register's name, found `b`"
        )
    );
    assert_eq!(
        body_error(".reg .u32 a<x>;"),
        at(6, 13, "expected a register count, found `x`")
    );
    assert_eq!(
        body_error(".loc 1 x"),
        at(6, 8, "expected a line, found `x`")
    );
    assert_eq!(
        body_error(".loc 1 2 3, at 5"),
        at(
            6,
            13,
            "expected `function_name` or `inlined_at`, found `at`"
        )
    );
    assert_eq!(
        body_error("p: .callprototype ();"),
        at(6, 21, "expected `_`, found `;`")
    );
    assert_eq!(
        body_error("p: .callprototype _ () x;"),
        at(6, 24, "expected a directive or `;`, found `x`")
    );
    assert_eq!(
        body_error("t: .branchtargets a b;"),
        at(6, 21, "expected `,` or `;`, found `b`")
    );
    assert_eq!(
        body_error(".unknown )"),
        at(6, 10, "expected `;`, found `)`")
    );
    let number =
        |text: &str, reason: &str| at(6, 3, &format!("`{text}` is no valid number: {reason}"));
    let check = |text: &str, reason: &str| {
        assert_eq!(body_error(&format!("t {text};")), number(text, reason))
    };
    check("0f123", "`0f` wants exactly 8 hexadecimal digits");
    check("0d3F800000", "`0d` wants exactly 16 hexadecimal digits");
    check("0xG", "a digit does not belong to its base");
    check("08", "a digit does not belong to its base");
    check("0b12", "a digit does not belong to its base");
    check("0x", "a digit does not belong to its base");
    check("12z", "a digit does not belong to its base");
    check("18446744073709551616", "it does not fit in 64 bits");
    check("1.2x", "not a decimal floating point number");
    check("1e", "not a decimal floating point number");
}

#[test]
fn errors_tell_their_offset() {
    let error = index(".version 8.0\n.target ;").unwrap_err();
    assert_eq!(error.offset(), Some(21));
    assert_eq!(
        PtxError::MissingDirective {
            directive: ".target"
        }
        .offset(),
        None
    );
}
