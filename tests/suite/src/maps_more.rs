//! Maps that are no hashes: nothing that was put in is lost or comes out twice, and arrays count exactly.

use crate::run::{Bench, Case, Run, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("queues, stacks and bloom filters", lists),
        case("events, host arrays and maps of maps", arrays),
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

/// Each thread makes eight operations: on a GPU more than 2 x 10^8 in all.
fn lists(bench: &Bench) -> Told {
    let (run, threads, launches) = vectoradd(bench, "maps_more", [3000, 2], [4_000_000, 8])?;
    let total = threads * launches;
    let count = |key: u64| run.value("counts", key);
    let mut told = Vec::new();
    for (name, first) in [("queue", 0), ("stack", 8)] {
        let [pushed, pushed_sum, refused] = [count(first)?, count(first + 1)?, count(first + 2)?];
        let [popped, popped_sum, empty] = [count(first + 3)?, count(first + 4)?, count(first + 5)?];
        same(&format!("{name}: strange results"), count(first + 6)?, 0)?;
        same(&format!("{name}: pushes"), pushed + refused, total)?;
        same(&format!("{name}: pops"), popped + empty, total)?;
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
    Ok(told.join("; "))
}

fn arrays(bench: &Bench) -> Told {
    let (run, threads, launches) = vectoradd(bench, "maps_arrays", [3000, 2], [1_000_000, 2])?;
    let total = threads * launches;
    for key in 1..3 {
        same(&format!("problem {key}"), run.value("problems", key)?, 0)?;
    }
    let mut received = 0;
    let mut lost = 0;
    for name in ["events", "gpu_events"] {
        let events = &run.map(name)?["events"];
        received += events["received"].as_u64().unwrap_or(0);
        lost += events["lost"].as_u64().unwrap_or(0);
    }
    same("events", received + lost, 2 * total)?;
    same("events that were refused", run.value("problems", 0)?, lost)?;
    if bench.soft {
        same("lost events", lost, 0)?;
    }
    for name in ["gpu_array", "kernel_array", "host_array"] {
        same(name, run.value(name, 0)?, total)?;
        same(name, run.value(name, 1)?, 0)?;
    }
    let of_threads = &run.map("host_threads")?["threads"];
    same("threads", of_threads["count"].as_u64(), Some(threads))?;
    same("each", of_threads["min"].as_u64(), Some(launches))?;
    same("each", of_threads["max"].as_u64(), Some(launches))?;
    for (name, parity) in [("even", 0), ("odd", 1)] {
        same(name, run.value(name, 0)?, total / 2)?;
        same(name, run.value(name, 1)?, total / 2)?;
        let last = run.value(name, 2)?;
        same(&format!("{name}: whose value"), last % 2, parity)?;
    }
    same("maps in the array", run.entries("by_index")?.len(), 2)?;
    same("maps in the hash", run.entries("by_key")?.len(), 2)?;
    Ok(format!(
        "{received} events, {lost} lost and counted, {total} threads"
    ))
}
