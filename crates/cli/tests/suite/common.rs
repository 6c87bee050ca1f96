//! What the tests of the command have in common: a folder, programs compiled into it, and runs of
//! the command there.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

#[path = "../../../../tests/clang.rs"]
mod clang;

/// A folder of its own for each test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// One for this test.
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("warpbpf-cli-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it is created");
        Folder(path)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).expect("it is written");
    }

    /// Compiles `source` to the file `name`.
    pub fn compile(&self, name: &str, source: &str) {
        let headers = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
        std::fs::write(self.0.join("source.c"), format!("{headers}{source}\n"))
            .expect("it is written");
        let done = Command::new(clang::clang())
            .current_dir(&self.0)
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3"])
            .args([
                "-I/usr/include/x86_64-linux-gnu",
                "-c",
                "source.c",
                "-o",
                name,
            ])
            .output()
            .expect("clang starts");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// `warpbpf` with the words of `line`.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpbpf"));
        command.current_dir(&self.0).args(line.split(' '));
        command
    }

    /// What running it gives.
    pub fn output(&self, line: &str) -> Output {
        self.command(line).output().expect("it starts")
    }

    /// The exit status and the JSON of `line`, which writes nothing else.
    pub fn json(&self, line: &str) -> (Option<i32>, Value) {
        let output = self.output(line);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "",
            "`warpbpf {line}`"
        );
        let value = serde_json::from_slice(&output.stdout);
        let value = value.unwrap_or_else(|error| panic!("`warpbpf {line}`: {error}"));
        (output.status.code(), value)
    }

    /// The exit status and the standard error of `line`, which writes nothing to standard output.
    pub fn text(&self, line: &str) -> (Option<i32>, String) {
        let output = self.output(line);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "",
            "`warpbpf {line}`"
        );
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}

impl Folder {
    /// The standard output of `line`, which succeeds and writes nothing else.
    pub fn said(&self, line: &str) -> String {
        let output = self.output(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), &*errors),
            (Some(0), ""),
            "`warpbpf {line}`"
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn golden_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/suite/golden")
        .join(name)
}

/// A file of `golden/`.
pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(golden_path(name)).expect("the fixture is there")
}

/// `text` is what stands in `golden/NAME`.
pub fn golden(name: &str, text: &str) {
    let path = golden_path(name);
    if std::env::var_os("WARPBPF_BLESS").is_some() {
        std::fs::write(&path, text).expect("it is written");
    }
    let expect = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        expect, text,
        "golden/{name} is out of date: run the tests of warpbpf-cli with WARPBPF_BLESS=1"
    );
}
