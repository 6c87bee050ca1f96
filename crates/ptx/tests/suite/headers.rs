//! All PTX in CUDA's own headers: thousands of forms of inline assembly that no one here picked.
//! None that touches memory or waits is missed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::tools::home;
use warpbpf_abi::access::Kind;
use warpbpf_ptx::access::access;
use warpbpf_ptx::ast::{Operand, StatementKind};
use warpbpf_ptx::sync::barrier;
use warpbpf_ptx::{index, parse_body};

fn headers(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the toolkit has headers") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            headers(&path, into);
        } else if path
            .extension()
            .is_some_and(|end| end == "h" || end == "hpp" || end == "cuh")
        {
            into.push(path);
        }
    }
}

/// The texts of `asm("…" "…" : …)`, of which macros between the strings are left out.
fn inline_assembly(source: &str, into: &mut BTreeSet<String>) {
    for (at, _) in source.match_indices("asm") {
        let rest = source[at + 3..].trim_start();
        let rest = rest
            .strip_prefix("volatile")
            .or_else(|| rest.strip_prefix("__volatile__"))
            .unwrap_or(rest);
        let Some(mut rest) = rest.trim_start().strip_prefix('(').map(str::trim_start) else {
            continue;
        };
        let mut text = String::new();
        while let Some(inner) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = inner.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let Some(end) = end else { break };
            text += &inner[..end];
            rest = inner[end + 1..].trim_start();
        }
        if rest.starts_with(':') || rest.starts_with(')') {
            into.insert(
                text.replace("\\n", "\n")
                    .replace("\\t", " ")
                    .replace("%%", "%"),
            );
        }
    }
}

#[test]
fn nothing_is_missed() {
    let include = home::cuda_home().join("include");
    let mut files = Vec::new();
    headers(&include.join("cccl/cuda"), &mut files);
    headers(&include.join("cccl/cub"), &mut files);
    headers(&include.join("cooperative_groups"), &mut files);
    let list = std::fs::read_dir(&include).expect("the toolkit has headers");
    files.extend(
        list.map(|entry| entry.expect("the folder can be listed").path())
            .filter(|path| path.is_file()),
    );
    let mut texts = BTreeSet::new();
    for file in files {
        let bytes = std::fs::read(&file).expect("a header can be read");
        inline_assembly(&String::from_utf8_lossy(&bytes), &mut texts);
    }

    let (mut instructions, mut accesses, mut barriers) = (0, 0, 0);
    let mut wrong = Vec::new();
    for text in &texts {
        let module = format!(".version 9.0\n.target sm_100a\n.entry k() {{ {text}\n;}}");
        let module = index(&module).unwrap_or_else(|error| panic!("{text}: {error}"));
        let body = parse_body(&module, &module.functions[0])
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        for statement in &body {
            let StatementKind::Instruction(i) = &statement.kind else {
                continue;
            };
            instructions += 1;
            let found = access(i);
            accesses += usize::from(found.is_some());
            barriers += usize::from(barrier(i).is_some());
            let has_address = i
                .operands
                .iter()
                .any(|operand| matches!(operand, Operand::Address { .. }));
            let is_known = match found {
                // Tensor memory and tensor maps have no kind of their own.
                Some(access) => {
                    access.kind != Kind::Other
                        || matches!(i.opcode, "tcgen05" | "tensormap" | "clusterlaunchcontrol")
                }
                None => barrier(i).is_some() || matches!(i.opcode, "mbarrier" | "fence"),
            };
            if has_address && !is_known {
                wrong.push(i.name.to_owned());
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // A toolkit of another version has others, but not many less.
    assert!(
        instructions > 3000 && accesses > 2000 && barriers > 60,
        "{instructions} instructions, {accesses} accesses, {barriers} barriers"
    );
}
