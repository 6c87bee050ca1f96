//! The hash family: small on the soft GPU, a hundred million operations of each type and more on a
//! GPU.

use serde_json::{Value, json};

use crate::run::{Bench, Case, Run, Told, enough, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("the hash family", family),
        case("every operation on every hash", soak),
    ]
}

/// Keys that threads count under.
const KEYS: u64 = 1000;

fn family(bench: &Bench) -> Told {
    // Elements and launches; a thread for each element, in whole blocks of 256. A thread makes 5 x
    // 1 lookups for its counts, an update and a lookup of a large value, an update and a lookup in
    // the stream, an insert and, two of three, a delete of a shared key: 10 operations at least.
    let (elements, launches) = if bench.soft {
        ("10000", "3")
    } else {
        ("4000000", "3")
    };
    let count = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let launched = count(launches)?;
    let threads = count(elements)?.div_ceil(256) * 256;
    let run = bench.both("maps_hash", "vectoradd", &[elements, launches])?;

    same("threads without room", run.value("results", 0)?, 0)?;
    for map in ["hash_counts", "gpu_counts", "lru_counts"] {
        counts(&run, map, threads, launched, |value| value.as_u64())?;
    }
    for map in ["percpu_counts", "lru_percpu_counts"] {
        counts(&run, map, threads, launched, |value| {
            value.as_array()?.iter().map(Value::as_u64).sum()
        })?;
    }
    let total = threads * launched;
    let result = |i| run.value("results", i);
    let (overwritten, busy) = (result(1)?, result(2)?);
    same("overwrites", overwritten + busy, total)?;
    same("overwrites that failed otherwise", result(3)?, 0)?;
    same("torn values", result(4)?, 0)?;
    let triples = run.entries("triples")?;
    same("keys of large values", triples.len(), 64)?;
    for (key, value) in &triples {
        let word = |v: &Value, field: &str, i: usize| v[field][i].as_u64();
        let first = word(value, "w", 0);
        same("a large value", word(value, "w", 1), first)?;
        same("a large value", word(value, "w", 2), first)?;
        same("its key", word(key, "key", 0), first.map(|w| w % 64))?;
    }
    let owned = result(5)?;
    same("owned keys", owned, threads.min(4096) * launched)?;
    same("owned keys that went wrong", result(6)?, 0)?;
    same("owned keys that are left", run.entries("owned")?.len(), 0)?;
    same(
        "what is said of them",
        &run.map("owned")?["warnings"],
        &json!([]),
    )?;
    let (came, went, came_busy) = (result(13)?, result(14)?, result(15)?);
    same("keys that came or went wrong", result(16)?, 0)?;
    let left = run.entries("shared")?.len() as u64;
    same("keys that came and did not go", left, came - went)?;
    // How many find their key there already, and how many are overtaken too often, is a matter of
    // the device.
    if came < 500 {
        return Err(format!("only {came} keys came, {came_busy} found no place"));
    }

    let (streamed, stream_busy) = (result(7)?, result(8)?);
    same("stream", streamed + stream_busy, total)?;
    same("stream updates that failed otherwise", result(9)?, 0)?;
    let (dropped, seen, other) = (result(10)?, result(11)?, result(12)?);
    same("stream lookups", dropped + seen + other, total)?;
    let kept = run.entries("stream")?;
    // One whose insert was given up has left a little room.
    let (most, least) = (threads.min(50000), threads.min(49500));
    if !(least..=most).contains(&(kept.len() as u64)) {
        return Err(format!("{} keys of the stream are left", kept.len()));
    }
    for (key, value) in &kept {
        let me = key["key"][0].as_u64();
        let expected: Vec<Option<u64>> = (0..3).map(|i| me.map(|me| me + i)).collect();
        let found: Vec<Option<u64>> = (0..3).map(|i| value["w"][i].as_u64()).collect();
        same("a value of the stream", found, expected)?;
    }
    // Someone who looks right after is seldom too late.
    if (dropped + other) * 10 > total || stream_busy * 1000 > total {
        return Err(format!(
            "of {total} keys of the stream {dropped} were dropped at once, {other} changed and {stream_busy} not put in"
        ));
    }
    Ok(format!(
        "{} operations; {busy} overwrites without a node, {came} keys came, {went} went, {came_busy} found no place, {dropped} keys of the stream dropped at once, {other} changed, {stream_busy} not put in",
        total * 10
    ))
}

/// As in `soak_hash.bpf.c`: operations of a thread on its own key, and where it notes that all were
/// right.
const STEPS: u64 = 9;

/// Each thread does all that can be done to a key of its own, in an order in which each result is
/// known, beside what all threads do to shared keys.
fn soak(bench: &Bench) -> Told {
    let (elements, launches) = if bench.soft { (1000, 3) } else { (65_536, 160) };
    let threads = u64::div_ceil(elements, 256) * 256;
    let total = threads * launches;
    let arguments = [elements.to_string(), launches.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = bench.both_with(&["--budget", "20000"], "soak_hash", "vectoradd", &arguments)?;
    let mut told = Vec::new();
    for (number, map) in (0..).zip([
        "hash",
        "gpu_hash",
        "percpu_hash",
        "lru_hash",
        "lru_percpu_hash",
    ]) {
        let result = |step: u64| run.value("results", number * 16 + step);
        let (right, is_lru) = (result(STEPS + 1)?, map.starts_with("lru"));
        let wrong: Vec<u64> = (1..=STEPS).map(result).collect::<Result<_, _>>()?;
        let overtaken: u64 = wrong.iter().sum();
        same(&format!("threads on {map}"), right + overtaken, total)?;
        // A key of an LRU hash may be dropped although there is room, if its bucket is full, and
        // who is overtaken 64 times is told so.
        if !(is_lru && overtaken <= total / 1000) {
            same(
                &format!("{map}: wrong at each step"),
                wrong,
                vec![0; STEPS as usize],
            )?;
        }
        same(&format!("{map}: without a shared key"), result(0)?, 0)?;
        if overtaken == 0 {
            // What is left are the shared keys, and their counts are exact.
            counts(&run, map, threads, launches, |value| {
                match value.as_array() {
                    Some(all) => all.iter().map(Value::as_u64).sum(),
                    None => value.as_u64(),
                }
            })?;
        }
        let operations = total + right * STEPS;
        enough(bench, &map.to_uppercase(), operations)?;
        told.push(format!("{map} {operations} ({overtaken} overtaken)"));
    }
    Ok(told.join(", "))
}

/// Each key's count is the number of threads that have it.
fn counts(
    run: &Run,
    map: &str,
    threads: u64,
    launches: u64,
    sum: impl Fn(&Value) -> Option<u64>,
) -> Result<(), String> {
    let entries = run.entries(map)?;
    same(&format!("keys of {map}"), entries.len() as u64, KEYS)?;
    for (key, value) in &entries {
        let Some(key) = key.as_u64() else {
            return Err(format!("{map}: an impossible key {key}"));
        };
        let expected = (threads / KEYS + u64::from(key < threads % KEYS)) * launches;
        same(&format!("{map}[{key}]"), sum(value), Some(expected))?;
    }
    Ok(())
}
