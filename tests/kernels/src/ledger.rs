//! What the soft GPU cannot run yet, by name and with what it says: `not-on-soft.txt`.

/// A kernel that the soft GPU cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Group.
    pub group: String,
    /// Kernel.
    pub kernel: String,
    /// Part of what is written to standard error when it is run.
    pub reason: String,
}

/// A line that is no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not-on-soft.txt, line {line}: `{text}` is not `GROUP KERNEL: REASON`")]
pub struct LedgerError {
    /// Line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// The committed list.
pub const COMMITTED: &str = include_str!("../not-on-soft.txt");

/// What each kernel printed on an H200: `results.txt`. Every engine must print the same.
pub const RESULTS: &str = include_str!("../results.txt");

/// Kernels of which the soft GPU prints something else, because they are made of instructions that
/// the PTX ISA lets be a little wrong: `div.full.f32`, by 2 units in the last place.
pub const APPROXIMATE: &[&str] = &["tritonRows"];

/// The line of a kernel in a list of results, or in what a program printed.
pub fn result<'t>(text: &'t str, kernel: &str) -> Option<&'t str> {
    text.lines().find(|line| {
        line.strip_prefix(kernel)
            .is_some_and(|rest| rest.starts_with(": "))
    })
}

/// Reads a list: `GROUP KERNEL: REASON` per line; lines that begin with `#` are remarks.
///
/// # Errors
/// The first line that is none of these.
pub fn parse(text: &str) -> Result<Vec<Entry>, LedgerError> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once(": ").and_then(|(who, reason)| {
            let (group, kernel) = who.split_once(' ')?;
            let plain = |word: &str| !word.is_empty() && !word.contains(' ');
            (plain(group) && plain(kernel) && !reason.is_empty()).then(|| Entry {
                group: group.to_owned(),
                kernel: kernel.to_owned(),
                reason: reason.to_owned(),
            })
        });
        entries.push(entry.ok_or_else(|| LedgerError {
            line: index + 1,
            text: line.to_owned(),
        })?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GROUPS;

    #[test]
    fn entries_and_remarks() {
        let entry = Entry {
            group: "a".into(),
            kernel: "b".into(),
            reason: "no `x.y`: z".into(),
        };
        assert_eq!(parse("# why\n\na b: no `x.y`: z\n"), Ok(vec![entry]));
    }

    #[test]
    fn results_are_found_by_the_whole_name() {
        let text = "ab: 2\na: 1\n";
        assert_eq!(result(text, "a"), Some("a: 1"));
        assert_eq!(result(text, "b"), None);
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        for (text, line) in [
            ("a b\n", "a b"),
            ("a: b", "a: b"),
            ("a b c: d", "a b c: d"),
            ("a b: ", "a b: "),
        ] {
            let error = parse(&format!("#\n{text}")).expect_err("it is no entry");
            assert_eq!(
                error.to_string(),
                format!("not-on-soft.txt, line 2: `{line}` is not `GROUP KERNEL: REASON`")
            );
        }
    }

    #[test]
    fn the_committed_list_names_groups_that_exist() {
        let entries = parse(COMMITTED).expect("it can be read");
        for entry in &entries {
            assert!(
                GROUPS.iter().any(|g| g.name == entry.group),
                "{} is no group",
                entry.group
            );
        }
    }
}
