//! Circles of modules: files of a crate that use each other, directly or through others. Who reads
//! one of them has to read all. `tidy` fails where a crate has more such files than is written down
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::shell::{Failure, read, root};

/// Files in circles, by crate; a crate that is not here has none. These numbers only become
/// smaller.
const KNOWN: &[(&str, usize)] = &[];

/// A module by the names that lead to it; the crate's root is empty.
pub type Module = Vec<String>;

/// Which module uses which.
pub type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// A crate and what its modules use of each other.
pub struct Crate {
    /// The name of its folder.
    pub name: String,
    /// Where its sources are.
    pub src: PathBuf,
    /// Its modules, but tests.
    pub graph: Graph,
}

/// All crates, in order of their names.
///
/// # Errors
/// A file that cannot be read, or is no Rust.
pub fn crates() -> Result<Vec<Crate>, Failure> {
    let mut folders: Vec<_> = std::fs::read_dir(root().join("crates"))
        .map_err(|e| Failure(format!("cannot list `crates`: {e}")))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    let read = |folder: PathBuf| {
        let src = folder.join("src");
        Ok(Crate {
            name: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            graph: graph(&src)?,
            src,
        })
    };
    folders.into_iter().map(read).collect()
}

/// Says of each crate that has more files in circles than are known, and of each that has fewer.
pub fn findings(crates: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for Crate { name, graph, .. } in crates {
        let circles = circles(graph);
        let count: usize = circles.iter().map(Vec::len).sum();
        let known = KNOWN.iter().find(|(known, _)| known == name);
        let known = known.map_or(0, |(_, count)| *count);
        if count > known {
            let shown: Vec<String> = circles.iter().map(|circle| shown(circle)).collect();
            findings.push(format!(
                "crates/{name}: {count} files use each other in circles, {known} are known:\n  {}",
                shown.join("\n  ")
            ));
        } else if count < known {
            findings.push(format!(
                "crates/{name}: {count} files are in circles; write this number into xtask/src/circles.rs ({known})"
            ));
        }
    }
    findings
}

fn shown(circle: &[Module]) -> String {
    let name = |module: &Module| match module.is_empty() {
        true => "the root".to_owned(),
        false => module.join("::"),
    };
    circle.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// What the modules below a folder use of each other.
fn graph(src: &Path) -> Result<Graph, Failure> {
    let mut files = BTreeMap::new();
    for name in ["lib.rs", "main.rs"] {
        let file = src.join(name);
        if file.exists() {
            files.entry(Module::new()).or_insert(file);
        }
    }
    modules(src, &Module::new(), &mut files)?;
    let names: BTreeSet<Module> = files.keys().cloned().collect();
    let mut graph = BTreeMap::new();
    for (module, file) in &files {
        let parsed = syn::parse_file(&read(file)?)
            .map_err(|e| Failure(format!("`{}`: {e}", file.display())))?;
        let mut uses = Uses {
            module,
            names: &names,
            inside: 0,
            found: BTreeSet::new(),
        };
        uses.visit_file(&parsed);
        uses.found.remove(module);
        graph.insert(module.clone(), uses.found);
    }
    Ok(graph)
}

/// All files below a folder, but tests.
fn modules(
    folder: &Path,
    parent: &Module,
    into: &mut BTreeMap<Module, PathBuf>,
) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|e| Failure(format!("cannot list `{}`: {e}", folder.display())))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if matches!(&*stem, "tests" | "lib" | "main") {
            continue;
        }
        let mut module = parent.clone();
        if path.is_dir() {
            module.push(stem.into_owned());
            modules(&path, &module, into)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            if stem != "mod" {
                module.push(stem.into_owned());
            }
            into.insert(module, path);
        }
    }
    Ok(())
}

/// What a file names of other modules.
struct Uses<'a> {
    module: &'a Module,
    names: &'a BTreeSet<Module>,
    /// Modules in the file around what is visited.
    inside: usize,
    found: BTreeSet<Module>,
}

impl Uses<'_> {
    /// A path that begins in this file.
    fn path(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else {
            return;
        };
        let mut at = self.module.clone();
        let mut rest = segments;
        match first.as_str() {
            "crate" => {
                at.clear();
                rest = &segments[1..];
            }
            "self" => rest = &segments[1..],
            "super" => {
                // Those that only leave a module within the file do not leave the file.
                for _ in 0..self.inside {
                    if rest.first().is_some_and(|s| s == "super") {
                        rest = &rest[1..];
                    }
                }
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            // A child, or something from outside.
            child => {
                at.push(child.to_owned());
                if !self.names.contains(&at) {
                    return;
                }
                rest = &segments[1..];
            }
        }
        for segment in rest {
            at.push(segment.clone());
            if !self.names.contains(&at) {
                at.pop();
                break;
            }
        }
        if self.names.contains(&at) {
            self.found.insert(at);
        }
    }

    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Name(name) => self.leaf(before, &name.ident.to_string()),
            syn::UseTree::Rename(name) => self.leaf(before, &name.ident.to_string()),
            syn::UseTree::Glob(_) => self.path(before),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
        }
    }

    fn leaf(&mut self, before: &[String], name: &str) {
        let mut whole = before.to_vec();
        if name != "self" {
            whole.push(name.to_owned());
        }
        self.path(&whole);
    }
}

/// `#[cfg(test)]`
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_one = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        _ => false,
    };
    attributes.iter().any(is_one)
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.inside += 1;
        visit::visit_item_mod(self, item);
        self.inside -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 && path.leading_colon.is_none() {
            self.path(&segments);
        }
        visit::visit_path(self, path);
    }
}

/// Modules that reach each other, each circle in order.
fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut todo: Vec<&Module> = graph[from].iter().collect();
            while let Some(at) = todo.pop() {
                if seen.insert(at) {
                    todo.extend(graph.get(at).into_iter().flatten());
                }
            }
            (from, seen)
        })
        .collect();
    let mut circles = Vec::new();
    let mut taken = BTreeSet::new();
    for module in graph.keys() {
        if taken.contains(module) || !reach[module].contains(module) {
            continue;
        }
        let circle: Vec<Module> = reach[module]
            .iter()
            .filter(|other| reach.get(**other).is_some_and(|of| of.contains(module)))
            .map(|other| (*other).clone())
            .collect();
        taken.extend(circle.iter().cloned());
        circles.push(circle);
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> Module {
        name.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn uses(of: &str, text: &str) -> Vec<String> {
        let names = ["", "a", "b", "b::c", "b::d"].map(module).into();
        let mut uses = Uses {
            module: &module(of),
            names: &names,
            inside: 0,
            found: BTreeSet::new(),
        };
        uses.visit_file(&syn::parse_file(text).unwrap());
        uses.found.iter().map(|module| module.join("::")).collect()
    }

    #[test]
    fn what_a_file_names_is_found() {
        assert_eq!(
            uses("a", "use crate::b::{self, c::X, Y as Z};"),
            ["b", "b::c"]
        );
        assert_eq!(
            uses("a", "fn f() { crate::b::d::g(); std::mem::swap(x, y); }"),
            ["b::d"]
        );
        assert_eq!(
            uses("b::c", "use super::d; use super::Thing; use crate::Root;"),
            ["", "b", "b::d"]
        );
        assert_eq!(uses("b", "pub use c::X; use self::d::*;"), ["b::c", "b::d"]);
        assert_eq!(
            uses("b::c", "mod inner { use super::Own; use super::super::d; }"),
            ["b::c", "b::d"]
        );
        assert_eq!(
            uses("a", "#[cfg(test)] mod tests { use crate::b; }"),
            [""; 0]
        );
    }

    #[test]
    fn circles_are_those_who_reach_each_other() {
        let graph = |edges: &[(&str, &[&str])]| -> Graph {
            let edges = edges.iter();
            edges
                .map(|(from, to)| (module(from), to.iter().map(|to| module(to)).collect()))
                .collect()
        };
        let line = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]);
        assert_eq!(circles(&line), Vec::<Vec<Module>>::new());
        let both = graph(&[
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &["a"]),
            ("d", &["a", "e"]),
            ("e", &["d"]),
        ]);
        assert_eq!(
            circles(&both).iter().map(|c| shown(c)).collect::<Vec<_>>(),
            ["a, b, c", "d, e"]
        );
    }
}
