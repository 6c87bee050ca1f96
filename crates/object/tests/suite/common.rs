//! Compiles test programs with the clang of the machine.

use std::io::Write as _;
use std::process::{Command, Stdio};

const HEADERS: &str = "#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#ifndef __ulong
#define __ulong(name, val) enum { ___bpf_concat(__unique_value, __COUNTER__) = val } name
#endif
";

#[path = "../../../../tests/clang.rs"]
mod clang;

use clang::clang;

/// Runs clang on `tests/bpf/NAME`.
pub fn compile_file(name: &str, flags: &[&str]) -> Vec<u8> {
    run(&format!("tests/bpf/{name}"), "", flags)
}

/// Runs clang on `source`, after the usual headers, as little-endian BPF with `-g`.
pub fn compile(source: &str) -> Vec<u8> {
    compile_with(source, &["-target", "bpf", "-g"])
}

/// Runs clang on `source`, after the usual headers, with other flags.
pub fn compile_with(source: &str, flags: &[&str]) -> Vec<u8> {
    run("-", &format!("{HEADERS}{source}\n"), flags)
}

fn run(input: &str, stdin: &str, flags: &[&str]) -> Vec<u8> {
    let mut child = Command::new(clang())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "-O2",
            "-Wall",
            "-Wno-visibility",
            "-I/usr/include/x86_64-linux-gnu",
        ])
        .args(flags)
        .args(["-x", "c", "-c", input, "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clang starts");
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(stdin.as_bytes())
        .expect("clang reads its input");
    let output = child.wait_with_output().expect("clang ends");
    assert!(
        output.status.success(),
        "clang failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
