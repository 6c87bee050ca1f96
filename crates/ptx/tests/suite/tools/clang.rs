//! PTX as clang writes it.

use std::path::Path;
use std::process::Command;

#[path = "../../../../../tests/clang.rs"]
mod chosen;

use chosen::clang;

/// What clang makes of a file of the corpus, with no headers but its own; `None` if it was built
/// without the NVPTX target.
pub fn compile(name: &str, flags: &[&str]) -> Option<String> {
    let targets = Command::new(clang())
        .arg("-print-targets")
        .output()
        .expect("clang starts");
    if !String::from_utf8_lossy(&targets.stdout).contains("nvptx64") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name);
    let run = Command::new(clang())
        .args([
            "-x",
            "cuda",
            "-nocudainc",
            "-nocudalib",
            "--cuda-device-only",
        ])
        .args(["-Wno-unknown-cuda-version", "-O2", "-S", "-o", "-"])
        .args(flags)
        .arg(&source)
        .output()
        .expect("clang starts");
    assert!(
        run.status.success(),
        "clang refuses `{name}`: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    Some(String::from_utf8(run.stdout).expect("PTX is UTF-8"))
}
