//! Maps in maps, which the host exchanges under a kernel that counts in them all the time: nothing
//! is counted where it should not be, and all is counted somewhere.

use std::time::{Duration, Instant};

use warpbpf_tool::{Error, Map, Process};

use crate::run::{Bench, Case, Told, same};
use crate::user_ring::{beside, failed};

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// `EINVAL`, as the agent tells it.
const INVALID: i32 = -22;

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "maps of maps, exchanged under a kernel",
        check: |bench| beside(bench, "maps_inner", exchanged),
    }]
}

fn refused(result: Result<(), Error>, expected: i32) -> Result<(), String> {
    match result {
        Err(Error::Operation { errno, .. }) => same("what is refused", errno, expected),
        other => Err(format!("{other:?} where {expected} is right")),
    }
}

/// What was counted, by the kind of the outer map.
fn counts(process: &Process, name: &str) -> Result<[u64; 2], String> {
    let map = process.map(name).map_err(failed)?;
    let map = map.typed::<u32, u64>().map_err(failed)?;
    let value = |key| map.get(&key).map_err(failed).map(Option::unwrap_or_default);
    Ok([value(0)?, value(1)?])
}

/// Times that nothing was found, by kind, and all times.
fn times(process: &Process) -> Result<[u64; 3], String> {
    let map = process.map("times").map_err(failed)?;
    let map = map.typed::<u32, u32>().map_err(failed)?;
    let value = |key| {
        map.get(&key)
            .map_err(failed)
            .map(|v| u64::from(v.unwrap_or(0)))
    };
    Ok([value(0)?, value(1)?, value(2)?])
}

/// Both kinds are counted further, where `now` reads.
fn grows(what: &str, now: impl Fn() -> Result<[u64; 2], String>) -> Result<(), String> {
    let (before, end) = (now()?, Instant::now() + PATIENCE);
    while now()?
        .iter()
        .zip(before)
        .any(|(now, before)| *now <= before)
    {
        if Instant::now() > end {
            return Err(format!("{what} is not counted further than {before:?}"));
        }
    }
    Ok(())
}

fn exchanged(_: &Bench, process: &Process, _: u32) -> Told {
    let map = |name: &str| process.map(name).map_err(failed);
    let (by_index, by_key) = (map("by_index")?, map("by_key")?);
    let key = |number: u32| number.to_le_bytes();
    let put = |map: &Map, at: u32, value: &[u8]| map.update(&key(at), value, 0);
    // A value is a map's place in the object plus one.
    let number = |name: &str| Ok::<_, String>((map(name)?.index() + 1).to_le_bytes());
    let (first, second) = (number("first")?, number("second")?);
    for (at, value) in [(0, first), (1, second)] {
        let found = by_index.lookup(&key(at)).map_err(failed)?;
        same("what it begins with", found, Some(value.to_vec()))?;
    }
    let of = |name: &'static str| move || counts(process, name);
    let nothing = || times(process).map(|[array, hash, _]| [array, hash]);
    let mut rounds = 0;
    while rounds < 20 {
        rounds += 1;
        for (value, name) in [(&second, "second"), (&first, "first")] {
            put(&by_index, 0, value).map_err(failed)?;
            put(&by_key, 77, value).map_err(failed)?;
            grows(name, of(name))?;
        }
        // Only the first time there is something to take out.
        for there in [true, false] {
            let deleted = [by_index.delete(&key(0)), by_key.delete(&key(77))];
            for deleted in deleted {
                same("it was there", deleted.map_err(failed)?, there)?;
            }
            grows("nothing", nothing)?;
        }
        refused(put(&by_index, 0, &key(9_999)), INVALID)?;
    }
    let control = map("control")?.typed::<u32, u32>().map_err(failed)?;
    control.insert(&0, &1).map_err(failed)?;
    // Until nobody counts any more.
    let end = Instant::now() + PATIENCE;
    loop {
        let [no_array, no_hash, all] = times(process)?;
        let (one, two) = (counts(process, "first")?, counts(process, "second")?);
        let found = [one[0] + two[0] + no_array, one[1] + two[1] + no_hash];
        if found == [all; 2] && times(process)?[2] == all {
            return Ok(format!("{rounds} rounds, {all} lookups of each kind"));
        }
        if Instant::now() > end {
            return Err(format!("{found:?} were counted of {all}"));
        }
    }
}
