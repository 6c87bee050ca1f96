//! Any bytes as an object file: a loader that panics takes the tool with it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use warpbpf_fuzz::{Bounds, Target};

#[path = "../../../tests/clang.rs"]
mod clang;

/// Two kinds of map, a variable, a call, a loop, and types.
const SOURCE: &str = "
#define SEC(name) __attribute__((section(name), used))
struct value { unsigned long long n; int kind[3]; };
struct { int (*type)[1]; int (*max_entries)[16]; unsigned *key; struct value *value; } hash SEC(\".maps\");
struct { int (*type)[2]; int (*max_entries)[4]; unsigned *key; unsigned long long *value; } array SEC(\".maps\");
const volatile unsigned limit = 7;
unsigned long long seen;
static void *(*lookup)(void *, const void *) = (void *)1;
__attribute__((noinline)) int twice(int n) { return n * 2 + (int)limit; }
SEC(\"gpu/entry\") int on_entry(void *ctx) {
    unsigned key = twice(1);
    struct value *value = lookup(&hash, &key);
    if (value) __sync_fetch_and_add(&value->n, 1);
    for (unsigned i = 0; i < limit; i++) seen += i;
    return 0;
}
char LICENSE[] SEC(\"license\") = \"GPL\";
";

fn compile(flags: &[&str]) -> Vec<u8> {
    let mut child = Command::new(clang::clang())
        .args(["-target", "bpf", "-O2", "-x", "c", "-c", "-", "-o", "-"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("clang starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(SOURCE.as_bytes()).expect("clang reads it");
    drop(input);
    let done = child.wait_with_output().expect("clang ends");
    assert!(done.status.success(), "clang");
    done.stdout
}

#[test]
fn objects() {
    let seeds = [["-g"].as_slice(), &["-g0"], &["-g", "-mcpu=v4"]].map(compile);
    assert!(
        crate::load(&seeds[0]).is_ok(),
        "{:?}",
        crate::load(&seeds[0])
    );
    let words: &[&[u8]] = &[
        b"gpu/entry",
        b".maps\0",
        b".BTF\0",
        b".BTF.ext\0",
        &[0x9f, 0xeb, 1, 0],
    ];
    let bounds = Bounds {
        bytes: 64 << 20,
        ..Bounds::default()
    };
    Target::new("objects", seeds.to_vec())
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            let _ = crate::load(bytes);
            let _ = crate::Btf::read(bytes);
            let _ = crate::link(&[("a", bytes), ("b", bytes)]);
            let _ = crate::set_variables(bytes, &[("limit", "1")]);
        });
}
