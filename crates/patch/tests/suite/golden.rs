//! Text tests: `filetests/patch/NAME.ptx` says in `// test:` comments what to do with it,
//! `NAME.expected` holds what comes out. `WARPBPF_BLESS=1` writes the latter.
//!
//! `// test: slice KERNEL SITE.SCOPE…` or `// test: clone KERNEL SITE.SCOPE…[; KERNEL SITE.SCOPE…]`
//!
//! or `// test: list KERNEL`, which says what could be probed. The words for sites are those of
//! `words.rs`; `call` puts programs out of line.

use std::fmt::Write as _;

use crate::common::{ALL, OPTIONS, ptxas, root, scratch};
use crate::words::{Wanted, attached, wanted};
use warpbpf_patch::{
    Attachment, Options, PatchError, Variant, bake, clone_in_module, list_sites, slice,
};

fn run(text: &str, test: &str) -> Result<(String, Vec<Variant>), PatchError> {
    let module = warpbpf_ptx::index(text).unwrap();
    let (method, rest) = test.split_once(' ').unwrap();
    let mut options = Options {
        first_site: 10,
        ..OPTIONS
    };
    let mut requests: Vec<(&str, Vec<Wanted>)> = Vec::new();
    for request in rest.split(';') {
        let words: Vec<&str> = request.split_whitespace().collect();
        options.out_of_line |= words.contains(&"call");
        let mut places: Vec<Wanted> = Vec::new();
        for word in words[1..].iter().filter(|word| **word != "call") {
            places.push(wanted(word, 6));
        }
        // What stood at the ends before was ordered by site and scope.
        places.sort_by_key(|w| {
            let pair = ALL.iter().position(|pair| *pair == (w.site, w.scope));
            pair.unwrap_or(ALL.len())
        });
        requests.push((words[0], places));
    }
    let requests: Vec<(&str, Vec<Attachment<'_>>)> = requests
        .iter()
        .map(|(kernel, places)| (*kernel, attached(places)))
        .collect();
    match method {
        "slice" => slice(&module, requests[0].0, &requests[0].1, &options).map(|(ptx, v)| {
            let baked = bake(&ptx, &vec![0x7f00; v.slot_count as usize]).unwrap();
            assert!(!baked.contains("wbpf_slots"), "{baked}");
            (ptx, vec![v])
        }),
        "clone" => clone_in_module(&module, &requests, &options),
        other => panic!("no such method: `{other}`"),
    }
}

/// What `list_sites` says of a kernel, one line per place.
fn listed(text: &str, kernel: &str, out: &mut String) {
    let module = warpbpf_ptx::index(text).unwrap();
    let list = list_sites(&module, kernel).unwrap();
    for fact in list.sites {
        let i = &fact.info;
        writeln!(
            out,
            "//// {} {} `{}` {:?} text line {}: {:?} {}",
            i.site.word(),
            i.function,
            i.op,
            i.at,
            i.text_line,
            fact.detail,
            fact.barred.unwrap_or("")
        )
        .unwrap();
    }
    writeln!(out, "//// {:?}", list.opcodes).unwrap();
}

/// The architecture to compile for: the module's own, or the oldest that this ptxas knows.
fn arch(text: &str) -> &str {
    let (_, rest) = text.split_once(".target sm_").unwrap();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
    if rest[..end].len() == 2 && &rest[..end] < "75" {
        "75"
    } else {
        &rest[..end]
    }
}

fn check(name: &str) {
    let folder = root().join("filetests/patch");
    let text = std::fs::read_to_string(folder.join(format!("{name}.ptx"))).unwrap();
    let mut out = String::new();
    for test in text
        .lines()
        .filter_map(|line| line.strip_prefix("// test: "))
    {
        writeln!(out, "//// {test}").unwrap();
        if let Some(kernel) = test.strip_prefix("list ") {
            listed(&text, kernel, &mut out);
            continue;
        }
        match run(&text, test) {
            Ok((ptx, variants)) => {
                for v in variants {
                    writeln!(
                        out,
                        "//// {}: slots {} {:?} hidden {:?} params {:?}",
                        v.entry,
                        v.slot_count,
                        v.globals,
                        v.hidden
                            .map(|h| (h.offset, h.block_counters, h.warp_counters)),
                        v.params
                            .iter()
                            .map(|p| (p.offset, p.size))
                            .collect::<Vec<_>>()
                    )
                    .unwrap();
                    if let Some(cells) = v.hidden.map(|h| h.block_cells).filter(|n| *n > 0) {
                        writeln!(out, "//// cells {cells}").unwrap();
                    }
                    for i in &v.sites {
                        writeln!(
                            out,
                            "//// site {} {} {} `{}` {:?} text line {}",
                            i.number,
                            i.site.word(),
                            i.function,
                            i.op,
                            i.at,
                            i.text_line
                        )
                        .unwrap();
                    }
                    for (i, reason) in &v.left_out {
                        writeln!(
                            out,
                            "//// left out: {} {} {} `{}` text line {}: {reason}",
                            i.number,
                            i.site.word(),
                            i.function,
                            i.op,
                            i.text_line
                        )
                        .unwrap();
                    }
                }
                out.push_str(&ptx);
                ptxas(&scratch("golden"), name, &ptx, arch(&text), &[]);
            }
            Err(error) => writeln!(out, "//// error: {error}").unwrap(),
        }
    }
    let file = folder.join(format!("{name}.expected"));
    if std::env::var_os("WARPBPF_BLESS").is_some() {
        std::fs::write(&file, out).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    if let Some((at, (got, want))) = out
        .lines()
        .zip(expected.lines())
        .enumerate()
        .find(|(_, (a, b))| a != b)
    {
        panic!(
            "{name}.expected line {}: got `{got}`, expected `{want}`; WARPBPF_BLESS=1 accepts",
            at + 1
        );
    }
    assert_eq!(
        out.len(),
        expected.len(),
        "{name}: one text is longer; WARPBPF_BLESS=1 accepts"
    );
}

macro_rules! goldens {
    ($($name:ident $file:literal)*) => {
        $(#[test] fn $name() { check($file); })*

        #[test]
        fn every_file_is_tested() {
            let mut files: Vec<String> = std::fs::read_dir(root().join("filetests/patch"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter_map(|name| name.strip_suffix(".ptx").map(str::to_owned))
                .collect();
            files.sort();
            let mut tested = vec![$($file),*];
            tested.sort();
            assert_eq!(files, tested);
        }
    };
}

goldens! {
    single_ret "single-ret"
    several_exits "several-exits"
    barrier_exits "barrier-exits"
    globals "globals"
    graph_node "graph-node"
    function_exit "function-exit"
    scopes "scopes"
    parameters "parameters"
    pointers "pointers"
    lines "lines"
    alias "alias"
    indirect_exit "indirect-exit"
    memory "memory"
    memory_after "memory-after"
    operands "operands"
    expressions "expressions"
    branches "branches"
    barriers "barriers"
    sums "sums"
    functions "functions"
    source_lines "source-lines"
    gaps "gaps"
    matrices "matrices"
    out_of_line "out-of-line"
    registers "registers"
    ways_out "ways-out"
    cells "cells"
}
