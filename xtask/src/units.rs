//! Runs the tests of all crates, several programs at once: `cargo test` runs one after the other, and keeps every other cargo
//! waiting.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use crate::jobs::{StepResult, each, log_folder};
use crate::log::Log;
use crate::shell::{Failure, failure, read, write};

/// Crates whose tests take longest, the longest first: what is left alone at the end is short.
const LONG: &[&str] = &[
    "sass",
    "codegen",
    "patch",
    "softcuda",
    "maps",
    "verify",
    "conformance",
];

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The crate's folder, where its tests run.
    folder: PathBuf,
    executable: PathBuf,
}

/// Writes down which programs of tests cargo said that it built.
pub fn keep(messages: &str) -> Result<(), Failure> {
    write(&kept(), messages)
}

fn kept() -> PathBuf {
    log_folder().join("programs.json")
}

/// Runs all programs that were written down, with arguments and variables that they are to have, and adds up what they say.
///
/// # Errors
/// Which failed; what they said is in the log.
pub fn run(log: &Log, arguments: &[&str], variables: &[(&str, &str)]) -> StepResult {
    let mut programs = programs(&read(&kept())?);
    let rank = |program: &Program| {
        let name = program.folder.file_name().unwrap_or_default();
        let at = LONG.iter().position(|long| name == *long);
        at.unwrap_or(LONG.len())
    };
    programs.sort_by_key(rank);
    let (failed, done) = (Mutex::new(Vec::new()), Mutex::new(0));
    each(&programs, |program| {
        let start = Instant::now();
        let shown = name(&program.executable);
        let mut command = Command::new(&program.executable);
        command.arg("--quiet").args(arguments);
        command.current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        command.envs(variables.iter().copied());
        let own = Log::new(&format!("unit-{shown}"));
        let well = own.run(&mut command).is_ok();
        log.add(&format!(
            "{}{shown}: {:.1} s",
            own.text(),
            start.elapsed().as_secs_f64()
        ));
        if let Ok(mut done) = done.lock() {
            *done += 1;
            log.progress(&format!("{done}/{}", programs.len()));
        }
        if !well && let Ok(mut failed) = failed.lock() {
            failed.push(shown);
        }
        Ok(())
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        return failure(format!("tests failed in {}", failed.join(", ")));
    }
    passed(&log.text())
}

/// `…/suite-0123456789abcdef` → `suite-0123456789abcdef`.
fn name(executable: &Path) -> String {
    let name = executable.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What cargo said of programs with tests.
fn programs(messages: &str) -> Vec<Program> {
    let values = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = values.filter_map(|message| {
        let is_test = message["profile"]["test"] == Value::Bool(true);
        let manifest = message["manifest_path"].as_str()?;
        let executable = message["executable"].as_str()?;
        is_test.then(|| Program {
            folder: Path::new(manifest)
                .parent()
                .unwrap_or(Path::new("."))
                .into(),
            executable: executable.into(),
        })
    });
    programs.collect()
}

/// Adds up what tests said.
pub fn passed(text: &str) -> StepResult {
    let (mut passed, mut ignored, mut programs) = (0, 0, 0);
    for line in text.lines() {
        let Some(counts) = line.strip_prefix("test result: ok. ") else {
            continue;
        };
        let numbers = counts.split_whitespace();
        let mut numbers = numbers.filter_map(|word| word.parse::<u64>().ok());
        passed += numbers.next().unwrap_or(0);
        let _failed = numbers.next();
        ignored += numbers.next().unwrap_or(0);
        programs += 1;
    }
    if passed == 0 {
        return failure("no test ran");
    }
    Ok(format!(
        "{passed} passed, {ignored} ignored, in {programs} programs"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_read_from_what_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"test":true},"executable":"/t/a-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","profile":{"test":false},"executable":"/t/b"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/c/Cargo.toml","profile":{"test":true},"executable":null}"#,
            "\n{\"reason\":\"build-finished\",\"success\":true}\n",
        );
        let expected = Program {
            folder: "/w/a".into(),
            executable: "/t/a-1".into(),
        };
        assert_eq!(programs(messages), [expected]);
    }

    #[test]
    fn numbers_are_added_up_and_none_is_a_failure() {
        let line = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        let text = format!("{line}\nother\n{line}\n");
        assert!(matches!(passed(&text), Ok(told) if told == "6 passed, 2 ignored, in 2 programs"));
        assert!(passed("").is_err());
    }
}
