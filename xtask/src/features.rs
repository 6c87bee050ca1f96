//! Each package is compiled with the same features, whichever crates are selected: otherwise it is
//! compiled once more, and all above it, for `cargo xtask`, for `cargo test -p NAME` and for the
//! gate.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::jobs::{StepResult, each};
use crate::shell::{Failure, cargo, failure, output};

/// For each package, in its version, the sets of features, and who asks for each.
type Asked = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Asks cargo for what each crate of the workspace would be built with.
pub fn check() -> StepResult {
    let members = members()?;
    let asked = std::sync::Mutex::new(Asked::new());
    each(&members, |member| {
        let mut tree = cargo();
        tree.args([
            "tree",
            "--quiet",
            "--prefix",
            "none",
            "--edges",
            "normal,build",
        ]);
        tree.args(["--format", "{p}|{f}", "--package", member]);
        let text = text_of(&mut tree)?;
        if let Ok(mut asked) = asked.lock() {
            add(&mut asked, member, &text);
        }
        Ok(())
    })?;
    let asked = asked.into_inner().unwrap_or_default();
    let findings = findings(&asked);
    match findings.is_empty() {
        true => Ok(format!(
            "{} packages, each with one set of features",
            asked.len()
        )),
        false => failure(format!(
            "{}\nname the features in crates/workspace-hack/Cargo.toml",
            findings.join("\n")
        )),
    }
}

fn members() -> Result<Vec<String>, Failure> {
    let mut tree = cargo();
    tree.args([
        "tree",
        "--quiet",
        "--workspace",
        "--depth",
        "0",
        "--prefix",
        "none",
    ]);
    let text = text_of(tree.args(["--format", "{p}"]))?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    Ok(names.into_iter().map(str::to_owned).collect())
}

fn text_of(command: &mut Command) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&output(command)?).into_owned())
}

fn add(asked: &mut Asked, member: &str, tree: &str) {
    for line in tree.lines() {
        let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') else {
            continue;
        };
        // What stands behind the version says where it comes from.
        let package: Vec<&str> = package.split(' ').take(2).collect();
        let sets = asked.entry(package.join(" ")).or_default();
        let members = sets.entry(features.to_owned()).or_default();
        members.insert(member.to_owned());
    }
}

fn findings(asked: &Asked) -> Vec<String> {
    let differing = asked.iter().filter(|(_, sets)| sets.len() > 1);
    let told = differing.map(|(package, sets)| {
        let sets: Vec<String> = sets
            .iter()
            .filter_map(|(features, members)| {
                let first = members.first()?;
                Some(format!(
                    "`{features}` for {first} and {} more",
                    members.len() - 1
                ))
            })
            .collect();
        format!("{package} is compiled with {}", sets.join(", with "))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_two_sets_of_features_is_named_with_those_who_ask() {
        let mut asked = Asked::new();
        add(
            &mut asked,
            "one",
            "one v1.0.0 (/here)|\nlibc v0.2.1|std\nsyn v3.0.0 (proc-macro)|full",
        );
        add(
            &mut asked,
            "two",
            "two v1.0.0|\nlibc v0.2.1|default,std (*)\nsyn v3.0.0|full",
        );
        assert_eq!(
            findings(&asked),
            [
                "libc v0.2.1 is compiled with `default,std` for two and 0 more, with `std` for one and 0 more"
            ]
        );
    }
}
