//! The hash family: small on the soft GPU, a hundred million operations and more on a GPU.

use serde_json::{Value, json};

use crate::run::{Bench, Case, Run, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "the hash family",
        check: family,
    }]
}

/// Keys that threads count under.
const KEYS: u64 = 1000;

fn family(bench: &Bench) -> Told {
    // Elements and launches; a thread for each element, in whole blocks of 256. A thread makes 5 x 1 lookups for its counts,
    // an update and a lookup of a large value, an update and a lookup in the stream, an insert and mostly a delete of a
    // shared key, and notes three results: 14 operations.
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
    // How many find their key there already, and how many are overtaken too often, is a matter of the device.
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
        total * 14
    ))
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
