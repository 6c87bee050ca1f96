//! The corpus of unsafe GPU programs: text tests in `filetests/verify`, one for each rule and more
//! for some.
//!
//! `NAME.s` is a program in assembler with what is said about it on the line of the instruction
//! that it is about: `; error[rule]: …`, `; warning[name]: …`. Lines at its top make the
//! environment: `; map KIND NAME field=number …`, `; scope`, `; budget`, `; effort`, `; memory`, `;
//! strict-uniform`, and `; together N` and `; alike N`, with which helper `N` needs a whole group.
//! `NAME.bpf.c` is a C program, compiled by clang, with the whole message in `NAME.expected`.
//! `WARPBPF_BLESS=1` writes what is said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::helpers::{HELPERS, Helper, Warp};
use warpbpf_abi::maps::PLACE;
use warpbpf_ebpf::{Code, Pc, assemble};
use warpbpf_object::{MapDef, MapKind};
use warpbpf_verify::{Platform, note_locks, verify};

/// Rules that no program of the corpus breaks, and why.
const NOT_HERE: &[(&str, &str)] = &[
    (
        "text-too-long",
        "a string of that length is no reading; tested in `suite/sizes.rs`",
    ),
    (
        "calls-nowhere",
        "the assembler and the decoder refuse such a call first",
    ),
    (
        "malformed",
        "the decoder refuses such instructions first; tested in `suite/rules.rs`",
    ),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> PathBuf {
    workspace().join("filetests/verify")
}

fn blessing() -> bool {
    std::env::var_os("WARPBPF_BLESS").is_some()
}

fn names(suffix: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("filetests/verify")
        .filter_map(|entry| entry.expect("a file").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(suffix).map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The file says what was found, or it is written.
fn compare(name: &str, found: &str) {
    if blessing() {
        std::fs::write(folder().join(name), found).expect("writable filetests");
    }
    let text = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
    assert_eq!(
        text, found,
        "filetests/verify/{name}: WARPBPF_BLESS=1 writes it"
    );
}

/// One directive at the top of a program.
fn directives<'t>(text: &'t str, word: &str) -> impl Iterator<Item = &'t str> {
    let start = format!("; {word} ");
    text.lines()
        .filter_map(move |line| line.strip_prefix(start.as_str()))
}

fn number(text: &str) -> u64 {
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn map_of(line: &str) -> MapDef {
    let mut words = line.split_whitespace();
    let kind = words.next().expect("a kind of map");
    let name = words.next().expect("a name").to_owned();
    let fields: BTreeMap<&str, &str> = words
        .map(|word| {
            word.split_once('=')
                .unwrap_or_else(|| panic!("`{word}` is not `field=value`"))
        })
        .collect();
    let field =
        |name: &str, default: u32| fields.get(name).map_or(default, |text| number(text) as u32);
    let image: Option<Vec<u8>> = fields.get("bytes").map(|hex| {
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex digits"))
            .collect()
    });
    let (map_type, key_size) = match kind {
        "array" | "rodata" => (2, 4),
        "hash" => (1, 4),
        "percpu_array" => (6, 4),
        "per_thread" => (1502, 4),
        "ring" => (27, 0),
        other => (number(other) as u32, 4),
    };
    MapDef {
        name: name.clone(),
        map_type,
        key_size: field("key", key_size),
        value_size: field("value", image.as_ref().map_or(0, |i| i.len() as u32)),
        max_entries: field("entries", 1),
        flags: field("flags", 0),
        kind: match image {
            Some(image) => MapKind::Data {
                section: name,
                image,
                read_only: true,
            },
            None => MapKind::User,
        },
        extra: BTreeMap::from([(PLACE.to_owned(), field("place", 0).into())]),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

fn platform_of(text: &str) -> Platform {
    let mut platform = Platform::new(Site::Entry);
    if let Some(budget) = directives(text, "budget").next() {
        platform.budget = number(budget);
    }
    if let Some(memory) = directives(text, "memory").next() {
        platform = platform.with_memory(u32::try_from(number(memory)).expect("a size"));
    }
    if let Some(effort) = directives(text, "effort").next() {
        platform.effort = number(effort);
    }
    platform.strict_uniform = text.lines().any(|line| line == "; strict-uniform");
    platform.scope = match directives(text, "scope").next() {
        None | Some("thread") => Scope::Thread,
        Some("warp") => Scope::Warp,
        Some("block") => Scope::Block,
        Some(other) => panic!("`{other}` is no scope"),
    };
    let demands: Vec<(u64, Warp)> = directives(text, "together")
        .map(|id| (number(id), Warp::Together))
        .chain(directives(text, "alike").map(|id| (number(id), Warp::TogetherAlike)))
        .collect();
    if !demands.is_empty() {
        let demanded = |h: &Helper| demands.iter().find(|(id, _)| *id == u64::from(h.id));
        let table: Vec<Helper> = HELPERS
            .iter()
            .map(|h| Helper {
                warp: demanded(h).map_or(h.warp, |(_, warp)| *warp),
                ..*h
            })
            .collect();
        // A table of the platform lives as long as the process.
        platform.helpers = Box::leak(table.into_boxed_slice());
    }
    platform
}

/// What is said about a program, by instruction.
fn said(code: &Code, maps: &[MapDef], platform: &Platform) -> Vec<(Pc, String, String)> {
    match verify(code, maps, platform) {
        Ok(verified) => verified
            .warnings()
            .iter()
            .map(|w| {
                let name = w.name.to_owned();
                (w.pc, name, format!("warning[{}]: {}", w.name, w.message))
            })
            .collect(),
        Err(r) => {
            let name = r.rule.name().to_owned();
            vec![(r.pc, name.clone(), format!("error[{name}]: {}", r.rule))]
        }
    }
}

/// The lines of a text without what was said about them, and which of them are instructions.
fn plain(text: &str) -> Vec<(String, bool)> {
    text.lines()
        .map(|line| {
            let cut = line.find("; error[").or(line.find("; warning["));
            let line = cut.map_or(line, |at| &line[..at]).trim_end().to_owned();
            let words = line.trim();
            let is_insn = !words.is_empty() && !words.starts_with(';') && !words.ends_with(':');
            (line, is_insn)
        })
        .collect()
}

#[test]
fn programs() {
    let mut named = BTreeSet::new();
    for name in names(".s") {
        let text = read(&format!("{name}.s"));
        let lines = plain(&text);
        let program: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
        let code = assemble(&program).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let maps: Vec<MapDef> = directives(&text, "map").map(map_of).collect();
        let said = said(&code, &maps, &platform_of(&text));
        let mut insn = 0;
        let mut out = String::new();
        for (line, is_insn) in lines {
            out += &line;
            if is_insn {
                for (_, _, message) in said.iter().filter(|(pc, ..)| pc.0 == insn) {
                    out += &format!("  ; {message}");
                }
                insn += 1;
            }
            out += "\n";
        }
        assert_eq!(
            insn as usize,
            code.insns().len(),
            "{name}: one instruction a line"
        );
        compare(&format!("{name}.s"), &out);
        // A file is called after what it shows.
        let shows = said.first().map_or("ok", |(_, rule, _)| rule.as_str());
        let called = name.strip_prefix("warn-").unwrap_or(&name);
        assert!(called.starts_with(shows), "{name} shows `{shows}`");
        assert_eq!(
            name.starts_with("warn-"),
            matches!(said.first(), Some((_, _, message)) if message.starts_with("warning")),
            "{name}"
        );
        named.extend(said.into_iter().map(|(_, rule, _)| rule));
    }
    for name in names(".expected") {
        let text = read(&format!("{name}.expected"));
        let rules = text
            .lines()
            .filter_map(|line| line.strip_prefix("error[")?.split(']').next());
        named.extend(rules.map(str::to_owned));
    }
    // Every rule has its program: the names are taken from the source, so that a new rule cannot be
    // forgotten.
    let source = include_str!("../../src/rule.rs");
    let rules: BTreeSet<&str> = source
        .split("pub fn name(")
        .nth(1)
        .and_then(|rest| rest.split("pub fn help(").next())
        .expect("Rule::name and Rule::help")
        .lines()
        .filter_map(|line| line.split("=> \"").nth(1)?.split('"').next())
        .collect();
    assert!(rules.len() >= 50, "{rules:?}");
    let missing: Vec<&str> = rules
        .into_iter()
        .filter(|rule| !named.contains(*rule) && !NOT_HERE.iter().any(|(name, _)| name == rule))
        .collect();
    assert_eq!(
        missing,
        [] as [&str; 0],
        "rules without a program in filetests/verify"
    );
    for (rule, reason) in NOT_HERE {
        assert!(
            !named.contains(*rule),
            "`{rule}` is there: not \"{reason}\""
        );
    }
}

#[path = "../../../../tests/clang.rs"]
mod clang;

pub use clang::clang;

fn compile(clang: &str, name: &str) -> Vec<u8> {
    let object =
        std::env::temp_dir().join(format!("warpbpf-verify-{}-{name}.o", std::process::id()));
    let out = Command::new(clang)
        .current_dir(folder())
        .args([
            "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ])
        // Messages name the file as it is given here, wherever the repository is.
        .arg("-fdebug-compilation-dir=.")
        .arg("-I")
        .arg(workspace().join("include"))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg("-c")
        .arg(format!("{name}.bpf.c"))
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang starts");
    assert!(
        out.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let bytes = std::fs::read(&object).expect("what clang wrote");
    std::fs::remove_file(&object).expect("our own file");
    bytes
}

#[test]
fn c_programs() {
    let clang = clang();
    let names = names(".bpf.c");
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let object =
            warpbpf_object::load(&compile(&clang, &name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut maps = object.maps.clone();
        if let Some(types) = &object.btf {
            note_locks(&mut maps, types);
        }
        let mut text = String::new();
        for program in &object.programs {
            let platform = Platform::new(Site::Entry);
            match verify(program, &maps, &platform) {
                Ok(verified) => {
                    for warning in verified.warnings() {
                        text += &warning.render_with(false);
                        text += "\n";
                    }
                }
                Err(rejection) => {
                    text += &rejection.render();
                    text += "\n";
                }
            }
        }
        compare(&format!("{name}.expected"), &text);
        assert!(!text.is_empty(), "{name}: nothing is said about it");
    }
}
