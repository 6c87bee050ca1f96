//! The host reads and changes maps while a kernel runs that would not end without it.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::Owned;
use crate::run::{Bench, Case, Told, same, says};

/// How long anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// What the program may cost at a load.
const BUDGET: &str = "20000";

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("host operations steer a kernel that runs", steer),
        case("host operations on one map from many", many),
        case("host operations that cannot be done", refused),
        case("a tool that is killed harms nothing", killed),
    ]
}

/// A `warpbpf run` with the kernel that does not end.
pub struct Running {
    pub child: Owned,
    saved: std::path::PathBuf,
}

impl Running {
    pub fn start(
        bench: &Bench,
        name: &str,
        flags: &[&str],
        milliseconds: u32,
    ) -> Result<Running, String> {
        let saved = bench.scratch(&format!("{name}.json"));
        let _ = std::fs::remove_file(&saved);
        let mut command = bench.warpbpf("run");
        command.args(["--allow-modify", "--budget", BUDGET, "--live-sums"]);
        command.args(flags).args(["--json", "-o"]).arg(&saved);
        command.arg(bench.object("longrun")).arg("--");
        command
            .arg(bench.app("longrun"))
            .arg(milliseconds.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
        Ok(Running { child, saved })
    }

    /// `warpbpf maps` on it.
    fn maps(&self, bench: &Bench, words: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(bench.folder.join("warpbpf"));
        command.arg("maps").args(words).stdin(Stdio::null());
        let pid = self.child.id().to_string();
        command.args(["--json", "--pid", &pid]);
        command.output().map_err(|e| format!("warpbpf maps: {e}"))
    }

    /// What it answers, or what it says went wrong.
    pub fn ask(&self, bench: &Bench, words: &[&str]) -> Result<Value, String> {
        let output = self.maps(bench, words)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|_| {
            format!(
                "`maps {}` said `{text}` and `{}`",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim_end()
            )
        })
    }

    pub fn change(&self, bench: &Bench, words: &[&str]) -> Result<(), String> {
        match self.ask(bench, words)? {
            Value::Null => Ok(()),
            said => Err(format!("`maps {}`: {said}", words.join(" "))),
        }
    }

    /// Asks until the answer is right.
    pub fn until(
        &self,
        bench: &Bench,
        words: &[&str],
        right: impl Fn(&Value) -> bool,
    ) -> Result<Value, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.ask(bench, words);
            if let Ok(value) = &said
                && right(value)
            {
                return Ok(value.clone());
            }
            if Instant::now() > end {
                return Err(format!(
                    "`maps {}` never said what it should: {said:?}",
                    words.join(" ")
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its kernel runs.
    pub fn spins(&self, bench: &Bench) -> Result<(), String> {
        let positive = |value: &Value| value.as_u64().is_some_and(|n| n > 0);
        self.until(bench, &["lookup", "rounds", "0"], positive)
            .map(drop)
    }

    /// Ends the kernel through its map, and gives the report.
    pub fn end(mut self, bench: &Bench) -> Result<(Value, Output), String> {
        self.change(bench, &["update", "control", "0", "1"])?;
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if Instant::now() > end {
                return Err("the kernel did not end when its map said so".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = self.child.output().map_err(|e| e.to_string())?;
        let text = std::fs::read(&self.saved).unwrap_or_default();
        let report = serde_json::from_slice(&text).unwrap_or(Value::Null);
        Ok((report, output))
    }
}

/// The value of a number key in a map of the report.
fn reported(report: &Value, map: &str, key: u64) -> Option<Value> {
    let maps = report["processes"][0]["maps"].as_array()?;
    let map = maps.iter().find(|m| m["name"] == map)?;
    let entries = map["entries"].as_array()?;
    let entry = entries.iter().find(|e| e["key"].as_u64() == Some(key))?;
    Some(entry["value"].clone())
}

fn steer(bench: &Bench) -> Told {
    let run = Running::start(bench, "steer", &["--host-ops"], 120_000)?;
    run.spins(bench)?;
    let is = |expected: u64| move |value: &Value| value.as_u64() == Some(expected);
    // An array, a variable, a hash: the kernel sees each of them.
    run.change(bench, &["update", "control", "1", "77"])?;
    run.until(bench, &["lookup", "seen", "3"], is(77))?;
    run.until(bench, &["lookup", "seen", "2"], is(3))?;
    run.change(bench, &["update", ".data", "0", "setting=0x123456789a"])?;
    run.until(bench, &["lookup", "seen", "2"], is(0x12_3456_789a))?;
    run.change(
        bench,
        &["update", "orders", "7", "what=1", "times=3", "value=14"],
    )?;
    run.until(bench, &["lookup", "seen", "0"], is(42))?;
    // Fields that are not named stay.
    run.change(bench, &["update", "orders", "7", "times=4", "--exist"])?;
    run.until(bench, &["lookup", "seen", "0"], is(56))?;
    let order = run.ask(bench, &["lookup", "orders", "7"])?;
    same(
        "order",
        order.to_string(),
        r#"{"what":1,"times":4,"value":14}"#.to_owned(),
    )?;
    let exists = run.ask(bench, &["update", "orders", "7", "times=4", "--noexist"])?;
    says(&exists.to_string(), "the key exists (EEXIST)")?;
    same(
        "the key is seen to be gone",
        run.ask(bench, &["lookup", "seen", "1"])?.as_u64(),
        Some(0),
    )?;
    run.change(bench, &["delete", "orders", "7"])?;
    run.until(bench, &["lookup", "seen", "1"], is(1))?;
    let gone = run.ask(bench, &["delete", "orders", "7"])?;
    says(&gone.to_string(), "there is no such key (ENOENT)")?;
    run.change(bench, &["update", "orders", "8", "value=5"])?;
    let dump = run.ask(bench, &["dump", "orders"])?;
    same(
        "entries",
        dump["map"]["entries"].to_string(),
        r#"[{"key":8,"value":{"what":0,"times":0,"value":5}}]"#.to_owned(),
    )?;
    let watched = run.maps(
        bench,
        &["watch", "orders", "--count", "2", "--interval", "0.01"],
    )?;
    same(
        "watched",
        String::from_utf8_lossy(&watched.stdout).into_owned(),
        "{\"key\":\"8\",\"value\":{\"what\":0,\"times\":0,\"value\":5}}\n".to_owned(),
    )?;
    let list = run.ask(bench, &["list"])?;
    let maps = list["sessions"][0]["processes"][0]["maps"].as_array();
    let names: Vec<&str> = maps
        .into_iter()
        .flatten()
        .filter_map(|m| m["name"].as_str())
        .collect();
    for name in ["control", "orders", "seen", "rounds"] {
        if !names.contains(&name) {
            return Err(format!("`{name}` is not listed: {list}"));
        }
    }
    let (report, output) = run.end(bench)?;
    same(
        "output",
        String::from_utf8_lossy(&output.stdout).into_owned(),
        "ended\n".to_owned(),
    )?;
    same("last value", reported(&report, "seen", 0), Some(56.into()))?;
    same(
        "variable",
        reported(&report, "seen", 2),
        Some(0x12_3456_789a_u64.into()),
    )?;
    let order = reported(&report, "orders", 8).map(|value| value.to_string());
    same(
        "order",
        order,
        Some(r#"{"what":0,"times":0,"value":5}"#.to_owned()),
    )?;
    let rounds = reported(&report, "rounds", 0)
        .and_then(|n| n.as_u64())
        .unwrap_or(0);
    Ok(format!("{rounds} rounds"))
}

/// Several commands at once: what each writes is there.
fn many(bench: &Bench) -> Told {
    const WRITERS: u64 = 4;
    const KEYS: u64 = 8;
    let run = Running::start(bench, "many", &["--host-ops"], 120_000)?;
    run.spins(bench)?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let run = &run;
                scope.spawn(move || {
                    for key in 0..KEYS {
                        let key = 100 + writer * KEYS + key;
                        let value = format!("value={}", key * 3);
                        run.change(bench, &["update", "orders", &key.to_string(), &value])?;
                    }
                    Ok(())
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().map_err(|_| "a writer panicked".to_owned())?)
            .collect::<Result<Vec<()>, String>>()
    })?;
    let (report, _) = run.end(bench)?;
    for key in 100..100 + WRITERS * KEYS {
        let order = reported(&report, "orders", key);
        let value = order.as_ref().and_then(|order| order["value"].as_u64());
        same(&format!("order {key}"), value, Some(key * 3))?;
    }
    Ok(format!(
        "{} keys by {WRITERS} commands at once",
        WRITERS * KEYS
    ))
}

fn refused(bench: &Bench) -> Told {
    let run = Running::start(bench, "refused", &[], 120_000)?;
    run.spins(bench)?;
    let said =
        |words: &[&str]| -> Result<String, String> { Ok(run.ask(bench, words)?.to_string()) };
    says(
        &said(&["update", "orders", "7", "value=1"])?,
        "start it with operations of the host (`--host-ops`)",
    )?;
    says(
        &said(&["lookup", "nothing", "0"])?,
        "there is no map `nothing`; there are `",
    )?;
    let missing = run.maps(bench, &["lookup", "control", "9"])?;
    let errors = String::from_utf8_lossy(&missing.stderr).into_owned();
    says(&errors, "there is no such key")?;
    same("status of a missing key", missing.status.code(), Some(1))?;
    says(
        &said(&["update", "control", "9", "1"])?,
        "the key is outside the array (E2BIG)",
    )?;
    says(
        &said(&["update", "control", "0", "4294967296"])?,
        "does not fit into 4 bytes",
    )?;
    says(
        &said(&["update", "orders", "7", "other=1"])?,
        "the value has no field `other`; its fields are what, times, value",
    )?;
    says(
        &said(&["push", "control", "1"])?,
        "the map's type has no such operation",
    )?;
    // Arrays and hashes are read all the same.
    same(
        "control",
        run.ask(bench, &["lookup", "control", "1"])?.as_u64(),
        Some(0),
    )?;
    run.end(bench)?;
    let mut command = Command::new(bench.folder.join("warpbpf"));
    let output = command
        .args(["maps", "list", "--pid", "1"])
        .output()
        .map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !errors.contains("no running session") {
        says(&errors, "no session of warpbpf has a process 1")?;
    }
    Ok("each says why".into())
}

fn killed(bench: &Bench) -> Told {
    let mut run = Running::start(bench, "killed", &["--host-ops"], 3_000)?;
    run.spins(bench)?;
    run.change(bench, &["update", "orders", "7", "value=9", "times=1"])?;
    run.child.kill().map_err(|e| e.to_string())?;
    // The application has our pipe, and ends by itself.
    let began = Instant::now();
    let output = run.child.output().map_err(|e| e.to_string())?;
    same(
        "output",
        String::from_utf8_lossy(&output.stdout).into_owned(),
        "ended\n".to_owned(),
    )?;
    if began.elapsed() > PATIENCE {
        return Err("it took too long".into());
    }
    Ok("the application ended as it would have".into())
}
