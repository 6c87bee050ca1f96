//! Programs in the middle of kernels whose every access, barrier, branch, call and line is known in
//! closed form.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same, says};
use crate::selectors::renamed;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("accesses of matmul by space and place", matmul),
        case("accesses of reduction by space and place", reduction),
        case("accesses by warps are those of threads", by_warps),
        case("accesses with code out of line", out_of_line),
        case("sums that threads keep", kept),
        case("accesses with few registers", few_registers),
        case("names of places in tables", tables),
        case("accesses by size, and their values", sizes),
        case("barriers and the time waited", barriers),
        case("branches and the lanes that take them", branches),
        case("calls and returns", calls),
        case("a line", lines),
        case("an instruction and its operands", operands),
        case("what a launch was given", given),
        case("parameters by name", named),
        case("parameters that are not there", unnamed),
        case("several programs at one place", order),
        case("a filter that nothing passes", nothing),
        case("bpftime's __memcapture", captured),
        case("programs that are kernels", launched),
        case("the divergence of reduction", divergence),
    ]
}

/// Of tests/apps/places.cu.
const BLOCKS: u64 = 6;
const THREADS: u64 = 64;
const LAUNCHES: u64 = 2;
const ROUNDS: u64 = 5;
const GRID: u64 = BLOCKS * THREADS;
const ALL: u64 = GRID * LAUNCHES;

/// Kinds and spaces as `sites_mem.bpf.c` makes keys of them.
const LOAD: u64 = 1 << 3;
const STORE: u64 = 2 << 3;
const ATOMIC: u64 = 3 << 3;
const GLOBAL: u64 = 1;
const SHARED: u64 = 2;
const PARAM: u64 = 6;

/// Accesses and bytes of a map whose values are these two, by key.
pub fn traffic(run: &Run, map: &str) -> Result<BTreeMap<String, (u64, u64)>, String> {
    let mut found = BTreeMap::new();
    for (key, value) in run.entries(map)? {
        let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        let field = |name: &str| {
            let number = value[name].as_u64();
            number.ok_or_else(|| format!("no `{name}` at `{key}`: {value}"))
        };
        found.insert(key.clone(), (field("accesses")?, field("bytes")?));
    }
    Ok(found)
}

/// The table by kind and space is as expected, and the table by place is the same, told apart
/// further.
fn agrees(run: &Run, kernel: &str, expected: &[(u64, u64, u64)]) -> Result<(), String> {
    let spaces = traffic(run, "spaces")?;
    let expected: BTreeMap<String, (u64, u64)> = expected
        .iter()
        .map(|(key, accesses, bytes)| (key.to_string(), (*accesses, *bytes)))
        .collect();
    same("accesses and bytes by kind * 8 + space", &spaces, &expected)?;
    let places = traffic(run, "places")?;
    let total = |map: &BTreeMap<String, (u64, u64)>| {
        map.values().fold((0, 0), |(n, b), (accesses, bytes)| {
            (n + accesses, b + bytes)
        })
    };
    same("totals by place", total(&places), total(&expected))?;
    for name in places.keys() {
        says(name, &format!("{kernel} at {}.cu:", kernel_file(kernel)))?;
    }
    let sites = run.kernel(kernel)?["sites"].as_u64();
    same("places", sites, Some(places.len() as u64))
}

fn kernel_file(kernel: &str) -> &'static str {
    match kernel {
        "matmulTiled" => "matmul",
        "reduceSum" => "reduction",
        _ => "places",
    }
}

const MATMUL: &[&str] = &["100", "2"];
/// Threads of both launches: 7 x 7 blocks of 16 x 16. Each goes over 7 tiles.
const MATMUL_THREADS: u64 = 49 * 256 * 2;
const MATMUL_TILES: u64 = 7;
/// Each of the 7 blocks of a row of blocks reads each element of its rows of A once, and so for
/// columns and B.
const MATMUL_LOADS: u64 = 2 * 7 * 100 * 100 * 2;

fn matmul_expected() -> [(u64, u64, u64); 5] {
    let threads = MATMUL_THREADS;
    let tiles = threads * MATMUL_TILES;
    [
        (LOAD + GLOBAL, MATMUL_LOADS, MATMUL_LOADS * 4),
        (LOAD + SHARED, tiles * 32, tiles * 32 * 4),
        (LOAD + PARAM, threads * 4, threads * (3 * 8 + 4)),
        (STORE + GLOBAL, 20_000, 80_000),
        (STORE + SHARED, tiles * 2, tiles * 2 * 4),
    ]
}

fn matmul(bench: &Bench) -> Told {
    let run = bench.both("sites_mem", "matmul", MATMUL)?;
    agrees(&run, "matmulTiled", &matmul_expected())?;
    // Lines 27 and 28 load an element each.
    let places = traffic(&run, "places")?;
    for line in ["27", "28"] {
        let start = format!("matmulTiled at matmul.cu:{line} ld.global");
        let found: Vec<_> = places
            .iter()
            .filter(|(k, _)| k.starts_with(&start))
            .collect();
        let [(_, traffic)] = found.as_slice() else {
            return Err(format!("not one place is `{start}…`: {places:?}"));
        };
        same(&start, **traffic, (MATMUL_LOADS / 2, MATMUL_LOADS * 2))?;
    }
    Ok(format!("{} places", places.len()))
}

const REDUCTION: &[&str] = &["200000", "3"];

fn reduction_expected() -> [(u64, u64, u64); 5] {
    // 64 blocks of 256 threads, 3 launches; each block has 8 warps, and adds once.
    let (threads, warps) = (64 * 256 * 3, 64 * 8 * 3);
    [
        (LOAD + GLOBAL, 600_000, 2_400_000),
        (LOAD + SHARED, warps, warps * 4),
        (LOAD + PARAM, threads * 2, threads * (8 + 4)),
        (STORE + SHARED, warps, warps * 4),
        (ATOMIC + GLOBAL, 64 * 3, 64 * 3 * 8),
    ]
}

fn reduction(bench: &Bench) -> Told {
    let run = bench.both("sites_mem", "reduction", REDUCTION)?;
    agrees(&run, "reduceSum", &reduction_expected())?;
    Ok(format!("{} places", traffic(&run, "places")?.len()))
}

/// The example counts by warps what the other program counts by threads.
fn by_warps(bench: &Bench) -> Told {
    let check = |app: &str, arguments: &[&str], kernel: &str, expected: &[(u64, u64, u64)]| {
        let run = bench.both("memtraffic", app, arguments)?;
        let bytes = |which: u64| {
            let found = expected.iter().find(|(key, _, _)| *key == which);
            found.map_or(0, |(_, _, bytes)| *bytes)
        };
        let atomic = bytes(ATOMIC + GLOBAL);
        let kernels = run.entries("by_kernel")?;
        let Some((key, value)) = kernels.first() else {
            return Err(format!("no kernel in {kernels:?}"));
        };
        same("kernel", key.as_str(), Some(kernel))?;
        for (field, expected) in [
            ("global_read", bytes(LOAD + GLOBAL) + atomic),
            ("global_written", bytes(STORE + GLOBAL) + atomic),
            ("shared_read", bytes(LOAD + SHARED)),
            ("shared_written", bytes(STORE + SHARED)),
        ] {
            same(field, value[field].as_u64(), Some(expected))?;
        }
        let places = traffic(&run, "places")?;
        let found = places
            .values()
            .fold((0, 0), |sum, t| (sum.0 + t.0, sum.1 + t.1));
        let wanted = expected
            .iter()
            .filter(|(key, _, _)| key % 8 != PARAM)
            .fold((0, 0), |sum, (_, n, bytes)| (sum.0 + n, sum.1 + bytes));
        same("accesses and bytes of all places", found, wanted)
    };
    check("matmul", MATMUL, "matmulTiled", &matmul_expected())?;
    check("reduction", REDUCTION, "reduceSum", &reduction_expected())?;
    Ok("matmul and reduction".into())
}

fn out_of_line(bench: &Bench) -> Told {
    for (app, arguments) in [("matmul", MATMUL), ("reduction", REDUCTION)] {
        let inline = bench.both("sites_mem", app, arguments)?;
        let called = bench.both_with(&["--out-of-line"], "sites_mem", app, arguments)?;
        for map in ["spaces", "places"] {
            same(map, traffic(&called, map)?, traffic(&inline, map)?)?;
        }
    }
    let run = bench.both_with(&["--out-of-line"], "sites_code", "places", &[])?;
    same("products", sum(&run, PRODUCTS)?, ALL)?;
    same(
        "operands",
        sum(&run, OPERANDS_A)?,
        LAUNCHES * BLOCKS * (63 * 64 / 2),
    )?;
    same("taken", sum(&run, FEW_TAKEN)?, ALL / 32 * 5)?;
    Ok("as in line".into())
}

/// In registers, at each pass, and in functions: the sums are the same, and those of matmul and
/// reduction are known. The application `variants` has functions that kernels call, that call
/// themselves, and that end threads.
fn kept(bench: &Bench) -> Told {
    let fields = ["accesses", "bytes", "large", "down", "wraps"];
    let sums = |run: &Run, key: usize| -> Result<Vec<u64>, String> {
        let entries = run.entries("sums")?;
        let value = entries.get(key).map(|(_, value)| value);
        let value = value.ok_or_else(|| format!("no key {key} in `sums`"))?;
        let number = |name| {
            let number: Option<u64> = value[name].as_u64();
            number.ok_or_else(|| format!("no `{name}` in {value}"))
        };
        fields.iter().map(|name| number(*name)).collect()
    };
    let of = |accesses: u64, bytes: u64| {
        vec![
            accesses,
            bytes,
            accesses.wrapping_mul(1 << 40),
            accesses.wrapping_mul(3).wrapping_neg(),
            accesses.wrapping_mul(0x4000_0001) & 0xffff_ffff,
        ]
    };
    let known = [matmul_expected().to_vec(), reduction_expected().to_vec()];
    for ((app, arguments), known) in [("matmul", MATMUL), ("reduction", REDUCTION)]
        .into_iter()
        .zip(known)
    {
        let counted = known.iter().filter(|(key, _, _)| key % 8 != PARAM);
        let (n, bytes) = counted.fold((0, 0), |sum, (_, n, bytes)| (sum.0 + n, sum.1 + bytes));
        let run = bench.both("sums", app, arguments)?;
        same(app, sums(&run, 0)?, of(n, bytes))?;
    }
    let mut told = String::new();
    for (app, arguments) in [("matmul", MATMUL), ("variants", &[][..])] {
        let kept = bench.both("sums", app, arguments)?;
        let live = bench.both_with(&["--live-sums"], "sums", app, arguments)?;
        let called = bench.both_with(&["--out-of-line"], "sums", app, arguments)?;
        for key in [0, 1] {
            let expected = sums(&live, key)?;
            same(app, sums(&kept, key)?, expected.clone())?;
            same(app, sums(&called, key)?, expected.clone())?;
            same(app, of(expected[0], expected[1]), expected.clone())?;
            told = format!(
                "{told}{}{} of {app}",
                if told.is_empty() { "" } else { ", " },
                expected[0]
            );
        }
    }
    Ok(told)
}

fn few_registers(bench: &Bench) -> Told {
    let limit = 32;
    let text = limit.to_string();
    let run = bench.both_with(&["--max-registers", &text], "sites_mem", "matmul", MATMUL)?;
    agrees(&run, "matmulTiled", &matmul_expected())?;
    let registers = run.kernel("matmulTiled")?["registers"][1]
        .as_u64()
        .unwrap_or(0);
    if bench.soft {
        return Ok("the soft GPU has as many as it takes".into());
    }
    if registers == 0 || registers > limit {
        return Err(format!("{registers} registers instead of at most {limit}"));
    }
    Ok(format!("{registers} registers"))
}

/// The text for people has them too.
fn tables(bench: &Bench) -> Told {
    let output = bench
        .warpbpf("run")
        .arg(bench.object("sites_mem"))
        .arg("--")
        .arg(bench.app("reduction"))
        .args(REDUCTION)
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr);
    let row = text
        .lines()
        .find(|line| line.contains("reduceSum at reduction.cu:23 ld.global"))
        .ok_or_else(|| format!("no row for line 23 in `{text}`"))?;
    let numbers: Vec<&str> = row.split_whitespace().rev().take(2).collect();
    same("its accesses and bytes", numbers, vec!["2400000", "600000"])?;
    Ok(row.trim().to_string())
}

fn sizes(bench: &Bench) -> Told {
    let run = bench.both("sites_size", "places", &[])?;
    let count = |key| run.value("counts", key);
    same("loads of 16 bytes and more", count(0)?, 2 * ALL)?;
    same("their bytes", count(4)?, 2 * ALL * 16)?;
    same("smaller loads", count(1)?, ALL)?;
    same("loads", count(2)?, 3 * ALL)?;
    same("stores of 16 bytes", count(3)?, ALL)?;
    same("bytes of their values", count(7)?, ALL * 16)?;
    // The application's scales are i % 7, and each third float is 1 + its scale.
    let bits = |from: u64| -> u64 {
        let sum: u64 = (0..GRID)
            .map(|i| u64::from((from as f32 + (i % 7) as f32).to_bits()))
            .sum();
        sum * LAUNCHES
    };
    same("sum of loaded values", count(5)?, bits(0))?;
    same("sum of stored values", count(6)?, bits(1))?;
    same("places", run.kernel("vectors")?["sites"].as_u64(), Some(4))?;
    let others = run.kernel("waits")?;
    same(
        "another kernel's",
        others["instrumented"].as_bool(),
        Some(false),
    )?;
    Ok(format!("{} of {} loads are wide", 2 * ALL, 3 * ALL))
}

// As in sites_code.bpf.c.
const BARRIERS: u64 = 0;
const WAITED: u64 = 1;
const WRONG_BARRIERS: u64 = 2;
const FEW_LANES: u64 = 3;
const FEW_TAKEN: u64 = 4;
const FEW_THREADS: u64 = 5;
const MORE_LANES: u64 = 6;
const MORE_TAKEN: u64 = 7;
const CALLS: u64 = 8;
const RETURNS: u64 = 9;
const ALL_CALLS: u64 = 10;
const LINE_2000: u64 = 11;
const LINE_2002: u64 = 12;
const LINE_2004: u64 = 13;
const WRONG_LINES: u64 = 14;
const PRODUCTS: u64 = 15;
const OPERANDS_A: u64 = 16;
const OPERANDS_B: u64 = 17;
const OPERANDS_C: u64 = 18;
const OPERAND_COUNT: u64 = 19;
const MIDDLE: u64 = 20;

fn sum(run: &Run, what: u64) -> Result<u64, String> {
    run.value("sums", what)
}

fn code(bench: &Bench) -> Result<Run, String> {
    bench.both("sites_code", "places", &[])
}

fn barriers(bench: &Bench) -> Told {
    let run = code(bench)?;
    same("barriers", sum(&run, BARRIERS)?, ALL * ROUNDS * 2)?;
    same("barriers told wrong", sum(&run, WRONG_BARRIERS)?, 0)?;
    let waited = sum(&run, WAITED)?;
    // One warp of a block does 200 steps in front of every other barrier, so the other waits; no
    // kernel here runs for a second.
    let (least, most) = (BLOCKS * LAUNCHES * ROUNDS * 32 * 200, ALL * 2_000_000_000);
    if waited < least || waited > most {
        return Err(format!(
            "{waited} cycles waited, not between {least} and {most}"
        ));
    }
    Ok(format!("{} barriers, {waited} cycles", ALL * ROUNDS * 2))
}

fn branches(bench: &Bench) -> Told {
    let run = code(bench)?;
    let warps = ALL / 32;
    same("lanes", sum(&run, FEW_LANES)?, ALL)?;
    same("lanes that take it", sum(&run, FEW_TAKEN)?, warps * 5)?;
    same("threads that take it", sum(&run, FEW_THREADS)?, warps * 5)?;
    // Lane n goes round n times, and comes to the branch once more.
    let rounds = warps * (31 * 32 / 2);
    same("lanes in the loop", sum(&run, MORE_LANES)?, rounds + ALL)?;
    same("lanes that stay in it", sum(&run, MORE_TAKEN)?, rounds)?;
    let places = run.entries("branches")?;
    let named = |line: &str| {
        let name = format!("diverges at places.cu:{line} bra");
        let found = places.iter().find(|(key, _)| key.as_str() == Some(&name));
        found.and_then(|(_, value)| value.as_u64())
    };
    same(
        "by name",
        (named("1007"), named("1016")),
        (Some(ALL), Some(rounds + ALL)),
    )?;
    same("branches", places.len(), 2)?;
    Ok(format!(
        "{} of {} lanes",
        rounds + warps * 5,
        rounds + 2 * ALL
    ))
}

fn calls(bench: &Bench) -> Told {
    let run = code(bench)?;
    let calls = ALL / 4 * (1 + 2 + 3);
    same("calls", sum(&run, CALLS)?, calls)?;
    same("returns", sum(&run, RETURNS)?, calls)?;
    same("calls of any function", sum(&run, ALL_CALLS)?, calls)?;
    Ok(format!("{calls} calls"))
}

fn lines(bench: &Bench) -> Told {
    let run = code(bench)?;
    same("line 2000", sum(&run, LINE_2000)?, ALL)?;
    same("line 2002", sum(&run, LINE_2002)?, 300 * LAUNCHES)?;
    same("line 2004", sum(&run, LINE_2004)?, 150 * LAUNCHES)?;
    same("told as other lines", sum(&run, WRONG_LINES)?, 0)?;
    same("its store", sum(&run, MIDDLE)?, 150 * LAUNCHES)?;
    Ok(format!("{ALL}, {} and {}", 300 * LAUNCHES, 150 * LAUNCHES))
}

fn operands(bench: &Bench) -> Told {
    let run = code(bench)?;
    same("products", sum(&run, PRODUCTS)?, ALL)?;
    let threads: u64 = (0..THREADS).sum();
    same(
        "threads",
        sum(&run, OPERANDS_A)?,
        threads * BLOCKS * LAUNCHES,
    )?;
    same("the constant", sum(&run, OPERANDS_B)?, 0x0202_0202 * ALL)?;
    let blocks: u64 = (0..BLOCKS).sum();
    same(
        "blocks",
        sum(&run, OPERANDS_C)?,
        blocks * THREADS * LAUNCHES,
    )?;
    same("operands", sum(&run, OPERAND_COUNT)?, 3 * ALL)?;
    Ok(format!("{ALL} products"))
}

/// `tests/programs/sites_args.bpf.c` says what each sum is of. The program runs at entry and at
/// exit.
fn given(bench: &Bench) -> Told {
    let run = bench.both("sites_args", "places", &[])?;
    let seen = 2 * ALL;
    let small = u64::from(-2i16 as u16);
    for (key, what, each) in [
        (0, "threads", 1),
        (1, "with a pointer", 1),
        (2, "n", 3),
        (3, "with the ratio", 1),
        (4, "small", small),
        (5, "with the struct's first bytes", 1),
        (6, "parameters", 5),
        (7, "dynamic shared memory", 1024),
        (8, "blocks of clusters", 2),
    ] {
        same(what, run.value("sums", key)?, each * seen)?;
    }
    let numbers: u64 = (1..=LAUNCHES).sum();
    same(
        "numbers of launches",
        run.value("sums", 11)?,
        2 * GRID * numbers,
    )?;
    same(
        "the same by blocks",
        run.value("sums", 12)?,
        BLOCKS * numbers,
    )?;
    same("ranks", run.value("sums", 9)?, seen / 2)?;
    same("arguments that there are not", run.value("sums", 10)?, 0)?;
    Ok(format!("{seen} times"))
}

/// Of tests/apps/named.cu, whose kernels have 96 threads.
fn named(bench: &Bench) -> Told {
    let run = bench.both("sites_named", "named", &[])?;
    let minus_five = (96u64).wrapping_mul(5).wrapping_neg();
    for (kernel, n, bias) in [("scaled", 70, 96 << 40), ("shifted", 40, minus_five)] {
        let id = run.kernel(kernel)?["id"].as_u64();
        let key = id.ok_or(format!("`{kernel}` has no number"))? * 8;
        for (what, at, sum) in [("threads", 0, 96), ("n", 1, 96 * n), ("bias", 2, bias)] {
            same(what, run.value("sums", key + at)?, sum)?;
        }
        same("arguments not asked for", run.value("sums", key + 3)?, 0)?;
    }
    Ok("two kernels, four positions".into())
}

/// Without debug information there are no names, and a name that is not there is not another one.
fn unnamed(bench: &Bench) -> Told {
    let run = bench.both("sites_named", "vectoradd", &[])?;
    let method = |run: &Run, kernel: &str| {
        let method = run
            .kernel(kernel)
            .map(|k| k["method"].as_str().unwrap_or_default().to_owned());
        method.unwrap_or_default()
    };
    let expected = "refused: program `at_entry`: the kernel has no parameter `n`: the names are not in its PTX (`nvcc -G` and `clang -g` put them there); use positions";
    says(&method(&run, "vectorAdd"), expected)?;
    let file = renamed(bench, "sites_named", "args=n+bias", "args=n+beta")?;
    let run = bench.probed(&[], &file, &bench.app("named"), &[])?;
    let expected = "refused: program `at_entry`: the kernel has no parameter `beta`: it has `out`, `n`, `factor`, `bias`";
    says(&method(&run, "scaled"), expected)?;
    Ok("2 refusals".into())
}

fn order(bench: &Bench) -> Told {
    let run = bench.both("sites_order", "places", &[])?;
    let threads = &run.map("orders")?["threads"];
    // Once in each launch.
    let each = Some(1_234_512_345);
    same("threads", threads["count"].as_u64(), Some(GRID))?;
    same("smallest", threads["min"].as_u64(), each)?;
    same("largest", threads["max"].as_u64(), each)?;
    same("places", run.kernel("vectors")?["sites"].as_u64(), Some(2))?;
    Ok("1, 2, 3, 4, and 5 behind".into())
}

fn nothing(bench: &Bench) -> Told {
    let run = bench.both("sites_none", "places", &[])?;
    let kernels = run.process()["kernels"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    same("kernels", kernels.len(), 7)?;
    for kernel in &kernels {
        let what = |field: &str| format!("{field} of {}", kernel["name"]);
        same(&what("sites"), kernel["sites"].as_u64(), Some(0))?;
        same(&what("method"), kernel["method"].as_str(), Some("no site"))?;
        same(
            &what("probes"),
            kernel["instrumented"].as_bool(),
            Some(false),
        )?;
        let registers = &kernel["registers"];
        same(&what("registers"), &registers[0], &registers[1])?;
    }
    says(
        &run.notes(),
        "no kernel has a site that a program wants: `warpbpf sites ",
    )?;
    says(&run.notes(), "`at=` needs line information")?;
    Ok(format!("{} kernels as they are", kernels.len()))
}

fn captured(bench: &Bench) -> Told {
    let app = "reduction";
    let run = bench.both("sites_capture", app, REDUCTION)?;
    let expected: u64 = reduction_expected()
        .iter()
        .filter(|(key, _, _)| key & !7 != ATOMIC)
        .map(|(_, accesses, _)| accesses)
        .sum();
    same("loads and stores", run.value("counts", 0)?, expected)?;
    Ok(format!("{expected} loads and stores"))
}

fn launched(bench: &Bench) -> Told {
    let launch = |more: &[&str]| -> Result<Value, String> {
        let output = bench
            .warpbpf("launch")
            .args(["--json", "--grid", "3", "--block", "32"])
            .args(more)
            .arg(bench.object("sites_launch"))
            .output()
            .map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text)
            .map_err(|e| format!("{e}: `{text}`; {}", String::from_utf8_lossy(&output.stderr)))
    };
    let counts = |report: &Value| -> Vec<(u64, u64)> {
        let entries = report["processes"][0]["maps"][0]["entries"].as_array();
        entries
            .into_iter()
            .flatten()
            .filter_map(|e| Some((e["key"].as_u64()?, e["value"].as_u64()?)))
            .collect()
    };
    let threads: u64 = 96;
    let numbers: u64 = (0..threads).sum();
    let both = launch(&[])?;
    same(
        "both",
        counts(&both),
        vec![(0, threads), (1, threads), (2, numbers)],
    )?;
    let names: Vec<&str> = both["processes"][0]["kernels"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|k| k["name"].as_str())
        .collect();
    same("kernels", names, vec!["ours", "cuda__run"])?;
    let one = launch(&["--program-name", "cuda__run", "--count", "4"])?;
    same("bpftime's", counts(&one), vec![(1, 4 * threads)])?;
    // In an application they do nothing, and it is said.
    let run = bench.both("sites_launch", "vectoradd", &["1000", "2"])?;
    says(
        &run.notes(),
        "program `ours` is a kernel itself (gpu/run) and in none of the application's: run it by `warpbpf launch`",
    )?;
    Ok(format!("{threads} threads, then {}", 4 * threads))
}

/// The example, on a kernel of which it is known how each warp parts.
fn divergence(bench: &Bench) -> Told {
    let run = bench.both("divergence", "reduction", REDUCTION)?;
    let blocks = 64 * 3;
    let threads = blocks * 256;
    // Line, lanes, and those that take the branch: the compiler turned each condition round.
    let expected = [
        ("26", threads, threads / 32 * 31),
        ("31", blocks * 32, blocks * (32 - 8)),
        ("34", blocks * 32, blocks * 31),
    ];
    let branches = run.entries("branches")?;
    for (line, lanes, taken) in expected {
        let name = format!("reduceSum at reduction.cu:{line} bra");
        let Some((_, found)) = branches.iter().find(|(key, _)| key.as_str() == Some(&name)) else {
            return Err(format!("no `{name}` in {branches:?}"));
        };
        let number = |field: &str| found[field].as_u64();
        same(&format!("lanes at {name}"), number("lanes"), Some(lanes))?;
        same(&format!("taken at {name}"), number("taken"), Some(taken))?;
        // Lanes of a warp may come by in several groups, of which at least one parts.
        let (warps, split) = (number("warps").unwrap_or(0), number("split").unwrap_or(0));
        if warps < lanes / 32 || split > warps {
            return Err(format!("{split} of {warps} groups part at {name}"));
        }
    }
    Ok(format!("{} branches", branches.len()))
}
