//! Text tests: `filetests/patch/NAME.ptx` says in `// test:` comments what to do with it, `NAME.expected` holds what
//! comes out. `WARPBPF_BLESS=1` writes the latter.
//!
//! `// test: slice KERNEL SITE.SCOPE…` or `// test: clone KERNEL SITE.SCOPE…[; KERNEL SITE.SCOPE…]`

use std::fmt::Write as _;

use crate::common::{ALL, OPTIONS, attach, counters, ptxas, root, scratch};
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, PatchError, Variant, clone_in_module, slice};

/// The attachments that words such as `entry.warp` ask for.
fn attachments<'f>(words: &[&str], fragments: &'f [Fragment]) -> Vec<Attachment<'f>> {
    for word in words {
        assert!(
            ALL.iter()
                .any(|(site, scope)| *word == format!("{}.{}", site.word(), scope.word())),
            "no such site: `{word}`"
        );
    }
    attach(fragments, |site, scope| {
        words.contains(&format!("{}.{}", site.word(), scope.word()).as_str())
    })
}

fn run(text: &str, test: &str) -> Result<(String, Vec<Variant>), PatchError> {
    let module = warpbpf_ptx::index(text).unwrap();
    let fragments = counters();
    let (way, rest) = test.split_once(' ').unwrap();
    let requests: Vec<(&str, Vec<Attachment<'_>>)> = rest
        .split(';')
        .map(|request| {
            let words: Vec<&str> = request.split_whitespace().collect();
            (words[0], attachments(&words[1..], &fragments))
        })
        .collect();
    match way {
        "slice" => {
            slice(&module, requests[0].0, &requests[0].1, &OPTIONS).map(|(ptx, v)| (ptx, vec![v]))
        }
        "clone" => clone_in_module(&module, &requests, &OPTIONS),
        other => panic!("no such way: `{other}`"),
    }
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
    function_exit "function-exit"
    scopes "scopes"
    parameters "parameters"
    pointers "pointers"
    lines "lines"
    alias "alias"
    indirect_exit "indirect-exit"
}
