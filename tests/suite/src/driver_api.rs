//! Programs at functions of the driver API: each call of the application is seen once, however it
//! is made, and none of anybody else.

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("calls of the driver API are seen, each once", each_once),
        case(
            "each launch is timed from the call to the first block",
            launchlate,
        ),
        case("a function that the driver API lacks is refused", refused),
        case("every function of the driver API at once", everything),
    ]
}

/// Of `driverapi`: rounds, threads, ways to call, and words that a round works on.
const ROUNDS: u64 = 5;
const THREADS: u64 = 4;
const WAYS: u64 = 4;
const WORDS: u64 = 8 * 64;
/// Rounds of all threads in all ways.
const ALL: u64 = ROUNDS * THREADS * WAYS;

fn arguments() -> [String; 2] {
    [ROUNDS.to_string(), THREADS.to_string()]
}

/// Numbers of calls by function, from the map `calls`, in order of what they are called here.
fn calls(run: &Run, field: &str) -> Result<Vec<u64>, String> {
    let entries = run.entries("calls")?;
    let mut all: Vec<(u64, u64)> = (entries.iter())
        .map(|(key, value)| {
            let number = |v: &Value| v.as_u64().unwrap_or(u64::MAX);
            (number(key), number(&value[field]))
        })
        .collect();
    all.sort_unstable();
    Ok(all.into_iter().map(|(_, count)| count).collect())
}

fn each_once(bench: &Bench) -> Told {
    let [rounds, threads] = arguments();
    let run = bench.both("driverapi", "driverapi", &[&rounds, &threads])?;
    // cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemsetD32Async, cuLaunchKernel: by their places in
    // the table.
    let expected = vec![ALL, 2 * ALL, ALL, ALL];
    same("calls", calls(&run, "started")?, expected.clone())?;
    same("returns", calls(&run, "ended")?, expected.clone())?;
    same("timed", calls(&run, "timed")?, expected)?;
    same("failed", calls(&run, "failed")?, vec![0, ALL, 0, 0])?;
    let own = ALL / WAYS;
    same(
        "per thread",
        calls(&run, "per_thread")?,
        vec![own, 2 * own, own, own],
    )?;
    let sums: Vec<u64> = (0..8)
        .map(|at| run.value("sums", at))
        .collect::<Result<_, _>>()?;
    let ids = ALL * (ALL + 1) / 2;
    let bytes = 4 * WORDS * ALL;
    let expected = [bytes, bytes, 3 * ALL, 8 * ALL, ids, ids, 0, ALL];
    same("sums", sums.as_slice(), expected.as_slice())?;
    same(
        "launches",
        run.kernel("scale")?["launches"].as_u64(),
        Some(ALL),
    )?;
    all_run(&run)?;
    Ok(format!("{} calls by {THREADS} threads", 6 * ALL))
}

/// No function that a program is for was left out.
fn all_run(run: &Run) -> Result<(), String> {
    match run.notes() {
        notes if notes.contains("does not run") => Err(notes),
        _ => Ok(()),
    }
}

fn refused(bench: &Bench) -> Told {
    let run = bench.probed(
        &[],
        &bench.object("noapi"),
        &bench.app("driverapi"),
        &["1", "1"],
    )?;
    says(
        &run.errors(),
        "`nowhere`: the driver API has no function that section `cuda/cuMemcpyHtoDasink` names; it has `cuMemcpyHtoDAsync`",
    )?;
    Ok("with the names that it has".to_owned())
}

/// Whatever the application calls, by a glob over all there is.
fn everything(bench: &Bench) -> Told {
    let [rounds, threads] = arguments();
    let run = bench.both("everyapi", "driverapi", &[&rounds, &threads])?;
    let total = |name| run.value("total", name);
    let (started, ended) = (total(0)?, total(1)?);
    // Before the first image there are no maps. Each thread sets its context, makes and destroys a
    // stream, gets and frees memory; the main thread asks for the kernel, unloads, and gives the
    // context back, behind which nothing is counted.
    same("calls", started, 6 * ALL + 5 * THREADS + 3)?;
    if ended < started - 2 || ended > started {
        return Err(format!("{ended} returns of {started} calls"));
    }
    all_run(&run)?;
    all_run(&bench.both("everyapi", "vectoradd", &["100000", "3"])?)?;
    Ok(format!("{started} calls"))
}

/// The example: launches of two kernels by many threads, each paired once.
fn launchlate(bench: &Bench) -> Told {
    let [rounds, threads] = arguments();
    let pairs = |run: &Run| -> Result<(u64, u64, u64), String> {
        let entries = run.entries("waited")?;
        let each = |field: &str| -> u64 {
            let values = entries.iter().map(|(_, value)| value[field].as_u64());
            values.map(|value| value.unwrap_or(0)).sum()
        };
        let slots = run.entries("latency_us")?;
        let counted = slots
            .iter()
            .map(|(_, count)| count.as_u64().unwrap_or(0))
            .sum();
        Ok((each("launches"), counted, each("ns")))
    };
    let run = bench.both("launchlate", "driverapi", &[&rounds, &threads])?;
    let (launches, counted, ns) = pairs(&run)?;
    same("pairs", (launches, counted), (ALL, ALL))?;
    // The runtime launches, too.
    let run = bench.both("launchlate", "vectoradd", &["100000", "20"])?;
    let (launches, counted, more) = pairs(&run)?;
    same("pairs", (launches, counted), (20, 20))?;
    if ns == 0 || more == 0 {
        return Err("no time from a launch to its first block".to_owned());
    }
    Ok(format!("{} launches, {} ns on average", ALL, ns / ALL))
}
