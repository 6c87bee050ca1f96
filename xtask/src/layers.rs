//! The order of a crate's folders. A line in its root says which folder may use which, and `tidy`
//! fails where the code does otherwise, so that a reader knows from which end to read.
//!
//! The line, which may be broken, is
//! "Layers, each uses only those to its right: `a → b → … → z`."

use std::collections::BTreeSet;

use crate::circles::{Crate, Graph};
use crate::shell::{Failure, read};

/// Crates with several folders that have no such line yet. This list only becomes shorter.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "softgpu",
];

const BEGIN: &str = "Layers, each uses only those to its right:";

/// Says where a module uses one that stands above it, and what is wrong with the lines.
///
/// # Errors
/// A file that cannot be read.
pub fn findings(crates: &[Crate]) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    for one in crates {
        let mut text = String::new();
        for file in ["lib.rs", "main.rs"] {
            let file = one.src.join(file);
            if file.exists() {
                text.push_str(&read(&file)?);
            }
        }
        let is_known = KNOWN.contains(&one.name.as_str());
        findings.extend(of_crate(&one.name, &text, &one.graph, is_known));
    }
    Ok(findings)
}

/// What is wrong in one crate, whose root has this text.
fn of_crate(name: &str, text: &str, graph: &Graph, is_known: bool) -> Vec<String> {
    let Some(line) = line(text) else {
        let count = folders(graph).len();
        return match (count > 1, is_known) {
            (true, false) => vec![format!(
                "crates/{name}: {count} folders and no order of them: write \"{BEGIN} `a → b`.\" into its root"
            )],
            (false, true) => vec![format!(
                "crates/{name}: needs no order of folders; remove it from the list in xtask/src/layers.rs"
            )],
            _ => Vec::new(),
        };
    };
    let mut findings = Vec::new();
    if is_known {
        findings.push(format!(
            "crates/{name}: has an order of folders; remove it from the list in xtask/src/layers.rs"
        ));
    }
    let layers = match line {
        Ok(layers) => layers,
        Err(wrong) => {
            findings.push(format!("crates/{name}: {wrong}"));
            return findings;
        }
    };
    let is_there = |layer: &str| graph.keys().any(|m| m.first().is_some_and(|m| m == layer));
    for (at, layer) in layers.iter().enumerate() {
        if !is_there(layer) {
            findings.push(format!(
                "crates/{name}: the order of folders names `{layer}`, which is not there"
            ));
        }
        if layers[..at].contains(layer) {
            findings.push(format!(
                "crates/{name}: the order of folders names `{layer}` twice"
            ));
        }
    }
    for folder in folders(graph) {
        if !layers.iter().any(|layer| layer == folder) {
            findings.push(format!(
                "crates/{name}: the order of folders does not name `{folder}`"
            ));
        }
    }
    findings.extend(upwards(name, graph, &layers));
    findings
}

/// Uses of what stands above. The root may use all, and is used by all: it has the common types.
fn upwards(name: &str, graph: &Graph, layers: &[String]) -> Vec<String> {
    let place = |module: &[String]| {
        let first = module.first()?;
        layers.iter().position(|layer| layer == first)
    };
    let mut findings = Vec::new();
    for (from, uses) in graph {
        for to in uses {
            if let (Some(own), Some(other)) = (place(from), place(to))
                && other < own
            {
                findings.push(format!(
                    "crates/{name}: `{}` uses `{}`, which stands above it",
                    from.join("::"),
                    to.join("::")
                ));
            }
        }
    }
    findings
}

/// Top-level modules that have files of their own below them.
fn folders(graph: &Graph) -> BTreeSet<&str> {
    let below = graph.keys().filter(|module| module.len() > 1);
    below
        .filter_map(|module| module.first().map(String::as_str))
        .collect()
}

/// The layers that a root's text names, from the top; `None` where it names none.
fn line(text: &str) -> Option<Result<Vec<String>, String>> {
    let documentation = text.lines().filter_map(|line| line.strip_prefix("//!"));
    let words: Vec<&str> = documentation.flat_map(str::split_whitespace).collect();
    let words = words.join(" ");
    let (_, rest) = words.split_once(BEGIN)?;
    let list = rest.trim_start().strip_prefix('`');
    let Some((list, _)) = list.and_then(|rest| rest.split_once('`')) else {
        return Some(Err(format!(
            "\"{BEGIN}\" is not followed by a list such as `a → b`"
        )));
    };
    let layers: Vec<String> = list.split('→').map(|l| l.trim().to_owned()).collect();
    let is_name = |layer: &String| {
        let mut letters = layer.chars();
        !layer.is_empty() && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match layers.iter().find(|layer| !is_name(layer)) {
        Some(layer) => Some(Err(format!(
            "the order of folders has `{layer}`, which is no name of a module"
        ))),
        None => Some(Ok(layers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "//! Why.\n//!\n//! Layers, each uses only those to its right: `a →\n//! b → c`.\n\nmod a;\n";

    fn module(name: &str) -> Vec<String> {
        let parts = name.split("::").filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let edges = edges.iter();
        edges
            .map(|(from, to)| (module(from), to.iter().map(|to| module(to)).collect()))
            .collect()
    }

    fn good() -> Graph {
        graph(&[
            ("", &["a", "c"]),
            ("a", &["", "b", "c"]),
            ("a::x", &["a", "b::y"]),
            ("b", &["c"]),
            ("b::y", &["b", ""]),
            ("c", &["single"]),
            ("single", &["a"]),
        ])
    }

    #[test]
    fn an_order_that_holds_is_no_finding() {
        assert_eq!(of_crate("x", LINE, &good(), false), Vec::<String>::new());
    }

    #[test]
    fn uses_of_what_stands_above_are_found() {
        let mut graph = good();
        graph.insert(module("c::z"), [module("a::x"), module("")].into());
        graph.insert(module("b::y"), [module("a")].into());
        assert_eq!(
            of_crate("x", LINE, &graph, false),
            [
                "crates/x: `b::y` uses `a`, which stands above it",
                "crates/x: `c::z` uses `a::x`, which stands above it",
            ]
        );
    }

    #[test]
    fn lines_name_each_folder_once_and_what_is_there() {
        let text = "//! Layers, each uses only those to its right: `a → d → a`.\n";
        assert_eq!(
            of_crate("x", text, &good(), false),
            [
                "crates/x: the order of folders names `d`, which is not there",
                "crates/x: the order of folders names `a` twice",
                "crates/x: the order of folders does not name `b`",
            ]
        );
        let text = "//! Layers, each uses only those to its right: a, then b.\n";
        assert_eq!(
            of_crate("x", text, &good(), false),
            [
                "crates/x: \"Layers, each uses only those to its right:\" is not followed by a list such as `a → b`"
            ]
        );
        let text = "//! Layers, each uses only those to its right: `a, b → c`.\n";
        assert_eq!(
            of_crate("x", text, &good(), false),
            ["crates/x: the order of folders has `a, b`, which is no name of a module"]
        );
    }

    #[test]
    fn the_list_of_known_crates_becomes_shorter() {
        assert_eq!(
            of_crate("x", "//! Why.\n", &good(), false),
            [
                "crates/x: 2 folders and no order of them: write \"Layers, each uses only those to its right: `a → b`.\" into its root"
            ]
        );
        assert_eq!(
            of_crate("x", "//! Why.\n", &good(), true),
            Vec::<String>::new()
        );
        assert_eq!(
            of_crate("x", LINE, &good(), true),
            ["crates/x: has an order of folders; remove it from the list in xtask/src/layers.rs"]
        );
        let small = graph(&[("", &[]), ("a::x", &[])]);
        assert_eq!(
            of_crate("x", "//! Why.\n", &small, true),
            ["crates/x: needs no order of folders; remove it from the list in xtask/src/layers.rs"]
        );
    }
}
