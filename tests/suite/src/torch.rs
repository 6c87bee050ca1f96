//! `examples/torch`: its programs and its scripts, on applications whose blocks and bytes are
//! known. PyTorch itself needs a GPU.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::process::Owned;
use crate::run::{Bench, Case, Run, Told, is_deep, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("torch: each block is timed once", blocks),
        case("torch: warps that leave at different times", leaving),
        case("torch: warps in any order", any_order),
        case("torch: blocks that are not timed are counted", untimed),
        case("torch: launches at once", at_once),
        case("torch: threads, as back ends are compared by", threads),
        case("torch: bytes of each launch", bytes),
        case("torch: more launches than have records", crowded),
        case("torch: more launches than have block times", unrecorded),
        case("torch: one command", whole),
        case("torch: launches by operator", operators),
        case("torch: what differs is said", different),
        case("torch: what cannot be shown is said", broken),
        case("torch: the programs fit into machine code", machine_code),
        case("torch: tests of the scripts", alone),
    ]
}

/// Threads of a block of `vectoradd` and `reduction`.
const THREADS: u64 = 256;

fn field(value: &Value, name: &str) -> Result<u64, String> {
    let number = value[name].as_u64();
    number.ok_or_else(|| format!("no `{name}` in {value}"))
}

/// The sum of a field over all entries of a map.
fn sum(run: &Run, map: &str, name: &str) -> Result<u64, String> {
    let entries = run.entries(map)?;
    entries.iter().map(|(_, value)| field(value, name)).sum()
}

/// Nothing is left where blocks are while they run.
fn at_rest(run: &Run) -> Result<(), String> {
    same("running", run.entries("running")?.len(), 0)?;
    // Where blocks met that ran on different multiprocessors, one has too few and another too many.
    let alive = run.entries("alive")?.into_iter();
    let alive = alive.map(|(_, value)| field(&value, "blocks"));
    let alive: Vec<u64> = alive.collect::<Result<_, _>>()?;
    let sum = alive
        .iter()
        .fold(0, |sum: u32, blocks| sum.wrapping_add(*blocks as u32));
    same("alive", sum, 0)
}

/// What the report makes of block times.
struct Timed {
    launches: Vec<Value>,
    lost: Value,
    /// Blocks in histograms.
    sorted: u64,
}

impl Timed {
    fn of(bench: &Bench, run: &Run) -> Result<Timed, String> {
        const SCRIPT: &str = "
import json, sys
sys.path.insert(0, sys.argv[1])
import report
kernels, launches, lost = report.read_blocks(json.load(sys.stdin))
launches = [launch for those in launches.values() for _, launch in those]
print(json.dumps({'launches': launches, 'lost': lost, 'sorted': sum(sum(k.histogram.values()) for k in kernels.values())}))
";
        let told = |e| format!("python3: {e}");
        let mut command = python3();
        command.args(["-c", SCRIPT]).arg(scripts(bench));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Owned::spawn(command.stderr(Stdio::piped())).map_err(told)?;
        if let Some(mut input) = child.stdin.take() {
            // What it says if it does not read all of it comes below.
            _ = input.write_all(run.report.to_string().as_bytes());
        }
        let output = child.output().map_err(told)?;
        same(&text(&output.stderr), output.status.code(), Some(0))?;
        let all: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        Ok(Timed {
            launches: all["launches"].as_array().cloned().unwrap_or_default(),
            lost: all["lost"].clone(),
            sorted: field(&all, "sorted")?,
        })
    }

    fn losses(&self, expected: &[(&str, u64)]) -> Result<(), String> {
        for name in ["unrecorded", "untimed", "met", "unsorted"] {
            let wanted = expected.iter().find(|(which, _)| *which == name);
            let wanted = wanted.map_or(0, |(_, count)| *count);
            same(name, field(&self.lost, name)?, wanted)?;
        }
        Ok(())
    }
}

/// A launch whose blocks all were timed.
fn whole_launch(launch: &Value) -> Result<(), String> {
    let of = |name| field(launch, name);
    let blocks = of("blocks")?;
    same("timed", of("timed")?, blocks)?;
    same("ended", of("ended")?, blocks)?;
    let none = ["came", "first_begin", "last_begin", "first_end", "last_end"];
    let told = none.iter().all(|name| of(name).is_ok_and(|ns| ns > 0));
    // A time below 0 would be the largest that there are, and blocks' times have 41 bits.
    if of("busy_ns")? >> 40 != 0 {
        return Err(format!("a block ended before its begin: {launch}"));
    }
    if !told || of("first_begin")? > of("last_end")? || of("peak")? == 0 || of("peak")? > blocks {
        return Err(format!("{launch}"));
    }
    Ok(())
}

/// The sum of a map of numbers.
fn total(run: &Run, map: &str) -> Result<u64, String> {
    let entries = run.entries(map)?;
    Ok(entries.iter().filter_map(|(_, value)| value.as_u64()).sum())
}

fn blocks(bench: &Bench) -> Told {
    let (mut all, mut launches) = (0, 0);
    for (app, arguments, grid, count) in [
        ("vectoradd", ["100000", "3"], 391, 3),
        ("reduction", ["20000", "2"], 64, 2),
    ] {
        let run = bench.both("torch_blocktimes", app, &arguments)?;
        let timed = Timed::of(bench, &run)?;
        same("launches", timed.launches.len(), count)?;
        for launch in &timed.launches {
            same("blocks", field(launch, "blocks")?, grid)?;
            same("threads", field(launch, "threads")?, THREADS)?;
            whole_launch(launch)?;
        }
        let blocks = grid * count as u64;
        same("threads", total(&run, "threads")?, blocks * THREADS)?;
        same("blocks in histograms", timed.sorted, blocks)?;
        timed.losses(&[])?;
        at_rest(&run)?;
        all += blocks;
        launches += count;
    }
    Ok(format!("{all} blocks of {launches} launches"))
}

/// Kernels in which warps end before others have begun, in functions, and by `exit`.
fn leaving(bench: &Bench) -> Told {
    let run = bench.both("torch_blocktimes", "variants", &[])?;
    let kernels = run.process()["kernels"].as_array();
    let launched: u64 = (kernels.into_iter().flatten())
        .filter_map(|kernel| kernel["launches"].as_u64())
        .sum();
    let timed = Timed::of(bench, &run)?;
    same("launches", timed.launches.len() as u64, launched)?;
    let mut threads = 0;
    for launch in &timed.launches {
        whole_launch(launch)?;
        threads += field(launch, "blocks")? * field(launch, "threads")?;
    }
    same("threads that began", total(&run, "threads")?, threads)?;
    timed.losses(&[])?;
    at_rest(&run)?;
    Ok(format!("{threads} threads of {launched} launches"))
}

/// Warps that come in parts, and such as have left before the block's first one began: whoever
/// counts last, no block ends before its begin.
fn any_order(bench: &Bench) -> Told {
    let (seeds, apps) = if is_deep() { (8, 2) } else { (1, 1) };
    for seed in 1..=seeds {
        let bench = &bench.with(&[("WARPBPF_SOFT_SEED", &seed.to_string())]);
        let all = [("variants", &[][..]), ("vectoradd", &["3000", "3"])];
        for (app, arguments) in all.into_iter().take(apps) {
            let run = bench.both("torch_blocktimes", app, arguments)?;
            let timed = Timed::of(bench, &run)?;
            for launch in &timed.launches {
                whole_launch(launch)?;
            }
            timed.losses(&[])?;
            at_rest(&run)?;
        }
    }
    Ok(format!("{seeds} orders"))
}

fn untimed(bench: &Bench) -> Told {
    let flags = ["--set", "timed_blocks=100"];
    let run = bench.both_with(&flags, "torch_blocktimes", "vectoradd", &["100000", "3"])?;
    let timed = Timed::of(bench, &run)?;
    same("launches", timed.launches.len(), 3)?;
    for launch in &timed.launches {
        for (name, expected) in [("blocks", 391), ("timed", 100), ("ended", 100)] {
            same(name, field(launch, name)?, expected)?;
        }
    }
    timed.losses(&[("untimed", 3 * 291)])?;
    at_rest(&run)?;
    Ok("300 of 1,173 blocks are timed".to_owned())
}

/// Four launches at once, with words for blocks of four, of two, and of one: blocks that find
/// another launch's in their place are counted, each.
fn at_once(bench: &Bench) -> Told {
    const LAUNCHES: u64 = 4;
    const BLOCKS: u64 = 3;
    let bench = &bench.with(&[("WARPBPF_SOFT_ASYNC", "1")]);
    let mut told = Vec::new();
    for words in [4, 2, 1] {
        let at_once = format!("timed_at_once={words}");
        let arguments = [LAUNCHES.to_string(), BLOCKS.to_string()];
        let run = bench.both_with(
            &["--set", &at_once],
            "torch_blocktimes",
            "meeting",
            &arguments.each_ref().map(String::as_str),
        )?;
        let threads = format!("{}\n", LAUNCHES * BLOCKS * 64);
        same("threads that met", text(&run.output.stdout), threads)?;
        let timed = Timed::of(bench, &run)?;
        let met = (LAUNCHES - words) * BLOCKS;
        same("launches", timed.launches.len() as u64, LAUNCHES)?;
        for launch in &timed.launches {
            if met > 0 {
                // Of blocks that met none has a time.
                same("ended", field(launch, "ended")?, 0)?;
                continue;
            }
            whole_launch(launch)?;
            // None had ended when the last one began.
            same("at once", field(launch, "peak")?, BLOCKS)?;
        }
        timed.losses(&[("met", met)])?;
        at_rest(&run)?;
        told.push(met.to_string());
    }
    Ok(format!("blocks that met: {}", told.join(", ")))
}

/// The program of `tests/gpu/backends.sh`: as many threads of a kernel end as begin, by whichever
/// way they leave.
fn threads(bench: &Bench) -> Told {
    let run = bench.both("threads", "vectoradd", &["100000", "3"])?;
    for map in ["began", "ended"] {
        same(map, total(&run, map)?, 3 * 391 * THREADS)?;
    }
    let run = bench.both("threads", "variants", &[])?;
    let (began, ended) = (run.entries("began")?, run.entries("ended")?);
    same("kernels", began.len() > 1, true)?;
    same("threads that ended", &ended, &began)?;
    Ok(format!("of {} kernels", 1 + began.len()))
}

fn bytes(bench: &Bench) -> Told {
    let run = bench.both("torch_traffic", "reduction", &["20000", "2"])?;
    let moved = run.entries("bytes")?;
    same("launches", run.entries("launches")?.len(), 2)?;
    same("launches with bytes", moved.len(), 2)?;
    for (_, bytes) in moved {
        // 4 for each element; and 8 that an atomic of each block reads and writes.
        same("read", field(&bytes, "read")?, 20_000 * 4 + 64 * 8)?;
        same("written", field(&bytes, "written")?, 64 * 8)?;
    }
    Ok("161024 read, 1024 written".to_owned())
}

/// Those without a record have their bytes with their kernel.
fn crowded(bench: &Bench) -> Told {
    const RECORDS: u64 = 1 << 14;
    const LAUNCHES: u64 = 17_000;
    let arguments = ["100", &LAUNCHES.to_string()];
    let run = bench.both("torch_traffic", "vectoradd", &arguments)?;
    let records = run.entries("launches")?.len() as u64;
    let place = |key: &Value| key.as_u64().unwrap_or(0);
    let moved = run.entries("bytes")?;
    let rest = moved.iter().find(|(key, _)| place(key) >= RECORDS);
    let (_, rest) = rest.ok_or("no launch was without a record")?;
    same(
        "read by the rest",
        field(rest, "read")?,
        (LAUNCHES - records) * 800,
    )?;
    same("read", sum(&run, "bytes", "read")?, LAUNCHES * 800)?;
    same("written", sum(&run, "bytes", "written")?, LAUNCHES * 400)?;
    Ok(format!("{records} of {LAUNCHES} launches have records"))
}

/// Those without a record are counted by launches, whatever blocks they have, and nothing else is
/// missing.
fn unrecorded(bench: &Bench) -> Told {
    let flags = ["--set", "timed_launches=4"];
    let run = bench.both_with(&flags, "torch_blocktimes", "vectoradd", &["1000", "7"])?;
    let timed = Timed::of(bench, &run)?;
    same("records", timed.launches.len(), 4)?;
    for launch in &timed.launches {
        whole_launch(launch)?;
    }
    timed.losses(&[("unrecorded", 3)])?;
    same("threads", total(&run, "threads")?, 7 * 4 * THREADS)?;
    at_rest(&run)?;
    // A loss, and nothing that is not as it must be.
    let app = bench.app("vectoradd").display().to_string();
    let (folder, output) = profile(bench, "unrecorded", &[], &[&app, "1000", "7"])?;
    same(&text(&output.stderr), output.status.code(), Some(0))?;
    write(&folder.join("blocks.json"), &run.report.to_string())?;
    let output = show(bench, &folder)?;
    let told = text(&output.stdout);
    same(&told, output.status.code(), Some(0))?;
    says(
        &told,
        "threads: not compared in 1 of 1 kernels, as launches of these have no record",
    )?;
    says(&told, "blocks: 3 launches have no record")?;
    Ok("4 of 7 launches have records".to_owned())
}

fn scripts(bench: &Bench) -> PathBuf {
    bench.folder().join("examples/torch")
}

/// It leaves nothing in the folder of the scripts, which is everybody's.
fn python3() -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn python(arguments: &mut Command) -> Result<Output, String> {
    let output = arguments.stdin(Stdio::null()).output();
    output.map_err(|e| format!("python3: {e}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `profile` with a folder for what it finds, and the application.
fn profile(
    bench: &Bench,
    name: &str,
    flags: &[&str],
    app: &[&str],
) -> Result<(PathBuf, Output), String> {
    let folder = bench.scratch(name);
    let mut command = python3();
    command.arg(scripts(bench).join("profile"));
    command.args(["--device", if bench.soft { "soft" } else { "gpu" }]);
    command.args(["--backend", "ptx"]);
    command.arg("--out").arg(&folder).args(flags);
    command.arg("--").args(app);
    Ok((folder, python(&mut command)?))
}

/// The cells of a table's row, of which the first is `name`.
fn row(text: &str, name: &str) -> Result<Vec<String>, String> {
    let line = (text.lines()).find_map(|line| line.trim_start().strip_prefix(name));
    let line = line.ok_or_else(|| format!("no row of `{name}` in {text}"))?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

fn show(bench: &Bench, folder: &PathBuf) -> Result<Output, String> {
    let mut command = python3();
    python(command.arg(scripts(bench).join("report.py")).arg(folder))
}

fn whole(bench: &Bench) -> Told {
    let app = bench.app("reduction").display().to_string();
    let (folder, output) = profile(bench, "whole", &[], &[&app, "20000", "2"])?;
    let told = text(&output.stdout);
    same(&text(&output.stderr), output.status.code(), Some(0))?;
    let cells = row(&told, "reduceSum")?;
    same("cells", cells.len(), 13)?;
    same("launches", cells[0].as_str(), "2")?;
    same("blocks", cells[3].as_str(), "128")?;
    same("MB read", cells[10].as_str(), "0.2")?;
    says(
        &told,
        "outputs: the same, byte for byte, alone and in 3 runs",
    )?;
    says(
        &told,
        "threads: 32,768 began in 2 launches of 1 kernels, as their grids say",
    )?;
    says(&told, "programs for blocks: in 2 of 2 launches")?;
    says(&told, "programs for traffic: in 2 of 2 launches")?;
    // The same again of what was kept; and with what torch.profiler would have counted, and what it
    // would not.
    same("shown again", text(&show(bench, &folder)?.stdout), told)?;
    let alone = std::fs::read_to_string(folder.join("alone.out")).map_err(|e| e.to_string())?;
    write(&folder.join("count.out"), &alone)?;
    let none = show(bench, &folder)?;
    says(&text(&none.stdout), "torch.profiler told of none")?;
    same("status", none.status.code(), Some(1))?;
    write(
        &folder.join("count.json.7"),
        r#"{"reduceSum(int const*, int)": 1}"#,
    )?;
    write(
        &folder.join("count.json.8"),
        r#"{"reduceSum(int const*, int)": 1}"#,
    )?;
    let equal = show(bench, &folder)?;
    says(
        &text(&equal.stdout),
        "launches: 2 of 1 kernels, each as torch.profiler counts them",
    )?;
    same("status", equal.status.code(), Some(0))?;
    write(
        &folder.join("count.json.7"),
        r#"{"reduceSum(int const*, int)": 2}"#,
    )?;
    let differ = show(bench, &folder)?;
    says(
        &text(&differ.stdout),
        "reduceSum(int const*, int): 2, torch.profiler has 3",
    )?;
    same("status", differ.status.code(), Some(1))?;
    Ok("blocks, threads, bytes and launches exact".to_owned())
}

/// The application's ranges stand for operators.
fn operators(bench: &Bench) -> Told {
    let app = bench.app("ranges").display().to_string();
    let (_, output) = profile(bench, "operators", &["--rows", "50"], &[&app])?;
    let told = text(&output.stdout);
    let all = format!("{}{told}", text(&output.stderr));
    same(&all, output.status.code(), Some(0))?;
    // Launches and blocks.
    for (name, launches) in [("step ", "2"), ("forward", "2"), ("loader", "1")] {
        let cells = row(&told, name)?;
        same(
            name,
            (cells[0].as_str(), cells[3].as_str()),
            (launches, launches),
        )?;
    }
    says(&told, "4 launches of graphs are not in the tables")?;
    says(&told, "blocks: 6 NVTX ranges are not in the timeline")?;
    Ok("each with its launches and blocks".to_owned())
}

fn different(bench: &Bench) -> Told {
    let (_, output) = profile(bench, "different", &[], &["sh", "-c", "echo $$"])?;
    let told = text(&output.stdout);
    same("status", output.status.code(), Some(1))?;
    says(
        &told,
        "outputs: differ from the application's alone in: times, blocks, traffic",
    )?;
    says(&told, "threads: no kernel had programs")?;
    Ok("outputs that differ, and that there is no kernel".to_owned())
}

fn broken(bench: &Bench) -> Told {
    let (_, output) = profile(
        bench,
        "failing",
        &[],
        &["sh", "-c", "echo no luck >&2; exit 3"],
    )?;
    same("status", output.status.code(), Some(1))?;
    says(&text(&output.stderr), "no luck")?;
    says(&text(&output.stderr), "the run `alone` ended with 3")?;
    let (_, output) = profile(bench, "none", &[], &[])?;
    same("status", output.status.code(), Some(2))?;
    says(&text(&output.stderr), "profile -- python3 train.py")?;
    let theirs = bench.scratch("theirs");
    std::fs::create_dir_all(&theirs).map_err(|e| e.to_string())?;
    let (_, output) = profile(bench, "theirs", &[], &["true"])?;
    same("status", output.status.code(), Some(1))?;
    says(&text(&output.stderr), "is there and is none of ours")?;
    let output = show(bench, &theirs)?;
    same("status", output.status.code(), Some(2))?;
    says(&text(&output.stderr), "profile.json")?;
    kept(bench)?;
    Ok("with what to do, and nothing of others is removed".to_owned())
}

/// Of a folder that is there, only what an earlier run left goes.
fn kept(bench: &Bench) -> Result<(), String> {
    let ours = r#"{"command": ["true"]}"#;
    // A name that others use, too; more than what is ours; a folder that is named as one of our
    // files.
    for (name, about, others, told) in [
        (
            "theirs2",
            r#"{"name": "me"}"#,
            "times.out",
            "none of ours: name",
        ),
        (
            "mixed",
            ours,
            "thesis.txt",
            "none of ours: `thesis.txt`: move it away",
        ),
        (
            "nested",
            ours,
            "alone.out/thesis.txt",
            "none of ours: `alone.out`:",
        ),
    ] {
        let folder = bench.scratch(name);
        let files = [
            folder.join("profile.json"),
            folder.join("alone.err"),
            folder.join(others),
        ];
        for (path, text) in files.iter().zip([about, "kept", "kept"]) {
            write(path, text)?;
        }
        let (_, output) = profile(bench, name, &[], &["true"])?;
        same("status", output.status.code(), Some(1))?;
        says(&text(&output.stderr), told)?;
        for (path, text) in files.iter().zip([about, "kept", "kept"]) {
            same(
                name,
                std::fs::read_to_string(path).ok().as_deref(),
                Some(text),
            )?;
        }
    }
    let folder = bench.scratch("again");
    let stale = [folder.join("count.out"), folder.join("count.json.7")];
    for path in stale.iter().chain([&folder.join("blocks.timeline")]) {
        write(path, "of before")?;
    }
    write(&folder.join("profile.json"), ours)?;
    let (_, output) = profile(bench, "again", &[], &["echo", "new"])?;
    same(&text(&output.stderr), output.status.code(), Some(0))?;
    same("stale", stale.iter().any(|path| path.exists()), false)?;
    let told = std::fs::read_to_string(folder.join("blocks.out")).map_err(|e| e.to_string())?;
    same("new", told.as_str(), "new\n")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let told = |e| format!("{}: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(told)?;
    }
    std::fs::write(path, text).map_err(told)
}

/// What each warp does there, and what most of them do, orders no memory and reads none but by the
/// one addition: that is what block times cost.
fn machine_code(bench: &Bench) -> Told {
    let mut bytes = 0;
    for (object, program, common) in [
        (
            "torch_blocktimes",
            "begins",
            Some("atom.acq_rel.gpu.global.cas"),
        ),
        (
            "torch_blocktimes",
            "ends",
            Some("atom.relaxed.gpu.global.add.u64"),
        ),
        ("torch_traffic", "begins", None),
    ] {
        let mut command = bench.warpbpf("compile");
        command.args(["--emit", "probe", "--program-name", program]);
        let output = command.arg(bench.object(object)).output();
        let output = output.map_err(|e| format!("warpbpf: {e}"))?;
        same(&text(&output.stderr), output.status.code(), Some(0))?;
        let ptx = text(&output.stdout);
        says(&ptx, ".func")?;
        if let Some(end) = common {
            let (common, _) = ptx.split_once(end).ok_or_else(|| ptx.clone())?;
            for slow in ["ld.relaxed", "ld.acquire", "acq_rel", "fence", "atom."] {
                same(slow, common.contains(slow), false)?;
            }
        }
        bytes += output.stdout.len();
    }
    Ok(format!("{bytes} bytes of PTX"))
}

fn alone(bench: &Bench) -> Told {
    for name in ["test_report.py", "test_hook.py"] {
        let mut command = python3();
        let output = python(command.arg(scripts(bench).join(name)))?;
        same(&text(&output.stderr), output.status.code(), Some(0))?;
        says(&text(&output.stderr), "OK")?;
    }
    Ok("the report's and the hook's".to_owned())
}
