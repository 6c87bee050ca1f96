//! The public interface, written down in `api.txt`: what is there, and what may become of it.
//!
//! `cargo-semver-checks` and `cargo public-api` compare with a release in a registry or need a
//! nightly compiler; this works in any clone. It reads the sources of this crate, and of those
//! whose types it passes on, and prints every public item without its body. A line that is no
//! longer there breaks somebody, so `WARPBPF_BLESS=1` writes it only under a version that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Fields, Ident, ImplItem, Item, TraitItem, UseTree, Visibility};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of a crate: module name, items.
fn sources(krate: &str) -> Vec<(String, Vec<Item>)> {
    let mut files = Vec::new();
    let mut folders = vec![crates().join(krate).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        (module, file.items)
    };
    files.iter().map(read).collect()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Names that a `use` brings, with the first part of the path before them.
fn used(tree: &UseTree, path: &mut Vec<String>, names: &mut Vec<(String, String)>) {
    match tree {
        UseTree::Path(p) => {
            path.push(p.ident.to_string());
            used(&p.tree, path, names);
            path.pop();
        }
        UseTree::Name(name) => names.push((path[0].clone(), name.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| used(tree, path, names)),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("a `pub use` that this does not read"),
    }
}

/// One line, with about the spaces that a person would write.
fn line(tokens: impl ToTokens) -> String {
    const SPACES: &[(&str, &str)] = &[
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" ,", ","),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        (" ;", ";"),
        (" :", ":"),
        ("[ ", "["),
        (" ]", "]"),
        (",>", ">"),
        (",)", ")"),
        ("->", " -> "),
        ("-> ", "->"),
        ("->", "-> "),
        ("  ", " "),
    ];
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in SPACES {
        text = text.replace(from, to);
    }
    text
}

/// Crates whose types may come up in ours.
const BENEATH: [&str; 6] = ["abi", "ebpf", "maps", "object", "tool", "wire"];

#[derive(Default)]
struct Listing {
    lines: BTreeSet<String>,
}

impl Listing {
    fn add(&mut self, text: String) {
        self.lines.insert(text);
    }

    /// Traits that are derived.
    fn derived(&mut self, name: &Ident, attributes: &[Attribute]) {
        for attribute in attributes.iter().filter(|a| a.path().is_ident("derive")) {
            let list = attribute.meta.require_list().unwrap();
            for path in list.tokens.to_string().split(',') {
                let path = path.replace(' ', "");
                if !path.is_empty() {
                    self.add(format!("impl {path} for {name}"));
                }
            }
        }
    }

    fn item(&mut self, item: &Item) {
        if attributes_of(item).is_some_and(is_hidden) {
            return;
        }
        match item.clone() {
            Item::Struct(mut item) => {
                self.derived(&item.ident, &item.attrs);
                let may_grow = is_open(&item.attrs);
                item.attrs.clear();
                let hidden = hide(&mut item.fields);
                if !hidden && !may_grow {
                    return self.add(line(&item));
                }
                // Nobody makes one or names all of it, so a further field breaks nothing: each has
                // a line of its own.
                let name = item.ident.clone();
                if let Fields::Named(fields) = &mut item.fields {
                    for field in std::mem::take(&mut fields.named) {
                        self.add(format!("struct {name}: {}", line(&field)));
                    }
                }
                self.add(format!("{}{MORE}", line(&item)));
            }
            Item::Enum(mut item) => {
                self.derived(&item.ident, &item.attrs);
                let may_grow = is_open(&item.attrs);
                item.attrs.clear();
                for variant in &mut item.variants {
                    variant.attrs.clear();
                    variant.fields.iter_mut().for_each(|f| f.attrs.clear());
                }
                if !may_grow {
                    return self.add(line(&item));
                }
                let name = item.ident.clone();
                for variant in std::mem::take(&mut item.variants) {
                    self.add(format!("enum {name}: {}", line(&variant)));
                }
                self.add(format!("{}{MORE}", line(&item)));
            }
            Item::Fn(item) => self.add(line(&item.sig)),
            Item::Const(item) => self.add(format!("const {}: {}", item.ident, line(&item.ty))),
            Item::Type(mut item) => {
                item.attrs.clear();
                self.add(line(&item));
            }
            Item::Trait(item) => {
                for inner in &item.items {
                    if let TraitItem::Fn(function) = inner {
                        self.add(format!("trait {}: {}", item.ident, line(&function.sig)));
                    }
                }
                let above = line(&item.supertraits);
                self.add(format!("trait {}: {above}", item.ident));
            }
            _ => {}
        }
    }

    /// Methods and traits of types that are listed.
    fn implementation(&mut self, item: &Item, names: &BTreeSet<String>) {
        let Item::Impl(item) = item else { return };
        let ty = line(&item.self_ty);
        let base = ty.split('<').next().unwrap_or_default();
        if !names.contains(base) {
            return;
        }
        if let Some((path, _)) = &item.trait_ {
            let (generics, clause) = (line(&item.generics), line(&item.generics.where_clause));
            let text = format!("impl{generics} {} for {ty} {clause}", line(path));
            self.add(text.trim_end().to_owned());
            return;
        }
        for inner in &item.items {
            match inner {
                ImplItem::Fn(function)
                    if is_public(&function.vis) && !is_hidden(&function.attrs) =>
                {
                    self.add(format!("{ty}: {}", line(&function.sig)));
                }
                ImplItem::Const(constant) if is_public(&constant.vis) => {
                    let of = line(&constant.ty);
                    self.add(format!("{ty}: const {}: {of}", constant.ident));
                }
                _ => {}
            }
        }
    }
}

/// Said of what may get more fields or variants: nobody outside makes one, or matches all of it.
const MORE: &str = " and more";

fn is_open(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.path().is_ident("non_exhaustive"))
}

/// `#[doc(hidden)]`: for our own crates, and no promise.
fn is_hidden(attributes: &[Attribute]) -> bool {
    let hidden = |a: &Attribute| a.parse_args::<Ident>().is_ok_and(|word| word == "hidden");
    attributes
        .iter()
        .any(|a| a.path().is_ident("doc") && hidden(a))
}

fn attributes_of(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Struct(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Const(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        _ => return None,
    })
}

/// Leaves public fields only, and says whether there were others.
fn hide(fields: &mut Fields) -> bool {
    let Fields::Named(named) = fields else {
        return fields.iter().any(|field| !is_public(&field.vis));
    };
    let all = named.named.len();
    let public = named.named.clone().into_iter();
    named.named = public.filter(|f| is_public(&f.vis)).collect();
    named.named.iter_mut().for_each(|field| field.attrs.clear());
    named.named.len() != all
}

fn name_of(item: &Item) -> Option<(&Visibility, String)> {
    Some(match item {
        Item::Struct(i) => (&i.vis, i.ident.to_string()),
        Item::Enum(i) => (&i.vis, i.ident.to_string()),
        Item::Fn(i) => (&i.vis, i.sig.ident.to_string()),
        Item::Const(i) => (&i.vis, i.ident.to_string()),
        Item::Type(i) => (&i.vis, i.ident.to_string()),
        Item::Trait(i) => (&i.vis, i.ident.to_string()),
        _ => return None,
    })
}

/// Public names by the crate that they are of.
fn wanted(own: &[(String, Vec<Item>)]) -> BTreeMap<&'static str, BTreeSet<String>> {
    let (_, root) = own.iter().find(|(module, _)| module == "lib").unwrap();
    let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut modules = BTreeSet::new();
    for item in root {
        match item {
            Item::Mod(module) if is_public(&module.vis) => {
                modules.insert(module.ident.to_string());
            }
            Item::Use(item) if is_public(&item.vis) => {
                let mut names = Vec::new();
                used(&item.tree, &mut Vec::new(), &mut names);
                for (from, name) in names {
                    let krate = match from.as_str() {
                        "warpbpf_maps" => "maps",
                        "warpbpf_wire" => "wire",
                        "warpbpf_abi" => "abi",
                        "warpbpf_ebpf" => "ebpf",
                        "warpbpf_object" => "object",
                        "warpbpf_tool" => "tool",
                        _ => "warpbpf",
                    };
                    wanted.entry(krate).or_default().insert(name);
                }
            }
            _ => {}
        }
    }
    for (_, items) in own.iter().filter(|(module, _)| modules.contains(module)) {
        let names = items.iter().filter_map(name_of);
        let public = names.filter(|(visibility, _)| is_public(visibility));
        let of_us = wanted.entry("warpbpf").or_default();
        of_us.extend(public.map(|(_, name)| name));
    }
    wanted
}

/// Every public item: `crate | item`, in order.
fn listing() -> Vec<String> {
    let mut all = Vec::new();
    for (krate, names) in wanted(&sources("warpbpf")) {
        let mut listing = Listing::default();
        let files = sources(krate);
        let mut found = BTreeSet::new();
        for item in files.iter().flat_map(|(_, items)| items) {
            if let Some((visibility, name)) = name_of(item)
                && is_public(visibility)
                && names.contains(&name)
            {
                listing.item(item);
                found.insert(name);
            }
            listing.implementation(item, &names);
        }
        assert_eq!(found, names, "what `lib.rs` names is in `{krate}`");
        all.extend(listing.lines.iter().map(|text| format!("{krate} | {text}")));
    }
    all
}

/// Words of a text, each with what stands before it, without spaces at its end.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = |c: char| !c.is_alphanumeric() && c != '_';
    let words = text.split(ends).filter(|word| !word.is_empty());
    words.map(move |word| {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        (text[..at].trim_end(), word)
    })
}

/// Public types of crates beneath that the interface mentions, and that `lib.rs` does not name:
/// nobody could write them down.
fn leaked() -> Vec<String> {
    let own = sources("warpbpf");
    let named: BTreeSet<String> = wanted(&own).into_values().flatten().collect();
    let mut types = BTreeSet::new();
    for krate in BENEATH {
        for item in sources(krate).iter().flat_map(|(_, items)| items) {
            if let (Item::Struct(_) | Item::Enum(_) | Item::Type(_), Some((visibility, name))) =
                (item, name_of(item))
                && is_public(visibility)
                && !named.contains(&name)
            {
                types.insert(name);
            }
        }
    }
    let mentions = |line: &String| {
        let (_, text) = line.split_once(" | ")?;
        // A conversion from what nobody can name does nobody any harm.
        if text.starts_with("impl") {
            return None;
        }
        let is_enum = text.starts_with("enum") || text.starts_with("pub enum");
        let mut found = words(text).filter(|(before, word)| {
            // An iterator's item is its own, and so are the names of variants.
            let is_type = !is_enum || before.ends_with([':', '<', '(', '&']);
            is_type && *word != "Item" && types.contains(*word)
        });
        Some(format!("{}: {line}", found.next()?.1))
    };
    listing().iter().filter_map(mentions).collect()
}

/// Versions of which one may break what the other promises have different ones of these.
fn epoch(version: &str) -> (u64, u64) {
    let mut numbers = version.split('.').map(|n| n.parse::<u64>().unwrap());
    match (numbers.next().unwrap(), numbers.next().unwrap()) {
        (0, minor) => (0, minor),
        (major, _) => (major, 0),
    }
}

/// What is wrong with a change of the listing, if something is.
fn verdict(old: &str, version: &str, new: &[String]) -> Result<(), String> {
    let (first, lines) = old.split_once('\n').unwrap_or_default();
    let was = first
        .strip_prefix("warpbpf ")
        .ok_or("the listing has no version")?;
    let is_gone = |line: &&str| !new.iter().any(|there| there == line);
    let gone: Vec<&str> = lines.lines().filter(is_gone).collect();
    if gone.is_empty() || epoch(was) != epoch(version) {
        return Ok(());
    }
    Err(format!(
        "these public items of {was} are gone or changed, and {version} promises that they are there; raise the version, or keep them:\n{}",
        gone.join("\n")
    ))
}

#[test]
fn the_interface_is_as_written_down() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("api.txt");
    let version = env!("CARGO_PKG_VERSION");
    let new = listing();
    let text = format!("warpbpf {version}\n{}\n", new.join("\n"));
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    if old == text {
        return;
    }
    if !old.is_empty() {
        verdict(&old, version, &new).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let is_new = |line: &&String| !old.lines().any(|there| there == line.as_str());
    let more: Vec<&str> = new.iter().filter(is_new).map(String::as_str).collect();
    assert!(
        std::env::var_os("WARPBPF_BLESS").is_some(),
        "the public interface has grown; WARPBPF_BLESS=1 writes it to `{}`:\n{}",
        path.display(),
        more.join("\n")
    );
    std::fs::write(&path, text).unwrap();
}

#[test]
fn every_type_that_it_mentions_has_a_name_in_it() {
    assert_eq!(leaked(), Vec::<String>::new());
}

#[test]
fn what_may_grow_is_told_apart_from_what_may_not() {
    let lines = |text: &str| {
        let mut listing = Listing::default();
        listing.item(&syn::parse_str(text).unwrap());
        listing.lines.into_iter().collect::<Vec<_>>()
    };
    let closed = lines("pub enum E { A, B(u8) }");
    assert_eq!(closed, ["pub enum E { A, B(u8) }"]);
    let open = lines("#[non_exhaustive] pub enum E { A, B(u8) }");
    assert_eq!(
        open,
        ["enum E: A", "enum E: B(u8)", "pub enum E { } and more"]
    );
    let closed = lines("pub struct S { pub a: u8 }");
    assert_eq!(closed, ["pub struct S { pub a: u8 }"]);
    let open = ["pub struct S { } and more", "struct S: pub a: u8"];
    assert_eq!(lines("pub struct S { pub a: u8, b: u8 }"), open);
    assert_eq!(lines("#[non_exhaustive] pub struct S { pub a: u8 }"), open);
}

#[test]
fn what_breaks_needs_a_version() {
    let new = ["a | fn one()".to_owned(), "a | fn three()".to_owned()];
    let same = "warpbpf 0.3.1\na | fn one()\n";
    assert_eq!(verdict(same, "0.3.2", &new), Ok(()));
    let less = "warpbpf 0.3.1\na | fn one()\na | fn two()\n";
    assert_eq!(
        verdict(less, "0.3.9", &new).unwrap_err(),
        "these public items of 0.3.1 are gone or changed, and 0.3.9 promises that they are there; raise the version, or keep them:\na | fn two()"
    );
    assert_eq!(verdict(less, "0.4.0", &new), Ok(()));
    assert!(verdict("warpbpf 1.3.1\na | fn two()\n", "1.4.0", &new).is_err());
    assert!(verdict("", "1.4.0", &new).is_err());
}
