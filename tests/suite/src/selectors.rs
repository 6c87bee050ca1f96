//! What is wrong with a section name is said before the application starts.

use std::path::PathBuf;

use serde_json::Value;

use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("words that no selector has", unknown_words),
        case("keys that a place does not have", unknown_keys),
        case("a line without its number", no_line),
        case("places and scopes that there are not", unknown_places),
        case("what can be probed in a file", sites),
        case("a kernel before and after", splice),
        case(
            "one of several programs that stands nowhere",
            stands_nowhere,
        ),
    ]
}

/// Spoils a section name of an object: the message must be `expected`, and the application must not
/// have been started.
fn spoiled(
    bench: &Bench,
    object: &str,
    name: &str,
    spoiled: &str,
    expected: &str,
) -> Result<(), String> {
    let file = renamed(bench, object, name, spoiled)?;
    let run = bench.probed(&[], &file, &bench.app("places"), &[])?;
    same("exit status", run.output.status.code(), Some(1))?;
    same("application's output", run.output.stdout.len(), 0)?;
    let expected = format!("warpbpf: {}: {expected}", file.display());
    same("message", run.errors().trim_end(), expected.as_str())
}

/// An object with other letters in a name.
pub fn renamed(bench: &Bench, object: &str, name: &str, other: &str) -> Result<PathBuf, String> {
    let mut bytes = std::fs::read(bench.object(object)).map_err(|e| e.to_string())?;
    same("length of the new name", other.len(), name.len())?;
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(name.as_bytes()))
        .collect();
    if places.is_empty() {
        return Err(format!("`{name}` is not in `{object}`"));
    }
    for at in places {
        bytes[at..at + name.len()].copy_from_slice(other.as_bytes());
    }
    let file = bench.scratch("spoiled.bpf.o");
    std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
    Ok(file)
}

const WIDE: &str = "gpu/mem/*vectors*|kind=load,space=global,size>=16";
const BARRIER: &str = "gpu/barrier/*waits*|kind=sync,when=after";

fn unknown_words(bench: &Bench) -> Told {
    let kind = "`wide`: `kind` cannot be `lood` in section `gpu/mem/*vectors*|kind=lood,space=global,size>=16`; it is one of \
                `load`, `store`, `atomic`, `reduction`, `async_copy`, `bulk_copy`, `tensor_copy`, `matrix_load`, \
                `matrix_store`, `wmma_load`, `wmma_store`, `prefetch`, `texture`, `surface_load`, `surface_store` or `other`, \
                or several joined by `+`";
    spoiled(
        bench,
        "sites_size",
        WIDE,
        &WIDE.replace("load", "lood"),
        kind,
    )?;
    let size = "`wide`: `size` cannot be `1k` in section `gpu/mem/*vectors*|kind=load,space=global,size>=1k`; it is a number \
                of bytes";
    spoiled(bench, "sites_size", WIDE, &WIDE.replace("16", "1k"), size)?;
    let when = "`at_barrier`: `when` cannot be `later` in section `gpu/barrier/*waits*|kind=sync,when=later`; it is `before` \
                or `after`";
    spoiled(
        bench,
        "sites_code",
        BARRIER,
        &BARRIER.replace("after", "later"),
        when,
    )?;
    Ok("kind, size, when".into())
}

fn unknown_keys(bench: &Bench) -> Told {
    let key = "`wide`: `gpu/mem` has no key `spice` (section `gpu/mem/*vectors*|kind=load,spice=global,size>=16`) (did you mean `space`?); its keys \
               are `kind`, `space`, `cache`, `size`, `op`, `at`, `func`, `when` and `args`; of every place are `every`, \
               `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches";
    spoiled(
        bench,
        "sites_size",
        WIDE,
        &WIDE.replace("space", "spice"),
        key,
    )?;
    let shape = "`wide`: `kind>load` in section `gpu/mem/*vectors*|kind>load,space=global,size>=16` is not `key=value`; \
                 `gpu/mem`: its keys are `kind`, `space`, `cache`, `size`, `op`, `at`, `func`, `when` and `args`; of every place are \
                 `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches";
    spoiled(
        bench,
        "sites_size",
        WIDE,
        &WIDE.replace("kind=", "kind>"),
        shape,
    )?;
    Ok("an unknown key, a value without its key".into())
}

fn no_line(bench: &Bench) -> Told {
    let section = "gpu/line/*numbered*|at=places.cu:2000";
    let needs = "`at_2000`: `gpu/line` needs `at=` (section `gpu/line/*numbered*`); write for example \
                 `gpu/line/*|at=kernel.cu:212`";
    spoiled(
        bench,
        "sites_code",
        section,
        &section.replace('|', "\0"),
        needs,
    )?;
    let value = "`at_2000`: `at` cannot be `places.cu;2000` in section `gpu/line/*numbered*|at=places.cu;2000`; it is a file \
                 and a line, for example `kernel.cu:212`";
    spoiled(
        bench,
        "sites_code",
        section,
        &section.replace(':', ";"),
        value,
    )?;
    Ok("no place, and half of one".into())
}

fn unknown_places(bench: &Bench) -> Told {
    let section = "gpu/branch.warp/*diverges*|at=places.cu:1007";
    let scope = "`at_few`: scope `wrap` in section `gpu/branch.wrap/*diverges*|at=places.cu:1007` is unknown (did you mean `warp`?); scopes are \
                 `thread`, `warp` and `block`";
    spoiled(
        bench,
        "sites_code",
        section,
        &section.replace("warp", "wrap"),
        scope,
    )?;
    let section = "gpu/insn/*products*";
    let place = "`at_product`: there is no place `inst` (section `gpu/inst/*products*|op=dp4a.*`) (did you mean `insn`?); places are `entry`, \
                 `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`";
    spoiled(
        bench,
        "sites_code",
        section,
        &section.replace("insn", "inst"),
        place,
    )?;
    Ok("a scope, a place".into())
}

/// `warpbpf sites` counts what the programs of `places.rs` were put at.
fn sites(bench: &Bench) -> Told {
    let output = bench
        .warpbpf("sites")
        .arg("--json")
        .arg(bench.app("places"))
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(&text)
        .map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let kernels = found["kernels"].as_array().cloned().unwrap_or_default();
    same("kernels", kernels.len(), 7)?;
    let kernel = |name: &str| kernels.iter().find(|k| k["name"] == name);
    let count = |name: &str, wanted: &[(&str, &str)], bytes: Option<u64>| {
        let places = kernel(name).and_then(|k| k["places"].as_array());
        let all = places.into_iter().flatten();
        all.filter(|p| wanted.iter().all(|(field, word)| p[*field] == *word))
            .filter(|p| bytes.is_none_or(|bytes| p["bytes"] == bytes))
            .filter_map(|p| p["count"].as_u64())
            .sum::<u64>()
    };
    let load = [("place", "mem"), ("kind", "load"), ("space", "global")];
    same("wide loads", count("vectors", &load, Some(16)), 2)?;
    same("other loads", count("vectors", &load, Some(4)), 1)?;
    same(
        "barriers",
        count("waits", &[("place", "barrier"), ("kind", "sync")], None),
        2,
    )?;
    same(
        "branches",
        count("diverges", &[("place", "branch")], None),
        2,
    )?;
    let call = [("place", "func"), ("function", "collatz")];
    same("functions", count("calls", &call, None), 1)?;
    let has = |name: &str, list: &str, field: &str, value: Value| {
        let all = kernel(name).and_then(|k| k[list].as_array());
        let found: Vec<&Value> = all
            .into_iter()
            .flatten()
            .filter(|item| item[field] == value)
            .collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            _ => Err(format!(
                "{} {list} of `{name}` have {field} {value}",
                found.len()
            )),
        }
    };
    let product = has("products", "opcodes", "op", "dp4a.u32.u32".into())?;
    same("products", product["count"].as_u64(), Some(1))?;
    let line = has("numbered", "lines", "line", 2004.into())?;
    same(
        "accesses on line 2004",
        line["places"]["mem"].as_u64(),
        Some(1),
    )?;
    Ok(format!("{} kernels", kernels.len()))
}

fn splice(bench: &Bench) -> Told {
    let output = bench
        .warpbpf("compile")
        .args(["--show-splice", "*vectors*"])
        .arg(bench.app("places"))
        .arg(bench.object("sites_size"))
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    same("errors", errors.as_ref(), "")?;
    says(
        &text,
        "// vectors (slice)\n// site: vectors at places.cu:23 ld.global.v4.f32\n",
    )?;
    says(&text, "(original)\n+++ ")?;
    // Each access is there as often as it was.
    let lines = |sign: char| {
        let accesses = ["ld.global.v4", "ld.global.f32", "st.global.v4"];
        text.lines()
            .filter(|line| line.starts_with(sign))
            .filter(|line| {
                accesses
                    .iter()
                    .any(|a| line[1..].trim_start().starts_with(a))
            })
            .count()
    };
    same("accesses added and removed", lines('+'), lines('-'))?;
    let added = |part: &str| {
        let lines = text.lines().filter(|l| l.starts_with('+'));
        lines.filter(|l| l.contains(part)).count()
    };
    // Two wide loads with a program that adds twice and one that adds once; a narrow one, also with
    // both; a store with three.
    same(
        "additions",
        added("add.u64 %wbpf_sum_"),
        2 * (2 + 1) + (2 + 1) + 3,
    )?;
    // When a thread leaves: once for all lanes, and once for each if a sum is large.
    let sums = added(".reg .b64 %wbpf_sum_");
    same("atomics", added("red.relaxed.gpu.global.add"), 2 * sums)?;
    Ok(format!("{} lines", text.lines().count()))
}

fn stands_nowhere(bench: &Bench) -> Told {
    let wider = WIDE.replace(">=16", ">=64");
    let file = renamed(bench, "sites_size", WIDE, &wider)?;
    let app = bench.app("places");
    let run = bench.probed(&[], &file, &app, &[])?;
    same("exit status", run.output.status.code(), Some(0))?;
    let note = format!(
        "program `wide` (`{wider}`) stands nowhere: there is no `mem` place with `kind=load,space=global,size>=64` that may have \
         code in vectors"
    );
    says(&run.notes(), &note)?;
    same(
        "programs that are named",
        run.notes().matches("stands nowhere").count(),
        1,
    )?;
    let placed = &run.kernel("vectors")?["placed"];
    same(
        "places",
        placed.to_string().as_str(),
        "[[0,0],[1,1],[2,3],[3,1]]",
    )?;
    Ok("it is named, with what it looked for".into())
}
