//! CO-RE: what clang asks for, against the object's own types and against those of another object.

use crate::common::{compile, compile_with};
use proptest::prelude::*;
use warpbpf_ebpf::{Pc, listing};
use warpbpf_object::{
    Btf, LoadOptions, Object, ObjectError, UNRESOLVED_CALL, link, load, load_with, relocate,
};

const CORE: &str = "#include <bpf/bpf_core_read.h>
#define P __attribute__((preserve_access_index))
";

fn program(source: &str) -> Vec<u8> {
    compile(&format!("{CORE}{source}"))
}

/// The types of `source`, as a target.
fn types(source: &str) -> Btf {
    Btf::read(&program(source)).expect("it has types")
}

fn against(bytes: &[u8], target: &Btf) -> Result<Object, ObjectError> {
    let options = LoadOptions {
        target_btf: Some(target),
        ..LoadOptions::default()
    };
    load_with(bytes, &options)
}

/// Instructions of the first program, without numbers and blanks in front.
fn code(object: &Object) -> Vec<String> {
    let text = listing(&object.programs[0].code);
    text.lines()
        .map(|line| line.split_once(": ").expect("numbered").1.to_owned())
        .collect()
}

fn unresolved(object: &Object) -> Vec<(u32, &str)> {
    let table = &object.programs[0].unresolved;
    table
        .iter()
        .map(|(pc, text)| (pc.0, text.as_str()))
        .collect()
}

/// The program, its own types, and other ones: what becomes of it.
fn check(source: &str, target: &str, own: &[&str], other: &[&str]) {
    let bytes = program(source);
    let object = load(&bytes).expect("it loads");
    assert_eq!(code(&object), own);
    assert_eq!(unresolved(&object), []);
    let target = types(target);
    let moved = against(&bytes, &target).expect("it loads against the target");
    assert_eq!(code(&moved), other);
    assert_eq!(unresolved(&moved), []);
    // Done in advance, it is the same.
    let baked = load(&relocate(&bytes, &target).expect("it relocates")).expect("it loads");
    assert_eq!(baked.programs, moved.programs);
}

#[test]
fn fields_move_with_their_struct() {
    check(
        "struct mm { int users; } P; struct task { int pid; struct mm mm; } P;
         SEC(\"x\") int f(struct task *t) { return t->mm.users; }",
        "struct mm { long pad; int users; }; struct task { long state; int pid; struct mm mm; } v;",
        &["r0 = *(u32 *)(r1 + 4)", "exit"],
        &["r0 = *(u32 *)(r1 + 24)", "exit"],
    );
    // Stores, arrays, anonymous members on either side, flavors of both.
    check(
        "struct task___new { int a; struct { int b[4]; }; } P;
         SEC(\"x\") int f(struct task___new *t) { t->b[2] = 7; return 0; }",
        "struct task { union { int b[8]; long c; }; int a; } v;",
        &["r2 = 7", "*(u32 *)(r1 + 12) = r2", "r0 = 0", "exit"],
        &["r2 = 7", "*(u32 *)(r1 + 8) = r2", "r0 = 0", "exit"],
    );
    // An address is computed where no load can take the offset.
    check(
        "struct s { int a; int b[2]; } P; SEC(\"x\") long f(struct s *s) { return (long)&s->b; }",
        "struct s { int b[2]; int pad[99]; int a; } v;",
        &["r0 = r1", "r1 = 4", "r0 += r1", "exit"],
        &["r0 = r1", "r1 = 0", "r0 += r1", "exit"],
    );
    // The index of the pointer itself counts in sizes of the target.
    check(
        "struct s { int a; int b; } P; SEC(\"x\") int f(struct s *s) { return s[2].b; }",
        "struct s { long pad; int b; int a; } v;",
        &["r0 = *(u32 *)(r1 + 20)", "exit"],
        &["r0 = *(u32 *)(r1 + 40)", "exit"],
    );
}

#[test]
fn loads_follow_the_width_of_unsigned_fields() {
    check(
        "struct s { unsigned short a; unsigned b; unsigned long c; unsigned char d; } P;
         SEC(\"x\") int f(struct s *s) { return s->a + s->b + s->c + s->d; }",
        "struct s { unsigned long a; unsigned char b; unsigned c; unsigned short d; } v;",
        &[
            "r2 = *(u16 *)(r1 + 0)",
            "r3 = *(u32 *)(r1 + 4)",
            "r3 += r2",
            "r3 <<= 32",
            "r3 >>= 32",
            "r0 = *(u64 *)(r1 + 8)",
            "r0 += r3",
            "r1 = *(u8 *)(r1 + 16)",
            "r0 += r1",
            "exit",
        ],
        &[
            "r2 = *(u64 *)(r1 + 0)",
            "r3 = *(u8 *)(r1 + 8)",
            "r3 += r2",
            "r3 <<= 32",
            "r3 >>= 32",
            "r0 = *(u32 *)(r1 + 12)",
            "r0 += r3",
            "r1 = *(u16 *)(r1 + 16)",
            "r0 += r1",
            "exit",
        ],
    );
    let signed = program("struct s { int a; } P; SEC(\"x\") int f(struct s *s) { return s->a; }");
    let object = against(&signed, &types("struct s { long a; } v;")).expect("it loads");
    assert_eq!(
        unresolved(&object),
        [(
            0,
            "CO-RE: field `struct s.a` has 8 bytes in the target instead of 4, and only pointers and unsigned integers can be read with another width"
        )]
    );
    let far = "struct s { char pad[40000]; int a; } v;";
    let object = against(&signed, &types(far)).expect("it loads");
    assert_eq!(
        unresolved(&object),
        [(
            0,
            "CO-RE: field `struct s.a` is at byte 40000 of the target type, too far for the offset of a load"
        )]
    );
}

#[test]
fn questions_have_answers() {
    let asks = |question: &str| {
        format!(
            "struct s {{ int a; short b; }}; enum e {{ A = 3, B = 0x123456789 }}; typedef int (*fn)(int);
             SEC(\"x\") long f(struct s *s) {{ return {question}; }}"
        )
    };
    let target = "struct s { int a; int pad; long c; } v; enum e { C = 1, A = 9 } w; typedef int (*fn)(int); fn x;";
    for (question, own, other) in [
        ("bpf_core_field_exists(s->a)", 1, 1),
        ("bpf_core_field_exists(s->b)", 1, 0),
        ("bpf_core_field_size(s->a)", 4, 4),
        ("bpf_core_type_exists(struct s)", 1, 1),
        ("bpf_core_type_exists(fn)", 1, 1),
        ("bpf_core_type_size(struct s)", 8, 16),
        ("__builtin_preserve_type_info(*(struct s *)0, 2)", 1, 0),
        ("__builtin_preserve_field_info(s->a, 3)", 1, 1),
    ] {
        let bytes = program(&asks(question));
        let answer = |object: Object| code(&object)[0].clone();
        assert_eq!(
            answer(load(&bytes).expect("it loads")),
            format!("r0 = {own}"),
            "{question}"
        );
        let moved = against(&bytes, &types(target)).expect("it loads");
        assert_eq!(answer(moved), format!("r0 = {other}"), "{question}");
    }
    for (question, own, other) in [
        ("bpf_core_enum_value_exists(enum e, B)", 1u64, 0u64),
        ("bpf_core_enum_value_exists(enum e, A)", 1, 1),
        ("bpf_core_enum_value(enum e, A)", 3, 9),
    ] {
        let bytes = program(&asks(question));
        let answer = |object: Object| code(&object)[0].clone();
        let text = |value: u64| format!("r0 = {value:#x} ll");
        assert_eq!(
            answer(load(&bytes).expect("it loads")),
            text(own),
            "{question}"
        );
        let moved = against(&bytes, &types(target)).expect("it loads");
        assert_eq!(answer(moved), text(other), "{question}");
    }
    let bytes = program(&asks("bpf_core_enum_value(enum e, B)"));
    assert_eq!(
        code(&load(&bytes).expect("it loads"))[0],
        "r0 = 0x123456789 ll"
    );
    // Type numbers: those of the object, and those of the target.
    let bytes = program(&asks(
        "bpf_core_type_id_kernel(struct s) + 0 * bpf_core_type_id_local(struct s)",
    ));
    let target = types(target);
    let (id, _) = target.find("s").next().expect("it is there");
    let moved = against(&bytes, &target).expect("it loads");
    assert_eq!(code(&moved)[0], format!("r0 = {:#x} ll", id.0));
    let bytes = program(&asks("bpf_core_type_id_local(struct s)"));
    let object = load(&bytes).expect("it loads");
    let (id, _) = object
        .btf
        .as_ref()
        .expect("-g")
        .find("s")
        .next()
        .expect("it is there");
    let expected = format!("r0 = {:#x} ll", id.0);
    assert_eq!(code(&object)[0], expected);
    assert_eq!(
        code(&against(&bytes, &target).expect("it loads"))[0],
        expected
    );
}

/// The answers to questions, one per line of `questions`, each 0 or 1.
fn answers(declarations: &str, questions: &[String], target: &Btf) -> Vec<bool> {
    let body: String = questions.iter().map(|q| format!("*out = {q};")).collect();
    let bytes = program(&format!(
        "{declarations} SEC(\"x\") int f(volatile int *out) {{ {body} return 7; }}"
    ));
    let object = against(&bytes, target).expect("it loads");
    code(&object)
        .iter()
        .filter_map(|line| match line.split_once(" = ")?.1 {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
        .collect()
}

#[test]
fn types_exist_and_match() {
    // A declaration of `NAME` here and in the target; whether it exists there, and whether it
    // matches.
    let cases = [
        (
            "struct NAME { int a; };",
            "struct NAME { int a; };",
            true,
            true,
        ),
        (
            "struct NAME { int a; };",
            "struct NAME { long b; int a; };",
            true,
            true,
        ),
        (
            "struct NAME { int a; };",
            "struct NAME { unsigned a; };",
            true,
            false,
        ),
        (
            "struct NAME { int a; };",
            "struct NAME { long a; };",
            true,
            false,
        ),
        (
            "struct NAME { int a; };",
            "union NAME { int a; };",
            false,
            false,
        ),
        (
            "struct NAME { int a; };",
            "struct NAME { int b; };",
            true,
            false,
        ),
        (
            "struct NAME { int a[4]; };",
            "struct NAME { int a[4]; };",
            true,
            true,
        ),
        (
            "struct NAME { int a[4]; };",
            "struct NAME { int a[5]; };",
            true,
            false,
        ),
        (
            "struct x___1 { int q; }; struct NAME { struct x___1 *p; };",
            "struct x { long r; }; struct NAME { struct x *p; };",
            true,
            true,
        ),
        (
            "struct x; struct NAME { struct x *p; };",
            "struct y { long r; }; struct NAME { struct y *p; };",
            true,
            false,
        ),
        (
            "struct x; struct NAME { struct x *p; };",
            "struct x { long r; }; struct NAME { struct x *p; };",
            true,
            true,
        ),
        (
            "struct x { int q; }; struct NAME { struct x p; };",
            "struct x { long q; }; struct NAME { struct x p; };",
            true,
            false,
        ),
        (
            "union NAME { int a; long b; };",
            "union NAME { long b; int a; int c; };",
            true,
            true,
        ),
        (
            "enum NAME { NAME_A, NAME_B };",
            "enum NAME { NAME_B, NAME_A, NAME_C };",
            true,
            true,
        ),
        (
            "enum NAME { NAME_A, NAME_B };",
            "enum NAME { NAME_A };",
            true,
            false,
        ),
        (
            "enum NAME { NAME_A };",
            "enum NAME { NAME_A, NAME_X = 0x1ffffffff };",
            true,
            false,
        ),
        (
            "typedef int (*NAME)(int, long);",
            "typedef int (*NAME)(int, long);",
            true,
            true,
        ),
        (
            "typedef int (*NAME)(int, long);",
            "typedef int (*NAME)(int, int);",
            true,
            false,
        ),
        (
            "typedef int (*NAME)(int, long);",
            "typedef int (*NAME)(int);",
            false,
            false,
        ),
        ("typedef int NAME;", "typedef const long NAME;", true, false),
        ("typedef int NAME;", "typedef int *NAME;", false, false),
        ("struct NAME { int a; };", "", false, false),
    ];
    let (mut here, mut there, mut questions) = (String::new(), String::new(), Vec::new());
    for (index, (local, target, ..)) in cases.iter().enumerate() {
        // Inner types are told apart by the case, too.
        let rename = |text: &str| {
            let text = text.replace("NAME", &format!("t{index}"));
            let text = text.replace("struct x", &format!("struct x{index}"));
            text.replace("struct y", &format!("struct y{index}"))
        };
        let word = local.rsplit(';').nth(1).map_or("", |_| {
            ["struct NAME", "union NAME", "enum NAME"]
                .into_iter()
                .find(|word| local.contains(*word))
                .unwrap_or("NAME")
        });
        here += &rename(local);
        there += &rename(target);
        if !target.is_empty() {
            there += &rename(&format!("{word} *v_NAME;").replace("v_NAME", &format!("v{index}")));
        }
        let macros: [fn(&str) -> String; 2] = [
            |word| format!("bpf_core_type_exists({word})"),
            |word| format!("__builtin_preserve_type_info(*({word} *)0, 2)"),
        ];
        questions.extend(macros.map(|question| rename(&question(word))));
    }
    // The target may say `union` where the program says `struct`.
    let there = there.replace("struct t4 *v4", "union t4 *v4");
    let answers = answers(&here, &questions, &types(&there));
    for (index, (case, answer)) in cases.iter().zip(answers.chunks(2)).enumerate() {
        assert_eq!(answer, [case.2, case.3], "case {index}: {case:?}");
    }
    assert_eq!(answers.len(), 2 * cases.len());
}

#[test]
fn fields_are_of_the_same_kind() {
    let members = [
        ("int a;", "unsigned char a;", true),
        ("int a;", "int a : 3;", true),
        ("int a;", "enum { Q } a;", false),
        ("enum one { Q } a;", "enum one { R } a;", true),
        ("enum one2 { Q2 } a;", "enum two2 { R2 } a;", false),
        ("enum one3 { Q3 } a;", "enum { R3 } a;", true),
        ("struct { int x; } a;", "union { long y; } a;", true),
        ("int *a;", "struct whatever *a;", true),
        ("int *a;", "long a;", false),
        ("int a[2];", "unsigned a[7];", true),
        ("int a[2];", "int *a[2];", false),
        ("float a;", "double a;", true),
        ("int b;", "int a;", false),
    ];
    let (mut here, mut there, mut questions) = (String::new(), String::new(), Vec::new());
    for (index, (local, target, _)) in members.iter().enumerate() {
        here += &format!("struct t{index} {{ {local} }};");
        there += &format!("struct t{index} {{ {target} }} v{index};");
        let name = if local.contains(" b") { "b" } else { "a" };
        questions.push(format!(
            "bpf_core_field_exists(((struct t{index} *)0)->{name})"
        ));
    }
    let answers = answers(&here, &questions, &types(&there));
    for (case, answer) in members.iter().zip(&answers) {
        assert_eq!(*answer, case.2, "{case:?}");
    }
    assert_eq!(answers.len(), members.len());
}

#[test]
fn bit_fields_are_read_where_they_are() {
    let source = "struct s { unsigned a : 3; int b : 7; unsigned long long c : 40; } P;
        SEC(\"x\") long f(struct s *s) { return BPF_CORE_READ_BITFIELD(s, b); }";
    let bytes = program(source);
    let numbers = |object: &Object| {
        // Offset, size, left shift, signedness, right shifts.
        let code = code(object);
        let immediate = |line: &String| {
            let (_, number) = line.rsplit_once(' ')?;
            number.parse::<i64>().ok()
        };
        let pick = |needle: &str| {
            code.iter()
                .filter(|line| line.contains(needle) && line.starts_with('r'))
                .filter_map(immediate)
                .collect::<Vec<_>>()
        };
        (pick("<<="), pick(">>="))
    };
    let object = load(&bytes).expect("it loads");
    assert_eq!(numbers(&object), (vec![54], vec![57, 57]));
    let target = types("struct s { long pad; unsigned a : 20; int b : 10; } v;");
    let moved = against(&bytes, &target).expect("it loads");
    assert_eq!(numbers(&moved), (vec![34], vec![54, 54]));
    // As an ordinary field of the target.
    let moved = against(&bytes, &types("struct s { int a, b; } v;")).expect("it loads");
    assert_eq!(numbers(&moved), (vec![32], vec![32, 32]));
}

#[test]
fn what_is_missing_is_poisoned() {
    let source = "struct gone { int x; }; struct s { int a; int b; } P; enum e { A, B };
        SEC(\"x\") long f(struct s *s) {
            if (bpf_core_field_exists(s->b)) return s->b;
            return bpf_core_type_size(struct gone) + bpf_core_enum_value(enum e, B);
        }";
    let bytes = program(source);
    let object =
        against(&bytes, &types("struct s { int a; } v; enum e { A } w;")).expect("it loads");
    let texts: Vec<_> = unresolved(&object)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        texts,
        [
            "CO-RE: field `struct s.b` does not exist in the target type",
            "CO-RE: type `struct gone` does not exist in the target",
            "CO-RE: enumerator `enum e::B` does not exist in the target type",
            "CO-RE: enumerator `enum e::B` does not exist in the target type",
        ]
    );
    let program = &object.programs[0];
    for pc in program.unresolved.keys() {
        let insn = &program.code.insns()[pc.index()];
        let expected = format!("call {UNRESOLVED_CALL}");
        assert_eq!(
            listing(&warpbpf_ebpf::Code::new(vec![*insn])).trim(),
            format!("0: {expected}")
        );
        assert!(program.line_of(*pc).is_some());
    }
    let nothing = against(&bytes, &types("int v;")).expect("it loads");
    assert_eq!(
        unresolved(&nothing).first().map(|(_, text)| *text),
        Some("CO-RE: the target has no type `struct s`, so no field `struct s.b`")
    );
    // A member of another kind is none.
    let bytes =
        self::program("struct s { int a; } P; SEC(\"x\") int f(struct s *s) { return s->a; }");
    let object = against(&bytes, &types("struct s { int *a; } v;")).expect("it loads");
    assert_eq!(
        unresolved(&object),
        [(
            0,
            "CO-RE: field `struct s.a` does not exist in the target type"
        )]
    );
}

#[test]
fn static_functions_are_relocated_too() {
    let source = "struct s { int a; int b; } P;
        static __attribute__((noinline)) int get(struct s *s) { return s->b; }
        SEC(\"x\") int f(struct s *s) { return get(s); }";
    let object = against(&program(source), &types("struct s { int a; } v;")).expect("it loads");
    let table = unresolved(&object);
    assert_eq!(
        table,
        [(
            2,
            "CO-RE: field `struct s.b` does not exist in the target type"
        )]
    );
    let function = object.programs[0].function_of(Pc(2)).expect("it is in one");
    assert_eq!(function.name, "get");
}

#[test]
fn contradictions_are_refused() {
    let bytes = program("struct s { int a; } P; SEC(\"x\") int f(struct s *s) { return s->a; }");
    let two = "struct s___1 { int a; } v; struct s___2 { int b; int a; } w;";
    let message = |bytes: &[u8], target: &str| {
        against(bytes, &types(target))
            .expect_err("it is refused")
            .to_string()
    };
    assert_eq!(
        message(&bytes, two),
        "`f` (slot 0): the CO-RE relocation (field offset) of `struct s.a` is ambiguous: the target has several types `s` that fit, with different results"
    );
    // Equal results are no contradiction.
    let same = types("struct s___1 { int a; } v; struct s___2 { int a; int b; } w;");
    assert_eq!(unresolved(&against(&bytes, &same).expect("it loads")), []);
    let mut odd = bytes.clone();
    let insn = [0x61, 0x10, 0, 0, 0, 0, 0, 0];
    let at = odd
        .windows(8)
        .position(|window| window == insn)
        .expect("the load is there");
    odd[at + 2] = 9;
    assert_eq!(
        load(&odd).expect_err("it is refused").to_string(),
        "`f` (slot 0): the CO-RE relocation (field offset) of `struct s.a` does not fit its instruction, which holds 9 where the types say 0"
    );
    odd[at] = 0x95;
    odd[at + 1..at + 3].fill(0);
    assert_eq!(
        load(&odd).expect_err("it is refused").to_string(),
        "`f` (slot 0): the CO-RE relocation (field offset) of `struct s.a` belongs to an instruction that holds no such number"
    );
    let nameless = program("SEC(\"x\") int f(struct { int a; } P *s) { return s->a; }");
    assert!(load(&nameless).is_ok());
    assert_eq!(
        message(&nameless, "int v;"),
        "`f` (slot 0): the CO-RE relocation (field offset) of `struct {…}.a` is of a type without a name, which cannot be looked up in a target; name the type"
    );
    // What no program reaches does not matter.
    let unused = program(
        "struct s { int a; } P; int unused(struct s *s) { return s->a; } SEC(\"x\") int f(void *s) { return 0; }",
    );
    assert!(against(&unused, &types(two)).is_ok());
    let relocated = relocate(&unused, &types(two)).expect("it relocates");
    assert!(load(&relocated).is_ok());
    assert!(relocate(&bytes, &types(two)).is_err());
}

#[test]
fn types_come_from_anywhere() {
    let object = program("int v;");
    let section = |bytes: &[u8]| {
        let at = bytes
            .windows(4)
            .position(|w| w == [0x9f, 0xeb, 1, 0])
            .expect("`.BTF`");
        bytes[at..].to_vec()
    };
    assert_eq!(Btf::read(&section(&object)), Btf::read(&object));
    // An ELF file for another machine, as kernels are.
    let mut other = object.clone();
    other[18..20].copy_from_slice(&62u16.to_le_bytes());
    assert_eq!(Btf::read(&other), Btf::read(&object));
    let message = |bytes: &[u8]| Btf::read(bytes).expect_err("it is refused").to_string();
    assert_eq!(
        message(&compile_with("int v;", &["-target", "bpf"])),
        "this file has no types (no `.BTF` section); compile with `-g`, or give `/sys/kernel/btf/vmlinux`"
    );
    assert_eq!(
        message(b"hello"),
        "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`"
    );
    assert_eq!(
        message(&[0x9f, 0xeb, 1]),
        "section `.BTF` cannot be read: it ends at byte 3 inside the header; compile with a clang of version 11 or later"
    );
    assert_eq!(
        message(&[0x9f, 0xeb, 9, 0]),
        "section `.BTF` cannot be read: its version is 9, only 1 is known; compile with a clang of version 11 or later"
    );
}

#[test]
fn without_the_types_of_a_target_what_asks_for_them_is_refused() {
    let options = LoadOptions {
        no_target: Some("nobody knows"),
        ..LoadOptions::default()
    };
    let load = |source: &str| load_with(&program(source), &options);
    let task = "struct task { int pid; } P;";
    let refused = |line: &str| {
        let error = load(&format!(
            "{task} SEC(\"x\") int f(struct task *t) {{ {line} }}"
        ));
        error.expect_err("it is refused").to_string()
    };
    assert_eq!(
        refused("return t->pid;"),
        "`f` (slot 0): the CO-RE relocation (field offset) of `struct task.pid` asks for types of the target, which there are not: nobody knows"
    );
    // That it does not exist would be an answer, too, and a wrong one.
    assert!(refused("return bpf_core_field_exists(t->pid);").contains("(field existence)"));
    let own = "struct own { int pid; }; SEC(\"x\") int f(struct own *t) { return t->pid + bpf_core_type_id_local(struct own); }";
    load(own).expect("it asks nothing of a target");
}

/// Every kind of relocation in one object.
fn rich() -> Vec<u8> {
    program(
        "struct in { char c; int d[3]; }; struct s { int a; struct in in[2]; union { long u; int w : 5; }; struct s *next; } P;
         enum e { A = 3, B }; typedef int (*fn)(struct s *, int);
         SEC(\"x\") long f(struct s *s) {
             long r = s->a + s->in[1].d[2] + s->u + (long)s->next + BPF_CORE_READ_BITFIELD(s, w);
             if (bpf_core_type_matches(struct s) && bpf_core_type_exists(fn)) r += bpf_core_type_size(struct in);
             if (bpf_core_enum_value_exists(enum e, B)) r += bpf_core_enum_value(enum e, B);
             return r + bpf_core_type_id_local(struct s) + bpf_core_type_id_kernel(struct in) + bpf_core_field_exists(s->u);
         }",
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        both in any::<bool>(),
    ) {
        static RICH: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(rich);
        // Types and records are what is read here; they stand behind the code.
        let from = RICH.windows(4).position(|w| w == [0x9f, 0xeb, 1, 0]).expect("`.BTF`");
        let mut bytes = RICH.clone();
        for (at, byte) in edits {
            let at = from + at.index(bytes.len() - from);
            bytes[at] = byte;
        }
        let _ = (load(&bytes), link(&[("a", &bytes), ("b", &bytes)]));
        if let Ok(target) = Btf::read(&bytes) {
            let _ = (against(&RICH, &target), relocate(&RICH, &target));
            if both {
                let _ = against(&bytes, &target);
            }
        }
    }
}
