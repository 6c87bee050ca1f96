//! What these tests share: a C program becomes an object.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The object of a program, `name` being the test's own.
pub fn compile(name: &str, program: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.bpf.c"));
    let object = folder.join(format!("{name}.bpf.o"));
    std::fs::write(&source, program).unwrap();
    let clang = ["clang", "clang-19", "clang-18", "clang-16", "clang-14"];
    let clang = clang
        .iter()
        .find(|c| Command::new(c).arg("--version").output().is_ok())
        .expect("no clang: run `cargo xtask setup`");
    let status = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(format!("-I{}", root.join("include").display()))
        .arg("-I/usr/include/x86_64-linux-gnu")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap();
    assert!(status.success(), "clang failed: run `cargo xtask setup`");
    std::fs::read(object).unwrap()
}
