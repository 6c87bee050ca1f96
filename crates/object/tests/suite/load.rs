//! Objects as clang writes them: every map attribute, relocation and source line against exact
//! values.

use crate::common::{compile, compile_file, compile_with};
use warpbpf_ebpf::{Imm64, Insn, Pc, listing};
use warpbpf_object::btf::Type;
use warpbpf_object::{InitialEntry, InitialValue, MapDef, MapKind, Object, Program, link, load};

fn whole() -> Object {
    load(&compile_file(
        "whole.bpf.c",
        &["-target", "bpf", "-mcpu=v3", "-g"],
    ))
    .expect("it loads")
}

fn program<'a>(object: &'a Object, name: &str) -> &'a Program {
    object.program(name).expect("the program is there")
}

fn map<'a>(object: &'a Object, name: &str) -> &'a MapDef {
    let (index, map) = object.map(name).expect("the map is there");
    assert_eq!(&object.maps[index as usize], map);
    map
}

#[test]
fn maps_have_the_sizes_of_their_definitions() {
    let object = whole();
    let summary: Vec<_> = object
        .maps
        .iter()
        .map(|m| {
            (
                m.name.as_str(),
                m.map_type,
                m.key_size,
                m.value_size,
                m.max_entries,
                m.flags,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("first", 2, 4, 8, 4, 0),
            ("outer", 12, 4, 4, 2, 0),
            ("tails", 3, 4, 4, 3, 0),
            ("counts", 1, 4, 16, 128, 1),
            ("unknown", 1502, 4, 24, 7, 0),
            (".rodata", 2, 4, 4, 1, 0x80),
            (".data", 2, 4, 4, 1, 0),
            (".data.custom", 2, 4, 8, 1, 0),
            (".bss", 2, 4, 16, 1, 0),
            (".rodata.str1.1", 2, 4, 8, 1, 0x80),
        ]
    );
    let btf = object.btf.as_ref().expect("-g was given");
    let counts = map(&object, "counts");
    assert_eq!(btf.type_name(counts.key_type.expect("__type")), "__u32");
    assert_eq!(
        btf.type_name(counts.value_type.expect("__type")),
        "struct val"
    );
    assert_eq!(counts.extra, [("pinning".to_owned(), 1)].into());
    let unknown = map(&object, "unknown");
    assert_eq!(
        unknown.extra,
        [
            ("map_extra".to_owned(), 0x1_0000_0002),
            ("numa_node".to_owned(), 5)
        ]
        .into()
    );
    assert_eq!((unknown.key_type, unknown.value_type), (None, None));
}

#[test]
fn maps_of_maps_and_program_arrays_keep_their_initial_values() {
    let object = whole();
    let outer = map(&object, "outer");
    assert_eq!(
        outer.initial,
        [InitialEntry {
            index: 1,
            value: InitialValue::Map(0)
        }]
    );
    let inner = outer.inner.as_ref().expect("__array(values, …)");
    assert_eq!(
        (
            inner.name.as_str(),
            inner.map_type,
            inner.key_size,
            inner.value_size,
            inner.max_entries
        ),
        ("outer.inner", 2, 4, 8, 4)
    );
    let tails = map(&object, "tails");
    assert_eq!(
        tails.initial,
        [InitialEntry {
            index: 2,
            value: InitialValue::Program("tail".to_owned())
        }]
    );
    assert_eq!(tails.inner, None);
}

/// The object as clang before version 13 writes it: relocations of data have the types of `lddw`
/// and calls.
fn as_old_clang(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize, size: usize| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[at..at + size]);
        u64::from_le_bytes(word) as usize
    };
    let (table, count) = (word(&bytes, 0x28, 8), word(&bytes, 0x3c, 2));
    let header = |index: usize| table + index * 64;
    let mut changed = 0;
    for section in (0..count).map(header) {
        let (kind, target) = (word(&bytes, section + 4, 4), word(&bytes, section + 44, 4));
        let executable = word(&bytes, header(target) + 8, 8) & 4 != 0;
        if kind != 9 || executable {
            continue;
        }
        let (start, size) = (word(&bytes, section + 24, 8), word(&bytes, section + 32, 8));
        for record in (start..start + size).step_by(16) {
            let old = match word(&bytes, record + 8, 4) {
                2 => 1u32,
                3 | 4 => 10,
                other => panic!("relocation of type {other}"),
            };
            bytes[record + 8..record + 12].copy_from_slice(&old.to_le_bytes());
            changed += 1;
        }
    }
    assert!(changed > 2, "{changed}");
    bytes
}

#[test]
fn objects_of_older_compilers_mean_the_same() {
    let new = compile_file("whole.bpf.c", &["-target", "bpf", "-g"]);
    let old = as_old_clang(new.clone());
    assert_ne!(new, old);
    let object = load(&old).expect("it loads");
    assert!(!map(&object, "outer").initial.is_empty());
    assert_eq!(Ok(object), load(&new));
    // Linked, addends move.
    let other = compile("int one = 1;");
    let linked = |bytes: &[u8]| link(&[("a.o", &*other), ("b.o", bytes)]).expect("they link");
    assert_eq!(load(&linked(&old)), load(&linked(&new)));
}

#[test]
fn data_sections_keep_their_contents() {
    let object = whole();
    let image = |name: &str| match &map(&object, name).kind {
        MapKind::Data {
            section,
            image,
            read_only,
        } => (section.clone(), image.clone(), *read_only),
        MapKind::User => panic!("`{name}` is no data section"),
    };
    assert_eq!(
        image(".rodata"),
        (".rodata".to_owned(), vec![7, 0, 0, 0], true)
    );
    assert_eq!(
        image(".data"),
        (".data".to_owned(), vec![5, 0, 0, 0], false)
    );
    assert_eq!(
        image(".data.custom"),
        (
            ".data.custom".to_owned(),
            vec![9, 0, 0, 0, 0, 0, 0, 0],
            false
        )
    );
    assert_eq!(image(".bss"), (".bss".to_owned(), vec![0; 16], false));
    assert_eq!(
        image(".rodata.str1.1"),
        (".rodata.str1.1".to_owned(), b"left %d\0".to_vec(), true)
    );

    let btf = object.btf.as_ref().expect("-g was given");
    let bss = btf.data_section(".bss").expect("there are globals");
    let names: Vec<_> = bss
        .iter()
        .map(|var| {
            (
                btf.type_by_id(var.ty)
                    .and_then(Type::name)
                    .unwrap_or_default(),
                var.offset,
                var.size,
            )
        })
        .collect();
    assert_eq!(names, [("hits", 0, 8), ("hidden", 8, 8)]);
    let bytes: Vec<u8> = [3u64, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
    let id = map(&object, ".bss").value_type.expect("a data section");
    assert_eq!(btf.format_value(id, &bytes), "{ .hits = 3, .hidden = 4 }");
}

#[test]
fn programs_hold_all_they_reach_relocated() {
    let object = whole();
    let sections: Vec<_> = object
        .programs
        .iter()
        .map(|p| (p.name.as_str(), p.section.as_str()))
        .collect();
    assert_eq!(
        sections,
        [
            ("tail", "gpu/exit/*"),
            ("leave", "gpu/exit/*"),
            ("enter", "gpu/entry/vec*|at=a.cu:7")
        ]
    );
    // The order is that of the sections, which is clang's. Maps: 3 counts, 5 .rodata, 6 .data, 7
    // .data.custom, 8 .bss, 9 the string.
    assert_eq!(
        listing(&program(&object, "leave").code),
        "    0: r1 = 1
    1: r2 = map[8][0] + 0
    3: lock *(u64 *)(r2 + 0) += r1
    4: r1 = map[9][0] + 0
    6: w2 = 8
    7: w3 = 1
    8: call 6
    9: w1 = 1
   10: call pc+1
   11: exit
   12: r2 = map[6][0] + 0
   14: r0 = *(u32 *)(r2 + 0)
   15: w0 *= w1
   16: exit
"
    );
    let enter = program(&object, "enter");
    let functions: Vec<_> = enter
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.start.0, f.end.0))
        .collect();
    assert_eq!(
        functions,
        [
            ("enter", 0, 30),
            ("helper", 30, 41),
            ("step", 41, 46),
            ("scale", 46, 50)
        ]
    );
    let text = listing(&enter.code);
    let references: Vec<_> = text
        .lines()
        .filter(|line| line.contains("map[") || line.contains("pc") || line.contains("subprog"))
        .collect();
    assert_eq!(
        references,
        [
            "    0: r1 = map[5][0] + 0",
            "    6: r1 = map[3]",
            "   10: call pc+24",
            "   17: r2 = subprog[+30]",
            "   21: r1 = map[8][0] + 0",
            "   27: r1 = map[7][0] + 0",
            "   33: call pc+19",
            "   35: r2 = map[8][0] + 8",
            "   44: r1 = map[5][0] + 0",
            "   53: r2 = map[6][0] + 0",
        ]
    );
    let btf = object.btf.as_ref().expect("-g was given");
    let names: Vec<_> = enter
        .functions
        .iter()
        .map(|f| btf.type_name(f.btf.expect("func_info")))
        .collect();
    assert_eq!(names, ["enter", "helper", "step", "scale"]);
}

#[test]
fn lines_follow_the_functions() {
    let object = whole();
    let enter = program(&object, "enter");
    let line = |pc: u32| {
        let line = enter.line_of(Pc(pc)).expect("every instruction has a line");
        assert!(
            line.file.ends_with("tests/bpf/whole.bpf.c"),
            "{}",
            line.file
        );
        (line.line, line.text.trim_start())
    };
    assert_eq!(line(0), (84, "__u32 k = limit;"));
    assert_eq!(line(1), (84, "__u32 k = limit;"));
    assert_eq!(line(29), (91, "return scale(r);"));
    assert_eq!(line(30), (66, "hidden++;"));
    assert_eq!(line(49), (72, "return x * factor;"));
    assert_eq!(enter.line_of(Pc(50)), None);
    assert!(enter.lines.is_sorted_by_key(|line| line.pc));
    assert_eq!(object.license.as_deref(), Some("Dual MIT/GPL"));
    assert_eq!(object.version, Some(0x060102));
}

#[test]
fn every_instruction_has_a_line() {
    for mcpu in ["-mcpu=v1", "-mcpu=v3", "-mcpu=v4"] {
        let bytes = compile_file("whole.bpf.c", &["-target", "bpf", mcpu, "-g"]);
        let object = load(&bytes).expect("it loads");
        for program in &object.programs {
            for pc in (0..program.code.insns().len() as u32).map(Pc) {
                let line = program.line_of(pc).expect("it has a line");
                let function = program.function_of(pc).expect("it is in a function");
                assert!(line.line > 0 && !line.text.is_empty(), "{}", function.name);
            }
        }
    }
}

#[test]
fn callbacks_are_functions_of_the_program() {
    let object = load(&compile(
        "static long quiet(__u64 i, void *c) { return 0; }
         long loud(__u64 i, void *c) { *(long *)c += i; return 0; }
         static SEC(\"x\") __attribute__((used)) long beside(__u64 i, void *c) { *(long *)c -= i; return 1; }
         SEC(\"x\") int f(void *ctx) {
             long sum = 0;
             bpf_loop(1, quiet, &sum, 0); bpf_loop(2, loud, &sum, 0); bpf_loop(3, beside, &sum, 0);
             return sum;
         }",
    ))
    .expect("it loads");
    let program = object.program("f").expect("it is there");
    let targets: Vec<_> = program
        .code
        .insns()
        .iter()
        .filter_map(|insn| match insn {
            Insn::LoadImm64 {
                value: Imm64::Func(pc),
                ..
            } => program.function_of(*pc).filter(|f| f.start == *pc),
            _ => None,
        })
        .map(|function| function.name.as_str())
        .collect();
    assert_eq!(targets, ["quiet", "loud", "beside"]);
    let functions: Vec<_> = program.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(functions, ["f", "quiet", "loud", "beside"]);
}

#[test]
fn constants_of_the_compiler_are_read_only() {
    let object = load(&compile(
        "struct big { long a[6]; }; void use(void *p);
         const volatile char mode[4] = \"abc\";
         SEC(\"x\") int f(int *c) {
             static const int table[] = {3, 1, 4, 1, 5};
             struct big b = {{1, 2, 3, 4, 5, 6}};
             bpf_trace_printk(\"%d\", 3, mode[*c & 3]);
             return table[*c & 3] + b.a[*c & 3];
         }",
    ))
    .expect("it loads");
    assert!(object.maps.len() >= 2);
    for map in &object.maps {
        assert!(map.name.starts_with(".rodata"), "{}", map.name);
        assert_eq!(map.flags, 0x80);
        assert!(matches!(
            map.kind,
            MapKind::Data {
                read_only: true,
                ..
            }
        ));
    }
}

#[test]
fn a_line_never_comes_from_another_function() {
    let mut program = program(&whole(), "enter").clone();
    program.lines.retain(|line| line.pc < Pc(30));
    assert_eq!(program.line_of(Pc(29)).map(|line| line.line), Some(91));
    assert_eq!(program.line_of(Pc(30)), None);
}

#[test]
fn isa_v4_is_loaded() {
    let object = load(&compile_with(
        "SEC(\"x\") int f(short *p) { return p[0] / (signed char)p[1]; }",
        &["-target", "bpf", "-mcpu=v4", "-g"],
    ))
    .expect("it loads");
    let text = listing(&object.programs[0].code);
    assert_eq!(
        text,
        "    0: r2 = *(u16 *)(r1 + 2)
    1: w2 = (s8)w2
    2: r0 = *(s16 *)(r1 + 0)
    3: w0 s/= w2
    4: exit
"
    );
}

#[test]
fn without_debug_information_there_are_no_lines() {
    let object = load(&compile_with(
        "int g; SEC(\"x\") int f(void *ctx) { return g; }",
        &["-target", "bpf"],
    ))
    .expect("it loads");
    assert_eq!(object.btf, None);
    assert_eq!(object.programs[0].lines, []);
    assert_eq!(object.programs[0].functions[0].btf, None);
    assert_eq!((object.license, object.version), (None, None));
    assert_eq!(object.maps[0].name, ".bss");
    assert_eq!(object.maps[0].value_type, None);
}

#[test]
fn a_lone_function_without_section_is_a_program() {
    let object = load(&compile("int f(void *ctx) { return 3; }")).expect("it loads");
    assert_eq!(
        (
            object.programs[0].name.as_str(),
            object.programs[0].section.as_str()
        ),
        ("f", ".text")
    );
    let object = load(&compile(
        "int f(void *ctx) { return 3; } int g(void *ctx) { return 4; }",
    ))
    .expect("it loads");
    assert_eq!(object.programs, []);
}

#[test]
fn static_functions_beside_a_program_are_reached() {
    let object = load(&compile(
        "static __attribute__((noinline)) SEC(\"x\") int add(int a) { asm volatile(\"\"); return a + 1; }
         SEC(\"x\") int f(int *p) { return add(add(*p)); }",
    ))
    .expect("it loads");
    assert_eq!(object.programs.len(), 1);
    let functions: Vec<_> = object.programs[0]
        .functions
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(functions, ["f", "add"]);
    let text = listing(&object.programs[0].code);
    assert_eq!(
        text.lines().filter(|line| line.contains("call pc")).count(),
        2,
        "{text}"
    );
}

#[test]
fn recursion_is_linked_once() {
    let object = load(&compile(
        "__attribute__((noinline)) int down(int n) { return n < 1 ? 0 : down(n - 1) * n + 1; }
         SEC(\"x\") int f(int *p) { return down(*p); }",
    ))
    .expect("it loads");
    let functions: Vec<_> = object.programs[0]
        .functions
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(functions, ["f", "down"]);
}
