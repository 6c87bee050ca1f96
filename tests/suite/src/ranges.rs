//! NVTX ranges: launches chosen by them, and their rows in a timeline.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("launches are chosen by NVTX ranges", by_range),
        case("launches of a forked child are chosen by NVTX", forked),
        case("launches are chosen by stream", by_stream),
        case("NVTX ranges are in the timeline", in_timeline),
        case("NVTX calls go to the tool that the user named", taken),
        case("NVTX finds an agent without a tool", without_a_tool),
        case("NVTX is not there for a running application", too_late),
    ]
}

/// Launches of `ranges`.
const TICKS: u64 = 12;
const TOCKS: u64 = 4;

/// With probes, left out, and uninstrumented.
fn launches(kernel: &Value) -> (u64, u64, u64) {
    let number = |name: &str| kernel[name].as_u64().unwrap_or(0);
    (
        number("launches"),
        number("skipped"),
        number("uninstrumented"),
    )
}

/// Threads that the program counted in all kernels.
fn threads(run: &Run) -> Result<u64, String> {
    let entries = run.entries("kernels")?;
    Ok(entries.iter().filter_map(|e| e.1["threads"].as_u64()).sum())
}

fn by_range(bench: &Bench) -> Told {
    let cases: [(&[&str], u64, u64); 13] = [
        (&[], 12, 4),
        (&["step"], 5, 0),
        (&["step/forward"], 2, 0),
        (&["step/*"], 3, 0),
        (&["*/backward λ"], 1, 0),
        (&["gather@lib"], 1, 0),
        (&["epoch"], 1, 0),
        (&["loader"], 1, 0),
        (&["deep/deep*"], 1, 0),
        (&["unended"], 1, 0),
        // The range of the capture counts, and not that of the graph's launch.
        (&["captured"], 0, 2),
        (&["launched", "early", "reduce@lib", "nowhere"], 0, 0),
        (&["epoch", "step/forward"], 3, 0),
    ];
    for (globs, ticks, tocks) in cases {
        let flags: Vec<&str> = globs.iter().flat_map(|glob| ["--nvtx", glob]).collect();
        let run = bench.both_with(&flags, "launchcount", "ranges", &[])?;
        let what = globs.join(", ");
        let tick = launches(run.kernel("tick")?);
        same(&format!("{what}: tick"), tick, (ticks, TICKS - ticks, 0))?;
        let tock = launches(run.kernel("tock")?);
        same(&format!("{what}: tock"), tock, (tocks, TOCKS - tocks, 0))?;
        same(
            &format!("{what}: threads"),
            threads(&run)?,
            32 * (ticks + tocks),
        )?;
        let deep = run.notes().contains("launches are not chosen by 6 ranges");
        same("said what is not known", deep, !globs.is_empty())?;
    }
    let run = bench.both_with(&["--nvtx", "*"], "launchcount", "vectoradd", &["1000", "3"])?;
    says(&run.notes(), "nothing in the application has called NVTX")?;
    same(
        "without NVTX",
        launches(run.kernel("vectorAdd")?),
        (0, 3, 0),
    )?;
    let both = ["--nvtx", "step", "--every", "2"];
    let run = bench.both_with(&both, "launchcount", "ranges", &[])?;
    // Of those in the range, the third, the fifth and the seventh launch have their turn.
    same("both", launches(run.kernel("tick")?).0, 2)?;
    Ok(format!("{} choices", cases.len()))
}

/// A child is in the range that its parent's thread was in when it was forked.
fn forked(bench: &Bench) -> Told {
    for (glob, expected) in [
        ("parent", [(1, 1, 0), (1, 2, 0)]),
        ("parent/child", [(1, 1, 0), (0, 3, 0)]),
    ] {
        let run = bench.both_with(&["--nvtx", glob], "launchcount", "ranges", &["fork"])?;
        let processes = run.report["processes"].as_array();
        let mut found: Vec<_> = processes
            .into_iter()
            .flatten()
            .map(|process| {
                let kernels = process["kernels"].as_array().into_iter().flatten();
                let mut tick = kernels
                    .filter(|kernel| kernel["name"] == "tick")
                    .map(launches);
                tick.next_back().unwrap_or_default()
            })
            .collect();
        // The child has launched two times.
        found.sort_by_key(|(launched, skipped, _)| launched + skipped);
        same(glob, found, expected.to_vec())?;
    }
    Ok("two processes".to_owned())
}

fn by_stream(bench: &Bench) -> Told {
    let cases: [(&[&str], u64); 11] = [
        (&[], 10),
        (&["default"], 3),
        (&["per-thread"], 3),
        (&["other"], 4),
        (&["1"], 1),
        (&["2"], 1),
        (&["3"], 2),
        (&["4"], 0),
        (&["cop*"], 1),
        (&["nobody"], 0),
        (&["default", "3"], 5),
    ];
    for (streams, expected) in cases {
        let flags: Vec<&str> = streams.iter().flat_map(|s| ["--stream", s]).collect();
        let run = bench.both_with(&flags, "launchcount", "ranges", &["streams"])?;
        let tick = launches(run.kernel("tick")?);
        same(&streams.join(", "), tick, (expected, 10 - expected, 0))?;
        same("threads", threads(&run)?, 32 * expected)?;
        let none = "programs were in no launch: all 10 were skipped; ";
        same("a note", run.notes().contains(none), expected == 0)?;
    }
    // What is in a graph runs wherever that is launched.
    let run = bench.both_with(&["--stream", "other"], "launchcount", "ranges", &[])?;
    same("tick", launches(run.kernel("tick")?), (1, TICKS - 1, 0))?;
    same("tock", launches(run.kernel("tock")?), (0, TOCKS, 0))?;
    says(
        &run.notes(),
        "chosen by number or stream (stream=other) it runs without probes there",
    )?;
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    bench.both_with(
        &["--timeline", &path],
        "launchcount",
        "ranges",
        &["streams"],
    )?;
    let text = std::fs::read_to_string(&trace).map_err(|e| format!("`{path}`: {e}"))?;
    for row in [
        "\"copies (stream 1)\"",
        "\"stream 2\"",
        "\"stream 3\"",
        "\"default stream\"",
    ] {
        says(&text, row)?;
    }
    let refused = bench
        .warpbpf("run")
        .args(["--stream", "0", "x.o", "--", "x"])
        .output();
    let refused = refused.map_err(|e| format!("warpbpf: {e}"))?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    says(
        &said,
        "streams are numbered from 1; the default one is `default`",
    )?;
    Ok(format!("{} choices", cases.len()))
}

fn in_timeline(bench: &Bench) -> Told {
    let trace = bench.scratch("trace.json");
    let path = trace.display().to_string();
    let run = bench.both_with(&["--timeline", &path], "launchcount", "ranges", &[])?;
    let text = std::fs::read_to_string(&trace).map_err(|e| format!("`{path}`: {e}"))?;
    let file: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let events = file["traceEvents"].as_array().cloned().unwrap_or_default();
    let mut rows: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut open = Vec::new();
    for event in events.iter().filter(|event| event["cat"] == "nvtx") {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        *rows.entry((text("ph"), text("name"))).or_default() += 1;
        if event["args"]["ended"] == false {
            open.push(text("name"));
        }
    }
    let expected = [
        ("X", "backward λ", 1),
        ("X", "captured", 1),
        ("X", "deep", 64),
        ("X", "early", 1),
        ("X", "forward", 1),
        ("X", "gather", 1),
        ("X", "launched", 1),
        ("X", "loader", 1),
        ("X", "reduce", 1),
        ("X", "step", 3),
        ("X", "unended", 1),
        ("b", "epoch", 1),
        ("e", "epoch", 1),
        ("i", "half", 1),
    ];
    let expected = expected.map(|(ph, name, count)| ((ph.to_owned(), name.to_owned()), count));
    same("ranges", rows, expected.into_iter().collect())?;
    open.sort();
    same(
        "open ranges",
        open,
        vec!["loader".to_owned(), "unended".to_owned()],
    )?;
    let unknown = &file["otherData"]["processes"][0]["ranges_unknown"];
    let unknown = ["deep", "crowded", "names_cut"].map(|what| unknown[what].as_u64());
    same("unknown", unknown, [Some(6), Some(0), Some(0)])?;
    let mut kernels: Vec<(u64, Option<&str>)> = (events.iter())
        .filter(|event| event["cat"] == "kernel" && event["name"] == "tick")
        .map(|event| {
            (
                event["args"]["id"].as_u64().unwrap_or(0),
                event["args"]["nvtx"].as_str(),
            )
        })
        .collect();
    kernels.sort_unstable();
    let deep = vec!["deep"; 64].join("/");
    let paths: Vec<Option<&str>> = kernels.into_iter().map(|(_, path)| path).collect();
    let expected = [
        None,
        Some("step"),
        Some("step/forward"),
        Some("step/forward"),
        Some("step/backward λ"),
        Some("step"),
        Some("gather@lib"),
        None,
        Some("loader"),
        Some(&deep),
        None,
        Some("unended"),
    ];
    same("paths of kernels", paths, expected.to_vec())?;
    let graphs: Vec<_> = (events.iter())
        .filter(|event| event["cat"] == "graph")
        .map(|event| event["args"]["nvtx"].as_str())
        .collect();
    same("paths of graphs", graphs, vec![Some("launched"); 4])?;
    let named = |name: &str| {
        let named = |event: &&Value| {
            let text = event["args"]["name"].as_str().unwrap_or_default();
            event["ph"] == "M" && text.starts_with(name)
        };
        events.iter().filter(named).count()
    };
    same(
        "names",
        (named("main (thread "), named("copies (stream ")),
        (1, 1),
    )?;
    says(&run.remarks(), ", 78 NVTX ranges and marks, in `")?;
    says(&run.notes(), "6 NVTX ranges are not in the timeline")?;
    Ok("76 ranges of threads, one of the process, a mark".to_owned())
}

/// What the user has set stays, and is said.
fn taken(bench: &Bench) -> Told {
    let other = bench
        .folder()
        .join("apps/libothertool.so")
        .display()
        .to_string();
    let bench = bench.with(&[("NVTX_INJECTION64_PATH", &other)]);
    let run = bench.both_with(&["--nvtx", "step"], "launchcount", "ranges", &[])?;
    says(&run.errors(), "the other tool has the ranges")?;
    says(
        &run.notes(),
        "NVTX_INJECTION64_PATH names another tool, which gets them",
    )?;
    same("tick", launches(run.kernel("tick")?), (0, TICKS, 0))?;
    // Without a request for ranges nothing is said.
    let run = bench.both_with(&[], "launchcount", "ranges", &[])?;
    same("tick", launches(run.kernel("tick")?), (TICKS, 0, 0))?;
    same("notes", run.notes().contains("NVTX"), false)?;
    Ok("with a note".to_owned())
}

/// Nobody is there, so nothing happens.
fn without_a_tool(bench: &Bench) -> Told {
    let expected = bench.plain("ranges", &[])?;
    let agent = bench
        .folder()
        .join("libwarpbpf_agent.so")
        .display()
        .to_string();
    let with_agent = bench.with(&[("NVTX_INJECTION64_PATH", &agent)]);
    same("output", with_agent.plain("ranges", &[])?, expected)?;
    Ok("the same output".to_owned())
}

fn too_late(bench: &Bench) -> Told {
    let mut command = bench.warpbpf("attach");
    command.args(["--pid", "1", "--nvtx", "step"]);
    let output = command.arg(bench.object("launchcount")).output();
    let output = output.map_err(|e| format!("warpbpf: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    says(
        &said,
        "`--nvtx` needs an application that is started with it",
    )?;
    same("status", output.status.code(), Some(125))?;
    Ok("with what to do".to_owned())
}
