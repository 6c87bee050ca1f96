//! Standard streams that cannot be written: nothing panics, and no exit status is 0 where output is lost.

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
        // SAFETY: closes a descriptor of the new process, which it does not use before it is another program.
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
