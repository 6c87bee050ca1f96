//! Standard output and standard error: what a person reads and what scripts parse, in one place so
//! that both end the same way.
//!
//! Nothing here panics or stops the command: where output cannot be written it goes on, and its
//! exit status says at the end that something is missing.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use warpbpf_session::{SessionError, SourceLine};

use crate::term::error::{CliError, FAILED};
use crate::term::inherited;
use crate::term::plain;

/// Something could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// The exit status of the command, where its work would give `status`: never 0 if output was lost.
pub fn final_status(status: u8) -> u8 {
    match LOST.load(Ordering::Relaxed) {
        true if status == 0 => FAILED,
        _ => status,
    }
}

/// Something that was to be written is not there.
pub fn lose() {
    LOST.store(true, Ordering::Relaxed);
}

/// All of it, to a pipe that another process has made non-blocking, too.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut set = [PollFd::new(&to, PollFlags::OUT)];
                // Whatever ends the wait, the next write tells.
                let _ = poll(&mut set, None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// To standard output, as it is.
///
/// # Errors
/// It cannot be written.
pub fn standard_output(bytes: &[u8]) -> io::Result<()> {
    match inherited::is_closed(libc::STDOUT_FILENO) {
        true => Err(Errno::BADF.into()),
        false => write_all(io::stdout().as_fd(), bytes),
    }
}

/// Text or JSON to standard output.
pub fn say(text: &str) {
    say_as_it_is(&plain::output(text));
}

/// Text that may be drawn with colours.
pub fn say_drawn(text: &str) {
    say_as_it_is(&plain::drawn(text));
}

fn say_as_it_is(text: &str) {
    if let Err(error) = standard_output(text.as_bytes())
        && !is_read_no_more(&error)
    {
        lose();
        tell_line(&format!(
            "warpbpf: cannot write to standard output: {error}"
        ));
    }
}

/// JSON in one line.
pub fn json_line(value: &impl serde::Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(text) => plain::output(&text).into_owned() + "\n",
        // What is shown here has text as keys, which is all that could fail.
        Err(error) => json!({ "ok": false, "error": error.to_string() }).to_string() + "\n",
    }
}

/// A line for people to standard error; what is in it of others cannot begin another one.
pub fn tell_line(line: &str) {
    tell_lines(&plain::message(line));
}

/// Lines of ours to standard error. Whoever has closed it wants none.
pub fn tell_lines(lines: &str) {
    tell_as_it_is(&plain::output(lines));
}

fn tell_as_it_is(lines: &str) {
    let line = format!("{lines}\n");
    if inherited::is_closed(libc::STDERR_FILENO) {
        return;
    }
    if let Err(error) = write_all(io::stderr().as_fd(), line.as_bytes())
        && !is_read_no_more(&error)
    {
        lose();
    }
}

/// A report to standard error, which nothing else keeps: where it cannot be written, the exit
/// status says so.
pub fn show(report: &str) {
    let written = match inherited::is_closed(libc::STDERR_FILENO) {
        true => Err(Errno::BADF.into()),
        false => write_all(io::stderr().as_fd(), report.as_bytes()),
    };
    if written.is_err() {
        lose();
    }
}

/// A reader that went away has seen enough.
pub fn is_read_no_more(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// A line to standard error, put together as `format!` does.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::term::output::tell_line(&format!($($words)*))
    };
}
pub(crate) use tell;

/// An error for people, which may have several lines. A refusal is drawn, and its lines are ours.
pub fn tell_error(error: &CliError) {
    let text = format!("warpbpf: {error}");
    match error {
        CliError::Rejected { .. } => tell_as_it_is(&plain::drawn(&text)),
        CliError::Script { shown } => tell_as_it_is(&plain::drawn(shown)),
        _ => tell_line(&text),
    }
}

/// Where `--json` was given, a failure is an answer too: on standard output, with the exit status
/// that it has as text.
pub fn answer(as_json: bool, done: Result<u8, CliError>) -> Result<u8, CliError> {
    match done {
        Err(error) if as_json => {
            say(&json_line(&failure_json(&error)));
            Ok(error.exit_code())
        }
        done => done,
    }
}

/// Any failure for programs.
fn failure_json(error: &CliError) -> Value {
    match error {
        CliError::Rejected { error, .. } => refusal_json(error),
        _ => json!({ "ok": false, "error": error.to_string() }),
    }
}

/// A refusal for programs: the rule by its stable name, the place, the values, the path, and the
/// message for people.
fn refusal_json(error: &SessionError) -> Value {
    let mut out = json!({ "ok": false, "error": error.to_string() });
    if let SessionError::Rejected { rejection } = error {
        out["program"] = json!(rejection.program);
        out["rule"] = json!(rejection.rule.name());
        out["instruction"] = json!(rejection.slot);
        out["text"] = json!(rejection.insn);
        out["message"] = json!(rejection.rule.to_string());
        out["help"] = json!(rejection.help());
        out["values"] = rejection
            .values
            .iter()
            .map(|(register, value)| json!({ register: value }))
            .collect();
        out["path"] = rejection
            .path
            .iter()
            .map(|step| {
                json!({ "instruction": step.slot, "text": step.insn, "what": step.what, "times": step.times,
                        "line": line_json(step.line.as_ref()) })
            })
            .collect();
        out["line"] = line_json(rejection.line.as_ref());
    }
    // What the first one says stands beside all of them, where readers of one look.
    if let SessionError::Several { errors } = error {
        let all: Vec<Value> = errors.iter().map(refusal_json).collect();
        if let Some(Value::Object(first)) = all.first() {
            for (key, value) in first.iter().filter(|(key, _)| *key != "error") {
                out[key] = value.clone();
            }
        }
        out["errors"] = json!(all);
    }
    out
}

/// A line of source for programs.
pub fn line_json(line: Option<&SourceLine>) -> Value {
    line.map_or(
        Value::Null,
        |l| json!({ "file": l.file, "line": l.line, "column": l.column, "text": l.text.trim() }),
    )
}
