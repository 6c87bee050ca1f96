//! Aggregates over blocks: each call gives one result for each block of each launch, and it is what
//! the threads' values are together.

use std::collections::BTreeMap;

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("blocks: aggregates in blocks of every kind", shapes),
        case("blocks: aggregates in slices and clones", variants),
        case("blocks: aggregates in graphs", graphs),
        case("blocks: aggregates of launches that overlap", overlap),
        case("blocks: one record for each", spans),
        case("blocks: aggregates that are refused", refused),
    ]
}

/// What a kernel is launched with.
struct Shape {
    kernel: &'static str,
    grid: [u64; 3],
    block: [u64; 3],
}

const fn shape(kernel: &'static str, grid: [u64; 3], block: [u64; 3]) -> Shape {
    Shape {
        kernel,
        grid,
        block,
    }
}

/// What tests/apps/blocks.cu launches each time, and how often.
const BLOCKS: &[Shape] = &[
    shape("whole", [5, 1, 1], [128, 1, 1]),
    shape("whole", [300, 1, 1], [1, 1, 1]),
    shape("ragged", [3, 2, 2], [33, 3, 1]),
    shape("inFunction", [5, 1, 1], [7, 5, 3]),
    shape("waiting", [2, 1, 1], [1024, 1, 1]),
    shape("constantFactor", [2, 3, 1], [10, 10, 1]),
];
const TIMES: u64 = 4 * 6 + 5;

/// What tests/apps/variants.cu launches.
const VARIANTS: &[Shape] = &[
    shape("addToGlobal", [3, 1, 1], [64, 1, 1]),
    shape("addToGlobal", [1, 1, 1], [64, 1, 1]),
    shape("readGlobal", [1, 1, 1], [32, 1, 1]),
    shape("useConstant", [1, 1, 1], [128, 1, 1]),
    shape("callPointer", [1, 1, 1], [96, 1, 1]),
    shape("makeObject", [1, 1, 1], [1, 1, 1]),
    shape("useObject", [1, 1, 1], [40, 1, 1]),
    shape("exitInFunction", [1, 1, 1], [64, 1, 1]),
    shape("leaveApart", [2, 1, 1], [100, 1, 1]),
    shape("speak", [2, 1, 1], [32, 1, 1]),
    shape("dynamicShared", [1, 1, 1], [256, 1, 1]),
    shape("templated<int, 5>", [1, 1, 1], [50, 1, 1]),
];

/// Calls of blocks.bpf.c: values by thread, and what they are together.
const CALLS: u64 = 7;

fn together(call: u64, block: u64, dim: [u64; 3]) -> u64 {
    let threads = 0..dim.iter().product();
    let value = |thread: u64| {
        let value = (thread + 1).wrapping_mul(2_654_435_761);
        value.wrapping_add(block.wrapping_mul(0x100_0000_01b3))
    };
    let odd = |thread: u64| thread % dim[0] % 2 + 1;
    match call {
        0 => threads.map(value).fold(0, u64::wrapping_add),
        1 => threads.map(value).fold(u64::MAX, u64::min),
        2 => threads.map(value).fold(0, u64::max),
        3 => threads
            .map(|t| value(t) | 0x10001)
            .fold(u64::MAX, |a, b| a & b),
        4 => threads
            .map(|t| value(t) & 0xf_ffff_fff0)
            .fold(0, |a, b| a | b),
        5 => threads.map(odd).sum(),
        _ => 1,
    }
}

/// Kernel, block, threads of the block, call: how often there was a result, and the sum of results.
type Results = BTreeMap<(u64, u64, u64, u64), (u64, u64)>;

fn results(run: &Run) -> Result<Results, String> {
    same("results elsewhere", run.value("faults", 0)?, 0)?;
    same("blocks without room", run.value("faults", 1)?, 0)?;
    let mut all = Results::new();
    for (key, value) in run.entries("blocks")? {
        let of = |what: &serde_json::Value, name: &str| {
            let number = what[name].as_u64();
            number.ok_or_else(|| format!("no `{name}` in {what}"))
        };
        let place = (
            of(&key, "kernel")?,
            of(&key, "block")?,
            of(&key, "threads")?,
            of(&key, "call")?,
        );
        let told = (of(&value, "times")?, of(&value, "total")?);
        if let Some(other) = all.insert(place, told) {
            return Err(format!("{place:?} is there twice: {other:?}, {told:?}"));
        }
    }
    Ok(all)
}

/// Each kernel was launched `times` with each of its shapes. The number of results.
fn exact(run: &Run, shapes: &[Shape], times: u64) -> Result<u64, String> {
    let mut expected = Results::new();
    for Shape {
        kernel,
        grid,
        block,
    } in shapes
    {
        let row = run.kernel(kernel)?;
        let id = row["id"].as_u64().ok_or(format!("{kernel} has no id"))?;
        same(
            &format!("{kernel}: uninstrumented"),
            row["uninstrumented"].as_u64(),
            Some(0),
        )?;
        for number in 0..grid.iter().product() {
            for call in 0..CALLS {
                let total = together(call, number, *block).wrapping_mul(times);
                let place = (id, number, block.iter().product(), call);
                let all = expected.entry(place).or_insert((0, 0));
                *all = (all.0 + times, all.1.wrapping_add(total));
            }
        }
    }
    let found = results(run)?;
    for (place, expected) in &expected {
        same(
            &format!("(kernel, block, threads, call) {place:?}: times and sum"),
            found.get(place),
            Some(expected),
        )?;
    }
    same("results", found.len(), expected.len())?;
    Ok(found.values().map(|(times, _)| times).sum())
}

fn shapes(bench: &Bench) -> Told {
    let run = bench.both("blocks", "blocks", &[])?;
    for (kernel, method) in [("ragged", "slice"), ("constantFactor", "clone")] {
        says(
            run.kernel(kernel)?["method"].as_str().unwrap_or_default(),
            method,
        )?;
    }
    let count = exact(&run, BLOCKS, TIMES)?;
    // Programs that are called, and not inline.
    let run = bench.both_with(&["--out-of-line"], "blocks", "blocks", &[])?;
    exact(&run, BLOCKS, TIMES)?;
    Ok(format!("{count} results in streams and a graph, twice"))
}

fn variants(bench: &Bench) -> Told {
    let run = bench.both("blocks", "variants", &[])?;
    let count = exact(&run, VARIANTS, 1)?;
    Ok(format!("{count} results"))
}

/// Kernels of tests/apps/graphs.cu and the blocks that it runs of each, all of 64 threads.
fn graphs(bench: &Bench) -> Told {
    let run = bench.both("blocks", "graphs", &[])?;
    let found = results(&run)?;
    for (kernel, blocks) in [("grow", 97), ("mix", 21), ("add", 7680)] {
        let id = run.kernel(kernel)?["id"].as_u64();
        let id = id.ok_or(format!("{kernel} has no id"))?;
        for call in 0..CALLS {
            let of_call = found
                .iter()
                .filter(|((k, .., c), _)| (*k, *c) == (id, call));
            let mut count = 0;
            for ((_, block, threads, _), (times, total)) in of_call {
                same("threads", *threads, 64)?;
                let one = together(call, *block, [64, 1, 1]);
                same(
                    &format!("{kernel}, block {block}, call {call}"),
                    *total,
                    one.wrapping_mul(*times),
                )?;
                count += times;
            }
            same(&format!("{kernel}, call {call}: results"), count, blocks)?;
        }
    }
    Ok("3 kernels × 7 calls".into())
}

/// Launches that may begin before the one in front of them has ended run without programs, but in
/// graphs.
fn overlap(bench: &Bench) -> Told {
    let run = bench.both("blocks", "overlap", &[])?;
    let row = run.kernel("probedChain")?;
    let launches = (row["launches"].as_u64(), row["uninstrumented"].as_u64());
    same("of a chain", launches, (Some(1 + 18), Some(5)))?;
    says(
        &run.notes(),
        "what counts the threads of warps or blocks cannot follow that, those launches run without probes",
    )?;
    let id = row["id"].as_u64();
    let found = results(&run)?;
    let chain = found.iter().filter(|((k, ..), _)| Some(*k) == id);
    let mut count = 0;
    for ((_, block, _, call), (times, total)) in chain {
        let one = together(*call, *block, [64, 1, 1]);
        same(
            &format!("block {block}, call {call}"),
            (*times, *total),
            (19, one.wrapping_mul(19)),
        )?;
        count += 1;
    }
    same("blocks and calls", count, 8 * CALLS)?;
    Ok("19 launches, 5 of them uninstrumented".into())
}

/// Kernel, graph's node, block, launch: a block that ran, and by its begin it is known which time
/// of a node.
type Ran = (u64, u64, u64, u64);

/// Begins and ends of blocks, in this order.
fn times(run: &Run) -> Result<BTreeMap<Ran, Vec<(u64, u64)>>, String> {
    let events = &run.map("spans")?["events"];
    same("lost", events["lost"].as_u64(), Some(0))?;
    same("dropped", run.value("dropped", 0)?, 0)?;
    let mut all: BTreeMap<Ran, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events["first"].as_array().into_iter().flatten() {
        let number = |of: &serde_json::Value, name: &str| {
            let number = of[name].as_u64();
            number.ok_or_else(|| format!("no `{name}` in {event}"))
        };
        let of = |name| number(&event["block"], name);
        let ran = (of("kernel")?, of("node")?, of("number")?, of("launch")?);
        let time = (number(event, "begin_ns")?, number(event, "end_ns")?);
        if time.0 == 0 || time.1 < time.0 {
            return Err(format!("a block that ended before it began: {event}"));
        }
        all.entry(ran).or_default().push(time);
    }
    all.values_mut().for_each(|times| times.sort_unstable());
    Ok(all)
}

/// These ran one after the other: a begin is its own block's, and not the one's before it.
fn in_turn(what: &str, times: &[(u64, u64)]) -> Result<(), String> {
    match times.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(format!(
            "{what}: one began before the other's end: {pair:?}"
        )),
        None => Ok(()),
    }
}

/// A launch, and a block's begin and end in it.
type Numbered = (u64, (u64, u64));

fn spans(bench: &Bench) -> Told {
    let (blocks, launches) = (391, 3);
    let count = blocks * launches;
    let flags = ["--events", &count.to_string()];
    let run = bench.both_with(&flags, "blockspan", "vectoradd", &["100000", "3"])?;
    let all = times(&run)?;
    let mut by_block: BTreeMap<u64, Vec<Numbered>> = BTreeMap::new();
    for ((_, node, block, launch), times) in &all {
        same("node and records of a block", (*node, times.len()), (0, 1))?;
        by_block
            .entry(*block)
            .or_default()
            .push((*launch, times[0]));
    }
    same("blocks", by_block.len() as u64, blocks)?;
    for (block, mut of) in by_block {
        of.sort_unstable();
        let (numbers, times): (Vec<u64>, Vec<(u64, u64)>) = of.into_iter().unzip();
        same(
            &format!("launches of block {block}"),
            numbers,
            (1..=launches).collect(),
        )?;
        in_turn(&format!("block {block}"), &times)?;
    }
    // Warps in any order: the last thread to leave may do so in a function.
    let orders: &[&[(&str, &str)]] = match bench.soft {
        true => &[
            &[],
            &[("WARPBPF_SOFT_SEED", "1")],
            &[("WARPBPF_SOFT_SEED", "2")],
        ],
        false => &[&[]],
    };
    let mut expected = 0;
    for order in orders {
        expected += spans_of_many(&bench.with(order))?;
    }
    Ok(format!(
        "{count} records of one stream, {expected} of several and of a graph"
    ))
}

/// Kernels at once in streams, and a graph's nodes, whose launches have one number. The number of
/// records.
fn spans_of_many(bench: &Bench) -> Result<u64, String> {
    let blocks_of = |s: &Shape| s.grid.iter().product::<u64>();
    let each: u64 = BLOCKS.iter().map(blocks_of).sum();
    let expected = each * TIMES;
    let flags = ["--events", &expected.to_string()];
    let run = bench.both_with(&flags, "blockspan", "blocks", &[])?;
    let (mut streams, mut graph) = (0, 0);
    for (ran, times) in times(&run)? {
        match ran.1 {
            0 => {
                same(&format!("records of {ran:?}"), times.len(), 1)?;
                streams += 1;
            }
            _ => {
                same(&format!("records of {ran:?}"), times.len(), 5)?;
                in_turn(&format!("{ran:?}"), &times)?;
                graph += 1;
            }
        }
    }
    same("in streams", streams, each * (TIMES - 5))?;
    same("in the graph", graph, each)?;
    Ok(expected)
}

const UNCOUNTED: &str = "program `alone` calls `bpf_gpu_block_sum`, which counts all threads of a block in a launch record, and a kernel of its own (`gpu/run`) has none: use it in a program at `gpu/entry` or `gpu/exit`, or add to a value of a map";

/// A gate could close while some threads of a block are counted already, and only an application's
/// kernel has a launch record.
fn refused(bench: &Bench) -> Told {
    for flag in ["--gate", "--slots"] {
        let run = bench.probed(&[flag], &bench.object("blocks"), &bench.app("blocks"), &[])?;
        says(
            &run.errors(),
            "program `begun` calls `bpf_gpu_block_sum`, which counts all threads of a block, and a gate (`--gate`, `--slots`) may keep some of them from it: do without the gate, or add to a value of a map",
        )?;
        same("processes", run.report.is_null(), true)?;
    }
    let mut command = bench.warpbpf("launch");
    let output = command.arg(bench.object("blocks_run")).output();
    let output = output.map_err(|e| e.to_string())?;
    same("launched", output.status.success(), false)?;
    says(&String::from_utf8_lossy(&output.stderr), UNCOUNTED)?;
    // It is no use to prove what cannot be run.
    let mut command = bench.warpbpf("verify");
    let output = command.arg(bench.object("blocks_run")).output();
    let output = output.map_err(|e| e.to_string())?;
    same("verified", output.status.success(), false)?;
    let told = [output.stdout, output.stderr].concat();
    says(&String::from_utf8_lossy(&told), UNCOUNTED)?;
    Ok("behind gates, and as a kernel".into())
}
