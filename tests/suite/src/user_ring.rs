//! Records of the host for programs: through the library and the command, into a kernel that runs.

use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf::{DeviceChoice, Error, Launch, Map, Object, Options, Process, Tool};

use crate::run::{Bench, Case, Told, same, says};

/// How long an answer may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// `ENOSPC` and `E2BIG`, as the agent tells them.
const NO_SPACE: i32 = -28;
const TOO_LARGE: i32 = -7;
/// Records that are pushed while programs drain.
const RECORDS: u64 = 1_000;
/// Records of 24 bytes and a header that the ring of 4,096 bytes takes.
const ROOM: u64 = 4096 / 32;

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "user ring: records of the host, in order",
        check: records,
    }]
}

fn failed(error: Error) -> String {
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
    let object = Object::open(bench.object("userring")).map_err(failed)?;
    let options = Options {
        allow_modify: true,
        budget: Some(20_000),
        ..Options::default()
    };
    let tool = Tool::attach(object, options).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let command = [bench.app("longrun").into_os_string(), "120000".into()];
    let device = if bench.soft {
        DeviceChoice::Soft
    } else {
        DeviceChoice::Gpu
    };
    let mut app = tool
        .start(&Launch::new(command).device(device))
        .map_err(failed)?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let pid = app.child().id();
    let told = filled(bench, &process, pid);
    // Whatever went wrong: it does not stay behind.
    if told.is_err() {
        let _ = app.child().kill();
    }
    let told = told?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    Ok(told)
}

fn filled(bench: &Bench, process: &Process, pid: u32) -> Told {
    let jobs = process.map("jobs").map_err(failed)?;
    let done = process.map("done").and_then(|map| map.typed::<u32, u64>());
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    let (done, control) = (done.map_err(failed)?, control.map_err(failed)?);
    let is_done = |expected: [u64; 7]| -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut found = [0; 7];
            for (key, value) in found.iter_mut().enumerate() {
                *value = done.get(&(key as u32)).map_err(failed)?.unwrap_or(0);
            }
            if found == expected || Instant::now() > end {
                return same("what was drained", found, expected);
            }
        }
    };
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
    // While nobody drains, the ring takes what there is room for, and says so; nothing of it is lost. What stands between
    // the last record and the ring's end is no room for one that does not fit there.
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
