//! A libbpf tool that does with maps of many types all that they let a tool do, while an
//! application uses them: each outcome is known.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{ChildStdout, Stdio};

use crate::loader::{SKIPPED, tools};
use crate::process::Owned;
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "loader: manymaps, all that a tool can do",
        check: manymaps,
    }]
}

/// What it says of a map by key before the application goes on: 16 keys with 48 each were counted.
const KEYED: &[&str] = &[
    "filled: keys 16, sum 120, values 768",
    "update: ok, File exists, No such file or directory",
    "lookup: ok, 50, No such file or directory",
    "everywhere: ok, as written",
    "delete: ok, No such file or directory, No such file or directory",
    "take: ok, 48, No such file or directory",
    "update batch: ok, 10",
    "delete batch: ok, 4, No such file or directory, 0",
    // 14 of the counters, one of which was written over, and six of ten that are 1000 and more.
    "batches: keys 20, sum 6146, values 716, then No such file or directory",
    "taken: keys 20, sum 6146, values 716, then No such file or directory",
    "put back: ok",
];

/// What it says of the others.
const OTHERS: &[&str] = &[
    "queue popped: 48, sum 408, then No such file or directory, No such file or directory",
    "queue pushed: 64, then Argument list too long, ok, ok, 2",
    "queue refused: Invalid argument, Invalid argument",
    "queue peek: ok, 101",
    "stack popped: 48, sum 408, then No such file or directory, No such file or directory",
    "stack pushed: 64, then Argument list too long, Argument list too long, ok, 64",
    "stack refused: Invalid argument, Invalid argument",
    "stack peek: ok, 103",
    "bloom: 256, No such file or directory, ok, ok",
    "bloom refused: Operation not supported, Operation not supported, Operation not supported",
    "array of maps: first, second, No such file or directory",
    "array of maps update: ok, Invalid argument, second",
    "array of maps delete: ok, No such file or directory, No such file or directory",
    "array of maps keys: 3, then No such file or directory",
    "hash of maps: first, second, No such file or directory",
    "hash of maps update: ok, Invalid argument, second",
    "hash of maps delete: ok, No such file or directory, No such file or directory",
    "hash of maps keys: 1, then No such file or directory",
    "changed",
];

/// At the end, after one more launch of 256 threads: four keys began it with 100.
const END: &[&str] = &[
    "hash at the end: keys 16, sum 120, values 656",
    "lru at the end: keys 16, sum 120, values 656",
    "percpu at the end: keys 16, sum 120, values 656",
    "lru percpu at the end: keys 16, sum 120, values 656",
    "queue at the end: ok, 103, ok, 103, 104, No such file or directory",
    "stack at the end: ok, 101, ok, 104, 101, No such file or directory",
    "maps in maps at the end: ok, No such file or directory, ok, first",
    "bloom at the end: ok, No such file or directory, ok, ok",
    "found: queue 203, stack 205, bloom 256, nothing 128 and 128",
    "inside: first 384 and 384, second 512 and 512",
];

fn manymaps(bench: &Bench) -> Told {
    let tools = tools(bench, "manymaps");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    let mut expected: Vec<String> = Vec::new();
    for map in ["hash", "lru", "percpu", "lru percpu"] {
        expected.extend(KEYED.iter().map(|line| format!("{map} {line}")));
    }
    expected.extend(OTHERS.iter().map(|line| (*line).to_owned()));
    for tool in &tools {
        let told = bench.scratch("manymaps-filled");
        let _ = std::fs::remove_file(&told);
        let mut command = bench.warpbpf("loader");
        command.args(["--budget", "65536"]).arg(tool).arg(&told);
        command.arg("--").arg(bench.app("live"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Owned::spawn(command.stderr(Stdio::piped()));
        let mut child = child.map_err(|e| format!("warpbpf: {e}"))?;
        let mut orders = child.stdin.take().ok_or("no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let errors = child.stderr.take().ok_or("no errors")?;
        let errors = std::thread::spawn(move || std::io::read_to_string(errors));
        // Where nobody takes it, what went wrong is told below.
        let mut order = |text: &[u8]| drop(orders.write_all(text));
        // The application says its results once the launches are done.
        order(b"3\n");
        let mut said = some(&mut lines, 1);
        std::fs::write(&told, "").map_err(|e| e.to_string())?;
        let of_tool = some(&mut lines, expected.len());
        order(b"1\n");
        said.extend(some(&mut lines, 1));
        drop(orders);
        let end: Vec<String> = lines.map_while(Result::ok).collect();
        let status = child.wait().map_err(|e| e.to_string())?;
        let errors = errors.join().map_err(|_| "a panic")?.unwrap_or_default();
        same(&errors, status.code(), Some(0))?;
        // Each launch adds up the numbers of its threads, one kernel's three times.
        let alone = |n: u64| format!("{} {} {}", n * 4 * 2016, n * 2 * 496 * 3, n * 4);
        same("the application", said, vec![alone(3), alone(4)])?;
        for (found, expected) in of_tool.iter().zip(&expected) {
            // What the loader says of kernels tells whether they had programs.
            same("a line", found, expected).map_err(|why| format!("{why}\n{errors}"))?;
        }
        same("lines", of_tool.len(), expected.len())?;
        same(
            "at the end",
            end,
            END.iter().map(|line| (*line).to_owned()).collect(),
        )?;
        same(
            "nothing is lost or refused",
            errors.contains("map `"),
            false,
        )?;
    }
    Ok(format!(
        "{} forms, {} lines",
        tools.len(),
        expected.len() + END.len()
    ))
}

/// The next lines, as many as there are.
fn some(lines: &mut Lines<BufReader<ChildStdout>>, count: usize) -> Vec<String> {
    lines.by_ref().take(count).map_while(Result::ok).collect()
}
