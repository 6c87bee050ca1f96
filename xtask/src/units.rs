//! Runs the tests of all crates, several programs at once: `cargo test` runs one after the other,
//! and keeps every other cargo waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::jobs::{StepResult, each, log_folder};
use crate::log::Log;
use crate::shell::{Failure, failure, output, read, root, write};

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

/// Programs that passed, each with what it was then: the program, its arguments and variables, and
/// all files that are not Rust.
type Passed = BTreeMap<String, u64>;

fn kept_passed() -> PathBuf {
    log_folder().join("passed.json")
}

/// All files of the repository that no compiler reads, as a number that changes when one of them
/// does. `None` where git does not list them.
fn data() -> Option<u64> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others"]);
    command.arg("--exclude-standard").current_dir(root());
    let names = output(&mut command).ok()?;
    let mut hasher = DefaultHasher::new();
    for name in names.split(|byte| *byte == 0) {
        let name = String::from_utf8_lossy(name);
        if !name.ends_with(".rs") {
            about(&root().join(&*name)).hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// A file's name, bytes and time.
fn about(path: &Path) -> (&Path, u64, Option<SystemTime>) {
    let there = std::fs::metadata(path).ok();
    let bytes = there.as_ref().map_or(0, std::fs::Metadata::len);
    (path, bytes, there.and_then(|there| there.modified().ok()))
}

/// Runs all programs that were written down, with arguments and variables that they are to have,
/// and adds up what they say. `again`: also those that passed and are what they were then, as is
/// everything that they read.
///
/// # Errors
/// Which failed; what they said is in the log.
pub fn run(log: &Log, arguments: &[&str], variables: &[(&str, &str)], again: bool) -> StepResult {
    let mut programs = programs(&read(&kept())?);
    let text = std::fs::read_to_string(kept_passed()).unwrap_or_default();
    let before: Passed = serde_json::from_str(&text).unwrap_or_default();
    let data = data();
    let state = |program: &Program| {
        let mut hasher = DefaultHasher::new();
        (about(&program.executable), data?, arguments, variables).hash(&mut hasher);
        Some(hasher.finish())
    };
    let all = programs.len();
    let known: BTreeSet<String> = programs.iter().map(|p| name(&p.executable)).collect();
    if !again {
        programs.retain(|program| {
            let there = before.get(&name(&program.executable)).copied();
            there.is_none() || there != state(program)
        });
    }
    let left_out = all - programs.len();
    let now = Mutex::new(before);
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
        if let Ok(mut now) = now.lock() {
            match state(program).filter(|_| well) {
                Some(state) => now.insert(shown.clone(), state),
                None => now.remove(&shown),
            };
        }
        if !well && let Ok(mut failed) = failed.lock() {
            failed.push(shown);
        }
        Ok(())
    })?;
    let mut now = now.into_inner().unwrap_or_default();
    now.retain(|name, _| known.contains(name));
    write(&kept_passed(), serde_json::to_vec(&now).unwrap_or_default())?;
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        return failure(format!("tests failed in {}", failed.join(", ")));
    }
    if programs.is_empty() {
        return Ok(format!("all {all} programs as they passed before"));
    }
    let told = passed(&log.text())?;
    Ok(match left_out {
        0 => told,
        _ => format!("{told}; {left_out} as they passed before"),
    })
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
