//! Maps that lanes use together, from kernels without PTX: what they hold is what a plain array
//! counted beside them.

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("machine code: maps that lanes use together", spliced),
        case("sanitizer: maps that lanes use together", patched),
    ]
}

/// Of each launch of `machine.cu`.
const BLOCKS: u64 = 400;
const THREADS: u64 = BLOCKS * 256;
const LAUNCHES: u64 = 20;
/// The last threads of a launch have nothing to halve.
const HALVED: u64 = THREADS - 100;
/// Four updates of hashes are much for one program.
const BUDGET: [&str; 2] = ["--budget", "65536"];

/// Both objects in kernels with PTX on the soft GPU, in machine code on another one.
fn spliced(bench: &Bench) -> Told {
    if bench.soft {
        return with_ptx(bench);
    }
    let by_threads = threads(bench, &["--backend", "splice"], "splice", 2)?;
    let flags = ["--backend", "splice", "--splice-memory"];
    Ok(format!(
        "{by_threads}; {}",
        loads(bench, &flags, "splice", 2)?
    ))
}

fn patched(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and the soft one runs no machine code".into());
    }
    // Not in graphs.
    let flags = ["--backend", "sanitizer"];
    let by_threads = threads(bench, &flags, "sanitizer", 1)?;
    Ok(format!(
        "{by_threads}; {}",
        loads(bench, &flags, "sanitizer", 1)?
    ))
}

fn with_ptx(bench: &Bench) -> Told {
    let arguments = ["100000", "3"];
    let run = bench.both_with(&BUDGET, "machine_maps", "vectoradd", &arguments)?;
    let of = Expected::threads(3, 391);
    let lost = check(&run, run.kernel("vectorAdd")?, &of)?;
    records(&run, of.records)?;
    let run = bench.both_with(&BUDGET, "machine_loads", "vectoradd", &arguments)?;
    let of = Expected::loads(3 * 2, 100_000, 391);
    let lost = lost + check(&run, run.kernel("vectorAdd")?, &of)?;
    records(&run, of.records)?;
    Ok(format!(
        "{} loads, in PTX; {lost} found no place",
        of.times[0]
    ))
}

/// Every thread where it begins and where it ends.
fn threads(bench: &Bench, flags: &[&str], method: &str, of_sums: u64) -> Told {
    let (all, lost) = of_machine_code(bench, "machine_maps", flags, |run| {
        let mut lost = 0;
        let mut expected = 0;
        for (name, launches) in [("halve", LAUNCHES), ("sums", of_sums * LAUNCHES)] {
            let of = Expected::threads(launches, BLOCKS);
            lost += check(run, kernel(run, name, method)?, &of)?;
            expected += of.records;
        }
        // One launch of a third kernel, which has no place for accesses.
        records(run, expected + BLOCKS * 4)?;
        Ok(((1 + of_sums) * LAUNCHES * THREADS, lost))
    })?;
    Ok(format!("{all} threads, {lost} found no place"))
}

/// Every load of global memory.
fn loads(bench: &Bench, flags: &[&str], method: &str, of_sums: u64) -> Told {
    let (all, lost) = of_machine_code(bench, "machine_loads", flags, |run| {
        let halve = Expected::loads(LAUNCHES, HALVED, BLOCKS);
        let sums = Expected::loads(of_sums * LAUNCHES, THREADS, BLOCKS);
        let lost = check(run, kernel(run, "halve", method)?, &halve)?
            + check(run, kernel(run, "sums", method)?, &sums)?;
        Ok((halve.times[0] + sums.times[0], lost))
    })?;
    Ok(format!("{all} loads, {lost} found no place"))
}

fn of_machine_code(
    bench: &Bench,
    program: &str,
    flags: &[&str],
    found: impl Fn(&Run) -> Result<(u64, u64), String>,
) -> Result<(u64, u64), String> {
    let launches = LAUNCHES.to_string();
    let flags = [flags, &BUDGET].concat();
    let run = bench.both_with(&flags, program, "machine", &[&launches])?;
    found(&run)
}

fn kernel<'r>(run: &'r Run, name: &str, method: &str) -> Result<&'r Value, String> {
    let kernel = run.kernel(name)?;
    same("method", &kernel["method"], &method.into())?;
    Ok(kernel)
}

/// Of all launches of a kernel.
struct Expected {
    /// Threads that begin, or loads; threads that end.
    times: [u64; 2],
    records: u64,
    /// On the stack, and from it.
    values: u64,
    bytes: u64,
}

impl Expected {
    /// Launches of so many blocks of 256.
    fn threads(launches: u64, blocks: u64) -> Expected {
        let threads = launches * blocks * 256;
        Expected {
            times: [threads, threads],
            records: threads / 64,
            values: launches * blocks,
            bytes: 0,
        }
    }

    /// Loads of the first threads of each launch.
    fn loads(launches: u64, threads: u64, blocks: u64) -> Expected {
        Expected {
            times: [launches * threads, 0],
            records: launches * threads.div_ceil(64),
            values: launches * blocks,
            bytes: launches * threads * 4,
        }
    }
}

/// Entries of a hash in which a kernel has counted, with what is at `field` of their values.
fn counted(run: &Run, map: &str, kernel: u64, field: &str) -> Result<u64, String> {
    let mut sum = 0;
    for (key, value) in run.entries(map)? {
        let key = key.as_u64().ok_or("a key that is no number")?;
        if key / 64 == kernel {
            let value = match field {
                "" => &value,
                field => &value[field],
            };
            // An SM or a CPU has a value of its own.
            let all = value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice);
            for one in all {
                sum += one.as_u64().ok_or_else(|| format!("{map}: {value}"))?;
            }
        }
    }
    Ok(sum)
}

/// Everything that a kernel's programs did is in the maps. How often a map had no place for a key.
fn check(run: &Run, kernel: &Value, of: &Expected) -> Result<u64, String> {
    let id = kernel["id"].as_u64().ok_or("no number")?;
    let noted = |what: u64| run.value("counts", id * 8 + what);
    let [begun, ended] = of.times;
    for (which, what, expected) in [
        (0, "threads that begin, or loads", begun),
        (1, "threads that end", ended),
        (3, "records", of.records),
        (6, "bytes that were read", of.bytes),
    ] {
        same(what, noted(which)?, expected)?;
    }
    // Where many push and pop at once, some give up.
    let [pushed, popped, refused] = [noted(4)?, noted(5)?, noted(7)?];
    let values = pushed + popped + refused;
    same("pushes and pops", values, 2 * of.values)?;
    let mut found = 0;
    for (map, field) in [
        ("plain", ""),
        ("lru", ""),
        ("percpu", ""),
        ("wide", "count"),
    ] {
        found += counted(run, map, id, field)?;
    }
    let lost = noted(2)?;
    let all = 4 * (begun + ended);
    same("counted in four hashes", found + lost, all)?;
    // Few come to keys that many others make at once.
    same("most have a place", lost < all / 1000, true)?;
    Ok(lost)
}

fn records(run: &Run, expected: u64) -> Result<(), String> {
    let events = &run.map("records")?["events"];
    let received = events["received"].as_u64();
    same("records that came", received, Some(expected))?;
    // What others pushed is there still.
    let mut left = 0;
    let kernels = run.process()["kernels"].as_array();
    for kernel in kernels.into_iter().flatten() {
        let id = kernel["id"].as_u64().ok_or("no number")?;
        let noted = |what: u64| run.value("counts", id * 8 + what);
        left += noted(4)? as i64 - noted(5)? as i64;
    }
    let there = run.entries("stack")?.len();
    same("values on the stack", there as i64, left)
}
