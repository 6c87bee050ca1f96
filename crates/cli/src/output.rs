//! Standard output: what a person reads and what scripts parse, in one place so that both end the same way.

use std::io::Write as _;

use serde_json::{Value, json};
use warpbpf_session::{SessionError, SourceLine};

use crate::error::CliError;

/// To standard output. A reader that went away has seen enough.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Where `--json` was given, a failure is an answer too: on standard output, with the exit status that it has as text.
pub fn answer(as_json: bool, done: Result<u8, CliError>) -> Result<u8, CliError> {
    match done {
        Err(error) if as_json => {
            say(&format!("{}\n", failure_json(&error)));
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

/// A refusal for programs: the rule by its stable name, the place, the values, the path, and the message for people.
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
