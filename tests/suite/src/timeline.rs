//! When the device did what: the phases of an asynchronous pipeline, against what the application's
//! own events say.

use serde_json::Value;

use crate::graphs::by_node;
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("a timeline tells the phases of a pipeline apart", phases),
        case("a timeline goes with programs", with_programs),
        case("a timeline leaves captures alone", captured),
        case("a timeline tells the kernels of graphs", graph_nodes),
        case("a timeline tells graphs without programs", graphs_alone),
        case(
            "a timeline tells no launch that no program is told",
            graphs_untold,
        ),
        case("a timeline has stacks", stacks),
        case("a timeline that cannot be written is said", unwritten),
    ]
}

const ROUNDS: usize = 6;
const STREAMS: usize = 3;
/// On a GPU, by how much a duration may be off: 20 µs and a twentieth. Between two events of the
/// application there are two more of ours, each of which the device takes a few microseconds for.
const SLACK_US: f64 = 20.0;
const SLACK: f64 = 0.05;

/// An operation on the device.
struct Op {
    id: u64,
    name: String,
    stream: u64,
    begin: f64,
    end: f64,
}

/// Operations in a file, in the order in which they were asked for.
fn operations(file: &Value) -> Vec<Op> {
    let events = file["traceEvents"].as_array().cloned().unwrap_or_default();
    let is_op = |event: &&Value| event["ph"] == "X" && event["cat"] != "call";
    let mut all: Vec<Op> = events
        .iter()
        .filter(is_op)
        .map(|event| {
            let begin = event["ts"].as_f64().unwrap_or(-1.0);
            Op {
                id: event["args"]["id"].as_u64().unwrap_or(0),
                name: event["name"].as_str().unwrap_or_default().to_owned(),
                stream: event["tid"].as_u64().unwrap_or(0),
                begin,
                end: begin + event["dur"].as_f64().unwrap_or(-1.0),
            }
        })
        .collect();
    all.sort_by_key(|op| op.id);
    all
}

fn read(path: &std::path::Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

fn arguments(bench: &Bench, times: &str) -> [String; 5] {
    let (words, cycles) = if bench.soft {
        (4096, 200)
    } else {
        (8 << 20, 1_000_000)
    };
    [
        ROUNDS.to_string(),
        STREAMS.to_string(),
        words.to_string(),
        cycles.to_string(),
        times.to_owned(),
    ]
}

fn phases(bench: &Bench) -> Told {
    let bench = &bench.with(&[("WARPBPF_SOFT_ASYNC", "1")]);
    let (times, trace) = (bench.scratch("times"), bench.scratch("trace.json"));
    let arguments = arguments(bench, &times.display().to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let plain = bench.plain("pipeline", &arguments)?;
    let mut command = bench.warpbpf("run");
    command
        .arg("--timeline")
        .arg(&trace)
        .arg("--")
        .arg(bench.app("pipeline"));
    let output = command
        .args(&arguments)
        .output()
        .map_err(|e| format!("warpbpf: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.stdout != plain {
        return Err(format!("the application's output differs; {errors}"));
    }
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let process = &file["otherData"]["processes"][0];
    let error_us = process["device_error_ns"].as_f64().unwrap_or(f64::MAX) / 1e3;
    let none = ["crowded", "captured", "refused"].map(|why| process["untimed"][why].as_u64());
    same("untimed", none, [Some(0); 3])?;
    // The first kernel comes before all rounds.
    let all = operations(&file);
    let all: Vec<&Op> = all
        .iter()
        .skip_while(|op| op.name != "grow")
        .skip(1)
        .collect();
    same("operations", all.len(), ROUNDS * STREAMS * 4)?;
    let mut lanes: Vec<Vec<&Op>> = Vec::new();
    for op in &all[..STREAMS * 4] {
        if !lanes.iter().any(|lane| lane[0].stream == op.stream) {
            lanes.push(
                all.iter()
                    .copied()
                    .filter(|other| other.stream == op.stream)
                    .collect(),
            );
        }
    }
    same("streams", lanes.len(), STREAMS)?;
    let (mut worst, mut sum) = (0f64, 0f64);
    for line in read(&times)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [lane, round, phase, ms] = words[..] else {
            return Err(format!("`{line}`"));
        };
        let number = |text: &str| text.parse::<usize>().map_err(|e| e.to_string());
        let at = ["in", "fill", "run", "out"]
            .iter()
            .position(|name| *name == phase);
        let ops = &lanes[number(lane)?];
        let place = number(round)? * 4 + at.ok_or("no such phase")?;
        let op = ops
            .get(place)
            .ok_or_else(|| format!("no operation for `{line}`"))?;
        let name = [
            "cuMemcpyHtoDAsync",
            "cuMemsetD",
            "grow",
            "cuMemcpyDtoHAsync",
        ][place % 4];
        // The runtime may leave it to the driver which way a copy goes.
        let any_way = matches!(place % 4, 0 | 3) && op.name == "cuMemcpyAsync";
        if !op.name.starts_with(name) && !any_way {
            return Err(format!("`{}` for `{line}`", op.name));
        }
        if place > 0 && ops[place - 1].end > op.begin + 2.0 * error_us + 1.0 {
            return Err(format!(
                "`{line}` begins before what is in front of it ends"
            ));
        }
        let own = ms.parse::<f64>().map_err(|e| e.to_string())? * 1e3;
        let ours = op.end - op.begin;
        // Our events are between the application's; distances of events are numbers of 24 bits.
        if ours > own + 2.0 || ours < 0.0 {
            return Err(format!("{ours} µs, of which the application sees `{line}`"));
        }
        if !bench.soft && own - ours > SLACK_US + SLACK * own {
            return Err(format!(
                "only {ours} µs, where the application sees `{line}`"
            ));
        }
        worst = worst.max(own - ours);
        sum += ours;
    }
    if sum <= 0.0 {
        return Err("no operation took any time".to_owned());
    }
    Ok(format!(
        "{} operations, {sum:.0} µs, at most {worst:.1} µs less than the application's events; ± {error_us:.1} µs",
        all.len()
    ))
}

fn with_programs(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    let run = bench.both_with(
        &["--timeline", &path],
        "launchcount",
        "vectoradd",
        &["100000", "10"],
    )?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let launches: Vec<u64> = (file["traceEvents"].as_array().into_iter().flatten())
        .filter(|event| event["cat"] == "kernel")
        .filter_map(|event| event["args"]["launch_id"].as_u64())
        .collect();
    same("launches", launches, (1..=10).collect())?;
    says(&run.remarks(), "operations, ")?;
    Ok("10 launches with the numbers that programs have".to_owned())
}

fn captured(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    bench.both_with(&["--timeline", &path], "scopes", "graphs", &[])?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let untimed = &file["otherData"]["processes"][0]["untimed"];
    // Each launch of `graphs.cu` that goes into a stream while it is captured, and 3 waits by which
    // another stream comes to be.
    same(
        "captured operations",
        untimed["captured"].as_u64(),
        Some(16),
    )?;
    let graphs = operations(&file)
        .iter()
        .filter(|op| op.name == "cuGraphLaunch")
        .count();
    same("launches of graphs", graphs, 87)?;
    Ok(format!(
        "{graphs} launches of graphs are timed, 16 operations were captured"
    ))
}

/// How often tests/apps/graphs.cu launches each graph, in the order in which it instantiates them.
const LAUNCHES: [u64; 12] = [8, 2, 1, 4, 2, 1, 2, 16, 16, 16, 16, 3];

/// Lists of kernels in a file: graph and kernels. Each launch of a graph has one of its own
/// graph's, and launches are numbered.
fn lists(file: &Value) -> Result<Vec<(u64, Vec<Value>)>, String> {
    let events = file["traceEvents"].as_array().cloned().unwrap_or_default();
    let process = &file["otherData"]["processes"][0];
    let mut lists = Vec::new();
    for (at, list) in process["graphs"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        same(
            "a list's number",
            list["list"].as_u64(),
            Some(at as u64 + 1),
        )?;
        let graph = list["graph"].as_u64().ok_or("a list without a graph")?;
        lists.push((
            graph,
            list["kernels"].as_array().cloned().unwrap_or_default(),
        ));
    }
    let mut numbers = vec![Vec::new(); LAUNCHES.len()];
    for event in events.iter().filter(|event| event["cat"] == "graph") {
        let args = &event["args"];
        let number = |what: &str| {
            args[what]
                .as_u64()
                .ok_or(format!("no `{what}` in `{args}`"))
        };
        let (graph, launch, list) = (
            number("graph")?,
            number("graph_launch")?,
            number("kernel_list")?,
        );
        let of = lists.get(list as usize - 1).map(|(graph, _)| *graph);
        same("the graph of a list", of, Some(graph))?;
        let told = numbers.get_mut(graph as usize - 1);
        told.ok_or(format!("graph {graph}"))?.push(launch);
    }
    for (at, (numbers, count)) in numbers.iter_mut().zip(LAUNCHES).enumerate() {
        numbers.sort_unstable();
        let expected: Vec<u64> = (1..=count).collect();
        same(
            &format!("launches of graph {}", at + 1),
            &*numbers,
            &expected,
        )?;
    }
    // The kernels are said once, at the first launch of their list.
    let shown = |list: u64| {
        let calls = events.iter().filter(|event| event["cat"] == "call");
        let of_list = calls.filter(|call| call["args"]["kernel_list"].as_u64() == Some(list));
        let mut calls: Vec<&Value> = of_list.map(|call| &call["args"]).collect();
        calls.sort_unstable_by_key(|args| args["id"].as_u64());
        let with = |args: &&Value| args["kernels"].is_array();
        calls.iter().map(with).collect::<Vec<bool>>()
    };
    for list in 1..=lists.len() as u64 {
        let shown = shown(list);
        let mut expected = vec![false; shown.len().max(1)];
        expected[0] = true;
        same(
            &format!("kernels at launches of list {list}"),
            shown,
            expected,
        )?;
    }
    same("unlisted", process["graphs_unlisted"].as_u64(), Some(0))?;
    Ok(lists)
}

/// Lists of each graph.
fn lists_of(lists: &[(u64, Vec<Value>)]) -> Vec<usize> {
    let of = |graph: u64| lists.iter().filter(|(g, _)| *g == graph).count();
    (1..=LAUNCHES.len() as u64).map(of).collect()
}

/// Names of the kernels in the first list of a graph. On a GPU in an order that a test can know.
fn names(bench: &Bench, lists: &[(u64, Vec<Value>)], graph: u64) -> Vec<String> {
    let list = lists.iter().find(|(g, _)| *g == graph);
    let name = |kernel: &Value| kernel["kernel"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = list
        .into_iter()
        .flat_map(|(_, k)| k.iter().map(name))
        .collect();
    if !bench.soft {
        names.sort_unstable();
    }
    names
}

fn kernels(bench: &Bench, lists: &[(u64, Vec<Value>)]) -> Result<(), String> {
    let mut expected: Vec<(u64, Vec<&str>)> = vec![
        (1, vec!["grow"; 2]),
        (3, vec!["grow"; 3]),
        (4, vec!["grow", "mix", "grow"]),
        (5, vec!["grow", "mix", "grow", "grow"]),
        (8, vec!["add"; 3]),
        (12, vec!["sealed"]),
    ];
    for (graph, names_of) in &mut expected {
        if !bench.soft {
            names_of.sort_unstable();
        }
        let found = names(bench, lists, *graph);
        same(
            &format!("kernels of graph {graph}"),
            found,
            names_of.iter().map(|n| (*n).to_owned()).collect(),
        )?;
    }
    Ok(())
}

/// The nodes that a timeline tells are those that programs are in.
fn graph_nodes(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    let run = bench.both_with(&["--timeline", &path], "graphnodes", "graphs", &[])?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let lists = lists(&file)?;
    kernels(bench, &lists)?;
    // The first was changed, turned off and on again; the fourth updated by one that was captured
    // anew.
    same(
        "lists",
        lists_of(&lists),
        vec![4, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1],
    )?;
    let (ids, _) = by_node(&run, "ids")?;
    for (at, ids) in ids.iter().enumerate() {
        let graph = at as u64 + 1;
        let last = lists.iter().rfind(|(g, _)| *g == graph);
        let told: Option<Vec<(u32, u64)>> = (last.into_iter().flat_map(|(_, kernels)| kernels))
            .map(|kernel| {
                let node = kernel["node"].as_u64()? as u32;
                let with = kernel["programs"] == true && kernel["disabled"].is_null();
                Some((node, kernel["launch_id"].as_u64().filter(|_| with)?))
            })
            .collect();
        same(
            &format!("launches in graph {graph}"),
            told.as_ref(),
            Some(ids),
        )?;
    }
    same("graphs with programs", ids.len(), 11)?;
    let off = lists
        .iter()
        .flat_map(|(_, kernels)| kernels)
        .filter(|kernel| kernel["disabled"] == true);
    same("kernels that are turned off", off.count(), 1)?;
    let sealed = lists
        .iter()
        .find(|(graph, _)| *graph == 12)
        .and_then(|(_, kernels)| kernels.first());
    let programs = sealed.map(|kernel| (kernel["programs"].clone(), kernel["launch_id"].is_null()));
    same(
        "a kernel that stays as it is",
        programs,
        Some((Value::Bool(false), true)),
    )?;
    Ok(format!(
        "{} lists, with the launches that programs have",
        lists.len()
    ))
}

/// Without programs in kernels nothing is changed in a graph, and it is told all the same.
fn graphs_alone(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let mut command = bench.warpbpf("run");
    let command = command
        .arg("--timeline")
        .arg(&trace)
        .arg("--")
        .arg(bench.app("graphs"));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same("status", output.status.code(), Some(0)).map_err(|what| format!("{what}; {errors}"))?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let lists = lists(&file)?;
    kernels(bench, &lists)?;
    // What changes parameters alone changes no list.
    same(
        "lists",
        lists_of(&lists),
        vec![3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    )?;
    let with = lists
        .iter()
        .flat_map(|(_, kernels)| kernels)
        .filter(|kernel| kernel["programs"] == true);
    same("kernels with programs", with.count(), 0)?;
    Ok(format!("{} lists", lists.len()))
}

/// Programs that ask for nothing that a launch is told: no kernel has a `launch_id`, one that was
/// put into an executable graph later neither.
fn graphs_untold(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    bench.both_with(&["--timeline", &path], "threadhist", "graphs", &[])?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let lists = lists(&file)?;
    let kernels: Vec<&Value> = lists.iter().flat_map(|(_, kernels)| kernels).collect();
    let told = kernels
        .iter()
        .filter(|kernel| !kernel["launch_id"].is_null());
    same("kernels with a `launch_id`", told.count(), 0)?;
    let with = kernels.iter().filter(|kernel| kernel["programs"] == true);
    same(
        "kernels with programs but `sealed`",
        with.count(),
        kernels.len() - 1,
    )?;
    Ok(format!("{} kernels", kernels.len()))
}

/// Names of a stack's frames from the outermost in.
fn frames<'v>(file: &'v Value, innermost: &Value) -> Vec<&'v str> {
    let mut names = Vec::new();
    let mut at = innermost.as_str();
    while let Some(number) = at {
        let frame = &file["stackFrames"][number];
        names.insert(0, frame["name"].as_str().unwrap_or_default());
        at = frame["parent"].as_str();
    }
    names
}

/// Of launches by a function that is called in the first thread and in others, and of a fill by
/// another function.
fn stacks(bench: &Bench) -> Told {
    let (trace, folded) = (bench.scratch("trace.json"), bench.scratch("folded"));
    let (trace_path, folded_path) = (trace.display().to_string(), folded.display().to_string());
    let flags = ["--timeline", &trace_path, "--stacks"];
    bench.both_with(&flags, "launchcount", "ranges", &[])?;
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let events = file["traceEvents"].as_array().cloned().unwrap_or_default();
    let of = |name: &str| -> Vec<u64> {
        let those = (events.iter()).filter(|e| e["cat"] != "call" && e["name"] == name);
        those.filter_map(|e| e["args"]["id"].as_u64()).collect()
    };
    let calls = || (events.iter()).filter(|e| e["cat"] == "call" && e["ph"] == "X");
    let without = calls().filter(|call| call["sf"].is_null()).count();
    same("calls without a stack", without, 0)?;
    let stacks_of = |ids: &[u64]| -> Vec<Vec<&str>> {
        let those = calls().filter(|call| ids.contains(&call["args"]["id"].as_u64().unwrap_or(0)));
        those.map(|call| frames(&file, &call["sf"])).collect()
    };
    let ticks = stacks_of(&of("tick"));
    let by = |name: &str| ticks.iter().filter(|stack| stack.contains(&name)).count();
    same(
        "launches",
        (ticks.len(), by("launch"), by("main")),
        (12, 12, 10),
    )?;
    let fills: Vec<u64> = (calls().filter(|c| {
        c["name"]
            .as_str()
            .is_some_and(|n| n.starts_with("cuMemset"))
    }))
    .filter_map(|call| call["args"]["id"].as_u64())
    .collect();
    let fills = stacks_of(&fills);
    let inside = |stack: &Vec<&str>| {
        let at = stack.iter().position(|name| *name == "main");
        at.is_some_and(|at| stack.get(at + 1) == Some(&"allocate"))
    };
    same(
        "fills",
        (fills.len(), fills.iter().filter(|s| inside(s)).count()),
        (1, 1),
    )?;
    let alone = bench.both_with(&["--folded", &folded_path], "launchcount", "ranges", &[])?;
    says(&alone.report["remarks"].to_string(), "stacks of ")?;
    let text = read(&folded)?;
    let lines = |part: &str| {
        text.lines()
            .filter(|line| line.contains(part) && line.contains(";tick "))
            .count()
    };
    if lines("main;launch;") == 0 || lines("launch;") == lines("main;launch;") {
        return Err(format!("`{text}`"));
    }
    let refused = bench
        .warpbpf("run")
        .args(["--stacks", "x.o", "--", "x"])
        .output();
    let refused = refused.map_err(|e| format!("warpbpf: {e}"))?;
    says(
        &String::from_utf8_lossy(&refused.stderr),
        "--timeline <FILE>",
    )?;
    Ok(format!("{} calls, each with its stack", calls().count()))
}

fn unwritten(bench: &Bench) -> Told {
    let path = bench.scratch("no/such/folder/trace.json");
    let mut command = bench.warpbpf("run");
    command
        .arg("--timeline")
        .arg(&path)
        .arg("--")
        .arg(bench.app("vectoradd"))
        .args(["100", "1"]);
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    says(&String::from_utf8_lossy(&output.stderr), "cannot write `")?;
    same("status", output.status.code(), Some(125))?;
    Ok("with its path".to_owned())
}
