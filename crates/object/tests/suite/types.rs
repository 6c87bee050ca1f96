//! BTF: what a type is called, how large it is, how its values print; and what is refused.

use crate::common::compile;
use warpbpf_object::btf::{Btf, BtfError, Linkage, Type};
use warpbpf_object::{TypeId, load};

/// Types of `source`, which declares a variable `v`, and the type of `v`.
fn types(source: &str) -> (Btf, TypeId) {
    let btf = load(&compile(source))
        .expect("it loads")
        .btf
        .expect("-g was given");
    let var = btf.find("v").find_map(|(_, ty)| match ty {
        Type::Var { ty, .. } => Some(*ty),
        _ => None,
    });
    (btf, var.expect("the variable is there"))
}

fn printed(source: &str, bytes: &[u8]) -> String {
    let (btf, id) = types(source);
    btf.format_value(id, bytes)
}

#[test]
fn values_print_as_c_would_initialise_them() {
    let mixed = "enum color { RED, BLUE = -2 }; typedef __u16 port;
        struct { char name[8]; port ports[3]; enum color c; signed char s; _Bool yes; double d; float f; void *p;
                 union { int x; __u8 y; }; const long long n; } v;";
    let mut bytes = b"vecadd\0\0".to_vec();
    bytes.extend([1, 0, 2, 0, 0xff, 0xff, 0, 0]);
    bytes.extend((-2i32).to_le_bytes());
    bytes.extend([0xfb, 1, 0, 0]);
    bytes.extend(1.5f64.to_le_bytes());
    bytes.extend(0.25f32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(0xdead_beefu64.to_le_bytes());
    bytes.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((-9i64).to_le_bytes());
    assert_eq!(
        printed(mixed, &bytes),
        "{ .name = \"vecadd\", .ports = [1, 2, 65535], .c = BLUE, .s = -5, .yes = true, .d = 1.5, .f = 0.25, \
         .p = 0xdeadbeef, { .x = 7, .y = 7 }, .n = -9 }"
    );
    assert_eq!(
        printed("struct { int a; int b[2]; } v;", &[1, 0, 0, 0, 2, 0, 0, 0]),
        "{ .a = 1, .b = [2, ?] }"
    );
    assert_eq!(printed("enum e { A, B } v;", &[9, 0, 0, 0]), "9");
    assert_eq!(
        printed(
            "struct { int low : 3; unsigned high : 7; long long wide : 40; } v;",
            &[0xad, 0x02, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]
        ),
        "{ .low = -3, .high = 85, .wide = -4194304 }"
    );
    assert_eq!(
        printed("struct { int low : 3; unsigned high : 7; } v;", &[0xad]),
        "{ .low = -3, .high = ? }"
    );
    let long = printed("__u8 v[100];", &[1; 100]);
    assert!(
        long.starts_with("[1, 1, ") && long.ends_with(", 1, …]"),
        "{long}"
    );
}

#[test]
fn names_are_those_of_c() {
    let name = |source: &str| {
        let (btf, id) = types(source);
        btf.type_name(id)
    };
    assert_eq!(name("const char *v;"), "const char *");
    assert_eq!(name("int **v;"), "int **");
    assert_eq!(name("int v[2][3];"), "int[2][3]");
    assert_eq!(name("struct s { int x; } v;"), "struct s");
    assert_eq!(name("struct { int x; } v;"), "struct {…}");
    assert_eq!(name("volatile __u32 v;"), "volatile __u32");
    assert_eq!(name("enum e { A } v;"), "enum e");
    assert_eq!(name("struct later *v;"), "struct later *");
    assert_eq!(name("union u { int a; } *v;"), "union u *");
    assert_eq!(name("long (*v)(int, void *);"), "long(int, void *) *");
}

#[test]
fn layouts_show_offset_and_size() {
    let (btf, id) =
        types("struct s { char c; int n[3]; unsigned a : 3, b : 5; struct { long l; }; } v;");
    assert_eq!(
        btf.struct_layout(id).as_deref(),
        Some(
            "struct s: 32 bytes
  +0    (1) char c
  +4    (12) int[3] n
  +16   (bit 0, 3 bits) unsigned int a
  +16   (bit 3, 5 bits) unsigned int b
  +24   (8) struct {…} (anonymous)
"
        )
    );
    let (btf, id) = types("int v;");
    assert_eq!(btf.struct_layout(id), None);
}

#[test]
fn sizes_resolve_through_typedefs_and_arrays() {
    let size = |source: &str| {
        let (btf, id) = types(source);
        btf.resolve_size(id)
    };
    assert_eq!(size("typedef struct { __u64 a[3]; } s; s v[5];"), Some(120));
    assert_eq!(size("struct later *v;"), Some(8));
    assert_eq!(size("const volatile __u16 v = 3;"), Some(2));
    let (btf, _) = types("struct later *v;");
    let later = btf.find("later").next().expect("it is declared").0;
    assert_eq!(
        (
            btf.resolve_size(later),
            btf.resolve_size(TypeId::VOID),
            btf.resolve_size(TypeId(999))
        ),
        (None, None, None)
    );
    assert_eq!(btf.type_name(TypeId(999)), "<no type [999]>");
}

#[test]
fn functions_and_variables_keep_their_linkage() {
    let (btf, _) = types("int v; SEC(\"x\") int f(void *ctx) { return v; }");
    let (_, f) = btf.find("f").next().expect("a function");
    assert!(
        matches!(
            f,
            Type::Func {
                linkage: Linkage::Global,
                ..
            }
        ),
        "{f:?}"
    );
    assert_eq!(btf.data_section(".bss").map(<[_]>::len), Some(1));
    assert_eq!(btf.data_section(".none"), None);
}

/// A `.BTF` section with these type words and this string table.
fn section(types: &[u32], strings: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let len = types.len() as u32 * 4;
    for word in [24, 0, len, len, strings.len() as u32].iter().chain(types) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(strings);
    bytes
}

fn error(bytes: &[u8]) -> String {
    Btf::parse(bytes).expect_err("it is refused").to_string()
}

#[test]
fn damaged_sections() {
    assert_eq!(error(&[0x9f]), "it ends at byte 0 inside the header");
    assert_eq!(
        error(&[0xeb, 0x9f, 1, 0]),
        "its magic is 0x9feb, not 0xeb9f (little endian)"
    );
    assert_eq!(
        error(&[0x9f, 0xeb, 7, 0]),
        "its version is 7, only 1 is known"
    );
    assert_eq!(
        error(&section(&[0, 31 << 24, 0], b"\0")),
        "type [1] has the unknown kind 31"
    );
    assert_eq!(
        error(&section(&[5, 16 << 24, 4], b"\0")),
        "string offset 5 is not a string of the string table"
    );
    assert_eq!(
        error(&section(&[0, 16 << 24, 4], b"\xff\0")),
        "string offset 0 is not a string of the string table"
    );
    assert_eq!(
        error(&section(&[0, 16 << 24, 4], b"x")),
        "string offset 0 is not a string of the string table"
    );
    assert_eq!(
        error(&section(&[0, 16 << 24], b"\0")),
        "it ends at byte 8 inside a type"
    );
    let mut bytes = section(&[], b"\0");
    bytes[16] = 200;
    assert_eq!(error(&bytes), "it ends at byte 25 inside the string table");
    assert_eq!(
        Btf::parse(&section(&[], b"\0")).map(|btf| btf.types().count()),
        Ok(1)
    );
}

#[test]
fn cycles_end() {
    // Two typedefs of each other, and a struct that holds itself.
    let (typedef, strukt) = (8 << 24, 4 << 24 | 1);
    let words = [1, typedef, 2, 1, typedef, 1, 1, strukt, 4, 1, 3, 0];
    let btf = Btf::parse(&section(&words, b"\0x\0")).expect("each record is well formed");
    assert_eq!(btf.strip(TypeId(1)), None);
    assert_eq!(btf.resolve_size(TypeId(1)), None);
    assert_eq!(btf.format_value(TypeId(1), &[0; 8]), "…");
    let nested = btf.format_value(TypeId(3), &[0; 8]);
    assert_eq!(nested.matches(".x = ").count(), 17);
    assert!(nested.contains("…"), "{nested}");
    // An array of itself.
    let array = [0, 3 << 24, 0, 1, 1, 64];
    let btf = Btf::parse(&section(&array, b"\0")).expect("each record is well formed");
    assert_eq!(btf.resolve_size(TypeId(1)), None);
    assert!(
        btf.type_name(TypeId(1)).starts_with("…"),
        "{}",
        btf.type_name(TypeId(1))
    );
    assert!(btf.format_value(TypeId(1), &[0; 64]).len() < 200_000);
    assert_eq!(
        BtfError::Kind {
            id: TypeId(1),
            kind: 31
        }
        .to_string(),
        "type [1] has the unknown kind 31"
    );
}
