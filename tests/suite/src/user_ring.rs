//! Records of the host for programs: through the library and the command, into a kernel that runs.

use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf_tool::{Error, Map, MapOp, Object, OpCode, Options, Process, Tool};

use crate::library::{launch, started};
use crate::run::{Bench, Case, Told, is_deep, operations, same, says};

/// How long an answer may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// `ENOSPC` and `E2BIG`, as the agent tells them.
const NO_SPACE: i32 = -28;
const TOO_LARGE: i32 = -7;
/// Records that are pushed while programs drain.
const RECORDS: u64 = 1_000;
/// Records that are sent in one message.
const PORTION: u64 = 1 << 18;
/// Records of 24 bytes and a header that the ring of 4,096 bytes takes.
const ROOM: u64 = 4096 / 32;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("user ring: records of the host, in order", records),
        case("user ring: records under stress, each once", stress),
    ]
}

pub(crate) fn failed(error: Error) -> String {
    error.to_string()
}

/// A record as in `userring.bpf.c`, with text or without.
fn job(number: u64, with_text: bool) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((number * 3).to_le_bytes());
    if with_text {
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 3]);
    }
    bytes
}

/// Pushes, as often as it takes while the ring is full.
fn push(jobs: &Map, record: &[u8]) -> Result<u64, String> {
    let end = Instant::now() + PATIENCE;
    let mut refused = 0;
    loop {
        match jobs.push(record, 0) {
            Ok(()) => return Ok(refused),
            Err(Error::Operation { errno, .. }) if errno == NO_SPACE => refused += 1,
            Err(error) => return Err(failed(error)),
        }
        if Instant::now() > end {
            return Err("the ring stays full: no program drains it".into());
        }
    }
}

fn records(bench: &Bench) -> Told {
    beside(bench, "userring", filled)
}

/// Records by the million. One lane drains at a time, so here a GPU is not what it is elsewhere: as
/// many as a minute allows, or `WARPBPF_STRESS_SECONDS`.
fn stress(bench: &Bench) -> Told {
    beside(bench, "userring_large", crowded)
}

/// A kernel that drains until it is told to end, and what is done meanwhile.
pub(crate) fn beside(bench: &Bench, object: &str, work: fn(&Bench, &Process, u32) -> Told) -> Told {
    let object = Object::open(bench.object(object)).map_err(failed)?;
    let options = Options {
        allow_modify: true,
        budget: Some(20_000),
        ..Options::default()
    };
    let tool = Tool::attach(object, options).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let mut app = started(&tool, &launch(bench, &["longrun", "600000"]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let pid = app.child().id();
    let told = work(bench, &process, pid)?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    Ok(told)
}

/// What programs have counted, by its number in the object; once it is this, or when a minute
/// brought no more.
fn is_done(process: &Process, expected: [u64; 7]) -> Result<(), String> {
    let done = process.map("done").and_then(|map| map.typed::<u32, u64>());
    let done = done.map_err(failed)?;
    let mut end = Instant::now() + PATIENCE;
    let mut before = [0; 7];
    loop {
        let mut found = [0; 7];
        for (key, value) in found.iter_mut().enumerate() {
            *value = done.get(&(key as u32)).map_err(failed)?.unwrap_or(0);
        }
        if found == expected || Instant::now() > end {
            return same("what was drained", found, expected);
        }
        if found != before {
            (before, end) = (found, Instant::now() + PATIENCE);
        }
    }
}

fn crowded(bench: &Bench, process: &Process, _: u32) -> Told {
    let jobs = process.map("jobs").map_err(failed)?;
    let (least, most) = match (bench.soft, is_deep()) {
        (true, false) => (100_000, 100_000),
        (true, true) => (1_000_000, 1_000_000),
        (false, _) => (1_000_000, 100_000_000),
    };
    let seconds = std::env::var("WARPBPF_STRESS_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let minute = Instant::now() + seconds.map_or(PATIENCE, Duration::from_secs);
    let (mut number, mut refused) = (0, 0u64);
    let mut end = Instant::now() + PATIENCE;
    while number < least || number < most && Instant::now() < minute {
        let next = number + 1..=(number + PORTION).min(most);
        let records: Vec<Vec<u8>> = next.map(|n| job(n, n % 2 == 0)).collect();
        let op = |value| MapOp {
            code: OpCode::Push,
            flags: 0,
            key: &[],
            value,
        };
        let ops: Vec<MapOp<'_>> = records.iter().map(|record| op(record.as_slice())).collect();
        let outcomes = jobs.batch(&ops).map_err(failed)?;
        let taken = outcomes.iter().take_while(|o| o.errno == 0).count();
        // What found no room, and all behind it, is sent again.
        if let Some(other) = outcomes[taken..].iter().find(|o| o.errno != NO_SPACE) {
            return Err(format!(
                "a push behind one that found no room: {}",
                other.errno
            ));
        }
        number += taken as u64;
        if taken < ops.len() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        if taken > 0 {
            end = Instant::now() + PATIENCE;
        } else if Instant::now() > end {
            return Err(format!("the ring stays full behind record {number}"));
        }
    }
    let sum = 3 * number * (number + 1) / 2;
    let texts = number / 2 * 5;
    // In order and as many as the last one's number: each once.
    is_done(process, [number, sum, number, 0, 0, texts, number])?;
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    control.map_err(failed)?.insert(&0, &1).map_err(failed)?;
    operations("USER_RINGBUF", number);
    Ok(format!("{number} records, {refused} batches found it full"))
}

fn filled(bench: &Bench, process: &Process, pid: u32) -> Told {
    let jobs = process.map("jobs").map_err(failed)?;
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    let control = control.map_err(failed)?;
    let is_done = |expected| is_done(process, expected);
    // Each second record has text: they are of two sizes.
    let mut refused = 0;
    for number in 1..=RECORDS {
        refused += push(&jobs, &job(number, number % 2 == 0))?;
    }
    let sum = |n: u64| 3 * n * (n + 1) / 2;
    is_done([
        RECORDS,
        sum(RECORDS),
        RECORDS,
        0,
        0,
        RECORDS / 2 * 5,
        RECORDS,
    ])?;
    // By the command, with the fields of the record's type, and with any bytes.
    let ask = |words: &[&str]| -> Result<String, String> {
        let mut command = Command::new(bench.folder.join("warpbpf"));
        command.arg("maps").args(words);
        command.args(["--pid", &pid.to_string()]);
        let output = command.output().map_err(|e| e.to_string())?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    same(
        "a push",
        ask(&["push", "jobs", "number=1001,value=3003"])?,
        String::new(),
    )?;
    same(
        "a short one",
        ask(&["push", "jobs", "hex:0102"])?,
        String::new(),
    )?;
    let mut expected = [
        RECORDS + 2,
        sum(RECORDS + 1),
        RECORDS + 1,
        0,
        1,
        RECORDS / 2 * 5,
        RECORDS + 2,
    ];
    is_done(expected)?;
    says(
        &ask(&["pop", "jobs"])?,
        "the map's type has no such operation",
    )?;
    match jobs.push(&[0; 4089], 0) {
        Err(Error::Operation { errno, .. }) => same("too large a record", errno, TOO_LARGE)?,
        other => return Err(format!("a record of 4,089 bytes: {other:?}")),
    }
    // While nobody drains, the ring takes what there is room for, and says so; nothing of it is
    // lost. What stands between the last record and the ring's end is no room for one that does not
    // fit there.
    control.insert(&1, &1).map_err(failed)?;
    std::thread::sleep(Duration::from_millis(50));
    let mut number = RECORDS + 1;
    let full = loop {
        match jobs.push(&job(number + 1, true), 0) {
            Ok(()) => number += 1,
            Err(Error::Operation { errno, .. }) => break errno,
            Err(error) => return Err(failed(error)),
        }
        if number > RECORDS + 1 + ROOM {
            return Err(format!("the ring took more than {ROOM} records"));
        }
    };
    same("a full ring", full, NO_SPACE)?;
    let kept = number - RECORDS - 1;
    if kept < ROOM - 1 {
        return Err(format!(
            "the ring took {kept} records, not {ROOM} or one less"
        ));
    }
    is_done(expected)?;
    control.insert(&1, &0).map_err(failed)?;
    for (value, more) in expected.iter_mut().zip([
        kept,
        sum(number) - sum(RECORDS + 1),
        kept,
        0,
        0,
        kept * 5,
        kept,
    ]) {
        *value += more;
    }
    is_done(expected)?;
    control.insert(&0, &1).map_err(failed)?;
    Ok(format!(
        "{} records, {refused} pushes found it full",
        expected[0]
    ))
}
