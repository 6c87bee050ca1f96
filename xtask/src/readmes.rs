//! Each crate says in its README what its job is, where to start reading, and what it must not
//! know. `tidy` fails where one is missing, or names a file that is not there.

use std::path::Path;

use crate::shell::{Failure, read, root};

/// What a crate says of itself, each in a point of a list.
const POINTS: [&str; 3] = ["Start reading at", "Limits of the crate", "Tests"];

/// Says which crates have no README, which points are missing, and which files are not there.
///
/// # Errors
/// A folder that cannot be listed, or a file that cannot be read.
pub fn findings() -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    for above in ["crates", "tests"] {
        let entries = std::fs::read_dir(root().join(above))
            .map_err(|e| Failure(format!("cannot list `{above}`: {e}")))?;
        let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        for folder in folders.iter().filter(|f| f.join("Cargo.toml").exists()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{above}/{name}");
            let readme = folder.join("README.md");
            if !readme.exists() {
                findings.push(format!(
                    "{name}: no README.md: its job, where to start reading, what it must not know"
                ));
                continue;
            }
            let is_there = |path: &str| folder.join(path).exists() || root().join(path).exists();
            let points: &[&str] = match above {
                "crates" => &POINTS,
                _ => &[],
            };
            findings.extend(check(&name, &read(&readme)?, points, is_there));
        }
    }
    Ok(findings)
}

fn check(name: &str, text: &str, points: &[&str], is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let missing = points
        .iter()
        .filter(|point| !text.contains(&format!("**{point}")));
    let mut findings: Vec<String> = missing
        .map(|point| format!("{name}/README.md: no point \"{point}\""))
        .collect();
    for path in files(text) {
        if !is_there(path) {
            findings.push(format!("{name}/README.md: `{path}` is not there"));
        }
    }
    findings
}

/// What stands in backticks and is a file of the sources.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| {
        let path = Path::new(code);
        let has_end = path.extension().is_some_and(|end| end == "rs");
        code.starts_with("src/") || (has_end && code.contains('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_there_and_missing_points_are_found() {
        let text = "# a\n\n- **Start reading at** `src/lib.rs`, `src/gone.rs`, `lib.rs`.\n\
                    - **Tests.** `cargo test -p a`, `tests/suite/main.rs`, `src/folder`.\n";
        let is_there = |path: &str| path == "src/lib.rs";
        assert_eq!(
            check("crates/a", text, &POINTS, is_there),
            [
                "crates/a/README.md: no point \"Limits of the crate\"",
                "crates/a/README.md: `src/gone.rs` is not there",
                "crates/a/README.md: `tests/suite/main.rs` is not there",
                "crates/a/README.md: `src/folder` is not there",
            ]
        );
    }
}
