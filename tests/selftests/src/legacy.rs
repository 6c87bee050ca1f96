//! The older half of the tests, `verifier/*.c`: arrays of instructions in C initialisers. A small
//! program prints them, and this reads what it prints.

use std::path::Path;
use std::process::Command;

use std::collections::BTreeMap;
use warpbpf_object::{MapDef, MapKind};

use crate::compile::{SELFTESTS, Tools};
use crate::expect::{self, Verdict};
use crate::kernel::{Kernel, Said};
use crate::left_out;
use crate::platform::{Kind, adapted, kind_of_number};
use crate::run::{Case, Ours, Outcome, Took, compare};

/// The files' names.
///
/// # Errors
/// The folder cannot be read.
pub fn files(tools: &Tools) -> Result<Vec<String>, String> {
    crate::compile::sources(&tools.linux.join(SELFTESTS).join("verifier"), "")
}

/// The tests of one file.
///
/// # Errors
/// What the compiler says.
pub fn cases(tools: &Tools, file: &str, kernel: Option<&Kernel>) -> Result<Vec<Case>, String> {
    let text = print(tools, file)?;
    let tests = parse(&text).map_err(|e| format!("`{file}` prints something else: {e}"))?;
    let mut cases: Vec<Case> = Vec::new();
    for test in tests {
        let mut program = test.name.replace([' ', '#'], "_");
        // Some descriptions are there twice.
        let same = |c: &&Case| c.program.trim_end_matches('\'') == program;
        let twins = cases.iter().filter(same).count();
        program.push_str(&"'".repeat(twins));
        cases.push(Case {
            file: format!("verifier/{file}"),
            program,
            outcome: outcome(&test, kernel),
        });
    }
    Ok(cases)
}

fn print(tools: &Tools, file: &str) -> Result<String, String> {
    let folder = tools.out.join("legacy").join(file);
    let io = |e: std::io::Error| format!("cannot write in `{}`: {e}", folder.display());
    std::fs::create_dir_all(folder.join("verifier")).map_err(io)?;
    let list = format!("#ifdef FILL_ARRAY\n#include \"{file}\"\n#endif\n");
    std::fs::write(folder.join("verifier/tests.h"), list).map_err(io)?;
    let source = folder.join("legacy.c");
    std::fs::write(&source, include_str!("legacy.c")).map_err(io)?;
    let selftests = tools.linux.join(SELFTESTS);
    let printer = folder.join("print");
    let mut clang = Command::new(&tools.clang);
    clang.args(["-w", "-O0", "-D_GNU_SOURCE"]);
    for include in [
        &folder,
        &tools.out.join("include"),
        &selftests,
        &selftests.join("verifier"),
        Path::new(&selftests).parent().unwrap_or(&selftests),
        &tools.linux.join("tools/include"),
        &tools.linux.join("tools/include/uapi"),
    ] {
        clang.arg("-I").arg(include);
    }
    // What the printer does not call need not be there.
    clang
        .arg(&source)
        .arg("-o")
        .arg(&printer)
        .args(["-static", "-Wl,--unresolved-symbols=ignore-all"]);
    let built = clang
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", tools.clang))?;
    if !built.status.success() {
        let text = String::from_utf8_lossy(&built.stderr);
        let first = text.lines().find_map(|line| line.split_once("error: "));
        return Err(format!(
            "not compiled: {}",
            first.map_or("clang fails", |(_, what)| what)
        ));
    }
    let printed = Command::new(&printer)
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", printer.display()))?;
    if !printed.status.success() {
        return Err(format!(
            "`{}` ends with {}",
            printer.display(),
            printed.status
        ));
    }
    String::from_utf8(printed.stdout).map_err(|_| "it prints what is no UTF-8".to_owned())
}

/// A test as it is printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Test {
    name: String,
    kind: u32,
    flags: u32,
    result: (u32, u32),
    error: String,
    error_unprivileged: String,
    /// Map and instruction slot.
    maps: Vec<(String, usize)>,
    code: Vec<u8>,
}

/// Reads what the printer prints.
///
/// # Errors
/// The first line that is not understood.
pub fn parse(text: &str) -> Result<Vec<Test>, String> {
    let mut tests: Vec<Test> = Vec::new();
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key == "test" {
            tests.push(Test {
                name: value.to_owned(),
                ..Test::default()
            });
            continue;
        }
        let bad = || line.chars().take(80).collect::<String>();
        let test = tests.last_mut().ok_or_else(bad)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
        match key {
            "type" => test.kind = number(value)?,
            "flags" => test.flags = number(value)?,
            "result" => {
                let (all, unprivileged) = value.split_once(' ').ok_or_else(bad)?;
                test.result = (number(all)?, number(unprivileged)?);
            }
            "error" => test.error = value.to_owned(),
            "error-unprivileged" => test.error_unprivileged = value.to_owned(),
            "map" => {
                let (map, at) = value.split_once(' ').ok_or_else(bad)?;
                test.maps.push((map.to_owned(), number(at)? as usize));
            }
            "code" => {
                let digits = value.as_bytes();
                let byte = |pair: &[u8]| {
                    let text = std::str::from_utf8(pair).ok()?;
                    u8::from_str_radix(text, 16).ok()
                };
                let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
                test.code = bytes.ok_or_else(bad)?;
            }
            _ => return Err(bad()),
        }
    }
    Ok(tests)
}

/// `REJECT` of the kernel's enum; every other value accepts.
const REJECT: u32 = 2;
/// `F_LOAD_WITH_STRICT_ALIGNMENT`
const STRICT_ALIGNMENT: u32 = 2;

fn verdict(test: &Test) -> Verdict {
    if test.result.0 == REJECT {
        Verdict::Refuses(vec![test.error.clone()])
    } else if test.result.1 == REJECT && expect::speaks_of_leak(&test.error_unprivileged) {
        Verdict::Leaks(test.error_unprivileged.clone())
    } else {
        Verdict::Accepts
    }
}

fn outcome(test: &Test, kernel: Option<&Kernel>) -> Outcome {
    let kind = match test.kind {
        // The default.
        0 => Kind::SocketFilter,
        number => match kind_of_number(number) {
            Some(kind) => kind,
            None => return Outcome::LeftOut(format!("type of program: {number}")),
        },
    };
    let mut maps = Vec::new();
    let mut code = test.code.clone();
    for (name, slot) in &test.maps {
        let Some(map) = map(name) else {
            return Outcome::LeftOut(format!("map type {name}"));
        };
        let at = slot * 8 + 4;
        if let Some(immediate) = code.get_mut(at..at + 4) {
            immediate.copy_from_slice(&(maps.len() as u32).to_le_bytes());
        }
        maps.push(map);
    }
    let code = match warpbpf_ebpf::decode(&code) {
        Ok(code) => code,
        Err(errors) => {
            let message = errors.first().map(ToString::to_string).unwrap_or_default();
            return Outcome::Compared {
                kernel: verdict(test),
                ours: Ours::Refuses {
                    rule: "load".to_owned(),
                    message,
                },
                running: Said::default(),
                took: Took::default(),
            };
        }
    };
    if let Some(reason) = left_out::by_use(&code, &maps, &kind.platform()) {
        return Outcome::LeftOut(reason);
    }
    let strict = test.flags & STRICT_ALIGNMENT != 0;
    let running = kernel.map(|kernel| kernel.ask(&code, &maps, kind, strict));
    compare(
        &code,
        &maps,
        kind,
        verdict(test),
        running.unwrap_or_default(),
    )
}

/// The maps of `test_verifier.c`, as far as they are covered.
fn map(name: &str) -> Option<MapDef> {
    /// `BPF_F_RDONLY_PROG` and `BPF_F_WRONLY_PROG`
    const READ_ONLY: u32 = 1 << 7;
    const WRITE_ONLY: u32 = 1 << 8;
    let (map_type, key_size, value_size, max_entries, flags) = match name {
        "map_hash_8b" => (1, 8, 8, 8, 0),
        "map_hash_48b" => (1, 8, 48, 8, 0),
        "map_hash_16b" => (1, 8, 16, 8, 0),
        "map_array_48b" => (2, 4, 48, 1, 0),
        "map_array_ro" => (2, 4, 48, 1, READ_ONLY),
        "map_array_wo" => (2, 4, 48, 1, WRITE_ONLY),
        "map_array_small" => (2, 4, 1, 1, 0),
        "map_ringbuf" => (27, 0, 0, 4096, 0),
        _ => return None,
    };
    adapted(&MapDef {
        name: name.to_owned(),
        map_type,
        key_size,
        value_size,
        max_entries,
        flags,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "test a: b c\ntype 5\nflags 2\nresult 1 2\nerror \nerror-unprivileged R0 leaks addr\nmap map_hash_8b 1\ncode 9500000000000000\n";

    #[test]
    fn a_printed_test_is_read() {
        let tests = parse(TEXT).expect("the text is well formed");
        assert_eq!(tests.len(), 1);
        assert_eq!(tests[0].name, "a: b c");
        assert_eq!(
            (tests[0].kind, tests[0].flags, tests[0].result),
            (5, 2, (1, 2))
        );
        assert_eq!(tests[0].maps, [("map_hash_8b".to_owned(), 1)]);
        assert_eq!(tests[0].code, [0x95, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            verdict(&tests[0]),
            Verdict::Leaks("R0 leaks addr".to_owned())
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_told() {
        assert_eq!(parse("type 5"), Err("type 5".to_owned()));
        assert_eq!(parse("test a\nresult 1"), Err("result 1".to_owned()));
        assert_eq!(parse("test a\ncode 9x"), Err("code 9x".to_owned()));
        assert_eq!(parse("test a\nother 1"), Err("other 1".to_owned()));
    }
}
