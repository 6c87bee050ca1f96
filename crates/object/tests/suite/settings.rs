//! Other values for global variables.

use crate::common::{compile, compile_with};
use warpbpf_object::{MapKind, link, load, set_variables};

const SOURCE: &str = "enum mode { OFF, FAST = 5 };
    struct limits { int low; struct { unsigned char high[3]; }; int bits : 4; };
    const volatile int limit = 7; const volatile struct limits limits; const volatile char name[8] = \"old\";
    const volatile enum mode mode; const volatile _Bool on; const volatile unsigned char bytes[4]; const volatile __s8 small[2]; const volatile char words[2][4]; const int folded = 3; const int *volatile fp = &folded;
    short warm = -1; unsigned long cold; static long hidden; double ratio; void *address;
    SEC(\"x\") long f(void *ctx) { hidden++; return limit + limits.low + name[0] + mode + on + bytes[0] + small[0] + words[0][0] + warm + cold + (long)&ratio + (long)&address; }";

/// Contents of a section after setting.
fn image(values: &[(&str, &str)], section: &str) -> Vec<u8> {
    let bytes = set_variables(&object(), values).expect("it can be set");
    let object = load(&bytes).expect("it loads");
    match &object.map(section).expect("it is there").1.kind {
        MapKind::Data { image, .. } => image.clone(),
        MapKind::User => panic!("no data section"),
    }
}

fn object() -> Vec<u8> {
    compile(&SOURCE.replace(
        "const int folded = 3; const int *volatile fp = &folded;",
        "",
    ))
}

fn refused(name: &str, value: &str) -> String {
    set_variables(&object(), &[(name, value)])
        .expect_err("it is refused")
        .to_string()
}

#[test]
fn each_kind_of_value() {
    let base = image(&[], ".rodata");
    let changed = |name: &str, value: &str| {
        let new = image(&[(name, value)], ".rodata");
        let same = new.iter().zip(&base).take_while(|(a, b)| a == b).count();
        let end = new.len()
            - new
                .iter()
                .rev()
                .zip(base.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
        new[same.min(end)..end].to_vec()
    };
    assert_eq!(changed("limit", "-2"), [0xfe, 0xff, 0xff, 0xff]);
    assert_eq!(changed("limit", "0x0102"), [2, 1]);
    assert_eq!(changed("limit", "7"), []);
    assert_eq!(changed("limits.low", "1"), [1]);
    assert_eq!(changed("limits.high[2]", "255"), [255]);
    assert_eq!(changed("name", "newer"), *b"newer");
    assert_eq!(changed("name", "5"), *b"5\0\0");
    assert_eq!(changed("words[1]", "abc"), *b"abc");
    assert_eq!(changed("bytes[0]", "5"), [5]);
    assert_eq!(changed("small[1]", "-5"), [251]);
    assert_eq!(changed("mode", "FAST"), [5]);
    assert_eq!(changed("mode", "9"), [9]);
    assert_eq!(changed("on", "true"), [1]);
    assert_eq!(image(&[("warm", "300")], ".data"), [44, 1]);
}

#[test]
fn zeros_get_contents() {
    let all = [
        ("cold", "0x1122334455667788"),
        ("hidden", "-1"),
        ("ratio", "0.5"),
    ];
    let bytes = set_variables(&object(), &all).expect("it can be set");
    let set = load(&bytes).expect("it loads");
    let (_, map) = set.map(".bss").expect("it is there");
    let MapKind::Data { image, .. } = &map.kind else {
        panic!("no data section");
    };
    let btf = set.btf.as_ref().expect("-g");
    let text = btf.format_value(map.value_type.expect("typed"), image);
    for expected in [
        ".cold = 1234605616436508552",
        ".hidden = -1",
        ".ratio = 0.5",
        ".address = 0x0",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(set.programs, load(&object()).expect("it loads").programs);
    // A linked object can be set too.
    let linked = link(&[("a", &bytes)]).expect("it links");
    let again = set_variables(&linked, &[("cold", "1")]).expect("it can be set");
    let again = load(&again).expect("it loads");
    let MapKind::Data { image, .. } = &again.map(".bss").expect("it is there").1.kind else {
        panic!("no data section");
    };
    let id = again
        .map(".bss")
        .expect("it is there")
        .1
        .value_type
        .expect("typed");
    let text = again.btf.as_ref().expect("-g").format_value(id, image);
    assert!(
        text.contains(".cold = 1") && text.contains(".hidden = -1"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_set() {
    for (name, value, message) in [
        (
            "limt",
            "1",
            "there is no variable `limt`; the object has `address` (void *), `bytes` (const volatile unsigned char[4]), `cold` (unsigned long), `hidden` (long), `limit` (const volatile int), `limits` (const volatile struct limits), `mode` (const volatile enum mode), `name` (const volatile char[8]), `on` (const volatile _Bool), `ratio` (double), `small` (const volatile __s8[2]), `warm` (short), `words` (const volatile char[2][4])",
        ),
        (
            "limit",
            "x",
            "`limit` cannot be `x`: `const volatile int` is a number",
        ),
        (
            "limit",
            "-+1",
            "`limit` cannot be `-+1`: `const volatile int` is a number",
        ),
        (
            "limit",
            "2147483648",
            "`limit` cannot be `2147483648`: `const volatile int` has 4 bytes and cannot hold that",
        ),
        (
            "cold",
            "-1",
            "`cold` cannot be `-1`: `unsigned long` has 8 bytes and cannot hold that",
        ),
        ("on", "2", "`on` cannot be `2`: it is `true` or `false`"),
        (
            "mode",
            "SLOW",
            "`mode` cannot be `SLOW`: `const volatile enum mode` is a number or one of OFF, FAST",
        ),
        (
            "name",
            "too long",
            "`name` cannot be `too long`: `const volatile char[8]` holds at most 7 bytes of text",
        ),
        (
            "mode",
            "-1",
            "`mode` cannot be `-1`: `const volatile enum mode` has 4 bytes and cannot hold that",
        ),
        (
            "bytes",
            "5",
            "`bytes` cannot be `5`: `const volatile unsigned char[4]` is set element by element (`bytes[0]=5`)",
        ),
        (
            "bytes",
            "abc",
            "`bytes` cannot be `abc`: `const volatile unsigned char[4]` is set element by element (`bytes[0]=VALUE`)",
        ),
        (
            "small",
            "-5",
            "`small` cannot be `-5`: `const volatile __s8[2]` is set element by element (`small[0]=-5`)",
        ),
        (
            "words",
            "abc",
            "`words` cannot be `abc`: `const volatile char[2][4]` is set element by element (`words[0]=VALUE`)",
        ),
        (
            "limits",
            "1",
            "`limits` cannot be `1`: `const volatile struct limits` is set member by member (`limits.MEMBER=1`)",
        ),
        (
            "limits.mid",
            "1",
            "`limits.mid`: `const volatile struct limits` has no member `mid` that can be set",
        ),
        (
            "limits.bits",
            "1",
            "`limits.bits`: `const volatile struct limits` has no member `bits` that can be set",
        ),
        (
            "limits.high[3]",
            "1",
            "`limits.high[3]`: `unsigned char[3]` has no element 3",
        ),
        ("limits.high[1", "1", "`limits.high[1`: `]` is missing"),
        (
            "limits.high[1]x",
            "1",
            "`limits.high[1]x`: `x` is neither `.member` nor `[index]`",
        ),
        (
            "limit[0]",
            "1",
            "`limit[0]`: `const volatile int` has no elements",
        ),
        (
            "address",
            "0",
            "`address` cannot be `0`: addresses are only known at run time",
        ),
        (
            "ratio",
            "much",
            "`ratio` cannot be `much`: `double` is a number",
        ),
    ] {
        assert_eq!(refused(name, value), message);
    }
    let untyped = compile_with(
        "int v = 1; SEC(\"x\") int f(void *c) { return v; }",
        &["-target", "bpf"],
    );
    assert_eq!(
        set_variables(&untyped, &[("v", "1")])
            .expect_err("it is refused")
            .to_string(),
        "variables can only be set in an object with type information; compile with `-g`"
    );
    let folded = compile(
        "const int folded[2] = {3, 4}; SEC(\"x\") int f(int *c) { return folded[*c & 1]; }",
    );
    assert_eq!(
        set_variables(&folded, &[("folded[0]", "1")])
            .expect_err("it is refused")
            .to_string(),
        "`folded` is `const` without `volatile`, so the compiler has already used its value; declare it `const volatile`"
    );
    let file = compile("static int n = 1; SEC(\"x\") int f(void *c) { return n++; }");
    let other = compile("static int n = 2; SEC(\"x\") int g(void *c) { return n++; }");
    let linked = link(&[("a", &file), ("b", &other)]).expect("it links");
    assert_eq!(
        set_variables(&linked, &[("n", "1")])
            .expect_err("it is refused")
            .to_string(),
        "there are 2 variables `n` (static ones of several files); rename one of them"
    );
    assert_eq!(
        set_variables(b"x", &[("n", "1")])
            .expect_err("it is refused")
            .to_string(),
        "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`"
    );
    assert_eq!(set_variables(&file, &[]), Ok(file));
}
