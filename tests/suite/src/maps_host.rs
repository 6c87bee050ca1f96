//! Maps that the user placed on the host: programs ask for the keys of a hash, in bounded time,
//! whoever stops or dies.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host_ops::{PATIENCE, Running};
use crate::process::{self, Signal};
use crate::run::{Bench, Case, Run, Told, same, says};
use crate::tree;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("maps on the host", asked),
        case("calls to a host that has little time", hurried),
        case("calls to the host while others change it", changed),
        case("calls to the host when the tool is killed", killed),
        case("calls to the host when it is stopped", stopped),
        case("maps that cannot be on the host", refused),
    ]
}

const PLACES: [&str; 8] = [
    "--budget",
    "8192",
    "--map-memory",
    "asked=host",
    "--map-memory",
    "pairs=host",
    "--map-memory",
    "counts=host",
];

/// Gives also how many threads each launch has.
fn run(bench: &Bench, limit: &str, launches: u64) -> Result<(Run, u64), String> {
    let elements = if bench.soft { "3000" } else { "100000" };
    let mut flags = PLACES.to_vec();
    flags.extend(["--hostcall-timeout", limit]);
    let launches = launches.to_string();
    let run = bench.both_with(&flags, "maps_host", "vectoradd", &[elements, &launches])?;
    let threads = elements.parse::<u64>().unwrap_or(0).div_ceil(256) * 256;
    Ok((run, threads))
}

/// As in `maps_host.bpf.c`.
const CALLS: u64 = 0;
const TIMED_OUT: u64 = 1;
const ADDED: u64 = 2;
const NO_VALUE: u64 = 3;
const TORN: u64 = 4;
const DELETED: u64 = 5;
const STRANGE: u64 = 6;

/// What the map's own count says in the report's warnings.
fn counted(run: &Run, map: &str) -> Result<u64, String> {
    let warnings = run.map(map)?["warnings"].as_array().cloned();
    let number = |text: &str| text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    Ok(warnings
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .filter(|text| text.contains("calls to the host ran out of time"))
        .filter_map(number)
        .sum())
}

fn asked(bench: &Bench) -> Told {
    let (run, threads) = run(bench, "10000", 1)?;
    let count = |key: u64| run.value("counts", key);
    let odd = threads / 2;
    same("calls", count(CALLS)?, 6 * threads + odd)?;
    for (what, key) in [
        ("calls out of time", TIMED_OUT),
        ("lookups without a value", NO_VALUE),
        ("torn values", TORN),
        ("strange results", STRANGE),
    ] {
        same(what, count(key)?, 0)?;
    }
    same("additions", count(ADDED)?, threads)?;
    same("deletes", count(DELETED)?, odd)?;
    for key in 0..100 {
        let expected = threads / 100 + u64::from(key < threads % 100);
        same(&format!("key {key}"), run.value("asked", key)?, expected)?;
    }
    let pairs = run.entries("pairs")?;
    same("keys that stay", pairs.len() as u64, threads - odd)?;
    for (key, value) in &pairs {
        let (key, word) = (key.as_u64().unwrap_or(1), |i: usize| value["w"][i].as_u64());
        same("whose key", key % 2, 0)?;
        same(
            "value",
            [word(0), word(1)],
            [Some(key + 1), Some(!(key + 1))],
        )?;
    }
    for map in ["asked", "pairs"] {
        same("counted as out of time", counted(&run, map)?, 0)?;
    }
    Ok(format!("{} calls, all answered", count(CALLS)?))
}

/// A millisecond: some calls run out of time, and each that does is counted, by the program and by
/// the map. On a GPU the process stands still for 20 ms again and again, while kernels go on; the
/// soft GPU stands still with it.
fn hurried(bench: &Bench) -> Told {
    let launches = if bench.soft { 1 } else { 60 };
    let (run, threads) = match bench.soft {
        true => run(bench, "1", launches)?,
        // Longer than one call alone takes, and far shorter than all of them do.
        false => unsteadily(&bench.app("vectoradd"), || run(bench, "20", launches))?,
    };
    let count = |key: u64| run.value("counts", key);
    let late = counted(&run, "asked")? + counted(&run, "pairs")?;
    // A lookup says nothing of its reason, and finds nothing where the insert before it was late.
    let (told, nothing) = (count(TIMED_OUT)?, count(NO_VALUE)?);
    if late < told || late > told + nothing {
        return Err(format!(
            "{late} calls were late by the maps' count; programs were told of {told}, and {nothing} lookups gave nothing"
        ));
    }
    // Values may be torn here: what was given up by calls that nobody waits for any more is used
    // again.
    same("lookups", count(ADDED)? <= threads * launches, true)?;
    if !bench.soft && (told == 0 || count(ADDED)? == 0) {
        return Err(format!(
            "of {} calls {told} were late, and {} lookups were answered",
            count(CALLS)?,
            count(ADDED)?
        ));
    }
    let added: u64 = run
        .entries("asked")?
        .iter()
        .filter_map(|(_, v)| v.as_u64())
        .sum();
    same("additions", added, count(ADDED)?)?;
    Ok(format!(
        "{late} of {} calls were late, all counted",
        count(CALLS)?
    ))
}

/// Does `work` while all processes that it has started of a program are stopped for 20 ms out
/// of 40.
fn unsteadily<T>(program: &Path, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let program = &program.canonicalize().unwrap_or_else(|_| program.into());
    let pause = Duration::from_millis(20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let processes = running(program);
                for signal in [Signal::Stop, Signal::GoOn] {
                    for pid in &processes {
                        // One that has ended meanwhile is none of ours any more.
                        let _ = process::signal(*pid, signal);
                    }
                    std::thread::sleep(pause);
                }
            }
        });
        let done = work();
        over.store(true, Ordering::Release);
        done
    })
}

/// Numbers of the processes below us that run a program. Other cases run it, too.
fn running(program: &Path) -> Vec<u32> {
    let runs = |pid: &u32| {
        let file = std::fs::read_link(format!("/proc/{pid}/exe"));
        file.is_ok_and(|file| file == program)
    };
    let mut processes = tree::descendants(std::process::id());
    processes.retain(runs);
    processes
}

/// The host's own operations need no kernel here, and so no `--host-ops`.
fn changed(bench: &Bench) -> Told {
    let run = Running::start(
        bench,
        "host-changed",
        &["--map-memory", "orders=host"],
        120_000,
    )?;
    run.spins(bench)?;
    let is = |expected: u64| move |value: &Value| value.as_u64() == Some(expected);
    run.change(
        bench,
        &["update", "orders", "7", "what=1", "times=3", "value=14"],
    )?;
    run.until(bench, &["lookup", "seen", "0"], is(42))?;
    run.change(bench, &["update", "orders", "7", "times=4", "--exist"])?;
    run.until(bench, &["lookup", "seen", "0"], is(56))?;
    let order = run.ask(bench, &["lookup", "orders", "7"])?;
    same(
        "order",
        order.to_string(),
        r#"{"what":1,"times":4,"value":14}"#.to_owned(),
    )?;
    run.change(bench, &["delete", "orders", "7"])?;
    run.until(bench, &["lookup", "seen", "1"], is(1))?;
    let (report, _) = run.end(bench)?;
    same("exit status", report["status"].as_i64(), Some(0))?;
    Ok("an order was put, changed and taken away under a kernel that asks for it".into())
}

/// Nothing of a call goes through the tool.
fn killed(bench: &Bench) -> Told {
    let mut run = Running::start(
        bench,
        "host-killed",
        &["--map-memory", "orders=host"],
        3_000,
    )?;
    run.spins(bench)?;
    run.change(bench, &["update", "orders", "7", "value=9", "times=1"])?;
    run.child.kill().map_err(|e| e.to_string())?;
    let began = Instant::now();
    let output = run.child.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    same("output", said, "ended\n".to_owned())?;
    same("it ended in time", began.elapsed() < PATIENCE, true)?;
    Ok("the application ended as it would have".into())
}

/// The whole process stands still, and with it who answers; a GPU goes on.
fn stopped(bench: &Bench) -> Told {
    let flags = ["--map-memory", "orders=host", "--hostcall-timeout", "20"];
    let run = Running::start(bench, "host-stopped", &flags, 120_000)?;
    run.spins(bench)?;
    let sessions = run.ask(bench, &["list"])?;
    let pid = sessions["sessions"][0]["processes"][0]["pid"].as_u64();
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| format!("no process in {sessions}"))?;
    for _ in 0..3 {
        process::signal(pid, Signal::Stop)?;
        std::thread::sleep(Duration::from_millis(200));
        process::signal(pid, Signal::GoOn)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    // It answers again.
    run.change(
        bench,
        &["update", "orders", "7", "what=1", "times=3", "value=14"],
    )?;
    let is = |value: &Value| value.as_u64() == Some(42);
    run.until(bench, &["lookup", "seen", "0"], is)?;
    let (report, output) = run.end(bench)?;
    same("exit status", report["status"].as_i64(), Some(0))?;
    let late = counted(&Run { report, output }, "orders")?;
    if bench.soft {
        // The soft GPU is in the process, and stood still with it.
        return Ok(format!("{late} calls were late"));
    }
    same("calls were late", late > 0, true)?;
    Ok(format!("{late} calls were late and counted"))
}

fn refused(bench: &Bench) -> Told {
    for (place, object, expected) in [
        (
            "latest=host",
            "maps_more",
            "map `latest` cannot be placed on the host: it is a queue, possible are array,",
        ),
        (
            "nothing=host",
            "maps_host",
            "map `nothing` cannot be placed: the object has none of this name; it has `asked`, `pairs`, `counts`",
        ),
        (
            "asked=managed",
            "maps_host",
            "managed memory moves under kernels that use it: choose `host` or `device`",
        ),
        ("asked", "maps_host", "write `MAP=host` or `MAP=device`"),
    ] {
        let flags = ["--budget", "8192", "--map-memory", place];
        let run = bench.probed(
            &flags,
            &bench.object(object),
            &bench.app("vectoradd"),
            &["1000", "1"],
        )?;
        says(&(run.errors() + &run.notes()), expected)?;
    }
    Ok("by name".into())
}
