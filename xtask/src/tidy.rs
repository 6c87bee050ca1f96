//! The rules that no compiler checks: every module says why it exists, logic files stay short,
//! nothing is left to do.

use std::path::{Path, PathBuf};

use crate::shell::{Failure, failure, read, root};
use crate::{circles, layers, links, measurements, names, readmes};

/// Longest logic file, in lines. Instruction and export tables are lists and may be longer.
const MAX_LINES: usize = 720;
/// Widest comment, in columns.
const MAX_COLUMNS: usize = 100;
/// Files that are tables.
const TABLES: &[&str] = &["table.rs", "exports.rs"];

/// Checks all Rust files; every finding is in the error.
pub fn run() -> Result<(), Failure> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        rust_files(&root().join(folder), &mut files)?;
    }
    files.sort();
    let mut findings = Vec::new();
    for file in &files {
        let text = read(file)?;
        let shown = file
            .strip_prefix(root())
            .unwrap_or(file)
            .display()
            .to_string();
        check(&shown, &text, &mut findings);
    }
    rust_files(&root().join("tests"), &mut files)?;
    for file in &files {
        let text = read(file)?;
        let shown = file.strip_prefix(root()).unwrap_or(file);
        let shown = shown.display().to_string();
        check_width(&shown, &text, &mut findings);
        check_prints(&shown, &text, &mut findings);
        names::check(&shown, &text, &mut findings);
    }
    let crates = circles::crates()?;
    findings.extend(circles::findings(&crates));
    findings.extend(layers::findings(&crates)?);
    findings.extend(measurements::findings()?);
    findings.extend(readmes::findings()?);
    findings.extend(links::findings()?);
    if findings.is_empty() {
        Ok(())
    } else {
        failure(findings.join("\n"))
    }
}

/// Comments are read in half a screen. Rows of tables cannot be broken.
fn check_width(name: &str, text: &str, findings: &mut Vec<String>) {
    for (line, number) in text.lines().zip(1..) {
        let comment = line.trim_start();
        let is_row = ["/// |", "//! |"]
            .iter()
            .any(|row| comment.starts_with(row));
        let columns = line.chars().count();
        if comment.starts_with("//") && !is_row && columns > MAX_COLUMNS {
            findings.push(format!(
                "{name}:{number}: a comment of {columns} columns; break the line (at most {MAX_COLUMNS})"
            ));
        }
    }
}

/// A test that is run by those who have time.
const DEEP: &str = concat!("#[", "ignore = \"cargo xtask test --deep\"]");

fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_test = name.contains("/tests/");
    if !text.starts_with("//!") {
        findings.push(format!(
            "{name}: a module opens with `//!` and says why it exists"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES && !is_test && !TABLES.iter().any(|t| name.ends_with(t)) {
        findings.push(format!(
            "{name}: {lines} lines; split it by job (at most {MAX_LINES})"
        ));
    }
    // The words are put together here, so that this file does not find itself.
    for word in [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[", "ignore"),
        concat!("#[", "allow("),
    ] {
        let is_meant = |line: &&str| !line.trim().starts_with(DEEP);
        let mut lines = text.lines().enumerate();
        if let Some((at, _)) = lines.find(|(_, l)| l.contains(word) && is_meant(l)) {
            findings.push(format!(
                "{name}:{}: `{word}`: finish it, or write it down as a limit in docs/",
                at + 1
            ));
        }
    }
}

/// The standard library's print macros panic where nobody reads, and so end an application's tool,
/// or a suite in its middle.
fn check_prints(name: &str, text: &str, findings: &mut Vec<String>) {
    if !name.contains("/src/") {
        return;
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    // Put together here, so that this file does not find itself.
    let words = [concat!("print", "!("), concat!("println", "!(")];
    for (at, line) in code.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if !is_comment && words.iter().any(|word| line.contains(word)) {
            findings.push(format!(
                "{name}:{}: a print macro panics where nobody reads: use `say!`, or `output::say` and `tell!` in the command",
                at + 1
            ));
        }
    }
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|e| Failure(format!("cannot list `{}`: {e}", folder.display())))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_macros_are_found_in_what_is_no_test() {
        let print = concat!("    eprint", "ln!(\"x\");\n");
        let text = format!("//! Why.\n// {print}{print}#[cfg(test)]\nmod tests {{ {print} }}\n");
        let found = |name: &str| {
            let mut findings = Vec::new();
            check_prints(name, &text, &mut findings);
            findings
        };
        assert_eq!(
            found("crates/a/src/b.rs"),
            [
                "crates/a/src/b.rs:3: a print macro panics where nobody reads: use `say!`, or `output::say` and `tell!` in the command"
            ]
        );
        assert_eq!(found("crates/a/examples/b.rs"), Vec::<String>::new());
    }

    #[test]
    fn wide_comments_are_found_and_rows_of_tables_are_not() {
        let wide = "ä".repeat(97);
        let text = format!(
            "//! {}\n//! {wide}\n//! | {wide} |\nx(); // {wide}\n    // {wide}\n",
            "a".repeat(96)
        );
        let mut findings = Vec::new();
        check_width("crates/a/src/b.rs", &text, &mut findings);
        assert_eq!(
            findings,
            [
                "crates/a/src/b.rs:2: a comment of 101 columns; break the line (at most 100)",
                "crates/a/src/b.rs:5: a comment of 104 columns; break the line (at most 100)",
            ]
        );
    }

    #[test]
    fn findings_name_the_file_and_what_to_do() {
        let mut findings = Vec::new();
        check("crates/a/src/b.rs", "fn f() {}\n", &mut findings);
        check(
            "crates/a/src/c.rs",
            &format!("//! Why.\n{}", "x\n".repeat(800)),
            &mut findings,
        );
        check(
            "crates/a/src/table.rs",
            &format!("//! Why.\n{}", "x\n".repeat(800)),
            &mut findings,
        );
        assert_eq!(
            findings,
            [
                "crates/a/src/b.rs: a module opens with `//!` and says why it exists",
                "crates/a/src/c.rs: 801 lines; split it by job (at most 720)",
            ]
        );
    }
}
