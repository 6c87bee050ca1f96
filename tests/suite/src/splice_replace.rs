//! Programs replaced in kernels without PTX, while two threads launch them: which launch had which
//! is told by counters, exactly.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use crate::attach::{Application, until_known};
use crate::library::PATIENCE;
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("machine code: programs replaced under load", spliced),
        case("sanitizer: programs replaced under load", patched),
        case(
            "machine code: a `ptxas` that hangs keeps nobody out",
            hanging,
        ),
        case(
            "machine code: a `ptxas` that hangs keeps programs from nobody with PTX",
            begun,
        ),
    ]
}

/// Where launches with `other` count.
const OTHER: u64 = 1000;
/// The last version.
const VERSIONS: u64 = 12;

fn spliced(bench: &Bench) -> Told {
    match bench.soft {
        true => with_ptx(bench),
        false => replaced(bench, "splice"),
    }
}

fn patched(bench: &Bench) -> Told {
    match bench.soft {
        true => Ok("skipped: no GPU, and the soft one runs no machine code".to_owned()),
        false => replaced(bench, "sanitizer"),
    }
}

/// A `ptxas` that stops to take anything once a file is there, and does not end once another is.
struct Ptxas {
    script: String,
    stop: std::path::PathBuf,
    hang: std::path::PathBuf,
    /// The one that takes what it is given, where somebody has named one.
    real: String,
}

impl Ptxas {
    fn new(bench: &Bench) -> Result<Ptxas, String> {
        let (script, stop) = (bench.scratch("ptxas"), bench.scratch("no-ptxas"));
        let hang = bench.scratch("ptxas-hangs");
        let text = format!(
            r#"#!/bin/sh
[ -e '{}' ] && exec sleep 100000
if [ -e '{}' ]; then
    echo nothing is good enough any more >&2
    exit 1
fi
for ptxas in "$REAL_PTXAS" "$CUDA_HOME/bin/ptxas" "$CUDA_PATH/bin/ptxas" "$(command -v ptxas)" /usr/local/cuda/bin/ptxas; do
    [ -x "$ptxas" ] && exec "$ptxas" "$@"
done
echo there is none >&2
exit 1
"#,
            hang.display(),
            stop.display()
        );
        std::fs::write(&script, text)
            .and_then(|()| {
                std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
            })
            .map_err(|e| format!("{}: {e}", script.display()))?;
        Ok(Ptxas {
            script: script.display().to_string(),
            stop,
            hang,
            real: std::env::var("WARPBPF_PTXAS").unwrap_or_default(),
        })
    }

    fn bench(&self, bench: &Bench) -> Bench {
        bench.with(&[("WARPBPF_PTXAS", &self.script), ("REAL_PTXAS", &self.real)])
    }

    fn stops(&self, stops: bool) -> Result<(), String> {
        marked(&self.stop, stops)
    }

    fn hangs(&self, hangs: bool) -> Result<(), String> {
        marked(&self.hang, hangs)
    }
}

/// A file is there, or not.
fn marked(file: &std::path::Path, there: bool) -> Result<(), String> {
    let done = match there {
        true => std::fs::write(file, ""),
        false => std::fs::remove_file(file),
    };
    done.map_err(|e| format!("{}: {e}", file.display()))
}

/// A session of `warpbpf run` whose application does what its input says.
struct Session<'b> {
    bench: &'b Bench,
    application: Application,
    report: std::path::PathBuf,
}

impl<'b> Session<'b> {
    fn start(bench: &'b Bench, backend: &str, app: &[&str]) -> Result<Session<'b>, String> {
        let report = bench.scratch("replaced.json");
        let mut command = bench.warpbpf("run");
        command
            .args(["--backend", backend, "--json", "-o"])
            .args([&report, &bench.object("replace")])
            .arg("--")
            .arg(bench.app(app[0]))
            .args(&app[1..])
            .stderr(Stdio::inherit());
        Ok(Session {
            bench,
            application: Application::start(command)?,
            report,
        })
    }

    /// Another command about its programs: its exit status, what it says, and what it complains of.
    fn command(&self, verb: &str, words: &[&str]) -> Result<(Option<i32>, Value, String), String> {
        let mut command = self.bench.warpbpf(verb);
        command.args(words);
        command.args(["--json", "--pid", &self.application.pid()]);
        let output = command.output().map_err(|e| format!("{verb}: {e}"))?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = format!("{} {errors}", said["error"]);
        Ok((output.status.code(), said["processes"][0].clone(), errors))
    }

    /// A replacement that is done: the kernels that run without, and why.
    fn apply(&self, verb: &str, words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let (status, said, errors) = self.command(verb, words)?;
        if status != Some(0) {
            return Err(format!("`{verb}` {words:?}: {errors}"));
        }
        serde_json::from_value(said["without"].clone()).map_err(|e| format!("{said}: {e}"))
    }

    fn version(&self, verb: &str, version: u64) -> Result<Vec<(String, String)>, String> {
        let object = self.bench.object("replace").display().to_string();
        self.apply(verb, &[&object, "--set", &format!("version={version}")])
    }

    /// Waits until a launch of the programs in force was seen.
    fn launches(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (_, said, errors) = self.command("programs", &[])?;
            let programs = said["programs"].as_array().cloned().unwrap_or_default();
            let launched = |p: &Value| p["launches"].as_u64().is_some_and(|n| n > 0);
            if !programs.is_empty() && programs.iter().all(launched) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("no launch of all of {said}; {errors}"));
            }
        }
    }

    /// Its application's last words, and the report.
    fn end(self) -> Result<(String, Value), String> {
        let said = self.application.end()?;
        let text = std::fs::read(&self.report).map_err(|e| e.to_string())?;
        let report = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        Ok((said, report))
    }
}

/// Launches that counted under each version, at the start and at the end.
fn counted(report: &Value, version: u64) -> [u64; 2] {
    let maps = report["processes"][0]["maps"].as_array();
    let maps = maps.map(Vec::as_slice).unwrap_or_default();
    ["entered", "left"].map(|name| {
        let map = maps.iter().find(|map| map["name"] == name);
        let entries = map.and_then(|map| map["entries"].as_array());
        let mut entries = entries.into_iter().flatten();
        let entry = entries.find(|entry| entry["key"].as_u64() == Some(version));
        entry.and_then(|entry| entry["value"].as_u64()).unwrap_or(0)
    })
}

/// Of a kernel: launches with probes, and originals for each reason.
fn launches_of(report: &Value, kernel: &str) -> Result<[u64; 3], String> {
    launches_in(&report["processes"][0], kernel)
}

fn launches_in(process: &Value, kernel: &str) -> Result<[u64; 3], String> {
    let kernels = process["kernels"].as_array();
    let mut kernels = kernels.into_iter().flatten();
    let row = kernels.find(|row| row["name"] == kernel);
    let row = row.ok_or_else(|| format!("no kernel `{kernel}`: {process}"))?;
    Ok(["launches", "uninstrumented", "unwanted"].map(|what| row[what].as_u64().unwrap_or(0)))
}

fn replaced(bench: &Bench, backend: &str) -> Told {
    let ptxas = Ptxas::new(bench)?;
    let bench = &ptxas.bench(bench);
    let plain = String::from_utf8_lossy(&bench.plain("machine", &["live"])?).into_owned();
    let mut session = Session::start(bench, backend, &["machine", "live"])?;
    same(
        "first words",
        session.application.next_line()?,
        "running".to_owned(),
    )?;
    session.launches()?;

    let tally = "it uses variables of its module";
    for version in 2..=VERSIONS {
        let without = session.version("replace", version)?;
        let names: Vec<&str> = without.iter().map(|(name, _)| name.as_str()).collect();
        // What shares variables with its module never had programs.
        same("run without", names, vec!["scale", "tally"])?;
        says(&without[1].1, tally)?;
        session.launches()?;
    }

    // Nothing is changed where a function cannot be made.
    ptxas.stops(true)?;
    let object = bench.object("replace").display().to_string();
    let (status, _, errors) = session.command("replace", &[&object, "--set", "version=13"])?;
    ptxas.stops(false)?;
    same("exit status", status, Some(125))?;
    says(
        &errors,
        "`ptxas` refuses the function: nothing is good enough any more",
    )?;

    // Combinations that there were not: three programs at the entry and the exit of one kernel,
    // then two at one entry.
    let other = bench.object("machine_other").display().to_string();
    session.apply("add", &[&other])?;
    session.launches()?;
    session.apply("remove", &["leave"])?;
    session.launches()?;
    let none = session.apply("remove", &["enter", "other"])?;
    same("run without programs", none, Vec::new())?;
    session.version("replace", VERSIONS + 1)?;
    session.launches()?;

    let (said, report) = session.end()?;
    let outputs = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    same("outputs", outputs(&said), outputs(&plain))?;
    says(&said, ", 0 others")?;
    let made = said.lines().find_map(|line| line.strip_suffix(" launches"));
    let made = made.and_then(|made| made.parse().ok());
    let made: u64 = made.ok_or_else(|| format!("odd words: {said}"))?;
    let mut probed = 0;
    for kernel in ["halve", "sums"] {
        let [with, uninstrumented, unwanted] = launches_of(&report, kernel)?;
        same("uninstrumented", uninstrumented, 0)?;
        same("launches", with + unwanted, made)?;
        probed += with;
    }
    let mut entered = 0;
    for version in 1..=VERSIONS + 1 {
        let [begun, ended] = counted(&report, version);
        entered += begun;
        match version == VERSIONS {
            // Some of these launches had no program at their ends.
            true => same("launches that only begin", begun > ended && ended > 0, true)?,
            false => same("launches of a version", (ended, begun > 0), (begun, true))?,
        }
    }
    same("launches that counted", entered, probed)?;
    let [others, _] = counted(&report, OTHER);
    same(
        "launches with one more",
        others > 0 && others < probed,
        true,
    )?;
    Ok(format!(
        "{made} launches of each of two kernels, {probed} of these with programs, in {} sets",
        VERSIONS + 4
    ))
}

/// Kernels with PTX get other programs whatever `ptxas` does: no function is needed for them.
fn with_ptx(bench: &Bench) -> Told {
    let ptxas = Ptxas::new(bench)?;
    let bench = &ptxas.bench(bench);
    ptxas.stops(true)?;
    let mut session = Session::start(bench, "splice", &["live"])?;
    session.application.launch(3)?;
    until_known(bench, &session.application.pid())?;
    let without = session.version("replace", 2)?;
    let names: Vec<&str> = without.iter().map(|(name, _)| name.as_str()).collect();
    same("runs without", names, vec!["scaled"])?;
    says(&without[0].1, "its image is loaded already")?;
    session.application.launch(4)?;
    session.apply("remove", &["leave"])?;
    session.application.launch(5)?;
    let (status, _, errors) = session.command("remove", &["nobody"])?;
    same("exit status", status, Some(125))?;
    says(&errors, "there is no program `nobody`; there is `enter`")?;
    let (_, report) = session.end()?;
    same("of the first version", counted(&report, 1), [6, 6])?;
    same("of the second", counted(&report, 2), [9, 4])?;
    same("launches", launches_of(&report, "step")?, [12, 0, 0])?;
    Ok("12 launches, two replacements".to_owned())
}

/// The start and a replacement wait for it as long as they are told to, and the next replacement
/// does not wait for what the last one began.
fn hanging(bench: &Bench) -> Told {
    let ptxas = Ptxas::new(bench)?;
    let with = |seconds| {
        bench.with(&[
            ("WARPBPF_PTXAS", &ptxas.script),
            ("WARPBPF_PTXAS_SECONDS", seconds),
        ])
    };
    let (bench, bad) = (&with("2"), with("soon"));
    ptxas.hangs(true)?;
    let mut session = Session::start(bench, "splice", &["live"])?;
    session.application.launch(3)?;
    until_known(bench, &session.application.pid())?;
    let object = bench.object("replace").display().to_string();
    let version = ["version=2", "version=3"];
    let (status, _, errors) =
        session.command("replace", &[&object, "--set", version[0], "--limit", "1"])?;
    same("exit status", status, Some(125))?;
    says(
        &errors,
        "functions for kernels without PTX, which `ptxas` makes, are not assembled after 1.0 s, and the old programs go on",
    )?;
    session.application.launch(4)?;
    ptxas.hangs(false)?;
    ptxas.stops(true)?;
    session.apply("replace", &[&object, "--set", version[1]])?;
    session.application.launch(5)?;
    let (_, report) = session.end()?;
    let counts = [1, 2, 3].map(|version| counted(&report, version));
    // A clone of the other kernel stands in a module that is loaded already.
    same("of the versions", counts, [[14, 14], [0, 0], [5, 5]])?;
    let mut command = bad.warpbpf("run");
    command
        .args(["--backend", "splice", &object, "--"])
        .arg(bench.app("live"));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    same("exit status", output.status.code(), Some(125))?;
    says(
        &String::from_utf8_lossy(&output.stderr),
        "WARPBPF_PTXAS_SECONDS is `soon`, and not a number of seconds from 1 on",
    )?;
    Ok("12 launches, one replacement that was given up and one that was made".to_owned())
}

/// Two applications that come at once, with the limit that there is where nobody says one: neither
/// gives up, though the second has to wait for what the first waits for.
fn begun(bench: &Bench) -> Told {
    let ptxas = Ptxas::new(bench)?;
    let bench = &ptxas.bench(bench);
    ptxas.hangs(true)?;
    let saved = bench.scratch("begun.json");
    let mut command = bench.warpbpf("run");
    command
        .env_remove("WARPBPF_PTXAS_SECONDS")
        .args(["--backend", "splice", "--json", "-o"])
        .args([&saved, &bench.object("replace")])
        .args(["--", "sh", "-c", r#"echo 3 | "$0" & echo 4 | "$0"; wait"#])
        .arg(bench.app("live"));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    same("exit status", output.status.code(), Some(0)).map_err(|e| format!("{e}: {errors}"))?;
    let text = std::fs::read(&saved).map_err(|e| format!("{}: {e}", saved.display()))?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for process in report["processes"].as_array().into_iter().flatten() {
        all.push((
            launches_in(process, "step")?,
            launches_in(process, "scaled")?,
        ));
    }
    all.sort_unstable();
    let each = |launches| ([launches, 0, 0], [launches, 0, 0]);
    same("launches", all, vec![each(3), each(4)])?;
    Ok("two applications, 14 launches with programs".to_owned())
}
