//! Standard streams that cannot be written: nothing panics, and no exit status is 0 where output is
//! lost.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use crate::common::{Folder, fixture};

const GOOD: &str = "SEC(\"gpu/entry/*\") int enter(void *ctx) { return 0; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

fn full() -> Stdio {
    let file = OpenOptions::new().write(true).open("/dev/full");
    file.expect("Linux has it").into()
}

/// A pipe whose reader is gone.
fn broken() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe is made");
    drop(reader);
    writer.into()
}

#[test]
fn output_that_is_lost_is_never_a_success() {
    let folder = Folder::new("full");
    folder.compile("good.o", GOOD);
    folder.write("tile.ptx", &fixture("tile.ptx"));
    for line in [
        "verify good.o",
        "verify --json good.o",
        "compile good.o",
        "sites tile.ptx",
        "doctor",
        "doctor --json",
        "ps",
        "--help",
        "run --help",
        "--version",
    ] {
        let mut command = folder.command(line);
        let output = command.stdout(full()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("No space left on device"), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
        // A machine may not be usable, which `doctor` says by 1.
        let status = output.status.code();
        assert!(
            status == Some(125) || line.starts_with("doctor") && status == Some(1),
            "{line}: {status:?}"
        );
    }
}

#[test]
fn a_standard_error_that_is_gone_changes_no_answer() {
    let folder = Folder::new("error");
    folder.write("bad.o", b"hello");
    for error in [full as fn() -> Stdio, broken] {
        let mut command = folder.command("verify bad.o");
        let status = command.stderr(error()).status().expect("it starts");
        assert_eq!(status.code(), Some(1));
        let mut command = folder.command("verify");
        let status = command.stderr(error()).status().expect("it starts");
        assert_eq!(status.code(), Some(2));
    }
}

#[test]
fn a_closed_standard_output_is_one_that_cannot_be_written() {
    let folder = Folder::new("closed");
    folder.compile("good.o", GOOD);
    let mut command = folder.command("verify good.o");
    command.stderr(Stdio::piped());
    let close = || {
        // SAFETY: closes a descriptor of the new process, which it does not use before it is
        // another program.
        drop(unsafe { std::fs::File::from_raw_fd(1) });
        Ok(())
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(close) };
    let mut child = command.spawn().expect("it starts");
    let mut said = String::new();
    let mut error = child.stderr.take().expect("it is a pipe");
    error.read_to_string(&mut said).expect("it is text");
    assert_eq!(child.wait().expect("it ends").code(), Some(125));
    assert_eq!(
        said,
        "warpbpf: cannot write to standard output: Bad file descriptor (os error 9)\n"
    );
}

#[test]
fn what_others_have_named_cannot_act_on_a_terminal() {
    let folder = Folder::new("controls");
    let bad = "k\u{1b}[2J\u{9b}31m\r\nwarpbpf: forged";
    let kernel = serde_json::json!({ "id": null, "name": bad, "mangled": bad, "source": bad,
        "method": format!("refused: {bad}"), "instrumented": true,
        "registers": null, "launches": 1, "uninstrumented": 0 });
    let value = serde_json::json!({ bad: bad });
    let map = serde_json::json!({ "name": bad, "kind": "hash", "max_entries": 1, "entries": [{ "key": bad, "value": value }],
        "threads": null, "events": null, "sum": null, "warnings": [bad] });
    let process = serde_json::json!({ "pid": 1, "exe": bad, "device": bad, "soft": true, "complete": true, "kernels": [kernel],
        "maps": [map], "messages": [bad], "messages_lost": 0 });
    let report = serde_json::json!({ "version": 1, "command": [bad], "status": 0, "processes": [process], "notes": [bad],
        "remarks": [bad] });
    folder.write("report.json", report.to_string().as_bytes());
    let output = folder.output("report report.json");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("it is text");
    let acts = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(text.chars().find(acts), None, "{text}");
    assert!(text.contains("k\\x1b[2J\\u009b31m"), "{text}");
    let forged = text
        .lines()
        .filter(|line| line.starts_with("warpbpf: forged"));
    assert_eq!(forged.count(), 0, "{text}");
    // A report that is none is refused.
    let none = report.to_string().replace("refused: ", "");
    folder.write("none.json", none.as_bytes());
    let (status, said) = folder.text("report none.json");
    assert_eq!(status, Some(125));
    assert!(said.starts_with("warpbpf: "), "{said}");
    assert!(said.contains("is not how a kernel gets programs"), "{said}");
    assert_eq!(said.chars().find(acts), None, "{said}");
    assert!(!said.contains("\nwarpbpf: forged"), "{said}");
}
