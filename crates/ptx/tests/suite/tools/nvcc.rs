//! PTX as nvcc writes it.

use std::path::Path;
use std::process::Command;

/// What nvcc makes of a file of the corpus.
pub fn compile(name: &str, flags: &[&str]) -> String {
    let home = super::home::cuda_home();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name);
    let out = std::env::temp_dir().join(format!(
        "warpbpf-ptx-{}-{:?}-{name}-{}.ptx",
        std::process::id(),
        // Two tests may compile one file at once.
        std::thread::current().id(),
        flags.join("")
    ));
    let run = Command::new(home.join("bin/nvcc"))
        .args(["-ptx", "-std=c++17", "-I"])
        .arg(home.join("include"))
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("nvcc starts");
    assert!(
        run.status.success(),
        "nvcc refuses `{name}`: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    let text = std::fs::read_to_string(&out).expect("nvcc writes its output");
    std::fs::remove_file(&out).expect("the output can be removed");
    text
}
