//! Kernels in graphs, however they came there: what programs count is what the application says
//! that it ran.

use crate::attach::{Application, Attached, BLOCKS, kernel, number, until_counted};
use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("graphs: every scope, every way to build one", scopes),
        case("graphs: launches in the report", launches),
        case("graphs: programs know which node they are in", nodes),
        case("graphs: one that was there before is updated", updated),
        case(
            "graphs: nodes with a launch record know, too",
            nodes_with_records,
        ),
        case("graphs: bodies of conditional nodes", bodies),
    ]
}

/// Threads of every block that tests/apps/graphs.cu launches.
const THREADS: u64 = 64;

/// What the application ran of a kernel: launches and blocks.
fn ran(run: &Run, kernel: &str) -> Result<(u64, u64), String> {
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let line = format!("ran {kernel}: ");
    let rest = text.lines().find_map(|l| l.strip_prefix(&line));
    let mut words = rest.into_iter().flat_map(|rest| rest.split(' '));
    let mut number = || words.find_map(|word| word.parse().ok());
    let both = number().zip(number());
    both.ok_or_else(|| format!("`{line}` is not in `{text}`"))
}

/// Kernels that are instrumented, and what the application is known to run of each.
const KERNELS: &[(&str, u64, u64)] = &[("grow", 46, 97), ("mix", 7, 21), ("add", 192, 7680)];

fn scopes(bench: &Bench) -> Told {
    let run = bench.both("scopes", "graphs", &[])?;
    for (name, launches, blocks) in KERNELS {
        same(
            &format!("{name} ran"),
            ran(&run, name)?,
            (*launches, *blocks),
        )?;
        in_every_scope(&run, name, *blocks)?;
    }
    counted(&run)?;
    Ok(format!("{} kernels × 6 scopes", KERNELS.len()))
}

/// What `scopes` counts in a kernel of which so many blocks ran.
fn in_every_scope(run: &Run, name: &str, blocks: u64) -> Result<(), String> {
    let id = run.kernel(name)?["id"].as_u64();
    let base = id.ok_or(format!("{name} has no id"))? * 8;
    let threads = blocks * THREADS;
    for (offset, expected, what) in [
        (0, threads, "entry"),
        (1, threads / 32, "entry.warp"),
        (2, blocks, "entry.block"),
        (4, threads, "exit"),
        (5, threads / 32, "exit.warp"),
        (6, blocks, "exit.block"),
    ] {
        let found = run.value("counts", base + offset)?;
        // The lanes of a warp may arrive in more than one group.
        let groups = offset == 1 && found > expected && found <= threads;
        if !groups {
            same(&format!("{name}: {what}"), found, expected)?;
        }
    }
    Ok(())
}

/// What tests/apps/conditional.cu runs of each kernel, by blocks of a launch: the loop's body 7
/// times in each of 4 launches, the body in it 3 times.
const BODIES: &[(&str, u64, u64)] = &[
    ("beside", 4, 4),
    ("work", 4 * 7, 3),
    ("inner", 4 * 7, 2),
    ("captured", 4 * 7, 5),
    ("odd", 4 * 3, 1),
];

/// Programs run in bodies as often as the device runs these, in every scope; only what runs once
/// for each launch is one in the report.
fn bodies(bench: &Bench) -> Told {
    let run = bench.both("scopes", "conditional", &["7", "4"])?;
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let remarks = run.report["remarks"].to_string();
    for (name, times, blocks) in BODIES {
        let blocks = times * blocks;
        says(&text, &format!("ran {name}: {blocks} blocks"))?;
        in_every_scope(&run, name, blocks)?;
        let kernel = run.kernel(name)?;
        let in_body = *name != "beside";
        let told = (
            kernel["launches"].as_u64(),
            kernel["uninstrumented"].as_u64(),
        );
        let launches = if in_body { 0 } else { *times };
        same(
            &format!("{name}: launches"),
            told,
            (Some(launches), Some(0)),
        )?;
        let note = format!(
            "kernel `_Z{}{name}Pj` is in the body of a conditional node",
            name.len()
        );
        same(
            &format!("{name}: the note"),
            remarks.contains(&note),
            in_body,
        )?;
    }
    let blocks: u64 = BODIES.iter().map(|(_, times, blocks)| times * blocks).sum();
    Ok(format!("{blocks} blocks × 6 scopes"))
}

/// Launches in the report are those of graphs and of streams together.
fn counted(run: &Run) -> Result<(), String> {
    for (name, launches, _) in KERNELS {
        let kernel = run.kernel(name)?;
        let told = (
            kernel["launches"].as_u64(),
            kernel["uninstrumented"].as_u64(),
        );
        same(
            &format!("{name}: launches"),
            told,
            (Some(*launches), Some(0)),
        )?;
    }
    // A kernel that cannot be instrumented runs as it was, in a graph too.
    let kernel = run.kernel("sealed")?;
    says(
        kernel["method"].as_str().unwrap_or_default(),
        "warpbpf's own code",
    )?;
    Ok(())
}

/// Blocks that tests/apps/graphs.cu runs in each kernel node, by graph as they are instantiated.
const NODES: [&[u64]; 11] = [
    // By hand: a node that was changed and turned off; changed before it was instantiated; a node
    // of any kind.
    &[12, 14],
    &[4, 6],
    &[2, 3, 2],
    // Captured and updated; in another graph; in a copy of that.
    &[8, 12, 12],
    &[4, 6, 6, 2],
    &[2, 3, 3, 2],
    // By the driver's functions.
    &[4, 4, 4],
    // At once.
    &[640; 3],
    &[640; 3],
    &[640; 3],
    &[640; 3],
];

/// What a map has for nodes, by graph: the node's number and the value.
pub type ByNode = Vec<Vec<(u32, u64)>>;

/// What a map has for each node of each graph, and for launches outside of graphs.
pub fn by_node(run: &Run, map: &str) -> Result<(ByNode, u64), String> {
    let (mut graphs, mut outside) = (Vec::new(), 0);
    for (key, value) in run.entries(map)? {
        let number = |value: &serde_json::Value| value.as_u64().ok_or(format!("`{value}`"));
        let (node, value) = (number(&key)?, number(&value)?);
        let (graph, node) = ((node >> 32) as usize, node as u32);
        if graph == 0 {
            same("a node without a graph", node, 0)?;
            outside += value;
            continue;
        }
        if graphs.len() < graph {
            graphs.resize(graph, Vec::new());
        }
        graphs[graph - 1].push((node, value));
    }
    for nodes in &mut graphs {
        nodes.sort_unstable();
    }
    Ok((graphs, outside))
}

/// Counts of blocks are those that the application ran.
fn blocks(bench: &Bench, run: &Run, map: &str) -> Result<(), String> {
    let (graphs, outside) = by_node(run, map)?;
    same(&format!("{map} outside of graphs"), outside, 3)?;
    same(&format!("{map}: graphs"), graphs.len(), NODES.len())?;
    for (at, (found, expected)) in graphs.iter().zip(NODES).enumerate() {
        let numbers: Vec<u32> = found.iter().map(|(node, _)| *node).collect();
        let all: Vec<u32> = (0..expected.len() as u32).collect();
        let what = format!("{map} of graph {}", at + 1);
        same(&format!("{what}: nodes"), numbers, all)?;
        let mut found: Vec<u64> = found.iter().map(|(_, blocks)| *blocks).collect();
        let mut expected = expected.to_vec();
        // A driver tells nodes in an order of its own.
        if !bench.soft {
            found.sort_unstable();
            expected.sort_unstable();
        }
        same(&what, found, expected)?;
    }
    Ok(())
}

fn nodes(bench: &Bench) -> Told {
    let run = bench.both("graphnodes", "graphs", &[])?;
    blocks(bench, &run, "blocks")?;
    Ok(format!("blocks of each node in {} graphs", NODES.len()))
}

fn nodes_with_records(bench: &Bench) -> Told {
    let run = bench.both("graphnodes_exit", "graphs", &[])?;
    for map in ["blocks", "ended"] {
        blocks(bench, &run, map)?;
    }
    Ok(format!(
        "as many begin in each node of {} graphs as end",
        NODES.len()
    ))
}

fn launches(bench: &Bench) -> Told {
    let run = bench.both("threadhist", "graphs", &[])?;
    counted(&run)?;
    let all: u64 = KERNELS.iter().map(|(_, _, blocks)| blocks * THREADS).sum();
    same("threads", run.map("threads")?["sum"].as_u64(), Some(all))?;
    Ok(format!("{all} threads"))
}

/// An update brings programs into a graph that has no number: its nodes are told 0, as launches in
/// streams are, and those of a graph that is instantiated behind it their own.
fn updated(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    application.launch_as("g", 4)?;
    let attached = match Attached::start(bench, &application, "graphnodes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "blocks")?;
    let (older, newer) = (5, 3);
    application.launch_as("u", older)?;
    application.launch_as("G", newer)?;
    let report = attached.interrupt()?;
    let step = kernel(&report, "step")?;
    let launches = number(&step["launches"]);
    if launches < older + newer {
        return Err(format!("{launches} launches had programs: {report}"));
    }
    let maps = report["processes"][0]["maps"].as_array();
    let mut nodes: Vec<(u64, u64)> = (maps.into_iter().flatten())
        .filter(|map| map["name"] == "blocks")
        .flat_map(|map| map["entries"].as_array().into_iter().flatten())
        .map(|entry| (number(&entry["key"]), number(&entry["value"])))
        .collect();
    nodes.sort_unstable();
    if !bench.soft {
        // A driver tells nodes in an order of its own.
        nodes.iter_mut().for_each(|(node, _)| *node &= !1);
    }
    // `scaled` has a constant, and gets no programs that late.
    let expected = vec![(0, (launches - newer) * BLOCKS), (1 << 32, newer * BLOCKS)];
    same("blocks by node", nodes, expected)?;
    let notes = report["notes"].to_string();
    same(
        "a note of launches without programs",
        notes.contains("instantiated before the programs came"),
        false,
    )?;
    application.end()?;
    Ok(format!(
        "{older} launches without a number, {newer} with one"
    ))
}
