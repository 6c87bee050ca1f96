//! The clang that tests compile programs with. Tests of several crates include this file.

use std::process::{Command, Stdio};

/// The first that runs and compiles for BPF: `WARPBPF_CLANG`, else the versions that are known to
/// do.
pub fn clang() -> String {
    let chosen = std::env::var("WARPBPF_CLANG").ok();
    let known = [
        "clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang",
    ];
    let answers = |name: &String| {
        Command::new(name)
            .args(["-target", "bpf", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut all = chosen.into_iter().chain(known.map(str::to_owned));
    all.find(answers).unwrap_or_else(|| {
        panic!(
            "there is no clang that compiles for BPF: run `cargo xtask setup` (or set WARPBPF_CLANG)"
        )
    })
}
