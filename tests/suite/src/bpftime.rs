//! bpftime's published examples, by their interfaces: tools with the section names, map types,
//! helpers, formats and calls of libbpf that those use, tracing an application like theirs. Where
//! all threads write one value, the last wins; what is not known beforehand then is known with one
//! thread.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::loader::{SKIPPED, interrupt, tools};
use crate::process::Owned;
use crate::run::{Bench, Case, TOOLKIT, Told, same, says};

/// Launches, blocks, threads of each.
type Shape = [u64; 3];

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("bpftime: cuda-counter, messages and hashes", counter),
        case("bpftime: kernelretsnoop, 1527 and helper 25", retsnoop),
        case("bpftime: gpu_shared_map, 1503 and 1501", sharedmap),
        case("bpftime: host_map_test, 1512 and 1513", hostmap),
        case(
            "bpftime: threadhist, 1504 and `cuda_` in front",
            kernelshared,
        ),
        case(
            "bpftime: launchlate, a function of the application",
            launchlate,
        ),
        case("bpftime: threadscheduling, the score", scheduling),
        case(
            "bpftime: directly_run_on_gpu, kernels of their own",
            directly,
        ),
        case("bpftime: a loop that a map bounds, and its end", bounded),
        case("bpftime: a loop without a bound in a kernel", bounded_probe),
        case("bpftime: kernel_trace, calls of a stub", stubtrace),
        case(
            "bpftime: launchlate, three maps of 1504 and two clocks",
            launchshared,
        ),
        case(
            "bpftime: launchlate, the application's entry for the runtime",
            launchplt,
        ),
        case("bpftime: a tool's own context", context),
        case("bpftime: CUTLASS's own kernel", cutlass),
        case("bpftime: a tool and an application of one name", apart),
    ]
}

/// What a tool and the application printed.
struct Traced {
    shown: String,
    errors: String,
}

impl Traced {
    /// Messages of programs that begin like this, without the beginning.
    fn messages(&self, beginning: &str) -> Vec<&str> {
        let texts = self.errors.lines().filter_map(|line| {
            let (_, text) = line.split_once(" thread (")?.1.split_once("): ")?;
            text.strip_prefix(beginning)
        });
        texts.collect()
    }

    /// The number behind the last of these words.
    fn last(&self, words: &str) -> Result<u64, String> {
        let found = self.shown.rsplit_once(words).map(|(_, rest)| rest);
        number(found.unwrap_or_default())
            .ok_or_else(|| format!("`{words}` is not in `{}`", self.shown))
    }
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

fn within(what: &str, found: u64, expected: RangeInclusive<u64>) -> Result<(), String> {
    match expected.contains(&found) {
        true => Ok(()),
        false => Err(format!("{what}: {found}, expected {expected:?}")),
    }
}

/// A folder where the application is `./vec_add`, as programs' sections name it.
fn folder(bench: &Bench) -> Result<PathBuf, String> {
    let folder = bench.scratch("bpftime");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let app = folder.join("vec_add");
    if !app.exists() {
        let target = bench.app("vec_add").canonicalize().map_err(failed)?;
        std::os::unix::fs::symlink(target, app).map_err(failed)?;
    }
    Ok(folder)
}

fn words([launches, blocks, threads]: Shape) -> [String; 3] {
    [launches, blocks, threads].map(|n| n.to_string())
}

/// A tool with the application, which must do as it does alone.
fn traced(
    bench: &Bench,
    tool: &Path,
    given: &[&str],
    flags: &[&str],
    shape: Shape,
) -> Result<Traced, String> {
    traced_file(bench, &bench.app("vec_add"), tool, given, flags, shape)
}

/// The same of another form of the application.
fn traced_file(
    bench: &Bench,
    file: &Path,
    tool: &Path,
    given: &[&str],
    flags: &[&str],
    shape: Shape,
) -> Result<Traced, String> {
    let app = words(shape);
    let app: Vec<&str> = app.iter().map(String::as_str).collect();
    let alone = bench.plain("vec_add", &app)?;
    let absolute = |path: &Path| {
        path.canonicalize()
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut command = bench.warpbpf("loader");
    command
        .args(flags)
        .arg(absolute(tool)?)
        .args(given)
        .arg("--");
    command
        .arg(absolute(file)?)
        .args(app)
        .current_dir(folder(bench)?);
    if !bench.soft
        && file
            .file_name()
            .is_some_and(|name| name == "vec_add-shared")
    {
        // It loads the runtime that it was built beside.
        let others = std::env::var("LD_LIBRARY_PATH").ok();
        let folders = [TOOLKIT.to_owned()].into_iter().chain(others);
        let folders: Vec<String> = folders.collect();
        command.env("LD_LIBRARY_PATH", folders.join(":"));
    }
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let traced = Traced {
        shown: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    same(&traced.errors, output.status.code(), Some(0))?;
    says(&traced.shown, String::from_utf8_lossy(&alone).trim_end())?;
    Ok(traced)
}

/// All forms of a tool.
fn each(bench: &Bench, name: &str, check: impl Fn(&Path) -> Result<String, String>) -> Told {
    let tools = tools(bench, name);
    let mut said = SKIPPED.to_owned();
    for tool in &tools {
        said = check(tool).map_err(|error| format!("{}: {error}", tool.display()))?;
    }
    Ok(said)
}

fn counter(bench: &Bench) -> Told {
    each(bench, "cudacounter", |tool| {
        // One thread: all is exact, and the times that it was told of are those that it kept.
        let run = traced(bench, tool, &[], &[], [7, 1, 1])?;
        same("calls", run.last("\tcalls: ")?, 7)?;
        same("entered", run.messages("Entered block 0 at ").len(), 7)?;
        let times = run.messages("Exited block 0 after ");
        same("exited", times.len(), 7)?;
        let sum: u64 = times.iter().filter_map(|text| number(text)).sum();
        same("time", run.last("\ttime: ")?, sum)?;
        same("left", run.last("entered and not left: ")?, 0)?;
        // Many: threads that find no count insert one, and the first of them wins.
        let run = traced(bench, tool, &[], &[], [3, 2, 16])?;
        within("calls", run.last("\tcalls: ")?, 65..=96)?;
        same("entered", run.messages("Entered block ").len(), 96)?;
        let exited = run.messages("Exited block ").len();
        let found = (run.messages("Exited block ").iter())
            .filter(|text| text.contains(" ns, entered at "))
            .count();
        same("exited", exited, 96)?;
        within("of them found their start", found as u64, 6..=96)?;
        within("left", run.last("entered and not left: ")?, 0..=2)?;
        Ok(format!(
            "7 calls, {sum} ns; 96 threads, {found} with a start"
        ))
    })
}

fn retsnoop(bench: &Bench) -> Told {
    each(bench, "kernelretsnoop", |tool| {
        let run = traced(bench, tool, &[], &[], [3, 2, 40])?;
        let mut times: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        for line in run.shown.lines() {
            let Some(rest) = line.strip_prefix("Thread (") else {
                continue;
            };
            let numbers: Vec<u64> = (rest.split(|c: char| !c.is_ascii_digit()))
                .filter_map(|digits| digits.parse().ok())
                .collect();
            let [block, thread, time] = numbers[..] else {
                return Err(format!("`{line}` has not three numbers"));
            };
            times.entry((block, thread)).or_default().push(time);
        }
        let expected: Vec<(u64, u64)> = (0..2).flat_map(|b| (0..40).map(move |t| (b, t))).collect();
        same(
            "threads",
            times.keys().copied().collect::<Vec<_>>(),
            expected,
        )?;
        for (thread, times) in &mut times {
            times.sort_unstable();
            times.dedup();
            same(&format!("times of {thread:?}"), times.len(), 3)?;
            within("the first time", times[0], 1..=u64::MAX)?;
        }
        same("strange", run.shown.contains("strange"), false)?;
        same("all", run.last("Total events collected: ")?, 240)?;
        says(
            &run.shown,
            "\n240 of 56 bytes in 256 slots for 1024 threads: 240 collected, 0 pending, 0 lost\n",
        )?;
        Ok("80 threads, 3 records of each".into())
    })
}

fn sharedmap(bench: &Bench) -> Told {
    each(bench, "gpusharedmap", |tool| {
        let run = traced(bench, tool, &[], &[], [7, 1, 1])?;
        same("counter", run.last("counter[0]=")?, 7)?;
        same("calls", run.last("pid=set calls: ")?, 7)?;
        let run = traced(bench, tool, &[], &[], [3, 1, 10])?;
        let counter = run.last("counter[0]=")?;
        within("counter", counter, 3..=30)?;
        within("calls", run.last("pid=set calls: ")?, 3..=30)?;
        for message in ["gpu_update", "gpu_update_kprobe"] {
            let count = run
                .messages(message)
                .iter()
                .filter(|rest| rest.is_empty())
                .count();
            same(message, count, 3)?;
        }
        Ok(format!("7 of one thread, {counter} of ten"))
    })
}

fn hostmap(bench: &Bench) -> Told {
    each(bench, "hostmap", |tool| {
        let bench = &bench.with(&[("BPFTIME_MAP_GPU_THREAD_COUNT", "64")]);
        let run = traced(bench, tool, &["64"], &[], [3, 2, 32])?;
        for line in [
            "key=0 (call_count): total=192 (from 64 threads)\n",
            "key=1 (exec_time): total=1 (from 1 threads)\n",
            // Two blocks of 0 to 31.
            "key=2 (thread_id): total=992 (from 62 threads)\n",
        ] {
            says(&run.shown, line)?;
        }
        for key in 0..10 {
            let threads = (0..32).filter(|thread| thread % 10 == key).count() as u64;
            within(
                "shared",
                run.last(&format!("shared[{key}]="))?,
                3..=threads * 6,
            )?;
        }
        let of_each = |beginning: &str, end: &str| {
            let messages = run.messages("Thread (");
            let count = |thread: u64| {
                let text = format!("{thread},0,0) {beginning}");
                let its = messages
                    .iter()
                    .filter(|m| m.starts_with(&text) && m.ends_with(end));
                its.count()
            };
            (0..32).map(count).collect::<Vec<_>>()
        };
        same("entered", of_each("entered kernel, ts=", ""), vec![6; 32])?;
        same(
            "exited",
            of_each("exited kernel, duration=", " ns"),
            vec![6; 32],
        )?;
        let run = traced(bench, tool, &["64"], &[], [5, 1, 1])?;
        says(&run.shown, "key=0 (call_count): total=5 (from 1 threads)\n")?;
        same("shared by one", run.last("shared[0]=")?, 5)?;
        same("shared by none", run.last("shared[1]=")?, 0)?;
        Ok("192 calls of 64 threads, 384 messages".into())
    })
}

fn kernelshared(bench: &Bench) -> Told {
    each(bench, "kernelshared", |tool| {
        let run = traced(bench, tool, &[], &[], [3, 2, 5])?;
        says(&run.shown, "value(0)=30 value(1)=3\n")?;
        let triggered = run.errors.matches("triggered").count();
        same("messages of the CPU's program", triggered, 3)?;
        Ok("value(0)=30 value(1)=3".into())
    })
}

fn launchlate(bench: &Bench) -> Told {
    each(bench, "launchlate", |tool| {
        let run = traced(bench, tool, &[], &[], [3, 2, 32])?;
        for line in [
            "Monitoring CUDA kernel launch latency\n",
            "Total samples: 192, of threads 192, early 0\n",
            ", returns 3, failures 0, events 3, strange 0\n",
        ] {
            says(&run.shown, line)?;
        }
        same("launches", run.last("launches ")?, 3)?;
        Ok("3 launches, 192 samples".into())
    })
}

/// One launch, of which each thread's place is there: the histogram is that of the places, and the
/// score that of the histogram.
fn scheduling(bench: &Bench) -> Told {
    scheduled(bench, "mapping")?;
    scheduled(bench, "scheduling")
}

fn scheduled(bench: &Bench, name: &str) -> Told {
    each(bench, name, |tool| {
        // Two histograms and a map of places are more than the default of one invocation.
        let flags = &["--budget", "8192"];
        let run = traced(bench, tool, &["3"], flags, [3, 4, 256])?;
        says(
            &run.shown,
            "threads 1024, calls 3072, of warps 3072, strange 0\n",
        )?;
        let run = traced(bench, tool, &["1"], flags, [1, 6, 64])?;
        let counts: BTreeMap<u64, u64> = (run.shown.lines())
            .filter_map(|line| {
                let (sm, rest) = line.strip_prefix("  SM ")?.split_once(": ")?;
                Some((sm.parse().ok()?, number(rest)?))
            })
            .collect();
        same("threads", counts.values().sum::<u64>(), 384)?;
        let whole = counts.values().all(|threads| threads % 64 == 0);
        same("a block is on one multiprocessor", whole, true)?;
        let used = counts.keys().last().map_or(1, |last| last + 1);
        let even = 384 / used;
        let off: u64 = (0..used)
            .map(|sm| counts.get(&sm).copied().unwrap_or(0).abs_diff(even))
            .sum();
        let score = 1000 - 1000 * off / (2 * 384);
        says(
            &run.shown,
            &format!("Load Balance Score: {score}, of the last places {score}\n"),
        )?;
        says(
            &run.shown,
            "threads 384, calls 384, of warps 384, strange 0\n",
        )?;
        Ok(format!("{} multiprocessors, {score}", counts.len()))
    })
}

/// The tool runs its programs thread by thread on the CPU; here the same ones are kernels, with all
/// threads at once.
fn directly(bench: &Bench) -> Told {
    let object = bench.folder.join("libbpf/directly.bpf.o");
    if !object.exists() {
        return Ok(SKIPPED.into());
    }
    let (status, report, errors) = launched(bench, &object, &["--bound-loops"])?;
    same(&errors, status, Some(0))?;
    let process = &report["processes"][0];
    same("stopped", &process["stopped"], &Value::Null)?;
    let names: Vec<&str> = (process["kernels"].as_array().into_iter().flatten())
        .filter_map(|kernel| kernel["name"].as_str())
        .collect();
    let expected = ["cuda__run", "cuda__fill", "cuda__vec_add", "cuda__gemm"];
    same("kernels", names, expected.to_vec())?;
    let values = |name: &str| -> Result<BTreeMap<u64, i64>, String> {
        let maps = process["maps"].as_array().into_iter().flatten();
        let map = maps.into_iter().find(|map| map["name"] == name);
        let entries = map
            .and_then(|map| map["entries"].as_array())
            .ok_or(format!("no map `{name}`"))?;
        let entry = |e: &Value| Some((e["key"].as_u64()?, e["value"].as_i64()?));
        Ok(entries.iter().filter_map(entry).collect())
    };
    let messages = process["messages"].as_array().map_or(0, Vec::len);
    same("runs", values("runs")?, [(0, 1024)].into())?;
    within("messages that are kept", messages as u64, 1..=1024)?;
    // Entries that are zero are left out.
    let sums = (1..32).map(|i| (i, 4 * i as i64)).collect();
    same("vec_C", values("vec_C")?, sums)?;
    let element = |key: u64| -> i64 {
        let (row, column) = (key / 32, key % 32);
        let product = |k: u64| ((row * 32 + k) % 5 * ((k * 32 + column) % 3)) as i64;
        -(0..32).map(product).sum::<i64>() * 65536
    };
    let product = (0..1024)
        .map(|key| (key, element(key)))
        .filter(|(_, value)| *value != 0);
    same("gemm_C", values("gemm_C")?, product.collect())?;
    Ok("1,024 runs, 32 sums, a product of 32 × 32".into())
}

/// What a program of kernels that was launched left: standard output as JSON, and standard error.
fn launched(
    bench: &Bench,
    object: &Path,
    flags: &[&str],
) -> Result<(Option<i32>, Value, String), String> {
    let mut command = bench.warpbpf("launch");
    command.args(["--json", "--grid", "1", "--block", "32,32"]);
    let output = command
        .args(flags)
        .arg(object)
        .output()
        .map_err(|e| e.to_string())?;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.code(), report, errors))
}

/// Refused without the option; with it exact, or ended and counted where the budget is too small,
/// by each engine alike.
fn bounded(bench: &Bench) -> Told {
    let object = bench.folder.join("libbpf/directly.bpf.o");
    let tools = tools(bench, "directly");
    let Some(tool) = tools.last() else {
        return Ok(SKIPPED.into());
    };
    let (status, report, _) = launched(bench, &object, &[])?;
    same("refused", status, Some(1))?;
    let why = report["error"].as_str().unwrap_or_default();
    says(why, "error[loop-budget]")?;
    says(why, "`--bound-loops`")?;
    let verified = |flags: &[&str]| {
        let mut command = bench.warpbpf("verify");
        let output = command
            .args(flags)
            .arg("--bound-loops")
            .arg(&object)
            .output();
        let output = output.map_err(|e| e.to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let report: Value = serde_json::from_str(&verified(&["--json"])?).unwrap_or_default();
    let mut programs = report["programs"].as_array().into_iter().flatten();
    let gemm = programs.find(|program| program["program"] == "cuda__gemm");
    let bounded = gemm.map_or(&Value::Null, |gemm| &gemm["bounded"]);
    same("loops", bounded["loops"].as_array().map(Vec::len), Some(1))?;
    let rounds = bounded["rounds"].as_u64().unwrap_or(0);
    // It goes round 32 times, and 4,096 instructions are no hundred rounds.
    within("rounds", rounds, 32..=99)?;
    let told = format!("): ended after {rounds} rounds, which is counted\n");
    says(&verified(&[])?, &told)?;
    let small = &["--bound-loops", "--budget", "1500"][..];
    let (_, report, errors) = launched(bench, &object, small)?;
    let process = &report["processes"][0];
    let ended = serde_json::json!([{ "program": "cuda__gemm", "times": 1024 }]);
    same(&errors, &process["stopped"], &ended)?;
    let maps = process["maps"].as_array().into_iter().flatten();
    let names: Vec<&str> = maps
        .clone()
        .filter_map(|map| map["name"].as_str())
        .collect();
    same(
        "maps",
        names.iter().any(|name| name.contains("stops")),
        false,
    )?;
    let product = maps.clone().find(|map| map["name"] == "gemm_C");
    let entries = product.and_then(|map| map["entries"].as_array());
    same("entries", entries.map(Vec::len), Some(0))?;
    let mut command = bench.warpbpf("launch");
    command
        .args(["--grid", "1", "--block", "32,32"])
        .args(small);
    let output = (command.arg(&object).output()).map_err(|e| e.to_string())?;
    let ended = "\nwarning: program `cuda__gemm` was ended 1024 times in a loop that used up the budget (--bound-loops); what was still to be done is missing: raise the budget (--budget N)\n";
    says(&String::from_utf8_lossy(&output.stderr), ended)?;
    // A tool that runs it thread by thread on the CPU is told the same.
    let mut command = bench.warpbpf("loader");
    command.args(small).arg(tool).arg("--");
    command.arg(bench.app("vectoradd")).args(["1000", "3"]);
    let output = command.output().map_err(|e| e.to_string())?;
    let (shown, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    says(&shown, "VecAdd C[999]=3996, wrong 0\n")?;
    says(&shown, "GEMM C[0]=0, wrong ")?;
    let told = "warpbpf: program `cuda__gemm` was ended 1 time in a loop that used up the budget (--bound-loops); what was still to be done is missing: raise the budget (--budget N)\n";
    same("messages", errors.matches(told).count(), 1024)?;
    // So it is told of the one that was a probe in the application.
    let told = told.replace("gemm` was ended 1 time", "walk` was ended 3072 times");
    same("the probe", errors.matches(&told).count(), 1)?;
    Ok("refused, exact, or ended 1,024 times".into())
}

/// In an application's kernel: threads whose loop is too long end there, and only they.
fn bounded_probe(bench: &Bench) -> Told {
    let app = ["1000", "3"];
    let refused = bench.probed(&[], &bench.object("bounded"), &bench.app("vectoradd"), &app)?;
    same("refused", refused.output.status.code(), Some(1))?;
    let threads = 3 * 4 * 256u64;
    for (rounds, ended) in [("8", 0), ("1000000000000", 3 * 4 * 5)] {
        let set = format!("rounds={rounds}");
        let flags = ["--bound-loops", "--set", &set];
        let run = bench.both_with(&flags, "bounded", "vectoradd", &app)?;
        let expected = threads - ended + threads * 1_000_000;
        same("done", run.value("done", 0)?, expected)?;
        let stopped = &run.process()["stopped"];
        match ended {
            0 => same("stopped", stopped, &Value::Null)?,
            _ => {
                let one = serde_json::json!([{ "program": "walks", "times": ended }]);
                same("stopped", stopped, &one)?;
            }
        }
        same("its map", run.map("wbpf.stops.walks").is_err(), true)?;
    }
    Ok("60 of 3,072 threads ended".into())
}

fn stubtrace(bench: &Bench) -> Told {
    each(bench, "stubtrace", |tool| {
        for [launches, blocks, threads] in [[1, 32, 128], [3, 2, 34]] {
            let app = words([launches, blocks, threads]);
            let app: Vec<&str> = app.iter().map(String::as_str).collect();
            let alone = bench.plain("stub", &app)?;
            // A block's first thread: once, once more as its number in the grid is even, and once
            // in the second kernel.
            let records = 3 * launches;
            let mut command = bench.warpbpf("loader");
            command
                .arg(tool)
                .args([blocks.to_string(), records.to_string()])
                .arg("--")
                .arg(bench.app("stub"))
                .args(&app);
            let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            same(&errors, output.status.code(), Some(0))?;
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            says(&shown, String::from_utf8_lossy(&alone).trim_end())?;
            let n = blocks * threads;
            let calls = launches * (n + n / 2 + n);
            let events = blocks * records;
            let line = format!("total events: {events}, calls {calls}, strange 0\n");
            says(&shown, &line)?;
        }
        Ok("32 blocks of 128 threads, and 2 of 34".into())
    })
}

fn cutlass(bench: &Bench) -> Told {
    each(bench, "cutlass", |tool| {
        let app = ["4", "128"];
        let alone = bench.plain("cutlass", &app)?;
        let alone = String::from_utf8_lossy(&alone).into_owned();
        same(
            "alone",
            alone.trim_end(),
            "cutlass: 4 launches, 16384 elements, wrong 0",
        )?;
        let mut command = bench.warpbpf("loader");
        command
            .arg(tool)
            .arg("--")
            .arg(bench.app("cutlass"))
            .args(app);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same(&errors, output.status.code(), Some(0))?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        says(&shown, alone.trim_end())?;
        // A block of 256 threads for all of it.
        says(&shown, "CUTLASS launches: 4, threads 1024\n")?;
        Ok("4 launches, 1,024 threads, the same product".into())
    })
}

fn launchshared(bench: &Bench) -> Told {
    each(bench, "launchshared", |tool| {
        // A GPU's clock is the time of day.
        let run = traced(bench, tool, &["-", ""], &[], [3, 2, 32])?;
        says(&run.shown, "Monitoring CUDA kernel launch latency\n")?;
        says(&run.shown, ", last launch seen\n")?;
        let (samples, early) = (run.last("Total samples: ")?, run.last(", early ")?);
        same("samples", samples + early, 192)?;
        // How well a GPU's clock is set is up to its driver.
        if bench.soft {
            same("early", early, 0)?;
        }
        Ok("192 samples".into())
    })
}

/// A probe at the entry through which the application calls the runtime, as in bpftime's newest
/// launchlate. It needs an application with the runtime beside it.
fn launchplt(bench: &Bench) -> Told {
    let runtime = Path::new(TOOLKIT).join("libcudart.so.13");
    if !bench.soft && !runtime.exists() {
        return Ok("skipped: no shared runtime of CUDA 13".into());
    }
    let file = bench.folder().join("apps/vec_add-shared");
    let file = (file.canonicalize()).map_err(|e| format!("{}: {e}", file.display()))?;
    let named = file.display().to_string();
    each(bench, "launchplt", |tool| {
        let run = |given: &[&str], launches| {
            let given = [&[&*named], given].concat();
            traced_file(bench, &file, tool, &given, &[], [launches, 2, 32])
        };
        let kernel = "_Z9vectorAddPKfS0_Pf";
        let counts = run(&[kernel], 3)?;
        says(
            &counts.shown,
            "calls 3, launches 3, kept 3, full 0, without a target 0\n\
             entries 3, matched 3, unmatched 0, wrong 0, sure and unsure 3\n\
             strange 0\n",
        )?;
        // More than there is room for.
        let counts = run(&[kernel], 70)?;
        says(
            &counts.shown,
            "calls 70, launches 70, kept 64, full 6, without a target 0\n\
             entries 70, matched 64, unmatched 6, wrong 0, sure and unsure 64\n\
             strange 0\n",
        )?;
        // None is of that function.
        let counts = run(&["main"], 3)?;
        says(
            &counts.shown,
            "calls 3, launches 0, kept 0, full 0, without a target 0\n\
             entries 3, matched 0, unmatched 3, ",
        )?;
        let refused = run(&[kernel, "first"], 3)?;
        says(&refused.errors, "program `on_launch` does not run at `")?;
        says(
            &refused.errors,
            ": that is no entry of a procedure linkage table that jumps to a function, but `push ",
        )?;
        says(&refused.shown, "calls 0, launches 0, ")?;
        let refused = run(&[kernel, "end"], 3)?;
        says(
            &refused.errors,
            ": that is an entry of a procedure linkage table, which has no end; take the function that it is for",
        )?;
        says(&refused.shown, "calls 0, launches 0, ")?;
        Ok("73 launches, 67 pairs".into())
    })
}

/// A tool that uses the driver has a context if it has maps of the GPU's, once; and what the driver
/// waits for in its process tells nothing of the tool, which shows all before it is interrupted.
fn context(bench: &Bench) -> Told {
    let at_once = ["asked: not loaded", "loaded: a context", "put away: none"];
    let in_between = [
        "loaded: none",
        "an array: none",
        "a map: a context",
        "put away: none",
    ];
    let orders: [(_, &[_]); 3] = [
        ("first", &at_once),
        ("later", &in_between),
        ("other", &at_once),
    ];
    each(bench, "context", |tool| {
        for (order, steps) in orders {
            let mut command = bench.warpbpf("loader");
            command.args(["--linger", "20"]).arg(tool).arg(order);
            command.arg(bench.folder().join("libbpf/libcuda.so.waits"));
            command.arg("--");
            command.arg(bench.app("vectoradd")).args(["1000", "3"]);
            let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            same(&errors, output.status.code(), Some(0))?;
            let told =
                "warpbpf: the tool uses the CUDA driver itself, and there is no context for it: ";
            let times = usize::from(order == "other");
            same("messages", errors.matches(told).count(), times)?;
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            let of_tool = |line: &&str| line.contains(": ") && !line.contains(',');
            let said: Vec<&str> = shown.lines().filter(of_tool).collect();
            same(order, said, steps.to_vec())?;
            let counts = shown
                .lines()
                .filter_map(|line| line.strip_prefix("threads "));
            let counts: Vec<&str> = counts.collect();
            same("the last round", counts.last(), Some(&"3072"))?;
            // It waits for its own round to come, and not until `--linger` is over, which are 28.
            let after = counts.iter().filter(|count| **count == "3072").count();
            within("rounds with all", after as u64, 1..=20)?;
        }
        Ok("once, in three orders; 3,072 threads".into())
    })
}

/// The two are started by different commands, and all that they share is bpftime's variable.
fn apart(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "counter").pop() else {
        return Ok(SKIPPED.into());
    };
    let name = format!("suite_{}", std::process::id());
    let mut command = bench.warpbpf("loader");
    command.arg(&tool).env("BPFTIME_GLOBAL_SHM_NAME", &name);
    command
        .env("BPFTIME_PTXPASS_LIBRARIES", "/a/pass.so")
        .env("BPFTIME_SM_ARCH", "sm_90");
    let child = Owned::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut child = child.map_err(|e| format!("warpbpf: {e}"))?;
    let told = apart_with(bench, &mut child, &name)?;
    interrupt(child.id());
    let ended = child.wait().map_err(|e| e.to_string())?;
    same("status", ended.code(), Some(0))?;
    Ok(told)
}

fn apart_with(bench: &Bench, child: &mut Child, name: &str) -> Told {
    let errors = child.stderr.take().ok_or("no standard error")?;
    let (mut variables, mut said) = (Vec::new(), Vec::new());
    let wanted = if bench.soft { 3 } else { 2 };
    // It lives on: the tool may have something to say later.
    let mut lines = BufReader::new(errors).lines();
    for line in lines.by_ref() {
        let line = line.map_err(|e| e.to_string())?;
        if let Some((name, value)) = line.trim().split_once('=')
            && line.starts_with("  ")
        {
            variables.push((name.to_owned(), value.to_owned()));
            if variables.len() == wanted {
                break;
            }
        } else {
            said.push(line);
        }
    }
    let said = said.join("\n");
    says(
        &said,
        "`BPFTIME_PTXPASS_LIBRARIES` is set, which is not served: ",
    )?;
    same(
        "a variable that means nothing here",
        said.contains("BPFTIME_SM_ARCH"),
        false,
    )?;
    let first = (variables.first().cloned()).ok_or("no variable was said")?;
    same(
        "how they find each other",
        first,
        ("BPFTIME_GLOBAL_SHM_NAME".to_owned(), name.to_owned()),
    )?;
    // Another name is another tool's.
    for (name, expected) in [("nobody", None), (name, Some("returns pid=set 3072"))] {
        let mut command = Command::new(bench.app("vectoradd"));
        command.args(["1000", "3"]).envs(variables.iter().cloned());
        command.env("BPFTIME_GLOBAL_SHM_NAME", name);
        let output = command.output().map_err(|e| e.to_string())?;
        same("the application", output.status.code(), Some(0))?;
        let Some(expected) = expected else { continue };
        // Only lent: the tool must not be without a reader when it is interrupted.
        let shown = child.stdout.as_mut().ok_or("no standard output")?;
        let mut lines = BufReader::new(shown).lines().take(1000);
        let found = lines.find(|line| line.as_ref().is_ok_and(|line| line == expected));
        found
            .ok_or(format!("`{expected}` was never shown"))?
            .map_err(|e| e.to_string())?;
    }
    Ok("BPFTIME_GLOBAL_SHM_NAME was enough".into())
}
