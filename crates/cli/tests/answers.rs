//! What scripts see of `verify`, `compile` and `link`: one JSON document on standard output, and an exit status.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A folder of its own for each test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("warpbpf-cli-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it is created");
        Folder(path)
    }

    /// Compiles `source` to the file `name`.
    fn compile(&self, name: &str, source: &str) {
        let chosen = std::env::var("WARPBPF_CLANG").ok();
        let known = ["clang-19", "clang-22", "clang-21", "clang-20", "clang"].map(str::to_owned);
        let headers = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
        std::fs::write(self.0.join("source.c"), format!("{headers}{source}\n"))
            .expect("it is written");
        let done = chosen.into_iter().chain(known).find_map(|clang| {
            Command::new(clang)
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
                .ok()
        });
        let done = done.expect("these tests need clang with the BPF target; run `cargo xtask setup` (or set WARPBPF_CLANG)");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpbpf"));
        command.current_dir(&self.0).args(line.split(' '));
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().expect("it starts")
    }

    /// The exit status and the JSON of `line`, which writes nothing else.
    fn json(&self, line: &str) -> (Option<i32>, Value) {
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
    fn text(&self, line: &str) -> (Option<i32>, String) {
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

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const GOOD: &str = "const volatile unsigned char bytes[4];
    SEC(\"gpu/entry/*\") int enter(void *ctx) { return bytes[0]; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";
const ENDLESS: &str = "int x;
    SEC(\"gpu/entry/*\") int enter(void *ctx) { while (*(volatile int *)&x) ; return 0; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

fn failure(message: &str) -> Value {
    json!({ "ok": false, "error": message })
}

#[test]
fn failures_are_answers() {
    let folder = Folder::new("failures");
    folder.compile("good.o", GOOD);
    std::fs::write(folder.0.join("bad.o"), "hello").expect("it is written");
    let elf = "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`";
    for verb in ["verify", "compile"] {
        let run = |rest: &str| folder.json(&format!("{verb} --json {rest}"));
        assert_eq!(run("bad.o"), (Some(1), failure(&format!("bad.o: {elf}"))));
        assert_eq!(
            run("good.o bad.o"),
            (Some(1), failure(&format!("good.o + bad.o: `bad.o`: {elf}")))
        );
        assert_eq!(
            run("good.o --set bytes"),
            (
                Some(125),
                failure("`--set bytes` has no value; write `--set NAME=VALUE`")
            )
        );
        assert_eq!(
            run("good.o --set bytes=5"),
            (
                Some(1),
                failure(
                    "good.o: `bytes` cannot be `5`: `const volatile unsigned char[4]` is set element by element (`bytes[0]=5`)"
                )
            )
        );
        assert_eq!(
            run("none.o"),
            (
                Some(125),
                failure("cannot read `none.o`: No such file or directory (os error 2)")
            )
        );
    }
    assert_eq!(
        folder.json("compile --json good.o --program-name other"),
        (Some(125), failure("no such program; the object has enter"))
    );
    assert_eq!(
        folder.json("link --json good.o bad.o -o out.o"),
        (Some(1), failure(&format!("out.o: `bad.o`: {elf}")))
    );
    assert_eq!(
        folder.json("link --json good.o -o none/out.o"),
        (
            Some(125),
            failure("cannot write `none/out.o`: No such file or directory (os error 2)")
        )
    );
    // As text nothing is on standard output, and the status is the same.
    assert_eq!(
        folder.text("verify bad.o"),
        (Some(1), format!("warpbpf: bad.o: {elf}\n"))
    );
    assert_eq!(
        folder.text("link good.o bad.o -o out.o"),
        (Some(1), format!("warpbpf: out.o: `bad.o`: {elf}\n"))
    );
}

#[test]
fn a_refusal_is_the_same_for_every_verb() {
    let folder = Folder::new("refusal");
    folder.compile("endless.o", ENDLESS);
    let (status, verified) = folder.json("verify --json endless.o");
    assert_eq!(status, Some(1));
    assert_eq!(
        (&verified["ok"], &verified["program"]),
        (&json!(false), &json!("enter"))
    );
    for field in ["error", "rule", "message", "help"] {
        assert!(verified[field].is_string(), "{verified}");
    }
    assert_eq!(folder.json("compile --json endless.o"), (Some(1), verified));
    let (status, text) = folder.text("compile endless.o");
    assert_eq!(status, Some(1));
    assert!(
        text.starts_with("warpbpf: endless.o: program `enter` was refused\n"),
        "{text}"
    );
}

#[test]
fn successes_are_answers_too() {
    let folder = Folder::new("successes");
    folder.compile("good.o", GOOD);
    let (status, linked) = folder.json("link --json good.o -o out.o");
    let bytes = std::fs::metadata(folder.0.join("out.o"))
        .expect("it is written")
        .len();
    assert_eq!(
        (status, linked),
        (
            Some(0),
            json!({ "ok": true, "output": "out.o", "bytes": bytes })
        )
    );
    assert_eq!(
        folder.text("link good.o -o out.o"),
        (Some(0), String::new())
    );
    let (status, verified) = folder.json("verify --json out.o");
    assert_eq!((status, &verified["ok"]), (Some(0), &json!(true)));
    let (status, compiled) = folder.json("compile --json out.o --emit ebpf");
    assert_eq!(
        (status, &compiled[0]["program"]),
        (Some(0), &json!("enter"))
    );
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let folder = Folder::new("flags");
    folder.compile("good.o", GOOD);
    for emit in ["", " --emit ptx", " --emit ebpf"] {
        assert_eq!(
            folder.text(&format!("compile good.o --after all{emit}")),
            (
                Some(125),
                "warpbpf: `--after all` is a pass over the intermediate representation; add `--emit ir`\n"
                    .to_owned()
            )
        );
    }
    let output = folder.output("compile good.o --emit ir --after all");
    assert_eq!(output.status.code(), Some(0));
    for verb in ["verify", "compile"] {
        let (status, text) = folder.text(&format!("{verb} good.o --threads 0"));
        assert_eq!(status, Some(2));
        assert!(
            text.starts_with(
                "error: invalid value '0' for '--threads <N>': 0 is not in 1..18446744073709551615\n"
            ),
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = Folder::new("pipe");
    folder.compile("good.o", GOOD);
    for line in ["compile good.o", "compile --json good.o", "verify good.o"] {
        let mut child = folder
            .command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "`{line}`");
        assert_eq!(output.status.code(), Some(0), "`{line}`");
    }
}
