//! Programs whose results are known in closed form.

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same, says};

/// An application, its arguments, and what it launches: kernel, blocks, threads per block,
/// launches.
struct App {
    name: &'static str,
    arguments: &'static [&'static str],
    kernel: &'static str,
    blocks: u64,
    threads: u64,
    launches: u64,
}

const VECTORADD: App = App {
    name: "vectoradd",
    arguments: &["100000", "3"],
    kernel: "vectorAdd",
    blocks: 391,
    threads: 256,
    launches: 3,
};
const MATMUL: App = App {
    name: "matmul",
    arguments: &["100", "2"],
    kernel: "matmulTiled",
    blocks: 49,
    threads: 256,
    launches: 2,
};
const REDUCTION: App = App {
    name: "reduction",
    arguments: &["200000", "3"],
    kernel: "reduceSum",
    blocks: 64,
    threads: 256,
    launches: 3,
};

impl App {
    fn total(&self) -> u64 {
        self.blocks * self.threads * self.launches
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("threadhist on vectoradd", |b| threadhist(b, &VECTORADD)),
        case("threadhist on matmul", |b| threadhist(b, &MATMUL)),
        case("threadhist on reduction", |b| threadhist(b, &REDUCTION)),
        case("kernelretsnoop on vectoradd", |b| {
            kernelretsnoop(b, &VECTORADD)
        }),
        case("kernelretsnoop on matmul", |b| kernelretsnoop(b, &MATMUL)),
        case("kernelretsnoop on reduction", |b| {
            kernelretsnoop(b, &REDUCTION)
        }),
        case("launchcount on vectoradd", |b| launchcount(b, &VECTORADD)),
        case("launchcount on matmul", |b| launchcount(b, &MATMUL)),
        case("launchcount on reduction", |b| launchcount(b, &REDUCTION)),
        case("a launch as the first CUDA call", launch_first),
        case("scopes and variants", scopes),
        case("hash under many warps", hash),
        case("helpers agree with the context", helpers),
        case("bpftime's forms", bpftime),
        case("callbacks, iterators, may_goto and CO-RE", loops),
        case("host time on the device", clock),
        case("kernels are listed", kernels),
    ]
}

fn threadhist(bench: &Bench, app: &App) -> Told {
    let run = bench.both("threadhist", app.name, app.arguments)?;
    same(
        "sum of threads",
        run.map("threads")?["sum"].as_u64(),
        Some(app.total()),
    )?;
    let threads = &run.map("threads")?["threads"];
    same(
        "threads",
        threads["count"].as_u64(),
        Some(app.blocks * app.threads),
    )?;
    same("smallest", threads["min"].as_u64(), Some(app.launches))?;
    same("largest", threads["max"].as_u64(), Some(app.launches))?;
    let blocks = run.entries("blocks")?;
    same("blocks", blocks.len() as u64, app.blocks)?;
    for (key, value) in &blocks {
        same(
            &format!("block {key}"),
            value.as_u64(),
            Some(app.threads * app.launches),
        )?;
    }
    complete(&run, app)?;
    Ok(format!("{} threads", app.total()))
}

/// The report is asked for every event: of each thread there are as many as launches.
fn kernelretsnoop(bench: &Bench, app: &App) -> Told {
    let all = app.total().to_string();
    let flags = ["--events", all.as_str()];
    let run = bench.both_with(&flags, "kernelretsnoop", app.name, app.arguments)?;
    let events = &run.map("events")?["events"];
    same("events", events["received"].as_u64(), Some(app.total()))?;
    same("lost", events["lost"].as_u64(), Some(0))?;
    let threads = (app.blocks * app.threads) as usize;
    let mut times = vec![0; threads];
    for event in events["first"].as_array().into_iter().flatten() {
        let field = |name: &str| event[name].as_u64().unwrap_or(u64::MAX);
        let (block, thread) = (field("block"), field("thread"));
        let possible = thread < app.threads && block < app.blocks && field("lane") == thread % 32;
        if !possible || field("time_ns") == u64::MAX {
            return Err(format!("an impossible event: {event}"));
        }
        times[(block * app.threads + thread) as usize] += 1;
    }
    let missing = times.iter().filter(|n| **n != app.launches).count();
    same("threads with other numbers of events", missing, 0)?;
    complete(&run, app)?;
    Ok(format!(
        "{} events, of each thread as many as launches",
        app.total()
    ))
}

fn launchcount(bench: &Bench, app: &App) -> Told {
    let run = bench.both("launchcount", app.name, app.arguments)?;
    let entries = run.entries("kernels")?;
    same("kernels", entries.len(), 1)?;
    let (key, value) = &entries[0];
    same("name", key.as_str(), Some(app.kernel))?;
    same("launches", value["launches"].as_u64(), Some(app.launches))?;
    same(
        "blocks",
        value["blocks"].as_u64(),
        Some(app.blocks * app.launches),
    )?;
    same("threads", value["threads"].as_u64(), Some(app.total()))?;
    complete(&run, app)?;
    Ok(format!("{} launches", app.launches))
}

/// A program that makes no call before its first launch: its code is loaded before its context is
/// alive.
fn launch_first(bench: &Bench) -> Told {
    let run = bench.both("launchcount", "launch-bench", &["2"])?;
    let entries = run.entries("kernels")?;
    same("kernels", entries.len(), 2)?;
    for (key, value) in &entries {
        same(
            &format!("launches of {key}"),
            value["launches"].as_u64(),
            Some(1000),
        )?;
    }
    let kernels = run.process()["kernels"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for name in ["plain", "probed"] {
        let kernel = kernels.iter().find(|k| k["name"] == name);
        let count = |field: &str| kernel.and_then(|k| k[field].as_u64());
        same(
            &format!("`{name}` with probes"),
            count("launches"),
            Some(1000),
        )?;
        same(
            &format!("`{name}` without"),
            count("uninstrumented"),
            Some(0),
        )?;
    }
    Ok("2000 launches".into())
}

/// The launches were all counted with probes, and the agent said good-bye.
fn complete(run: &Run, app: &App) -> Result<(), String> {
    let kernels = run.process()["kernels"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let Some(kernel) = kernels.iter().find(|k| k["name"] == app.kernel) else {
        return Err(format!(
            "`{}` is not among the kernels: {kernels:?}",
            app.kernel
        ));
    };
    same(
        "launches with probes",
        kernel["launches"].as_u64(),
        Some(app.launches),
    )?;
    same(
        "uninstrumented launches",
        kernel["uninstrumented"].as_u64(),
        Some(0),
    )?;
    same("complete", run.process()["complete"].as_bool(), Some(true))?;
    // What a probe costs in registers depends on the compiler; everything else that is noted is a
    // fault.
    let cost = |note: &&str| note.starts_with("kernel `") && note.contains(": registers ");
    let notes = run.notes();
    same("notes", notes.lines().find(|note| !cost(note)), None)
}

/// Kernel, threads, warps, blocks of all launches, and how it must be instrumented.
const VARIANTS: &[(&str, u64, u64, u64, &str)] = &[
    ("addToGlobal", 256, 8, 4, "slice"),
    ("readGlobal", 32, 1, 1, "slice"),
    ("useConstant", 128, 4, 1, "clone"),
    ("callPointer", 96, 3, 1, "clone"),
    ("makeObject", 1, 1, 1, "slice"),
    ("useObject", 40, 2, 1, "clone"),
    ("exitInFunction", 64, 2, 1, "slice"),
    ("leaveApart", 200, 8, 2, "slice"),
    ("speak", 64, 2, 2, "slice"),
    ("dynamicShared", 256, 8, 1, "slice"),
    ("templated<int, 5>", 50, 2, 1, "slice"),
];

fn scopes(bench: &Bench) -> Told {
    let run = bench.both("scopes", "variants", &[])?;
    let kernels = run.process()["kernels"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (name, threads, warps, blocks, method) in VARIANTS {
        let Some(kernel) = kernels.iter().find(|k| k["name"] == *name) else {
            return Err(format!("`{name}` is not among the kernels: {kernels:?}"));
        };
        let told = kernel["method"].as_str().unwrap_or_default();
        if !told.starts_with(method) {
            return Err(format!("{name}: `{told}`, expected `{method}`"));
        }
        let base = kernel["id"].as_u64().ok_or(format!("{name} has no id"))? * 8;
        for (offset, expected, what) in [
            (0, threads, "entry"),
            (2, blocks, "entry.block"),
            (4, threads, "exit"),
            (5, warps, "exit.warp"),
            (6, blocks, "exit.block"),
        ] {
            same(
                &format!("{name}: {what}"),
                run.value("counts", base + offset)?,
                *expected,
            )?;
        }
        let groups = run.value("counts", base + 1)?;
        if groups < *warps || groups > *threads {
            return Err(format!(
                "{name}: entry.warp fired {groups} times for {warps} warps"
            ));
        }
        let lanes = run.entries("lanes")?;
        let per_sm = lanes
            .iter()
            .find(|(k, _)| k.as_u64() == Some(base + 1))
            .map(|(_, v)| v.clone());
        let sum: u64 = per_sm
            .and_then(|v| v.as_array().cloned())
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_u64())
            .sum();
        same(&format!("{name}: lanes of entry.warp"), sum, *threads)?;
    }
    Ok(format!("{} kernels × 6 scopes", VARIANTS.len()))
}

fn hash(bench: &Bench) -> Told {
    let app = &VECTORADD;
    let run = bench.both("hashstress", app.name, app.arguments)?;
    same("threads without room", run.value("results", 1)?, 0)?;
    same(
        "threads that counted",
        run.value("results", 0)?,
        app.total(),
    )?;
    let (deleted, absent) = (run.value("results", 2)?, run.value("results", 3)?);
    same("deletes", deleted + absent, app.blocks * app.launches)?;
    // Thread t of block b counts key (7b + t) mod 997.
    let mut expected = vec![0u64; 997];
    for block in 0..app.blocks {
        for thread in 0..app.threads {
            expected[((block * 7 + thread) % 997) as usize] += app.launches;
        }
    }
    let entries = run.entries("table")?;
    let mut found = vec![0u64; 997];
    for (key, value) in &entries {
        match (
            key["group"].as_u64(),
            key["number"].as_u64(),
            value.as_u64(),
        ) {
            (Some(1), Some(number), Some(count)) => found[number as usize] += count,
            (Some(2), ..) => return Err(format!("a deleted key is still there: {key}")),
            _ => return Err(format!("an impossible entry: {key} {value}")),
        }
    }
    same("keys", entries.len(), 997)?;
    same("counts", found, expected)?;
    Ok(format!("997 keys, {} adds, {deleted} deletes", app.total()))
}

fn helpers(bench: &Bench) -> Told {
    let app = &VECTORADD;
    let run = bench.both("helpers", app.name, app.arguments)?;
    same("threads that disagree", run.value("results", 1)?, 0)?;
    same("threads that agree", run.value("results", 0)?, app.total())?;
    let messages = run.process()["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut texts: Vec<&str> = messages.iter().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    let mut expected = Vec::new();
    for thread in 0..2 {
        for _ in 0..app.launches {
            expected.push(format!(
                "block (0,0,0) thread ({thread},0,0): thread {thread} of 256: ff"
            ));
        }
    }
    same(
        "messages",
        texts.clone(),
        expected.iter().map(String::as_str).collect(),
    )?;
    let pid = run.process()["pid"].as_u64().unwrap_or(0);
    let bss = run.entries(".bss")?;
    let shown = bss.first().map(|(_, v)| v.to_string()).unwrap_or_default();
    says(&shown, &(pid << 32 | pid).to_string())?;
    Ok(format!("{} threads, {} messages", app.total(), texts.len()))
}

fn bpftime(bench: &Bench) -> Told {
    let app = &VECTORADD;
    let run = bench.both("bpftime", app.name, app.arguments)?;
    same(
        "calls",
        run.map("call_count")?["sum"].as_u64(),
        Some(app.total()),
    )?;
    same("exits", run.value("exits", 0)?, app.total())?;
    same("impossible exits", run.value("exits", 1)?, 0)?;
    complete(&run, app)?;
    Ok(format!("{} calls, {} exits", app.total(), app.total()))
}

/// `tests/programs/loops.bpf.c` says what each sum is made of.
fn loops(bench: &Bench) -> Told {
    let app = &VECTORADD;
    let run = bench.both("loops", app.name, app.arguments)?;
    let sums = [64, 33, 91, 83, 6, 15, 7, 7, 6, 12];
    for (key, each) in (0..).zip(sums) {
        same(
            &format!("sum {key}"),
            run.value("results", key)?,
            each * app.total(),
        )?;
    }
    complete(&run, app)?;
    Ok(format!("{} threads", app.total()))
}

/// Device times, taken together with host times, must differ by a constant, and host times lie
/// between our own readings.
fn clock(bench: &Bench) -> Told {
    let before = monotonic()?;
    let run = bench.probed(
        &["--events", "100000"],
        &bench.object("clock"),
        &bench.app("vectoradd"),
        VECTORADD.arguments,
    )?;
    let after = monotonic()?;
    let events = &run.map("events")?["events"];
    same(
        "events",
        events["received"].as_u64(),
        Some(VECTORADD.blocks * VECTORADD.launches),
    )?;
    let mut offsets = Vec::new();
    for event in events["first"].as_array().into_iter().flatten() {
        let (Some(host), Some(device)) = (event["host"].as_u64(), event["device"].as_u64()) else {
            return Err(format!("an impossible event: {event}"));
        };
        if host < before || host > after {
            return Err(format!(
                "host time {host} is not between {before} and {after}"
            ));
        }
        offsets.push(host.wrapping_sub(device) as i64);
    }
    // A thread may be held up between its two readings, never the other way round: so the smallest
    // differences count.
    offsets.sort_unstable();
    let (low, middle) = (offsets[0], offsets[offsets.len() / 2]);
    if middle - low > 2_000 {
        return Err(format!(
            "half of the pairs are more than {} ns off the best one",
            middle - low
        ));
    }
    let error = run.process()["clock_error_ns"]
        .as_u64()
        .ok_or("the report does not say how exact the clock is")?;
    if error > 2_000 {
        return Err(format!("the calibration is only within {error} ns"));
    }
    Ok(format!(
        "{} pairs, half of them within {} ns of the best; calibrated within {error} ns",
        offsets.len(),
        middle - low
    ))
}

/// CLOCK_MONOTONIC, from the kernel's own account of it.
fn monotonic() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/uptime").map_err(|e| e.to_string())?;
    let seconds: f64 = text
        .split(' ')
        .next()
        .and_then(|w| w.parse().ok())
        .ok_or("no uptime")?;
    // Hundredths of a second; suspended time counts there, and machines that run tests do not
    // sleep.
    Ok((seconds * 1e9) as u64 / 10_000_000 * 10_000_000)
}

fn kernels(bench: &Bench) -> Told {
    let output = bench
        .warpbpf("kernels")
        .arg("--json")
        .arg("--")
        .arg(bench.app("variants"))
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find(|l| l.starts_with('{'))
        .ok_or(format!("no JSON in `{text}`"))?;
    let report: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let kernels = report["processes"][0]["kernels"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (name, _, _, _, method) in VARIANTS {
        let Some(kernel) = kernels.iter().find(|k| k["name"] == *name) else {
            return Err(format!("`{name}` is not listed: {line}"));
        };
        says(kernel["method"].as_str().unwrap_or_default(), method)?;
        says(kernel["source"].as_str().unwrap_or_default(), "PTX")?;
    }
    Ok(format!("{} kernels", kernels.len()))
}
