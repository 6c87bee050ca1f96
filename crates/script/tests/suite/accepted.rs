//! `filetests/script/NAME.wt` is a script, `NAME.expected` what it becomes: its maps, and the
//! instructions of its programs. Each program is proved safe.

use std::fmt::Write as _;

use warpbpf_object::load;
use warpbpf_script::Compiled;
use warpbpf_session::Options;

use crate::{check, compile, folder};

/// As `warpbpf trace` has it.
const BUDGET: u64 = 1 << 16;

fn shown(compiled: &Compiled) -> String {
    let mut out = String::new();
    for (map, laid) in compiled.script.maps.iter().zip(&compiled.layout.maps) {
        let key: Vec<&str> = map.key.iter().map(|ty| ty.name()).collect();
        let key = match key.is_empty() {
            true => String::new(),
            false => format!(", by {}", key.join(", ")),
        };
        let _ = writeln!(
            out,
            "{}: {}{key}; {} with keys of {} bytes and values of {}{}",
            map.name,
            map.kind.name(),
            laid.map_type.name(),
            laid.key_size,
            laid.value_size,
            if map.only_added { "" } else { ", assigned" }
        );
    }
    if !compiled.object.is_empty() {
        let object = load(&compiled.object).unwrap();
        for program in &object.programs {
            let _ = writeln!(out, "{}: {}", program.name, program.section);
        }
    }
    out + "\n" + &compiled.listing
}

fn scripts() -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(folder()).unwrap();
    let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|end| end == "wt"));
    all.sort();
    assert!(all.len() > 5);
    all
}

#[test]
fn scripts_become_what_is_expected_and_are_safe() {
    for path in scripts() {
        let source = std::fs::read_to_string(&path).unwrap();
        let compiled = compile(&source).unwrap_or_else(|errors| {
            let shown = errors.iter().map(|e| e.render("script", &source, false));
            panic!("{}:\n{}", path.display(), shown.collect::<String>())
        });
        check(&path.with_extension("expected"), &shown(&compiled));
        if compiled.object.is_empty() {
            continue;
        }
        let mut object = load(&compiled.object).unwrap();
        // Programs on the CPU are checked as they run.
        warpbpf_session::cpu::take(&mut object).unwrap();
        if object.programs.is_empty() {
            continue;
        }
        let options = Options {
            budget: Some(BUDGET),
            ..Options::default()
        };
        if let Err(error) = warpbpf_session::plan::prove(object, &options) {
            panic!("{}: {error}", path.display());
        }
    }
}

#[test]
fn instructions_have_the_lines_of_the_script() {
    let source = "gpu:entry:* {\n  @ = count();\n    @b[block] = count()\n}";
    let object = load(&compile(source).unwrap().object).unwrap();
    let lines: Vec<(u32, u32, &str)> = object.programs[0]
        .lines
        .iter()
        .map(|line| (line.line, line.column, &*line.text))
        .collect();
    assert_eq!(
        lines,
        [
            (1, 1, "gpu:entry:* {"),
            (2, 3, "  @ = count();"),
            (3, 5, "    @b[block] = count()"),
        ]
    );
    assert_eq!(&*object.programs[0].lines[0].file, "script");
}
