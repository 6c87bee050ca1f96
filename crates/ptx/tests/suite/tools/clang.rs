//! PTX as clang writes it.

use std::path::Path;
use std::process::Command;

/// The first clang that answers: `WARPBPF_CLANG`, else the versions that are known to do.
fn clang() -> String {
    let chosen = std::env::var("WARPBPF_CLANG").ok();
    let known = [
        "clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang",
    ];
    let found = chosen
        .into_iter()
        .chain(known.into_iter().map(str::to_owned))
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    found.expect("these tests need clang; run `cargo xtask setup` (or set WARPBPF_CLANG)")
}

/// What clang makes of a file of the corpus, with no headers but its own; `None` if it was built without the NVPTX
/// target.
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
