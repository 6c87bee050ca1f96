//! What was measured is data (`benches/results`), and docs/measurements.md is made of it, so that
//! each figure says in the same way when, on what and against what it was measured.

mod page;
mod record;

use std::path::{Path, PathBuf};

use crate::shell::{self, Failure, failure, read, root};
use record::Subject;

const FOLDER: &str = "benches/results";
const CONCLUSIONS: &str = "benches/results/conclusions.md";
const PAGE: &str = "docs/measurements.md";

/// Writes the page.
///
/// # Errors
/// Data that break the schema, each place by its file, record and field.
pub fn write() -> Result<(), Failure> {
    let (subjects, findings) = subjects()?;
    if !findings.is_empty() {
        return failure(findings.join("\n"));
    }
    shell::write(&root().join(PAGE), page(&subjects)?)
}

/// Says where data break the schema, where the page is not what they make, and which links lead to
/// a section of it that is not there.
///
/// # Errors
/// A file that cannot be read.
pub fn findings() -> Result<Vec<String>, Failure> {
    let (subjects, mut findings) = subjects()?;
    if !findings.is_empty() {
        return Ok(findings);
    }
    if read(&root().join(PAGE))? != page(&subjects)? {
        findings.push(format!(
            "`{PAGE}` is not what `{FOLDER}` says: run `cargo xtask measurements`"
        ));
    }
    let mut documents = Vec::new();
    markdown(&root(), false, &mut documents)?;
    for folder in ["docs", "crates", "tests", "examples", "fuzz", "benches"] {
        markdown(&root().join(folder), true, &mut documents)?;
    }
    for document in documents {
        let text = read(&document)?;
        let shown = document.strip_prefix(root()).unwrap_or(&document);
        for anchor in lost_anchors(&text, &subjects) {
            findings.push(format!(
                "{}: `{PAGE}` has no section `#{anchor}`",
                shown.display()
            ));
        }
    }
    Ok(findings)
}

/// All subjects in the order of their titles, and what is wrong in them.
fn subjects() -> Result<(Vec<Subject>, Vec<String>), Failure> {
    let mut files = Vec::new();
    for path in list(&root().join(FOLDER))? {
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    let (mut subjects, mut findings) = (Vec::new(), Vec::new());
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match Subject::parse(&read(&file)?) {
            Ok(subject) => subjects.push(subject),
            Err(found) => {
                let found = found.iter().map(|f| format!("{FOLDER}/{name}: {f}"));
                findings.extend(found);
            }
        }
    }
    subjects.sort_by(|a: &Subject, b| a.title.cmp(&b.title));
    Ok((subjects, findings))
}

fn page(subjects: &[Subject]) -> Result<String, Failure> {
    Ok(page::page(&read(&root().join(CONCLUSIONS))?, subjects))
}

/// Sections of the page that a text names and that are not there.
fn lost_anchors<'t>(text: &'t str, subjects: &[Subject]) -> Vec<&'t str> {
    let mut lost = Vec::new();
    for rest in text.split("measurements.md#").skip(1) {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let anchor = &rest[..end.unwrap_or(rest.len())];
        if !subjects.iter().any(|s| page::anchor(&s.title) == anchor) {
            lost.push(anchor);
        }
    }
    lost
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|e| Failure(format!("cannot list `{}`: {e}", folder.display())))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// The documents in a folder; with `below`, in those below it, too.
fn markdown(folder: &Path, below: bool, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for path in list(folder)? {
        if path.is_dir() {
            if below {
                markdown(&path, below, into)?;
            }
        } else if path.extension().is_some_and(|e| e == "md") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_lost_sections_are_found() {
        let text = r#"{"title": "The gate", "records": [{"what": "a", "note": "b"}]}"#;
        let subjects = [Subject::parse(text).unwrap()];
        let text =
            "[a](../measurements.md#the-gate), [b](measurements.md#clock) and measurements.md.";
        assert_eq!(lost_anchors(text, &subjects), ["clock"]);
    }
}
