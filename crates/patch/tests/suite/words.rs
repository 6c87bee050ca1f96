//! Attachments as words: `mem.warp:address|op=ld.*`.
//!
//! Behind site and scope `:capture,…` says which values the program adds up, and `|op=…`,
//! `|at=…:…`, `|in=…`, `|kind=…`, `|space=…`, `|after` which sites; with `|lanes` it counts its
//! lanes, with `|sum` it keeps its counts in registers; with `|cells=…` it only comes to so many
//! cells of its block.

use std::collections::BTreeSet;

use crate::common::{ALL, adder, arriver, counter, keeper};
use warpbpf_abi::access::{Kind, Space};
use warpbpf_abi::attach::{SITES, Scope, Site, When};
use warpbpf_abi::context::{CONTEXTS, Capture, FieldSource};
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Select};

/// What a word such as `mem.warp:address|op=ld.*` asks for.
pub struct Wanted {
    pub site: Site,
    pub scope: Scope,
    pub select: Select,
    pub fragment: Fragment,
}

/// The capture that is called so, `value3`.
fn capture(name: &str) -> Capture {
    let fields = CONTEXTS.iter().flat_map(|(context, _)| context.fields);
    let captures = fields.filter_map(|field| match field.source {
        FieldSource::Captured(capture) => Some(capture),
        _ => None,
    });
    // A helper gives the last one.
    captures
        .chain([Capture::Node])
        .find(|capture| capture.register() == format!("%wbpf_v_{name}"))
        .unwrap_or_else(|| panic!("no such capture: `{name}`"))
}

/// Reads a word; programs in the middle count from counter `base` on.
pub fn wanted(word: &str, base: usize) -> Wanted {
    let mut parts = word.split('|');
    let head = parts.next().unwrap();
    let (place, captures) = head.split_once(':').unwrap_or((head, ""));
    let (site, scope) = place.split_once('.').unwrap();
    let site = SITES.iter().copied().find(|s| s.word() == site).unwrap();
    let scope = [Scope::Thread, Scope::Warp, Scope::Block]
        .into_iter()
        .find(|s| s.word() == scope)
        .unwrap();
    let mut select = Select::default();
    let (mut lanes, mut sum, mut cells) = (false, false, 0);
    for part in parts {
        match part.split_once('=').unwrap_or((part, "")) {
            ("op", glob) => select.op = Some(glob.to_owned()),
            ("at", at) => {
                let (file, line) = at.split_once(':').unwrap();
                select.at = Some((file.to_owned(), line.parse().unwrap()));
            }
            ("in", name) => select.functions = Some(BTreeSet::from([name.to_owned()])),
            ("kind", word) => select.kinds.push(Kind::from_word(word).unwrap()),
            ("space", word) => select.spaces.push(Space::from_word(word).unwrap()),
            ("lanes", "") => lanes = true,
            ("sum", "") => sum = true,
            ("cells", count) => cells = count.parse().unwrap(),
            ("after", "") => select.when = When::After,
            (other, _) => panic!("no such filter: `{other}`"),
        }
    }
    let captures: Vec<Capture> = captures
        .split(',')
        .filter(|name| !name.is_empty())
        .map(capture)
        .collect();
    let fragment = match ALL.iter().position(|pair| *pair == (site, scope)) {
        _ if cells > 0 => arriver(cells),
        _ if sum => keeper(base),
        Some(index) if captures.is_empty() => counter(index, false),
        _ if captures.is_empty() && lanes => counter(base, true),
        _ => adder(base, &captures),
    };
    Wanted {
        site,
        scope,
        select,
        fragment,
    }
}

/// The attachments that words ask for.
pub fn attached(wanted: &[Wanted]) -> Vec<Attachment<'_>> {
    wanted
        .iter()
        .map(|w| Attachment {
            site: w.site,
            scope: w.scope,
            select: &w.select,
            fragment: &w.fragment,
            gate: None,
            choice: None,
        })
        .collect()
}
