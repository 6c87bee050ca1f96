//! Everything that the loader refuses, with the exact message.

use crate::common::{compile, compile_with};
use proptest::prelude::*;
use warpbpf_object::{LoadOptions, ObjectError, link, load, load_all, set_variables};

fn message(bytes: &[u8]) -> String {
    load(bytes).expect_err("it is refused").to_string()
}

fn refused(source: &str) -> String {
    message(&compile(source))
}

const PLAIN: &str = "int g; SEC(\"x\") int f(void *ctx) { return g; }";

/// Overwrites the first place where `from` stands.
fn patch(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn other_files() {
    assert_eq!(load(b"#!/bin/sh"), Err(ObjectError::NotElf));
    assert_eq!(load(b""), Err(ObjectError::NotElf));
    assert_eq!(
        message(b"hello"),
        "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`"
    );
    let good = compile(PLAIN);
    let patched = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        message(&bytes)
    };
    assert_eq!(
        patched(4, 1),
        "this is a 32-bit ELF file; BPF objects are 64-bit (`clang -target bpf`)"
    );
    assert_eq!(
        patched(18, 62),
        "this ELF file is for machine 62, not BPF (247); compile with `clang -target bpf`"
    );
    assert_eq!(
        patched(16, 3),
        "this ELF file is of type 3, not relocatable (1); load what `clang -c` writes, without linking it"
    );
    assert_eq!(
        message(&compile_with(PLAIN, &["-target", "bpfeb", "-g"])),
        "this is a big-endian object; compile with `-target bpfel` (GPUs and their hosts are little-endian)"
    );
    assert_eq!(
        message(&good[..5]),
        "the ELF file is damaged: it ends inside the header; compile it again"
    );
    let truncated = message(&good[..good.len() / 2]);
    assert!(
        truncated.starts_with("the ELF file is damaged: "),
        "{truncated}"
    );
}

#[test]
fn type_information() {
    let maps = "struct { __uint(type, 1); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 4); } m SEC(\".maps\");";
    assert_eq!(
        message(&compile_with(maps, &["-target", "bpf"])),
        "section `.maps` needs type information, but the object has no `.BTF`; compile with `-g`"
    );
    let good = compile(PLAIN);
    let mut bytes = good.clone();
    // The name of `.BTF` is the tail of that of its relocations.
    patch(&mut bytes, b".rel.BTF\0", b".rel.BTX\0");
    assert_eq!(
        message(&bytes),
        "the object has `.BTF.ext` but no `.BTF`; it was stripped halfway, compile it again with `-g`"
    );
    let mut bytes = good.clone();
    patch(&mut bytes, &[0x9f, 0xeb, 1, 0], &[0x9f, 0xeb, 2, 0]);
    assert_eq!(
        message(&bytes),
        "section `.BTF` cannot be read: its version is 2, only 1 is known; compile with a clang of version 11 or later"
    );
}

#[test]
fn line_information() {
    let good = compile(PLAIN);
    let magic = [0x9f, 0xeb, 1, 0];
    let ext = good
        .windows(4)
        .rposition(|window| window == magic)
        .expect("it is there");
    let patched = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[ext + at] = byte;
        message(&bytes)
    };
    let text = |problem: &str| {
        format!(
            "section `.BTF.ext` cannot be read: {problem}; compile with a clang of version 11 or later"
        )
    };
    assert_eq!(patched(2, 9), text("its version is 9, only 1 is known"));
    assert_eq!(
        patched(0, 0),
        text("its magic is 0xeb00, not 0xeb9f (little endian)")
    );
    // The header has 32 bytes; the functions come first, with the size of their records.
    assert_eq!(good[ext + 4], 32);
    assert_eq!(
        patched(32, 4),
        text("function records of 4 bytes are not known")
    );
    assert_eq!(patched(40, 200), text("it ends at byte 20 inside function"));
    let table = patched(15, 0x7f);
    assert!(
        table.ends_with("inside a table; compile with a clang of version 11 or later"),
        "{table}"
    );
}

#[test]
fn references_into_the_middle_or_outside() {
    assert_eq!(
        refused(
            "static int y[2]; SEC(\"x\") int f(void *ctx) { long a; asm volatile(\"%0 = %1 + 400 ll\" : \"=r\"(a) : \"i\"(y)); return y[0]++ + a; }"
        ),
        "program `f`: `f` (slot 0) has a relocation against `.bss` that points to byte 400, outside its section"
    );
    assert_eq!(
        refused(
            "struct { __uint(type, 1); } m SEC(\".maps\"); SEC(\"x\") int f(void *ctx) { long a; asm volatile(\"%0 = %1 + 4 ll\" : \"=r\"(a) : \"i\"(&m)); return a; }"
        ),
        "program `f`: `f` (slot 0) has a relocation against `m` that points to byte 4 of `.maps`, where no map starts"
    );
    assert_eq!(
        assembled("r1 = c ll\\nexit", ".comm c, 8, 8\\n"),
        "program `f`: `f` (slot 0) has a relocation against `c` that is neither defined here nor elsewhere"
    );
}

#[test]
fn sections_without_a_meaning_here() {
    assert_eq!(
        refused("struct { int type; } m SEC(\"maps\");"),
        "section `maps` holds legacy map definitions; declare maps as `struct { __uint(type, …); … } name SEC(\".maps\")`"
    );
    assert_eq!(
        refused("SEC(\"struct_ops/init\") int f(void *ctx) { return 0; }"),
        "section `struct_ops/init`: struct_ops replaces kernel functions and has no meaning on a GPU; remove it"
    );
    assert_eq!(
        refused("struct { int x; } o SEC(\".struct_ops.link\");"),
        "section `.struct_ops.link`: struct_ops replaces kernel functions and has no meaning on a GPU; remove it"
    );
    assert_eq!(
        refused("int a SEC(\".addr_space.1\");"),
        "section `.addr_space.1`: arena variables (`__arena`) are not supported yet; use an array map"
    );
}

#[test]
fn map_definitions() {
    let refused = |members: &str| {
        refused(&format!(
            "struct later; struct {{ {members} }} m SEC(\".maps\");"
        ))
    };
    assert_eq!(
        refused("__uint(max_entries, 1);"),
        "map `m`: it has no type; write `__uint(type, BPF_MAP_TYPE_…)`"
    );
    assert_eq!(
        refused("__uint(type, 1); __uint(key_size, 8); __type(key, int);"),
        "map `m`: its key has 8 bytes in one attribute and 4 in another"
    );
    assert_eq!(
        refused("__uint(type, 1); __type(value, struct later);"),
        "map `m`: the type `struct later` of its value has no size; define it completely"
    );
    assert_eq!(
        refused("__uint(type, 1); int key;"),
        "map `m`: attribute `key` is not a type; write `__type(key, …)`"
    );
    assert_eq!(
        refused("__uint(type, 1); int pinning;"),
        "map `m`: attribute `pinning` is not a number; write `__uint(pinning, …)`"
    );
    assert_eq!(
        refused("__ulong(max_entries, 0x100000000); __uint(type, 1);"),
        "map `m`: attribute `max_entries` is 4294967296, which is too large"
    );
    assert_eq!(
        refused("__uint(type, 12); __array(values, int);"),
        "map `m`: `values` must be `__array(values, struct inner_map)` or an array of functions"
    );
    let nested = "__array(values, struct { __uint(type, 12); __array(values, int (void *)); });";
    assert_eq!(
        refused(&format!("__uint(type, 12); {nested}")),
        "map `m`: maps of maps of maps do not exist"
    );
    assert_eq!(
        message(&compile("int m SEC(\".maps\");")),
        "map `m`: its type is not a struct; declare it as `struct { __uint(type, …); … }`"
    );
}

#[test]
fn data() {
    assert_eq!(
        refused("int y; int *p = &y; SEC(\"x\") int f(void *ctx) { return *p; }"),
        "section `.data` holds the address of `y` at byte 0; addresses are only known at run time, assign it in the program"
    );
    assert_eq!(
        refused("char big[65 << 20]; SEC(\"x\") int f(void *ctx) { return big[0]; }"),
        "section `.bss` has 68157440 bytes, the limit is 67108864; put large data into a map"
    );
    assert_eq!(
        refused("int v SEC(\"mine\"); SEC(\"x\") int f(void *ctx) { return v; }"),
        "program `f`: `f` (slot 0) has a relocation against `v` that is in section `mine`; variables can only be in `.data`, `.rodata`, `.bss` and sections named after them"
    );
}

#[test]
fn externs() {
    assert_eq!(
        refused("extern const int jiffies __ksym; SEC(\"x\") int f(void *ctx) { return jiffies; }"),
        "program `f`: `f` uses the extern `jiffies` in .ksyms, which is a kernel variable and does not exist on a GPU; use a helper, or declare it `__weak` and ask `bpf_ksym_exists`"
    );
    assert_eq!(
        refused(
            "extern struct { __uint(type, 1); } m SEC(\".maps\"); SEC(\"x\") int f(void *ctx) { return (long)bpf_map_lookup_elem(&m, ctx); }"
        ),
        "program `f`: `f` uses the extern `m`, which is defined in no section of this object; define it, or link the objects with `warpbpf link`"
    );
    assert_eq!(
        refused(
            "extern int CONFIG_HZ __kconfig; SEC(\"x\") int f(void *ctx) { return CONFIG_HZ; }"
        ),
        "program `f`: `f` uses the extern `CONFIG_HZ` in .kconfig, which is a setting of the running kernel and does not exist on a GPU; use a `const volatile` variable"
    );
    assert_eq!(
        refused(
            "extern int bpf_kfunc(void *) __ksym; SEC(\"x\") int f(void *ctx) { return bpf_kfunc(ctx); }"
        ),
        "program `f`: `f` uses the extern `bpf_kfunc` in .ksyms, which is a kernel function that is not served (these are: bpf_iter_num_new, bpf_iter_num_next, bpf_iter_num_destroy); use a helper, or declare it `__weak` and ask `bpf_ksym_exists`"
    );
    assert_eq!(
        refused(
            "extern void *bpf_map_lokup_elem(void *, void *); SEC(\"x\") int f(void *ctx) { return !bpf_map_lokup_elem(ctx, ctx); }"
        ),
        "program `f`: `f` uses the extern `bpf_map_lokup_elem`, which is defined in no section of this object (did you mean `bpf_map_lookup_elem`?); define it, or link the objects with `warpbpf link`"
    );
    assert_eq!(
        refused("extern int other(void *); SEC(\"x\") int f(void *ctx) { return other(ctx); }"),
        "program `f`: `f` uses the extern `other`, which is defined in no section of this object; define it, or link the objects with `warpbpf link`"
    );
}

/// A program of which the bytes are given, beside a second function `g`.
fn assembled(code: &str, more: &str) -> String {
    refused(&format!(
        "asm(\".section x,\\\"ax\\\"\\n.globl f\\n.type f,@function\\nf:\\n{code}\\n.size f, .-f\\n\
         .globl g\\n.type g,@function\\ng:\\nr0 = 0\\nexit\\n.size g, .-g\\n{more}\");"
    ))
}

#[test]
fn code() {
    assert_eq!(
        assembled(".byte 0xff,0,0,0,0,0,0,0\\nexit", ""),
        "program `f` does not decode: `f` slot 0: opcode `0xff` is not an eBPF instruction"
    );
    assert_eq!(
        refused(
            "__attribute__((noinline)) int h(void) { asm volatile(\".byte 0xff,0,0,0,0,0,0,0\"); return 1; }
             SEC(\"x\") int f(void *ctx) { return h(); }"
        ),
        "program `f` does not decode: `h` slot 0: opcode `0xff` is not an eBPF instruction"
    );
    assert_eq!(
        assembled("goto +1\\nexit", ""),
        "program `f`: `f` (slot 0) jumps out of its function; only calls may do that"
    );
    assert_eq!(
        assembled(".byte 0x18,0x11,0,0,3,0,0,0,0,0,0,0,0,0,0,0\\nexit", ""),
        "program `f`: `f` (slot 0) is an `lddw` of kind 1 without a relocation; only the loader can fill that in"
    );
    assert_eq!(
        assembled(".byte 0x85,0x10,0,0,2,0,0,0\\nexit", ""),
        "program `f`: `f` (slot 0) calls slot 3 of section `x`, where no function starts"
    );
    assert_eq!(
        assembled("exit\\n.byte 0x18,0,0,0,0,0,0,0", ""),
        "program `f` does not decode: `f` slot 1: `lddw` takes two slots, the second is missing"
    );
    assert_eq!(
        assembled("exit", ".type h,@function\\nh:\\n.size h, 4\\n"),
        "function `h` (bytes 24 to 28 of section `x`) is not a whole number of instructions inside it"
    );
    assert_eq!(
        assembled("exit\\n.long g", ""),
        "function `f` (bytes 0 to 12 of section `x`) is not a whole number of instructions inside it"
    );
    assert_eq!(
        assembled("r1 = 0\\n.long 0\\n.long g\\nexit", ""),
        "program `f`: `f` (slot 1) has a relocation against `g` that is not at the start of an instruction"
    );
    assert_eq!(
        assembled(".quad g\\nexit", ""),
        "program `f`: `f` (slot 0) has a relocation against `g` that has type 2, which does not fit this instruction"
    );
}

/// The most complete object there is, so that mutations reach every part of the loader.
fn rich() -> Vec<u8> {
    crate::common::compile_file("whole.bpf.c", &["-target", "bpf", "-mcpu=v3", "-g"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        static RICH: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(rich);
        let mut bytes = RICH.clone();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = link(&[("mutated", &bytes), ("whole", &RICH)]);
        let _ = set_variables(&bytes, &[("hits", "3"), ("limit", "1")]);
        if let Ok(object) = load(&bytes) {
            for program in &object.programs {
                for pc in 0..program.code.insns().len() as u32 {
                    let _ = program.line_of(warpbpf_ebpf::Pc(pc));
                }
            }
            if let Some(btf) = &object.btf {
                for (id, _) in btf.types() {
                    let _ = (btf.type_name(id), btf.struct_layout(id), btf.format_value(id, &[1; 40]), btf.resolve_size(id));
                }
            }
        }
    }

    #[test]
    fn noise_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load(&bytes).is_err());
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\xf7\0".to_vec();
        elf.extend(bytes);
        let _ = load(&elf);
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let source = "extern int missing_one(void) __attribute__((section(\".ksyms\")));\n\
        extern int missing_two(void) __attribute__((section(\".ksyms\")));\n\
        struct { __uint(max_entries, 1); } no_type SEC(\".maps\");\n\
        struct { __uint(type, 2); __uint(key_size, 4); __type(key, long); } two_keys SEC(\".maps\");\n\
        __attribute__((noinline)) int both(void *ctx) { return missing_one() + missing_two(); }\n\
        SEC(\"x\") int a(void *ctx) { return both(ctx); }\n\
        SEC(\"x\") int fine(void *ctx) { return 0; }\n\
        SEC(\"x\") int b(void *ctx) { return missing_two(); }\n\
        SEC(\"x\") int uses(void *ctx) { return *(volatile int *)&no_type; }";
    let bytes = compile(source);
    let refused = load_all(&bytes, &LoadOptions::default()).expect_err("it is refused");
    let (text, errors) = (refused.to_string(), refused.all());
    let told: Vec<String> = errors
        .iter()
        .map(|error| match error {
            ObjectError::MapDef { map, .. } => format!("map {map}"),
            ObjectError::Extern {
                program, symbol, ..
            } => format!("{program}: {symbol}"),
            other => format!("{other:?}"),
        })
        .collect();
    // What `uses` refers to is wrong itself, which is told.
    assert_eq!(
        told,
        [
            "map no_type",
            "map two_keys",
            "a: missing_one",
            "a: missing_two",
            "b: missing_two"
        ]
    );
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(text, lines.join("\n"));
    // Who asks for one gets the first.
    assert_eq!(message(&bytes), lines[0]);
}

#[test]
fn all_sections_that_cannot_be_are_told_at_once() {
    let source = "int g SEC(\"maps\"); int h SEC(\"maps/more\"); SEC(\"struct_ops/x\") int f(void *ctx) { return 0; }";
    let refused = load_all(&compile(source), &LoadOptions::default()).expect_err("it is refused");
    assert_eq!(refused.all().len(), 3);
}
