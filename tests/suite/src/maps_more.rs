//! Maps that are no hashes: nothing that was put in is lost or comes out twice, and arrays count
//! exactly.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::{Bench, Case, Run, Told, enough, operations, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("queues, stacks and bloom filters", lists),
        case("events, arrays and maps of maps", arrays),
        case("events of both kinds, one by one", one_by_one),
    ]
}

/// Threads of a launch of `vectoradd` with this many elements.
fn threads(elements: u64) -> u64 {
    elements.div_ceil(256) * 256
}

fn vectoradd(
    bench: &Bench,
    object: &str,
    soft: [u64; 2],
    gpu: [u64; 2],
) -> Result<(Run, u64, u64), String> {
    let [elements, launches] = if bench.soft { soft } else { gpu };
    let arguments = [elements.to_string(), launches.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = bench.both(object, "vectoradd", &arguments)?;
    Ok((run, threads(elements), launches))
}

/// Each thread makes four operations on queues, three on a stack, and two on a bloom filter.
fn lists(bench: &Bench) -> Told {
    let (run, threads, launches) = vectoradd(bench, "maps_more", [3000, 2], [4_000_000, 13])?;
    let total = threads * launches;
    let count = |key: u64| run.value("counts", key);
    let mut told = Vec::new();
    for (name, first) in [("queue", 0), ("stack", 8)] {
        let [pushed, pushed_sum, refused] = [count(first)?, count(first + 1)?, count(first + 2)?];
        let [popped, popped_sum, empty] = [count(first + 3)?, count(first + 4)?, count(first + 5)?];
        same(&format!("{name}: strange results"), count(first + 6)?, 0)?;
        same(&format!("{name}: pushes"), pushed + refused, total)?;
        same(&format!("{name}: pops"), popped + empty, total)?;
        same(&format!("{name}: peeks"), count(first + 7)?, total)?;
        let left = run.entries(name)?;
        let left_sum: u64 = left.iter().filter_map(|(_, value)| value.as_u64()).sum();
        same(
            &format!("{name}: values"),
            popped + left.len() as u64,
            pushed,
        )?;
        same(
            &format!("{name}: sum"),
            popped_sum.wrapping_add(left_sum),
            pushed_sum,
        )?;
        told.push(format!(
            "{name}: {pushed} in, {refused} refused, {popped} out"
        ));
    }
    same("pushes that drop", count(18)? + count(19)?, total)?;
    let latest = run.entries("latest")?;
    same("values that stay", latest.len(), 7)?;
    for (_, value) in &latest {
        let value = value.as_u64().unwrap_or(0);
        if value == 0 || value > threads {
            return Err(format!("{value} was never pushed"));
        }
    }
    same("values that the filter misses", count(16)?, 0)?;
    same("values in the filter", count(17)?, total)?;
    enough(bench, "QUEUE", 4 * total)?;
    enough(bench, "STACK", 3 * total)?;
    enough(bench, "BLOOM_FILTER", 2 * total)?;
    Ok(told.join("; "))
}

/// As in `maps_arrays.bpf.c`.
const COUNTS: u64 = 16;
const VALUES: u64 = 1024;

/// Each thread makes at least one operation on each map.
fn arrays(bench: &Bench) -> Told {
    let (run, threads, launches) = vectoradd(bench, "maps_arrays", [3000, 2], [1_000_000, 110])?;
    let total = threads * launches;
    for key in 1..3 {
        same(&format!("problem {key}"), run.value("problems", key)?, 0)?;
    }
    let (mut events, mut refused) = (0, 0);
    let (mut told, mut received_by) = (Vec::new(), Vec::new());
    for (name, kind) in [
        ("events", "PERF_EVENT_ARRAY"),
        ("gpu_events", "GPU_RINGBUF/1527"),
    ] {
        let of = &run.map(name)?["events"];
        let number = |field: &str| of[field].as_u64().unwrap_or(0);
        let (received, lost) = (number("received"), number("lost"));
        same(
            &format!("{name}: received and lost"),
            received + lost,
            total,
        )?;
        // What the rings held at first comes home, however slow the tool is.
        if received == 0 || (bench.soft && lost > 0) {
            return Err(format!("{name}: {received} received, {lost} lost"));
        }
        events += received;
        refused += lost;
        received_by.push((kind, received));
        operations(&format!("{kind} lost"), lost);
        told.push(format!("{name}: {received} received, {lost} lost"));
    }
    same(
        "events that were refused",
        run.value("problems", 0)?,
        refused,
    )?;
    same("events", events + refused, 2 * total)?;
    for name in ["gpu_array", "kernel_array", "host_array"] {
        same(name, run.value(name, 0)?, total)?;
        same(name, run.value(name, 1)?, 0)?;
    }
    let share = |key: u64| (threads / COUNTS + u64::from(key < threads % COUNTS)) * launches;
    for key in 0..COUNTS {
        same(
            &format!("array[{key}]"),
            run.value("array", key)?,
            share(key),
        )?;
    }
    for (key, value) in run.entries("percpu_array")? {
        let key = key.as_u64().ok_or("a key is no number")?;
        let sum = value
            .as_array()
            .and_then(|all| all.iter().map(Value::as_u64).sum());
        same(&format!("percpu_array[{key}]"), sum, Some(share(key)))?;
    }
    same(
        "keys of percpu_array",
        run.entries("percpu_array")?.len() as u64,
        COUNTS,
    )?;
    for name in ["array", "gpu_array", "kernel_array", "host_array"] {
        let all: BTreeMap<u64, u64> = run
            .entries(name)?
            .iter()
            .filter_map(|(key, value)| Some((key.as_u64()?, value.as_u64()?)))
            .filter(|(key, _)| *key >= COUNTS)
            .collect();
        let written = (0..VALUES).map(|n| (COUNTS + n, n + 1)).collect();
        same(&format!("what was written to {name}"), all, written)?;
    }
    for name in ["threads", "host_threads"] {
        let of_threads = &run.map(name)?["threads"];
        same(name, of_threads["count"].as_u64(), Some(threads))?;
        same(name, of_threads["min"].as_u64(), Some(launches))?;
        same(name, of_threads["max"].as_u64(), Some(launches))?;
    }
    for (name, parity) in [("even", 0), ("odd", 1)] {
        same(name, run.value(name, 0)?, total / 2)?;
        same(name, run.value(name, 1)?, total / 2)?;
        let last = run.value(name, 2)?;
        same(&format!("{name}: whose value"), last % 2, parity)?;
    }
    same("maps in the array", run.entries("by_index")?.len(), 2)?;
    same("maps in the hash", run.entries("by_key")?.len(), 2)?;
    for kind in [
        "ARRAY",
        "PERCPU_ARRAY",
        "GPU_ARRAY/1503",
        "GPU_KERNEL_ARRAY/1504",
        "GPU_HOST_ARRAY/1513",
        "PER_THREAD_ARRAY/1502",
        "PER_THREAD_HOST_ARRAY/1512",
        "ARRAY_OF_MAPS",
        "HASH_OF_MAPS",
    ] {
        enough(bench, kind, total)?;
    }
    // What was lost was no event for anybody.
    for (kind, received) in received_by {
        enough(bench, kind, received)?;
    }
    Ok(format!("{}, {threads} threads", told.join("; ")))
}

/// Few enough for the report to have them all: each thread's events came as often as it was
/// launched, with its number in them.
fn one_by_one(bench: &Bench) -> Told {
    let flags = ["--events", "100000"];
    let run = bench.both_with(&flags, "maps_arrays", "vectoradd", &["10000", "2"])?;
    let threads = threads(10_000);
    for (name, number) in [("events", 1), ("gpu_events", 2)] {
        let events = &run.map(name)?["events"];
        same("lost", events["lost"].as_u64(), Some(0))?;
        let mut times = vec![0; threads as usize];
        for event in events["first"].as_array().into_iter().flatten() {
            let told = fields(event).filter(|(_, told)| *told == number);
            match told.and_then(|(thread, _)| times.get_mut(thread as usize)) {
                Some(times) => *times += 1,
                None => return Err(format!("{name}: an impossible event: {event}")),
            }
        }
        same(
            &format!("{name} of each thread"),
            times,
            vec![2; threads as usize],
        )?;
    }
    Ok(format!("{} events", 4 * threads))
}

/// Thread and number of an event: by its fields, or out of the bytes in hex where the map's type
/// does not tell them.
fn fields(event: &Value) -> Option<(u64, u64)> {
    let Some(hex) = event.as_str() else {
        return Some((event["thread"].as_u64()?, event["number"].as_u64()?));
    };
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect::<Option<_>>()?;
    let (thread, rest) = bytes.split_first_chunk::<8>()?;
    let (_, number) = rest.split_last_chunk::<4>()?;
    Some((
        u64::from_le_bytes(*thread),
        u32::from_le_bytes(*number).into(),
    ))
}
