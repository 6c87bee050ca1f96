//! Back ends: which ones this machine has, both for machine code side by side, and accesses of
//! every width under each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::run::{Bench, Case, Run, Told, same, says};
use crate::splice::{LAUNCHES, NO_GPU, THREADS};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("back ends: what the doctor says", doctor),
        case("back ends: two objects, all in PTX", in_ptx),
        case(
            "back ends: splice and sanitizer in one process",
            side_by_side,
        ),
        case("accesses of every width: in PTX", widths_in_ptx),
        case(
            "sanitizer: local memory, prefetches and what is stored",
            widths_in_machine_code,
        ),
    ]
}

const PTX: &str = "kernels that have PTX, at every place";
const SOFT: &str = "the soft GPU runs PTX only";
const NO_PTXAS: &str = "WARPBPF_PTXAS names `/nowhere/ptxas`, where no file is";

/// Exact, where nothing of the machine is in it: without `ptxas`, and of the soft GPU. What a GPU
/// has with one is told by its beginning.
fn doctor(bench: &Bench) -> Told {
    let run = |bench: &Bench, flags: &[&str]| {
        let output = bench.warpbpf("doctor").args(flags).output();
        let output = output.map_err(|e| format!("warpbpf: {e}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let devices = |bench: &Bench| {
        let text = run(bench, &["--json"])?;
        let all: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        let devices = all["devices"].as_array().cloned();
        devices.ok_or_else(|| format!("no devices: {all}"))
    };
    let soft = json!({
        "device": "soft GPU", "sm": null, "count": 1, "soft": true,
        "backends": [
            { "backend": "ptx", "ok": true, "told": PTX },
            { "backend": "splice", "ok": false, "told": SOFT },
            { "backend": "sanitizer", "ok": false, "told": SOFT },
        ],
        "auto": "as `ptx`",
        "all": "as `ptx`",
    });
    let all = devices(bench)?;
    same("the soft GPU comes last", all.last(), Some(&soft))?;
    let text = run(bench, &[])?;
    let block = format!(
        "back ends, soft GPU:\n  ✓ ptx        {PTX}\n  ✗ splice     {SOFT}\n  ✗ sanitizer  {SOFT}\n    auto       as `ptx`\n    all        as `ptx`\n"
    );
    same("the text ends with it", text.ends_with(&block), true)?;
    let gpu = all.iter().any(|device| device["soft"] == false);
    same("a GPU is there", gpu || bench.soft, true)?;
    // Without `ptxas` there is neither of those that need it.
    let nothing = bench.with(&[("WARPBPF_PTXAS", "/nowhere/ptxas")]);
    let without = devices(&nothing)?;
    same("devices", without.len(), all.len())?;
    for (device, with) in without.iter().zip(&all) {
        if device["soft"] == true {
            same("the soft GPU", device, &soft)?;
            continue;
        }
        let expected = json!([
            { "backend": "ptx", "ok": true, "told": PTX },
            { "backend": "splice", "ok": false, "told": NO_PTXAS },
            { "backend": "sanitizer", "ok": false, "told": NO_PTXAS },
        ]);
        same("back ends without `ptxas`", &device["backends"], &expected)?;
        same("auto without `ptxas`", &device["auto"], &json!("as `ptx`"))?;
        if !matches!(with["sm"].as_u64(), Some(80 | 90)) {
            continue;
        }
        for (at, told) in [
            (
                1,
                "those without, too, at `entry` and `exit`, but for NVIDIA's own libraries; `ptxas` ",
            ),
            (
                2,
                "those without, too, at `entry`, `exit`, `mem`, `barrier`, `func` and `funcret`, not by `attach`; ",
            ),
        ] {
            let back_end = &with["backends"][at];
            same("it is to be had", &back_end["ok"], &json!(true))?;
            says(back_end["told"].as_str().unwrap_or_default(), told)?;
        }
    }
    Ok(format!("{} kinds of device", all.len()))
}

/// How often each key of `counts` of `machine.bpf.c` and `machine_access.bpf.c` together is
/// counted, whatever numbers the kernels have got: linked, the two have one map of this name. Of
/// each kernel: its name, its launches with programs at entry and exits, and of those the ones with
/// programs at accesses. `parameters` are loads, too, where there is PTX.
fn counted(
    run: &Run,
    kernels: &[(&str, u64, u64)],
    parameters: u64,
) -> Result<BTreeMap<u64, u64>, String> {
    let mut counts = BTreeMap::new();
    let mut add = |key: u64, count: u64| *counts.entry(key).or_insert(0) += count;
    for (name, launched, accessed) in kernels {
        let id = run.kernel(name)?["id"].as_u64().ok_or("no number")?;
        add(id * 4, launched * THREADS);
        add(id * 4 + 1, launched * THREADS);
        if *name == "sums" {
            add(id * 4 + 2, launched * 400);
        }
        for (which, times) in [
            (0, THREADS + parameters * THREADS),
            (1, 400),
            (2, 400 * 4),
            (3, THREADS / 32),
            (4, 400 * 511),
            (5, 400 * 511),
        ] {
            add(id * 8 + which, accessed * times);
        }
    }
    counts.retain(|_, count| *count > 0);
    Ok(counts)
}

fn compare(run: &Run, kernels: &[(&str, u64, u64)], parameters: u64) -> Result<u64, String> {
    let expected = counted(run, kernels, parameters)?;
    let found = run.entries("counts")?;
    let found = found.iter().filter_map(|(key, value)| {
        let value = value.as_u64().filter(|value| *value > 0)?;
        Some((key.as_u64()?, value))
    });
    let found: BTreeMap<u64, u64> = found.collect();
    let sum = expected.values().sum();
    same("all counts", found, expected)?;
    let sums = kernels.iter().find(|(name, ..)| *name == "sums");
    let launched = sums.map_or(0, |(_, launched, _)| *launched);
    let blocks = run.entries("blocks")?;
    same("keys of blocks", blocks.len(), 400)?;
    for (_, value) in blocks {
        same("launches of a block", value.as_u64(), Some(launched))?;
    }
    Ok(sum)
}

fn launches(run: &Run, name: &str, launched: u64, uninstrumented: u64) -> Result<(), String> {
    let kernel = run.kernel(name)?;
    let counted = (
        kernel["launches"].as_u64(),
        kernel["uninstrumented"].as_u64(),
    );
    let expected = (Some(launched), Some(uninstrumented));
    same(
        &format!("launches and uninstrumented ones of `{name}`"),
        counted,
        expected,
    )
}

/// `machine.bpf.o` in front of another object.
fn with_machine(bench: &Bench) -> Result<String, String> {
    let object = bench.object("machine");
    object
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| "a path that is no text".to_owned())
}

/// What [`side_by_side`] compares with, where it can be run everywhere: the same kernels by the PTX
/// of their line information.
fn in_ptx(bench: &Bench) -> Told {
    let (count, first) = (LAUNCHES.to_string(), with_machine(bench)?);
    let flags = ["--backend", "all", first.as_str()];
    let run = bench.both_with(&flags, "machine_access", "lineinfo", &[&count])?;
    let kernels = [
        ("halve", LAUNCHES, 0),
        ("sums", 2 * LAUNCHES, 2 * LAUNCHES),
        ("scale", 1, 0),
        ("says", 1, 0),
        ("tally", 2, 0),
    ];
    for (name, launched, _) in kernels {
        launches(&run, name, launched, 0)?;
    }
    let sum = compare(&run, &kernels, 2)?;
    Ok(format!("{sum} counted in five kernels"))
}

/// `--backend auto`: the kernel with programs at its accesses has all of its programs by Compute
/// Sanitizer, and the others theirs by the splice. Where no program needs it, it is not there.
fn side_by_side(bench: &Bench) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let (count, first) = (LAUNCHES.to_string(), with_machine(bench)?);
    let auto = ["--backend", "all"];
    let method = |run: &Run, name: &str, expected: &str| {
        let method = run.kernel(name)?["method"].as_str().unwrap_or_default();
        same(&format!("the method of `{name}`"), method, expected)
    };
    let left = |run: &Run| {
        for (name, uninstrumented, why) in [
            ("scale", 1, "it reads `__constant__` variables"),
            ("tally", 2, "it uses variables of its module"),
        ] {
            launches(run, name, 0, uninstrumented)?;
            says(
                run.kernel(name)?["method"].as_str().unwrap_or_default(),
                why,
            )?;
        }
        Ok::<(), String>(())
    };
    let both = [&auto[..], &[first.as_str()]].concat();
    let run = bench.both_with(&both, "machine_access", "machine", &[&count])?;
    says(
        &run.notes(),
        "kernels without PTX get programs by `splice`, or by `sanitizer`, as `access` is at places of kind `mem`: profilers that use CUPTI do not work in the application",
    )?;
    method(&run, "halve", "splice")?;
    method(&run, "says", "splice")?;
    method(&run, "sums", "sanitizer")?;
    launches(&run, "halve", LAUNCHES, 0)?;
    launches(&run, "says", 1, 0)?;
    // In the graph the original runs.
    launches(&run, "sums", LAUNCHES, LAUNCHES)?;
    left(&run)?;
    let kernels = [
        ("halve", LAUNCHES, 0),
        ("sums", LAUNCHES, LAUNCHES),
        ("says", 1, 0),
    ];
    let mut sum = compare(&run, &kernels, 0)?;

    let run = bench.both_with(&auto, "machine", "machine", &[&count])?;
    let notes = run.notes();
    says(&notes, "kernels without PTX get programs by `splice`")?;
    same("Compute Sanitizer", notes.contains("Sanitizer"), false)?;
    for name in ["halve", "sums", "says"] {
        method(&run, name, "splice")?;
    }
    launches(&run, "sums", 2 * LAUNCHES, 0)?;
    left(&run)?;
    let kernels = [
        ("halve", LAUNCHES, 0),
        ("sums", 2 * LAUNCHES, 0),
        ("says", 1, 0),
    ];
    sum += compare(&run, &kernels, 0)?;
    Ok(format!("{sum} counted, outputs the same"))
}

/// As `locals.cu` has them.
const ELEMENTS: u64 = 60 * 128 - 29;
const STEPS: u64 = 9;
const ROUNDS: u64 = 3;

fn mixed(i: u64) -> u64 {
    let i = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    i ^ (i >> 29)
}

fn widths_in_ptx(bench: &Bench) -> Told {
    let count = ROUNDS.to_string();
    let run = bench.both("locals", "locals", &[&count])?;
    widths(&run, "slice")
}

fn widths_in_machine_code(bench: &Bench) -> Told {
    if bench.soft {
        return Ok(NO_GPU.to_owned());
    }
    let count = ROUNDS.to_string();
    let flags = ["--backend", "sanitizer"];
    let run = bench.both_with(&flags, "locals", "machine_locals", &[&count])?;
    widths(&run, "sanitizer")
}

/// What a kernel is to have counted, by the keys of `locals.bpf.c`.
type Counts = BTreeMap<u64, u64>;

/// Stores of one width to global memory.
fn store(counts: &mut Counts, width: u64, value: (u64, u64)) {
    let mut add = |key: u64, by: u64| {
        let sum = counts.entry(key).or_insert(0);
        *sum = sum.wrapping_add(by);
    };
    add(width, 1);
    add(5 + width, value.0);
    add(10, value.1);
    add(11, 1 << width);
}

/// Of one launch of each kernel. `ptxas` makes one instruction of each access here
/// (`crates/sass/tests/suite/locals.rs` holds it to that), so these are the numbers of machine
/// code, too.
fn of_a_launch() -> [(&'static str, Counts); 3] {
    let (mut indexed, mut widths, mut fetches) = (Counts::new(), Counts::new(), Counts::new());
    for i in 0..ELEMENTS {
        let mut sum = 0u64;
        for step in 0..STEPS {
            let value = mixed(i + step);
            let all = (value & 0xff) + (value & 0xffff_ffff);
            sum = sum.wrapping_add(all).wrapping_add(value);
        }
        store(&mut indexed, 3, (sum, 0));
        for (key, by) in [
            (16, 3 * STEPS),
            (17, 3 * STEPS),
            (18, (1 + 4 + 8) * STEPS),
            (19, (1 + 4 + 8) * STEPS),
            (20, sum),
            (21, (1 + 4 + 8) * STEPS),
        ] {
            let count = indexed.entry(key).or_insert(0);
            *count = count.wrapping_add(by);
        }
        let value = mixed(i + 77);
        store(&mut widths, 0, (value & 0xff, 0));
        if i % 2 == 0 {
            store(&mut widths, 1, (value & 0xffff, 0));
        }
        if i % 3 == 0 {
            store(&mut widths, 2, (value & 0xffff_ffff, 0));
        }
        if i % 5 == 0 {
            store(&mut widths, 3, (value, 0));
        }
        if i % 7 == 0 {
            store(&mut widths, 4, (value, !value & 0xffff_ffff | i << 32));
        }
        store(&mut fetches, 3, (value.wrapping_add(1), 0));
        *fetches.entry(24).or_insert(0) += 1 + u64::from(i % 3 == 0);
    }
    [
        ("indexed", indexed),
        ("widths", widths),
        ("fetches", fetches),
    ]
}

fn widths(run: &Run, method: &str) -> Told {
    let mut told = 0u64;
    for (name, counts) in of_a_launch() {
        let kernel = run.kernel(name)?;
        same("method", kernel["method"].as_str(), Some(method))?;
        launches(run, name, ROUNDS, 0)?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        for key in 0..32 {
            let expected = counts.get(&key).map_or(0, |one| one.wrapping_mul(ROUNDS));
            let found = run.value("counts", id * 32 + key)?;
            same(&format!("key {key} of `{name}`"), found, expected)?;
            // The numbers of accesses among the keys.
            if matches!(key, 0..=4 | 16 | 17 | 24) {
                told += expected;
            }
        }
    }
    Ok(format!("{told} accesses, every value the same"))
}
