//! What helpers say, in a real application.

use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::run::{Bench, Case, Told, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "groups, texts, clocks and ids",
        check: more,
    }]
}

/// Of `vectoradd 100000 3`.
const THREADS: u64 = 391 * 256 * 3;
const LAUNCHES: usize = 3;

fn more(bench: &Bench) -> Told {
    let run = bench.both_with(
        &["--budget", "20000"],
        "helpers_more",
        "vectoradd",
        &["100000", "3"],
    )?;
    for (check, what) in [
        "group",
        "places",
        "times",
        "texts",
        "name",
        "unreadable string",
        "own copy",
        "no copy",
        "own copy of a hash",
        "no copy of a hash",
    ]
    .into_iter()
    .enumerate()
    {
        let agreed = run.value("results", check as u64)?;
        same(&format!("threads that agree on {what}"), agreed, THREADS)?;
    }
    same("lanes of all groups", run.value("lanes", 0)?, THREADS)?;
    let messages = run.process()["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut texts: Vec<&str> = messages.iter().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    let own = std::fs::metadata("/proc/self").map_err(|e| format!("/proc/self: {e}"))?;
    let user = format!("user {} group {}", own.uid(), own.gid());
    let mut expected: Vec<String> = ["   in|out  |", "1 -2 3 4a 500000000 6", &user]
        .into_iter()
        .flat_map(|text| {
            let line = format!("block (0,0,0) thread (0,0,0): {text}");
            std::iter::repeat_n(line, LAUNCHES)
        })
        .collect();
    expected.sort_unstable();
    let found: Vec<String> = texts.into_iter().map(str::to_owned).collect();
    same("messages", found, expected)?;
    Ok(format!("{THREADS} threads"))
}
