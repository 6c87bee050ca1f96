//! Links between documents: each leads to something that is there, and each page of `docs` is in
//! the book's summary.

use std::path::{Path, PathBuf};

use crate::shell::{Failure, read, root};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Says of each link that leads nowhere, and of each page that the summary has not.
///
/// # Errors
/// A file that cannot be read.
pub fn findings() -> Result<Vec<String>, Failure> {
    let mut pages = Vec::new();
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "STYLE.md",
    ] {
        pages.push(PathBuf::from(page));
    }
    for folder in ["docs", "docs/guide", "docs/internals"] {
        markdown(Path::new(folder), &mut pages)?;
    }
    for folder in ["crates", "examples"] {
        for inner in entries(Path::new(folder))? {
            markdown(&inner, &mut pages)?;
        }
        markdown(Path::new(folder), &mut pages)?;
    }
    pages.sort();
    let mut findings = Vec::new();
    for page in &pages {
        let text = read(&root().join(page))?;
        let here = page.parent().unwrap_or(Path::new(""));
        for (line, target) in links(&text) {
            if !root().join(here).join(&target).exists() {
                let page = page.display();
                findings.push(format!("{page}:{line}: `{target}` is not there"));
            }
        }
    }
    let summary = read(&root().join(SUMMARY))?;
    let listed: Vec<String> = links(&summary).map(|(_, target)| target).collect();
    for page in &pages {
        if let Ok(name) = page.strip_prefix("docs")
            && page != Path::new(SUMMARY)
            && !listed.iter().any(|target| Path::new(target) == name)
        {
            findings.push(format!("{SUMMARY}: has no link to `{}`", name.display()));
        }
    }
    Ok(findings)
}

/// Files of a folder that end with `.md`.
fn markdown(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    into.extend(entries(folder)?.into_iter().filter(is_page));
    Ok(())
}

/// What is in a folder, by its path from the root; nothing of what is no folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let there = root().join(folder);
    if !there.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |e: std::io::Error| Failure(format!("`{}`: {e}", folder.display()));
    let all = std::fs::read_dir(&there).map_err(failed)?;
    all.map(|entry| Ok(folder.join(entry.map_err(failed)?.file_name())))
        .collect()
}

/// Links to files in a text, outside of code, each with its line.
fn links(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_code = false;
    text.lines().enumerate().flat_map(move |(at, line)| {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let line = if in_code { "" } else { line };
        let parts = line.split("](").skip(1);
        let targets = parts.filter_map(|part| part.split_once(')').map(|(target, _)| target));
        let files = targets.filter_map(|target| {
            let file = target.split('#').next().unwrap_or_default();
            let is_file = !file.is_empty() && !file.contains(':') && !file.contains('`');
            is_file.then(|| (at + 1, file.to_owned()))
        });
        files.collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::links;

    #[test]
    fn links_to_files_are_found() {
        let text =
            "a [b](c.md#d) and [e](f/g)\n[web](https://h) [part](#i)\n```\n[x](y)\n```\n[z](w)\n";
        let found: Vec<(usize, String)> = links(text).collect();
        let expected = [(1, "c.md"), (1, "f/g"), (6, "w")];
        assert_eq!(found, expected.map(|(line, file)| (line, file.to_owned())));
    }
}
