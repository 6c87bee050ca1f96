//! Hashes through which ever new keys come: far more than they have slots and nodes.

use std::collections::BTreeSet;

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("ever new keys, with pauses: compacted", with_pauses),
        case("ever new keys, without a pause: refused", without_pauses),
    ]
}

/// Two lookups, two inserts and two deletes of a thread count for more than a program may do by
/// default.
const BUDGET: &[&str] = &["--budget", "8192"];
/// Threads of a launch, each with a key.
const THREADS: u64 = 256;

/// What became of the keys.
struct Keys {
    came: u64,
    busy: u64,
    uninstrumented: u64,
}

/// What holds however often the maps were compacted: nothing is lost, doubled or mixed up.
fn check(run: &Run) -> Result<Keys, String> {
    let kernel = run.kernel("add")?;
    let number = |field: &str| kernel[field].as_u64().ok_or(format!("no `{field}`"));
    let (launches, uninstrumented) = (number("launches")?, number("uninstrumented")?);
    let result = |i| run.value("results", i);
    let (came, busy) = (result(0)?, result(1)?);
    same(
        "keys that came or were refused",
        came + busy,
        launches * THREADS,
    )?;
    same("other errors", result(2)?, 0)?;
    same("keys that could not be taken out", result(4)?, 0)?;
    same("values that were wrong", result(5)?, 0)?;
    let mine: BTreeSet<u64> = (0..2 * THREADS)
        .map(|i| run.value("mine", i))
        .collect::<Result<BTreeSet<u64>, String>>()?;
    let mine: Vec<u64> = mine.into_iter().filter(|key| *key != 0).collect();
    same(
        "keys taken out of both",
        result(3)?,
        2 * (came - mine.len() as u64),
    )?;
    let mut table = Vec::new();
    for (key, value) in run.entries("table")? {
        let key = key.as_u64().ok_or("a key is no number")?;
        same("a value", value.as_u64(), Some(key * 3))?;
        table.push(key);
    }
    table.sort_unstable();
    same("keys in `table`", &table, &mine)?;
    let mut large = Vec::new();
    for (key, value) in run.entries("large")? {
        let key = key.as_u64().ok_or("a key is no number")?;
        same("the first word", value["w"][0].as_u64(), Some(key))?;
        same("the last word", value["w"][8].as_u64(), Some(key + 8))?;
        large.push(key);
    }
    large.sort_unstable();
    same("keys in `large`", &large, &mine)?;
    Ok(Keys {
        came,
        busy,
        uninstrumented,
    })
}

fn with_pauses(bench: &Bench) -> Told {
    // How long the agent's thread needs to see that nothing runs is a matter of the machine; what
    // is exact is exact in each try.
    let mut told = Err(String::new());
    for pause in ["30", "200", "1000"] {
        told = compacted(bench, pause)?;
        if told.is_ok() {
            break;
        }
    }
    told
}

/// What was wrong is the outer error; what there was no time for is the inner one.
fn compacted(bench: &Bench, pause: &str) -> Result<Told, String> {
    let run = bench.both_with(BUDGET, "churn", "rounds", &["150", pause])?;
    let keys = check(&run)?;
    let remarks = run.remarks();
    let met = remarks.contains("was launched while a map was being compacted");
    same(
        "launches that met a compaction are told",
        met,
        keys.uninstrumented > 0,
    )?;
    if keys.busy > 0 {
        return Ok(Err(format!("{} keys were refused", keys.busy)));
    }
    // Half as many would fill all slots of the one map, and a quarter all nodes of the other.
    if keys.came <= 32 * 1024 {
        return Ok(Err(format!("only {} keys came", keys.came)));
    }
    for map in ["table", "large"] {
        says(&remarks, &format!("map `{map}` was compacted"))?;
    }
    Ok(Ok(format!(
        "{} keys came, {} launches met a compaction",
        keys.came, keys.uninstrumented
    )))
}

fn without_pauses(bench: &Bench) -> Told {
    let run = bench.both_with(BUDGET, "churn", "rounds", &["400", "0"])?;
    let keys = check(&run)?;
    // A slow machine may have paused by itself.
    if keys.busy == 0 && !run.remarks().contains("was compacted") {
        return Err("no key was refused, although there were more than slots".into());
    }
    Ok(format!(
        "{} keys came, {} were refused",
        keys.came, keys.busy
    ))
}
