//! Scripts as a person writes them: what they become, that it is proved safe, and what is said of
//! wrong ones.

mod accepted;
mod garbage;
mod refused;
mod values;

use std::path::{Path, PathBuf};

use warpbpf_script::{Compiled, Options, ScriptError};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/script")
}

fn blessing() -> bool {
    std::env::var_os("WARPBPF_BLESS").is_some()
}

fn compile(source: &str) -> Result<Compiled, Vec<ScriptError>> {
    let function = |file: &str, function: &str| match function {
        "main" => Ok(format!("{file}+0x1234")),
        _ => Err(format!("`{file}` has no symbol of a function `{function}`")),
    };
    let options = Options {
        start: 1_000_000,
        keys: 4096,
        function: &function,
    };
    warpbpf_script::compile(source, "script", &options)
}

/// Compares a file with what it should hold, or writes it.
fn check(path: &Path, expected: &str) {
    if blessing() {
        std::fs::write(path, expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} differs: run with WARPBPF_BLESS=1 and read the difference",
        path.display()
    );
}
