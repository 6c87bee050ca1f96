//! Several GPUs: each has maps of its own, and one view shows them together, or each by itself.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::Owned;
use crate::run::{Bench, Case, Run, Told, same, says};

/// Threads of a block, and blocks of a grid on each device.
const THREADS: u64 = 64;
const BLOCKS: [u64; 2] = [6, 3];

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("two GPUs at once, and a context that ends", two),
        case("two GPUs of different size", different),
        case("two GPUs, shown one by one", one_by_one),
        case("two GPUs under a tool of libbpf", loader),
        case("two GPUs begin with the same contents", first_contents),
        case("maps of two GPUs, read and changed from outside", changed),
        case("maps of two GPUs, of which one has ended", gives_way),
    ]
}

/// A bench with two devices, on the soft GPU at least.
pub fn bench_of_two(bench: &Bench, sms: &str) -> Bench {
    bench.with(&[("WARPBPF_SOFT_DEVICES", "2"), ("WARPBPF_SOFT_SMS", sms)])
}

/// There are two GPUs.
pub fn are_two(bench: &Bench) -> Result<bool, String> {
    Ok(bench.plain("twogpus", &["1"])? != b"one GPU\n")
}

/// Runs the application with launches `number`; `None` where there is only one GPU.
fn run(bench: &Bench, flags: &[&str], number: u64) -> Result<Option<Run>, String> {
    let number = number.to_string();
    if bench.plain("twogpus", &[&number])? == b"one GPU\n" {
        return Ok(None);
    }
    bench
        .both_with(flags, "twogpus", "twogpus", &[&number])
        .map(Some)
}

pub fn skipped() -> Told {
    Ok("skipped: one GPU".to_owned())
}

/// Launches in the three contexts that there are: one on the first device, two on the second.
fn launches(number: u64) -> [u64; 3] {
    [number + 1, 2 * number, 2]
}

fn part(map: &Value, context: usize) -> Result<&Value, String> {
    let parts = map["contexts"].as_array();
    parts
        .and_then(|parts| parts.get(context))
        .ok_or_else(|| format!("there is no part {context} in {map}"))
}

fn entries(of: &Value) -> Vec<(u64, u64)> {
    let all = of["entries"].as_array().into_iter().flatten();
    let mut all: Vec<(u64, u64)> = all
        .filter_map(|e| Some((e["key"].as_u64()?, e["value"].as_u64()?)))
        .collect();
    all.sort_unstable();
    all
}

fn check(run: &Run, number: u64, cpus: [u64; 2]) -> Result<(), String> {
    let launched = launches(number);
    let blocks_of = |context: usize| BLOCKS[context.min(1)];
    // What the kernels were.
    let kernel = run.kernel("fill")?;
    let total: u64 = launched.iter().sum();
    same("launches", kernel["launches"].as_u64(), Some(total))?;
    same("uninstrumented", kernel["uninstrumented"].as_u64(), Some(0))?;
    let by_context: Vec<Value> = (0..3)
        .map(|n| Value::from(vec![n as u64, launched[n]]))
        .collect();
    same(
        "launches by context",
        &kernel["contexts"],
        &Value::from(by_context),
    )?;
    let contexts = &run.process()["contexts"];
    let devices: Vec<Option<u64>> = (0..3).map(|n| contexts[n]["device"].as_u64()).collect();
    same("devices", devices, vec![Some(0), Some(1), Some(1)])?;
    // Sums.
    let in_context = |n: usize| launched[n] * blocks_of(n);
    let all: u64 = (0..3).map(in_context).sum();
    let threads = run.map("threads")?;
    same("threads", entries(threads), vec![(0, all * THREADS)])?;
    for n in 0..3 {
        let expected = vec![(0, in_context(n) * THREADS)];
        same(
            &format!("threads of context {n}"),
            entries(part(threads, n)?),
            expected,
        )?;
    }
    // Keys, which come on both devices or on one.
    let blocks = run.map("blocks")?;
    let of = |n: usize, block: u64| match block < blocks_of(n) {
        true => launched[n] * THREADS,
        false => 0,
    };
    let expected: Vec<(u64, u64)> = (0..BLOCKS[0])
        .map(|block| (block, (0..3).map(|n| of(n, block)).sum()))
        .collect();
    same("blocks", entries(blocks), expected)?;
    for n in 0..3 {
        let keys = (0..blocks_of(n)).map(|block| (block, of(n, block)));
        same(
            &format!("blocks of context {n}"),
            entries(part(blocks, n)?),
            keys.collect(),
        )?;
    }
    // What is no sum is what the first context says, and each says its own.
    let grids = run.map("grids")?;
    same("grids", entries(grids), vec![(0, BLOCKS[0])])?;
    same(
        "grids of context 1",
        entries(part(grids, 1)?),
        vec![(0, BLOCKS[1])],
    )?;
    // A sum that begins with 1000 does so once.
    let data = run.map(".data")?;
    same(
        "exits",
        data["entries"][0]["value"]["exits"].as_u64(),
        Some(1000 + all),
    )?;
    // Multiprocessors side by side.
    let lanes = run.map("lanes")?;
    let values: Vec<u64> = lanes["entries"][0]["value"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    let largest = cpus[0].max(cpus[1]) as usize;
    same("CPUs", values.len(), 3 * largest)?;
    for n in 0..3 {
        let own = &values[n * largest..(n + 1) * largest];
        same(
            &format!("lanes of context {n}"),
            own.iter().sum(),
            in_context(n) * THREADS,
        )?;
        let beyond = cpus[n.min(1)] as usize;
        same("lanes beyond the device", own[beyond..].iter().sum(), 0u64)?;
    }
    // Events of all.
    let events = &run.map("events")?["events"];
    same("events", events["received"].as_u64(), Some(all))?;
    same("lost", events["lost"].as_u64(), Some(0))?;
    same("complete", run.process()["complete"].as_bool(), Some(true))
}

/// Multiprocessors of both devices, as the report has them.
fn sizes(run: &Run) -> Result<[u64; 2], String> {
    let contexts = &run.process()["contexts"];
    let size = |n: usize| contexts[n]["sms"].as_u64();
    size(0)
        .zip(size(1))
        .map(|(first, second)| [first, second])
        .ok_or_else(|| format!("no contexts in {}", run.process()))
}

fn two(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    let Some(run) = run(&bench, &[], 5)? else {
        return skipped();
    };
    let cpus = sizes(&run)?;
    check(&run, 5, cpus)?;
    Ok(format!("{} and {} multiprocessors", cpus[0], cpus[1]))
}

fn different(bench: &Bench) -> Told {
    if !bench.soft {
        return Ok("skipped: GPUs of one size".to_owned());
    }
    let bench = bench_of_two(bench, "2,5");
    let Some(run) = run(&bench, &[], 3)? else {
        return Err("the soft GPU is one".to_owned());
    };
    same("sizes", sizes(&run)?, [2, 5])?;
    check(&run, 3, [2, 5])?;
    Ok("2 and 5 multiprocessors".to_owned())
}

fn one_by_one(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    if bench.plain("twogpus", &["2"])? == b"one GPU\n" {
        return skipped();
    }
    let mut command = bench.warpbpf("run");
    command.arg("--per-device").arg(bench.object("twogpus"));
    command.arg("--").arg(bench.app("twogpus")).arg("2");
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let total = |n: usize| launches(2)[n] * BLOCKS[n.min(1)] * THREADS;
    for n in 0..3 {
        says(
            &text,
            &format!(
                "threads on device {} (context {n}) (array): 1 entry, sum {}",
                n.min(1),
                grouped(total(n))
            ),
        )?;
    }
    says(&text, "fill on device 1 (context 2)")?;
    says(&text, "  and on device 1: ")?;
    Ok("merged and apart".to_owned())
}

/// As reports group digits.
fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{thousands},{:03}", number % 1000),
    }
}

/// What a skeleton maps, and what a ring brings, is of both.
fn loader(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    if bench.plain("twogpus", &["2"])? == b"one GPU\n" {
        return skipped();
    }
    let tool = |name: &str, words: &[&str]| -> Result<Option<String>, String> {
        let path = bench.folder.join("libbpf").join(name);
        if !path.exists() {
            return Ok(None);
        }
        let mut command = bench.warpbpf("loader");
        command.arg(path).args(words).arg("--");
        command.arg(bench.app("twogpus"));
        let output = command.arg("2").output();
        let output = output.map_err(|e| format!("warpbpf: {e}"))?;
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let groups = tool("gpuprobe", &[])?;
    let records = tool("retsnoop", &["4", "256"])?;
    let (Some(groups), Some(records)) = (groups, records) else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    let rounds: u64 = launches(2).iter().sum();
    says(
        &groups,
        &format!(", loads {}, bytes {}", rounds * 2000, rounds * 8000),
    )?;
    let records_of_all = format!(
        "records {}, strange 0, each thread {rounds} to {rounds} times",
        rounds * 1024
    );
    says(&records, &records_of_all)?;
    Ok(format!("{rounds} launches"))
}

/// What the host writes before kernels run is everywhere, and where it is added to, it counts once.
fn first_contents(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    let Some(run) = run(&bench, &["--set", "step=3", "--set", "exits=5"], 2)? else {
        return skipped();
    };
    let launched = launches(2);
    let all: u64 = (0..3).map(|n| launched[n] * BLOCKS[n.min(1)]).sum();
    same("threads", run.value("threads", 0)?, all * THREADS * 3)?;
    let data = run.map(".data")?;
    same(
        "exits",
        data["entries"][0]["value"]["exits"].as_u64(),
        Some(5 + all),
    )?;
    Ok(format!("{all} blocks"))
}

/// What `warpbpf maps` says about a running session.
fn maps(bench: &Bench, child: &Child, words: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(bench.folder.join("warpbpf"));
    let pid = child.id().to_string();
    command.arg("maps").args(words).stdin(Stdio::null());
    command.args(["--json", "--pid", &pid]);
    command.output().map_err(|e| format!("warpbpf maps: {e}"))
}

fn ask(bench: &Bench, child: &Child, words: &[&str]) -> Result<Value, String> {
    let output = maps(bench, child, words)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match (output.status.code(), said.as_str()) {
        (Some(0), "") => Ok(Value::Null),
        (Some(1), "") if errors.contains("there is no such key") => Ok(json!("nothing")),
        (Some(0), text) => {
            serde_json::from_str(text).map_err(|e| format!("{words:?}: {e}: {text}"))
        }
        _ => Err(format!("{words:?}: {said}{errors}")),
    }
}

/// Runs the application in a way in which it waits for its input to end, and something while it
/// waits; `None` where there is only one GPU.
fn run_beside(
    bench: &Bench,
    object: &str,
    way: &str,
    beside: impl FnOnce(&Bench, &mut Child) -> Result<(), String>,
) -> Result<Option<Run>, String> {
    if !are_two(bench)? {
        return Ok(None);
    }
    let saved = bench.scratch(&format!("{object}-{way}.json"));
    let mut command = bench.warpbpf("run");
    command.args(["--host-ops", "--json", "-o"]).arg(&saved);
    command.arg(bench.object(object));
    command.arg("--").arg(bench.app("twogpus")).args(["2", way]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
    beside(bench, &mut child)?;
    let ended = child.output().map_err(|e| e.to_string())?;
    same("exit status", ended.status.code(), Some(0))?;
    let text = std::fs::read(&saved).unwrap_or_default();
    Ok(Some(Run {
        report: serde_json::from_slice(&text).unwrap_or(Value::Null),
        output: ended,
    }))
}

/// A line of the application, without its end.
fn line(child: &mut Child) -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    let out = child.stdout.as_mut().ok_or("no output")?;
    let mut byte = [0];
    while out.read(&mut byte).map_err(|e| e.to_string())? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    Ok(line)
}

/// Asks for a value until it is the one that is waited for.
fn comes(bench: &Bench, child: &Child, words: &[&str], value: &Value) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match ask(bench, child, words) {
            Ok(found) if found == *value => return Ok(()),
            other if Instant::now() > end => {
                return Err(format!("{words:?}: {other:?}, expected {value}"));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// What a context left that has ended gives way to what programs on the CPU and the host write
/// later, and can be taken out.
fn gives_way(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    let Some(run) = run_beside(&bench, "ended", "ends", give_way)? else {
        return skipped();
    };
    let more = BLOCKS[1] * THREADS;
    let all = FILLED + more;
    let counts = &run.map("counts")?["entries"][0]["value"];
    same(
        "counts",
        counts,
        &json!({"all": all + 8, "calls": 8, "threads": all}),
    )?;
    same("threads", run.value("threads", 0)?, 1000 + more)?;
    same("grids", run.value("grids", 0)?, BLOCKS[1])?;
    same("marks", run.value("marks", 0)?, 9)?;
    same("key 0", run.value("keys", 0)?, 7 * THREADS + 8)?;
    same("key 1", run.value("keys", 1)?, 7 + THREADS)?;
    same("key 100", run.value("keys", 100)?, 8)?;
    let keys = run.map("keys")?["entries"].as_array().map(Vec::len);
    same("keys", keys, Some(6))?;
    same("orders", &run.map("orders")?["entries"], &json!([]))?;
    Ok("values, keys and what was queued".to_owned())
}

/// Threads of the first round, of both devices.
const FILLED: u64 = (2 * BLOCKS[0] + 4 * BLOCKS[1]) * THREADS;

fn give_way(bench: &Bench, child: &mut Child) -> Result<(), String> {
    line(child)?;
    comes(bench, child, &["lookup", "threads", "0"], &json!(FILLED))?;
    for value in ["11", "12", "13", "14"] {
        same(
            "push",
            ask(bench, child, &["push", "orders", value])?,
            Value::Null,
        )?;
    }
    // Now all ends that is on the first device, and the CPU counts five calls.
    let input = child.stdin.as_mut().ok_or("no input")?;
    input.write_all(b"\n").map_err(|e| e.to_string())?;
    line(child)?;
    let say = |words: &[&str]| ask(bench, child, words);
    let counts = json!({"all": FILLED + 5, "calls": 5, "threads": FILLED});
    same("counts", say(&["lookup", "counts", "0"])?, counts)?;
    same(
        "key 0",
        say(&["lookup", "keys", "0"])?,
        json!(6 * THREADS + 5),
    )?;
    same("key 100", say(&["lookup", "keys", "100"])?, json!(5))?;
    same("grids", say(&["lookup", "grids", "0"])?, json!(BLOCKS[0]))?;
    same("marks", say(&["lookup", "marks", "0"])?, json!(5))?;
    for map in ["grids", "counts", "marks"] {
        let refused = say(&["delete", map, "0"]);
        says(&format!("{refused:?}"), "EINVAL")?;
    }
    for (map, key, value) in [("grids", "0", 9), ("threads", "0", 1000), ("keys", "1", 7)] {
        let text = value.to_string();
        same("update", say(&["update", map, key, &text])?, Value::Null)?;
        same(map, say(&["lookup", map, key])?, json!(value))?;
    }
    // A key that is only in what was left.
    let refused = say(&["update", "keys", "5", "1", "--noexist"]);
    says(&format!("{refused:?}"), "exists")?;
    same(
        "there",
        say(&["update", "keys", "5", "70", "--exist"])?,
        Value::Null,
    )?;
    same("key 5", say(&["lookup", "keys", "5"])?, json!(70))?;
    let refused = say(&["update", "keys", "77", "1", "--exist"]);
    says(&format!("{refused:?}"), "no such")?;
    for key in ["5", "4"] {
        same("delete", say(&["delete", "keys", key])?, Value::Null)?;
        same("gone", say(&["lookup", "keys", key])?, json!("nothing"))?;
        says(&format!("{:?}", say(&["delete", "keys", key])), "no such")?;
    }
    same("update", say(&["update", "keys", "6", "3"])?, Value::Null)?;
    same("peek", say(&["peek", "orders"])?, json!(11))?;
    for value in [11, 12, 13, 14] {
        same("pop", say(&["pop", "orders"])?, json!(value))?;
    }
    same("empty", say(&["pop", "orders"])?, json!("nothing"))
}

/// Lookups see all devices, and changes reach all.
fn changed(bench: &Bench) -> Told {
    let bench = bench_of_two(bench, "4");
    let Some(run) = run_beside(&bench, "twogpus", "wait", change)? else {
        return skipped();
    };
    // One more launch on each device.
    let more = BLOCKS[0] + BLOCKS[1];
    same("threads", run.value("threads", 0)?, 1000 + more * THREADS)?;
    same("block 0", run.value("blocks", 0)?, 7 + 2 * THREADS)?;
    same("block 5", run.value("blocks", 5)?, THREADS)?;
    same("key 60", run.value("blocks", 60)?, 50)?;
    same(
        "threads in parts",
        entries(part(run.map("threads")?, 1)?),
        vec![(0, BLOCKS[1] * THREADS)],
    )?;
    Ok("lookups and changes on both".to_owned())
}

fn change(bench: &Bench, child: &mut Child) -> Result<(), String> {
    // Its first line comes when all kernels of the first round have ended.
    line(child)?;
    let say = |words: &[&str]| ask(bench, child, words);
    let counts = 2 * BLOCKS[0] + 4 * BLOCKS[1];
    let all = json!(counts * THREADS);
    comes(bench, child, &["lookup", "threads", "0"], &all)?;
    // A key that both have, and one that only the first has.
    same(
        "block 0",
        say(&["lookup", "blocks", "0"])?,
        json!(6 * THREADS),
    )?;
    same(
        "block 5",
        say(&["lookup", "blocks", "5"])?,
        json!(2 * THREADS),
    )?;
    let cpus = say(&["lookup", "lanes", "0"])?;
    let cpus: Vec<u64> = cpus
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    same("lanes", cpus.iter().sum(), counts * THREADS)?;
    if bench.soft {
        same("CPUs", cpus.len(), 8)?;
    }
    let dump = say(&["dump", "blocks"])?;
    same(
        "keys of the second",
        entries(part(&dump["map"], 1)?).len() as u64,
        BLOCKS[1],
    )?;
    // What is written is what is read, wherever it is.
    same(
        "update",
        say(&["update", "threads", "0", "1000"])?,
        Value::Null,
    )?;
    same("threads", say(&["lookup", "threads", "0"])?, json!(1000))?;
    same("update", say(&["update", "blocks", "0", "7"])?, Value::Null)?;
    same("block 0", say(&["lookup", "blocks", "0"])?, json!(7))?;
    same(
        "new key",
        say(&["update", "blocks", "60", "50", "--noexist"])?,
        Value::Null,
    )?;
    same("key 60", say(&["lookup", "blocks", "60"])?, json!(50))?;
    // One that only one device has is there, and gone when it is deleted.
    let refused = say(&["update", "blocks", "5", "1", "--noexist"]);
    says(&format!("{refused:?}"), "exists")?;
    same(
        "block 5",
        say(&["lookup", "blocks", "5"])?,
        json!(2 * THREADS),
    )?;
    same("delete", say(&["delete", "blocks", "5"])?, Value::Null)?;
    same("gone", say(&["lookup", "blocks", "5"])?, json!("nothing"))?;
    let again = say(&["delete", "blocks", "5"]);
    says(&format!("{again:?}"), "no such")?;
    // Each value is in one queue: in the next where one is full.
    for value in ["11", "12", "13", "14"] {
        same("push", say(&["push", "orders", value])?, Value::Null)?;
    }
    says(&format!("{:?}", say(&["push", "orders", "15"])), "E2BIG")?;
    let queues = say(&["dump", "orders"])?;
    let second = &part(&queues["map"], 1)?["entries"];
    same(
        "values of the second",
        second.as_array().map(Vec::len),
        Some(2),
    )?;
    same("peek", say(&["peek", "orders"])?, json!(11))?;
    for value in [11, 12, 13, 14] {
        same("pop", say(&["pop", "orders"])?, json!(value))?;
    }
    same("empty", say(&["pop", "orders"])?, json!("nothing"))
}
