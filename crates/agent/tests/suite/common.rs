//! What these tests share: a C program becomes an object, and a test gets a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../../tests/clang.rs"]
mod clang;

/// The object of a program, `name` being the test's own.
pub fn compile(name: &str, program: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.bpf.c"));
    let object = folder.join(format!("{name}.bpf.o"));
    std::fs::write(&source, program).unwrap();
    let status = Command::new(clang::clang())
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

/// Runs `test`, the body of the test `name`, in a process of its own: this binary again, with this
/// one test.
pub fn in_a_process(name: &str, test: impl FnOnce()) {
    const CHILD: &str = "WARPBPF_TEST_IN_A_PROCESS";
    if std::env::var_os(CHILD).is_some_and(|child| child == name) {
        return test();
    }
    let ran = Command::new(std::env::current_exe().expect("path of the test"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&ran.stdout), text(&ran.stderr));
    // A name that is none of a test would run nothing, and pass.
    assert!(
        ran.status.success() && out.contains("test result: ok. 1 passed"),
        "{}\n{out}\n{error}",
        ran.status
    );
}
