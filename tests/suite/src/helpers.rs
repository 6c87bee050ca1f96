//! What helpers say, in a real application.

use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::run::{Bench, Case, Told, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("groups, texts, clocks and ids", more),
        case("dynptrs of records and of values", dynptrs),
        case(
            "the application's memory, discarded records, prefetches and texts",
            memory,
        ),
    ]
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
    let mut expected: Vec<String> = [
        "   in|out  |",
        "1 -2 3 4a 500000000 6",
        "five of 5: even, bee -4",
        &user,
    ]
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

/// Of `vectoradd 10000 2`: threads of a launch.
const SENDERS: u64 = 40 * 256;

/// Records of all sizes, each whole and once for each launch; and values of which a part was
/// written.
fn dynptrs(bench: &Bench) -> Told {
    let run = bench.both_with(
        &["--budget", "20000", "--events", "100000"],
        "dynptr",
        "vectoradd",
        &["10000", "2"],
    )?;
    // With a bound on tries, into which warps may run on a GPU: what is refused is counted.
    let number = |key: u64| run.value("results", key);
    let (submitted, discarded, refused) = (number(0)?, number(1)?, number(2)?);
    let of_fives = 2 * SENDERS.div_ceil(5);
    same("threads", submitted + discarded + refused, 2 * SENDERS)?;
    if bench.soft {
        same("discarded", (discarded, refused), (of_fives, 0))?;
    }
    same("right answers", number(3)?, 2 * SENDERS * 6)?;
    let events = &run.map("events")?["events"];
    same("events", events["received"].as_u64(), Some(submitted))?;
    same("lost", events["lost"].as_u64(), Some(refused))?;
    let mut times = vec![0; SENDERS as usize];
    for event in events["first"].as_array().into_iter().flatten() {
        let bytes = bytes_of(event).ok_or_else(|| format!("no bytes: {event}"))?;
        let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
        let Some(number) = number.filter(|number| *number < SENDERS) else {
            return Err(format!("nobody sent this: {event}"));
        };
        let whole = bytes.len() as u64 == 9 + number % 50 && bytes.last() == Some(&0xa5);
        same(&format!("whether {event} is whole"), whole, true)?;
        times[number as usize] += 1;
    }
    let wrong = (0..).zip(&times).find(|(number, times)| {
        let most = if number % 5 == 0 { 0 } else { 2 };
        **times > most
    });
    same("threads with more events", wrong, None)?;
    same("events of threads", times.iter().sum::<u64>(), submitted)?;
    let values = run.entries("values")?;
    same("values", values.len() as u64, SENDERS)?;
    for (key, value) in values {
        let word = |name: &str| value[name].as_u64();
        let thread = key.as_u64().unwrap_or(u64::MAX);
        let expected = [0, thread, u64::from(!(thread as u32)), 0].map(Some);
        let found = ["before", "low", "high", "after"].map(word);
        same(&format!("value of thread {thread}"), found, expected)?;
    }
    Ok(format!(
        "{submitted} events, {refused} found no room in time"
    ))
}

/// An event without a type, as the report has it.
fn bytes_of(event: &Value) -> Option<Vec<u8>> {
    let text = event.as_str().filter(|text| text.is_ascii())?;
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect()
}

fn memory(bench: &Bench) -> Told {
    let total = THREADS.to_string();
    let flags = ["--budget", "20000", "--events", total.as_str()];
    let run = bench.both_with(&flags, "helpers_memory", "vectoradd", &["100000", "3"])?;
    for (check, what) in (0..).zip([
        "bpf_probe_read",
        "bpf_probe_read_user",
        "bpf_probe_read_kernel",
        "bpf_probe_read_str",
        "bpf_probe_read_user_str",
        "bpf_probe_read_kernel_str",
        "bpf_gpu_prefetch_l2",
    ]) {
        let agreed = run.value("results", check)?;
        same(&format!("threads that agree on {what}"), agreed, THREADS)?;
    }
    same(
        "texts that were queued",
        run.value("results", 7)?,
        LAUNCHES as u64,
    )?;
    let text = "block (0,0,0) thread (0,0,0): a text of its own";
    let messages = &run.process()["messages"];
    same("messages", messages, &vec![text; LAUNCHES].into())?;
    // What was discarded never comes; the others come as often as they were sent.
    let records = &run.map("records")?["events"];
    same("lost", records["lost"].as_u64(), Some(0))?;
    let threads = THREADS / LAUNCHES as u64;
    let mut times = vec![0; threads as usize];
    for record in records["first"].as_array().into_iter().flatten() {
        match record
            .as_u64()
            .and_then(|thread| times.get_mut(thread as usize))
        {
            Some(times) => *times += 1,
            None => return Err(format!("an impossible record: {record}")),
        }
    }
    let sent = |thread: usize| {
        if thread.is_multiple_of(3) {
            LAUNCHES
        } else {
            0
        }
    };
    let wrong = times
        .iter()
        .enumerate()
        .filter(|(thread, n)| **n != sent(*thread))
        .count();
    same("threads with other numbers of records", wrong, 0)?;
    Ok(format!(
        "{THREADS} threads, {} records",
        times.iter().sum::<usize>()
    ))
}
