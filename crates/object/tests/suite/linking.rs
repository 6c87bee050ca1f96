//! Several objects as one: what is joined, what is refused, and that the result is an object like
//! any other.

use std::process::{Command, Stdio};

use crate::common::{compile, compile_with};
use proptest::prelude::*;
use warpbpf_ebpf::{Pc, listing};
use warpbpf_object::btf::{Linkage, Type};
use warpbpf_object::{InitialValue, LinkError, MapKind, Object, link, load, load_with};

/// Compiles the sources and links them as `a`, `b`, ….
fn linked(sources: &[&str]) -> Result<Vec<u8>, LinkError> {
    let objects: Vec<Vec<u8>> = sources.iter().map(|source| compile(source)).collect();
    join(&objects)
}

fn join(objects: &[Vec<u8>]) -> Result<Vec<u8>, LinkError> {
    let names = ["a.o", "b.o", "c.o"];
    let named: Vec<(&str, &[u8])> = names
        .into_iter()
        .zip(objects.iter().map(Vec::as_slice))
        .collect();
    link(&named)
}

fn loaded(sources: &[&str]) -> Object {
    load(&linked(sources).expect("it links")).expect("it loads")
}

fn refused(sources: &[&str]) -> String {
    linked(sources).expect_err("it is refused").to_string()
}

const MAIN: &str = "
    struct node { struct node *next; int v; };
    extern int helper(struct node *n);
    extern int shared;
    extern struct { __uint(type, 1); __uint(max_entries, 4); __type(key, int); __type(value, struct node); } nodes SEC(\".maps\");
    static int count = 2;
    static __attribute__((noinline)) int twice(int x) { count++; asm volatile(\"\"); return 2 * x + count; }
    SEC(\"gpu/entry/*\") int enter(void *ctx) {
        int k = 0; struct node *n = bpf_map_lookup_elem(&nodes, &k);
        return n ? twice(helper(n)) + shared : 0;
    }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

const LIBRARY: &str = "
    struct node { struct node *next; int v; };
    struct { __uint(type, 1); __uint(max_entries, 4); __type(key, int); __type(value, struct node); } nodes SEC(\".maps\");
    static int count = 9;
    int shared = 5; long zeros[3];
    static __attribute__((noinline)) int twice(int x) { count += x; asm volatile(\"\"); return 3 * x + count; }
    int helper(struct node *n) { zeros[1]++; return twice(n->v); }
    static long step(__u64 i, void *ctx) { zeros[2] += i; return 0; }
    SEC(\"gpu/exit/*\") int leave(void *ctx) { bpf_printk(\"left %d\", shared); return bpf_loop(4, step, 0, 0); }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

#[test]
fn functions_variables_and_maps_are_found_in_other_objects() {
    let object = loaded(&[MAIN, LIBRARY]);
    let names: Vec<_> = object
        .maps
        .iter()
        .map(|map| (map.name.as_str(), map.value_size))
        .collect();
    assert_eq!(
        names,
        [("nodes", 16), (".data", 12), (".bss", 24), (".rodata", 8)]
    );
    let functions = |name: &str| {
        let program = object.program(name).expect("it is there");
        program
            .functions
            .iter()
            .map(|f| f.name.clone())
            .collect::<Vec<_>>()
    };
    // Each `twice` is its object's own.
    assert_eq!(functions("enter"), ["enter", "helper", "twice", "twice"]);
    assert_eq!(functions("leave"), ["leave", "step"]);
    let enter = object.program("enter").expect("it is there");
    let text = listing(&enter.code);
    let multiply = |factor: &str| text.matches(factor).count();
    assert_eq!((multiply("<<= 1"), multiply("*= 3")), (1, 1), "{text}");
    // `.data`: `count` of a.o, then `shared` and `count` of b.o; the three are told apart.
    let MapKind::Data { image, .. } = &object.map(".data").expect("it is there").1.kind else {
        panic!("no data section");
    };
    let values: Vec<u8> = image.iter().copied().filter(|byte| *byte != 0).collect();
    assert_eq!(values, [2, 5, 9]);
    for offset in [0, 4, 8] {
        assert!(text.contains(&format!("map[1][0] + {offset}")), "{text}");
    }
    assert_eq!(object.license.as_deref(), Some("GPL"));
}

#[test]
fn every_instruction_keeps_its_line_and_function() {
    let object = loaded(&[MAIN, LIBRARY]);
    let btf = object.btf.as_ref().expect("-g was given");
    for program in &object.programs {
        for pc in 0..program.code.insns().len() as u32 {
            let line = program.line_of(Pc(pc)).expect("it has a line");
            assert!(line.line > 0 && line.file.ends_with("<stdin>"));
        }
        for function in &program.functions {
            let id = function.btf.expect("func_info");
            assert_eq!(btf.type_name(id), function.name);
        }
    }
    let enter = object.program("enter").expect("it is there");
    let helper = &enter.functions[1];
    let line = enter.line_of(helper.start).expect("it has a line");
    // Behind the five lines of the common headers.
    assert_eq!(line.line, 5 + 7);
}

#[test]
fn types_are_there_once() {
    let object = loaded(&[MAIN, LIBRARY]);
    let btf = object.btf.as_ref().expect("-g was given");
    let count = |name: &str, test: &dyn Fn(&Type) -> bool| {
        btf.find(name).filter(|(_, ty)| test(ty)).count()
    };
    assert_eq!(count("node", &|ty| matches!(ty, Type::Struct { .. })), 1);
    assert_eq!(count("int", &|ty| matches!(ty, Type::Int { .. })), 1);
    // The declaration has become the definition.
    assert_eq!(count("helper", &|_| true), 1);
    assert_eq!(
        count("helper", &|ty| matches!(
            ty,
            Type::Func {
                linkage: Linkage::Global,
                ..
            }
        )),
        1
    );
    // Static ones stay two, each in its place.
    assert_eq!(count("count", &|_| true), 2);
    let data: Vec<_> = btf
        .data_section(".data")
        .expect("it is there")
        .iter()
        .map(|var| (btf.type_name(var.ty), var.offset))
        .collect();
    assert_eq!(data.len(), 3);
    assert_eq!(data[0], ("count".to_owned(), 0));
    let offsets: Vec<_> = data.iter().map(|(_, offset)| *offset).collect();
    assert_eq!(offsets, [0, 4, 8]);
    let (_, nodes) = object.map("nodes").expect("it is there");
    assert_eq!(
        btf.type_name(nodes.value_type.expect("typed")),
        "struct node"
    );
}

#[test]
fn linking_twice_changes_nothing_more() {
    let once = linked(&[MAIN, LIBRARY]).expect("it links");
    let twice = link(&[("ab.o", &once)]).expect("it links");
    assert_eq!(load(&once), load(&twice));
    assert_eq!(once, twice);
    // One object alone means the same as before.
    for source in [LIBRARY, "SEC(\"x\") int f(void *c) { return 1; }"] {
        let alone = compile(source);
        let through = linked(&[source]).expect("it links");
        let (before, after) = (
            load(&alone).expect("it loads"),
            load(&through).expect("it loads"),
        );
        let code = |object: &Object| {
            object
                .programs
                .iter()
                .map(|p| (p.name.clone(), listing(&p.code), p.lines.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(code(&before), code(&after));
    }
    let whole = crate::common::compile_file("whole.bpf.c", &["-target", "bpf", "-mcpu=v3", "-g"]);
    let through = link(&[("whole", &whole)]).expect("it links");
    let (before, after) = (
        load(&whole).expect("it loads"),
        load(&through).expect("it loads"),
    );
    assert_eq!(before.programs.len(), after.programs.len());
    for (a, b) in before.maps.iter().zip(&after.maps) {
        assert_eq!(
            (&a.name, a.value_size, &a.initial, &a.kind),
            (&b.name, b.value_size, &b.initial, &b.kind)
        );
    }
    for (a, b) in before.programs.iter().zip(&after.programs) {
        assert_eq!(
            (&a.name, &a.section, &a.code, &a.lines),
            (&b.name, &b.section, &b.code, &b.lines)
        );
    }
}

#[test]
fn other_tools_read_the_result() {
    let bytes = linked(&[MAIN, LIBRARY]).expect("it links");
    let output = |tool: &str, flags: &[&str]| {
        let path =
            std::env::temp_dir().join(format!("warpbpf-linked-{}-{tool}.o", std::process::id()));
        std::fs::write(&path, &bytes).expect("it is written");
        let output = Command::new(tool)
            .args(flags)
            .arg(&path)
            .stdin(Stdio::null())
            .output();
        std::fs::remove_file(&path).expect("it is removed");
        let output =
            output.unwrap_or_else(|error| panic!("`{tool}`: {error}; run `cargo xtask setup`"));
        assert!(
            output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let is_there = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    let objdump = ["llvm-objdump-19", "llvm-objdump"]
        .into_iter()
        .find(is_there);
    let text = output(objdump.unwrap_or("llvm-objdump"), &["-dlr"]);
    for expected in ["<helper>:", "R_BPF_64_32\thelper", "<stdin>:"] {
        assert!(text.contains(expected), "{text}");
    }
    let text = output("llvm-readelf-19", &["-S", "-s", "-r"]);
    for expected in [".rel.text", ".BTF.ext", "gpu/entry/*", "R_BPF_64_32"] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn weak_definitions_give_way() {
    let weak = "__weak int choose(int x) { return x + 1; } __weak int level = 1;
        SEC(\"x\") int f(int *c) { return choose(*c) + level; }";
    let strong = "int choose(int x) { asm volatile(\"\"); return x * 100; } int level = 7;";
    for sources in [[weak, strong], [strong, weak]] {
        let object = loaded(&sources);
        let text = listing(&object.programs[0].code);
        assert!(
            text.contains("*= 100") && !text.contains("+= 1\n"),
            "{text}"
        );
        let btf = object.btf.as_ref().expect("-g was given");
        let (_, data) = object.map(".data").expect("it is there");
        let MapKind::Data { image, .. } = &data.kind else {
            panic!("no data section");
        };
        let levels: Vec<_> = btf
            .data_section(".data")
            .expect("it is there")
            .iter()
            .map(|var| image[var.offset as usize])
            .collect();
        assert_eq!(levels, [7]);
    }
    // Of two weak ones the first is taken.
    let other = "__weak int choose(int x) { asm volatile(\"\"); return x * 3; }";
    assert!(!listing(&loaded(&[weak, other]).programs[0].code).contains("*= 3"));
    assert!(listing(&loaded(&[other, weak]).programs[0].code).contains("*= 3"));
    // Hidden anywhere is hidden in the result, and found nevertheless.
    let hidden = "__hidden int secret(int x) { asm volatile(\"\"); return x * 11; }";
    let user = "extern int secret(int x); SEC(\"x\") int f(int *c) { return secret(*c); }";
    assert!(listing(&loaded(&[user, hidden]).programs[0].code).contains("*= 11"));
}

#[test]
fn a_map_of_a_shared_header_is_one_map() {
    let map = "struct inner { __uint(type, 2); __uint(max_entries, 1); __type(key, int); __type(value, int); };
        struct inner one SEC(\".maps\");
        struct { __uint(type, 12); __uint(max_entries, 2); __type(key, int); __array(values, struct inner); } outer SEC(\".maps\") = { .values = { [1] = &one } };";
    let program = |name: &str| {
        format!(
            "{map} SEC(\"x\") int {name}(void *c) {{ int k = 1; return bpf_map_lookup_elem(&outer, &k) ? 1 : 0; }}"
        )
    };
    let object = loaded(&[&program("f"), &program("g")]);
    let names: Vec<_> = object.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["one", "outer"]);
    let [entry] = &object.maps[1].initial[..] else {
        panic!("{:?}", object.maps[1].initial);
    };
    assert_eq!((entry.index, &entry.value), (1, &InitialValue::Map(0)));
    for program in &object.programs {
        assert!(
            listing(&program.code).contains("map[1]"),
            "{}",
            listing(&program.code)
        );
    }
    let define = |attributes: &str| {
        let unused =
            "SEC(\"x\") int f(void *c) { int k = 1; return bpf_map_lookup_elem(&m, &k) ? 1 : 0; }";
        format!(
            "struct big {{ long a[4]; }}; struct {{ {attributes} }} m SEC(\".maps\"); static {}",
            unused.replace("SEC(\"x\") int f", "int __attribute__((used)) f")
        )
    };
    let base = "__uint(type, 1); __uint(max_entries, 4); __type(key, int); __type(value, long);";
    let conflict = |other: &str| refused(&[&define(base), &define(other)]);
    assert_eq!(
        conflict(&base.replace("(type, 1)", "(type, 2)")),
        "map `m`: `type` is 1 in `a.o` and 2 in `b.o`; share one definition"
    );
    assert_eq!(
        conflict(&base.replace("entries, 4", "entries, 8")),
        "map `m`: `max_entries` is 4 in `a.o` and 8 in `b.o`; share one definition"
    );
    assert_eq!(
        conflict(&base.replace("long", "struct big")),
        "map `m`: `value_size` is 8 in `a.o` and 32 in `b.o`; share one definition"
    );
    assert_eq!(
        conflict(&base.replace("long", "unsigned long")),
        "map `m`: `value` is `long` in `a.o` and `unsigned long` in `b.o`; share one definition"
    );
    assert_eq!(
        conflict(&format!("{base} __uint(pinning, 1);")),
        "map `m`: `pinning` is absent in `a.o` and 1 in `b.o`; share one definition"
    );
    assert_eq!(
        conflict(&base.replace("__type(key, int);", "__uint(key_size, 4);")),
        "map `m`: `key` is `int` in `a.o` and absent in `b.o`; share one definition"
    );
    let nested = |inner: &str| {
        define(&format!(
            "__uint(type, 12); __uint(max_entries, 1); __type(key, int); __array(values, struct {{ {inner} }});"
        ))
    };
    assert_eq!(
        refused(&[
            &nested(base),
            &nested(&base.replace("entries, 4", "entries, 5"))
        ]),
        "map `m`: `values.max_entries` is 4 in `a.o` and 5 in `b.o`; share one definition"
    );
    // A declaration must say the same as the definition.
    let declared = "extern struct { __uint(type, 1); __uint(max_entries, 3); __type(key, int); __type(value, long); } m SEC(\".maps\");
        SEC(\"x\") int g(void *c) { int k = 1; return bpf_map_lookup_elem(&m, &k) ? 1 : 0; }";
    assert_eq!(
        refused(&[declared, &define(base)]),
        "map `m`: `max_entries` is 3 in `a.o` and 4 in `b.o`; share one definition"
    );
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(link(&[]), Err(LinkError::Nothing));
    assert_eq!(
        LinkError::Nothing.to_string(),
        "there is nothing to link; name at least one object"
    );
    let user = "extern int helper(int x); SEC(\"x\") int f(int *c) { return helper(*c); }";
    assert_eq!(
        refused(&["int other(int x) { return x; }", user]),
        "`b.o` uses `helper`, which no object defines; link the one that does"
    );
    assert_eq!(
        refused(&[
            "int helper(int x) { return x; }",
            user,
            "int helper(int x) { return 2; }"
        ]),
        "`helper` is defined in `a.o` and in `c.o`; make one of them `static`, `__weak` or `extern`"
    );
    assert_eq!(
        refused(&["int v;", "int v = 3;"]),
        "`v` is defined in `a.o` and in `b.o`; make one of them `static`, `__weak` or `extern`"
    );
    assert_eq!(
        refused(&[user, "int helper(int x, int y) { return x; }"]),
        "`helper` is `int(int)` in `a.o` and `int(int, int)` in `b.o`; declare it in a header that both include"
    );
    let variable = "extern int v; SEC(\"x\") int f(int *c) { return v; }";
    assert_eq!(
        refused(&[variable, "long v;"]),
        "`v` is `int` in `a.o` and `long` in `b.o`; declare it in a header that both include"
    );
    // Other names of parameters, typedefs, qualifiers and unfinished types are no contradiction.
    assert!(
        linked(&[
            "struct s; extern __u32 helper(const struct s *x, __u64 n); SEC(\"x\") int f(void *c) { return helper(c, 1); }",
            "struct s { int a; }; unsigned helper(struct s *other, unsigned long long m) { return other->a; }",
        ])
        .is_ok()
    );
    let licensed = |text: &str, name: &str| format!("char {name}[] SEC(\"license\") = \"{text}\";");
    assert_eq!(
        refused(&[&licensed("GPL", "l"), "int v;", &licensed("MIT", "m")]),
        "section `license` is `GPL` in `a.o` and `MIT` in `c.o`; a linked object has one"
    );
    let object = loaded(&[&licensed("GPL", "l"), &licensed("GPL", "l")]);
    assert_eq!(object.license.as_deref(), Some("GPL"));
    let version = |n: u32| format!("__u32 VERSION SEC(\"version\") = {n};");
    assert_eq!(
        refused(&[&version(1), &version(2)]),
        "section `version` is 1 in `a.o` and 2 in `b.o`; a linked object has one"
    );
    assert_eq!(
        join(&[compile("int v;"), b"#!/bin/sh".to_vec()])
            .expect_err("it is refused")
            .to_string(),
        "`b.o`: this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`"
    );
    assert_eq!(
        refused(&["SEC(\"struct_ops/x\") int f(void *c) { return 0; }"]),
        "`a.o`: section `struct_ops/x`: struct_ops replaces kernel functions and has no meaning on a GPU; remove it"
    );
    assert_eq!(
        refused(&["char big[40 << 20];", "char more[40 << 20];"]),
        "the linked object would be too large: a section of more than 64 MiB; link fewer objects"
    );
}

#[test]
fn kernel_symbols_stay_for_the_loader() {
    let source = |name: &str| {
        format!(
            "struct bpf_iter_num {{ __u64 x[1]; }};
             extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __weak __ksym;
             extern int missing(int) __weak __ksym;
             SEC(\"x\") int {name}(int *c) {{ struct bpf_iter_num it; return missing ? missing(1) : bpf_iter_num_new(&it, 0, 3); }}"
        )
    };
    let object = loaded(&[&source("f"), &source("g")]);
    for program in &object.programs {
        assert_eq!(program.unresolved.len(), 1);
    }
    let btf = object.btf.as_ref().expect("-g was given");
    assert_eq!(btf.data_section(".ksyms").expect("it is there").len(), 2);
}

#[test]
fn fields_are_relocated_after_linking() {
    let task = "struct task { int a; int pid; } __attribute__((preserve_access_index));";
    let first = format!(
        "{task} extern int pid_of(struct task *t); SEC(\"x\") int f(struct task *t) {{ return t->a + pid_of(t); }}"
    );
    let second = format!("{task} int pid_of(struct task *t) {{ return t->pid; }}");
    let bytes = linked(&[&first, &second]).expect("it links");
    let target =
        warpbpf_object::Btf::read(&compile("struct task { long pad; int pid; int a; } v;"))
            .expect("it has types");
    let object = load_with(
        &bytes,
        &warpbpf_object::LoadOptions {
            target_btf: Some(&target),
            ..warpbpf_object::LoadOptions::default()
        },
    )
    .expect("it loads");
    let text = listing(&object.programs[0].code);
    assert!(
        text.contains("(r1 + 12)") || text.contains("(r6 + 12)"),
        "{text}"
    );
    assert!(text.contains("r0 = *(u32 *)(r1 + 8)"), "{text}");
}

#[test]
fn types_are_compared_whole() {
    let differ = |a: &str, b: &str| {
        let user = format!(
            "{a}; extern struct cfg c; SEC(\"x\") long f(void *x) {{ return *(volatile char *)&c; }}"
        );
        refused(&[&user, &format!("{b}; struct cfg c = {{}};")])
    };
    assert_eq!(
        differ("struct cfg { int a; }", "struct cfg { float a; }"),
        "`c` is `struct cfg` (member `a` of `struct cfg` is `int`) in `a.o` and `struct cfg` (member `a` of `struct cfg` is `float`) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ(
            "struct in { union { int x; }; }; struct cfg { struct in *in[2]; struct cfg *next; }",
            "struct in { union { unsigned x; }; }; struct cfg { struct in *in[2]; struct cfg *next; }"
        ),
        "`c` is `struct cfg` (member `x` of `union {…}` is `int`) in `a.o` and `struct cfg` (member `x` of `union {…}` is `unsigned int`) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ("struct cfg { int a[2]; }", "struct cfg { int a[3]; }"),
        "`c` is `struct cfg` (`struct cfg` has 8 bytes) in `a.o` and `struct cfg` (`struct cfg` has 12 bytes) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ("struct cfg { int a, b; }", "struct cfg { int a, c; }"),
        "`c` is `struct cfg` (member 1 of `struct cfg` is `b` at bit 32) in `a.o` and `struct cfg` (member 1 of `struct cfg` is `c` at bit 32) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ(
            "struct cfg { int a : 3; }",
            "struct cfg { int a : 3, b : 2; }"
        ),
        "`c` is `struct cfg` (`struct cfg` has 1 members) in `a.o` and `struct cfg` (member 1 of `struct cfg` is `b` at bit 3, 2 bits wide) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ("struct cfg { _Bool a; }", "struct cfg { unsigned char a; }"),
        "`c` is `struct cfg` (member `a` of `struct cfg` is `_Bool`) in `a.o` and `struct cfg` (member `a` of `struct cfg` is `unsigned char`) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ(
            "enum m { A, B }; struct cfg { enum m m; }",
            "enum m { A, B = 5 }; struct cfg { enum m m; }"
        ),
        "`c` is `struct cfg` (enumerator 1 is `B = 1`) in `a.o` and `struct cfg` (enumerator 1 is `B = 5`) in `b.o`; declare it in a header that both include"
    );
    assert_eq!(
        differ(
            "enum m { A }; struct cfg { enum m m; }",
            "enum m { A, B }; struct cfg { enum m m; }"
        ),
        "`c` is `struct cfg` (it has 1 enumerators) in `a.o` and `struct cfg` (enumerator 1 is `B = 1`) in `b.o`; declare it in a header that both include"
    );
    // Through parameters and the values of maps as well.
    let function = |a: &str, head: &str| format!("struct cfg {{ {a} v; }}; {head}");
    assert_eq!(
        refused(&[
            &function(
                "int",
                "extern int get(struct cfg *c); SEC(\"x\") int f(void *c) { return get(c); }"
            ),
            &function(
                "float",
                "int get(struct cfg *c) { return *(volatile char *)c; }"
            ),
        ]),
        "`get` is `int(struct cfg *)` (member `v` of `struct cfg` is `int`) in `a.o` and `int(struct cfg *)` (member `v` of `struct cfg` is `float`) in `b.o`; declare it in a header that both include"
    );
    let map = |ty: &str| {
        function(
            ty,
            "struct { __uint(type, 1); __uint(max_entries, 4); __type(key, int); __type(value, struct cfg); } m SEC(\".maps\");",
        )
    };
    assert_eq!(
        refused(&[&map("int"), &map("float")]),
        "map `m`: `value` is `struct cfg` (member `v` of `struct cfg` is `int`) in `a.o` and `struct cfg` (member `v` of `struct cfg` is `float`) in `b.o`; share one definition"
    );
    // Types that lead to themselves, and to each other many ways, are the same as themselves.
    let woven = "struct b; struct a { struct a *x, *y; struct b *z, *w; }; struct b { struct a *x, *y; struct b *z, *w; };";
    assert!(
        linked(&[
            &format!("{woven} extern struct a v; SEC(\"x\") int f(void *c) {{ return !v.x; }}"),
            &format!("{woven} struct a v;"),
        ])
        .is_ok()
    );
}

#[test]
fn without_types_nothing_is_taken_from_elsewhere() {
    let user = "extern int helper(int x); SEC(\"x\") int f(int *c) { return helper(*c); }";
    let library = "int n; int helper(int x) { return x + n; }";
    let bare = |source: &str| compile_with(source, &["-target", "bpf"]);
    let refused = |objects: &[Vec<u8>]| join(objects).expect_err("it is refused").to_string();
    assert_eq!(
        refused(&[bare(user), compile(library)]),
        "`a.o` takes `helper` from `b.o`, and `a.o` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    );
    assert_eq!(
        refused(&[bare(library), compile(user)]),
        "`b.o` takes `helper` from `a.o`, and `a.o` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    );
    assert_eq!(
        refused(&[bare(user), bare(library)]),
        "`a.o` takes `helper` from `b.o`, and `a.o` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    );
    // The one in the middle agrees with nobody either.
    let third = "extern int helper(int x); SEC(\"x\") int g(int *c) { return helper(*c); }";
    assert_eq!(
        refused(&[compile(user), bare(third), compile(library)]),
        "`b.o` takes `helper` from `c.o`, and `b.o` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    );
    // What shares nothing but the licence needs no types.
    let licensed = |source: &str| format!("{source} char LICENSE[] SEC(\"license\") = \"GPL\";");
    let alone = licensed("SEC(\"x\") int g(int *c) { return *c; }");
    let objects = [bare(&alone), bare(&licensed(library))];
    let object = load(&join(&objects).expect("it links")).expect("it loads");
    assert_eq!(object.btf, None);
    let objects = [bare(&alone), compile(&licensed(library))];
    let object = load(&join(&objects).expect("it links")).expect("it loads");
    assert!(object.btf.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        swapped in any::<bool>(),
    ) {
        static BOTH: std::sync::LazyLock<[Vec<u8>; 2]> = std::sync::LazyLock::new(|| [compile(MAIN), compile(LIBRARY)]);
        let mut bytes = BOTH[usize::from(swapped)].clone();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let other = BOTH[usize::from(!swapped)].clone();
        for order in [[bytes.clone(), other.clone()], [other, bytes]] {
            if let Ok(linked) = join(&order) {
                let _ = load(&linked);
            }
        }
    }
}
